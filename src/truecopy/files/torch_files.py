"""Files of torch.save: zip archives, mapped and not read, and the older format, read whole."""

from __future__ import annotations

import io
import mmap
import struct
import warnings
from pathlib import PurePosixPath
from typing import Any

from truecopy.errors import CannotRead
from truecopy.files import pickles
from truecopy.files.archives import Member, check_sums
from truecopy.files.checkpoint import Checkpoint, unreferenced
from truecopy.files.opcodes import names_its_code, opcodes_of
from truecopy.files.opening import Source, refusing
from truecopy.files.plain_data import Refused, needs_code

_KIND = "file of torch.save"
_MOST_PICKLE = 1 << 30


def pickle_member(members: dict[str, Member]) -> Member | None:
    """The member that makes an archive one of torch's: `<name>/data.pkl`."""
    for name, member in members.items():
        if PurePosixPath(name).name == "data.pkl" and name.count("/") == 1:
            return member
    return None


def read_archive(source: Source, members: dict[str, Member], *, check: bool) -> Checkpoint:
    """A checkpoint whose tensors are mapped from the file; `check` reads and sums every byte."""
    data = pickle_member(members)
    if data is None:
        raise AssertionError("asked for members that have no pickle")
    folder = data.name.partition("/")[0]
    _refuse_odd_archive(source, members, folder)
    if data.size > _MOST_PICKLE:
        raise _refusal(source, Refused("has a pickle of absurd size", f"{data.size:,} bytes"))
    contents = _scan(source, io.BytesIO(source.read_at(data.offset, data.size)))
    used = _check_records(source, members, folder, contents)
    if check:
        check_sums(source, members)
    obj = _load(source, mapped=True)
    beside = (
        (name, member.size)
        for name, member in members.items()
        if name.startswith(f"{folder}/data/") and name not in used
    )
    return Checkpoint(source.path, "torch", obj, source.size, unreferenced=unreferenced(beside))


def _refuse_odd_archive(source: Source, members: dict[str, Member], folder: str) -> None:
    if f"{folder}/constants.pkl" in members:
        raise _refusal(
            source,
            Refused(
                "is a TorchScript archive, which is a program",
                way_out="Load it where you trust it with torch.jit.load, and torch.save its "
                "state_dict()",
            ),
        )
    if any(member.deflated for member in members.values()):
        raise _refusal(
            source,
            Refused(
                "was compressed after torch.save wrote it, so that it cannot be mapped",
                way_out="Load it with torch.load(..., weights_only=True), and torch.save it again",
            ),
        )


def _check_records(
    source: Source, members: dict[str, Member], folder: str, contents: pickles.Contents
) -> set[str]:
    """Names of the members that the storages lie in; each must be as large as the pickle says."""
    used = set()
    for storage in contents.storages.values():
        name = f"{folder}/data/{storage.key}"
        member = members.get(name)
        if member is None or member.size != storage.nbytes:
            have = "none" if member is None else f"{member.size:,} bytes"
            raise _refusal(
                source,
                Refused(
                    f"lacks the bytes of storage {storage.key!r}",
                    f"{have}, where its pickle says {storage.nbytes:,}",
                    "Copy or download the file again",
                ),
            )
        used.add(name)
    return used


def _scan(source: Source, file: Any) -> pickles.Contents:
    start = file.tell()
    try:
        return pickles.scan(file)
    except Refused as refused:
        file.seek(start)
        # Protocols that are not followed are searched for names: those tell the user most.
        code = names_its_code(file) if "in a form" in refused.what else None
        raise _refusal(source, refused if code is None else needs_code(code)) from refused


def _refusal(source: Source, refused: Refused) -> CannotRead:
    return CannotRead(
        refused.what, where=str(source.path), got=refused.got, way_out=refused.way_out
    )


def read_legacy(source: Source) -> Checkpoint:
    """A checkpoint in the format before torch 1.6, read into memory: it cannot be mapped."""
    source.file.seek(0)
    if _first_value(source) != pickles.MAGIC_NUMBER:
        raise _plain_pickle(source)
    _scan(source, source.file)  # the protocol's version
    _scan(source, source.file)  # what the writing machine was like
    contents = _scan(source, source.file)
    if not all(storage.typed for storage in contents.storages.values()):
        what = "holds a dtype newer than its format, which torch cannot read back either"
        raise _refusal(source, Refused(what))
    keys = source.file.tell()
    _scan(source, source.file)
    end = _check_blocks(source, keys, contents)
    obj = _load(source, mapped=False)
    return Checkpoint(
        source.path, "torch-legacy", obj, source.size,
        unreferenced=unreferenced([("bytes after the last storage", source.size - end)]),
    )  # fmt: skip


def _first_value(source: Source) -> Any:
    try:
        return pickles.scan(source.file).value
    except Refused:
        return None


def _plain_pickle(source: Source) -> CannotRead:
    source.file.seek(0)
    name = names_its_code(source.file)
    if name is not None:
        return _refusal(source, needs_code(name))
    return _refusal(
        source,
        Refused(
            "is a pickle that torch.save did not write",
            way_out="Load it where you trust it, and torch.save it",
        ),
    )


def _check_blocks(source: Source, keys_at: int, contents: pickles.Contents) -> int:
    """Behind the pickles lies each storage, its length before it. The place where the last ends."""
    with refusing(source, _KIND):
        source.file.seek(keys_at)
        keys = _list_of_keys(source)
        for key in keys:
            (count,) = struct.unpack("<q", source.read_at(source.file.tell(), 8))
            storage = contents.storages.get(key)
            start = source.file.tell()
            if storage is None or count * storage.item_bytes != storage.nbytes:
                raise _refusal(source, Refused("holds storages that its pickle does not"))
            if start + storage.nbytes > source.size:
                source.read_at(start, source.size - start + 1)  # says what is cut off
            source.file.seek(start + storage.nbytes)
        if missing := contents.storages.keys() - set(keys):
            name = min(missing)
            raise _refusal(source, Refused(f"lacks the bytes of storage {name!r}"))
        return source.file.tell()


def _list_of_keys(source: Source) -> list[str]:
    """The keys of the storages: a pickle of a list of strings, which is all that is followed."""
    keys: list[str] = []
    for opcode, argument in opcodes_of(source.file):
        if opcode in ("BINUNICODE", "SHORT_BINSTRING"):
            keys.append(str(argument))
    return keys


def _load(source: Source, *, mapped: bool) -> Any:
    """torch.load as it is safe: no code, no device, no message of its own, no write to the file."""
    import torch

    with refusing(source, _KIND), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about protocols and typed storages: nothing to act upon
        source.file.seek(0)
        path = source.stable_path
        if path.endswith(".safetensors"):  # torch would judge by the suffix
            return torch.load(source.file, map_location="cpu", weights_only=True)
        with torch.serialization.set_default_mmap_options(mmap.MAP_PRIVATE):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
