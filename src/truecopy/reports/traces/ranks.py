"""The traces of several ranks as plain text: a row for each, then the whole of the one that is worst."""

from __future__ import annotations

from collections.abc import Callable

from truecopy.files.text import printable, shorten
from truecopy.reports.tables import count, section, size
from truecopy.reports.traces.terminal import lines_of as lines_of_one
from truecopy.tracing.ranks import TracesRecord
from truecopy.tracing.record import TraceRecord

_COLUMNS: tuple[tuple[str, Callable[[TraceRecord], str]], ...] = (
    ("peak", lambda one: _amount(one.peak.nbytes)),
    ("hidden", lambda one: _amount(one.totals.hidden_bytes)),
    ("copied", lambda one: _amount(one.totals.copied_bytes)),
    ("allocated", lambda one: _amount(one.totals.allocated_bytes)),
    ("ended", lambda one: one.ended),
)


def lines_of(record: TracesRecord, width: int) -> list[str]:
    """The report, line by line."""
    rows = tuple(enumerate(record.records))
    worst = max(rows, key=lambda row: (row[1].totals.hidden_bytes, row[1].peak.nbytes, -row[0]))[0]

    def cells(row: tuple[int, TraceRecord]) -> tuple[str, ...]:
        return (str(row[0]), *(amount(row[1]) for _, amount in _COLUMNS))

    return [
        sentence(record),
        *section("Ranks:", rows, cells, width, header=("rank", *(name for name, _ in _COLUMNS))),
        "",
        f"Rank {worst}, with the most hidden bytes, then the highest peak:",
        "",
        *lines_of_one(record.records[worst], width),
    ]


def sentence(record: TracesRecord) -> str:
    """The highest peak and the lowest, and what all ranks copied without being asked."""
    peaks = [(one.peak.nbytes, -rank) for rank, one in enumerate(record.records)]
    (most, first), (least, _) = max(peaks), min(peaks)
    hidden = sum(one.totals.hidden_bytes for one in record.records)
    copies = sum(one.totals.hidden_copies for one in record.records)
    told = (
        f"{size(hidden)} copied in {count(copies, 'hidden copy', 'hidden copies')} on all"
        if copies
        else "no hidden copies"
    )
    lowest = f", least {size(least)}" if least != most else " on each"
    where = f" on rank {-first}" if least != most else ""
    name = shorten(printable(record.name), 60)
    return f"{name} on {len(record.records)} ranks: peak {size(most)}{where}{lowest} · {told}."


def _amount(nbytes: int) -> str:
    return size(nbytes) if nbytes else "0"
