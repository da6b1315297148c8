"""Whose memory it is: what modules, optimizers and graphs say of the storages that a run has met."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from truecopy import _torch
from truecopy.tracing import storages
from truecopy.tracing.lines import OPTIMIZER, Current
from truecopy.tracing.nodes import Nodes
from truecopy.tracing.storages import Block, Storages

_KEPT = (storages.ACTIVATION, storages.OTHER, storages.TEMPORARY)
"""What is told as saved for a backward pass: parameters and inputs stay what they are."""


class Ownership:
    """Finds owners for the storages of a run."""

    def __init__(self, memory: Storages, current: Current, nodes: Nodes) -> None:
        self._memory = memory
        self._current = current
        self._nodes = nodes
        self.in_step: list[Block] = []  # allocated in a step of an optimizer that goes on

    def outlive(self, result: Any) -> None:
        """The event ends: what it has allocated and not dropped is more than a temporary."""
        memory, current = self._memory, self._current
        if current.phase == OPTIMIZER:
            self.in_step += [block for block in current.born if block.death < 0]
            return
        graph = isinstance(result, Tensor) and result.requires_grad
        owner = storages.ACTIVATION if current.path or graph else storages.OTHER
        for block in current.born:
            if block.death < 0 and block.owner == storages.TEMPORARY:
                memory.belongs(block, owner)

    def end_step(self) -> None:
        """The step of an optimizer is over: what it has kept is its state."""
        for block in self.in_step:
            if block.death < 0 and block.owner == storages.TEMPORARY:
                self._memory.belongs(block, storages.OPTIMIZER_STATE)
        self.in_step.clear()

    def accumulate(self, *tensors: Any) -> None:
        """A gradient is put in its place, or added to what is there."""
        for tensor in tensors:
            block = self._memory.find(tensor) if isinstance(tensor, Tensor) else None
            if block is not None and block.owner != storages.PARAMETER:
                self._memory.belongs(block, storages.GRADIENT)

    def saved_by(self, results: Iterable[Tensor], made: int) -> None:
        """Note what the nodes that a call has made keep for the backward pass."""
        waiting = list(dict.fromkeys(result.grad_fn for result in results))
        first = self._nodes.next - made
        for _ in range(made):
            node = waiting.pop() if waiting else None
            if node is None:
                continue
            for tensor in _torch.saved_tensors(node):
                block = self._memory.find(tensor)
                if block is not None and block.owner in _KEPT:
                    block.saved_by = node.name()
                    self._memory.belongs(block, storages.SAVED)
            if made > 1:
                waiting += [
                    after
                    for after, _ in node.next_functions
                    if after is not None and first <= _torch.node_number(after) < self._nodes.next
                ]

    def meet(self, module: nn.Module) -> None:
        """A module is called that no other module called: its tensors were there before."""
        for owner, tensors in (
            (storages.PARAMETER, module.parameters()),
            (storages.BUFFER, module.buffers()),
        ):
            for tensor in tensors:
                self._belongs(tensor, owner)
                if tensor.is_leaf and (gradient := tensor.grad) is not None:
                    self._belongs(gradient, storages.GRADIENT)

    def _belongs(self, tensor: Tensor, owner: int) -> None:
        block = self._memory.meet(tensor, owner)
        if block is not None and block.owner != owner:
            self._memory.belongs(block, owner)
