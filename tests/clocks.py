"""A clock that tests wind themselves: every block takes about as long, whatever the machine does."""

import random
from collections.abc import Callable

from truecopy.measuring.clock import Usage


class SteadyClock:
    """Each block takes two milliseconds, give or take 1 %; a `factor` makes it another machine's."""

    def __init__(self, factor: float = 1.0, stops_after: float = float("inf")) -> None:
        self._noise = random.Random(7)
        self._factor = factor
        self._stops_after = stops_after
        self.seconds = 100.0

    def now(self) -> float:
        return self.seconds

    def time(self, body: Callable[[], None]) -> float:
        if self.seconds - 100 > self._stops_after:
            raise KeyboardInterrupt
        body()
        took = 2e-3 * self._factor * self._noise.lognormvariate(0, 0.01)
        self.seconds += took
        return took

    def usage(self) -> Usage:
        return Usage(0, 0.0)
