"""What a tensor was like, in a few numbers: computed where it lies, read when somebody asks.

In fp32 (fp64 for doubles and integers), piece by piece, so that a large tensor takes no large temporary,
and without synchronizing: the numbers stay tensors on the device until the first of them is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_PIECE = 1 << 20
"""Elements that are looked at in one go."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Numbers about one tensor. Mean, deviation, min and max are of its finite elements.

    NaN where there is no finite element; the deviation is that of the whole (divided by n).
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    mean: float
    std: float
    min: float
    max: float
    nan: int
    inf: int
    zero_fraction: float
    histogram: tuple[int, ...] | None = None

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        odd = "".join(f", {n} {what}" for n, what in ((self.nan, "NaN"), (self.inf, "inf")) if n)
        return (
            f"{str(self.dtype).removeprefix('torch.')} {shape}: mean {self.mean:.4g}, "
            f"std {self.std:.4g}, from {self.min:.4g} to {self.max:.4g}, "
            f"{self.zero_fraction:.1%} zero{odd}"
        )


@dataclass(slots=True)
class Running:
    """Statistics that are still on the device."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    numbers: (
        Tensor | None
    )  # count of finite elements, mean, sum of squares, min, max, nan, inf, zero
    bins: Tensor | None = None

    def read(self) -> Statistics:
        """The numbers, transferred once."""
        if self.numbers is None:
            none = float("nan")
            return Statistics(self.shape, self.dtype, none, none, none, none, 0, 0, none)
        count, mean, squares, low, high, nans, infs, zeros = self.numbers.tolist()
        total = count + nans + infs
        none = float("nan")
        return Statistics(
            self.shape,
            self.dtype,
            mean if count else none,
            (squares / count) ** 0.5 if count else none,
            low if count else none,
            high if count else none,
            int(nans),
            int(infs),
            zeros / total if total else none,
            None if self.bins is None else tuple(map(int, self.bins.tolist())),
        )


@dataclass(frozen=True, slots=True)
class Bins:
    """A histogram that is wanted: so many bins of equal width; what lies outside is in none."""

    count: int
    low: float
    high: float


def summarize(tensor: Tensor, bins: Bins | None = None) -> Running:
    """Statistics of a tensor, not yet read. Allocates a few pieces; does not synchronize."""
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is torch.jagged:
        tensor = tensor.values()
    elif tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.device.type == "meta" or not tensor.numel():
        return Running(shape, dtype, None)
    found: Tensor | None = None
    drawn: Tensor | None = None
    for piece in _pieces(tensor):
        numbers = _numbers(piece)
        found = numbers if found is None else _joined(found, numbers)
        if bins is not None:
            counts = _counts(piece, bins)
            drawn = counts if drawn is None else drawn + counts
    return Running(shape, dtype, found, drawn)


def _pieces(tensor: Tensor) -> Any:
    """Flat pieces in the dtype that is computed in."""
    if tensor.is_complex():
        tensor = tensor.abs()
    wide = tensor.dtype is torch.float64 or not tensor.dtype.is_floating_point
    flat = tensor.reshape(-1) if tensor.is_contiguous() or tensor.numel() <= _PIECE else None
    if flat is not None:
        for start in range(0, flat.numel(), _PIECE):
            yield flat[start : start + _PIECE].to(torch.float64 if wide else torch.float32)
        return
    for row in tensor:  # reshape would copy the whole
        yield from _pieces(row)


def _numbers(piece: Tensor) -> Tensor:
    """The eight numbers of one piece."""
    finite = piece.isfinite()
    count = finite.sum(dtype=piece.dtype)
    safe = piece.where(finite, 0)
    mean = safe.sum() / count.clamp(min=1)
    squares = (piece - mean).where(finite, 0).square().sum()
    infinite = float("inf")
    return torch.stack((
        count, mean, squares,
        piece.where(finite, infinite).min(), piece.where(finite, -infinite).max(),
        piece.isnan().sum(dtype=piece.dtype), piece.isinf().sum(dtype=piece.dtype),
        (piece == 0).sum(dtype=piece.dtype),
    )).double()  # fmt: skip


def _joined(a: Tensor, b: Tensor) -> Tensor:
    """The numbers of two pieces together, after Chan, Golub and LeVeque."""
    count = a[0] + b[0]
    share = b[0] / count.clamp(min=1)
    apart = b[1] - a[1]
    return torch.stack((
        count, a[1] + apart * share, a[2] + b[2] + apart.square() * a[0] * share,
        torch.minimum(a[3], b[3]), torch.maximum(a[4], b[4]),
        a[5] + b[5], a[6] + b[6], a[7] + b[7],
    ))  # fmt: skip


def _counts(piece: Tensor, bins: Bins) -> Tensor:
    """How many elements lie in each bin; the last bin has its upper end."""
    width = (bins.high - bins.low) / bins.count
    inside = (piece >= bins.low) & (piece <= bins.high)
    place = ((piece - bins.low) / width).where(inside, 0).long().clamp(max=bins.count - 1)
    return torch.zeros(bins.count, dtype=torch.int64, device=piece.device).scatter_add_(
        0, place, inside.long()
    )
