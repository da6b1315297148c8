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
        "argument", "arguments_died", "count", "dropped", "function", "nbytes", "needs_grad", "why_new",
    )  # fmt: skip

    def __init__(self, nbytes: int, function: Any) -> None:
        self.nbytes = nbytes
        self.function = function
        self.count = self.dropped = self.arguments_died = 0
        self.argument: Block | None = None  # of the call before
        self.needs_grad = False
        self.why_new = ""  # why its first argument has no place for the result; empty where it has

    @property
    def is_one(self) -> bool:
        """Whether it came often enough, and all but the last were dropped."""
        return self.count >= FEWEST and self.dropped >= self.count - 2

    @property
    def verdict(self) -> tuple[str, str]:
        """How it could be done without allocating ("in place", "out"), and why not in place."""
        if self.needs_grad:
            return "", "needed for backward"
        name = name_of(self.function)
        why = self.why_new
        if not why and not hasattr(torch.Tensor, f"{name}_"):
            why = f"{name} has no form that works in place"
        if not why and self.arguments_died >= self.count - 2:
            return "in place", ""
        why = why or "another alias is alive"
        return ("out", why) if has_out(name) else ("", why)


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
    churn.why_new = _why_new(first, result)


def _why_new(first: Any, result: Any) -> str:
    """Why a result has no place in the first argument of its call; empty where it has."""
    if not isinstance(first, Tensor):
        return "it is given no tensor to write to"
    if not isinstance(result, Tensor):
        return "it makes several tensors"
    if first.dtype != result.dtype:
        return "it has another dtype than its argument"
    if first.shape != result.shape:
        return "it has another shape than its argument"
    return ""


def has_out(name: str) -> bool:
    """Whether the function of this name takes `out=`: what it says of itself; schemas have more."""
    return "out=None" in (getattr(getattr(torch, name, None), "__doc__", None) or "")
