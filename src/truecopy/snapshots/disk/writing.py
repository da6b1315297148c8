"""A description and its bytes into one file, whole or not at all.

safetensors' own writer wants a path that it may create and a second copy of nothing; ours writes from the
kept buffers straight into a draft that has no name yet, so the format's header is written here. That is
one JSON object and its length. Reading is left to safetensors.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from truecopy.errors import CannotWrite
from truecopy.files.writing import drafted, refuse_taken
from truecopy.records import Record
from truecopy.snapshots.disk.describing import Description, Payload

KEY = "truecopy"
"""Where the description stands in the file's metadata."""

LONG = 1 << 30
"""Bytes from which on a file shows how far it is."""

_PIECE = 32 << 20
_LARGE = 1 << 20


class SnapshotRecord(Record):
    """The envelope of a description."""

    __slots__ = ("description",)
    kind = "snapshot"

    def __init__(self, description: Description) -> None:
        self.description = description

    def body(self) -> dict[str, Any]:
        return self.description.body()


def write(description: Description, path: Path, *, show: bool) -> None:
    """Write the file, or raise CannotWrite with whatever stood there untouched."""
    target = Path(os.path.realpath(path))
    refuse_taken(target, force=True)
    payloads = sorted(description.payloads, key=lambda one: -_unit(one))
    header = _header(description, payloads)
    total = sum(payload.nbytes for payload in payloads)
    try:
        with drafted(target) as draft, shown_progress(f"saving {target.name}", total, show) as tell:
            draft.file.write(header)
            draft.file.flush()
            written = len(header)
            for payload in payloads:
                for piece in _pieces(payload.read()):
                    _write_all(draft.file.fileno(), piece)
                    _hurry(draft.file.fileno(), written, len(piece))
                    written += len(piece)
                    tell(len(piece))
            draft.publish(force=True)
    except OSError as error:
        raise CannotWrite(
            f"cannot be written: {error.strerror or error}", where=str(target)
        ) from error


def _unit(payload: Payload) -> int:
    """Elements that are larger come first, so that each lies at a multiple of its size."""
    bits = int("".join(filter(str.isdigit, payload.dtype.partition("_")[0])) or 8)
    return bits // 8


def _header(description: Description, payloads: list[Payload]) -> bytes:
    envelope = json.dumps(SnapshotRecord(description).to_json(), allow_nan=False)
    fields: dict[str, Any] = {"__metadata__": {**description.ties, KEY: envelope}}
    end = 0
    for payload in payloads:
        start, end = end, end + payload.nbytes
        fields[payload.name] = {
            "dtype": payload.dtype, "shape": list(payload.shape), "data_offsets": [start, end],
        }  # fmt: skip
    text = json.dumps(fields).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _pieces(source: torch.Tensor) -> Iterator[memoryview]:
    for part in source.split(_PIECE):
        if part.nbytes:
            yield part.cpu().numpy().data


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _hurry(descriptor: int, start: int, nbytes: int) -> None:
    """Let the disk begin with a large piece while the next is written; else all of it waits for the sync."""
    if nbytes >= _LARGE and (advise := getattr(os, "posix_fadvise", None)) is not None:
        with suppress(OSError):  # advice that a file system does not take
            advise(descriptor, start, nbytes, os.POSIX_FADV_DONTNEED)


@contextmanager
def shown_progress(what: str, total: int, show: bool) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal for long files; nothing for others, and nothing where nobody looks."""
    if not show or total < LONG or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
