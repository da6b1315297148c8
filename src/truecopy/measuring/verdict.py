"""What may be said of a ratio: faster, slower, same, or that one cannot tell, and why not.

A difference is named only where its interval clears both 1 and the noise floor: what the reference
differs from itself, entered twice in the same rounds. `same` is named only where the interval lies
within SAME. What is left is `cannot tell`, with a reason and the cheapest remedy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from truecopy.measuring.statistics import RESAMPLES, Interval, interval, log_ratios, ratio_of

Word = Literal["faster", "slower", "same", "cannot tell"]
Reason = Literal["", "too-few-rounds", "noise-floor", "wide-interval", "at-the-edge"]

LEAST_ROUNDS = 20
SAME = 0.02
"""Ratios within 2 % of 1, either way, are the same for every purpose that we know of."""

REASONS: dict[str, str] = {
    "too-few-rounds": f"fewer than {LEAST_ROUNDS} rounds were measured: give it more time",
    "noise-floor": (
        "the reference differs from itself by as much in the same rounds: "
        "make the machine quiet, or give it more time"
    ),
    "wide-interval": "the interval reaches over 1 and beyond 2 %: give it more time",
    "at-the-edge": (
        "the interval lies on one side of 1, and neither within 2 % nor clear of the noise floor: "
        "give it more time"
    ),
}
"""What each reason code means, and the cheapest remedy."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What can be said of the time of one method over that of another."""

    word: Word
    ratio: float  # of times, over the reference's: above 1 is slower
    low: float
    high: float
    floor: float  # ratios from 1 / floor to floor are what the reference differs from itself
    rounds: int
    reason: Reason = ""

    @property
    def why(self) -> str:
        """The reason code in words, empty for a verdict that names something."""
        return REASONS.get(self.reason, "")

    def __str__(self) -> str:
        found = f"{self.word}: {self.ratio:.3f} times as long ({self.low:.3f} to {self.high:.3f})"
        found += f", noise floor {self.floor:.3f}, {self.rounds} rounds"
        return f"{found}; {self.why}" if self.why else found


def judge(
    times: Sequence[float],
    reference: Sequence[float],
    twin: Sequence[float],
    *,
    resamples: int = RESAMPLES,
) -> Verdict:
    """The verdict on `times`, paired round by round with the reference and with its twin."""
    # Not over the mean of the reference and its twin: times are skewed, and the mean of two lies above
    # the median of one, so that the reference itself would come out half a percent faster.
    found, floor = (interval(log_ratios(one, reference), resamples) for one in (times, twin))
    return judge_interval(found, floor.farthest, len(times))


def judge_interval(found: Interval, floor: float, rounds: int, *, same: float = SAME) -> Verdict:
    """The verdict on an interval of log-ratios, where the reference differs by `floor` from itself."""
    word, reason = _word(found, floor, rounds, math.log1p(same))
    return Verdict(
        word, ratio_of(found.middle), ratio_of(found.low), ratio_of(found.high),
        ratio_of(floor), rounds, reason,
    )  # fmt: skip


def _word(found: Interval, floor: float, rounds: int, same: float) -> tuple[Word, Reason]:
    if rounds < LEAST_ROUNDS:
        return "cannot tell", "too-few-rounds"
    if found.farthest <= same:
        return "same", ""
    if found.low > floor:
        return "slower", ""
    if found.high < -floor:
        return "faster", ""
    if floor > same and floor >= abs(found.middle):
        return "cannot tell", "noise-floor"
    if found.low <= 0 <= found.high:
        return "cannot tell", "wide-interval"
    return "cannot tell", "at-the-edge"


def is_decided(found: Verdict) -> bool:
    """Whether more rounds would hardly change what is said: both intervals are narrow.

    Never asks which word it is: stopping once a difference shows would show differences that are
    not there.
    """
    width = (math.log(found.high) - math.log(found.low)) / 2
    return found.rounds >= LEAST_ROUNDS and width + math.log(found.floor) <= math.log1p(SAME)
