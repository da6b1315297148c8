"""A directory of shards: one checkpoint in several files, with or without an index."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from truecopy.errors import CannotRead
from truecopy.files.checkpoint import Checkpoint, Unreferenced, unreferenced
from truecopy.files.opening import Source, opened
from truecopy.files.safetensors_files import parse_json_object
from truecopy.files.text import printable, shorten

INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_LONGEST_INDEX = 100_000_000


def read_directory(directory: Path, read_one: Any) -> Checkpoint:
    """The shards of a directory as one checkpoint; `read_one` reads a shard."""
    for name in INDEXES:
        if os.path.lexists(directory / name):
            return _with_index(directory, name, read_one)
    shards = sorted(p.name for p in directory.iterdir() if p.suffix == ".safetensors")
    if not shards:
        raise CannotRead(
            "is a directory without a checkpoint",
            where=str(directory),
            expected=f"{INDEXES[0]}, {INDEXES[1]} or *.safetensors in it",
            got=_listing(directory),
            way_out=_way_out(directory),
        )
    return _joined(directory, shards, None, read_one)


def _listing(directory: Path) -> str:
    names = sorted(printable(path.name) for path in directory.iterdir())
    return shorten(", ".join(names), 120) or "an empty directory"


def _way_out(directory: Path) -> str:
    if (directory / ".metadata").exists():
        return (
            "This is a torch.distributed.checkpoint, whose index needs code: where you trust it, "
            "torch.distributed.checkpoint.format_utils.dcp_to_torch_save makes one file of it"
        )
    return "Name the file in it that you mean"


def _with_index(directory: Path, index: str, read_one: Any) -> Checkpoint:
    with opened(_inside(directory, index)) as source:
        if source.size > _LONGEST_INDEX:
            raise _refusal(source.path, "is an index of absurd size", f"{source.size:,} bytes")
        fields = parse_json_object(source, source.read_at(0, source.size))
        weights = _weight_map(source, fields.get("weight_map"))
    shards = sorted(set(weights.values()))
    return _joined(directory, shards, weights, read_one)


def _weight_map(source: Source, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(type(shard) is str for shard in value.values()):
        raise _refusal(
            source.path,
            "is no index of shards",
            "a weight_map that is no mapping of names to files",
        )
    for shard in value.values():
        if shard in ("", ".", "..") or not shard.isprintable() or any(c in shard for c in "/\\:"):
            raise _refusal(
                source.path,
                "names a shard that is no plain file name",
                shorten(repr(shard), 120),
            )
    return value


def _refusal(path: Path, what: str, got: str) -> CannotRead:
    return CannotRead(
        what,
        where=str(path),
        expected="a mapping from names of tensors to files in the same directory",
        got=got,
        way_out="Download the directory again; if it stays so, do not trust it",
    )


def _inside(directory: Path, name: str) -> Path:
    """A file of the directory; a link that leads out of it is refused.

    But for the cache of Hugging Face's hub, where `snapshots/<revision>/` holds nothing but links
    into `blobs/` beside it.
    """
    path = directory / name
    home = directory.resolve()
    blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
    target = path.resolve()
    if target.parent not in (home, blobs):
        raise CannotRead(
            "is a link that leads out of its directory",
            where=printable(str(path)),
            expected=f"a file in {home}",
            got=printable(str(target)),
            way_out="Replace the link by the file that it means, if you trust it",
        )
    return target


def _joined(
    directory: Path, shards: list[str], weights: dict[str, str] | None, read_one: Any
) -> Checkpoint:
    obj: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    beside: list[Unreferenced] = []
    total = 0
    for shard in shards:
        part: Checkpoint = read_one(_inside(directory, shard))
        total += part.file_bytes
        beside += part.unreferenced
        metadata.update(part.metadata)
        if not isinstance(part.obj, dict) or not all(type(name) is str for name in part.obj):
            raise _refusal(part.path, "is no shard", f"a {type(part.obj).__name__}")
        _take(obj, part, None if weights is None else _of_shard(weights, shard), beside)
    if weights is not None:
        obj = {name: obj[name] for name in weights}
    return Checkpoint(
        directory, "shards", obj, total, metadata,
        unreferenced((entry.name, entry.nbytes) for entry in beside),
    )  # fmt: skip


def _of_shard(weights: dict[str, str], shard: str) -> list[str]:
    return [name for name, home in weights.items() if home == shard]


def _take(
    obj: dict[str, Any],
    part: Checkpoint,
    wanted: Iterable[str] | None,
    beside: list[Unreferenced],
) -> None:
    """Put a shard's entries in place; what the index does not name is nobody's."""
    names = list(part.obj) if wanted is None else list(wanted)
    for name in names:
        if name not in part.obj:
            raise CannotRead(
                f"lacks {shorten(name, 80)!r}, which the index says is in it",
                where=str(part.path),
                way_out="Download the directory again",
            )
        if name in obj:
            raise CannotRead(
                f"holds {shorten(name, 80)!r}, which another shard holds too",
                where=str(part.path),
                expected="every name in one shard",
                way_out="Add an index, or move the shard that does not belong here",
            )
        obj[name] = part.obj[name]
    for name in part.obj.keys() - set(names):
        nbytes = getattr(part.obj[name], "nbytes", 0)
        beside.append(Unreferenced(f"{part.path.name}: {name}, which is not in the index", nbytes))
