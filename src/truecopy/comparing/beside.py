"""`set_beside`: two paths compared, be they checkpoints or records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from truecopy.errors import UsageError
from truecopy.files.captures import about_of, compare_saved
from truecopy.files.comparison import compare
from truecopy.files.reading import read
from truecopy.files.saved_records import SavedRecord, is_record, read_record


def set_beside(a: Path, b: Path, *, rtol: float = 0.0, atol: float = 0.0) -> Any:
    """Compare two checkpoints, two captures, or two records of one kind, whichever the files hold.

    Returns a record that knows whether it `is_clean`. Tolerances are for values: only checkpoints hold any.
    """
    kinds = is_record(a), is_record(b)
    if kinds[0] != kinds[1]:
        raise UsageError(
            "a record cannot be compared with a checkpoint",
            expected="two checkpoints, or two records of one kind",
            way_out=f"Run `truecopy inspect --json` on {str(b if kinds[0] else a)!r} first",
        )
    if not kinds[0]:
        ours, theirs = read(a, check=True), read(b, check=True)
        if about_of(ours) is not None and about_of(theirs) is not None:
            return compare_saved(ours, theirs, rtol=rtol, atol=atol)
        return compare(ours, theirs, rtol=rtol, atol=atol)
    known = frozenset(_COMPARED)
    left, right = read_record(a, known), read_record(b, known)
    if left.kind != right.kind:
        raise UsageError(
            "records of two kinds cannot be compared",
            expected="two records of one kind",
            got=f"{left.kind} and {right.kind}",
        )
    if rtol or atol:
        raise UsageError(
            "records are compared without tolerances",
            expected="no rtol, no atol",
            got=f"two records of kind {left.kind}",
            way_out="Compare the checkpoints themselves",
        )
    return _COMPARED[left.kind](left, right)


def _inspections(a: SavedRecord, b: SavedRecord) -> Any:
    from truecopy.comparing.inspections import compare_inspections

    return compare_inspections(a, b)


def _traces(a: SavedRecord, b: SavedRecord) -> Any:
    from truecopy.tracing.comparison import compare_traces
    from truecopy.tracing.record import TraceRecord

    left, right = (TraceRecord.from_json(one.body, str(one.path)) for one in (a, b))
    return compare_traces(left, right, (str(a.path), str(b.path)))


def _benches(a: SavedRecord, b: SavedRecord) -> Any:
    from truecopy.measuring.comparison import compare_benches
    from truecopy.measuring.record import BenchResult

    left, right = (BenchResult.from_json(one.body, str(one.path)) for one in (a, b))
    return compare_benches(left, right, (str(a.path), str(b.path)))


_COMPARED: dict[str, Callable[[SavedRecord, SavedRecord], Any]] = {
    "inspection": _inspections,
    "trace": _traces,
    "bench": _benches,
}
"""Each kind of record that can be compared, and how; a room is loaded where a record of it comes in."""
