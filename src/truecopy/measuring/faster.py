"""`faster`: is A faster than B, on this input? The smallest use of the protocol."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from truecopy.copying.api import plan
from truecopy.measuring.clock import Clock, HostClock
from truecopy.measuring.regimes import Regime
from truecopy.measuring.rounds import Blocks, Entry, Round, calibrate, objects_set_aside, run_round
from truecopy.measuring.statistics import RESAMPLES
from truecopy.measuring.verdict import LEAST_ROUNDS, Verdict, is_decided, judge

T = TypeVar("T")

_LOOK_EVERY = 1.5
"""Rounds grow by this factor between two looks at whether they suffice."""


def faster(
    a: Callable[[T], Any],
    b: Callable[[T], Any],
    source: T,
    *,
    seconds: float = 10.0,
    regime: Regime = "recycled",
    threads: int | None = None,
    seed: int = 0,
    clock: Clock | None = None,
) -> Verdict:
    """Whether `a(source)` is faster than `b(source)`: one word, with the ratio of times and its interval.

    `faster`, `slower` and `same` are said of `a`, the ratio is its time over that of `b`; where neither
    can be said, `cannot tell`, with a reason. Takes at most `seconds`, and less once both intervals
    are narrow. Both are called many times: neither may change the source.

    Allocates what the two allocate, returns no view, says nothing of gradient, and waits for no device.

    >>> import torch
    >>> from truecopy.measuring.faster import faster
    >>> x = torch.zeros(1 << 20)
    >>> found = faster(torch.Tensor.detach, torch.clone, x, seconds=1)
    >>> found.ratio < 1
    True
    """
    clock = clock or HostClock()
    entries = [
        Entry("b", lambda: b(source)),
        Entry("its twin", lambda: b(source)),
        Entry("a", lambda: a(source)),
    ]
    how = Blocks(clock, regime, plan(source).nbytes)
    done: list[Round] = []
    ends = clock.now() + seconds
    with torch_threads(threads), objects_set_aside():
        calls = calibrate(entries, how)
        order, look = random.Random(seed), LEAST_ROUNDS
        took = 0.0
        while not done or clock.now() + took <= ends:
            began = clock.now()
            done.append(run_round(entries, calls, how, order))
            took = clock.now() - began
            if len(done) >= look:
                if is_decided(verdict_on(done, 2, resamples=500)):
                    break
                look = int(look * _LOOK_EVERY)
    return verdict_on(done, 2)


def verdict_on(rounds: Sequence[Round], place: int, *, resamples: int = RESAMPLES) -> Verdict:
    """The verdict on the entry at a place, where the reference is the first and its twin the second."""
    reference, twin, ours = ([one.seconds[at] for one in rounds] for at in (0, 1, place))
    return judge(ours, reference, twin, resamples=resamples)


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """A context in which torch computes with so many threads; None leaves them as they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
