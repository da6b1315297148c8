"""Ways of copying for which there is a better one, counted where they are met."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from truecopy.tracing.lines import Current, LineOfCode
from truecopy.tracing.storages import Block, Storages

HABITUAL = {
    torch.tensor, torch.Tensor.new_tensor, torch.Tensor.cpu, torch.Tensor.numpy,
}  # fmt: skip
"""Calls that are looked at."""

SAYS = {
    "tensor": (
        "torch.tensor(t)",
        "copies the tensor that it is given, and cuts it from the graph",
        "t.detach().clone()",
    ),
    "new_tensor": (
        "t.new_tensor(t)",
        "copies the tensor that it is given, and cuts it from the graph",
        "t.detach().clone()",
    ),
    "cpu": (
        ".cpu() kept as a snapshot",
        "copies nothing where the tensor is on the CPU already, and what was kept has changed since",
        ".detach().clone(), or tc.Snapshot",
    ),
    "numpy": (
        ".numpy() kept as a snapshot",
        "is the same memory, and what was kept has changed since",
        ".numpy().copy(), or tc.Snapshot",
    ),
    "again": (
        "a copy of a copy",
        "what the call before has copied is copied once more",
        "one copy, to where it is to be",
    ),
}
"""What it is called, why it is better avoided, and what does it better."""


class Habits:
    """Those of a run."""

    def __init__(self, memory: Storages, current: Current) -> None:
        self._memory = memory
        self._current = current
        self.found: dict[tuple[str, int], list[Any]] = {}  # what, line, path, count, bytes

    def call(self, function: Any, args: tuple[Any, ...], result: Any) -> None:
        """A habitual call has ended."""
        name = function.__name__
        if name in ("tensor", "new_tensor"):
            at = int(name == "new_tensor")
            if len(args) > at and isinstance(args[at], Tensor):
                nbytes = result.numel() * result.element_size()
                self._note(name, self._current.line, self._current.path, nbytes)
        elif isinstance(result, Tensor) and args and result is args[0]:
            block = self._memory.find(result)
            if block is not None:
                kept = weakref.ref(result)
                block.snapshot = (name, kept, self._current.line, self._current.path)

    def written(self, block: Block, tensor: Tensor) -> None:
        """Memory is written that somebody may have taken for a snapshot."""
        name, kept, line, path = block.snapshot
        snapshot = kept()
        if snapshot is not None and snapshot is not tensor:
            self._note(name, line, path, block.nbytes)
        block.snapshot = None

    def _note(self, what: str, line: LineOfCode, path: str, nbytes: int) -> None:
        row = self.found.setdefault((what, id(line)), [what, line, path, 0, 0])
        row[3] += 1
        row[4] += nbytes
