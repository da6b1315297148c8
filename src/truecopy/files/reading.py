"""`read`: a checkpoint from a path, as plain data, or one sentence that says why not."""

from __future__ import annotations

from pathlib import Path

import torch

from truecopy.errors import CannotRead
from truecopy.files.archives import Member, members_of
from truecopy.files.checkpoint import Checkpoint
from truecopy.files.numpy_files import is_npz, read_npy, read_npz
from truecopy.files.opening import KNOWN, Content, Source, content_of, opened
from truecopy.files.safetensors_files import read_safetensors
from truecopy.files.shards import read_directory
from truecopy.files.text import printable, shorten
from truecopy.files.torch_files import pickle_member, read_archive, read_legacy
from truecopy.memory.region import Region


def read(path: Path | str, *, check: bool = False) -> Checkpoint:
    """Read a checkpoint without running any code of it.

    Tensors are mapped from the file where its kind allows, so looking at a large one does not take
    its size in memory; `check` reads every byte once and compares checksums where the kind has
    them. Raises CannotRead for whatever is missing, damaged, hostile or not plain data. Nothing
    requires grad that did not in the file; does not synchronize.
    """
    path = Path(path)
    if path.is_dir():
        checkpoint = read_directory(path, lambda shard: _read_file(shard, check=check))
    else:
        checkpoint = _read_file(path, check=check)
    _refuse_out_of_bounds(checkpoint)
    return checkpoint


def _read_file(path: Path, *, check: bool) -> Checkpoint:
    with opened(path) as source:
        match content_of(source):
            case Content.ZIP:
                return _read_zip(source, check=check)
            case Content.PICKLE:
                return read_legacy(source)
            case Content.SAFETENSORS:
                return read_safetensors(source)
            case Content.NPY:
                return read_npy(source)
            case Content.JSON:
                raise CannotRead(
                    "is JSON, not a checkpoint",
                    where=str(path),
                    expected=KNOWN,
                    way_out="For the index of a directory of shards, name the directory",
                )


def _read_zip(source: Source, *, check: bool) -> Checkpoint:
    members = members_of(source)
    if pickle_member(members) is not None:
        return read_archive(source, members, check=check)
    if is_npz(members):
        return read_npz(source, members, check=check)
    raise CannotRead(
        "is a zip archive, but neither of torch.save nor of numpy.savez",
        where=str(source.path),
        expected="a member <name>/data.pkl, or nothing but members .npy",
        got=_members(members),
    )


def _members(members: dict[str, Member]) -> str:
    return shorten(", ".join(map(printable, members)), 120) or "an empty archive"


def _refuse_out_of_bounds(checkpoint: Checkpoint) -> None:
    """No tensor may reach beyond its storage: whoever reads it would read other memory.

    The pickle was checked before; this looks at what torch has made of it.
    """
    walked = checkpoint.walked
    for row, leaf in enumerate(walked.leaves):
        if not isinstance(leaf, torch.Tensor):
            continue
        region = checkpoint.table.region(row)
        if not isinstance(region, Region) or region.storage is None or region.is_empty:
            continue
        start = 0 if region.space[0] == "meta" else region.storage_start
        low, high = region.span
        if low < start or high > start + region.storage[1]:
            raise CannotRead(
                f"has a tensor {shorten(str(walked.path(row)), 120)} that reaches beyond its storage",
                where=str(checkpoint.path),
                expected=f"at least {high - start:,} bytes",
                got=f"{region.storage[1]:,}",
                way_out="Copy or download the file again; if it stays so, do not trust it",
            )
