"""What every record has in common: it is plain data in one envelope, and prints as its report."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1


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
        target = Path(path)
        text = json.dumps(self.to_json(), indent=2, allow_nan=False)
        with tempfile.NamedTemporaryFile(
            "w", encoding="ascii", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            try:
                file.write(text + "\n")
                file.close()
                Path(file.name).replace(target)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise

    def __str__(self) -> str:
        from truecopy.reports.terminal import render

        text: str = render(self)
        return text
