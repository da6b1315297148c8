"""The price of use: what a layout costs later, and after how many uses `contiguous()` has paid for itself.

A cell of a use measures in the same rounds the use of the input as it is, the use of a contiguous
copy, and the making of that copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from truecopy.measuring.verdict import Verdict

Use = Callable[[Tensor], Any]

AS_IT_IS, CONTIGUOUS, MAKING = "as it is", "made contiguous before", "contiguous()"

_NEVER = "contiguous() never pays for itself"
_DOUBT = "whether contiguous() pays for itself one cannot tell"

SHAPES_OF_USES = ("strided", "transposed", "expanded")

_COLUMNS = 16  # of the matrix that a work is multiplied with


def _sum(_like: Tensor) -> Use:
    return torch.sum


def _matmul(like: Tensor) -> Use:
    other = torch.ones(like.shape[-1], _COLUMNS, dtype=like.dtype, device=like.device)
    return lambda x: x @ other


def _convolution(like: Tensor) -> Use:
    kernel = torch.ones(1, 1, 3, 3, dtype=like.dtype, device=like.device)
    return lambda x: torch.nn.functional.conv2d(x[None, None], kernel, padding=1)


def _indexing(like: Tensor) -> Use:
    rows = torch.arange(0, like.shape[0], 4, device=like.device).flip(0)
    return lambda x: x[rows]


USES: dict[str, Callable[[Tensor], Use]] = {
    "sum": _sum,
    "matmul": _matmul,
    "convolution": _convolution,
    "indexing": _indexing,
}
"""Each use, made ready for inputs like the one that is passed: every fourth row is indexed."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """After how many uses `contiguous()` has paid for itself; None where never, or one cannot tell."""

    uses: int | None
    least: int | None  # at the ends of the interval of the gain; None: never
    most: int | None
    why: str  # in words


def break_even(making: float, as_it_is: float, contiguous: Verdict) -> BreakEven:
    """From seconds of making the copy and of a use as it is, and the verdict on the use of the copy."""
    match contiguous.word:
        case "slower":
            return BreakEven(None, None, None, f"{_NEVER}: the use is slower on the copy")
        case "same":
            return BreakEven(None, None, None, f"{_NEVER}: the use takes as long on the copy")
        case "cannot tell":
            return BreakEven(None, None, None, f"{_DOUBT} ({contiguous.reason})")
    uses, most, least = (
        math.ceil(making / (as_it_is * (1 - ratio)))
        for ratio in (contiguous.ratio, contiguous.high, contiguous.low)
    )
    times = f"after {uses:,} use{'' if uses == 1 else 's'}"
    times += f" ({least:,} to {most:,})" if least != most else ""
    return BreakEven(uses, least, most, f"contiguous() has paid for itself {times}")
