"""Lines that allocate the same bytes again and again, and drop them: whether that could be in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from truecopy.tracing.lines import Current, name_of
from truecopy.tracing.storages import Block, Storages


class Churning:
    """What one line allocates each time."""

    __slots__ = (
        "argument", "arguments_died", "count", "dropped", "fits", "function", "nbytes", "needs_grad",
    )  # fmt: skip

    def __init__(self, nbytes: int, function: Any) -> None:
        self.nbytes = nbytes
        self.function = function
        self.count = self.dropped = self.arguments_died = 0
        self.argument: Block | None = None  # of the call before
        self.needs_grad = False
        self.fits = False  # the first argument has the size of the result

    @property
    def is_one(self) -> bool:
        """Whether it came often enough, and all but the last were dropped."""
        return self.count >= FEWEST and self.dropped >= self.count - 2

    @property
    def verdict(self) -> tuple[str, str]:
        """How it could be done without allocating ("in place", "out"), and why not in place."""
        if self.needs_grad:
            return "", "needed for backward"
        in_place = self.fits and hasattr(torch.Tensor, f"{name_of(self.function)}_")
        if in_place and self.arguments_died >= self.count - 2:
            return "in place", ""
        why = "another alias is alive" if in_place else "it has another size than its argument"
        return ("out", why) if has_out(name_of(self.function)) else ("", why)


FEWEST = 3
"""Times that a line allocates the same bytes, to be told of."""

LEAST = 1024
"""Bytes that are worth it."""


def note(memory: Storages, current: Current, args: tuple[Any, ...], result: Any) -> None:
    """A call has allocated one storage."""
    block = current.born[0]
    line = current.line
    churn = line.churn
    if churn is None or churn.nbytes != block.most or churn.function != current.function:
        if churn is not None and churn.is_one:
            return  # it was one before: that is told, and not what comes after
        churn = line.churn = Churning(block.most, current.function)
    churn.count += 1
    if churn.argument is not None and churn.argument.death >= 0:
        churn.arguments_died += 1
    if isinstance(result, Tensor) and result.requires_grad:
        churn.needs_grad = True
    first = args[0] if args else None
    if isinstance(first, Tensor):
        churn.argument = memory.find(first)
        churn.fits = isinstance(result, Tensor) and first.shape == result.shape
        if first.dtype != getattr(result, "dtype", None):
            churn.fits = False


def has_out(name: str) -> bool:
    """Whether an operation of this name writes to `out=`."""
    packet = getattr(torch.ops.aten, name, None)
    return packet is not None and any("out" in overload for overload in packet.overloads())
