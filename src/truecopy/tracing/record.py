"""The record of a trace: everything that the reports say, as plain data that can be kept and read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truecopy.errors import CannotRead
from truecopy.records import SCHEMA_VERSION, Record
from truecopy.tracing.encoding import Places, decode, decode_sites, encode, encode_sites
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
        places: Places = {}
        body = {name: encode(getattr(self, name), hint, places) for name, hint in _HINTS.items()}
        # First, so that whoever reads in order knows the sites before they are named.
        return {"clean": self.is_clean, "sites": encode_sites(places), **body}

    @classmethod
    def from_json(cls, data: dict[str, Any], where: str | None = None) -> TraceRecord:
        """The record that `to_json` wrote. Raises CannotRead for anything else."""
        if data.get("kind") != cls.kind or data.get("version") != SCHEMA_VERSION:
            raise CannotRead(
                "is no record of a trace that this truecopy knows",
                where=where,
                expected=f"kind {cls.kind}, version {SCHEMA_VERSION}",
                got=f"kind {data.get('kind')!r:.80}, version {data.get('version')!r:.80}",
                way_out="Make the record again with this version",
            )
        try:
            sites = decode_sites(data["sites"])
            values = {name: decode(data[name], hint, sites) for name, hint in _HINTS.items()}
        except (KeyError, ValueError) as error:
            raise CannotRead(
                "is a record of a trace that is damaged",
                where=where,
                got=f"{type(error).__name__}: {error}"[:200],
                way_out="Make the record again",
            ) from None
        return cls(**values)


_HINTS: dict[str, Any] = {
    "name": str, "tier": str, "ended": str, "totals": Totals, "peak": Peak,
    "lines": tuple[Line, ...], "copies": tuple[Copy, ...], "churn": tuple[Churn, ...],
    "habits": tuple[Habit, ...], "iterations": tuple[Iteration, ...],
    "survivors": tuple[Survivor, ...], "events": tuple[Event, ...],
    "memory": tuple[Moment, ...], "storages": tuple[StorageLife, ...],
    "unseen": tuple[Unseen, ...],
}  # fmt: skip
