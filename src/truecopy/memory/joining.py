"""Joining the regions of one cluster that share bytes: sweeps first, exact tests for what is left."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from truecopy.memory.overlap import arrays_overlap, comb_array
from truecopy.memory.sweeps import Comb, separate

_MOST_TESTS = 1_000_000
"""Exact tests in one cluster of spans, after which its groups say that they are not decided."""


class Joined:
    """Which rows belong together: the usual disjoint sets."""

    def __init__(self, rows: Iterable[int]) -> None:
        self._above = {row: row for row in rows}

    def top(self, row: int) -> int:
        """The row that stands for the group of `row`."""
        while (above := self._above[row]) != row:
            self._above[row] = row = self._above[above]
        return row

    def join(self, a: int, b: int) -> bool:
        """Put the groups of two rows together; whether they were apart."""
        a, b = self.top(a), self.top(b)
        self._above[b] = a
        return a != b

    def groups(self) -> dict[int, list[int]]:
        """Every group, by the row that stands for it."""
        found: dict[int, list[int]] = {}
        for row in self._above:
            found.setdefault(self.top(row), []).append(row)
        return found


@dataclass(slots=True)
class _Tests:
    """Exact tests, counted; each stand-in for numpy's solver is made once."""

    left: int
    arrays: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)

    def overlap(self, a: Comb, b: Comb) -> bool | None:
        self.left -= 1
        if self.left < 0:
            return None
        return arrays_overlap(self._array(a), self._array(b))

    def _array(self, comb: Comb) -> np.ndarray[Any, Any]:
        array = self.arrays.get(comb.row)
        if array is None:
            array = self.arrays[comb.row] = comb_array(comb)
        return array


def join(combs: list[Comb], joined: Joined) -> list[list[int]]:
    """Join the rows that share a byte. Returns the rows, joined as well, that could not be decided."""
    tests = _Tests(_MOST_TESTS)
    undecided: list[list[int]] = []
    for part in separate(combs):
        for left in _settle(part, joined, tests):
            rows = [comb.row for comb in left]
            for row in rows:
                joined.join(rows[0], row)
            undecided.append(rows)
    return undecided


def _settle(part: list[Comb], joined: Joined, tests: _Tests) -> list[list[Comb]]:
    """Decide one part that sweeps do not separate; returns what of it is left undecided."""
    dense = _join_dense([comb for comb in part if not comb.steps], joined)
    gappy = _join_twins([comb for comb in part if comb.steps], joined)
    if not _test_dense(dense, gappy, joined, tests):
        return [part]
    if len({joined.top(comb.row) for comb in (*dense, *gappy)}) == 1:
        return []
    return [left for left in separate(gappy) if not _test_pairs(left, joined, tests)]


def _join_dense(combs: list[Comb], joined: Joined) -> list[Comb]:
    """Join dense rows whose spans touch; returns the stretches that they cover, sorted and apart."""
    stretches: list[Comb] = []
    for comb in combs:
        last = stretches[-1] if stretches else comb
        if last is not comb and comb.start < last.end:
            joined.join(last.row, comb.row)
            end = max(last.end, comb.end)
            stretches[-1] = Comb(last.row, last.start, end - last.start)
        else:
            stretches.append(comb)
    return stretches


def _join_twins(combs: list[Comb], joined: Joined) -> list[Comb]:
    """Join rows that reach the very same bytes, as each is met; returns one of each kind."""
    first: dict[Any, Comb] = {}
    for comb in combs:
        joined.join(first.setdefault((comb.start, comb.run, comb.steps), comb).row, comb.row)
    return list(first.values())


def _test_dense(dense: list[Comb], gappy: list[Comb], joined: Joined, tests: _Tests) -> bool:
    """Join gappy rows with the dense stretches that they reach; False where that takes too many tests."""
    starts = [stretch.start for stretch in dense]
    ends = [stretch.end for stretch in dense]
    for comb in gappy:
        for place in range(bisect_right(ends, comb.start), len(dense)):
            if starts[place] >= comb.end:
                break
            if joined.top(comb.row) == joined.top(dense[place].row):
                continue
            answer = tests.overlap(comb, dense[place])
            if answer is None:
                return False
            if answer:
                joined.join(dense[place].row, comb.row)
    return True


def _test_pairs(combs: list[Comb], joined: Joined, tests: _Tests) -> bool:
    """Join gappy rows, sorted by address, pair by pair; False where that takes too many tests."""
    low = np.array([comb.start for comb in combs], np.int64)
    high = np.array([comb.end for comb in combs], np.int64)
    tops = np.array([joined.top(comb.row) for comb in combs], np.int64)
    stops = np.searchsorted(low, high).tolist()
    for place, comb in enumerate(combs):
        near = slice(place + 1, stops[place])
        for other in (np.flatnonzero(tops[near] != tops[place]) + place + 1).tolist():
            if tops[other] == tops[place]:
                continue
            answer = tests.overlap(comb, combs[other])
            if answer is None:
                return False
            if answer:
                joined.join(comb.row, combs[other].row)
                tops[tops == tops[other]] = tops[place]
    return True
