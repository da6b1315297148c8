"""Huge pages under fresh blocks: asked for before first touch, and only while they come fast.

In: new blocks. Out: nothing but pages, where these are not there yet; the blocks stay torch's own,
resizable, picklable, each freed by itself.

The kernel clears memory page by page at first touch. Asked before that (`madvise`), it clears 2 MiB at a
time. A block begins behind a few bytes of the allocator, which have touched the first of the small
pages already: the kernel is told to gather such a huge page at once. Without that, one in four pages of
blocks of 8 MiB would stay small, and all of smaller ones.

Huge pages can come slowly: a virtual machine's host takes back free memory, and a huge page may be
memory that the host has to find first (4 to 8 ms seen for 2 MiB, where 0.1 is usual), while small pages
come from what was freed a moment ago. So pieces are watched: a slow one ends the asking, for a while.
"""

from __future__ import annotations

import ctypes
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

HUGE_PAGE = 2 << 20
_PAGE = 4096
_MADV_HUGEPAGE, _MADV_NOHUGEPAGE, _MADV_COLLAPSE = 14, 15, 25
_OFFERED = Path("/sys/kernel/mm/transparent_hugepage/enabled")

_SLOW = 2e9
"""Bytes per second. Pages that come from the host give 0.4, small pages 3 to 5, huge ones 10 to 20."""

_PATIENCE = 32 << 20
"""Bytes that go into small pages before huge ones are tried again; four times as many at each failure."""

_STRETCH = 32 << 20
"""Bytes of neighboring blocks that are looked at as one: all new, or all used before."""

_MOST_TOUCHED = 64
"""Small pages of a huge one that may be there already. With more of them, this is memory used before."""


def _find_kernel() -> Any:
    """The C library, if this kernel gives huge pages to those who ask; else None."""
    try:
        if sys.platform.startswith("linux") and "[never]" not in _OFFERED.read_text():
            library = ctypes.CDLL(None, use_errno=True)
            library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
            library.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
            return library
    except (OSError, AttributeError):
        pass
    return None


_kernel = _find_kernel()

Spans = list[tuple[int, int]]


@dataclass(slots=True)
class FreshPages:
    """The pages under some fresh blocks, while these are filled."""

    spans: Spans
    asking: bool = False
    patience: int = _PATIENCE
    waiting: int = 0  # bytes to fill before asking again
    filled: tuple[int, float] = (0, 0.0)  # bytes since the last look, and the seconds they took

    @classmethod
    def under(cls, blocks: Sequence[torch.Tensor]) -> FreshPages:
        """Ask for huge pages where the blocks lie in memory that was not used before."""
        found = cls([span for span in _spans(blocks) if _is_untouched(span)])
        found.asking = found._advise(_MADV_HUGEPAGE)
        if found.asking:
            found._gather(blocks)
        return found

    @property
    def is_trying(self) -> bool:
        """Whether the next piece shows if huge pages come fast again: it had better be a short one."""
        return self.asking and self.patience > _PATIENCE

    def watch(self, nbytes: int, elapsed: float) -> None:
        """Take note of a piece that was filled, and of the seconds that it took."""
        if not self.asking:
            self.waiting -= nbytes
            if self.spans and self.waiting <= 0:
                self.asking = self._advise(_MADV_HUGEPAGE)
            return
        nbytes, elapsed = self.filled[0] + nbytes, self.filled[1] + elapsed
        self.filled = (nbytes, elapsed)
        if nbytes >= HUGE_PAGE:
            self.filled = (0, 0.0)
            if _is_slow(nbytes, elapsed):
                self._stop()

    def _stop(self) -> None:
        self._advise(_MADV_NOHUGEPAGE)
        self.asking, self.waiting = False, self.patience
        self.patience *= 4

    def _advise(self, advice: int) -> bool:
        asked = [_kernel.madvise(low, high - low, advice) == 0 for low, high in self.spans]
        return any(asked)

    def _gather(self, blocks: Sequence[torch.Tensor]) -> None:
        """Have a huge page made at once of every one that holds the beginning of a block."""
        touched = sorted({block.data_ptr() // HUGE_PAGE * HUGE_PAGE for block in blocks})
        resident = ctypes.create_string_buffer(HUGE_PAGE // _PAGE)
        for low, high in self.spans:
            for start in touched[
                bisect_left(touched, low) : bisect_right(touched, high - HUGE_PAGE)
            ]:
                if _kernel.mincore(start, HUGE_PAGE, resident) != 0:
                    return
                if sum(resident.raw) > _MOST_TOUCHED:
                    continue
                started = time.perf_counter()
                if _kernel.madvise(start, HUGE_PAGE, _MADV_COLLAPSE) != 0:
                    return  # an older kernel, or no huge page left
                if _is_slow(HUGE_PAGE, time.perf_counter() - started):
                    self._stop()
                    return


def _is_slow(nbytes: int, elapsed: float) -> bool:
    return nbytes < _SLOW * elapsed


def _is_untouched(span: tuple[int, int]) -> bool:
    """Whether the page in the middle is not there yet.

    The allocator hands out again what was freed, of any size. Its pages are there, and as fast as any.
    """
    middle, resident = sum(span) // 2 // _PAGE * _PAGE, ctypes.create_string_buffer(1)
    return bool(_kernel.mincore(middle, 1, resident) == 0 and not resident.raw[0] & 1)


def advise(blocks: Sequence[torch.Tensor]) -> bool:
    """Ask for huge pages under blocks that nobody has touched yet; whether there was one to ask for."""
    return FreshPages(_spans(blocks))._advise(_MADV_HUGEPAGE)


def _spans(blocks: Sequence[torch.Tensor]) -> Spans:
    """Pages under blocks, in stretches of a huge page and more.

    Blocks that lie page by page, as consecutive allocations do, are one stretch, up to a length.
    """
    lengths = [block.nbytes for block in blocks]
    if _kernel is None or sum(lengths) < HUGE_PAGE:
        return []
    merged: Spans = []
    for low, length in sorted(zip([block.data_ptr() for block in blocks], lengths, strict=True)):
        start, end = merged[-1] if merged else (0, 0)
        high = low + length
        if merged and low - end <= 2 * _PAGE and end - start < _STRETCH:
            merged[-1] = (start, high)
        else:
            merged.append((low, high))
    whole = [(-(-low // _PAGE) * _PAGE, high // _PAGE * _PAGE) for low, high in merged]
    return [(low, high) for low, high in whole if high - low >= HUGE_PAGE]
