"""Tensors as a profile describes them: no bytes, no storage, and long gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Recorded:
    """Shape, strides and dtype of an argument, and the number of the allocation that it lies on."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    allocation: int = -1  # -1 where the profile does not tell

    @classmethod
    def of(cls, seen: Any) -> Recorded:
        """What the profile has of one argument."""
        number = seen.allocation_id
        return cls(
            tuple(seen.sizes),
            tuple(seen.strides),
            seen.dtype,
            seen.device,
            -1 if number is None else number,
        )

    def stride(self) -> tuple[int, ...]:
        """As of a tensor."""
        return self.strides

    def dim(self) -> int:
        """As of a tensor."""
        return len(self.shape)

    def numel(self) -> int:
        """As of a tensor."""
        count = 1
        for length in self.shape:
            count *= length
        return count

    def element_size(self) -> int:
        """As of a tensor."""
        return self.dtype.itemsize

    def is_conj(self) -> bool:
        """The profile does not tell."""
        return False

    def is_neg(self) -> bool:
        """The profile does not tell."""
        return False

    @property
    def span(self) -> int:
        """Bytes from its first to its last."""
        if 0 in self.shape:
            return 0
        steps = zip(self.shape, self.strides, strict=False)
        return (1 + sum((length - 1) * stride for length, stride in steps)) * self.dtype.itemsize


def recorded_in(inputs: list[Any]) -> Iterator[Recorded]:
    """The tensors among arguments."""
    for given in inputs:
        if type(given) is Recorded:
            yield given
        elif type(given) is list:
            yield from recorded_in(given)
