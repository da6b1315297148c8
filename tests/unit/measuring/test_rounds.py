"""The protocol by a clock that the tests wind: nothing here depends on how fast this machine is."""

import gc
import random
from collections.abc import Callable

import pytest
import torch

from truecopy.measuring.clock import Usage
from truecopy.measuring.faster import faster, torch_threads
from truecopy.measuring.rounds import (
    BLOCK_SECONDS,
    Blocks,
    Entry,
    calibrate,
    objects_set_aside,
    run_round,
)
from truecopy.measuring.verdict import LEAST_ROUNDS

pytestmark = pytest.mark.usefixtures("objects_frozen")


class FakeClock:
    """Time passes only where something says so."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.faults = 0

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds

    def now(self) -> float:
        return self.seconds

    def time(self, body: Callable[[], None]) -> float:
        before = self.seconds
        body()
        return self.seconds - before

    def usage(self) -> Usage:
        return Usage(self.faults, self.seconds / 2)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def entry(clock: FakeClock, name: str, seconds: float) -> Entry:
    return Entry(name, lambda: clock.pass_by(seconds))


def test_blocks_are_long_enough(clock: FakeClock) -> None:
    """Calls in a block are as many as take the least time, and one where one takes longer."""
    entries = [entry(clock, "a", 1e-6), entry(clock, "b", 3e-5), entry(clock, "c", 0.5)]
    calls = calibrate(entries, Blocks(clock, "recycled", 8))
    assert calls[0] * 1e-6 >= BLOCK_SECONDS * (1 - 1e-9)
    assert calls[1] * 3e-5 >= BLOCK_SECONDS * (1 - 1e-9)
    assert calls[2] == 1
    assert calls[0] * 1e-6 < 20 * BLOCK_SECONDS


def test_blocks_of_what_is_set_side_by_side_are_alike(clock: FakeClock) -> None:
    """Whoever is about as fast as the reference has as many calls: its first call weighs as much."""
    seconds = (5.1e-4, 5e-4, 9e-4, 2e-4, 1e-5, 0.1)
    entries = [entry(clock, str(i), one) for i, one in enumerate(seconds)]
    calls = calibrate(entries, Blocks(clock, "recycled", 8))
    assert calls[0] == calls[1] == calls[2] == calls[3]
    assert calls[4] > 4 * calls[0]
    assert calls[5] == 1


def test_a_call_that_takes_no_time_ends(clock: FakeClock) -> None:
    """A clock that shows nothing does not make the calibration go on for ever."""
    (calls,) = calibrate([entry(clock, "a", 0.0)], Blocks(clock, "recycled", 8))
    assert calls == 100_000


def test_a_round_has_every_entry_once(clock: FakeClock) -> None:
    """Samples stand in the order of the entries, whatever the order in which they were run."""
    entries = [entry(clock, str(i), (i + 1) * 0.01) for i in range(6)]
    orders = set()
    for seed in range(5):
        found = run_round(entries, [2] * 6, Blocks(clock, "recycled", 8), random.Random(seed))
        assert sorted(found.order) == list(range(6))
        assert found.seconds == pytest.approx([(i + 1) * 0.01 for i in range(6)])
        assert found.system == pytest.approx([(i + 1) * 0.005 for i in range(6)])
        orders.add(found.order)
    assert len(orders) > 1


def test_a_seed_gives_the_same_order(clock: FakeClock) -> None:
    """The order follows from the seed alone."""
    entries = [entry(clock, str(i), 0.01) for i in range(8)]
    orders = {
        run_round(entries, [1] * 8, Blocks(clock, "recycled", 8), random.Random("0:3:7")).order
        for _ in range(3)
    }
    assert len(orders) == 1


def test_fresh_blocks_hold_their_outputs_and_recycled_ones_do_not(clock: FakeClock) -> None:
    """Within a block of the fresh regime no output is freed; of the recycled one, each at once."""
    alive: list[int] = []

    class Output:
        count = 0

        def __init__(self) -> None:
            Output.count += 1

        def __del__(self) -> None:
            Output.count -= 1

    def call() -> Output:
        made = Output()
        alive.append(Output.count)
        clock.pass_by(1e-3)
        return made

    for regime, most in (("recycled", 1), ("fresh", 4)):
        alive.clear()
        run_round([Entry("a", call)], [4], Blocks(clock, regime, 8), random.Random(0))  # type: ignore[arg-type]
        assert max(alive) == most
        assert Output.count == 0


def test_garbage_is_collected_before_and_not_inside(clock: FakeClock) -> None:
    """The collector is off while blocks run, and as it was afterward."""
    on: list[bool] = []
    run_round(
        [Entry("a", lambda: on.append(gc.isenabled()))], [1],
        Blocks(clock, "recycled", 8), random.Random(0),
    )  # fmt: skip
    assert on
    assert not any(on)
    assert gc.isenabled()


def test_threads_are_as_they_were() -> None:
    """The number of torch's threads is set for a while only."""
    before = torch.get_num_threads()
    with torch_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("seconds", "word"), [(0.010, "same"), (0.0105, "slower"), (0.0095, "faster"), (0.02, "slower")]
)
def test_faster_finds_what_was_planted(clock: FakeClock, seconds: float, word: str) -> None:
    """Under noise of 2 % that the tests make, 5 % either way is named, and no difference is not."""
    noise = random.Random(1)

    def takes(mean: float) -> Callable[[torch.Tensor], None]:
        return lambda _: clock.pass_by(mean * noise.lognormvariate(0, 0.02))

    found = faster(takes(seconds), takes(0.010), torch.zeros(4), seconds=60, clock=clock)
    assert found.word == word
    assert found.ratio == pytest.approx(seconds / 0.010, rel=0.02)
    assert clock.seconds < 60


def test_faster_keeps_its_time(clock: FakeClock) -> None:
    """Where the noise lets nothing be decided, the time is used up, and not more."""
    noise = random.Random(1)

    def call(_: torch.Tensor) -> None:
        clock.pass_by(0.01 * noise.lognormvariate(0, 1))

    found = faster(call, call, torch.zeros(4), seconds=20, clock=clock)
    assert found.word == "cannot tell"
    assert found.rounds >= LEAST_ROUNDS
    assert 15 < clock.seconds <= 22


def test_too_little_time_is_said(clock: FakeClock) -> None:
    """One round is always made, and a verdict on fewer than twenty is none."""

    def call(_: torch.Tensor) -> None:
        clock.pass_by(1)

    found = faster(call, call, torch.zeros(4), seconds=5, clock=clock)
    assert (found.word, found.reason) == ("cannot tell", "too-few-rounds")


def test_who_has_frozen_objects_finds_them_frozen() -> None:
    """A program that froze its objects, as servers do before they fork, keeps them so."""
    before = gc.get_freeze_count()
    assert before
    with objects_set_aside():
        pass
    assert gc.get_freeze_count() == before
    gc.unfreeze()
    with objects_set_aside():
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()
