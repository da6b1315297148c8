"""Limits that a run must keep: `hidden-copies=0,peak=1.2GiB`, and what passes them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from truecopy.errors import UsageError
from truecopy.tracing.record import TraceRecord

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12} | {
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*")

NAMES = (
    "hidden-copies", "hidden-bytes", "copies", "copied", "allocated", "peak", "growth", "nodes",
)  # fmt: skip
"""What can be limited: a number of copies, bytes, bytes left behind in each iteration, nodes likewise."""

_COUNTS = ("hidden-copies", "copies", "nodes")


@dataclass(frozen=True, slots=True)
class Passed:
    """A limit that a run has passed."""

    name: str
    limit: int
    got: int


def amount(text: str | int, name: str = "limit") -> int:
    """A number of bytes as people write it: `1.2 GiB`, `64MB`, `4096`."""
    match = _AMOUNT.fullmatch(str(text))
    unit = match[2].lower() if match else ""
    if match is None or (unit and (unit not in _UNITS or name in _COUNTS)):
        raise UsageError(
            f"{text!r} is no {'number' if name in _COUNTS else 'number of bytes'}",
            where=name,
            expected="a number" if name in _COUNTS else "something like 4096, 64MB or 1.2GiB",
        )
    return int(float(match[1]) * _UNITS.get(unit, 1))


def read_limits(text: str) -> dict[str, int]:
    """The limits that a command line names."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if name not in NAMES or not equals:
            raise UsageError(
                f"{part!r} is no limit",
                expected=f"name=number, of {', '.join(NAMES)}",
            )
        found[name] = amount(value, name)
    return found


def passed(record: TraceRecord, limits: Mapping[str, int]) -> list[Passed]:
    """The limits that a run has passed, in the order in which they were set."""
    got = {
        "hidden-copies": record.totals.hidden_copies,
        "hidden-bytes": record.totals.hidden_bytes,
        "copies": record.totals.copies,
        "copied": record.totals.copied_bytes,
        "allocated": record.totals.allocated_bytes,
        "peak": record.peak.nbytes,
        "growth": _growth(record, "bytes"),
        "nodes": _growth(record, "nodes"),
    }
    return [Passed(name, limit, got[name]) for name, limit in limits.items() if got[name] > limit]


def _growth(record: TraceRecord, what: str) -> int:
    return math.ceil(sum(one.per_iteration for one in record.survivors if one.what == what))
