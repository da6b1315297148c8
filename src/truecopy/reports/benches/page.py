"""One HTML file of a bench: each cell's table, the ratios drawn, and what each method did with its input."""

from __future__ import annotations

import math
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
from truecopy.reports.html.page import page

_COLUMNS = (
    "method", "verdict", "tone", "ratio", "drawn", "time", "seconds", "struck", "rate",
    "of_ceiling", "faults", "kernel", "facts",
)  # fmt: skip

_TONES = {"slower": "slower", "faster": "faster", "no copy": "broken", "raised": "broken"}


def html(record: Any) -> str:
    """The page of a `BenchResult`. A pure function."""
    return page(data_of(record), shown_by="bench")


def data_of(record: Any) -> dict[str, Any]:
    """What the page is made of, JSON-able. Numbers are words already, but for drawing and sorting."""
    return {
        "sentence": first_line(record),
        "cells": [_cell(cell, record.machine.page) for cell in record.cells],
        "cut": list(record.cut),
        "left_out": list(record.request.left_out),
    }


def _cell(measured: Any, page: int) -> dict[str, Any]:
    floor = floor_of(measured)
    sound = [row for row in measured.rows if row.seconds and measured.is_sound(row.method)]
    return {
        "title": measured.cell.title,
        "payload": measured.opened.payload_bytes,
        "rounds": len(measured.rounds),
        "ended": measured.ended,
        "floor": None if floor is None else f"{100 * (floor - 1):.1f} %",
        "ceiling": time_of(measured.ceiling.seconds),
        "fastest": sound[0].method if sound else "-",
        "least": time_of(sound[0].seconds) if sound else "-",
        "band": None if floor is None else math.log(floor),
        "methods": {"columns": _COLUMNS, "rows": [_row(measured, row) for row in measured.rows]},
        "notes": list(notes(measured, page)),
    }


def _row(measured: Any, row: Any) -> list[Any]:
    sound, word, verdict = measured.is_sound(row.method), verdict_of(measured, row), row.verdict
    tone = _TONES.get(word, "doubt" if word.startswith("cannot tell") else "")
    ends = () if verdict is None else (verdict.low, verdict.ratio, verdict.high)
    return [
        row.method,
        word,
        tone,
        ratio_of(measured, row),
        [math.log(end) for end in ends],
        time_of(row.seconds),
        row.seconds,
        not sound,
        rate_of(measured, row) if sound else "-",
        percent(row.of_ceiling) if sound else "-",
        faults_of(row),
        percent(row.system),
        [] if row.check is None else _facts(row.check),
    ]


def _facts(check: Any) -> list[list[str]]:
    """What a method did with its input, name and value."""
    if check.raised:
        return [["raised", check.raised]]
    return [
        ["breaks", "; ".join(check.broken)],
        ["to be known", "; ".join(check.notes)],
        ["memory, to the source's", check.relation],
        ["shape", " x ".join(map(str, check.shape)) or "no dimension"],
        ["dtype", check.dtype],
        ["strides", ", ".join(map(str, check.strides))],
        ["layout", check.layout],
        ["requires gradient", "yes" if check.requires_grad else "no"],
        ["node in the graph", check.grad_fn],
        ["warnings", "; ".join(check.warnings)],
        ["source unchanged", "yes" if check.source_unchanged else "NO"],
    ]
