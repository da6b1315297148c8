"""One set of buffers: the bytes of all leaves, filled and put back as often as one likes.

In: an image. Out: its bytes, in memory that nobody else has. Many small leaves lie side by side in one
buffer and are moved as bytes, without a call to torch for each; large ones have a buffer each. Buffers
are taken from those that are there before any is allocated.
"""

from __future__ import annotations

import ctypes
import functools
import operator
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import torch

from truecopy import _torch
from truecopy.copying.blocks import Block, Member, Move
from truecopy.copying.leaves import integers_in, integers_of
from truecopy.copying.pages import advise
from truecopy.copying.transfer import Pair, transfer
from truecopy.errors import StructureMismatch
from truecopy.memory.groups import Table, partition, tabulate
from truecopy.memory.reading import read
from truecopy.memory.region import CPU, Region
from truecopy.snapshots.contents import Contents
from truecopy.snapshots.gathering import Gathering, stretches
from truecopy.snapshots.looking import Image, described
from truecopy.snapshots.random_state import RandomState
from truecopy.snapshots.sources import Keeping


@contextmanager
def quietly() -> Iterator[None]:
    """Outside of whatever mode the caller is in: bytes are moved, and nothing else happens."""
    with _torch.disable_torch_function(), torch.inference_mode(False), torch.no_grad():
        yield


SMALL = 256 << 10
"""Bytes below which moving them takes less than a call to torch does."""

_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Home:
    """Where the bytes of some leaves are kept."""

    base: torch.Tensor  # bytes; with `dtype`, elements of another type
    offset: int
    block: Block
    dtype: torch.dtype | None = None  # where the values were cast


@dataclass(slots=True)
class Arrangement:
    """Where the leaves of one image are kept, and the ways there and back."""

    image: Image
    homes: list[Home] = field(default_factory=list)
    small_rows: list[int] = field(default_factory=list)
    small_offsets: list[int] = field(default_factory=list)
    arena: torch.Tensor | None = None
    gathered: list[Gathering] = field(default_factory=list)  # the first of the small rows
    kept_bytes: list[memoryview] = field(default_factory=list)
    live_bytes: list[memoryview] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)  # kept, live
    fresh: list[Pair] = field(default_factory=list)  # those of them that nobody has touched yet
    buffers: list[torch.Tensor] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers."""
        return sum(buffer.nbytes for buffer in self.buffers)


@dataclass(slots=True)
class Kept:
    """What the sources held at one moment."""

    arrangement: Arrangement | None = None
    contents: list[Contents] = field(default_factory=list)
    hidden: list[tuple[int, Any]] = field(default_factory=list)  # drawer, state
    random: RandomState | None = None
    torn: str | None = None  # why it is not whole

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers."""
        return 0 if self.arrangement is None else self.arrangement.nbytes

    def fill(self, arrangement: Arrangement, contents: list[Contents], keeping: Keeping) -> None:
        """Take over what the sources hold. Until this returns, there is nothing whole here."""
        hidden = [
            (place, drawer.hidden.read(drawer.owner))
            for place, drawer in enumerate(arrangement.image.drawers)
            if drawer.hidden is not None and arrangement.image.chosen[place]
        ]
        random = RandomState.now() if keeping.rng else None
        self.torn = "an update was cut off while it wrote"
        _move_in(arrangement)
        self.arrangement, self.contents = arrangement, contents
        self.hidden, self.random = hidden, random
        self.torn = None


def _move_in(arrangement: Arrangement) -> None:
    for gathering in arrangement.gathered:
        gathering.fetch()
    move_bytes(arrangement.kept_bytes, arrangement.live_bytes)
    fresh, arrangement.fresh = arrangement.fresh, []
    if fresh:
        known = {id(kept) for kept, _ in fresh}
        transfer(fresh, fresh=True)
        transfer([pair for pair in arrangement.pairs if id(pair[0]) not in known])
    elif arrangement.pairs:
        transfer(arrangement.pairs)


def move_bytes(into: list[memoryview], sources: list[memoryview]) -> None:
    """Each into each, byte by byte."""
    if into:
        _drain(map(_SET, into, repeat(slice(None)), sources))


_SET: Callable[[Any, Any, Any], None] = operator.setitem
_drain = deque[None](maxlen=0).extend


# --- arranged ---------------------------------------------------------------------------------------


def arrange(image: Image, keeping: Keeping, old: Arrangement | None) -> Arrangement:
    """Find a home for every leaf, in the buffers of `old` where they fit. Writes nothing."""
    made = Arrangement(image)
    pool = _Pool([] if old is None else old.buffers)
    blocks = [_straightened(image, block) for block in image.layout.blocks if block.moves]
    for row in image.layout.plain:
        low, nbytes = int(image.layout.table.low[row]), image.leaves[row].nbytes
        if nbytes >= SMALL or not _stays_here(image.leaves[row], keeping):
            blocks.append(_plain_block(image, row, low, nbytes))
        elif nbytes:
            made.small_rows.append(row)
    _arrange_small(made, pool)
    for block in blocks:
        _arrange_block(made, block, keeping, pool)
    made.buffers = pool.taken
    return made


def _stays_here(leaf: torch.Tensor, keeping: Keeping) -> bool:
    """Whether a plain leaf, which is on the CPU, is kept there as it is."""
    elsewhere = keeping.device is not None and keeping.device.type != "cpu"
    return not elsewhere and not is_cast(leaf, keeping)


def is_cast(leaf: Any, keeping: Keeping) -> bool:
    """Whether a leaf is kept in another dtype than its own."""
    return (
        keeping.dtype is not None
        and isinstance(leaf, torch.Tensor)
        and leaf.is_floating_point()
        and leaf.dtype != keeping.dtype
    )


class _Pool:
    """Buffers that exist, by what they are; allocates where there is none."""

    def __init__(self, there: list[torch.Tensor]) -> None:
        self.free: dict[tuple[torch.device, int], list[torch.Tensor]] = {}
        for buffer in there:
            self.free.setdefault((buffer.device, buffer.nbytes), []).append(buffer)
        self.taken: list[torch.Tensor] = []

    def take(self, nbytes: int, device: torch.device) -> tuple[torch.Tensor, bool]:
        """A buffer of so many bytes, and whether it is fresh."""
        there = self.free.get((device, nbytes))
        buffer = there.pop() if there else None
        fresh = buffer is None
        if buffer is None:
            buffer = torch.empty(nbytes, dtype=torch.uint8, device=device)
        self.taken.append(buffer)
        return buffer, fresh


def _arrange_small(made: Arrangement, pool: _Pool) -> None:
    leaves = made.image.leaves
    addresses = [leaves[row].data_ptr() for row in made.small_rows]
    sizes = [leaves[row].nbytes for row in made.small_rows]
    together = list(stretches(addresses, sizes))
    first = [place for stretch in together for place in stretch]
    gathered = set(first)
    order = first + [place for place in range(len(sizes)) if place not in gathered]
    made.small_rows = [made.small_rows[place] for place in order]
    addresses, sizes = [addresses[place] for place in order], [sizes[place] for place in order]
    offset = 0
    for nbytes in sizes:
        made.small_offsets.append(offset)
        offset += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    if not offset:
        return
    made.arena, fresh = pool.take(offset, torch.device("cpu"))
    if fresh:
        advise([made.arena])
    whole, done = memoryview(made.arena.numpy().data), 0
    for stretch in together:
        start, done = done, done + len(stretch)
        room = sum(sizes[start:done])
        kept = whole[made.small_offsets[start] :][:room]
        made.gathered.append(Gathering.of(addresses[start:done], sizes[start:done], kept))
    for address, start, nbytes in zip(
        addresses[done:], made.small_offsets[done:], sizes[done:], strict=True
    ):
        made.kept_bytes.append(whole[start : start + nbytes])
        made.live_bytes.append(_bytes_at(address, nbytes))


@functools.lru_cache(maxsize=4096)
def _array_type(nbytes: int) -> Any:
    return ctypes.c_char * nbytes


def _bytes_at(address: int, nbytes: int) -> memoryview:
    """Memory of this process as bytes, without a word to torch: `numpy()` would forbid it to resize."""
    return memoryview(_array_type(nbytes).from_address(address)).cast("B")


def _arrange_block(made: Arrangement, block: Block, keeping: Keeping, pool: _Pool) -> None:
    leaf = made.image.leaves[block.members[0].row]
    device = keeping.device or (
        leaf.device if isinstance(leaf, torch.Tensor) else torch.device("cpu")
    )
    if is_cast(leaf, keeping) and (straight := _one_dtype(made.image, block)) is not None:
        assert keeping.dtype is not None
        count = block.nbytes // leaf.itemsize
        base, fresh = pool.take(count * keeping.dtype.itemsize, device)
        home = Home(base, 0, block, keeping.dtype)
        live = integers_of(made.image.leaves[straight.row], straight).view(-1).view(leaf.dtype)
        pairs = [(base.view(keeping.dtype), live)]
    else:
        base, fresh = pool.take(block.nbytes, device)
        if fresh and not block.is_filled:
            base.zero_()
            fresh = False
        home = Home(base, 0, block)
        pairs = [
            (integers_in(base, move), integers_of(made.image.leaves[move.row], move))
            for move in block.moves
        ]
    made.homes.append(home)
    made.pairs += pairs
    if fresh:
        made.fresh += pairs


def _one_dtype(image: Image, block: Block) -> Move | None:
    """The one transfer of a block whose members all have one dtype, so that it can be cast."""
    leaves = [image.leaves[member.row] for member in block.members]
    dtypes = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)}
    whole = len(block.moves) == 1 and len(dtypes) == 1
    if not whole or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return None
    (move,), itemsize = block.moves, leaves[0].itemsize
    numbers = (move.start, *(m.offset for m in block.members))
    straight = move.strides in ((1,), (itemsize,)) and move.source_strides == move.strides
    fits = move.offset == 0 and not any(number % itemsize for number in numbers)
    return move if straight and fits and block.nbytes % itemsize == 0 else None


def _plain_block(image: Image, row: int, low: int, nbytes: int) -> Block:
    """A contiguous leaf by itself. By what was found: its strides may be others by now."""
    _, dtype, shape, _, _ = image.described_as[row]
    strides, step = [], dtype.itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    member = Member(row, 0, tuple(shape), tuple(reversed(strides)), dtype.itemsize)
    return Block(CPU, nbytes, (member,), (Move(row, low, (nbytes,), (1,), 0, (1,), 1),))


def _straightened(image: Image, block: Block) -> Block:
    """A block of one dense leaf, in whatever order of dimensions, moves as one run of bytes."""
    if len(block.members) != 1 or block.freed:
        return block
    (member,) = block.members
    region = image.layout.table.region(member.row)
    if not isinstance(region, Region) or not region.is_dense or member.strides != region.strides:
        return block
    low, high = region.span
    if high - low != block.nbytes:
        return block
    move = Move(member.row, low, (high - low,), (1,), 0, (1,), 1)
    return Block(block.space, block.nbytes, block.members, (move,))


# --- put back ---------------------------------------------------------------------------------------


def way_back(arrangement: Arrangement) -> Callable[[], None]:
    """How bytes and flags go back into the leaves; StructureMismatch, naming all, where they cannot."""
    image = arrangement.image
    if image.memory_is_the_same() and all(type(lazy) is then for lazy, then in image.lazy):
        return lambda: _straight_back(arrangement)
    _refuse_other_memory(image)
    pairs = [
        (live, kept)
        for row, home, member in members(arrangement)
        for live, kept in [_member_pair(image, row, home, member)]
    ]

    def move() -> None:
        transfer(pairs)
        _put_back_flags(image)

    return move


def _put_back_flags(image: Image) -> None:
    """`requires_grad`, which is as it was where the description of all leaves still holds."""
    for tensor, flag in zip(image.tensors, image.requires_grad, strict=True):
        if tensor.is_leaf and tensor.requires_grad != flag:
            tensor.requires_grad_(flag)


def _straight_back(arrangement: Arrangement) -> None:
    for gathering in arrangement.gathered:
        gathering.bring_back()
    move_bytes(arrangement.live_bytes, arrangement.kept_bytes)
    if arrangement.pairs:
        transfer([(live, kept) for kept, live in arrangement.pairs])


def members(arrangement: Arrangement) -> Iterator[tuple[int, Home, Member]]:
    """Each leaf with its home, and where it lies in it."""
    image = arrangement.image
    for row, offset in zip(arrangement.small_rows, arrangement.small_offsets, strict=True):
        assert arrangement.arena is not None
        low, high = int(image.layout.table.low[row]), int(image.layout.table.high[row])
        block = _plain_block(image, row, low, high - low)
        yield row, Home(arrangement.arena, offset, block), block.members[0]
    for home in arrangement.homes:
        for member in home.block.members:
            yield member.row, home, member


def _member_pair(image: Image, row: int, home: Home, member: Member) -> Pair:
    """One leaf where it is now, and where it is kept, as integers of one size."""
    leaf = image.leaves[row]
    if home.dtype is not None:
        return leaf.detach(), typed_member(home, member)
    move = member_move(leaf, home, member)
    return integers_of(leaf, move), integers_in(home.base, move)


def member_move(leaf: Any, home: Home, member: Member) -> Move:
    """A leaf's own bytes, where they are now and where they are kept; repeated dimensions aside."""
    region = read(leaf)
    assert isinstance(region, Region)
    kept = [
        (length, live, own)
        for length, live, own in zip(member.shape, region.strides, member.strides, strict=True)
        if length != 1 and not live == own == 0
    ]
    back = sum((n - 1) * live for n, live, _ in kept if live < 0)
    own_back = sum((n - 1) * own for n, _, own in kept if own < 0)
    return Move(
        member.row, region.start + back, tuple(n for n, _, _ in kept),
        tuple(abs(live) for _, live, _ in kept), home.offset + member.offset + own_back,
        tuple(abs(own) for _, _, own in kept), member.itemsize,
    )  # fmt: skip


def typed_member(home: Home, member: Member) -> torch.Tensor:
    """One leaf as it is kept, with its shape, in the dtype that it is kept in."""
    strides = tuple(stride // member.itemsize for stride in member.strides)
    assert home.dtype is not None
    typed = home.base.view(home.dtype)
    return typed.as_strided(member.shape, strides, member.offset // member.itemsize)


# --- what must be as it was -------------------------------------------------------------------------

Wrong = tuple[str, str, str]
"""A path, what was expected there, and what is there."""


def _refuse_other_memory(image: Image) -> None:
    """Name every leaf that is no longer what it was, or that lies otherwise beside the others."""
    wrong = [
        (image.path(row), _shown(old), _shown(new))
        for row, (leaf, old) in enumerate(zip(image.leaves, image.described_as, strict=True))
        if (new := described(leaf)) != old
    ]
    wrong += [
        (str(image.path_of(tensor)), f"a {then.__name__}", f"a {type(tensor).__name__}")
        for tensor, then in image.lazy
        if type(tensor) is not then
    ]
    refuse(wrong or list(_other_sharing(image)), "cannot be restored; nothing was written")


def _shown(about: tuple[Any, ...]) -> str:
    kind, dtype, shape, device, room = about
    freed = "" if room else ", its memory freed"
    return f"{kind} of {dtype} and shape {tuple(shape)} on {device}{freed}"


def _other_sharing(image: Image) -> Iterator[Wrong]:
    """Leaves that shared memory and no longer do, or share it and did not."""
    then, now = image.layout.table, tabulate(image.leaves)
    groups = [{_group(table, group) for group in partition(table).shared} for table in (then, now)]
    for group in sorted(groups[0] ^ groups[1]):
        first, *rest = (row for row, _, _ in group)
        others = ", ".join(image.path(row) for row in rest[:4])
        shared, apart = f"memory shared with {others}", f"memory apart from {others}"
        yield (image.path(first), *((shared, apart) if group in groups[0] else (apart, shared)))


def _group(table: Table, rows: list[int]) -> tuple[tuple[int, int, int], ...]:
    first = int(table.low[rows[0]])
    return tuple((row, int(table.low[row]) - first, int(table.high[row]) - first) for row in rows)


def refuse(wrong: list[Wrong], what: str) -> None:
    """Raise one error that names all that is wrong, if anything is."""
    if not wrong:
        return
    where, expected, got = wrong[0]
    more = "".join(f"; {path}: expected {e}, got {g}" for path, e, g in wrong[1:])
    raise StructureMismatch(
        what, where=where, expected=expected, got=got + more,
        way_out="Call update() to follow the sources as they are now",
    )  # fmt: skip
