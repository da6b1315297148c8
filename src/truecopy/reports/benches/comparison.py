"""The terminal's report of two benches side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from truecopy.files.text import printable

_MOST = 20


def bench_comparison(record: Any, width: int) -> list[str]:
    """The lines of a `BenchComparison`."""
    worse = [change for change in record.changes if change.is_regression]
    better = [change for change in record.changes if not change.is_regression]
    low, high = record.drift
    counts = (
        f"{_count(len(worse), 'regression')}, {_count(len(better), 'improvement')}, "
        f"{record.same} the same, {len(record.doubts)} of which one cannot tell"
    )
    drift = f"{100 * (low - 1):+.0f} to {100 * (high - 1):+.0f} %"
    return [
        f"{printable(record.a)} and {printable(record.b)}: {counts}.",
        f"  The machine itself drifted by {drift}, told by its ceiling, which is taken out.",
        *_list("Regressions, worst first:", [_change(change) for change in worse], width),
        *_list("Improvements:", [_change(change) for change in better], width),
        *_list("Cannot tell:", [_change(change) for change in record.doubts], width),
        *_list("Runs differ in:", record.flags, width),
        *_list("Not compared:", record.unmatched, width),
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _change(change: Any) -> str:
    if change.verdict is None:
        return f"{change.method} {change.what} ({change.promise}): {change.cell.title}"
    verdict = change.verdict
    doubt = f", {verdict.reason}" if verdict.reason else ""
    return (
        f"{change.method} {verdict.word}: {verdict.ratio:.2f} times as long "
        f"({verdict.low:.2f} to {verdict.high:.2f}, noise floor {verdict.floor:.2f}{doubt}): "
        f"{change.cell.title}"
    )


def _list(title: str, lines: Sequence[str], width: int) -> list[str]:
    if not lines:
        return []
    wrapped = (
        textwrap.wrap(printable(line), width, initial_indent="  ", subsequent_indent="      ")
        for line in lines[:_MOST]
    )
    more = [f"  ... and {len(lines) - _MOST:,} more"] if len(lines) > _MOST else []
    return ["", title, *(part for parts in wrapped for part in parts), *more]
