"""One run under the profiler, from its beginning to what was observed of it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from torch import nn
from torch.autograd.profiler import profile

from truecopy import _torch
from truecopy.tracing.blind import Blind
from truecopy.tracing.building import Observed
from truecopy.tracing.exact.copying import SHAPING
from truecopy.tracing.exact.kinship import Kinship
from truecopy.tracing.exact.profiling import Profiling, mark
from truecopy.tracing.exact.replay import Replay
from truecopy.tracing.exact.tree import Told, read
from truecopy.tracing.facts import Unseen
from truecopy.tracing.survivors import find_survivors


class ExactRun:
    """A run that torch's profiler writes down."""

    def __init__(self) -> None:
        self._profiling = Profiling()
        self._blind = Blind()

    def open(self) -> None:
        """Begin."""
        self._profiling.start()
        self._blind.open()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Mark one iteration."""
        mark("begin")
        try:
            yield
        finally:
            mark("end")

    def close(self, name: str, opener: CodeType | None, ended: str) -> Observed:
        """End, and go through what was written down."""
        self._blind.close()
        written = self._profiling.stop()
        with _torch.disable_torch_function(), _torch.no_modes(), _without_collection():
            roots, told = read(_torch.profiled_tree(written))
            replay = Replay(opener, Kinship(roots, told), _paths(told), _shapes(written))
            ledger = replay.run(roots)
            rounds = ledger.rounds.iterations(ledger.events)
            held, nodes = find_survivors(ledger, rounds)
        unseen = self._unseen(replay)
        ledger.memory.close()
        return Observed(name, ended, ledger, rounds, held, nodes, unseen, "profiler")

    def _unseen(self, replay: Replay) -> tuple[Unseen, ...]:
        ledger, memory = replay.ledger, replay.memory
        rows = [
            *self._blind.started(),
            ("compiled regions", replay.regions, _REGIONS),
            ("results", ledger.events, _RESULTS),
            ("lines of operators", replay.operators, _OPERATORS),
            ("memory from before", len(memory.before), _BEFORE),
        ]
        return tuple(Unseen(what, count, why) for what, count, why in rows if count)


_REGIONS = "run as compiled: their memory is in every number, their lines are not told"
_RESULTS = (
    "the profiler has no results: that they are new is told by what was allocated, views by names, the "
    "rest is unknown; exceptions, churn and habits are seen without exact=True"
)
_OPERATORS = "the profiler tells the function alone, and its source leaves more than one line"
_BEFORE = "is in no number but start_bytes, as far as it was met: the profiler does not tell where it ends"


@contextmanager
def _without_collection() -> Iterator[None]:
    """Nodes by the hundred thousand, and no cycle to be found in them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _paths(told: Told) -> Callable[[int, int, str], str]:
    """Names modules of the run that are alive by their paths, others by their classes."""
    alive = {
        id(one): one
        for one in (gc.get_objects() if told.modules else ())
        if issubclass(type(one), nn.Module) and told.modules.get(id(one)) == type(one).__name__
    }
    known: dict[int, dict[int, str]] = {}

    def path_of(root: int, identity: int, cls: str) -> str:
        names = known.get(root)
        if names is None:
            names = known[root] = {}
            if root in alive:
                for path, module in alive[root].named_modules():
                    names[id(module)] = path or type(module).__name__
        return names.get(identity, cls)

    return path_of


def _shapes(written: profile) -> Callable[[int], tuple[int, ...] | None]:
    """Shapes that views were asked for, by their numbers in the profile; looked up when first asked."""
    known: dict[int, list[Any]] | None = None

    def shape_of(number: int) -> tuple[int, ...] | None:
        nonlocal known
        if known is None:
            known = _torch.profiled_sizes(written, SHAPING)
        match known.get(number):
            case [_, list(shape), *_]:
                return tuple(shape)
        return None

    return shape_of
