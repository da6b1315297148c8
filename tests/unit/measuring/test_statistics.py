"""Statistics on made samples: no clock is asked here."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from truecopy.measuring.statistics import _resampled_medians, difference, interval, log_ratios
from truecopy.measuring.verdict import LEAST_ROUNDS, SAME, is_decided, judge

SEEDS = st.integers(0, 10_000)


def drawn(seed: int, scale: float, noise: float, rounds: int = 60) -> list[float]:
    """Times of one method: log-normal noise around `scale`."""
    return list(scale * np.exp(np.random.default_rng(seed).normal(0, noise, rounds)))


@given(
    st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=50), st.floats(1e-6, 1e6)
)  # fmt: skip
def test_a_common_factor_is_found_exactly(times: list[float], factor: float) -> None:
    """A method that always takes `factor` times as long has that ratio, and an interval of no width."""
    found = interval(log_ratios([t * factor for t in times], times), 100)
    assert math.isclose(found.middle, math.log(factor), abs_tol=1e-9)
    assert found.half_width < 1e-9


@given(SEEDS)
def test_an_interval_holds_its_middle(seed: int) -> None:
    """The median lies in its own interval, and the same samples have the same interval."""
    values = np.random.default_rng(seed).normal(0, 1, 25)
    found = interval(values, 300)
    assert found.low <= found.middle <= found.high
    assert found == interval(values, 300)


def test_intervals_cover_the_truth() -> None:
    """Of 300 intervals on 40 rounds, nearly as many as promised hold the true ratio."""
    covered = 0
    for seed in range(300):
        found = interval(np.random.default_rng(seed).standard_t(3, 40), 300)
        covered += found.low <= 0 <= found.high
    assert covered >= 0.92 * 300


def test_a_difference_of_two_runs_covers_the_truth() -> None:
    """The same for two runs that nothing pairs, of different lengths."""
    covered = 0
    for seed in range(300):
        draw = np.random.default_rng(seed)
        found = difference(draw.normal(0.3, 1, 40), draw.normal(0, 1, 25), 300)
        covered += found.low <= 0.3 <= found.high
    assert covered >= 0.92 * 300


def test_resampled_medians_are_those_of_drawing_every_value() -> None:
    """Two draws for the middle stand for n: the same distribution as brute force, n odd or even."""
    for n in (1, 2, 3, 20, 21):
        draw = np.random.default_rng(n)
        values = draw.normal(0, 1, n)
        brute = np.median(values[draw.integers(0, n, (40_000, n))], axis=1)
        levels = (5, 25, 50, 75, 95)
        found = np.percentile(_resampled_medians(values, 40_000, draw), levels)
        # Values are discrete where n is odd: a level may fall between two of them.
        near = [np.percentile(brute, (level - 1, level + 1)) for level in levels]
        assert all(low <= one <= high for one, (low, high) in zip(found, near, strict=True))


def test_a_reference_is_not_told_apart_from_itself() -> None:
    """A/A: of 200 runs none names a difference, whatever the noise."""
    for seed in range(200):
        times, reference, twin = (drawn(3 * seed + i, 1, 0.01 * (1 + seed % 20)) for i in range(3))
        assert judge(times, reference, twin, resamples=200).word in ("same", "cannot tell")


def test_a_planted_slowdown_is_found() -> None:
    """5 % under noise of 3 % is found in 60 rounds, in both directions, nearly always."""
    found = []
    for seed in range(50):
        times, reference, twin = (
            drawn(1000 + 3 * seed + i, s, 0.03) for i, s in enumerate((1.05, 1, 1))
        )
        found.append(judge(times, reference, twin, resamples=200).word)
        swapped = judge(reference, times, drawn(5000 + seed, 1.05, 0.03), resamples=200)
        found.append(swapped.word)
    assert found[::2].count("slower") >= 48
    assert found[1::2].count("faster") >= 48


def test_noise_that_all_meet_cancels() -> None:
    """A machine that slows down by ten during the run changes no verdict: rounds pair the samples."""
    drift = np.geomspace(1, 10, 60)
    times, reference, twin = (
        list(drift * drawn(i, s, 0.01)) for i, s in enumerate((1.1, 1.0, 1.0))
    )
    assert judge(times, reference, twin).word == "slower"


@given(SEEDS, st.floats(0.9, 1.1), st.floats(0, 0.1), st.integers(1, 60))
def test_what_is_said_can_be_said(seed: int, scale: float, noise: float, rounds: int) -> None:
    """Each word keeps its promise about the interval, and a reason stands beside every doubt alone."""
    found = judge(
        drawn(seed, scale, noise, rounds),
        drawn(seed + 1, 1, noise, rounds),
        drawn(seed + 2, 1, noise, rounds),
        resamples=100,
    )
    assert (found.word == "cannot tell") == bool(found.reason) == bool(found.why)
    match found.word:
        case "slower":
            assert found.low > found.floor >= 1
        case "faster":
            assert found.high < 1 / found.floor <= 1
        case "same":
            assert found.low * (1 + SAME) >= 1 - 1e-12
            assert found.high <= 1 + SAME + 1e-12
    assert (found.reason == "too-few-rounds") == (rounds < LEAST_ROUNDS)


def test_skewed_times_make_no_bias() -> None:
    """Times that are seldom short and often long, as times are, do not make one of two equals the faster."""
    draw = np.random.default_rng(3)
    one, two, three = (1 + draw.exponential(0.1, 20_000) for _ in range(3))
    assert abs(judge(list(one), list(two), list(three)).ratio - 1) < 0.002


def test_a_difference_below_the_floor_is_not_named() -> None:
    """Where the reference differs from itself by 10 %, 8 % is nothing, and the reason says so."""
    reference = drawn(1, 1, 0.001)
    found = judge([t * 1.08 for t in reference], reference, [t * 1.1 for t in reference])
    assert (found.word, found.reason) == ("cannot tell", "noise-floor")


def test_stopping_asks_for_narrow_intervals_only() -> None:
    """A large difference under large noise goes on; a small one under small noise may stop."""
    loud = judge(drawn(1, 2, 0.3), drawn(2, 1, 0.3), drawn(3, 1, 0.3))
    calm = judge(drawn(1, 1, 0.001), drawn(2, 1, 0.001), drawn(3, 1, 0.001))
    assert loud.word == "slower"
    assert not is_decided(loud)
    assert is_decided(calm)
