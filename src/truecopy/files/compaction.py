"""A checkpoint written again without the bytes that nobody reaches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from truecopy.copying.api import copy
from truecopy.errors import CannotWrite, UsageError
from truecopy.files.checkpoint import Checkpoint
from truecopy.files.comparison import Comparison, compare
from truecopy.files.reading import read
from truecopy.files.writing import refuse_taken, write
from truecopy.memory.aliases import StorageUse
from truecopy.records import Record

_SUFFIXES = {
    ".pt": "torch", ".pth": "torch", ".bin": "torch", ".ckpt": "torch",
    ".safetensors": "safetensors", ".npz": "npz", ".npy": "npy",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compaction(Record):
    """What was written, and what was left out."""

    source: str
    target: str
    format: str
    source_bytes: int
    target_bytes: int
    tensors: int
    ties: int
    unreached_bytes: int  # in the source
    left_unreached_bytes: int  # in the target: gaps between views of one group
    storages: tuple[StorageUse, ...]  # of the source, those with unreached bytes, most first
    verified: bool  # read again and found equal, bit for bit

    kind = "compaction"

    def body(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "format": self.format,
            "source_bytes": self.source_bytes,
            "target_bytes": self.target_bytes,
            "tensors": self.tensors,
            "ties": self.ties,
            "unreached_bytes": self.unreached_bytes,
            "left_unreached_bytes": self.left_unreached_bytes,
            "storages": [storage.to_json() for storage in self.storages],
            "verified": self.verified,
            "unseen": [],
        }


def compact(source: Path, target: Path, *, force: bool = False) -> Compaction:
    """Write a checkpoint again without unreached bytes, and verify it before it takes its place.

    Takes the reached bytes in memory, once. `source` and `target` may be one file, with `force`.
    """
    refuse_taken(target, force=force)
    original = read(source, check=True)
    _refuse_kind(original, target)
    compacted = replace(original, obj=_without_unreached(original), unreferenced=())
    written: list[Checkpoint] = []

    def verify(draft: Path) -> None:
        written.append(read(draft, check=True))
        _refuse_differences(compare(original, written[0]), target)

    size = write(compacted, target, force=force, check=verify)
    aliases = original.aliases
    return Compaction(
        str(source), str(target), compacted.kind.removesuffix("-legacy"),
        original.file_bytes, size, aliases.tensors, len(aliases.groups),
        aliases.unreached_bytes + sum(entry.nbytes for entry in original.unreferenced),
        written[0].aliases.unreached_bytes,
        tuple(use for use in aliases.storages if use.unreached_bytes), True,
    )  # fmt: skip


def _without_unreached(original: Checkpoint) -> Any:
    """The same structure on memory without gaps. Only torch's own files can hold unreached bytes."""
    if original.kind in ("torch", "torch-legacy"):
        return copy(original.obj, alias="preserve")
    return original.obj


def _refuse_kind(original: Checkpoint, target: Path) -> None:
    if original.kind == "shards":
        raise UsageError(
            f"{str(original.path)!r} is a directory of shards, and compact writes one file",
            way_out="Compact each shard by itself: nothing is shared between files",
        )
    kind = original.kind.removesuffix("-legacy")
    promised = _SUFFIXES.get(target.suffix.lower(), kind)
    if promised != kind:
        raise UsageError(
            f"compact keeps the format, and {str(target)!r} is not named for it",
            expected=" or ".join(s for s, k in _SUFFIXES.items() if k == kind),
            got=target.suffix,
        )


def _refuse_differences(comparison: Comparison, target: Path) -> None:
    if comparison.is_clean:
        return
    places = [difference.path for difference in comparison.differences]
    places += [*comparison.only_a, *comparison.only_b]
    places += [tie.paths[0] for tie in (*comparison.ties_only_a, *comparison.ties_only_b)]
    raise CannotWrite(
        "was not written: what was read back is not what was read",
        where=str(target),
        got=f"{len(places)} differences, first at {places[0]}",
        way_out="This is a bug of truecopy, or of the disk; please report it",
    )
