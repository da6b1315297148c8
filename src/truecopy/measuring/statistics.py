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
    return _interval(float(np.median(values)), _resampled_medians(values, resamples, draw))


def difference(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], resamples: int = RESAMPLES
) -> Interval:
    """Median of `ours` less median of `theirs`, two runs that no rounds pair, with its interval."""
    draw = np.random.default_rng(_SEED)
    drawn = [_resampled_medians(values, resamples, draw) for values in (ours, theirs)]
    return _interval(float(np.median(ours) - np.median(theirs)), drawn[0] - drawn[1])


def _interval(middle: float, resampled: NDArray[np.float64]) -> Interval:
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(resampled, (tail, 100 - tail))
    return Interval(middle, float(low), float(high))


def _resampled_medians(
    values: NDArray[np.float64], count: int, draw: np.random.Generator
) -> NDArray[np.float64]:
    """Medians of `count` samples that are drawn from the values, with replacement.

    Picking n of n values is picking n places, uniform numbers in the sorted values, and of these only
    the middle one or two matter. The k-th smallest of n uniform numbers has a beta distribution, and
    the next is the smallest of those that are left: two draws instead of n.
    """
    ordered, n = np.sort(values), len(values)
    k = (n + 1) // 2
    lower = draw.beta(k, n + 1 - k, count)
    upper = lower if n % 2 else lower + (1 - lower) * draw.beta(1, n - k, count)
    picked = [ordered[np.minimum((place * n).astype(int), n - 1)] for place in (lower, upper)]
    medians: NDArray[np.float64] = (picked[0] + picked[1]) / 2
    return medians


def median(values: Sequence[float]) -> float:
    """The middle value: of times, whose high ones are other programs' doing."""
    return float(np.median(np.asarray(values, float)))


def ratio_of(log_ratio: float) -> float:
    """A log-ratio as the ratio that it is of."""
    return math.exp(log_ratio)
