"""Telling many interleaved regions apart by sorting, without asking about pairs.

A region is a run of bytes repeated at steps. Where all steps are multiples of one number, two
regions whose runs do not meet modulo that number share no byte: the columns of a matrix differ
modulo its row. Filling the steps below a threshold makes a region larger, and what holds for larger
regions holds for these. With all steps filled, it is the sweep over spans.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]

_MOST_THRESHOLDS = 16
"""Steps that are tried as thresholds; a structure's views have few different ones."""


@dataclass(frozen=True, slots=True)
class Comb:
    """A run of bytes, repeated at steps: what `Region.canonical` tells, with the row it belongs to."""

    row: int
    start: int
    run: int
    steps: tuple[tuple[int, int], ...] = ()  # (stride, count), strides rising

    @property
    def end(self) -> int:
        """The byte after the last."""
        return self.start + self.run + sum(stride * (count - 1) for stride, count in self.steps)


def separate(combs: Sequence[Comb]) -> list[list[Comb]]:
    """Parts of two combs and more, such that no comb shares a byte with one of another part.

    Inside a part, combs may still be apart. Parts are sorted by address.
    """
    waiting, parts = [list(combs)], []
    while waiting:
        part = waiting.pop()
        pieces = _pieces(part)
        if len(pieces) > 1:
            waiting += [piece for piece in pieces if len(piece) > 1]
        elif len(part) > 1:
            parts.append(sorted(part, key=lambda comb: (comb.start, comb.row)))
    return parts


def separate_alike(starts: Ints, run: int, steps: Sequence[tuple[int, int]]) -> list[Ints]:
    """`separate` for combs that differ in their starts alone: parts of two and more, as places."""
    strides = sorted({stride for stride, _ in steps})
    waiting, parts = [np.arange(len(starts))], []
    while waiting:
        part = waiting.pop()
        for threshold in (math.inf, *strides):
            length = run + sum(s * (n - 1) for s, n in steps if s < threshold)
            labels = _labels(
                starts[part], length, math.gcd(*(s for s in strides if s >= threshold))
            )
            if labels is not None and labels.any():
                order = np.argsort(labels, kind="stable")
                ends = np.flatnonzero(np.diff(labels[order])) + 1
                waiting += [part[order[a:b]] for a, b in several(ends, len(part))]
                break
        else:
            parts.append(part)
    return parts


def several(cuts: Ints, length: int) -> list[tuple[int, int]]:
    """Begin and end of the stretches between cuts that hold two and more."""
    begins, ends = np.concatenate(([0], cuts)), np.append(cuts, length)
    many = ends - begins > 1
    return list(zip(begins[many].tolist(), ends[many].tolist(), strict=True))


def _labels(starts: Ints, length: int, modulus: int) -> Ints | None:
    """For each interval of one length, the group that it meets, 0 being the first; None if all meet."""
    if modulus:
        if length >= modulus:
            return None
        starts = starts % modulus
    order = np.argsort(starts, kind="stable")
    low = starts[order]
    labels: Ints = np.empty_like(starts)
    labels[order] = found = _runs(low, low + length, modulus)
    labels -= found.min()
    return labels


def _pieces(part: list[Comb]) -> list[list[Comb]]:
    """The part cut by the first threshold that cuts it, or whole."""
    strides = Counter(stride for comb in part for stride, _ in comb.steps)
    common = sorted(stride for stride, _ in strides.most_common(_MOST_THRESHOLDS))
    for threshold in (math.inf, *common):
        pieces = _cut(part, threshold)
        if len(pieces) > 1:
            return pieces
    return [part]


def _cut(part: list[Comb], threshold: float) -> list[list[Comb]]:
    """Runs of combs that meet modulo the divisor of all steps from the threshold on."""
    modulus, starts, lengths = 0, [], []
    for comb in part:
        length = comb.run
        for stride, count in comb.steps:
            if stride < threshold:
                length += stride * (count - 1)
            else:
                modulus = math.gcd(modulus, stride)
        starts.append(comb.start)
        lengths.append(length)
    low, long = np.array(starts, np.int64), np.array(lengths, np.int64)
    if modulus:
        if int(long.max()) >= modulus:
            return [part]
        low %= modulus
    order = np.argsort(low, kind="stable")
    labels = _runs(low[order], low[order] + long[order], modulus)
    cuts = np.flatnonzero(np.diff(labels)) + 1
    pieces = [[part[i] for i in piece] for piece in np.split(order, cuts)]
    if len(pieces) > 1 and labels[0] == labels[-1]:
        pieces[0] += pieces.pop()
    return pieces


def _runs(low: Ints, high: Ints, modulus: int) -> Ints:
    """A label for each interval, sorted by its start: the same where they meet, on a line or a circle."""
    reach = np.maximum.accumulate(high)
    labels = np.cumsum(np.concatenate(([0], low[1:] >= reach[:-1])))
    met = int(np.searchsorted(low, int(reach[-1]) - modulus)) if modulus else 0
    if met:  # what runs over the end meets what begins before the place where it stops
        labels[labels <= labels[met - 1]] = labels[-1]
    return labels
