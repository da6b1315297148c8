"""A result on disk while it grows: whole JSON after every round, so that nothing is lost with the process.

The file ends with what closes its lists. A round is written over that end together with a new one, in
one call: whoever reads or kills at any moment finds a whole record, or one whose last line is torn, and
a torn line is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, Self

from truecopy.errors import CannotRead, CannotWrite
from truecopy.measuring.record import BenchResult

_LOG = ',\n"log": [\n'
_END = '\n],\n"results": {results}}}\n'


class Journal:
    """Where entries of a log go: into a list, and, where a path is given, onto disk."""

    def __init__(self, result: BenchResult, path: Path | None) -> None:
        self.entries = list(result.log)
        self._path = path
        self._file: FileIO | None = None
        if path is not None:
            envelope = {k: v for k, v in result.to_json().items() if k not in ("log", "results")}
            lines = ",\n".join(map(_line, self.entries))
            text = _line(envelope)[:-1] + _LOG + lines
            self._open(path, text)

    def _open(self, path: Path, text: str) -> None:
        draft = path.with_name(f".{path.name}.tmp")
        try:
            draft.write_text(text + _END.format(results="[]"))
            draft.replace(path)
            self._file = FileIO(path, "r+")
        except OSError as error:
            raise CannotWrite(
                f"cannot be written: {error.strerror or error}", where=str(path)
            ) from error
        self._end = len(text.encode())

    def append(self, entry: dict[str, Any]) -> None:
        """Keep one more entry."""
        separator = ",\n" if self.entries else ""
        self.entries.append(entry)
        self._write(separator + _line(entry), "[]")

    def finish(self, results: list[dict[str, Any]]) -> None:
        """Add what follows from the samples, for other readers."""
        self._write("", json.dumps(results, allow_nan=False))

    def _write(self, text: str, results: str) -> None:
        if self._file is None:
            return
        added = text.encode()
        self._file.seek(self._end)
        self._file.write(added + _END.format(results=results).encode())
        self._file.truncate()
        self._end += len(added)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _line(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def read_journal(path: Path) -> BenchResult:
    """The result in a file, without a last line that is torn. Raises CannotRead for anything else."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotRead(
            "cannot be read as a result of a bench", where=str(path), got=str(error)
        ) from None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = _mended(text)
    if not isinstance(data, dict):
        raise CannotRead(
            "is no result of a bench", where=str(path), way_out="Pass another file name"
        )
    return BenchResult.from_json(data, str(path))


def _mended(text: str) -> Any:
    """The lines of a torn file that are whole."""
    first, _, rest = text.partition(_LOG)
    try:
        data = json.loads(first + "}")
    except (ValueError, RecursionError):
        return None
    return {**data, "log": list(_whole_lines(rest))} if isinstance(data, dict) else None


def _whole_lines(text: str) -> Iterator[Any]:
    for line in text.split("\n"):
        try:
            yield json.loads(line.removesuffix(","))
        except (ValueError, RecursionError):
            return  # the torn line, or the end of the log
