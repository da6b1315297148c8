"""A snapshot of a model that is sharded over processes: a directory that all of them write and read together.

The description is that of the whole, as one process would have written it, so that any number of processes
can read it. torch.distributed.checkpoint moves the bytes, in safetensors files: which part goes where is its
affair. A save has a folder of its own; that it is the one that counts is said by one small file, which
rank 0 replaces when all have written. Whoever is killed before leaves the old save as it was.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from truecopy import _torch
from truecopy.errors import CannotRead, CannotWrite, StructureMismatch
from truecopy.files.opening import opened
from truecopy.files.safetensors_files import parse_json_object
from truecopy.snapshots.disk.describing import DTYPES, Description, Payload
from truecopy.snapshots.disk.reading import Shard, Stored, refuse_damaged
from truecopy.snapshots.disk.writing import SnapshotRecord
from truecopy.snapshots.looking import Image

INDEX = "truecopy.json"
"""The file that says which save counts, with the description."""

_BY_NAME = {name: dtype for dtype, name in DTYPES.items()}
_PART = "._local_tensor"


# --- written ----------------------------------------------------------------------------------------


def write_shards(made: Description, image: Image, target: Path) -> None:
    """Write what all processes hold, together; what stood there stays until all of it is there."""
    tensors = _whole(made, image, target)
    index = {
        **SnapshotRecord(made).to_json(),
        "tensors": {n: _about(t) for n, t in tensors.items()},
    }
    folder = _agreed(f"save-{secrets.token_hex(8)}")
    try:
        target.mkdir(parents=True, exist_ok=True)
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        with _quiet():
            save(
                tensors,
                storage_writer=HuggingFaceStorageWriter(
                    str(target / folder), save_distributed=True
                ),
            )
        distributed.barrier()
        if distributed.get_rank() == 0:
            _publish(target, folder, {**index, "folder": folder})
        distributed.barrier()
    except Exception as error:  # of the storage, of the network, or of another process
        raise CannotWrite(
            f"cannot be written: {error}"[:400],
            where=str(target),
            way_out="What stood there is as it was, and can be loaded",
        ) from error


def _whole(made: Description, image: Image, target: Path) -> dict[str, torch.Tensor]:
    """The tensors by name, DTensors where they are parts; the description is made one of wholes."""
    rows = {image.rows.leaf_of[id(_torch.local_part(one))]: one for one in image.sharded
            if id(_torch.local_part(one)) in image.rows.leaf_of}  # fmt: skip
    users: dict[str, list[int]] = {}
    for row, about in enumerate(made.leaves):
        users.setdefault(about["tensor"], []).append(row)
    tensors = {}
    for payload in made.payloads:
        parts = [row for row in users[payload.name] if row in rows]
        if len(parts) > 1 or (parts and len(users[payload.name]) > 1):
            raise CannotWrite(
                f"{made.leaves[parts[0]]['path']} shares memory with another tensor, and is sharded",
                where=str(target),
                way_out="Leave one of them out with only=",
            )
        tensors[payload.name] = (
            _sharded(payload, rows[parts[0]], made.leaves[parts[0]], target)
            if parts
            else _plain(payload)
        )
    if made.random is not None:
        made.random = None
        made.unseen.append("the random state is left out: each process has its own")
    return tensors


def _plain(payload: Payload) -> torch.Tensor:
    return payload.read().view(_BY_NAME[payload.dtype]).reshape(payload.shape)


def _sharded(payload: Payload, whole: Any, about: dict[str, Any], target: Path) -> torch.Tensor:
    """A DTensor of the kept bytes; its leaf is described as the whole."""
    shape, local = tuple(whole.shape), tuple(_torch.local_part(whole).shape)
    itemsize = about["strides"] and whole.dtype.itemsize
    about["path"] = about["path"].removesuffix(_PART)
    about["shape"], about["offset"] = list(shape), 0
    about["strides"] = [s * itemsize for s in torch.empty(shape, device="meta").stride()]
    about["placements"] = [_word(one, about["path"], target) for one in whole.placements]
    about["requires_grad"] = whole.requires_grad
    part = payload.read()
    stored = _BY_NAME[payload.dtype] if payload.nbytes else whole.dtype
    return Shard(whole.device_mesh, whole.placements, shape).around(
        part.view(stored).reshape(local)
    )


def _word(placement: Any, path: str, target: Path) -> int | None:
    """The dimension that is sharded, or None where each process has all of it."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor import Shard as Sharded

    if type(placement) is Sharded:
        return placement.dim
    if type(placement) is Replicate:
        return None
    raise CannotWrite(
        f"{path} is placed as {placement}, which cannot be saved",
        where=str(target), expected="Shard or Replicate", got=str(placement),
        way_out="Redistribute it, or leave it out with only=",
    )  # fmt: skip


def _about(tensor: torch.Tensor) -> dict[str, Any]:
    return {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape)}


def _publish(target: Path, folder: str, index: dict[str, Any]) -> None:
    """Let this save be the one that counts; then drop the others, whole or half."""
    for file in (target / folder).iterdir():
        with file.open("rb") as written:
            os.fsync(written.fileno())
    draft = target / f".{INDEX}.draft"
    with draft.open("w") as text:
        json.dump(index, text, allow_nan=False)
        text.flush()
        os.fsync(text.fileno())
    draft.replace(target / INDEX)
    for old in target.glob("save-*"):
        if old.name != folder:
            shutil.rmtree(old, ignore_errors=True)


def _agreed(name: str) -> str:
    """What rank 0 says."""
    names = [name]
    distributed.broadcast_object_list(names, 0)
    return names[0]


# --- read -------------------------------------------------------------------------------------------


def load_shards(path: Path) -> Stored:
    """The description of a save; its bytes are read when it is known which part goes where."""
    with opened(path / INDEX) as source:
        body = parse_json_object(source, source.read_at(0, source.size))
        refuse_damaged(source, body)
    folder, tensors = body.get("folder"), body.get("tensors")
    if type(folder) is not str or not isinstance(tensors, dict) or Path(folder).name != folder:
        raise CannotRead(
            "has a description that is damaged", where=str(path / INDEX), got="no folder"
        )
    return Stored(
        path / folder, body["sources"], body["roots"], body["nodes"], body["leaves"], None,
        body["unseen"], {}, expected=tensors,
    )  # fmt: skip


def read_shards(stored: Stored, image: Image) -> Stored:
    """The same with the bytes that belong here, for the sources as they lie here."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    live = {str(image.path_of(tensor)): tensor for tensor in image.sharded}
    shards = dict(_places(stored, image, live))
    tensors: dict[str, Any] = {
        name: torch.empty(about["shape"], dtype=_BY_NAME[about["dtype"]])
        for name, about in stored.expected.items()
    }
    for row, shard in shards.items():
        name = stored.leaves[row]["tensor"]
        tensors[name] = _empty(shard, tensors[name].dtype)
    try:
        with _quiet():
            load(
                tensors,
                storage_reader=HuggingFaceStorageReader(str(stored.path)),
                no_dist=not _together(),
            )
    except Exception as error:
        raise CannotRead(f"cannot be read: {error}"[:400], where=str(stored.path)) from error
    leaves = [
        _localized(about, shards.get(row), tensors[about["tensor"]])
        for row, about in enumerate(stored.leaves)
    ]
    return replace(
        stored, leaves=leaves, shards=shards,
        tensors={name: _bytes(tensor) for name, tensor in tensors.items()},
    )  # fmt: skip


def _places(stored: Stored, image: Image, live: dict[str, Any]) -> Iterator[tuple[int, Shard]]:
    """Where the parts go: as the live tensor lies, or, for what is born here, as it was saved."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor import Shard as Sharded

    plain = set(map(image.path, range(len(image.leaves))))
    meshes = {tensor.device_mesh.ndim: tensor.device_mesh for tensor in live.values()}
    for row, about in enumerate(stored.leaves):
        here = live.get(about["path"])
        shape = tuple(about["shape"])
        if here is not None:
            if tuple(here.shape) != shape:
                raise StructureMismatch(
                    "does not fit these sources; nothing was written", where=about["path"],
                    expected=f"shape {shape}", got=f"shape {tuple(here.shape)}",
                )  # fmt: skip
            yield row, Shard(here.device_mesh, tuple(here.placements), shape)
        elif about["path"] in plain:
            continue
        elif (saved := about.get("placements")) is not None and len(saved) in meshes:
            placements = tuple(Replicate() if dim is None else Sharded(dim) for dim in saved)
            yield row, Shard(meshes[len(saved)], placements, shape)


def _empty(shard: Shard, dtype: torch.dtype) -> torch.Tensor:
    from torch.distributed.tensor import empty

    made: torch.Tensor = empty(
        *shard.shape, dtype=dtype, device_mesh=shard.mesh, placements=shard.placements
    )
    return made


def _localized(about: dict[str, Any], shard: Shard | None, tensor: Any) -> dict[str, Any]:
    if shard is None:
        return about
    shape = _torch.local_part(tensor).shape
    itemsize = vars(torch)[about["dtype"]].itemsize
    strides = [s * itemsize for s in torch.empty(shape, device="meta").stride()]
    return {**about, "shape": list(shape), "strides": strides}


def _bytes(tensor: Any) -> torch.Tensor:
    part = _torch.local_part(tensor) if _torch.is_sharded(tensor) else tensor
    return part.contiguous().reshape(-1).view(torch.uint8)


def all_fit(fits: bool) -> bool:
    """Whether it fits in every process, so that all of them write or none does."""
    if not _together():
        return fits
    answers = [True] * distributed.get_world_size()
    distributed.all_gather_object(answers, fits)
    return all(answers)


def _together() -> bool:
    return distributed.is_available() and distributed.is_initialized()


@contextmanager
def _quiet() -> Iterator[None]:
    """torch.distributed.checkpoint warns of what it does by itself: of one process, of typed storages."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
