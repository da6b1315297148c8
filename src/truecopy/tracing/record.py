"""The record of a trace: everything that the reports say, as plain data that can be kept and read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truecopy.records import Record
from truecopy.tracing.encoding import body_of, values_of
from truecopy.tracing.facts import (
    Churn,
    Copy,
    Event,
    Habit,
    Iteration,
    Line,
    Moment,
    Peak,
    StorageLife,
    Survivor,
    Totals,
    Unseen,
)

MOST_EVENTS = 20_000
"""Events in a record. Of a longer run it keeps the first half and the last half."""

MOST_MOMENTS = 1_000
MOST_STORAGES = 1_000


@dataclass(frozen=True, slots=True)
class TraceRecord(Record):
    """What a run did with memory, by line. Made by `tc.trace`; each report is a function of it.

    The JSON form is the envelope of every record with these fields, sites written once: a site
    elsewhere is its place in `sites`, or null. `lines`, `copies` and the like are lists of objects;
    `events`, `memory` and `storages` are tables: `{"columns": [...], "rows": [[...], ...]}`.
    """

    name: str  # of what was traced: "train.py", "python -m package", "train.py:12"
    tier: str  # "modes" (the default), or "profiler" (exact)
    ended: str  # "completed", or the exception that ended it: "raised ValueError"
    totals: Totals
    peak: Peak
    lines: tuple[Line, ...]  # most hidden bytes first, then most copied, then most allocated
    copies: tuple[Copy, ...]  # hidden ones, most bytes first
    churn: tuple[Churn, ...]  # most bytes over the run first
    habits: tuple[Habit, ...]
    iterations: tuple[Iteration, ...]
    survivors: tuple[Survivor, ...]  # most bytes first, then nodes
    events: tuple[Event, ...]  # at most MOST_EVENTS; gaps show in their indices
    memory: tuple[Moment, ...]  # at most MOST_MOMENTS, over all events
    storages: tuple[
        StorageLife, ...
    ]  # at most MOST_STORAGES, those alive at the peak first, largest first
    unseen: tuple[Unseen, ...]

    kind = "trace"

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found: no hidden copy, nothing left behind by an iteration."""
        return not (self.totals.hidden_copies or self.survivors)

    def body(self) -> dict[str, Any]:
        return body_of(self, _HINTS)

    @classmethod
    def from_json(cls, data: dict[str, Any], where: str | None = None) -> TraceRecord:
        """The record that `to_json` wrote. Raises CannotRead for anything else."""
        return cls(**values_of(data, cls.kind, _HINTS, where))


_HINTS: dict[str, Any] = {
    "name": str, "tier": str, "ended": str, "totals": Totals, "peak": Peak,
    "lines": tuple[Line, ...], "copies": tuple[Copy, ...], "churn": tuple[Churn, ...],
    "habits": tuple[Habit, ...], "iterations": tuple[Iteration, ...],
    "survivors": tuple[Survivor, ...], "events": tuple[Event, ...],
    "memory": tuple[Moment, ...], "storages": tuple[StorageLife, ...],
    "unseen": tuple[Unseen, ...],
}  # fmt: skip
