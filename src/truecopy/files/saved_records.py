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


def read_record(path: Path, known: frozenset[str], *, to_be: str = "compared") -> SavedRecord:
    """Read one record of a known kind. Raises CannotRead for everything else."""
    fields = _fields_of(path)
    kind, version = fields.get("kind"), fields.get("version")
    if type(kind) is not str or kind not in known:
        raise CannotRead(
            f"is no record that can be {to_be}",
            where=str(path),
            expected=f"kind {' or '.join(sorted(known))}",
            got=_shown(kind),
            way_out="Print records with --json, and compare two of one kind"
            if to_be == "compared"
            else "Records are what commands print with --json, and what `save` writes",
        )
    if type(version) is not int or version != SCHEMA_VERSION:
        raise CannotRead(
            "is a record of a version that this truecopy does not know",
            where=str(path),
            expected=f"version {SCHEMA_VERSION}",
            got=_shown(version),
            way_out="Make the record again with this version",
        )
    return SavedRecord(path, kind, fields)


def _fields_of(path: Path) -> dict[str, Any]:
    with opened(path) as source:
        if source.size > _LONGEST_RECORD:
            raise CannotRead(
                "is JSON of absurd size",
                where=str(path),
                expected=f"a record, of at most {_LONGEST_RECORD:,} bytes",
                got=f"{source.size:,} bytes",
            )
        return parse_json_object(source, source.read_at(0, source.size))


def _shown(value: Any) -> str:
    return "none" if value is None else shorten(repr(value), 80)
