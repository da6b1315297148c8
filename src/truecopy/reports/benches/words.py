"""Numbers and notes of a measured cell as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truecopy.measuring.verdict import REASONS

_ABOVE = 1.05
_FRESH = 0.5  # of the pages that a copy writes: as many faults, and its memory was not recycled


def time_of(seconds: float | None) -> str:
    """Three digits and a unit: `1.02 us`."""
    if seconds is None:
        return "-"
    for unit, scale in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        value = seconds * scale
        if value < 999.5:
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return f"{seconds:,.2f} s"


def verdict_of(measured: Any, row: Any) -> str:
    """The word of a row; a doubt carries its reason code."""
    if row.check is not None and row.check.raised:
        return "raised"
    if not measured.is_sound(row.method):
        return "no copy"
    if row.method == measured.reference:
        return "reference"
    if row.verdict is None:
        return "-"
    return row.verdict.word if not row.verdict.reason else f"cannot tell ({row.verdict.reason})"


def ratio_of(measured: Any, row: Any) -> str:
    """The ratio with its interval."""
    if row.method == measured.reference:
        return "1"
    if row.verdict is None:
        return "-"
    low, high = row.verdict.low, row.verdict.high
    digits = 2 if row.verdict.ratio < 10 else 1 if row.verdict.ratio < 100 else 0
    if digits == 2 and high - low < 0.05:
        digits = 3
    return f"{row.verdict.ratio:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def rate_of(measured: Any, row: Any) -> str:
    """Payload bytes, each counted once, by time."""
    if row.seconds is None or measured.cell.task not in ("copy", "duplicate"):
        return "-"
    return f"{measured.opened.payload_bytes / row.seconds / 1e9:.2f}"


def percent(part: float | None) -> str:
    """A part of one in whole percent."""
    return "-" if part is None else f"{100 * part:.0f} %"


def faults_of(row: Any) -> str:
    """Minor page faults of one call."""
    if row.faults is None:
        return "-"
    return f"{row.faults:.0f}" if row.faults >= 9.5 or row.faults < 0.05 else f"{row.faults:.1f}"


def floor_of(measured: Any) -> float | None:
    """The noise floor of a cell as a ratio, or None where nothing was judged."""
    return next((row.verdict.floor for row in measured.rows if row.verdict is not None), None)


def notes(measured: Any, page: int) -> Iterator[str]:
    """What must be known to read the rows of a cell, one sentence each."""
    said: dict[str, list[str]] = {}
    for row in measured.rows:
        for what in _said_of(measured, row):
            said.setdefault(what, []).append(row.method)
    yield from (f"{what}: {', '.join(names)}" for what, names in said.items())
    codes = {row.verdict.reason for row in measured.rows if row.verdict is not None}
    yield from (f"{code}: {REASONS[code]}" for code in sorted(codes - {""}))
    yield from _of_memory(measured, page)
    if measured.break_even is not None:
        yield measured.break_even.why


def _said_of(measured: Any, row: Any) -> Iterator[str]:
    if row.check is None:
        return
    if row.check.raised:
        yield row.check.raised
    yield from row.check.broken
    if row.method in measured.changed:
        yield "writes into the source, later than in its first call"
    if row.check.holds:
        yield from row.check.notes


def _of_memory(measured: Any, page: int) -> Iterator[str]:
    opened = measured.opened
    if measured.cell.task not in ("copy", "duplicate"):
        return
    if opened.source_bytes < opened.payload_bytes and measured.cell.task == "copy":
        yield (
            f"the source reaches {opened.source_bytes:,} bytes, of {opened.payload_bytes:,} that a copy "
            "writes: rates above the ceiling mean that it is read from the cache"
        )
    elif any(measured.is_sound(r.method) and (r.of_ceiling or 0) > _ABOVE for r in measured.rows):
        yield "above 100 % of the ceiling: the call weighs more than its bytes, or caches hold them"
    pages = opened.payload_bytes / page
    if measured.cell.regime == "recycled":
        fresh = [
            r.method for r in measured.rows if pages >= 2 and (r.faults or 0) >= _FRESH * pages
        ]
        if fresh:
            yield (
                "recycled is fresh in truth, the allocator gave the memory back to the kernel "
                f"(see faults): {', '.join(fresh)}"
            )
