"""Memory over all events of a run, in a bounded number of stretches: they join as the run gets longer."""

from __future__ import annotations

from truecopy.tracing.facts import Moment
from truecopy.tracing.record import MOST_MOMENTS
from truecopy.tracing.storages import Storages


class Timeline:
    """The stretches so far."""

    def __init__(self, memory: Storages) -> None:
        self._memory = memory
        self._stride = 1
        self._first = 0
        self.due = 0  # the event with which this stretch ends
        self.moments: list[Moment] = []

    def pass_by(self, event: int, copied: int, stop_ns: int) -> None:
        """The event has ended with which a stretch does."""
        memory = self._memory
        self.moments.append(
            Moment(self._first, event, memory.low, memory.high, copied, stop_ns, memory.high_owners)
        )
        self._first = event + 1
        memory.high = memory.low = memory.live
        memory.high_owners = tuple(memory.by_owner)
        if len(self.moments) >= 2 * MOST_MOMENTS:
            self.join()
        self.due = event + self._stride

    def join(self) -> None:
        """Two stretches become one, all along."""
        self._stride *= 2
        pairs = zip(self.moments[::2], self.moments[1::2], strict=False)
        odd = self.moments[-1:] if len(self.moments) % 2 else []
        self.moments = [*(_joined(a, b) for a, b in pairs), *odd]


def _joined(a: Moment, b: Moment) -> Moment:
    high = a if a.high_bytes >= b.high_bytes else b
    return Moment(
        a.first_event,
        b.last_event,
        min(a.low_bytes, b.low_bytes),
        high.high_bytes,
        b.copied_bytes,
        b.stop_ns,
        high.by_owner,
    )
