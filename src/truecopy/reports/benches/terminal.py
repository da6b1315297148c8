"""The terminal's report of a bench: what was measured, then a table for each cell, the fastest copy first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from truecopy.files.text import printable, shorten
from truecopy.reports.benches.words import (
    faults_of,
    floor_of,
    notes,
    percent,
    rate_of,
    ratio_of,
    time_of,
    verdict_of,
)

_HEAD = (
    "method",
    "verdict",
    "ratio (95 % interval)",
    "time",
    "GB/s",
    "ceiling",
    "faults",
    "kernel",
)
_MOST = 20
_LEFT = 3  # columns of words; the others are of numbers


def bench(record: Any, width: int) -> list[str]:
    """The lines of a `BenchResult`."""
    return [
        first_line(record),
        *(line for cell in record.cells for line in _cell(cell, record.machine.page, width)),
        *_list("Not measured:", record.cut, width),
        *_list("Without a meaning, and left out:", record.request.left_out, width),
    ]


def first_line(record: Any) -> str:
    """How much was measured, where, and how to get the same order again."""
    rounds = sum(len(cell.rounds) for cell in record.cells)
    machine = record.machine
    untested = "" if machine.device == "cpu" else "; this device is timed by its events, untested"
    return (
        f"{len(record.cells):,} of {len(record.request.cells):,} cells measured in {rounds:,} rounds and "
        f"{record.spent:.1f} s, seed {record.request.seed}; {printable(machine.cpu)}, "
        f"{machine.cores} cores, torch {machine.torch}{untested}."
    )


def _cell(measured: Any, page: int, width: int) -> Iterator[str]:
    yield ""
    yield measured.cell.title
    floor = floor_of(measured)
    ceiling = measured.ceiling
    line = f"  {measured.opened.payload_bytes:,} payload bytes, {len(measured.rounds)} rounds"
    line += f" ({measured.ended})"
    if floor is not None:
        line += f", noise floor {100 * (floor - 1):.1f} %"
    if ceiling.seconds is not None:
        rate = measured.opened.payload_bytes / ceiling.seconds / 1e9
        line += f", ceiling {time_of(ceiling.seconds)} ({rate:.2f} GB/s)"
    yield line
    if measured.rounds:
        yield from _table([_HEAD, *(_row(measured, row) for row in measured.rows)])
    for note in notes(measured, page):
        yield from _wrapped(note, width)


def _row(measured: Any, row: Any) -> tuple[str, ...]:
    sound = measured.is_sound(row.method)
    time = time_of(row.seconds)
    return (
        shorten(printable(row.method), 28),
        verdict_of(measured, row),
        ratio_of(measured, row),
        time if sound or row.seconds is None else f"~~{time}~~",
        rate_of(measured, row) if sound else "-",
        percent(row.of_ceiling) if sound and measured.cell.task in ("copy", "duplicate") else "-",
        faults_of(row),
        percent(row.system),
    )


def _table(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    for row in rows:
        cells = [
            cell.ljust(w) if i < _LEFT else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(printable(text), width, initial_indent="  - ", subsequent_indent="    ")


def _list(title: str, lines: Sequence[str], width: int) -> list[str]:
    if not lines:
        return []
    more = [f"  ... and {len(lines) - _MOST:,} more"] if len(lines) > _MOST else []
    return ["", title, *(part for line in lines[:_MOST] for part in _wrapped(line, width)), *more]
