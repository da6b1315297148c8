"""Records that were printed as JSON, read again: only what this version knows, and knows by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truecopy.errors import CannotRead
from truecopy.files.opening import Content, content_of, opened
from truecopy.files.safetensors_files import parse_json_object
from truecopy.files.text import shorten
from truecopy.records import SCHEMA_VERSION

_LONGEST_RECORD = 1 << 28


@dataclass(frozen=True, slots=True)
class SavedRecord:
    """A record as plain data, of a kind and version that are known."""

    path: Path
    kind: str
    body: dict[str, Any]


def is_record(path: Path) -> bool:
    """Whether a path names JSON, which is no checkpoint."""
    if path.is_dir():
        return False
    with opened(path) as source:
        return content_of(source) is Content.JSON


def read_record(path: Path, known: frozenset[str]) -> SavedRecord:
    """Read one record of a known kind. Raises CannotRead for everything else."""
    with opened(path) as source:
        if source.size > _LONGEST_RECORD:
            raise _refusal(path, "is JSON of absurd size", f"{source.size:,} bytes", known)
        fields = parse_json_object(source, source.read_at(0, source.size))
    kind, version = fields.get("kind"), fields.get("version")
    if type(kind) is not str or kind not in known:
        raise _refusal(path, "is no record that can be compared", _shown(kind), known)
    if type(version) is not int or version != SCHEMA_VERSION:
        raise CannotRead(
            "is a record of a version that this truecopy does not know",
            where=str(path),
            expected=f"version {SCHEMA_VERSION}",
            got=_shown(version),
            way_out="Make the record again with this version",
        )
    return SavedRecord(path, kind, fields)


def _refusal(path: Path, what: str, got: str, known: frozenset[str]) -> CannotRead:
    return CannotRead(
        what, where=str(path), expected=f"kind {' or '.join(sorted(known))}", got=got,
        way_out="Print records with --json, and compare two of one kind",
    )  # fmt: skip


def _shown(value: Any) -> str:
    return "none" if value is None else shorten(repr(value), 80)
