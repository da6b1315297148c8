"""The profiler around a run: one at a time, and its noise kept away."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd.profiler import profile, record_function

from truecopy import _torch
from truecopy.errors import UsageError

STEP = "truecopy.step "
"""What stands in the profile where an iteration begins or ends that the program marks."""


def mark(what: str) -> None:
    """Note in the profile that an iteration begins, or ends."""
    with record_function(f"{STEP}{what}"):  # a range around all of it would not be around it there
        pass


class Profiling:
    """torch's profiler, with shapes, memory and stacks, from `start` to `stop`.

    The one below `torch.profiler.profile`, which would import the compiler for its settings.
    """

    def __init__(self) -> None:
        self._profile: profile | None = None

    def start(self) -> None:
        """Begin. Raises UsageError where something is on that cannot be on with a profiler."""
        if _torch.profiler_is_on():
            raise UsageError(
                "a profiler is running, and torch has one for a thread",
                way_out="End it before the block, or leave out exact=: the default tier needs none",
            )
        if sys.getprofile() is not None:
            raise UsageError(
                "Python's profile function is set, by cProfile or the like, and torch takes its place",
                way_out="End it before the block, or leave out exact=: the default tier needs none",
            )
        self._profile = profile(
            use_kineto=True,
            record_shapes=True,
            profile_memory=True,
            with_stack=True,
        )
        with _quiet():
            self._profile.__enter__()

    def stop(self) -> profile:
        """End, and hand the profile over."""
        ended, self._profile = self._profile, None
        assert ended is not None, "it was started"
        if not _torch.profiler_is_on():
            raise UsageError(
                "the program ran a profiler of its own, which ended ours: nothing is known of the run",
                way_out="Leave out its profiler, or exact=: the default tier needs none",
            )
        with _quiet():
            ended.__exit__(None, None, None)
        return ended


@contextmanager
def _quiet() -> Iterator[Any]:
    """Keep away the lines that the profiler's own log writes where nobody has set how much it says."""
    if _LEVEL in os.environ:
        yield
        return
    os.environ[_LEVEL] = "99"
    try:
        yield
    finally:
        os.environ.pop(_LEVEL, None)


_LEVEL = "KINETO_LOG_LEVEL"
