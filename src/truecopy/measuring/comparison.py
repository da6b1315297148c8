"""Two results of a bench side by side: what got slower, faster, or broke its promise.

Between two runs a machine drifts, often by more than what changed. So each time is taken in units of the
ceiling that was measured in the same rounds, and the noise floor is that of the noisier run. Times of
two machines are never compared: that is refused, by what differs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from truecopy.encoding import decode_fact, encode, hints_of
from truecopy.errors import UsageError
from truecopy.measuring.cells import Cell
from truecopy.measuring.record import CEILING, TWIN, BenchResult, Measured
from truecopy.measuring.statistics import difference, interval, log_ratios
from truecopy.measuring.verdict import Verdict, judge_interval
from truecopy.records import Record, read_again

SAME_BETWEEN_RUNS = 0.05
"""Between runs, 5 % either way is the same: where memory lies differs from process to process."""

What = Literal[
    "slower", "faster", "same", "cannot tell", "broke its promise", "keeps its promise now"
]


@dataclass(frozen=True, slots=True)
class Change:
    """One method in one cell, in both runs."""

    cell: Cell
    method: str
    what: What
    verdict: Verdict | None  # None where a promise changed
    promise: str = ""  # the one that is broken in one of the two

    @property
    def is_regression(self) -> bool:
        return self.what in ("slower", "broke its promise")


@dataclass(frozen=True, slots=True)
class BenchComparison(Record):
    """What differs between two results of the same machine."""

    a: str
    b: str
    changes: tuple[Change, ...]  # regressions first, then improvements; none that are the same
    same: int  # methods, over all cells, that take as long
    doubts: tuple[Change, ...]  # methods of which one cannot tell
    drift: tuple[
        float, float
    ]  # the ceiling of b over that of a, the least and the most of all cells
    flags: tuple[str, ...]  # what else differs between the runs: versions, settings
    unmatched: tuple[str, ...]  # cells and methods that are in one of the two

    kind = "bench comparison"

    @property
    def is_clean(self) -> bool:
        """Whether there is no regression."""
        return not any(change.is_regression for change in self.changes)

    def body(self) -> dict[str, Any]:
        ratio = "time in b over time in a: above 1 is slower"
        fields: dict[str, Any] = encode(self, BenchComparison)
        return {"clean": self.is_clean, "ratio": ratio, **fields}

    @classmethod
    def from_json(cls, data: dict[str, Any], where: str | None = None) -> BenchComparison:
        """The record that `to_json` wrote. Raises CannotRead for anything else."""
        return read_again(data, cls.kind, _read, where)


def _read(data: dict[str, Any]) -> BenchComparison:
    found: BenchComparison = decode_fact(
        {n: data[n] for n in hints_of(BenchComparison)}, BenchComparison
    )
    return found


def compare_benches(a: BenchResult, b: BenchResult, names: tuple[str, str]) -> BenchComparison:
    """Set `b` beside `a`. Raises UsageError for two machines, and where nothing is in both."""
    differs = a.machine.differs(b.machine)
    if differs:
        raise UsageError(
            f"{names[0]} and {names[1]} were measured on different machines",
            expected="two results of one machine: times of two say nothing of the methods",
            got="; ".join(differs),
            way_out="Measure both on one machine",
        )
    left, right = ({one.cell: one for one in result.cells if one.rounds} for result in (a, b))
    both = [cell for cell in left if cell in right]
    if not both:
        raise UsageError(
            f"{names[0]} and {names[1]} have no cell in common",
            expected="two results of one request", got=f"{len(left)} and {len(right)} other cells",
        )  # fmt: skip
    found = [change for cell in both for change in _changes(left[cell], right[cell])]
    drifts = [_drift(left[cell], right[cell]) for cell in both]
    return BenchComparison(
        *names,
        tuple(
            sorted((c for c in found if c.what not in ("same", "cannot tell")), key=_worst_first)
        ),
        sum(c.what == "same" for c in found),
        tuple(c for c in found if c.what == "cannot tell"),
        (min(drifts), max(drifts)),
        a.machine.ran_otherwise(b.machine),
        tuple(_unmatched(left, right, names)),
    )


def _changes(a: Measured, b: Measured) -> Iterator[Change]:
    for name in b.opened.entries:
        if name in (TWIN, CEILING) or name not in a.opened.entries:
            continue
        sound = a.is_sound(name), b.is_sound(name)
        if sound == (True, True):
            verdict = _verdict(a, b, name)
            yield Change(b.cell, name, verdict.word, verdict)
        elif sound == (True, False):
            yield Change(b.cell, name, "broke its promise", None, _promise(b, name))
        elif sound == (False, True):
            yield Change(b.cell, name, "keeps its promise now", None, _promise(a, name))


def _promise(measured: Measured, name: str) -> str:
    broken = next(c.broken for c in measured.opened.checks if c.method == name)
    return "; ".join(broken) or "writes into the source, later than in its first call"


def _verdict(a: Measured, b: Measured, name: str) -> Verdict:
    ours, theirs = (log_ratios(m.seconds(name), m.seconds(CEILING)) for m in (b, a))
    found = difference(ours, theirs)
    floor = max(
        interval(log_ratios(m.seconds(TWIN), m.seconds(m.reference))).farthest for m in (a, b)
    )
    rounds = min(len(a.rounds), len(b.rounds))
    return judge_interval(found, floor, rounds, same=SAME_BETWEEN_RUNS)


def _drift(a: Measured, b: Measured) -> float:
    ceilings = [m.ceiling.seconds for m in (b, a)]
    assert ceilings[0] is not None
    assert ceilings[1] is not None
    return ceilings[0] / ceilings[1]


def _worst_first(change: Change) -> tuple[bool, float]:
    ratio = math.inf if change.verdict is None else change.verdict.ratio
    return not change.is_regression, -ratio


def _unmatched(
    left: dict[Cell, Measured], right: dict[Cell, Measured], names: tuple[str, str]
) -> Iterator[str]:
    for mine, other, name in ((left, right, names[0]), (right, left, names[1])):
        for cell, measured in mine.items():
            if cell not in other:
                yield f"only in {name}: {cell.title}"
                continue
            entries = [e for e in measured.opened.entries if e not in other[cell].opened.entries]
            if entries:
                yield f"only in {name}: {', '.join(entries)} ({cell.title})"
