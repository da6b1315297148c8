"""What every record has in common: it is plain data in one envelope, and prints as its report."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from truecopy.errors import CannotRead

SCHEMA_VERSION = 1

_Record = TypeVar("_Record")


class Record:
    """Base of what looking at something returns. Reports are functions of it; nothing flows back."""

    __slots__ = ()
    kind = "record"

    def body(self) -> dict[str, Any]:
        """The record's own data, JSON-able."""
        raise AssertionError(f"{type(self).__name__} has no body")  # every final class has one

    def to_json(self) -> dict[str, Any]:
        """The record in its envelope: kind, version, and what it was made with."""
        import torch

        from truecopy import __version__

        made_with = {
            "truecopy": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        }
        return {"kind": self.kind, "version": SCHEMA_VERSION, "made_with": made_with, **self.body()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record as JSON; what stood there is replaced whole, or not at all."""
        from truecopy.files.writing import write_text

        text = json.dumps(self.to_json(), indent=2, allow_nan=False)
        write_text(text + "\n", Path(path), force=True)

    def __str__(self) -> str:
        from truecopy.reports.terminal import render

        text: str = render(self)
        return text

    def _repr_html_(self) -> str:
        """The report, where a notebook shows the record as the value of a cell."""
        from truecopy.reports.notebook import show

        text: str = show(self)
        return text


def read_again(
    data: dict[str, Any],
    kind: str,
    read: Callable[[dict[str, Any]], _Record],
    where: str | None = None,
) -> _Record:
    """What `read` makes of the JSON form of a record of this kind.

    Raises CannotRead for a record of another kind or version, and where `read` finds it damaged.
    """
    called = kind if kind.endswith("s") else f"a {kind}"
    if data.get("kind") != kind or data.get("version") != SCHEMA_VERSION:
        raise CannotRead(
            f"is no record of {called} that this truecopy knows",
            where=where,
            expected=f"kind {kind}, version {SCHEMA_VERSION}",
            got=f"kind {data.get('kind')!r:.80}, version {data.get('version')!r:.80}",
            way_out="Make the record again with this version",
        )
    try:
        return read(data)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise CannotRead(
            f"is a record of {called} that is damaged",
            where=where,
            got=f"{type(error).__name__}: {error}"[:200],
            way_out="Make the record again",
        ) from None
