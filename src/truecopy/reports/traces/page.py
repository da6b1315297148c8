"""A trace as one HTML file: what it keeps of the record, so that it is small whatever the run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from truecopy.files.text import printable, shorten
from truecopy.reports.html.page import embedded, page
from truecopy.reports.traces.moments import coarser
from truecopy.reports.traces.words import Names, names_of, sentence, survivors_by_line, tier_of
from truecopy.tracing.facts import OWNERS, Copy, Event, Line, Moment, Site, StorageLife
from truecopy.tracing.record import TraceRecord

MOST_BYTES = 900_000
"""Of data in a page; style and script are some 50 KB more, and the whole is under 1 MiB."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many of each a page keeps; what is beyond is summed and said."""

    lines: int = 600
    copies: int = 300
    owners: int = 200
    others: int = 100  # of churn, of habits, of survivors, of what was not seen
    iterations: int = 300
    moments: int = 1_000
    storages: int = 1_000
    events: int = 6_000
    characters: int = 240  # of a source line, a reason, a path

    def lower(self) -> Limits:
        """A quarter less of each, but never nothing, nor words too short to tell anything."""
        values = {field.name: max(1, getattr(self, field.name) * 3 // 4) for field in fields(self)}
        return Limits(**{**values, "characters": max(24, values["characters"])})


def html(record: TraceRecord, *, most_bytes: int = MOST_BYTES) -> str:
    """The page of a trace. A pure function; the text has no more than `most_bytes` of data in it."""
    return page(data_of(record, most_bytes), shown_by="trace")


def data_of(record: TraceRecord, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """What the page shows, cut until it fits: rows first, then words."""
    limits = Limits()
    while True:
        data = _Page(record, limits).data()
        if len(embedded(data)) <= most_bytes or limits == limits.lower():
            return data
        limits = limits.lower()


class _Page:
    """The data of a page, made once: sites and words are written where they are first met."""

    def __init__(self, record: TraceRecord, limits: Limits) -> None:
        self.record = record
        self.limits = limits
        self.names: Names = names_of(record)
        self.sites: dict[Site, int] = {}
        self.words: dict[str, int] = {}

    def data(self) -> dict[str, Any]:
        record, limits = self.record, self.limits
        data = {
            "kind": record.kind,
            "name": self.text(record.name),
            "sentence": sentence(record),
            "tier": tier_of(record),
            "ended": self.text(record.ended),
            "totals": {f.name: getattr(record.totals, f.name) for f in fields(record.totals)},
            "peak": self.peak(),
            "lines": self.lines(),
            "copies": self.rows(record.copies, limits.copies, _COPY, _left_copies),
            "churn": self.rows(record.churn, limits.others, _CHURN),
            "habits": self.rows(record.habits, limits.others, _HABIT),
            "survivors": self.rows(survivors_by_line(record), limits.others, _SURVIVOR),
            "iterations": self.rows(record.iterations, limits.iterations, _ITERATION),
            "memory": self.memory(),
            **self.storages(),
            "unseen": self.rows(record.unseen, limits.others, _UNSEEN),
        }
        # Last, when all that names them is there.
        data["sites"] = [self.spelled(site) for site in self.sites]
        data["words"] = list(self.words)
        return data

    # --- pieces -----------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        return shorten(printable(text), self.limits.characters)

    def site(self, site: Site | None) -> int:
        return -1 if site is None else self.sites.setdefault(site, len(self.sites))

    def word(self, text: str) -> int:
        return self.words.setdefault(self.text(text), len(self.words))

    def spelled(self, site: Site) -> list[Any]:
        """Place, whole path, line, end line, columns, function, text: as the page's script reads it."""
        return [
            self.names.place(site), self.text(site.file), site.line, site.end_line, site.column,
            site.end_column, self.text(site.function), self.text(site.text),
        ]  # fmt: skip

    def rows(
        self,
        facts: Sequence[Any],
        most: int,
        names: tuple[str, ...],
        left: Callable[[Sequence[Any]], dict[str, int]] | None = None,
    ) -> dict[str, Any]:
        """The first facts as a table, and what the others come to."""
        rows = [[self.value(getattr(fact, name)) for name in names] for fact in facts[:most]]
        over = facts[most:]
        rest = {"count": len(over), **(left(over) if left else {})}
        return {"columns": list(names), "rows": rows, "rest": rest}

    def value(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case None | Site():
                return self.site(value)
            case tuple():
                return [self.value(one) for one in value[: self.limits.others]]
        return value

    def lines(self) -> dict[str, Any]:
        """Lines, each with the name that a link gives it."""
        table = self.rows(self.record.lines, self.limits.lines, _LINE, _left_lines)
        taken: Counter[str] = Counter()
        for line, row in zip(self.record.lines, table["rows"], strict=False):
            place = self.names.place(line.site)
            taken[place] += 1
            row.append(place if taken[place] == 1 else f"{place}:{line.site.column + 1}")
        return {**table, "columns": [*_LINE, "link"]}

    def peak(self) -> dict[str, Any]:
        peak = self.record.peak
        owners = self.rows(peak.owners, self.limits.owners, _OWNER, _left_owners)
        return {
            **{name: self.value(getattr(peak, name)) for name in _PEAK},
            "owners": owners,
        }

    def memory(self) -> dict[str, Any]:
        """Memory over events: stretches, what of it belongs to no class, and where iterations begin."""
        moments = coarser(self.record.memory, self.limits.moments)
        starts = [one.first_event for one in self.record.iterations]
        thin = starts[:: max(1, -(-len(starts) // self.limits.iterations))]
        rows = [[*map(_of(moment), _MOMENT), *_by_owner(moment)] for moment in moments]
        # A class that nothing belongs to is no row in the legend.
        used = [i for i in range(len(OWNERS) + 1) if any(row[len(_MOMENT) + i] for row in rows)]
        keep = [*range(len(_MOMENT)), *(len(_MOMENT) + i for i in used)]
        return {
            "columns": list(_MOMENT),
            "owners": [[*OWNERS, "known to no owner"][i] for i in used],
            "rows": [[row[i] for i in keep] for row in rows],
            "iterations": thin,
        }

    def storages(self) -> dict[str, Any]:
        """Storages, and of each the first and last events whose result lies in it."""
        shown = self.record.storages[: self.limits.storages]
        kept, counts = chosen(self.record.events, shown, self.limits.events)
        table = self.rows(self.record.storages, self.limits.storages, _STORAGE, _left_storages)
        for storage, row in zip(shown, table["rows"], strict=True):
            row.append(counts[storage.number])
        return {
            "storages": {**table, "columns": [*_STORAGE, "events"]},
            "events": {"columns": list(_EVENT), "rows": [self.event(event) for event in kept]},
        }

    def event(self, event: Event) -> list[Any]:
        effects = ", ".join(f"{effect} {argument}" for argument, effect in event.effects)
        return [
            event.index, event.storage, self.word(event.call), self.site(event.site),
            self.word(event.module), self.word(event.phase), self.word(", ".join(event.origins)),
            self.word(effects), event.allocated_bytes, event.copied_bytes,
            self.site(event.forward), self.word(event.raised),
        ]  # fmt: skip


def chosen(
    events: Iterable[Event], storages: Sequence[StorageLife], most: int
) -> tuple[list[Event], Counter[int]]:
    """The events to keep of those that touched the storages, and how many there were of each.

    Each storage may keep as many as any other; of one with more, the first and the last.
    """
    touched: dict[int, list[Event]] = defaultdict(list)
    wanted = {storage.number for storage in storages}
    for event in events:
        if event.storage in wanted:
            touched[event.storage].append(event)
    counts = Counter({number: len(found) for number, found in touched.items()})
    each = _fair_share(list(counts.values()), most)
    kept = [event for found in touched.values() for event in _ends(found, each)]
    return sorted(kept, key=lambda event: event.index), counts


def _ends(events: list[Event], most: int) -> list[Event]:
    """The first and the last, so many together; all where there are no more."""
    if len(events) <= most:
        return events
    last = most // 2
    return [*events[: most - last], *events[len(events) - last :]]


def _fair_share(counts: list[int], most: int) -> int:
    """The largest number for each with which all together stay within `most`."""
    low, high = 0, max(counts, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(n, middle) for n in counts) <= most:
            low = middle
        else:
            high = middle - 1
    return low


def _of(fact: Any) -> Callable[[str], Any]:
    return lambda name: getattr(fact, name)


def _by_owner(moment: Moment) -> list[int]:
    return [*moment.by_owner, max(0, moment.high_bytes - sum(moment.by_owner))]


def _left_lines(over: Sequence[Line]) -> dict[str, int]:
    return {
        "hidden_bytes": sum(line.hidden_bytes for line in over),
        "allocated_bytes": sum(line.allocated_bytes for line in over),
    }


def _left_copies(over: Sequence[Copy]) -> dict[str, int]:
    return {"nbytes": sum(copy.nbytes for copy in over)}


def _left_owners(over: Sequence[Any]) -> dict[str, int]:
    return {"nbytes": sum(owner.nbytes for owner in over)}


def _left_storages(over: Sequence[StorageLife]) -> dict[str, int]:
    return {"nbytes": sum(storage.nbytes for storage in over)}


_LINE = (
    "site", "modules", "phases", "calls", "origins", "effects", "events", "operations",
    "allocated_bytes", "copied_bytes", "read_bytes", "hidden_copies", "hidden_bytes", "peak_bytes",
    "raised",
)  # fmt: skip
_COPY = (
    "site", "module", "phase", "call", "operation", "inside", "reason", "advice", "count", "nbytes",
    "read_bytes", "amplification", "forward", "event",
)  # fmt: skip
_CHURN = (
    "site", "module", "call", "nbytes", "count", "per_iteration", "instead", "why_not", "saves_bytes",
)  # fmt: skip
_HABIT = ("site", "module", "what", "why", "instead", "count", "nbytes")
_SURVIVOR = ("site", "module", "what", "amount", "per_iteration", "iterations", "holders")
_ITERATION = (
    "number", "first_event", "last_event", "allocated_bytes", "copied_bytes", "peak_bytes",
    "end_bytes", "survived_bytes", "nodes",
)  # fmt: skip
_OWNER = ("site", "module", "owner", "nbytes", "storages", "saved_by")
_PEAK = (
    "nbytes", "event", "site", "module", "phase", "iteration", "temporary_bytes", "unattributed_bytes",
)  # fmt: skip
_MOMENT = ("first_event", "last_event", "low_bytes", "high_bytes", "copied_bytes")
_STORAGE = ("number", "nbytes", "device", "owner", "site", "module", "birth", "death", "saved_by")
_UNSEEN = ("what", "count", "why")
_EVENT = (
    "index", "storage", "call", "site", "module", "phase", "origins", "effects", "allocated_bytes",
    "copied_bytes", "forward", "raised",
)  # fmt: skip
