"""Memory that is watched: which bytes, who comes near them, and what they held when last looked at.

What comes in: values, and at every operation the tensors that it is given. What goes out: the watched
leaves that lie on the same memory, found by the storage and by address, and what changed in them that no
operation told of. It holds the values and so their memory, and up to a bound a copy of the bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truecopy import _torch
from truecopy.errors import UsageError
from truecopy.memory.overlap import as_comb
from truecopy.memory.reading import read
from truecopy.memory.region import CPU, Region
from truecopy.memory.sides import side_of
from truecopy.tracing.sites import Place
from truecopy.tracing.verdict import memory_of

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Leaf:
    """One tensor or array that is watched: the bytes that it reached when the watch began."""

    __slots__ = ("kept", "on_storage", "path", "region", "seen", "since", "value")

    def __init__(self, path: str, value: Any, region: Region) -> None:
        self.path = path
        self.value = value  # held, so that nobody else gets the memory
        self.region = region
        self.on_storage = _on_storage_of(value)
        self.seen: Bytes | None = None  # the bytes where they are
        self.kept: Bytes | None = None  # as they were
        self.since: Place | None = None  # where it was last seen to be as kept

    def follow(self) -> bool:
        """Whether the storage has moved since; the region goes with it."""
        if self.on_storage is None:
            return False
        base = _torch.storage_address(self.on_storage)
        lazy = _torch.is_copy_on_write(self.on_storage)
        moved = base - self.region.storage_start
        if not moved and lazy == self.region.lazy:
            return False
        self.region = replace(
            self.region, start=self.region.start + moved, storage_start=base, lazy=lazy
        )
        self.seen = None
        return bool(moved)

    def bytes(self) -> Bytes:
        """The bytes where they are now: they must be there."""
        if self.seen is None:
            self.seen = np.asarray(_AtAddress(self.region))
        return self.seen

    @property
    def is_there(self) -> bool:
        """Whether the storage still has these bytes: it may have been shrunk."""
        if self.on_storage is None:
            return True
        end = self.region.storage_start + self.on_storage.untyped_storage().nbytes()
        return self.region.span[1] <= end


class Watched:
    """All that one watch is of."""

    def __init__(self, values: Iterable[tuple[str, Any]]) -> None:
        self.leaves = [leaf for name, value in values for leaf in _leaves(name, value)]
        self.compares = False  # whether any bytes are kept
        self.not_compared_bytes = 0
        self._by_storage: dict[int, list[Leaf]] = {}
        for leaf in self.leaves:
            if leaf.on_storage is not None:
                key = _torch.storage_identity(leaf.on_storage)
                self._by_storage.setdefault(key, []).append(leaf)
        self._index()

    def keep(self, most_bytes: int, place: Place | None) -> None:
        """Keep a copy of the bytes, of as many leaves as fit: memory of the CPU alone."""
        room = most_bytes
        for leaf in self.leaves:
            nbytes = leaf.region.unique.nominal_bytes
            if leaf.region.space == CPU and nbytes <= room:
                room -= nbytes
                leaf.kept = leaf.bytes().copy()
                leaf.since = place
            else:
                self.not_compared_bytes += nbytes
        self.compares = room < most_bytes

    def keep_again(self, leaf: Leaf, place: Place | None) -> None:
        """The bytes of a leaf may be others from now on."""
        leaf.since = place
        self.follow(leaf)
        if leaf.kept is not None and leaf.is_there:
            np.copyto(leaf.kept, leaf.bytes())

    def changed_bytes(self, leaf: Leaf) -> int:
        """How many bytes of a leaf are not as they were kept."""
        self.follow(leaf)
        if leaf.kept is None or not leaf.is_there:
            return 0
        now = leaf.bytes()
        if np.array_equal(_as_words(now), _as_words(leaf.kept)):
            return 0
        return int(np.count_nonzero(now != leaf.kept))

    def near(self, tensor: Tensor) -> Sequence[Leaf]:
        """The leaves on the memory of a tensor's storage; of what has none of its own, on its parts."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return _no_doubles(leaf for part in _torch_parts(tensor) for leaf in self.near(part))
        found = self._by_storage.get(_torch.storage_key(storage))
        start = _torch.storage_address(tensor)
        # Memory of numpy, or that went through DLPack, has a storage for each way that it came.
        place = bisect_right(self._starts, start + storage.nbytes() - 1) - 1
        if place < 0 or self._ends[place] <= start:
            return found or ()
        met = list(found or ())
        while place >= 0 and self._ends[place] > start:
            met += self._at[place]
            place -= 1
        return _no_doubles(met)

    def follow(self, leaf: Leaf) -> Region:
        """Where a leaf is now."""
        if leaf.follow():
            self._index()
        return leaf.region

    def _index(self) -> None:
        """Stretches of addresses in order, none of which meet, and the leaves in each."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._at: list[list[Leaf]] = []
        for leaf in sorted(self.leaves, key=lambda leaf: leaf.region.span):
            start, end = leaf.region.span
            if self._ends and start < self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
                self._at[-1].append(leaf)
            else:
                self._starts.append(start)
                self._ends.append(end)
                self._at.append([leaf])


def _leaves(name: str, value: Any) -> list[Leaf]:
    side = side_of(value, name)
    if side.closed:
        raise UsageError(f"cannot be watched as a whole: {side.closed[0]}", where=name)
    if not side.leaves:
        raise UsageError(
            "holds no tensor and no array",
            where=name,
            expected="tensors, arrays, or what holds some",
        )
    found = []
    for index, leaf in enumerate(side.leaves):
        region = read(leaf)
        if isinstance(region, Region):
            if not region.is_empty:
                found.append(Leaf(str(side.path(index)), leaf, region))
        elif not region.proven_apart:
            raise UsageError(
                f"cannot be watched: {region.reason}",
                where=str(side.path(index)),
                way_out="Leave it out of the watch",
            )
    return found


def _on_storage_of(value: Any) -> Tensor | None:
    """An empty tensor on the storage of a value: it goes where the storage goes."""
    if isinstance(value, torch.TypedStorage):
        value = value.untyped()
    with _torch.disable_torch_function(), _torch.no_modes(), torch.inference_mode(False):
        if isinstance(value, Tensor):
            value = value.untyped_storage()
        if not isinstance(value, torch.UntypedStorage):
            return None
        try:
            return torch.empty(0, dtype=torch.uint8, device=value.device).set_(value, 0, (0,), (1,))
        except RuntimeError:  # a fake one, made while a program is exported
            return None


def _torch_parts(tensor: Tensor) -> Iterable[Tensor]:
    return (part for part in memory_of(tensor) if part is not tensor)


def _no_doubles(leaves: Iterable[Leaf]) -> list[Leaf]:
    return list({id(leaf): leaf for leaf in leaves}.values())


class _AtAddress:
    """Shows numpy the bytes of a region where they are."""

    def __init__(self, region: Region) -> None:
        comb = as_comb(region)
        self.__array_interface__ = {
            "version": 3,
            "data": (comb.start, True),
            "shape": (*(count for _, count in comb.steps), comb.run),
            "strides": (*(stride for stride, _ in comb.steps), 1),
            "typestr": "|u1",
        }


def _as_words(array: Bytes) -> np.ndarray[Any, Any]:
    """The same bytes eight at a time, where there are as many: quicker to compare."""
    return array.view(np.uint64) if array.shape[-1] % 8 == 0 else array
