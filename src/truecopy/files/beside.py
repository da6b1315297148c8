"""`set_beside`: two paths compared, be they checkpoints or records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truecopy.errors import CannotRead, UsageError
from truecopy.files.captures import CaptureComparison, about_of, compare_saved
from truecopy.files.comparison import Comparison, Tie, compare
from truecopy.files.pairs import Difference
from truecopy.files.reading import read
from truecopy.files.saved_records import SavedRecord, is_record, read_record

_KNOWN = frozenset(("inspection",))


def set_beside(
    a: Path, b: Path, *, rtol: float = 0.0, atol: float = 0.0
) -> Comparison | CaptureComparison:
    """Compare two checkpoints, two captures, or two records of one kind, whichever the files hold."""
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
    left, right = read_record(a, _KNOWN), read_record(b, _KNOWN)
    if left.kind != right.kind:
        raise UsageError(
            "records of two kinds cannot be compared",
            expected="two records of one kind",
            got=f"{left.kind} and {right.kind}",
        )
    return _inspections(left, right)


def _inspections(a: SavedRecord, b: SavedRecord) -> Comparison:
    """Two inspections: what was there, not what the values were."""
    left, right = _entries(a), _entries(b)
    both = [path for path in left if path in right]
    differences = [
        Difference(path, what, str(left[path][what]), str(right[path][what]))
        for path in both
        for what in ("dtype", "shape")
        if left[path][what] != right[path][what]
    ]
    ties_a, ties_b = _ties(a), _ties(b)
    return Comparison(
        str(a.path), str(b.path), ("inspection", "inspection"), 0.0, 0.0, len(both),
        tuple(sorted(differences, key=lambda d: (d.what != "shape", d.path))),
        tuple(path for path in left if path not in right),
        tuple(path for path in right if path not in left),
        tuple(tie for tie in ties_a if tie not in ties_b),
        tuple(tie for tie in ties_b if tie not in ties_a),
        (), ("values: records of an inspection do not hold them",),
    )  # fmt: skip


def _entries(record: SavedRecord) -> dict[str, dict[str, Any]]:
    entries = record.body.get("entries")
    match entries:
        case list() if all(map(_is_entry, entries)):
            return {path: entry for entry in entries for path in (entry["path"], *entry["also"])}
    raise _not_whole(record, "entries")


def _is_entry(value: Any) -> bool:
    match value:
        case {"path": str(), "dtype": str(), "shape": list(), "also": list(also)}:
            return all(type(path) is str for path in also)
    return False


def _ties(record: SavedRecord) -> list[Tie]:
    ties = record.body.get("ties")
    match ties:
        case list() if all(map(_is_tie, ties)):
            return [Tie(tuple(sorted(tie["paths"])), ()) for tie in ties]
    raise _not_whole(record, "ties")


def _is_tie(value: Any) -> bool:
    match value:
        case {"paths": list(paths)}:
            return all(type(path) is str for path in paths)
    return False


def _not_whole(record: SavedRecord, field: str) -> CannotRead:
    return CannotRead(
        f"is no whole record of an {record.kind}: its {field} are not as truecopy writes them",
        where=str(record.path),
        way_out="Make the record again with `truecopy inspect --json`",
    )
