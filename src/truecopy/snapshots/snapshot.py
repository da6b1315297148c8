"""`Snapshot`: everything that a run holds, taken into buffers of its own and put back in place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from truecopy import _torch
from truecopy.copying.duplicates.available import bytes_of_one, refuse_more_than_there_is
from truecopy.errors import TornSnapshot, UsageError
from truecopy.snapshots.changes import Change, changes
from truecopy.snapshots.contents import Keeper, is_same
from truecopy.snapshots.disk.describing import Description, describe
from truecopy.snapshots.disk.loaded import LoadedSnapshot
from truecopy.snapshots.disk.reading import load
from truecopy.snapshots.disk.saving import Saving
from truecopy.snapshots.disk.shards import load_shards, write_shards
from truecopy.snapshots.disk.writing import write
from truecopy.snapshots.keeping import Kept, arrange, quietly, way_back
from truecopy.snapshots.looking import Image, look
from truecopy.snapshots.sources import Keeping, Only, named


class Snapshot(Keeper):
    """All that the sources hold at one moment, in memory of its own, to be put back in place.

    Args:
        sources: a mapping of names to sources, for names that are no keywords or that are options here.
        rng: keep the global random state too: Python's, numpy's, torch's, and that of every device.
        only: "trainable" leaves out Parameters that require no gradient; a path such as "model.head", or
            several, or a function of a path, choose what is kept.
        device: where the copy is kept; by default where each source is.
        dtype: keep floating tensors in this dtype. That loses bits, and `print(snapshot)` says so.
        **sources: modules, optimizers, schedulers, scalers, generators, tensors, containers, and objects of
            your own, by name.

    Making one takes the first snapshot. `.grad` is not part of it, and neither is code: hooks and functions
    stay as they are. Allocates one copy of what the sources reach, each byte once; the snapshot never shares
    memory with the sources, in either direction. No gradient flows. Synchronizes where memory on a device
    is copied.

    >>> import torch, truecopy as tc
    >>> model = torch.nn.Linear(2, 1)
    >>> snap = tc.Snapshot(model=model)
    >>> before = model.weight.tolist()
    >>> with torch.no_grad():
    ...     _ = model.weight.zero_()
    >>> snap.restore()
    >>> model.weight.tolist() == before
    True
    """

    def __init__(
        self,
        sources: Mapping[str, Any] | None = None,
        /,
        *,
        rng: bool = False,
        only: Only | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **by_name: Any,
    ) -> None:
        self._sources = named(sources, by_name)
        self._keeping = Keeping.checked(rng, only, device, dtype)
        self._image: Image | None = None
        self._kept = Kept()
        self._spare: Kept | None = None  # the other set, which a save in the background may hold
        self._saving: Saving | None = None
        self._held: Kept | None = None
        self.update()

    @_torch.run_eagerly
    def update(self) -> None:
        """Take over what the sources hold now, into the same buffers.

        What changed is followed: parameters, buffers, groups and optimizer state that are new, gone or of
        another size. Everything is checked before anything is written: if this raises, the snapshot is what
        it was. Cut off while it writes, it is torn, and says so when it is restored or saved. Allocates only
        where the sources have grown. No gradient flows; synchronizes where memory on a device is copied.
        """
        with quietly():
            image = self._followed()
            kept = self._to_be_written()
            arrangement = kept.arrangement
            if arrangement is not None and arrangement.image.layout is image.layout:
                arrangement = replace(arrangement, image=image)
            else:
                if arrangement is None:
                    _refuse_too_much(image)
                arrangement = arrange(image, self._keeping, arrangement)
            kept.fill(arrangement, image.contents, self._keeping)
            if kept is not self._kept:
                self._kept, self._spare = kept, self._kept

    @_torch.run_eagerly
    def restore(self) -> None:
        """Put everything back in place: the same objects, the same addresses, the bytes that were kept.

        State that was born after the snapshot is gone; version counters move, so that a backward pass over
        what was written fails. Everything is checked before anything is written, and all that does not fit
        is named in one StructureMismatch. Allocates nothing where the sources' memory is where it was; gives
        out no view of what is kept; may be called as often as one likes.
        """
        with quietly():
            put_back(self._whole())

    def diff(self) -> tuple[Change, ...]:
        """What is not as it was kept, by path: bytes compared as bytes, plain values as Python writes them.

        Allocates as much as the largest tensor where dtypes or devices differ. Synchronizes where memory on
        a device is compared.
        """
        with quietly():
            return tuple(changes(self._whole(), look(self._sources, self._keeping)))

    def save(self, path: str | os.PathLike[str], *, background: bool = False) -> Saving:
        """Write one safetensors file, whole or not at all, and return a handle on the save.

        The tensors of the first module have their own names, all others the paths that truecopy prints; the
        rest stands as JSON in the file's metadata. What is at `path` is replaced once the new file is
        complete and synced. With `background`, returns at once: the save holds its buffers, and an update
        meanwhile writes to a second set, never a third. Where parameters are sharded over processes, all of
        them save together, through torch.distributed.checkpoint, and `path` is a directory. Raises
        CannotWrite, for background saves in `wait()` of the handle. Allocates nothing for dense tensors.
        """
        previous, self._saving = self._saving, None
        if previous is not None:
            previous.finish()
        target = Path(path)
        with quietly():
            description = describe(self._whole(), self.left_out, str(target))
            if self._is_sharded:
                return self._save_together(description, target, background=background)
        saving = Saving(target, lambda: write(description, target, show=not background))
        if not background:
            saving.wait()
        else:
            self._saving, self._held = saving, self._kept
        return saving

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, only: str | Iterable[str] | None = None
    ) -> LoadedSnapshot:
        """Read what `save` wrote, as plain data: no code of it is run.

        `.restore(model=..., optimizer=...)` of what this returns puts it into sources. `only` reads some of
        the sources that were saved, by name, and leaves the others and the random state alone. Raises
        CannotRead for a file that is missing, cut off or damaged. Allocates the bytes of what is read; of a
        sharded save, which is read whole, only the parts that belong here, when all processes restore it
        together.
        """
        target = Path(path)
        chosen = (only,) if isinstance(only, str) else None if only is None else tuple(only)
        if not target.is_dir():
            return LoadedSnapshot(load(target, chosen))
        if chosen is not None:
            raise UsageError(
                "a sharded save is read whole",
                expected="only= with a file",
                got=f"the directory {target}",
                way_out="Restore all of its sources, with a model or an optimizer that may be thrown away",
            )
        return LoadedSnapshot(load_shards(target))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the snapshot has taken, a second set for saves in the background included."""
        return self._kept.nbytes + (0 if self._spare is None else self._spare.nbytes)

    @property
    def is_torn(self) -> bool:
        """Whether the last update was cut off while it wrote, so that there is nothing whole to restore."""
        return self._kept.torn is not None

    @property
    def left_out(self) -> tuple[str, ...]:
        """What the sources hold and the snapshot does not, each with the reason."""
        if self._image is None:
            return ()
        image = self._image
        return tuple(
            f"{image.place(holder, step)} is {why}"
            for holder, step, why in (*image.unseen, *image.left_out)
        )

    def __repr__(self) -> str:
        parts = [", ".join(self._sources), f"{self.nbytes:,} bytes"]
        if self._keeping.rng:
            parts.append("with random state")
        if self._keeping.dtype is not None:
            parts.append(f"lossy: floating tensors kept as {self._keeping.dtype}")
        if self._kept.torn is not None:
            parts.append(f"TORN: {self._kept.torn}")
        if self.left_out:
            parts.append(f"{len(self.left_out)} left out")
        return f"<truecopy.Snapshot of {'; '.join(parts)}>"

    def _followed(self) -> Image:
        """The sources as they are now: the image that is there if it still holds, or a new one."""
        image = None if self._image is None else self._image.follow()
        self._image = look(self._sources, self._keeping) if image is None else image
        return self._image

    @property
    def _is_sharded(self) -> bool:
        arrangement = self._kept.arrangement
        return arrangement is not None and bool(arrangement.image.sharded)

    def _save_together(self, description: Description, target: Path, *, background: bool) -> Saving:
        """The save of all processes: collectives belong to the thread that trains."""
        if background:
            raise UsageError(
                "a sharded snapshot is saved by all processes together, and not in the background",
                expected="background=False",
            )
        assert self._kept.arrangement is not None
        write_shards(description, self._kept.arrangement.image, target)
        return Saving(target, lambda: None)

    def _to_be_written(self) -> Kept:
        """The set that nobody holds."""
        if self._saving is None or self._saving.done or self._held is not self._kept:
            return self._kept
        if self._spare is None:
            self._spare = Kept()
        return self._spare

    def _whole(self) -> Kept:
        if self._kept.torn is not None:
            raise TornSnapshot(
                f"the snapshot is torn: {self._kept.torn}",
                expected="a snapshot whose last update came to its end",
                got="bytes of two moments",
                way_out="Call update() again, or restore from another snapshot",
            )
        return self._kept


def put_back(kept: Kept) -> None:
    """Write what is kept into the sources, once all of it is known to fit."""
    arrangement = kept.arrangement
    assert arrangement is not None
    image = arrangement.image
    for module in image.fully_sharded:
        _torch.reshard(module)
    move_in = way_back(arrangement)
    for drawer, then, chosen in zip(image.drawers, kept.contents, image.chosen, strict=True):
        if chosen and drawer.hidden is None and not is_same(drawer.read(), then):
            drawer.write(then)
    move_in()
    _torch.move_versions(image.counted)
    for tensor, flag in image.flagged:
        if tensor.is_leaf and tensor.requires_grad != flag:
            tensor.requires_grad_(flag)
    for place, state in kept.hidden:
        drawer = image.drawers[place]
        assert drawer.hidden is not None
        drawer.hidden.write(drawer.owner, state)
    if kept.random is not None:
        kept.random.put_back()


def _refuse_too_much(image: Image) -> None:
    refuse_more_than_there_is(
        bytes_of_one(image.rows, image.layout), "a snapshot",
        "Choose what to keep with only=, or keep it in half the bytes with dtype=",
    )  # fmt: skip
