"""Bytes from here to there: small ones in one call, large ones piece by piece into fresh memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from truecopy import _torch
from truecopy.copying.pages import HUGE_PAGE, FreshPages

LARGE = 1 << 19
"""Bytes from which a block gets a call of its own; below, dispatch costs more than the bytes."""

Pair = tuple[torch.Tensor, torch.Tensor]


def transfer(pairs: list[Pair], *, fresh: bool = False) -> None:
    """Write each source into its destination: small ones in one call, large ones one by one.

    With `fresh`, the destinations are new, and hold nothing that anybody waits for.
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
    pages = FreshPages.under([block for block, _ in pairs])
    for block, source in pairs:
        if not pages.spans:
            block.copy_(source)
            continue
        for part, piece in _pieces(block, source, pages):
            started = time.perf_counter()
            part.copy_(piece)
            pages.watch(part.nbytes, time.perf_counter() - started)


def _pieces(block: torch.Tensor, source: torch.Tensor, pages: FreshPages) -> Iterator[Pair]:
    """A block in pieces that end where huge pages end, two of these for each thread that fills it.

    Threads that meet in one page would wait for each other until it is cleared.
    """
    most = 2 * HUGE_PAGE * torch.get_num_threads()
    if block.nbytes <= most or not (block.is_contiguous() and source.is_contiguous()):
        yield block, source
        return
    flat, old = block.view(-1), source.view(-1)
    address, itemsize, done = block.data_ptr(), block.itemsize, 0
    while done < len(flat):
        start = address + done * itemsize
        length = HUGE_PAGE if pages.is_trying else most
        count = max((start // HUGE_PAGE * HUGE_PAGE + length - start) // itemsize, 1)
        yield flat[done : done + count], old[done : done + count]
        done += count
