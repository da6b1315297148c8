"""Blocks: one new allocation each, what lies where in it, and which bytes go there.

In: rows of a table that share bytes (or one row alone) and their regions. Out: a `Block`, numbers
alone. Nothing is allocated here; a plan is a list of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from truecopy.memory.counting import count_reached
from truecopy.memory.region import Region, Space


@dataclass(frozen=True, slots=True)
class Member:
    """Where one leaf lies in its block."""

    row: int
    offset: int  # of its first element, in bytes
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes, of the copy
    itemsize: int


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes of one leaf's storage to a place in the block. Strides are positive on both sides."""

    row: int
    start: int
    shape: tuple[int, ...]
    source_strides: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]
    itemsize: int


@dataclass(frozen=True, slots=True)
class Block:
    """One allocation of the copy."""

    space: Space
    nbytes: int
    members: tuple[Member, ...]
    moves: tuple[Move, ...]
    freed: bool = False

    @property
    def is_filled(self) -> bool:
        """Whether one transfer writes every byte, so that nothing of the heap is left in it."""
        return len(self.moves) == 1 and self.nbytes == _nominal(
            self.moves[0].shape, self.moves[0].itemsize
        )


def _nominal(shape: tuple[int, ...], itemsize: int) -> int:
    for length in shape:
        itemsize *= length
    return itemsize


def dense_block(row: int, region: Region) -> Block:
    """One leaf that shares with nobody: dense, in the same order of dimensions, expanded ones expanded."""
    virtual = region.space[0] in ("meta", "freed")
    if region.is_empty:
        member = Member(row, 0, region.shape, region.strides, region.itemsize)
        return Block(region.space, 0, (member,), (), region.space[0] == "freed")
    strides = region.strides if region.is_dense else _dense_strides(region)
    backwards = sum((n - 1) * -s for n, s in zip(region.shape, strides, strict=True) if s < 0)
    member = Member(row, backwards, region.shape, strides, region.itemsize)
    source = _positive(region.unique)
    if virtual:
        moves: tuple[Move, ...] = ()
    else:
        kept = zip(region.shape, region.strides, strides, strict=True)
        new = tuple(abs(step) for n, s, step in kept if n != 1 and s != 0)
        moves = (Move(row, source.start, source.shape, source.strides, 0, new, region.itemsize),)
    return Block(region.space, source.nominal_bytes, (member,), moves, region.space[0] == "freed")


def span_block(rows: list[int], regions: list[Region], *, whole: bool) -> Block:
    """Leaves that share bytes: the layout of their span is kept, and who shares with whom."""
    space = regions[0].space
    low = min(region.span[0] for region in regions)
    high = max(region.span[1] for region in regions)
    if whole:
        storages = [r for r in regions if r.storage is not None]
        low = min([low, *(_start(r) for r in storages)])
        high = max([high, *(_start(r) + r.storage[1] for r in storages if r.storage)])
    low -= _padding(low, regions)
    members = tuple(
        Member(row, r.start - low, r.shape, r.strides, r.itemsize)
        for row, r in zip(rows, regions, strict=True)
    )
    virtual = space[0] in ("meta", "freed")
    moves = () if virtual else _moves(rows, regions, low, high, whole=whole)
    # torch.save counts a storage in items: it cannot read back one that ends inside of an item.
    items = max(region.itemsize for region in regions)
    nbytes = high - low if whole else -(-(high - low) // items) * items
    return Block(space, nbytes, members, moves, space[0] == "freed")


def _start(region: Region) -> int:
    return 0 if region.space[0] in ("meta", "freed") else region.storage_start


def _padding(low: int, regions: list[Region]) -> int:
    """Bytes to begin earlier, so that every member is aligned in the new block as it was."""
    for padding in range(16):
        if all((r.start - low + padding) % _unit(r) == 0 for r in regions):
            return padding
    return low % 16  # not all at once: members that are off are read byte by byte


def _unit(region: Region) -> int:
    return region.itemsize if region.itemsize in (1, 2, 4, 8, 16) else 1


def _moves(
    rows: list[int], regions: list[Region], low: int, high: int, *, whole: bool
) -> tuple[Move, ...]:
    """The fewest transfers that bring every reached byte and as few others as possible."""
    readable = [
        (r.storage_start, r.storage_start + r.storage[1]) if r.storage else r.span for r in regions
    ]
    first = min(region.span[0] for region in regions)
    if whole or count_reached(regions) == high - first:
        begin = first if not whole else min(start for start, _ in readable)
        for row, (start, stop) in zip(rows, readable, strict=True):
            if start <= begin and stop >= high:  # one storage holds all: one transfer
                return (_straight(row, begin, high, low),)
    moves: list[Move] = []
    reach = -1
    for row, region in sorted(
        zip(rows, regions, strict=True), key=lambda pair: (pair[1].span[0], -pair[1].span[1])
    ):
        begin, end = region.span
        if end <= reach or region.is_empty:
            continue
        if region.is_dense or region.repeats_itself:
            reach = max(reach, end) if region.is_dense and begin <= max(reach, begin) else reach
            moves.append(_straight(row, begin, end, low))
        else:
            unique = _positive(region.unique)
            moves.append(
                Move(
                    row,
                    unique.start,
                    unique.shape,
                    unique.strides,
                    unique.start - low,
                    unique.strides,
                    unique.itemsize,
                )
            )
    return tuple(moves)


def _straight(row: int, begin: int, end: int, low: int) -> Move:
    return Move(row, begin, (end - begin,), (1,), begin - low, (1,), 1)


def _positive(region: Region) -> Region:
    """The same bytes with every stride positive."""
    if all(stride >= 0 for stride in region.strides):
        return region
    return Region(
        region.space, region.span[0], region.shape, tuple(map(abs, region.strides)),
        region.itemsize, region.storage, region.storage_start, region.lazy,
    )  # fmt: skip


def _dense_strides(region: Region) -> tuple[int, ...]:
    """Dense strides in the order of dimensions that `clone` would give; torch is asked, without memory.

    Expanded dimensions stay so, and those that run backwards (numpy's) go on running backwards.
    """
    step = region.itemsize
    lengths = [n if s else 1 for n, s in zip(region.shape, region.strides, strict=True)]
    shaped = torch.empty_strided(
        lengths, [max(abs(s) // step, 1) for s in region.strides], device="meta"
    )
    dense = torch.empty_like(shaped).stride()
    return tuple(_sign(s) * n * step for s, n in zip(region.strides, dense, strict=True))


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
