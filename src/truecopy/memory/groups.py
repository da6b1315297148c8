"""Which of many values share memory: spans sorted once, exact tests only where spans interleave."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.memory.joining import Joined, join
from truecopy.memory.reading import fits_storage, read
from truecopy.memory.region import CPU, Region, Unreadable
from truecopy.memory.sweeps import Comb, Ints


@dataclass(slots=True)
class Table:
    """The spans of many values, as columns. Rows whose region is more than its span are kept whole."""

    values: Sequence[Any]
    low: Ints
    high: Ints
    odd: dict[int, Region | Unreadable]

    def region(self, row: int) -> Region | Unreadable:
        """One row in full."""
        known = self.odd.get(row)
        return read(self.values[row]) if known is None else known

    def comb(self, row: int) -> Comb:
        """The bytes of one row that reaches memory."""
        low, high = int(self.low[row]), int(self.high[row])
        region = self.odd.get(row)
        if isinstance(region, Region) and not region.is_dense and region.span == (low, high):
            return Comb(row, *region.canonical)
        return Comb(row, low, high - low)


def tabulate(values: Sequence[Any], bare: Collection[int] = ()) -> Table:
    """Read address and length of each value once; rows known to be bare take the short way."""
    low, high = np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)
    table = Table(values, low, high, {})
    if len(bare) == len(values) > 0 and (spans := _dense_spans(values)) is not None:
        table.low, table.high = spans
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


def _dense_spans(tensors: Sequence[torch.Tensor]) -> tuple[Ints, Ints] | None:
    """The spans of bare tensors, column by column in C loops; None if one is not dense."""
    if not all(map(torch.Tensor.is_contiguous, tensors)) or _torch.any_copy_on_write(tensors):
        return None
    start = np.fromiter(map(torch.Tensor.data_ptr, tensors), np.int64, len(tensors))
    length = np.fromiter([tensor.nbytes for tensor in tensors], np.int64, len(tensors))
    if np.any((start == 0) & (length > 0)):  # a storage whose memory was freed
        return None
    return start, start + length


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
        for cluster in _within_storages(table, _clusters(table, rows)):
            _split(cluster.tolist(), found)
    found.shared.sort(key=lambda group: group[0])
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


def _clusters(table: Table, rows: Ints) -> list[Ints]:
    """Runs of rows whose spans touch, of two rows and more, sorted by address."""
    if len(rows) < 2:
        return []
    rows = rows[np.argsort(table.low[rows], kind="stable")]
    low, reach = table.low[rows], np.maximum.accumulate(table.high[rows])
    starts = np.flatnonzero(np.concatenate(([True], low[1:] >= reach[:-1])))
    ends = np.append(starts[1:], len(rows))
    several = ends - starts > 1
    return [rows[a:b] for a, b in zip(starts[several], ends[several], strict=True)]


def _within_storages(table: Table, clusters: list[Ints]) -> list[Ints]:
    """The clusters, without rows that lie beyond a storage that was made smaller.

    The short way does not ask for the size of every storage. Here an answer hangs on it.
    """
    beyond = [
        row
        for cluster in clusters
        for row in cluster.tolist()
        if row not in table.odd and not fits_storage(table.values[row])
    ]
    if not beyond:
        return clusters
    for row in beyond:
        table.odd[row] = read(table.values[row])
        table.low[row] = table.high[row] = 0
    kept = np.setdiff1d(np.concatenate(clusters), beyond)
    return _clusters(table, kept)


def _split(cluster: list[int], found: Partition) -> None:
    """Find the groups of one cluster of spans."""
    table = found.table
    if not any(row in table.odd for row in cluster):  # dense rows share where their spans touch
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
