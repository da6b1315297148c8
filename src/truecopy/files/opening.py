"""Opening what a path names, and telling its kind from its first bytes, never from its suffix."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from truecopy.errors import CannotRead
from truecopy.files.text import printable, reason_of

KNOWN = ".pt, .pth or .bin from torch.save, .safetensors, .npz, .npy, or a directory of shards"


class Content(Enum):
    """What the first bytes of a file say that it is."""

    ZIP = "a zip archive"
    PICKLE = "a pickle"
    SAFETENSORS = "a safetensors file"
    NPY = "a .npy file"
    JSON = "JSON"


# Whoever passes one of these learns more from its name than from "unknown".
_STRANGERS = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "Run `git lfs pull`"),
    (b"GGUF", "a GGUF file", None),
    (b"\x89HDF", "an HDF5 file", None),
    (b"\x1f\x8b", "a gzip file", "Unpack it with gunzip first"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "Unpack it with unzstd first"),
    (b"<!DOCTYPE", "a web page", "Download the file again"),
    (b"<html", "a web page", "Download the file again"),
)


@dataclass(frozen=True, slots=True)
class Source:
    """An open regular file. Everything is read through it, so that a path cannot change its mind."""

    path: Path
    file: BinaryIO
    size: int

    @property
    def stable_path(self) -> str:
        """A path to this very file, for libraries that take no open file.

        It has no suffix that a library could judge by, and still leads here after a rename.
        """
        link = f"/proc/self/fd/{self.file.fileno()}"
        return link if os.path.exists(link) else str(self.path)  # noqa: PTH110 - a name, not a Path

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly so many bytes, or CannotRead."""
        inside = 0 <= offset <= self.size
        self.file.seek(offset if inside else self.size)  # archives may name places before the file
        found = self.file.read(length)
        if len(found) != length:
            raise CannotRead(
                "is cut off",
                where=str(self.path),
                expected=f"{length:,} bytes at byte {offset:,}"
                if inside
                else "offsets in the file",
                got=f"{len(found):,}" if inside else "one beyond it",
                way_out="Copy or download the file again",
            )
        return found


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """Open a regular file that is not empty. Pipes and devices are refused without waiting on them."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        said = error.strerror or str(error)
        raise CannotRead(f"cannot be opened: {said}", where=printable(str(path))) from error
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        os.close(descriptor)
        raise CannotRead(
            "is no regular file",
            where=str(path),
            expected=KNOWN,
            got="a directory" if stat.S_ISDIR(state.st_mode) else "a pipe, socket or device",
        )
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        if not state.st_size:
            raise CannotRead("is empty", where=str(path), expected=KNOWN, got="0 bytes")
        yield Source(path, file, state.st_size)


def content_of(source: Source) -> Content:
    """The kind of a file by its first bytes."""
    head = source.read_at(0, min(source.size, 512))
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return Content.ZIP
    if head.startswith(b"\x93NUMPY"):
        return Content.NPY
    if len(head) > 8 and head[8:9] == b"{":
        return Content.SAFETENSORS
    if head[:1] == b"\x80" and b"\x02" <= head[1:2] <= b"\x05":
        return Content.PICKLE
    if head.lstrip()[:1] == b"{":
        return Content.JSON
    raise _unknown(source, head)


def _unknown(source: Source, head: bytes) -> CannotRead:
    if head[257:262] == b"ustar":
        return CannotRead(
            "is a .tar checkpoint of torch before 0.1.10, or another tar archive",
            where=str(source.path),
            expected=KNOWN,
            way_out="torch reads such files only with code enabled: load it where you trust it, "
            "and save it again",
        )
    for mark, name, way_out in _STRANGERS:
        if head.startswith(mark):
            return CannotRead(f"is {name}", where=str(source.path), expected=KNOWN, way_out=way_out)
    return CannotRead(
        "is of no kind that is known here",
        where=str(source.path),
        expected=KNOWN,
        got=_first_bytes(source, head),
    )


def _first_bytes(source: Source, head: bytes) -> str:
    if source.size >= 8 and not any(head):
        return "a file that begins with zeros, as one that was never fully written does"
    (length,) = struct.unpack("<Q", head[:8].ljust(8, b"\0"))
    if head[8:16].isspace() and length <= source.size:
        return "the length of a safetensors header, but no header"
    return f"a file that begins with {head[:8]!r}"


@contextmanager
def refusing(source: Source, kind: str) -> Iterator[None]:
    """Turn whatever a library raises on a damaged file into one sentence that says where."""
    try:
        yield
    except CannotRead:
        raise
    except MemoryError as error:
        raise CannotRead(
            f"does not fit into memory as {kind}",
            where=str(source.path),
            got=f"a file of {source.size:,} bytes",
        ) from error
    except Exception as error:  # loaders of damaged files raise anything, and the list is not ours
        raise CannotRead(
            f"is no whole {kind}",
            where=str(source.path),
            got=reason_of(error),
            way_out="Copy or download the file again; it is damaged, or was never whole",
        ) from error
