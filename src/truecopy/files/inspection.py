"""What is in a checkpoint, who shares memory in it, and how many bytes nobody reaches."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from truecopy.files.checkpoint import Checkpoint, Unreferenced
from truecopy.files.text import printable, shorten
from truecopy.memory.aliases import AliasGroup, StorageUse
from truecopy.memory.region import Region
from truecopy.records import Record
from truecopy.structure.paths import Item, Path
from truecopy.structure.walk import Node

FINDING_BYTES = 1024
"""Unreached bytes, in all, from which on a checkpoint is a finding. Below lies what nobody would mend."""

_LONGEST_VALUE = 60


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor or array, by its best path."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int  # of its elements, each counted
    also: tuple[str, ...] = ()  # other paths to the same object

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path, "dtype": self.dtype, "shape": list(self.shape),
            "nbytes": self.nbytes, "also": list(self.also),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """One value at the top of a checkpoint that is not only tensors by name."""

    path: str
    what: str
    tensors: int
    nbytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path, "what": self.what, "tensors": self.tensors, "nbytes": self.nbytes,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Inspection(Record):
    """A checkpoint as it was found."""

    path: str
    format: str
    file_bytes: int
    reached_bytes: int
    unreached_bytes: int  # of storages, and of the file beside them
    parts: tuple[Part, ...]  # in the order of the file
    entries: tuple[Entry, ...]  # largest first
    ties: tuple[AliasGroup, ...]  # largest first
    storages: tuple[StorageUse, ...]  # those with unreached bytes, most first
    unreferenced: tuple[Unreferenced, ...]  # in the file, and in no entry
    unknown: tuple[tuple[str, str], ...]
    unseen: tuple[str, ...] = ()

    kind = "inspection"

    @property
    def is_clean(self) -> bool:
        """Whether no more bytes than FINDING_BYTES are out of everybody's reach."""
        return self.unreached_bytes <= FINDING_BYTES

    def body(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "format": self.format,
            "clean": self.is_clean,
            "file_bytes": self.file_bytes,
            "reached_bytes": self.reached_bytes,
            "unreached_bytes": self.unreached_bytes,
            "parts": [part.to_json() for part in self.parts],
            "entries": [entry.to_json() for entry in self.entries],
            "ties": [tie.to_json() for tie in self.ties],
            "storages": [storage.to_json() for storage in self.storages],
            "unreferenced": [{"name": u.name, "nbytes": u.nbytes} for u in self.unreferenced],
            "unknown": [list(pair) for pair in self.unknown],
            "unseen": list(self.unseen),
        }


def inspect(checkpoint: Checkpoint) -> Inspection:
    """Look at a checkpoint. Reads no tensor's bytes, allocates no tensor memory."""
    aliases = checkpoint.aliases
    paths = (checkpoint.walked.paths(row) for row in range(len(checkpoint.walked.leaves)))
    entries = [_entry(checkpoint, row, *map(str, found)) for row, found in enumerate(paths)]
    beside = sum(entry.nbytes for entry in checkpoint.unreferenced)
    return Inspection(
        str(checkpoint.path), checkpoint.kind, checkpoint.file_bytes,
        aliases.reached_bytes, aliases.unreached_bytes + beside, _parts(checkpoint),
        tuple(sorted(entries, key=lambda entry: -entry.nbytes)),
        tuple(sorted(aliases.groups, key=lambda group: -group.span_bytes)),
        tuple(use for use in aliases.storages if use.unreached_bytes),
        checkpoint.unreferenced, aliases.unknown, checkpoint.unseen,
    )  # fmt: skip


def _entry(checkpoint: Checkpoint, row: int, name: str = "", *also: str) -> Entry:
    leaf = checkpoint.walked.leaves[row]
    if isinstance(leaf, torch.Tensor):
        dtype = str(leaf.dtype).removeprefix("torch.")
        return Entry(name, dtype, tuple(leaf.shape), leaf.numel() * leaf.itemsize, also)
    if isinstance(leaf, np.ndarray):
        return Entry(name, printable(str(leaf.dtype)), leaf.shape, leaf.nbytes, also)
    # A storage by itself, or a bytearray: so many bytes, of no dtype.
    region = checkpoint.table.region(row)
    nbytes = region.nominal_bytes if isinstance(region, Region) else 0
    return Entry(name, "bytes", (nbytes,), nbytes, also)


def _parts(checkpoint: Checkpoint) -> tuple[Part, ...]:
    """The values at the top, where they are more than tensors."""
    obj = checkpoint.obj
    if isinstance(obj, dict):
        held = list(dict.items(obj))
    elif isinstance(obj, list | tuple):
        held = list(enumerate(obj))
    else:
        return ()
    if all(isinstance(value, torch.Tensor | np.ndarray) for _, value in held):
        return ()
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    walked = checkpoint.walked
    for row, (parent, index) in enumerate(zip(walked.parents, walked.indices, strict=True)):
        count = counts[_top(parent, index)]
        count[0] += 1
        count[1] += _entry(checkpoint, row).nbytes
    return tuple(
        Part(str(Path("checkpoint", (Item(key),))), _what(value), *counts[index])
        for index, (key, value) in enumerate(held)
    )


def _top(node: Node | None, index: int) -> int:
    """Which child of the root a place is in."""
    while node is not None and node.parent is not None:
        index, node = node.place, node.parent
    return index


def _what(value: Any) -> str:
    match value:
        case None:
            return "None"
        case bool() | int() | float():
            return shorten(f"{type(value).__name__} {value!r}", _LONGEST_VALUE)
        case str():
            return shorten(f"str {value[:_LONGEST_VALUE]!r}", _LONGEST_VALUE)
        case list() | tuple() | dict() | set():
            return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
