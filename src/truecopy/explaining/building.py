"""Every operation watched, and what was seen put into words and numbers: the data of the package."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from truecopy.explaining.advice import IN_PLACE, advise, is_in_place, is_writing
from truecopy.explaining.facts import Explanation, Outcome
from truecopy.explaining.ours import ours
from truecopy.explaining.samples import Subject, from_database, gradient_samples
from truecopy.explaining.watching import Seen, autograd_of, watch

_Way = tuple[str, str, str, str]
"""Layout, origins, effects, copies inside."""

DATA = Path(__file__).parent / "data" / "operations.json"


def build(wanted: Callable[[str], bool] = lambda _: True) -> Iterator[Explanation]:
    """Run the samples of every operation that is wanted, and explain it. Minutes for all of them."""
    mine = {subject.name: subject for subject in ours() if wanted(subject.name)}
    for subject in from_database(wanted):
        yield explain_subject(_joined(subject, mine.pop(subject.name, None)))
    for subject in mine.values():
        yield explain_subject(subject)


def _joined(subject: Subject, mine: Subject | None) -> Subject:
    """The database's samples and ours of one operation."""
    if mine is None:
        return subject
    spellings = dict.fromkeys((*subject.spellings, *mine.spellings))
    return Subject(subject.name, tuple(spellings), (*subject.samples, *mine.samples))


def explain_subject(subject: Subject) -> Explanation:
    """Watch every sample of one operation, and say what it does."""
    seen = [one for sample in subject.samples for one in watch(sample)]
    outcomes = tuple(_outcomes(seen))
    autograd = autograd_of(gradient_samples(subject))
    trap, instead = advise(subject.name, subject.spellings, outcomes, autograd)
    return Explanation(
        subject.name,
        subject.spellings,
        sentence_of(outcomes),
        autograd,
        _cost(seen),
        trap,
        instead,
        len(seen),
        outcomes,
        torch.__version__,
    )


def _outcomes(seen: Iterable[Seen]) -> Iterator[Outcome]:
    """What was seen, once for each layout and way to come out; forms that did the same stand together."""
    by_form: dict[str, dict[_Way, list[Seen]]] = {}
    for one in seen:
        way = one.layout, one.origins, one.effects, one.copies_inside
        by_form.setdefault(one.form, {}).setdefault(way, []).append(one)
    alike: dict[tuple[tuple[_Way, int], ...], list[str]] = {}
    for form, ways in by_form.items():
        alike.setdefault(tuple((way, len(ways[way])) for way in sorted(ways)), []).append(form)
    for counted, forms in alike.items():
        for way, count in sorted(counted, key=lambda pair: (pair[0][0], -pair[1], pair[0][1:])):
            example = min((one.example for one in by_form[forms[0]][way]), key=len)
            yield Outcome(", ".join(forms), *way, count, example)


# --- in words -------------------------------------------------------------------------------------

_WORDS = {
    "new": "new memory",
    "view": "a view",
    "same": "its input itself",
    "adopted": "the other library's memory",
    "lazy": "a copy when written",
    "unknown": "memory that torch does not show",
    "": "no tensor",
}
_LAYOUTS = ("contiguous", "transposed", "strided", "expanded")


def sentence_of(outcomes: Sequence[Outcome]) -> str:
    """What the result is, and where that depends on how the input lies in memory."""
    plain = [one for one in outcomes if not is_writing(one.form)]
    if not outcomes:
        return "not seen here: no sample ran"
    if not plain:
        always = _origins(outcomes) == {"same"}
        return (
            f"works in place, and returns {_said(_origins(outcomes))}"
            if always
            else _by_layout(outcomes)
        )
    in_place = dict.fromkeys(
        _short(form) for one in outcomes for form in one.form.split(", ") if is_in_place(form)
    )
    behind = f"; {' and '.join(in_place)} works in place" if in_place else ""
    return _by_layout(plain) + behind


def _short(form: str) -> str:
    """`add_` or `inplace=True`, as one would write it."""
    if form.endswith(IN_PLACE):
        return f"`{IN_PLACE[1:-1]}`"
    return f"`{form.rpartition('.')[2]}`"


def _by_layout(plain: Sequence[Outcome]) -> str:
    by_layout = {
        layout: _origins(one for one in plain if one.layout == layout) for layout in _LAYOUTS
    }
    by_layout = {layout: origins for layout, origins in by_layout.items() if origins}
    everything = _origins(plain)
    if len(everything) == 1:
        return f"always {_said(everything)}" if everything != {""} else "returns no tensor"
    different = {frozenset(origins) for origins in by_layout.values()}
    if len(different) > 1:
        parts: dict[str, list[str]] = {}
        for layout, origins in by_layout.items():
            parts.setdefault(_said(origins), []).append(layout)
        return "; ".join(f"{said} for {' and '.join(where)} input" for said, where in parts.items())
    return f"{_said(everything)}, depending on the arguments"


def _origins(outcomes: Iterable[Outcome]) -> set[str]:
    return {word for one in outcomes for word in one.origins.split(", ")}


def _said(origins: Iterable[str]) -> str:
    return " or ".join(words for word, words in _WORDS.items() if word in origins)


def _cost(seen: Sequence[Seen]) -> str:
    """What the forms that return something allocate, as far as operations show it."""
    plain = [one for one in seen if not is_writing(one.form)]
    if not plain:
        return "allocates nothing" if seen else ""
    if not any(one.allocated_bytes for one in plain):
        new = any("new" in one.origins for one in plain)
        return "allocates its result" if new else "allocates nothing"
    fresh = [one for one in plain if one.result_bytes and one.allocated_bytes]
    beside = max(
        ((one.allocated_bytes - one.result_bytes) / one.result_bytes for one in fresh), default=0.0
    )
    shared = any(
        one.result_bytes and not one.allocated_bytes and "new" not in one.origins for one in plain
    )
    sometimes = ", on some inputs nothing" if shared else ""
    if beside < 0.5:
        return f"allocates its result{sometimes}"
    return (
        f"allocates its result and up to {beside:,.1f} times as much beside it, "
        f"on the small samples seen{sometimes}"
    )


# --- the file -------------------------------------------------------------------------------------


def write(explanations: Sequence[Explanation], path: Path = DATA) -> None:
    """All explanations as the package's data, one operation a line, so that changes can be read."""
    lines = [
        json.dumps(asdict(one), ensure_ascii=True, separators=(",", ":")) for one in explanations
    ]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
