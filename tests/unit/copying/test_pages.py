"""Huge pages under fresh blocks change how fast bytes come, and nothing else."""

from __future__ import annotations

import mmap
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import truecopy as tc
from truecopy.copying import pages, transfer
from truecopy.copying.pages import HUGE_PAGE, FreshPages

MIB = 1 << 20
PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if sys.platform == "linux" else {}


def blocks(*sizes: int) -> list[torch.Tensor]:
    """Memory of so many bytes each, from the kernel: the allocator might have used its own before."""
    return [torch.frombuffer(mmap.mmap(-1, size, **PRIVATE), dtype=torch.uint8) for size in sizes]


def filled(size: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    """Bytes that differ from page to page."""
    return (torch.arange(size, dtype=torch.int32) % 251).to(dtype)


ODD_SIZES = (0, 1, 3 * MIB + 1, 9 * MIB + 5, 2 * MIB, 700_001, 20 * MIB)


@pytest.mark.parametrize("case", ["as it is", "all slow", "no kernel", "no gathering"])
def test_every_byte_comes_whatever_the_kernel_does(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow pages, a kernel that offers none and one that cannot gather leave the bytes as they are."""
    match case:
        case "all slow":
            monkeypatch.setattr(pages, "_SLOW", float("inf"))
        case "no kernel":
            monkeypatch.setattr(pages, "_kernel", None)
        case "no gathering":
            monkeypatch.setattr(pages, "_MADV_COLLAPSE", -1)
    sources = [filled(size) for size in ODD_SIZES]
    copies = tc.copy(sources)

    assert all(torch.equal(a, b) for a, b in zip(copies, sources, strict=True))
    assert tc.relate(copies, sources).shares_memory is False


def test_asks_where_the_kernel_offers() -> None:
    """Huge pages are asked for exactly where the system has not forbidden them."""
    offered = pages._OFFERED.exists() and "[never]" not in pages._OFFERED.read_text()

    assert FreshPages.under(blocks(32 * MIB)).asking is offered


def test_memory_that_was_used_before_is_left_alone() -> None:
    """No page is asked for, and no piece is cut, where the allocator hands out what it has had back."""
    fresh, used = blocks(32 * MIB, 32 * MIB)
    used.fill_(1)

    begin, end = used.data_ptr(), used.data_ptr() + used.nbytes

    assert FreshPages.under([used]).spans == []
    assert not FreshPages.under([used]).asking
    assert all(high <= begin or end <= low for low, high in FreshPages.under([fresh, used]).spans)


def test_a_refusal_of_the_system_is_respected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where an administrator wrote never, no huge page is asked for, nor gathered behind his back."""
    told = tmp_path / "enabled"
    monkeypatch.setattr(pages, "_OFFERED", told)
    told.write_text("always madvise [never]\n")

    assert pages._find_kernel() is None


def test_small_blocks_that_lie_together_are_one_stretch() -> None:
    """Blocks below a huge page are asked for where they make one together, and not alone."""
    memory = filled(8 * MIB)
    near = [memory[i * MIB : (i + 1) * MIB - 64] for i in range(8)]

    assert len(pages._spans(near)) == (pages._kernel is not None)
    assert pages._spans(near[::2]) == []


def test_pieces_end_where_huge_pages_end() -> None:
    """Pieces follow each other through the whole block, and all but the last end with a huge page."""
    (block,) = blocks(67 * MIB + 3)
    source = filled(len(block))
    pieces = list(transfer._pieces(block, source, FreshPages([])))
    ends = [part.data_ptr() + len(part) for part, _ in pieces]

    assert all(end % HUGE_PAGE == 0 for end in ends[:-1])
    assert all(a == b[0].data_ptr() for a, b in zip(ends, pieces[1:], strict=False))
    assert ends[-1] == block.data_ptr() + len(block)
    assert all(len(part) <= 2 * HUGE_PAGE * torch.get_num_threads() for part, _ in pieces)


class Willing:
    """A kernel that takes every advice."""

    def __init__(self) -> None:
        self.advices: list[int] = []

    def madvise(self, _start: int, _length: int, advice: int) -> int:
        """Keep the advice."""
        self.advices.append(advice)
        return 0


def test_patience_grows_while_pages_stay_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a slow piece small pages are taken, each time for four times as long."""
    kernel = Willing()
    monkeypatch.setattr(pages, "_kernel", kernel)
    watched = FreshPages([(0, 64 * MIB)], asking=True)
    waits = []
    for _ in range(3):
        assert watched.asking
        watched.watch(HUGE_PAGE, 1.0)
        waits.append(watched.waiting)
        watched.watch(watched.waiting, 1.0)

    assert all(later == 4 * earlier for earlier, later in pairwise(waits))
    assert kernel.advices == [pages._MADV_NOHUGEPAGE, pages._MADV_HUGEPAGE] * 3


def test_copies_stay_ordinary_tensors() -> None:
    """Copies on huge pages own their storage, can be resized, and go one by one."""
    first, second = tc.copy([filled(5 * MIB), filled(6 * MIB)])
    first.untyped_storage().resize_(7 * MIB)
    del first

    assert second.untyped_storage().nbytes() == 6 * MIB
    assert second.untyped_storage().resizable()
    assert torch.equal(second, filled(6 * MIB))
