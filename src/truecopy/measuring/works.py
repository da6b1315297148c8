"""The shapes of work: what a cell copies. Each is made of elements that repeat, so that making is cheap."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SMALL = 256
"""Elements of each tensor of `many_small`."""

_CHANNELS = 64


def contiguous(elements: int, dtype: torch.dtype, device: str) -> Tensor:
    """One dimension, dense."""
    pattern = (torch.rand(min(elements, 4096), device="cpu") * 100).to(dtype)
    made = torch.empty(elements, dtype=dtype, device=device)
    whole = elements // len(pattern) * len(pattern)
    made[:whole].view(-1, len(pattern)).copy_(pattern)
    made[whole:].copy_(pattern[: elements - whole])
    return made


def transposed(elements: int, dtype: torch.dtype, device: str) -> Tensor:
    """A matrix read by columns."""
    rows, columns = _sides(elements)
    return contiguous(rows * columns, dtype, device).view(columns, rows).t()


def strided(elements: int, dtype: torch.dtype, device: str) -> Tensor:
    """Every second column of a matrix: half of the memory is passed over."""
    rows, columns = _sides(elements)
    return contiguous(2 * rows * columns, dtype, device).view(rows, 2 * columns)[:, ::2]


def expanded(elements: int, dtype: torch.dtype, device: str) -> Tensor:
    """One row, many times by a stride of 0."""
    rows, columns = _sides(elements)
    return contiguous(columns, dtype, device).expand(rows, columns)


def channels_last(elements: int, dtype: torch.dtype, device: str) -> Tensor:
    """An image whose channels lie side by side."""
    channels = min(_CHANNELS, 1 << max(1, (elements.bit_length() - 1) // 3))
    height = math.isqrt(elements // channels)
    width = elements // channels // height
    dense = contiguous(channels * height * width, dtype, device).view(1, channels, height, width)
    return dense.contiguous(memory_format=torch.channels_last)


def one_big(elements: int, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """A state of one tensor, to set beside one of many."""
    return {"t0": contiguous(elements, dtype, device)}


def many_small(elements: int, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """A state of as many bytes in many tensors."""
    return {f"t{i}": contiguous(SMALL, dtype, device) for i in range(elements // SMALL)}


SHAPES: dict[str, Callable[[int, torch.dtype, str], Any]] = {
    "contiguous": contiguous,
    "transposed": transposed,
    "strided": strided,
    "expanded": expanded,
    "channels_last": channels_last,
    "one_big": one_big,
    "many_small": many_small,
}

LEAST: dict[str, int] = {
    "contiguous": 1,
    "transposed": 4,
    "strided": 2,
    "expanded": 4,
    "channels_last": 8,
    "one_big": 1,
    "many_small": 2 * SMALL,
}
"""Elements below which a shape would be another."""

STRUCTURES = frozenset(("one_big", "many_small"))


def _sides(elements: int) -> tuple[int, int]:
    """A matrix of at most so many elements, as square as can be."""
    rows = math.isqrt(elements)
    return rows, elements // rows


def leaves(value: Any) -> list[Any]:
    """The tensors or arrays of a work, or of what a method made of it."""
    return list(value.values()) if isinstance(value, dict) else [value]


def storage_factor(shape: str) -> int:
    """How many bytes of memory the input takes for each that a copy writes."""
    return 2 if shape == "strided" else 1


def each_byte_once(strides: tuple[int, ...]) -> tuple[slice, ...]:
    """An index that takes each byte of an expanded tensor once: torch refuses to write it many times."""
    return tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)
