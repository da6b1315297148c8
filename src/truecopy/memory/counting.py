"""How many bytes regions reach, alone, together and in common: each byte counted once."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from truecopy.memory.overlap import are_lazy_siblings, as_comb
from truecopy.memory.region import Region
from truecopy.memory.sweeps import Comb, Ints

_MOST_RUNS = 4_000_000
"""Stretches of bytes that are listed to count a union exactly; beyond, the count is None."""


def count_reached(regions: Iterable[Region], most_runs: int = _MOST_RUNS) -> int | None:
    """Bytes that at least one of the regions reaches, each counted once; None where too many pieces."""
    combs = {as_comb(region) for region in regions if not region.is_empty}
    if len(combs) == 1:
        (comb,) = combs
        if _is_plain(comb):
            return _nominal(comb)
    if sum(map(_pieces, combs)) > most_runs:
        return None
    return _union(np.concatenate([_runs(comb) for comb in combs])) if combs else 0


def count_common(a: Region, b: Region, most_runs: int = _MOST_RUNS) -> int | None:
    """Bytes that both regions reach; None where there are too many pieces to count."""
    if a.space != b.space or a.is_empty or b.is_empty or are_lazy_siblings(a, b):
        return 0
    one, two = as_comb(a), as_comb(b)
    if not one.steps and not two.steps:
        return max(min(one.end, two.end) - max(one.start, two.start), 0)
    if one == two or _covers(two, one):
        return count_reached([a], most_runs)
    if _covers(one, two):
        return count_reached([b], most_runs)
    counts = [count_reached(regions, most_runs) for regions in ([a], [b], [a, b])]
    mine, yours, both = counts
    return None if mine is None or yours is None or both is None else mine + yours - both


def are_identical(a: Region, b: Region) -> bool:
    """Whether two regions that share a byte reach the same bytes. False where that takes too long."""
    one, two = as_comb(a), as_comb(b)
    if one == two:
        return True
    if (one.start, one.end) != (two.start, two.end):
        return False
    if _is_plain(one) and _is_plain(two) and _nominal(one) != _nominal(two):
        return False
    counts = {count_reached(regions) for regions in ([a], [b], [a, b])}
    return len(counts) == 1 and None not in counts


def _covers(whole: Comb, part: Comb) -> bool:
    return not whole.steps and whole.start <= part.start and part.end <= whole.end


def _is_plain(comb: Comb) -> bool:
    """Whether each step clears what lies before it: then no byte is reached twice."""
    reach = comb.run
    for stride, count in comb.steps:
        if stride <= reach:
            return False
        reach += stride * (count - 1)
    return True


def _pieces(comb: Comb) -> int:
    return math.prod(count for _, count in comb.steps)


def _nominal(comb: Comb) -> int:
    """Bytes that the pieces would take, were none reached twice."""
    return _pieces(comb) * comb.run


def _runs(comb: Comb) -> Ints:
    """Start and end of every run of a comb."""
    starts = np.array([comb.start], np.int64)
    for stride, count in comb.steps:
        starts = (starts[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
    return np.stack((starts, starts + comb.run), axis=1)


def _union(runs: Ints) -> int:
    """Length of the union of intervals."""
    runs = runs[np.argsort(runs[:, 0], kind="stable")]
    reach = np.maximum.accumulate(runs[:, 1])
    before = np.concatenate((runs[:1, 0], reach[:-1]))
    return int(np.maximum(runs[:, 1] - np.maximum(runs[:, 0], before), 0).sum())
