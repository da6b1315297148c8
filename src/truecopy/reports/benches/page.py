"""One HTML file of a bench: the terminal's tables with the ratio drawn, no script, nothing fetched."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from typing import Any

from truecopy.reports.benches.terminal import first_line
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
    "",
    "time",
    "GB/s",
    "of ceiling",
    "faults",
    "kernel",
)

_FRAME = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>truecopy bench</title>
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }}
th, td {{ text-align: left; padding: .15rem .6rem; border-bottom: 1px solid #8884; white-space: nowrap; }}
td:nth-child(n+5), th:nth-child(n+5) {{ text-align: right; }}
h2 {{ font-size: 1rem; margin: 2rem 0 .3rem; }}
.slower {{ color: #b3261e; }} .faster {{ color: #1a7f37; }} .doubt, .broken {{ color: #777; }}
svg {{ display: block; width: 16rem; height: 1rem; }}
</style>
</head>
<body>
<h1>What each way of copying costs</h1>
<p>{first}</p>
<p>A ratio is the time of a method over that of the reference, above 1 is slower; the line is the interval,
the gray band what the reference differs from itself. Payload bytes are counted once.</p>
{cells}
{lists}
</body>
</html>
"""


def bench_page(record: Any) -> str:
    """The page of a `BenchResult`. A pure function."""
    cells = "\n".join(part for cell in record.cells for part in _cell(cell, record.machine.page))
    lists = "\n".join(
        _list(title, lines)
        for title, lines in (
            ("Not measured", record.cut),
            ("Without a meaning, and left out", record.request.left_out),
        )
        if lines
    )
    return _FRAME.format(first=html.escape(first_line(record)), cells=cells, lists=lists)


def _cell(measured: Any, page: int) -> Iterator[str]:
    floor = floor_of(measured)
    yield f"<h2>{html.escape(measured.cell.title)}</h2>"
    noise = "" if floor is None else f", noise floor {100 * (floor - 1):.1f} %"
    rounds = f"{len(measured.rounds)} rounds ({measured.ended})"
    ceiling = f", ceiling {time_of(measured.ceiling.seconds)}"
    yield f"<p>{measured.opened.payload_bytes:,} payload bytes, {rounds}{noise}{ceiling}</p>"
    yield (
        "<table><thead><tr>"
        + "".join(f"<th>{name}</th>" for name in _HEAD)
        + "</tr></thead><tbody>"
    )
    reach = _reach(measured)
    for row in measured.rows:
        yield _row(measured, row, reach, floor)
    yield "</tbody></table>"
    said = [html.escape(note) for note in notes(measured, page)]
    if said:
        yield "<ul>" + "".join(f"<li>{note}</li>" for note in said) + "</ul>"


def _row(measured: Any, row: Any, reach: float, floor: float | None) -> str:
    sound = measured.is_sound(row.method)
    word = verdict_of(measured, row)
    kind = {"slower": "slower", "faster": "faster", "no copy": "broken", "raised": "broken"}.get(
        word, "doubt" if word.startswith("cannot tell") else "plain"
    )
    time = html.escape(time_of(row.seconds))
    cells = (
        html.escape(row.method),
        html.escape(word),
        html.escape(ratio_of(measured, row)),
        "" if row.verdict is None or floor is None else _drawn(row.verdict, reach, floor),
        time if sound or row.seconds is None else f"<s>{time}</s>",
        rate_of(measured, row) if sound else "-",
        percent(row.of_ceiling) if sound else "-",
        faults_of(row),
        percent(row.system),
    )
    return f'<tr class="{kind}">' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _reach(measured: Any) -> float:
    """The largest distance from 1 that a cell's drawings show, as a log-ratio."""
    ends = [
        abs(math.log(end))
        for row in measured.rows if row.verdict is not None
        for end in (row.verdict.low, row.verdict.high, row.verdict.floor)
    ]  # fmt: skip
    return max(ends, default=1.0) or 1.0


def _drawn(verdict: Any, reach: float, floor: float) -> str:
    def x(ratio: float) -> float:
        return 100 + 95 * math.log(ratio) / reach

    low, middle, high, noise = x(verdict.low), x(verdict.ratio), x(verdict.high), x(floor) - 100
    return (
        '<svg viewBox="0 0 200 10" preserveAspectRatio="none" role="img">'
        f'<rect x="{100 - noise:.2f}" y="0" width="{2 * noise:.2f}" height="10" fill="#8886"/>'
        '<path d="M100 0V10" stroke="#888" stroke-width=".6"/>'
        f'<path d="M{low:.2f} 5H{high:.2f}" stroke="currentColor" stroke-width="1.4"/>'
        f'<path d="M{middle:.2f} 1V9" stroke="currentColor" stroke-width="1.2"/></svg>'
    )


def _list(title: str, lines: tuple[str, ...]) -> str:
    return (
        f"<h2>{title}</h2><ul>"
        + "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        + "</ul>"
    )
