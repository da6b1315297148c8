"""What is kept of one tensor: its value, its statistics, its shape, or what a function of the user makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from truecopy import _torch
from truecopy.capturing.keeping import Held, Keeper, described
from truecopy.capturing.statistics import Running, summarize
from truecopy.copying.api import copy


class Shape(NamedTuple):
    """What a tensor looked like."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str


@dataclass(slots=True, eq=False)
class Made:
    """What a function made of a tensor."""

    value: Any
    how: str = "function"


def leaf_keeper(keep: Any, keeper: Keeper) -> Callable[[Tensor], Any]:
    """The way to keep one tensor."""
    match keep:
        case "tensors":
            return keeper.keep
        case "stats":
            return _statistics
        case "shapes":
            return _shape
    return lambda tensor: _by(keep, tensor)


def _statistics(tensor: Tensor) -> Held:
    tensor = _torch.unwrapped(tensor)
    held = described(tensor)
    held.how, held.summary = "stats", _summary(tensor)
    return held


def _summary(tensor: Tensor) -> Running:
    with _torch.no_modes(), torch.no_grad(), _torch.without_functorch():
        return summarize(tensor.detach())


def _shape(tensor: Tensor) -> Held:
    held = described(tensor)
    held.how = "shape"
    held.summary = Shape(held.shape, held.dtype, held.device)
    return held


def _by(function: Callable[[Tensor], Any], tensor: Tensor) -> Any:
    """What the user's function returns, in memory of its own."""
    with _torch.no_modes(), torch.inference_mode(False), torch.no_grad():
        made = function(_torch.unwrapped(tensor).detach())
        return Made(copy(made))
