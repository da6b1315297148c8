"""Two tensors, element by element: which differ, and by how much, in bounded memory.

Equal means equal bits, unless a tolerance is given: -0.0 is not 0.0, and a NaN is its own payload.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

_PIECE = 1 << 22
"""Elements that are looked at in one go."""
_MOST_REPEATS = 4
"""How often a tensor may reach its own bytes, before only the bytes are compared."""

_EXACT_DOUBLES = 2.0**53
"""Integers from here on are rounded by a double."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`|a - b| <= atol + rtol * |b|` counts as equal; both zero means equal bits."""

    rtol: float = 0.0
    atol: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Whether only equal bits are equal."""
        return self.rtol == 0 and self.atol == 0


@dataclass(slots=True)
class Measured:
    """How two tensors of one shape differ."""

    elements: int
    differing: int = 0
    max_abs: float | int | None = None  # None: no two numbers could be subtracted
    max_rel: float | None = None
    nan_in_one: int = 0  # elements where exactly one side is NaN
    counted: bool = True  # False: only whether they differ is known


def measure(a: torch.Tensor, b: torch.Tensor, tolerance: Tolerance) -> Measured:
    """Compare two strided tensors of one shape. Allocates a few pieces; detached, on the CPU."""
    a, b = _resolved(a), _resolved(b)
    repeats = 1
    for dim in range(a.dim()):
        if a.stride(dim) == 0 and b.stride(dim) == 0 and a.shape[dim] > 1:
            repeats *= a.shape[dim]
            a, b = a.narrow(dim, 0, 1), b.narrow(dim, 0, 1)
    if _reaches_itself(a) or _reaches_itself(b):
        return _bytes_alone(a, b, repeats)
    found = Measured(a.numel() * repeats)
    for left, right in _pieces(a, b):
        _add(found, left, right, tolerance, repeats)
    return found


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    return tensor.resolve_conj().resolve_neg()


def _reaches_itself(tensor: torch.Tensor) -> bool:
    """Whether looking at every element takes far more steps than the file has bytes."""
    if tensor.device.type == "meta":
        return False
    return tensor.nbytes > _MOST_REPEATS * tensor.untyped_storage().nbytes()


def _bytes_alone(a: torch.Tensor, b: torch.Tensor, repeats: int) -> Measured:
    spans = [_span(tensor) for tensor in (a, b)]
    same = a.stride() == b.stride() and a.dtype == b.dtype and bool((spans[0] == spans[1]).all())
    return Measured(a.numel() * repeats, 0 if same else 1, counted=same)


def _span(tensor: torch.Tensor) -> torch.Tensor:
    length = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return _bits(tensor.as_strided((length,), (1,)))


def _pieces(a: torch.Tensor, b: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The same piece of both, each small enough to work on."""
    waiting = [(a, b)]
    while waiting:
        left, right = waiting.pop()
        if left.numel() == 0 or left.device.type == "meta":
            continue
        if left.numel() <= _PIECE:
            yield left, right
            continue
        dim = max(range(left.dim()), key=left.shape.__getitem__)
        half = left.shape[dim] // 2
        rest = left.shape[dim] - half
        waiting.append((left.narrow(dim, half, rest), right.narrow(dim, half, rest)))
        waiting.append((left.narrow(dim, 0, half), right.narrow(dim, 0, half)))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor)
    return tensor.view(_INTEGERS[tensor.itemsize])


def _add(
    found: Measured, a: torch.Tensor, b: torch.Tensor, tolerance: Tolerance, repeats: int
) -> None:
    if a.dtype == b.dtype:
        other = _bits(a) != _bits(b)
        if a.dtype.is_complex:
            other = other.any(dim=-1)
        if not other.any():
            return
        a, b = a[other], b[other]
    else:
        a, b = a.reshape(-1), b.reshape(-1)
    if a.dtype == b.dtype and not (a.dtype.is_floating_point or a.dtype.is_complex):
        _add_integers(found, a, b, tolerance, repeats)
    else:
        _add_floats(found, a, b, tolerance, repeats)


def _add_integers(
    found: Measured, a: torch.Tensor, b: torch.Tensor, tolerance: Tolerance, repeats: int
) -> None:
    """Integers are subtracted as Python's where doubles would round."""
    if a.dtype not in _SUBTRACTED:
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    if a.itemsize == 8 and max(float(t.double().abs().max()) for t in (a, b)) >= _EXACT_DOUBLES:
        pairs = list(zip(a.tolist(), b.tolist(), strict=True))
        gaps = [(abs(x - y), abs(y)) for x, y in pairs]
        kept = [(g, y) for g, y in gaps if g > tolerance.atol + tolerance.rtol * y]
        found.differing += len(kept) * repeats
        for gap, size in kept:
            _raise_to(found, gap, gap / size if size else math.inf)
        return
    _add_floats(found, a, b, tolerance, repeats)


_SUBTRACTED = frozenset((
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint16, torch.uint32, torch.uint64,
))  # fmt: skip


def _add_floats(
    found: Measured, a: torch.Tensor, b: torch.Tensor, tolerance: Tolerance, repeats: int
) -> None:
    is_integer = not (a.dtype.is_floating_point or a.dtype.is_complex)
    left, right = _doubles(a), _doubles(b)
    if left is None or right is None:  # packed formats: bits are all there is to compare
        found.differing += a.numel() * repeats
        return
    lost = left.isnan() != right.isnan()
    gap = (left - right).abs()
    gap[left == right] = 0  # infinities of one sign, and zeros of both
    size = right.abs()
    if tolerance.is_exact:
        differs = torch.ones_like(lost) if a.dtype == b.dtype else lost | (gap > 0)
    else:
        differs = lost | (gap > tolerance.atol + tolerance.rtol * size)
        differs |= gap.isinf()
    found.differing += int(differs.sum()) * repeats
    found.nan_in_one += int(lost.sum()) * repeats
    numbers = differs & ~gap.isnan()
    if bool(numbers.any()):
        gap, size = gap[numbers], size[numbers]
        relative = torch.where(gap == 0, 0.0, gap / size)
        relative = relative.nan_to_num(nan=math.inf, posinf=math.inf)
        largest = float(gap.max())
        _raise_to(found, int(largest) if is_integer else largest, float(relative.max()))


def _doubles(tensor: torch.Tensor) -> torch.Tensor | None:
    try:
        return tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64)
    except (RuntimeError, TypeError):
        return None


def _raise_to(found: Measured, gap: Any, relative: float) -> None:
    found.max_abs = gap if found.max_abs is None else max(found.max_abs, gap)
    found.max_rel = relative if found.max_rel is None else max(found.max_rel, relative)
