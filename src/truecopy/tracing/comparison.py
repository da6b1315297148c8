"""Two traces set beside each other: what got better and worse, in all and by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from truecopy.records import Record
from truecopy.tracing.encoding import body_of, values_of
from truecopy.tracing.facts import Site
from truecopy.tracing.matching import pairs_of
from truecopy.tracing.record import TraceRecord


@dataclass(frozen=True, slots=True)
class Change:
    """One number before and after; more is worse."""

    what: str  # one of TOTALS, or of LINES
    before: int
    after: int

    @property
    def is_worse(self) -> bool:
        """Whether there is more of it."""
        return self.after > self.before


@dataclass(frozen=True, slots=True)
class LineChange:
    """One line of the program in both traces, and the numbers of it that changed."""

    before: Site | None  # None where the line is new, or did nothing
    after: Site | None  # None where it is gone
    changes: tuple[Change, ...]  # the weightiest first

    @property
    def is_worse(self) -> bool:
        """Whether its weightiest number grew: hidden copies weigh most, then leaks, then the rest."""
        return self.changes[0].is_worse

    @property
    def is_finding(self) -> bool:
        """Whether it copies more without being asked, or leaves more behind, than before."""
        return any(c.is_worse and c.what in _FINDINGS for c in self.changes)


TOTALS = (
    "peak bytes", "hidden bytes", "hidden copies", "left bytes", "left nodes", "copied bytes",
    "allocated bytes",
)  # fmt: skip
"""Numbers of a whole run. `left`: left behind by each iteration, on average."""

LINES = (
    "hidden bytes", "hidden copies", "left bytes", "left nodes", "copied bytes", "allocated bytes",
)  # fmt: skip
"""Numbers of a line, the weightiest first."""

_FINDINGS = ("hidden bytes", "hidden copies", "left bytes", "left nodes")
"""Of a line: what is worse wherever it stands. What is only moved shows in no total."""


@dataclass(frozen=True, slots=True)
class TraceComparison(Record):
    """What became of a run: the same program before a change and after it."""

    a: str
    b: str
    totals: tuple[Change, ...]  # all of them, changed or not
    worse: tuple[LineChange, ...]  # most first
    better: tuple[LineChange, ...]
    alike: int  # lines of which no number changed
    unseen: tuple[str, ...]  # why numbers may not mean the same

    kind = "trace comparison"

    @property
    def is_clean(self) -> bool:
        """Whether nothing is worse: no total, and no line's hidden copies or leaks."""
        lines = (*self.worse, *self.better)
        return not (
            any(change.is_worse for change in self.totals) or any(line.is_finding for line in lines)
        )

    def body(self) -> dict[str, Any]:
        return body_of(self, _HINTS)

    @classmethod
    def from_json(cls, data: dict[str, Any], where: str | None = None) -> TraceComparison:
        """The record that `to_json` wrote. Raises CannotRead for anything else."""
        return cls(**values_of(data, cls.kind, _HINTS, where))


_HINTS: dict[str, Any] = {
    "a": str, "b": str, "totals": tuple[Change, ...], "worse": tuple[LineChange, ...],
    "better": tuple[LineChange, ...], "alike": int, "unseen": tuple[str, ...],
}  # fmt: skip


def compare_traces(
    a: TraceRecord, b: TraceRecord, names: tuple[str, str] | None = None
) -> TraceComparison:
    """Set two traces beside each other; `names` are what they are called, else what was traced.

    Lines are matched by file, function and source text, so that a line that moved is the same
    line; what is left in one function, by likeness of its text. Allocates no tensor memory.
    """
    left, right = _numbers(a), _numbers(b)
    changed = [
        LineChange(before, after, changes)
        for before, after in pairs_of(left, right)
        if (changes := _changes(LINES, left.get(before), right.get(after)))
    ]
    every = len(pairs_of(left, right))
    ordered = sorted(changed, key=_most_first)
    return TraceComparison(
        *(names or (a.name, b.name)),
        tuple(Change(*three) for three in zip(TOTALS, _totals(a), _totals(b), strict=True)),
        tuple(line for line in ordered if line.is_worse),
        tuple(line for line in ordered if not line.is_worse),
        every - len(changed),
        tuple(_differences(a, b)),
    )


Numbers = tuple[int, ...]


def _totals(record: TraceRecord) -> Numbers:
    totals = record.totals
    left = [
        round(sum(s.per_iteration for s in record.survivors if s.what == what))
        for what in ("bytes", "nodes")
    ]
    return (
        record.peak.nbytes, totals.hidden_bytes, totals.hidden_copies, *left,
        totals.copied_bytes, totals.allocated_bytes,
    )  # fmt: skip


def _numbers(record: TraceRecord) -> dict[Site | None, Numbers]:
    """The numbers of LINES, for each line that did something or left something."""
    left: Counter[tuple[str, int, str]] = Counter()
    for survivor in record.survivors:
        site = survivor.site
        left[site.file, site.line, survivor.what] += round(survivor.per_iteration)
    found: dict[Site | None, Numbers] = {}
    seen = set()
    for line in record.lines:
        file, number = line.site.file, line.site.line
        first = (file, number) not in seen  # of several records of one line, one has what it left
        seen.add((file, number))
        found[line.site] = (
            line.hidden_bytes, line.hidden_copies,
            left[file, number, "bytes"] if first else 0, left[file, number, "nodes"] if first else 0,
            line.copied_bytes, line.allocated_bytes,
        )  # fmt: skip
    for survivor in record.survivors:
        site = survivor.site
        if (site.file, site.line) not in seen:
            seen.add((site.file, site.line))
            lefts = (left[site.file, site.line, "bytes"], left[site.file, site.line, "nodes"])
            found[site] = (0, 0, *lefts, 0, 0)
    return found


def _changes(
    names: Sequence[str], before: Numbers | None, after: Numbers | None
) -> tuple[Change, ...]:
    nothing = (0,) * len(names)
    triples = zip(names, before or nothing, after or nothing, strict=True)
    return tuple(Change(*three) for three in triples if three[1] != three[2])


def _most_first(line: LineChange) -> tuple[int, int, str, int]:
    """By the weightiest number, then by how much it changed."""
    first = line.changes[0]
    site = line.after or line.before
    place = (site.file, site.line) if site else ("", 0)
    return (LINES.index(first.what), -abs(first.after - first.before), *place)


def _differences(a: TraceRecord, b: TraceRecord) -> Iterable[str]:
    """What the two were not alike in, so that numbers can differ where the program does not."""
    if a.tier != b.tier:
        yield f"one is of tier {a.tier}, the other of tier {b.tier}: they see different copies"
    if len(a.iterations) != len(b.iterations):
        yield f"{len(a.iterations):,} iterations in one, {len(b.iterations):,} in the other"
    for name, record in (("first", a), ("second", b)):
        if record.ended != "completed":
            yield f"the {name} did not come to its end: it {record.ended}"
