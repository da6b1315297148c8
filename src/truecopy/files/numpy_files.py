"""numpy's own files: .npz archives and .npy arrays, never with pickles inside."""

from __future__ import annotations

import io
import mmap
import zipfile
from math import prod
from typing import IO, Any

import numpy as np

from truecopy.errors import CannotRead
from truecopy.files.archives import Member, check_sums, refuse_bomb
from truecopy.files.checkpoint import Checkpoint
from truecopy.files.opening import Source, refusing
from truecopy.files.text import shorten

_SUFFIX = ".npy"
_VERSIONS = ((1, 0), (2, 0), (3, 0))
_LONGEST_NAME = 1_000
_LONGEST_HEADER = 1 << 16
"""Far beyond what numpy itself reads (10,000 characters, as literal_eval takes them)."""


def is_npz(members: dict[str, Member]) -> bool:
    """Whether an archive is numpy's: it holds arrays and nothing else."""
    return bool(members) and all(name.endswith(_SUFFIX) for name in members)


def read_npz(source: Source, members: dict[str, Member], *, check: bool) -> Checkpoint:
    """Arrays by name: mapped from the file where they are stored, unpacked where compressed."""
    refuse_bomb(source, members)
    if check:
        check_sums(source, members)
    mapped = _map(source)
    with zipfile.ZipFile(source.file) as archive:
        obj = {
            _key(source, name): _unpacked(source, archive, member)
            if member.deflated
            else _mapped(source, mapped, member.offset, member.size, name)
            for name, member in members.items()
        }
    compressed = any(member.deflated for member in members.values())
    return Checkpoint(source.path, "npz", obj, source.size, compressed=compressed)


def read_npy(source: Source) -> Checkpoint:
    """One array, mapped from the file."""
    array = _mapped(source, _map(source), 0, source.size, source.path.name)
    return Checkpoint(source.path, "npy", array, source.size)


def _key(source: Source, name: str) -> str:
    if len(name) > _LONGEST_NAME:
        raise CannotRead(
            "has a name too long",
            where=str(source.path),
            got=f"{len(name):,} characters, beginning {name[:40]!r}",
        )
    return name.removesuffix(_SUFFIX)


def _map(source: Source) -> mmap.mmap:
    # Private and writable: torch warns of arrays that are not, and nothing is ever written back.
    return mmap.mmap(source.file.fileno(), 0, access=mmap.ACCESS_COPY)


def _mapped(source: Source, mapped: mmap.mmap, offset: int, size: int, name: str) -> Any:
    head = io.BytesIO(mapped[offset : offset + min(size, _LONGEST_HEADER)])
    shape, fortran, dtype = _checked_header(source, head, size, name)
    if (
        head.getvalue()[6:7] == b"\x03"
    ):  # its names are UTF-8, which numpy reads only with the array
        with refusing(source, "numpy array"):
            whole = io.BytesIO(mapped[offset : offset + size])
            return np.lib.format.read_array(whole, allow_pickle=False)
    order: Any = "F" if fortran else "C"
    return np.ndarray(shape, dtype, mapped, offset + head.tell(), order=order)


def _unpacked(source: Source, archive: zipfile.ZipFile, member: Member) -> Any:
    with refusing(source, "npz archive"), archive.open(member.name) as file:
        _checked_header(source, file, member.size, member.name)
    with refusing(source, "npz archive"), archive.open(member.name) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _checked_header(
    source: Source, file: IO[bytes], size: int, name: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and dtype of an array, which must take exactly the bytes that are there."""
    shown = shorten(name, 80)
    with refusing(source, f"numpy array {shown!r}"):
        version = np.lib.format.read_magic(file)
        if version not in _VERSIONS:
            raise ValueError(f"version {version[0]}.{version[1]} of the format is not known")
        # Version 3 differs from 2 in the encoding of field names alone.
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise CannotRead(
            f"needs code to be read: its array {shown!r} holds pickled Python objects",
            where=str(source.path),
            way_out="Load it where you trust it with numpy.load(..., allow_pickle=True), "
            "and save plain arrays",
        )
    needed = file.tell() + prod(shape) * dtype.itemsize
    if needed != size or any(n < 0 for n in shape):
        raise CannotRead(
            f"has an array {shown!r} that does not fit its bytes",
            where=str(source.path),
            expected=f"{needed:,} bytes for {dtype} of shape {shorten(str(shape), 80)}",
            got=f"{size:,}",
            way_out="Copy or download the file again",
        )
    return shape, fortran, dtype
