"""Whether two regions share a byte: numpy's exact solver, on addresses alone.

The memory is never touched, so it may be on another device, or freed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from truecopy.memory.region import Region
from truecopy.memory.sweeps import Comb

_MOST_WORK = 1_000_000
"""Steps after which numpy gives up on one pair; strided views of real programs take a handful."""

_BASE = 4096
"""Added to every address: memory without an address is numbered from 0, where numpy knows no array."""


class _AtAddress:
    """Shows numpy an array at an address, so that it can reason about it."""

    def __init__(self, comb: Comb) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (comb.start + _BASE, True),
            "shape": tuple(count for _, count in comb.steps),
            "strides": tuple(stride for stride, _ in comb.steps),
            "typestr": f"|V{comb.run}",
        }


def comb_array(comb: Comb) -> np.ndarray[Any, Any]:
    """A stand-in for numpy's solver. Never read from it."""
    if comb.run < 2**31:  # the largest item that numpy has
        return np.asarray(_AtAddress(comb))
    return np.asarray(_AtAddress(_in_bytes(comb)))


def _in_bytes(comb: Comb) -> Comb:
    return Comb(comb.row, comb.start, 1, ((1, comb.run), *comb.steps))


def as_comb(region: Region, row: int = 0) -> Comb:
    """The bytes of a region that reaches any."""
    return Comb(row, *region.canonical)


def overlaps(a: Region, b: Region) -> bool | None:
    """Whether two regions share at least one byte; None where deciding it would take too long."""
    if a.space != b.space or a.is_empty or b.is_empty or are_lazy_siblings(a, b):
        return False
    (a_low, a_high), (b_low, b_high) = a.span, b.span
    if a_low >= b_high or b_low >= a_high:
        return False
    return arrays_overlap(comb_array(as_comb(a)), comb_array(as_comb(b)))


def arrays_overlap(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool | None:
    """The answer of numpy on two stand-ins."""
    try:
        # Any number is taken; numpy's stubs know of two.
        return bool(np.shares_memory(a, b, max_work=_MOST_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return None


def are_lazy_siblings(a: Region, b: Region) -> bool:
    """Whether two copy-on-write storages only share pages until one of them writes."""
    return a.lazy and b.lazy and a.storage != b.storage


def common_span(a: Region, b: Region) -> tuple[int, int]:
    """The stretch that the spans of two regions in one space have in common."""
    (a_low, a_high), (b_low, b_high) = a.span, b.span
    return max(a_low, b_low), min(a_high, b_high)
