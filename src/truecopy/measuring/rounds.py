"""Every method once in each round, in an order shuffled anew. Rounds are what pairs samples.

The reference enters twice, as itself and as its twin: what the two differ is the noise floor.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from truecopy.measuring.clock import Clock
from truecopy.measuring.regimes import MOST_HELD, Regime, give_back, settle

BLOCK_SECONDS = 1e-3
"""The least that a block of calls takes: ten thousand times what a clock of 100 ns can tell apart."""

_MOST_CALLS = 100_000

_ALIKE = 4

_CACHED = 64 << 20
"""Bytes of which a part may still be in some cache when the next block begins."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What takes part in a round: a name, and a call that copies once."""

    name: str
    call: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Round:
    """One sample of every entry, in the order of the entries: all of one call, the mean of its block."""

    ended: float  # seconds since the run began
    order: tuple[int, ...]  # places of the entries, as they were run
    seconds: tuple[float, ...]
    faults: tuple[float, ...]  # minor page faults
    system: tuple[float, ...]  # seconds in the kernel


@dataclass(frozen=True, slots=True)
class Blocks:
    """How samples of a cell are taken."""

    clock: Clock
    regime: Regime
    nbytes: int  # that one call writes: what a block of the fresh regime holds for each
    after: Callable[[int], None] = lambda _place: None  # called after each block, off the clock


def calibrate(entries: Sequence[Entry], how: Blocks) -> tuple[int, ...]:
    """Calls in one block of each entry, after a call to warm up.

    Entries about as fast as the reference get as many as it has: the first call of a block costs
    more than the next, so that blocks of one and of two calls differ by some percent in themselves.
    """
    own = [_calls(entry, place, how) for place, entry in enumerate(entries)]
    of_reference = max(calls for calls, _ in own[:2])
    seconds = own[0][1]
    return tuple(
        of_reference if seconds / _ALIKE <= one <= seconds * _ALIKE else calls for calls, one in own
    )


def _calls(entry: Entry, place: int, how: Blocks) -> tuple[int, float]:
    """Calls that take long enough together, and the seconds of one."""
    calls = 1
    most = _most_calls(how)
    _sample(entry, 1, how)
    while True:
        seconds = how.clock.time(_repeat(entry.call, calls, hold=how.regime == "fresh"))
        how.after(place)
        if seconds >= BLOCK_SECONDS or calls >= most:
            return calls, seconds / calls
        enough = math.ceil(calls * BLOCK_SECONDS / seconds * 1.2) if seconds > 0 else calls * 10
        calls = min(most, max(calls + 1, min(enough, calls * 10)))


def _most_calls(how: Blocks) -> int:
    if how.regime != "fresh":
        return _MOST_CALLS
    return max(1, min(_MOST_CALLS, MOST_HELD // max(how.nbytes, 1)))


def run_round(
    entries: Sequence[Entry],
    calls: Sequence[int],
    how: Blocks,
    order: random.Random,
    started: float = 0.0,
) -> Round:
    """One block of every entry, in an order that `order` shuffles."""
    places = list(range(len(entries)))
    order.shuffle(places)
    samples: dict[int, tuple[float, float, float]] = {}
    with _garbage_kept():
        for place in places:
            samples[place] = _sample(entries[place], calls[place], how)
            how.after(place)
    in_place = [samples[place] for place in range(len(entries))]
    seconds, faults, system = (tuple(map(_short, column)) for column in zip(*in_place, strict=True))
    return Round(_short(how.clock.now() - started), tuple(places), seconds, faults, system)


def _short(value: float) -> float:
    """As many digits as mean something: every sample is written down."""
    return float(f"{value:.6g}")


def _sample(entry: Entry, calls: int, how: Blocks) -> tuple[float, float, float]:
    """Seconds, faults and seconds in the kernel of one call."""
    fresh = how.regime == "fresh"
    if fresh:
        settle(calls * how.nbytes)
    elif how.nbytes <= _CACHED:
        entry.call()  # off the clock: what the method before left in the caches is not charged to this
    body = _repeat(entry.call, calls, hold=fresh)
    before = how.clock.usage()
    seconds = how.clock.time(body)
    after = how.clock.usage()
    del body  # and with it the outputs that it held
    if fresh:
        give_back()
    return (
        seconds / calls,
        (after.faults - before.faults) / calls,
        (after.system - before.system) / calls,
    )


def _repeat(call: Callable[[], Any], calls: int, *, hold: bool) -> Callable[[], None]:
    """A block: the call many times. With `hold`, outputs live as long as the block does."""
    held: list[Any] = []
    if hold:

        def holding() -> None:
            for _ in range(calls):
                held.append(call())  # noqa: PERF401 - as the other block is written

        return holding

    def dropping() -> None:
        for _ in range(calls):
            call()

    return dropping


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Collect before, and not inside: a collection would be charged to whoever comes next."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def objects_set_aside() -> Iterator[None]:
    """What lives already is left out of collections, which take a tenth of a second otherwise.

    Where somebody has frozen objects already, that stays as it is: one cannot unfreeze some of them.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
