"""The ratio of two methods, with an interval: medians of paired log-ratios, resampled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
CONFIDENCE = 0.95
_SEED = 20_260_804  # of the resampling alone: one set of samples has one interval


@dataclass(frozen=True, slots=True)
class Interval:
    """A median of log-ratios, and where it lies in 95 of 100 resamplings."""

    middle: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def farthest(self) -> float:
        """The distance from 0 of its farther end: nothing within is told apart from no difference."""
        return max(abs(self.low), abs(self.high))


def log_ratios(times: Sequence[float], of: Sequence[float]) -> NDArray[np.float64]:
    """One log-ratio for each round: what both met in a round, both pay for."""
    ratios: NDArray[np.float64] = np.log(np.asarray(times, float) / np.asarray(of, float))
    return ratios


def interval(values: NDArray[np.float64], resamples: int = RESAMPLES) -> Interval:
    """Median of the values with its bootstrap interval; the same for the same values."""
    draw = np.random.default_rng(_SEED)
    medians = np.concatenate(
        [_resampled_medians(values, part, draw) for part in _parts(resamples, len(values))]
    )
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(medians, (tail, 100 - tail))
    return Interval(float(np.median(values)), float(low), float(high))


def _resampled_medians(
    values: NDArray[np.float64], count: int, draw: np.random.Generator
) -> NDArray[np.float64]:
    picked = draw.integers(0, len(values), (count, len(values)))
    medians: NDArray[np.float64] = np.median(values[picked], axis=1)
    return medians


def _parts(resamples: int, length: int, most: int = 1 << 20) -> list[int]:
    """Resamplings in parts that take little memory, however many rounds there were."""
    each = max(1, most // max(length, 1))
    return [min(each, resamples - done) for done in range(0, resamples, each)]


def difference(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], resamples: int = RESAMPLES
) -> Interval:
    """Median of `ours` less median of `theirs`, two runs that no rounds pair, with its interval."""
    draw = np.random.default_rng(_SEED)
    drawn = [
        np.concatenate([_resampled_medians(v, part, draw) for part in _parts(resamples, len(v))])
        for v in (ours, theirs)
    ]
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(drawn[0] - drawn[1], (tail, 100 - tail))
    return Interval(float(np.median(ours) - np.median(theirs)), float(low), float(high))


def median(values: Sequence[float]) -> float:
    """The middle value: of times, whose high ones are other programs' doing."""
    return float(np.median(np.asarray(values, float)))


def ratio_of(log_ratio: float) -> float:
    """A log-ratio as the ratio that it is of."""
    return math.exp(log_ratio)
