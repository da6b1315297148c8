"""Every storage that a run met: who it is, how long it lived, and how much was alive.

A storage is told apart by its number, given out when it is first met. Its address, and the address of
torch's own object, are given out again once it is freed; a weak reference tells of that moment. No
tensor and no storage is kept alive.
"""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor, UntypedStorage
from torch.nn import Parameter

from truecopy import _torch
from truecopy.tracing.facts import OWNERS

(
    PARAMETER, BUFFER, GRADIENT, OPTIMIZER_STATE, SAVED, ACTIVATION, INPUT, TEMPORARY, OTHER,
) = range(len(OWNERS))  # fmt: skip


class Block:
    """One storage, from when it was met to its end."""

    # Defaults of the class: one is made for each allocation, and most are never written.
    origin = "unknown"
    line: Any = None  # where it was allocated; None for what existed before
    path = ""
    birth = -1  # event
    birth_tick = -1
    birth_mark = 0
    death = -1
    saved_by = ""
    copied_at = -1  # the event by which it came to be, as a copy
    snapshot: Any = None  # who may have taken it for a copy
    reference: Any = None

    def __init__(self, number: int, key: int, nbytes: int, device: str, owner: int) -> None:
        self.number = number
        self.key = key
        self.nbytes = self.most = nbytes
        self.device = device
        self.owner = owner


class _Reference(weakref.ref[UntypedStorage]):
    """A weak reference that knows its block."""

    __slots__ = ("block",)
    block: Block


class Storages:
    """The storages of a run, what is alive of them, and the most that was."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}  # alive, by key
        self.count = 0
        self.tick = 0  # moves with every change of what is alive
        self.event = -1  # at which the run is
        self.mark = 0  # boundaries passed so far

        self.live = 0
        self.by_owner = [0] * len(OWNERS)
        self.allocated = 0
        self.freed = 0
        self.would_be = 0  # bytes of tensors without memory
        self.existed = 0  # bytes of storages that were there before, as far as they were met
        self.shapeless = 0  # tensors that have no storage
        self.lazy = 0  # copy-on-write storages that were made here and are alive

        self.peak = 0
        self.peak_event = -1
        self.peak_tick = 0
        self.interval_peak = 0  # since the last boundary
        self.high = self.low = 0  # in this stretch of events
        self.high_owners: tuple[int, ...] = tuple(self.by_owner)
        self.after_peak: list[Block] = []  # alive at the peak, dead by now
        self.long_lived: list[Block] = []  # dead, and passed several boundaries

    def find(self, tensor: Tensor) -> Block | None:
        """The block that a tensor lies on, if it was met before."""
        try:
            return self.blocks.get(_torch.storage_key(tensor.untyped_storage()))
        except (NotImplementedError, RuntimeError):
            return None

    def meet(self, tensor: Tensor, owner: int) -> Block | None:
        """The block of a tensor that goes in. One that is new to us existed before the run."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            self.shapeless += 1
            return None
        block = self.blocks.get(_torch.storage_key(storage))
        if block is None:
            owner = PARAMETER if type(tensor) is Parameter else owner
            block = self._add(storage, owner, type(tensor) is Tensor and tensor.is_cpu)
            self.existed += block.nbytes
        elif storage.nbytes() != block.nbytes:
            self.resized(block, storage.nbytes())  # by the storage itself: torch dispatches nothing
        return block

    def come_out(self, tensor: Tensor) -> tuple[Block | None, bool]:
        """The block of a tensor that comes out, and whether it was born now."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            self.shapeless += 1
            return None, False
        block = self.blocks.get(_torch.storage_key(storage))
        if block is not None:
            return block, False
        block = self._add(storage, TEMPORARY, type(tensor) is Tensor and tensor.is_cpu)
        block.birth = self.event
        block.birth_mark = self.mark
        if storage.resizable():
            block.origin = "new"
            self.allocated += block.nbytes
        else:
            block.origin = "adopted"
        return block, True

    def _add(self, storage: UntypedStorage, owner: int, is_cpu: bool) -> Block:
        key = _torch.storage_key(storage)
        nbytes = storage.nbytes()
        device = "cpu" if is_cpu else storage.device.type
        if device == "meta":
            self.would_be += nbytes
            nbytes = 0
        block = self.begin(key, nbytes, device, owner)
        block.reference = reference = _Reference(storage, self._end)
        reference.block = block
        return block

    def begin(self, key: int, nbytes: int, device: str, owner: int) -> Block:
        """Memory is there from now on."""
        block = Block(self.count, key, nbytes, device, owner)
        self.count += 1
        self.blocks[key] = block
        self._change(block, nbytes)
        block.birth_tick = self.tick
        return block

    def _change(self, block: Block, nbytes: int) -> None:
        """More or fewer bytes are alive."""
        self.tick += 1
        self.by_owner[block.owner] += nbytes
        live = self.live = self.live + nbytes
        if live > self.interval_peak:  # noqa: PLR1730 - a call less, at every allocation
            self.interval_peak = live
        if live > self.high:
            self.high = live
            self.high_owners = tuple(self.by_owner)
        elif live < self.low:
            self.low = live
        if live > self.peak:
            self.peak = live
            self.peak_event = self.event
            self.peak_tick = self.tick
            if self.after_peak:
                self.after_peak.clear()

    def resized(self, block: Block, nbytes: int) -> bool:
        """Note the size of a known storage, and tell whether it changed."""
        if nbytes == block.nbytes or block.device == "meta":
            return False
        grown = nbytes - block.nbytes
        if grown > 0:
            self.allocated += grown
        else:
            self.freed -= grown
        block.nbytes = nbytes
        block.most = max(block.most, nbytes)
        self._change(block, grown)
        return True

    def belongs(self, block: Block, owner: int) -> None:
        """Say whose memory it is."""
        self.by_owner[block.owner] -= block.nbytes
        self.by_owner[owner] += block.nbytes
        block.owner = owner

    def _end(self, reference: Any) -> None:
        """A storage was freed: called by Python at that moment."""
        self.end(reference.block)

    def end(self, block: Block) -> None:
        """Memory is there no more."""
        if self.blocks.get(block.key) is block:
            del self.blocks[block.key]
        block.death = self.event
        block.reference = None
        self.freed += block.nbytes
        self._change(block, -block.nbytes)
        if block.birth_tick <= self.peak_tick:
            self.after_peak.append(block)
        if self.mark - block.birth_mark > LONG and len(self.long_lived) < MOST_LONG_LIVED:
            self.long_lived.append(block)
        if block.line is not None:
            block.line.ended(block)

    def at_peak(self) -> list[Block]:
        """What was alive at the peak."""
        alive = [block for block in self.blocks.values() if block.birth_tick <= self.peak_tick]
        return [*alive, *self.after_peak]

    def close(self) -> None:
        """Forget the storages that are alive: the run has ended."""
        for block in self.blocks.values():
            block.reference = None


LONG = 2
"""Boundaries that a storage passes without being told of afterwards: a step has about as many."""

MOST_LONG_LIVED = 50_000
