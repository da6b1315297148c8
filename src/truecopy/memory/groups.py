"""Which of many values share memory: spans sorted once, exact tests only where spans interleave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.memory.joining import Joined, join
from truecopy.memory.reading import read
from truecopy.memory.region import CPU, Region, Unreadable
from truecopy.memory.sweeps import Comb, Ints, separate_alike, several
from truecopy.structure.walk import Walk


@dataclass(slots=True)
class Table:
    """The spans of many values, as columns. Rows whose region is more than its span are kept whole."""

    values: Sequence[Any]
    low: Ints
    high: Ints
    odd: dict[int, Region | Unreadable]
    run: int = 0  # where rows that are not odd have gaps, all in one way: bytes without a gap,
    steps: tuple[tuple[int, int], ...] = ()  # and what repeats them
    storages: Ints | None = None  # where the storages of bare rows begin, if it was read
    is_late: bool = False  # whether rows are copy-on-write is asked where spans touch

    def region(self, row: int) -> Region | Unreadable:
        """One row in full."""
        known = self.odd.get(row)
        return read(self.values[row]) if known is None else known

    def comb(self, row: int) -> Comb:
        """The bytes of one row that reaches memory."""
        low, high = int(self.low[row]), int(self.high[row])
        region = self.odd.get(row)
        if region is None and self.steps:
            return Comb(row, low, self.run, self.steps)
        if isinstance(region, Region) and not region.is_dense and region.span == (low, high):
            return Comb(row, *region.canonical)
        return Comb(row, low, high - low)


def tabulate(values: Sequence[Any], bare: Collection[int] = ()) -> Table:
    """Read address and length of each value once; rows known to be bare take the short way."""
    low, high = np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)
    table = Table(values, low, high, {})
    if len(bare) == len(values) > 0:
        with _torch.disable_torch_function():
            if _place_dense(table) and not _torch.any_copy_on_write(values):
                return table
    for row, value in enumerate(values):
        if row in bare and value.is_contiguous() and not _torch.is_copy_on_write(value):
            start, length = value.data_ptr(), value.nbytes
            if start or not length:
                low[row], high[row] = start, start + length
                continue
        table.odd[row] = region = read(value)
        if isinstance(region, Region):
            low[row], high[row] = region.span
    return table


def tabulate_to_compare(walked: Walk) -> Table:
    """`tabulate`, to find out who shares: what makes no difference to that is not read.

    Rows may have gaps, if all have the same, and may be copy-on-write, as long as they touch nobody.
    """
    values, count = walked.leaves, len(walked.leaves)
    table = Table(values, np.zeros(count, np.int64), np.zeros(count, np.int64), {}, is_late=True)
    if len(walked.bare) == count > 0:
        with _torch.disable_torch_function():
            if walked.alike == count and isinstance(first := read(values[0]), Region):
                _, table.run, table.steps = first.canonical
                length = np.full(count, first.span[1] - first.span[0], np.int64)
                if _place(table, length, *columns(values, STORAGE_ADDRESSES, OFFSETS)):
                    return table
            elif _place_dense(table):
                return table
    return tabulate(values, walked.bare)


def _place_dense(table: Table) -> bool:
    """Fill in where bare tensors lie; False where one is not dense, or its memory was freed."""
    dense, *numbers = columns(table.values, _IS_DENSE, LENGTHS, STORAGE_ADDRESSES, OFFSETS)
    return bool(dense.all()) and _place(table, *numbers)


def _place(table: Table, length: Ints, start: Ints, offset: Ints) -> bool:
    """Fill in where bare tensors of known length lie; False where the memory of one was freed."""
    if np.any((start == 0) & (length > 0)):
        return False
    if offset.any():
        offset *= columns(table.values, ITEMSIZES)[0]
    table.low, table.high, table.storages = start + offset, start + offset + length, start
    return True


Column = Callable[[Sequence[torch.Tensor]], Iterable[int]]
"""One number of each tensor, read in a C loop."""

ADDRESSES: Column = partial(map, _torch.address_as_is)
STORAGE_ADDRESSES: Column = partial(map, _torch.storage_address_as_is)
OFFSETS: Column = partial(map, torch.Tensor.storage_offset)
LENGTHS: Column = partial(map, attrgetter("nbytes"))
ITEMSIZES: Column = partial(map, attrgetter("itemsize"))
_IS_DENSE: Column = partial(map, torch.Tensor.is_contiguous)
_LAZY: Column = partial(map, _torch.is_copy_on_write_as_is)
_STORAGES = partial(map, torch.Tensor.untyped_storage)


def rooms(tensors: Sequence[torch.Tensor]) -> Iterable[int]:
    """The sizes of their storages."""
    return map(_torch.storage_bytes, _STORAGES(tensors))


_AT_ONCE = 4096
"""Tensors that are asked everything before the next: what they keep stays in the cache meanwhile."""


def columns(tensors: Sequence[torch.Tensor], *readers: Column) -> list[Ints]:
    """One array for each reader."""
    count = len(tensors)
    read = [np.empty(count, np.int64) for _ in readers]
    for start in range(0, count, _AT_ONCE):
        part = tensors[start : start + _AT_ONCE]
        for numbers, reader in zip(read, readers, strict=True):
            numbers[start : start + len(part)] = np.fromiter(reader(part), np.int64, len(part))
    return read


@dataclass(slots=True)
class Partition:
    """Rows of a table by alias group. Rows of length zero and unreadable rows stand alone."""

    table: Table
    shared: list[list[int]]  # groups of two rows and more, each in the order of the walk
    undecided: set[int]  # first rows of groups whose members are near, and no more is known

    def alone(self) -> list[int]:
        """Rows that share with nobody."""
        together = {row for group in self.shared for row in group}
        return [row for row in range(len(self.table.values)) if row not in together]


def partition(table: Table) -> Partition:
    """Group the rows that share at least one byte, directly or through others."""
    found = Partition(table, [], set())
    for rows in _by_space(table):
        clusters = _within_storages(table, _clusters(table, rows))
        if not table.odd and not table.steps:  # dense rows share where their spans touch
            found.shared += map(sorted, clusters)
        else:
            for cluster in clusters:
                _split(cluster, found)
    found.shared.sort(key=itemgetter(0))
    return found


def _by_space(table: Table) -> Iterator[Ints]:
    """Rows that reach memory, one array for each address space."""
    spaces: dict[Any, list[int]] = {}
    on_cpu = table.low < table.high
    spans = on_cpu.copy()
    for row, region in table.odd.items():
        if isinstance(region, Unreadable):
            on_cpu[row] = False
        elif region.space != CPU:
            on_cpu[row] = False
            if spans[row]:
                spaces.setdefault(region.space, []).append(row)
    yield np.flatnonzero(on_cpu)
    for rows in spaces.values():
        yield np.array(rows, np.int64)


def _clusters(table: Table, rows: Ints) -> list[list[int]]:
    """Runs of rows whose spans touch, of two rows and more, sorted by address."""
    if len(rows) < 2:
        return []
    rows = rows[np.argsort(table.low[rows], kind="stable")]
    low, reach = table.low[rows], np.maximum.accumulate(table.high[rows])
    cuts = np.flatnonzero(low[1:] >= reach[:-1]) + 1
    in_order = rows.tolist()
    clusters = [in_order[a:b] for a, b in several(cuts, len(rows))]
    if not table.steps or table.odd:
        return clusters
    return [part for cluster in clusters for part in _interleaved(table, np.array(cluster))]


def _interleaved(table: Table, cluster: Ints) -> Iterator[list[int]]:
    """What is left of a cluster whose rows differ in their starts alone, such as columns of a matrix."""
    for part in separate_alike(table.low[cluster], table.run, table.steps):
        yield cluster[part].tolist()


def _within_storages(table: Table, clusters: list[list[int]]) -> list[list[int]]:
    """The clusters, without rows that lie beyond a storage that was made smaller.

    The short way does not ask for the size of every storage. Here an answer hangs on it.
    """
    rows = list(chain.from_iterable(clusters))
    if table.odd:
        rows = [row for row in rows if row not in table.odd]
    with _torch.disable_torch_function():
        asked = _to_be_read(table, np.array(rows, np.int64), [table.values[row] for row in rows])
    for row in asked:
        table.odd[row] = region = read(table.values[row])
        if not isinstance(region, Region):
            table.low[row] = table.high[row] = 0
    beyond = [row for row in asked if not isinstance(table.odd[row], Region)]
    if not beyond:
        return clusters
    return _clusters(table, np.setdiff1d(np.concatenate(clusters), beyond))


def _to_be_read(table: Table, rows: Ints, tensors: list[torch.Tensor]) -> list[int]:
    """Which of some bare rows end beyond their storage, or are copy-on-write if nobody has asked."""
    known = table.storages
    starts = columns(tensors, STORAGE_ADDRESSES)[0] if known is None else known[rows]
    room, *lazy = columns(tensors, rooms, *([_LAZY] if table.is_late else []))
    found = table.high[rows] > starts + room
    for flags in lazy:
        found |= flags != 0
    asked: list[int] = rows[found].tolist()
    return asked


def _split(cluster: list[int], found: Partition) -> None:
    """Find the groups of one cluster of spans."""
    table = found.table
    if not table.steps and not any(row in table.odd for row in cluster):
        found.shared.append(sorted(cluster))
        return
    joined = Joined(cluster)
    undecided = [
        part[0]
        for rows in _comparable(table, cluster)
        for part in join([table.comb(row) for row in rows], joined)
    ]
    tops = {joined.top(row) for row in undecided}
    for top, group in joined.groups().items():
        if len(group) > 1:
            found.shared.append(sorted(group))
            if top in tops:
                found.undecided.add(min(group))


def _comparable(table: Table, cluster: list[int]) -> list[list[int]]:
    """The cluster, or several of it: copy-on-write storages at one address share with no other such."""
    lazy: dict[Any, list[int]] = {}
    for row in cluster:
        region = table.odd.get(row)
        if isinstance(region, Region) and region.lazy:
            lazy.setdefault(region.storage, []).append(row)
    if len(lazy) < 2:
        return [cluster]
    every = {row for rows in lazy.values() for row in rows}
    others = [row for row in cluster if row not in every]
    return [others, *([*others, *rows] for rows in lazy.values())]
