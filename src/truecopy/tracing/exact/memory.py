"""The allocator's own account of a run: what it gave, what it took back, and what was there before."""

from __future__ import annotations

from torch import Tensor

from truecopy import _torch
from truecopy.tracing.exact.recorded import Recorded
from truecopy.tracing.exact.tree import Node
from truecopy.tracing.storages import TEMPORARY, Block, Storages


class Allocations(Storages):
    """Storages that are told of by the allocator, by the addresses that it gave.

    What was allocated before is in no number of what is alive: the profiler tells of its end as little
    as of its beginning. Where it is met as an argument, it counts as having existed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, int] = {}  # bytes that were reached, by number of the allocation
        self._given: set[int] = set()  # numbers

    def find(self, tensor: Tensor) -> Block | None:
        """The block that a living tensor lies on: to be asked when the run is over."""
        try:
            return self.blocks.get(_torch.storage_address(tensor))
        except (NotImplementedError, RuntimeError):
            return None

    def gave(self, node: Node) -> Block:
        """Memory was handed out."""
        known = self.blocks.pop(node.pointer, None)
        if (
            known is not None
        ):  # given back where the profiler does not look: the allocator counts it on
            known.key = -1 - known.number
            self.blocks[known.key] = known
        block = self.begin(node.pointer, node.size, node.device, TEMPORARY)
        block.birth, block.birth_mark = self.event, self.mark
        self.allocated += node.size
        self._given.add(node.allocation)
        return block

    def gave_back(self, node: Node) -> None:
        """Memory was taken back."""
        block = self.blocks.get(node.pointer)
        if block is None:  # from before, and told of since it was given while a profiler was on
            self.freed -= node.size
        else:
            self.end(block)

    def meet_recorded(self, tensor: Recorded) -> None:
        """An argument: its memory was there before, if nothing has handed it out."""
        number = tensor.allocation
        if number < 0 or number in self._given:
            return
        known, span = self.before.get(number, 0), tensor.span
        if span > known:
            self.before[number] = span
            self.existed += span - known
