"""How time is taken, and what the kernel did meanwhile."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class Usage:
    """What the kernel counted for this process, all its threads together."""

    faults: int  # minor page faults: pages that were handed out
    system: float  # seconds spent in the kernel


class Clock(Protocol):
    """What measuring asks of the machine; tests pass one that they wind themselves."""

    def now(self) -> float:
        """Seconds since some moment; never runs backward."""

    def time(self, body: Callable[[], None]) -> float:
        """Seconds that `body` takes."""

    def usage(self) -> Usage:
        """The kernel's counts so far."""


class HostClock:
    """The wall clock of this machine, for work that is done when the call returns."""

    resolution = time.get_clock_info("perf_counter").resolution

    def now(self) -> float:
        return time.perf_counter()

    def time(self, body: Callable[[], None]) -> float:
        started = time.perf_counter()
        body()
        return time.perf_counter() - started

    def usage(self) -> Usage:
        counts = resource.getrusage(resource.RUSAGE_SELF)
        return Usage(counts.ru_minflt, counts.ru_stime)


class CudaClock(
    HostClock
):  # pragma: no cover - needs a device; said to be untested where it is used
    """The device's own events around a block: the queue stays filled, no call waits for its end."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def time(self, body: Callable[[], None]) -> float:
        with torch.cuda.device(self._device):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            body()
            after.record()
            after.synchronize()
            return float(before.elapsed_time(after)) / 1e3


def clock_of(device: str) -> Clock:
    """The clock that can time work on a device."""
    found = torch.device(device)
    return CudaClock(found) if found.type == "cuda" else HostClock()
