"""Write docs/answers/ from the package and from the kept figures, so that nothing there is typed by hand."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from truecopy.answers import pages
from truecopy.answers.record import Figure
from truecopy.answers.running import run
from truecopy.answers.topics import TOPICS, load
from truecopy.reports.terminal import render

HERE = Path(__file__).parent
FIGURES = HERE / "results" / "answers.json"
FOLDER = HERE.parent / "docs" / "answers"
REFERENCE = "clone().detach()"
SLOW = ("new_tensor()", "tensor()")


def main() -> None:
    """Write every page and the plot."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in written(json.loads(FIGURES.read_text())).items():
        (FOLDER / name).write_text(text)


def written(kept: Mapping[str, Any]) -> dict[str, str]:
    """File name -> text, for all of docs/answers/."""
    answers = {topic: load(topic) for topic in TOPICS}
    machine = (
        f"measured with torch {kept['machine']['torch']} and {kept['machine']['threads']} threads"
    )
    return {
        "index.md": pages.index(answers, excerpt()),
        **{
            f"{topic}.md": pages.page(answer, figures(kept["races"][topic]), machine)
            for topic, answer in answers.items()
        },
        "the-plot.md": plot_page(kept),
        "the-plot.svg": plot(kept),
    }


def figures(kept: Mapping[str, Any]) -> pages.Figures:
    """Kept figures as what they were."""
    return {
        name: Figure(**{**figure, "denied": figure["denied"] and tuple(figure["denied"])})
        for name, figure in kept.items()
    }


def excerpt() -> str:
    """The beginning of the report of a topic without races, whose text is always the same."""
    lines = render(run([load("deepcopy")])).splitlines()
    end = [place for place, line in enumerate(lines) if line.startswith('  "')][4]
    return "\n".join(lines[: end - 1])


# --- the plot -------------------------------------------------------------------------------------


def ratios_of_perfplot(kept: Mapping[str, Any], method: str) -> list[float]:
    """A method's times over those of the reference."""
    times = kept["perfplot"]
    return [a / b for a, b in zip(times[method], times[REFERENCE], strict=True)]


def ratios_of_ours(rows: Mapping[str, Any], method: str) -> list[float]:
    """The same, as our protocol has them."""
    return [row["ratio"] for row in rows[method]]


def between(ratios: list[float]) -> str:
    """The least and the most of some ratios."""
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def plot_page(kept: Mapping[str, Any]) -> str:
    """The page of the second article's plot, its figures taken from the run."""
    sizes = kept["sizes"]
    rows = [
        f"| `{name}` | {between(ratios_of_perfplot(kept, name))} | "
        f"{between(ratios_of_ours(kept['ours'], name))} | "
        f"{between(ratios_of_ours(kept['ours_with_gradient'], name))} |"
        for name in kept["perfplot"]
    ]
    slow = [ratio for name in SLOW for ratio in ratios_of_perfplot(kept, name)]
    ours = [ratio for name in SLOW for ratio in ratios_of_ours(kept["ours"], name)]
    graph = [ratio for name in SLOW for ratio in ratios_of_ours(kept["ours_with_gradient"], name)]
    order = ratios_of_ours(kept["ours"], "detach().clone()")
    order_with = ratios_of_ours(kept["ours_with_gradient"], "detach().clone()")
    filled = ratios_of_ours(kept["ours_with_gradient"], "empty_like().copy_()")
    return _PAGE.format(
        torch=kept["machine"]["torch"],
        threads=kept["machine"]["threads"],
        first=sizes[0],
        last=f"{sizes[-1]:,}",
        rows="\n".join(rows),
        headline=headline([*slow, *ours]),
        slow=between(slow),
        ours=between(ours),
        graph=between(graph),
        growth=growth(kept),
        order=between(order),
        order_with=between(order_with),
        filled=between(filled),
        than=beside(filled, graph),
        lost=lost(kept),
        refusal=kept["perfplot_with_gradient"],
        rounds=kept["rounds"],
        table="\n".join(table(kept)),
    )


def headline(ratios: list[float]) -> str:
    """Whether the article's two to three times come out, by the figures."""
    among = sum(2 <= ratio <= 3 for ratio in ratios)
    if among == 0:
        return "It does not come out at any size, by neither protocol"
    return f"It comes out in {among} of {len(ratios)} cases"


def growth(kept: Mapping[str, Any]) -> str:
    """How the ratio of `tensor()` goes with the size."""
    found = ratios_of_ours(kept["ours"], "tensor()")
    way = "falls" if found[-1] < found[0] else "rises"
    return f"{way} from {found[0]:.2f} to {found[-1]:.2f}"


def lost(kept: Mapping[str, Any]) -> str:
    """What `tensor()` takes longer, in nanoseconds."""
    pairs = zip(kept["ours"]["tensor()"], kept["ours"][REFERENCE], strict=True)
    found = [(ours["median"] - reference["median"]) * 1e9 for ours, reference in pairs]
    return f"{min(found):.0f} to {max(found):.0f}"


def beside(ratios: list[float], others: list[float]) -> str:
    """How some ratios stand beside others, where they do not mix."""
    if min(ratios) > max(others):
        return "slower than"
    return "faster than" if max(ratios) < min(others) else "no other than"


def table(kept: Mapping[str, Any]) -> list[str]:
    """Size by size, what both protocols say of the two methods of the headline."""
    lines = [
        "| numbers | "
        + " | ".join(f"`{name}`, perfplot | `{name}`, ours" for name in SLOW)
        + " | noise floor, ours |",
        "|---|" + "---|" * (2 * len(SLOW) + 1),
    ]
    for place, size in enumerate(kept["sizes"]):
        cells = [f"{size:,}"]
        for name in SLOW:
            row = kept["ours"][name][place]
            cells.append(f"{ratios_of_perfplot(kept, name)[place]:.2f}")
            cells.append(f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})")
        cells.append(f"{kept['ours'][SLOW[0]][place]['floor']:.3f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


_PAGE = """\
<!-- written by benchmarks/answer_pages.py -->
# The plot of the second article

The [second article](methods.md) shows a plot and takes its headline from it: `new_tensor()` and `tensor()`
are two to three times slower than `clone().detach()`, `empty_like().copy_()` and `detach().clone()`.
Here it is again, with the article's own sizes, {first} to {last} numbers: by the article's own call of
perfplot, and by the protocol of truecopy.

![Times and ratios of five ways to copy](the-plot.svg)

{headline}, with torch {torch} and {threads} threads: perfplot finds {slow} times as long, ours {ours}.
With which torch the article was measured, it does not say.

Times over those of `clone().detach()`, least and most of all sizes:

| method | perfplot | ours | ours, gradient required |
|---|---|---|---|
{rows}

- With the size of the tensor the ratio of `tensor()` {growth}.
  What it takes longer is {lost} ns at every size, and the article's largest tensor has 64 KiB.
- Where gradient is required, the two are {graph} times as long as `clone().detach()`, and
  `empty_like().copy_()` is {filled}: {than} the two that the article tells to avoid.
- `detach().clone()` takes {order} times as long as `clone().detach()` without gradient, and {order_with} with
  it. The article measures without, and recommends it for what is gained with it.

## What differs, and why

| | perfplot, as the article calls it | ours |
|---|---|---|
| figure | the minimum of all repetitions | the median of the ratios of {rounds} rounds, with an interval |
| order | one method after the other, always the same | every method once in each round, shuffled anew |
| one sample | one call, with its lambda and the reading of the clock | as many calls as fill a millisecond |
| noise | not shown | the reference enters twice: what it differs from itself |
| small differences | two lines in a plot | same, faster, slower, or cannot tell |
| axes | both linear: twelve of fifteen sizes lie in the first eighth | logarithmic sizes, ratios |
| gradient | never required | without and with |
| is it a copy? | values are compared, with `allclose` | [proven](methods.md#all-five-copy) of all five |

The last two rows belong together.
Given inputs that require gradient, where the choice of a method matters, the same call of perfplot ends with
`{refusal}`.
Turning its check off is the way on, and then nothing is checked.

The reading of the clock is in each of perfplot's samples of one call, and brings the ratios of short calls
closer to 1, if by little.

## Size by size

Times over those of `clone().detach()`, in brackets the interval.

{table}

`make bench ARGS=answers` measures all this again on your machine, and `make answers` writes these pages
from it.
"""


def plot(kept: Mapping[str, Any]) -> str:
    """The familiar plot, and the one that can be read: SVG text, the same for the same figures."""
    with mpl.rc_context({"svg.hashsalt": "truecopy", "svg.fonttype": "none", "font.size": 9}):
        drawing = Drawing(figsize=(11, 3.8), layout="constrained")
        left, middle, right = drawing.subplots(1, 3)
        for name, seconds in kept["perfplot"].items():
            left.plot(kept["sizes"], [one * 1e6 for one in seconds], label=name)
        left.set(title="perfplot, as in the article", xlabel="len(a)", ylabel="least time in us")
        left.set_ylim(bottom=0)
        bands(middle, kept, "ours", "ours, no gradient required")
        bands(right, kept, "ours_with_gradient", "ours, gradient required")
        handles, labels = left.get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        text = io.StringIO()
        drawing.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def bands(axes: Axes, kept: Mapping[str, Any], part: str, title: str) -> None:
    """Ratios to the reference with their intervals, over logarithmic sizes, and the noise floor."""
    for name, rows in kept[part].items():
        (line,) = axes.plot(kept["sizes"], [row["ratio"] for row in rows], label=name)
        lows, highs = ([row[end] for row in rows] for end in ("low", "high"))
        axes.fill_between(kept["sizes"], lows, highs, color=line.get_color(), alpha=0.3)
    floors = [row["floor"] for row in kept[part][REFERENCE]]
    axes.fill_between(
        kept["sizes"], [1 / floor for floor in floors], floors, color="gray", alpha=0.3
    )
    axes.axhspan(2, 3, color="gray", alpha=0.1)
    axes.annotate("the article's headline", (1, 2.05), color="gray")
    axes.set_xscale("log", base=2)
    axes.set(title=title, xlabel="len(a)", ylabel=f"times as long as {REFERENCE}", ylim=(0.5, 3))


if __name__ == "__main__":
    main()
