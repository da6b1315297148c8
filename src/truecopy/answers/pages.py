"""The pages of docs/answers/: pure functions of the answers and of figures that were kept.

A proof's code stands on its page as it stands in the package: the body of its function. What the
modules define beside proofs comes first, so that a page runs from top to bottom.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from textwrap import dedent

from truecopy.answers.claims import Answer, Claim, Proof, is_race, statement
from truecopy.answers.record import Figure

Figures = Mapping[str, Figure]
"""Name of a proof -> what its race came to where the figures were taken."""

RUN = "print(faster(race.run_first, race.run_second, race.on, seconds=1))"
"""How a page runs a race."""


def page(answer: Answer, figures: Figures, machine: str) -> str:
    """The page of one answer."""
    lines = [
        "<!-- written by benchmarks/answer_pages.py -->",
        f"# {answer.question}",
        "",
        *answer.sentences,
        "",
        *_article(answer),
        "",
        "## The claims",
        *_tables(answer, figures),
        "",
        f"Not counted as claims: {answer.not_counted[0].lower()}{answer.not_counted[1:]}",
        "",
        "## The proofs",
        "",
        f"`truecopy answers {answer.topic}` runs all of them on your installation.",
        *([f"Times were {machine}."] if any(map(is_race, answer.proofs)) else []),
        "Beside torch they use:",
        "",
        *_block(preamble(answer)),
    ]
    for proof in answer.proofs:
        lines += ["", *_proof(proof, figures)]
    return "\n".join(lines) + "\n"


def index(answers: Mapping[str, Answer], excerpt: str) -> str:
    """The page that leads to the others, with the beginning of a report."""
    rows = [
        f"| [{answer.question}]({topic}.md) | {len(answer.claims)} | "
        + " | ".join(str(_verdicts(answer)[verdict]) for verdict in _ORDER)
        + " |"
        for topic, answer in answers.items()
    ]
    return _INDEX.format(
        total=sum(len(answer.claims) for answer in answers.values()),
        heads=" | ".join(_ORDER),
        rules="---|" * len(_ORDER),
        rows="\n".join(rows),
        topics=", ".join(f"`{topic}`" for topic in answers),
        excerpt=excerpt,
    )


_INDEX = """\
<!-- written by benchmarks/answer_pages.py -->
# The five questions

Five articles on copying tensors are widely read, and partly wrong.
Each of their {total} claims has a verdict here, with code that proves it, or with the reason why it cannot
be tested.

| question | claims | {heads} |
|---|---|{rules}
{rows}

[The plot of the second article](the-plot.md), by its own protocol and by ours.

## truecopy answers

`truecopy answers` runs the proofs on your own installation; `truecopy answers TOPIC` runs those of one
question: {topics}.

```text
$ truecopy answers deepcopy
{excerpt}
...
```

How to read it: in quotes what the article says, below it the verdict, and then for each proof what is so.

- `+` marks a proof that agrees with the verdict on your installation, `!` one that does not, with the reason.
- `?` marks a time of which one cannot tell. `--seconds S` measures longer (default: 1 for each).
- `-` marks what was not run: JAX or TensorFlow is not installed.
- A claim about time says what was measured, there and then: a word, the ratio of times, its interval.
- `--json` prints the record, with every figure.

The exit code is 0 where no proof disagrees with its verdict, and 1 where one does.
What cannot be told, or was not run, contradicts nothing.
It is 2 for a topic that there is not; the nearest one is offered.
"""

_ORDER = ("holds", "does not hold", "depends", "not testable here")
_MANY = dict(zip(_ORDER, ("hold", "do not hold", "depend", "cannot be tested here"), strict=True))


def _verdicts(answer: Answer) -> Counter[str]:
    return Counter(claim.verdict for claim in answer.claims)


def _article(answer: Answer) -> Iterator[str]:
    found = _verdicts(answer)
    counts = ", ".join(f"{found[one]} {words}" for one, words in _MANY.items() if found[one])
    yield f"The article: *{answer.article}*."
    yield f"Its {len(answer.claims)} claims: {counts}."


# --- claims ---------------------------------------------------------------------------------------


def _tables(answer: Answer, figures: Figures) -> Iterator[str]:
    for part in answer.parts:
        yield from ("", f"### {part.title}", "")
        yield "| the article says | verdict | what is so |"
        yield "|---|---|---|"
        for claim in part.claims:
            yield f"| {claim.says} | {_verdict(claim)} | {_what_is_so(claim, figures)} |"


def _verdict(claim: Claim) -> str:
    return f"**{claim.verdict}**" + (f" {claim.why}" if claim.verdict == "depends" else "")


def _what_is_so(claim: Claim, figures: Figures) -> str:
    if not claim.proofs:
        return f"{claim.why}."
    return " ".join(_linked(proof, figures) for proof in claim.proofs)


def _linked(proof: Proof, figures: Figures) -> str:
    figure = figures.get(proof.__name__)
    measured = "" if figure is None else f" Measured here: {_short(figure)}."
    return f"{statement(proof)}{measured} [Proof](#{_heading(proof).replace(' ', '-')})"


def _short(figure: Figure) -> str:
    text = figure.said
    if figure.outcome == "does not agree":
        text += ", **which does not agree with the verdict**"
    return text


# --- proofs ---------------------------------------------------------------------------------------


def _heading(proof: Proof) -> str:
    return proof.__name__.replace("_", " ")


def _proof(proof: Proof, figures: Figures) -> Iterator[str]:
    yield f"### {_heading(proof)}"
    yield ""
    yield statement(proof)
    yield ""
    yield from _block(code(proof))
    figure = figures.get(proof.__name__)
    if figure is not None:
        yield ""
        yield f"Measured here: `{figure.first}` against `{figure.second}`: {_short(figure)}."


def _block(text: str) -> Iterator[str]:
    yield "```python"
    yield from text.splitlines()
    yield "```"


def code(proof: Proof) -> str:
    """The body of a proof, without its docstring: assertions as they are, a race with its start."""
    source = dedent(inspect.getsource(proof))
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    lines = source.splitlines()[function.body[1].lineno - 1 :]
    text = _plain(dedent("\n".join(lines)))
    if not is_race(proof):
        return text
    return re.sub(r"^return ", "race = ", text, flags=re.MULTILINE) + f"\n{RUN}"


def preamble(answer: Answer) -> str:
    """What the proofs of an answer use: the imports and small definitions of its module."""
    source = inspect.getsource(sys.modules[answer.proofs[0].__module__])
    proofs = {proof.__name__ for proof in answer.proofs}
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if _is_left_out(node, proofs):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = [""] * (last - first)
    text = re.sub(r"\n{4,}", "\n\n\n", _plain("\n".join(lines))).strip()
    has_race = any(is_race(proof) for proof in answer.proofs)
    return _CLAIMS.sub(_FOR_RACES if has_race else "", text)


_CLAIMS = re.compile(r"^from truecopy\.answers\.claims import .*\n", re.MULTILINE)
_FOR_RACES = """\
from truecopy.answers.claims import Race
from truecopy.measuring.faster import faster
"""


def _is_left_out(node: ast.stmt, proofs: set[str]) -> bool:
    match node:
        case ast.ImportFrom(module=str(module)):
            return module in ("__future__", "truecopy.answers.topics")
        case ast.FunctionDef(name=name):
            return name in proofs
        case ast.Assign(targets=[ast.Name(id="ANSWER")]) | ast.Expr():
            return True
        case _:
            return False


def _plain(text: str) -> str:
    """Code without the remarks that are for our own tools."""
    return re.sub(r" *# (?:type: ignore|noqa|fmt: skip).*$", "", text, flags=re.MULTILINE)
