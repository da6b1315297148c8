"""Bytes from here to there. Fresh memory costs more than copying: large blocks ask for huge pages.

The kernel clears memory page by page at first touch. Asked before that, it clears 2 MiB at a time.
The blocks stay torch's own: resizable, picklable, each freed by itself.

Huge pages can come slowly: a virtual machine's host takes back free memory, and a huge page may be
memory that the host has to find first (8 ms seen for 2 MiB, where 0.2 is usual), while small pages
come from what was freed a moment ago. So the first pieces are watched, and a slow one ends the asking.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator

import torch

from truecopy import _torch

LARGE = 1 << 20
"""Bytes from which a block gets a call of its own; below, dispatch costs more than the bytes."""

_HUGE_PAGE = 2 << 20
_PAGE = 4096
_PIECE = 32 << 20
_SLOW = 1e9  # bytes per second; small pages give two to four times as much
_MADV_HUGEPAGE, _MADV_NOHUGEPAGE = 14, 15

Pair = tuple[torch.Tensor, torch.Tensor]


def _find_madvise() -> Callable[[int, int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        found = ctypes.CDLL(None, use_errno=True).madvise
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    found.restype = ctypes.c_int
    return found


_madvise = _find_madvise()


def transfer(pairs: list[Pair], *, fresh: bool = False) -> None:
    """Write each source into its destination: small ones in one call, large ones one by one.

    With `fresh`, nobody has touched the destinations yet.
    """
    small = [pair for pair in pairs if pair[0].nbytes < LARGE]
    large = [pair for pair in pairs if pair[0].nbytes >= LARGE]
    at_home = [pair for pair in large if fresh and pair[0].device.type == "cpu"]
    _fill_fresh(at_home)
    for new, old in large:
        if not fresh or new.device.type != "cpu":
            new.copy_(old, non_blocking=_may_overlap(new, old))
    if small:
        _torch.copy_all([new for new, _ in small], [old for _, old in small])
    if any(_may_overlap(new, old) for new, old in large):
        torch.accelerator.synchronize()


def _may_overlap(new: torch.Tensor, old: torch.Tensor) -> bool:
    """Whether the host need not wait for each transfer: pinned memory and a device. Untested without one."""
    if new.device == old.device:
        return False
    return (old.device.type == "cpu" and old.is_pinned()) or (
        new.device.type == "cpu" and new.is_pinned()
    )


def _fill_fresh(pairs: list[Pair]) -> None:
    blocks = [block for block, _ in pairs]
    watching = advise(blocks)
    for block, source in pairs:
        for part, piece in _pieces(block, source):
            started = time.perf_counter()
            part.copy_(piece)
            elapsed = time.perf_counter() - started
            if watching and part.nbytes >= _HUGE_PAGE and part.nbytes < _SLOW * elapsed:
                _advise(blocks, _MADV_NOHUGEPAGE)
                watching = False


def _pieces(block: torch.Tensor, source: torch.Tensor) -> Iterator[Pair]:
    if block.nbytes <= _PIECE or not (block.is_contiguous() and source.is_contiguous()):
        yield block, source
        return
    length = _PIECE // block.itemsize
    yield from zip(block.view(-1).split(length), source.view(-1).split(length), strict=True)


def advise(blocks: list[torch.Tensor]) -> bool:
    """Ask for huge pages under blocks that nobody has touched yet; whether there was one to ask for."""
    return _advise(blocks, _MADV_HUGEPAGE)


def _advise(blocks: list[torch.Tensor], advice: int) -> bool:
    if _madvise is None:
        return False
    spans = sorted(
        (block.data_ptr(), block.data_ptr() + block.nbytes)
        for block in blocks
        if block.nbytes >= _HUGE_PAGE
    )
    asked = False
    for low, high in _merged(spans):
        first, last = -(-low // _PAGE) * _PAGE, high // _PAGE * _PAGE
        if last - first >= _HUGE_PAGE:
            asked |= _madvise(first, last - first, advice) == 0
    return asked


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that lie page by page, as consecutive allocations do, advised as one."""
    merged: list[tuple[int, int]] = []
    for low, high in spans:
        if merged and low - merged[-1][1] <= 2 * _PAGE:
            merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return merged
