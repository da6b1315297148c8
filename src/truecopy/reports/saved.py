"""Records that were kept as JSON, read again so that reports can be made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from truecopy.answers.record import AnswersRecord
from truecopy.errors import CannotRead
from truecopy.files.saved_records import SavedRecord, is_record, read_record
from truecopy.files.text import printable, reason_of
from truecopy.measuring.comparison import BenchComparison
from truecopy.measuring.record import BenchResult
from truecopy.tracing.comparison import TraceComparison
from truecopy.tracing.ranks import TracesRecord
from truecopy.tracing.record import TraceRecord

_READERS: dict[str, Callable[[dict[str, Any], str | None], Any]] = {
    "trace": TraceRecord.from_json,
    "traces": TracesRecord.from_json,
    "trace comparison": TraceComparison.from_json,
    "bench": BenchResult.from_json,
    "bench comparison": BenchComparison.from_json,
    "answers": AnswersRecord.from_json,
}
"""Kinds that are read into the very type that wrote them."""

_KEPT = (
    "inspection",
    "compaction",
    "comparison",
    "aliases",
    "plan",
    "explanation",
    "capture",
    "capture comparison",
)
"""Kinds of which reports need the fields alone."""


class Kept:
    """A record as it was read: its fields by name, lists as tuples, objects as more of these."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._fields:
            raise AttributeError(f"the record has no {name!r}")
        return _kept(self._fields[name])

    @property
    def is_clean(self) -> bool:
        """Whether it says that nothing was found."""
        return self._fields.get("clean") is not False

    def to_json(self) -> dict[str, Any]:
        """What was read."""
        return self._fields


def _kept(value: Any) -> Any:
    match value:
        case dict():
            return Kept(value)
        case list():
            return tuple(map(_kept, value))
    return value


def load(path: Path) -> Any:
    """The record in a file, by the kind that it says it is. Raises CannotRead for everything else."""
    if not is_record(path):
        raise CannotRead(
            "is no record",
            where=printable(str(path)),
            expected="JSON that truecopy wrote",
            got="a checkpoint or an archive",
            way_out="Run `truecopy inspect` on a checkpoint",
        )
    saved = read_record(path, frozenset((*_READERS, *_KEPT)), to_be="shown")
    reader = _READERS.get(saved.kind)
    return reader(saved.body, str(path)) if reader is not None else _checked(saved)


def _checked(saved: SavedRecord) -> Kept:
    """The fields of a record whose report can be made: that is the check."""
    from truecopy.reports.terminal import render

    record = Kept(saved.body)
    try:
        render(record)
    except Exception as error:  # whatever a field of the wrong kind leads to
        raise CannotRead(
            f"is no whole record of kind {saved.kind}",
            where=str(saved.path),
            got=reason_of(error),
            way_out="Make the record again",
        ) from error
    return record
