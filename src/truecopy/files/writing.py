"""`write`: a checkpoint on disk, whole or not at all.

The bytes go into a file of the same directory that has no name yet (or a hidden one, where the file
system knows no other), are synced and checked, and only then take their place. Whatever ends the
process before, a crash, a full disk, kill -9, leaves what stood there.
"""

from __future__ import annotations

import os
import secrets
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from truecopy.errors import CannotWrite, TruecopyError
from truecopy.files.checkpoint import Checkpoint, Kind
from truecopy.files.text import reason_of, shorten
from truecopy.memory.region import Region, Unreadable

Check = Callable[[Path], None]
"""Looks at what was written, before it takes its place, and raises where it is not right."""


@dataclass(slots=True)
class Draft:
    """A file that has no place yet."""

    file: BinaryIO
    target: Path
    hidden: Path | None  # its name, where the file system allows none to be missing

    @property
    def path(self) -> Path:
        """A path under which the draft can be opened while it has no name."""
        return self.hidden or Path(f"/proc/self/fd/{self.file.fileno()}")

    def publish(self, *, force: bool) -> None:
        """Give the draft its name, all at once."""
        self.file.flush()
        os.fsync(self.file.fileno())
        if force:
            named = self.hidden or _hidden_name(self.target)
            if self.hidden is None:
                self._link(named)
            self.hidden = named
            named.replace(self.target)
            self.hidden = None
        else:
            self._link(self.target)
        _sync_directory(self.target.parent)

    def _link(self, name: Path) -> None:
        """A name for the draft, which must be free: a link never replaces."""
        if self.hidden is not None:
            os.link(self.hidden, name)
            return
        here = os.open(self.target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # A directory descriptor makes Python call linkat, which follows the link in /proc.
            os.link(self.path, name, src_dir_fd=here, follow_symlinks=True)
        finally:
            os.close(here)


@contextmanager
def drafted(target: Path) -> Iterator[Draft]:
    """A draft beside the target; without `publish` nothing of it remains."""
    descriptor, hidden = _open_draft(target)
    with open(descriptor, "w+b") as file:  # noqa: PTH123 - a descriptor, not a path
        draft = Draft(file, target, hidden)
        try:
            yield draft
        finally:
            if draft.hidden is not None:
                with suppress(FileNotFoundError):
                    draft.hidden.unlink()


def _open_draft(target: Path) -> tuple[int, Path | None]:
    nameless = getattr(os, "O_TMPFILE", None)
    if nameless is not None and os.path.isdir("/proc/self/fd"):  # noqa: PTH112
        with suppress(
            OSError
        ):  # not every file system has it, and the next line says what is wrong
            return os.open(target.parent, nameless | os.O_RDWR | os.O_CLOEXEC, 0o666), None
    hidden = _hidden_name(target)
    return os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666), hidden


def _hidden_name(target: Path) -> Path:
    return target.parent / f".{target.name[:100]}.{secrets.token_hex(4)}.tmp"


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(
    checkpoint: Checkpoint, path: Path | str, *, force: bool = False, check: Check | None = None
) -> int:
    """Write a checkpoint as the kind that it is, and return the bytes written.

    `check` is called with a path to the finished draft; only if it returns does the file take its
    place. Raises CannotWrite, with nothing changed on disk. Allocates what the kind's own
    serializer does; does not synchronize.
    """
    with placing(path, f"as {checkpoint.kind}", force=force) as draft:
        _serialize(checkpoint, draft)
        draft.file.flush()
        if check is not None:
            check(draft.path)
        return os.fstat(draft.file.fileno()).st_size


def write_text(text: str, path: Path | str, *, force: bool = False) -> None:
    """Write a report or a record. Raises CannotWrite, with nothing changed on disk."""
    with placing(path, "as text", force=force) as draft:
        draft.file.write(text.encode())


@contextmanager
def placing(path: Path | str, how: str, *, force: bool) -> Iterator[Draft]:
    """A draft that takes its place when the block ends, and none where the block raises."""
    target = Path(os.path.realpath(path))  # a link stays a link to what is replaced
    refuse_taken(target, force=force)
    try:
        with drafted(target) as draft:
            yield draft
            draft.publish(force=force)
    except TruecopyError:
        raise
    except FileExistsError:
        raise _taken(target) from None
    except OSError as error:
        raise CannotWrite(
            f"cannot be written: {error.strerror or error}", where=str(target)
        ) from error
    except Exception as error:  # serializers raise anything; nothing has been put in place
        raise CannotWrite(
            f"cannot be written {how}", where=str(target), got=reason_of(error)
        ) from error


def refuse_taken(target: Path, *, force: bool) -> None:
    """Refuse a place where something is, unless it may be replaced."""
    if target.is_dir():
        raise CannotWrite("is a directory", where=str(target), expected="a name for one file")
    if not force and os.path.lexists(target):
        raise _taken(target)


def _taken(target: Path) -> CannotWrite:
    return CannotWrite(
        "exists, and would be replaced", where=str(target), way_out="Pass --force (force=True)"
    )


def _serialize(checkpoint: Checkpoint, draft: Draft) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of formats that the source has already
        _serialize_as(checkpoint.kind, checkpoint, draft)


def _serialize_as(kind: Kind, checkpoint: Checkpoint, draft: Draft) -> None:
    match kind:
        case "torch" | "torch-legacy":
            torch.save(checkpoint.obj, draft.file)
        case "safetensors":
            _serialize_safetensors(checkpoint, draft)
        case "npz":
            _serialize_npz(checkpoint, draft)
        case "npy":
            np.lib.format.write_array(draft.file, checkpoint.obj, allow_pickle=False)
        case "shards":
            raise CannotWrite(
                "cannot be written as shards", where=str(draft.target), expected="one file"
            )


def _serialize_npz(checkpoint: Checkpoint, draft: Draft) -> None:
    """What numpy.savez does, without its reserved names."""
    method = zipfile.ZIP_DEFLATED if checkpoint.compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(draft.file, "w", method, allowZip64=True) as archive:
        for name, array in checkpoint.obj.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


# --- safetensors: one name for each tensor, ties in the metadata ----------------------------------


def _serialize_safetensors(checkpoint: Checkpoint, draft: Draft) -> None:
    from safetensors.torch import save

    tensors = _flat_tensors(checkpoint, draft.target)
    metadata = dict(checkpoint.metadata)
    for dropped, kept in ties_to_record(checkpoint, draft.target).items():
        if metadata.get(dropped, kept) != kept:
            raise _no_safetensors(
                draft.target,
                f"the tie of {_shown(dropped)} cannot be recorded: the metadata has an entry of "
                "that name",
            )
        metadata[dropped] = kept
        del tensors[dropped]
    dense = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    # As bytes: save_file makes and renames a file of its own, which a nameless draft has no place for.
    draft.file.write(save(dense, metadata or None))


def _flat_tensors(checkpoint: Checkpoint, target: Path) -> dict[str, torch.Tensor]:
    obj: Any = checkpoint.obj
    if not isinstance(obj, dict):
        raise _no_safetensors(
            target, f"a {type(obj).__name__} is not a mapping of names to tensors"
        )
    for name, value in dict.items(obj):
        if type(name) is not str or not isinstance(value, torch.Tensor):
            raise _no_safetensors(
                target, f"{_shown(name)} is a {type(value).__name__}, which the format cannot hold"
            )
    return dict(obj)


def ties_to_record(checkpoint: Checkpoint, target: Path) -> dict[str, str]:
    """Names that will be left out, each with the name that is kept for it.

    safetensors holds every byte once under one name. As its `save_model` does, one name is kept and
    the others stand in the metadata. What the metadata cannot say is refused: two tensors that
    share some of their bytes, or the same bytes in another shape, order or dtype.
    """
    names = list(dict.keys(checkpoint.obj))
    rows: dict[int, list[str]] = {}
    for name in names:
        rows.setdefault(checkpoint.walked.leaf_of[id(checkpoint.obj[name])], []).append(name)
    groups = [*checkpoint.partition.shared]
    together = {row for group in groups for row in group}
    groups += [[row] for row in rows if row not in together and len(rows[row]) > 1]
    found: dict[str, str] = {}
    for group in groups:
        tied = [name for row in group for name in rows[row]]
        _refuse_partial(checkpoint, group, tied, target)
        # Where the file that was read had kept a name, that name is kept again.
        kept = min(tied, key=lambda name: (name in checkpoint.metadata, name))
        found.update({name: kept for name in tied if name != kept})
    return found


def _refuse_partial(
    checkpoint: Checkpoint, group: list[int], tied: list[str], target: Path
) -> None:
    regions: list[Region | Unreadable] = [checkpoint.table.region(row) for row in group]
    dtypes = {checkpoint.walked.leaves[row].dtype for row in group}
    alike = {
        (region.start, region.shape, region.strides) if isinstance(region, Region) else None
        for region in regions
    }
    if len(alike) > 1 or len(dtypes) > 1:
        raise _no_safetensors(
            target, f"{_shown(tied[0])} and {_shown(tied[1])} share memory without being one tensor"
        )


def _no_safetensors(target: Path, what: str) -> CannotWrite:
    return CannotWrite(
        f"cannot be written as safetensors: {what}",
        where=str(target),
        expected="tensors by name, ties between whole tensors only",
        way_out="Write a .pt file, which keeps views and nested data",
    )


def _shown(name: object) -> str:
    return shorten(repr(name), 80)
