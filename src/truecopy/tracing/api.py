"""`tc.trace`: what every call in a block of code did with memory, by line."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, TracebackType
from typing import ParamSpec, TypeVar

from truecopy import _torch
from truecopy.errors import UsageError
from truecopy.structure.naming import caller_frame
from truecopy.tracing.blind import Blind
from truecopy.tracing.building import Observed, record_of
from truecopy.tracing.exact.run import ExactRun
from truecopy.tracing.facts import Copy, Event, Line, Peak, Survivor
from truecopy.tracing.ledger import Ledger
from truecopy.tracing.record import TraceRecord
from truecopy.tracing.rounds import MARKED
from truecopy.tracing.stream import Stream
from truecopy.tracing.survivors import find_survivors

P = ParamSpec("P")
R = TypeVar("R")


def trace(*, exact: bool = False) -> Trace:
    """See what a block of code does with memory: every copy, by line, with the reason.

    A context manager and a decorator. The block runs as it would: the same results to the bit, the
    same random numbers, hooks, compiled functions and exceptions; it runs slower. Allocates no tensor
    memory, returns and keeps none, gradient flows as before, does not synchronize. It sees the
    thread that opens it; what it cannot see is counted in the record.

    `exact=True` lets torch's profiler write the run down instead, and reads its notes when the block is
    over: copies and scratch memory inside of operations are seen, and the peak is the allocator's own, to
    the byte. It costs what the profiler costs. Raises UsageError where a profiler is on already.

    >>> import torch, truecopy as tc
    >>> x = torch.zeros(64, 96)
    >>> with tc.trace() as t:
    ...     y = x.t().reshape(6144)
    >>> [copy] = t.copies
    >>> copy.reason
    'strides (1, 96) cannot be viewed as (6144,)'
    >>> copy.nbytes
    24576
    """
    return Trace(exact=exact)


class Trace:
    """A run while it is observed, and what was found when it is over.

    Every attribute is a function of `record`, which is made when first asked for. Inside of the block
    it is the record of what has happened so far.
    """

    def __init__(
        self, name: str = "", opener: CodeType | None = None, *, exact: bool = False
    ) -> None:
        self._name = name
        self._exact = ExactRun() if exact else None
        self._opener = opener
        self._was_entered = self._is_open = False
        self._ledger: Ledger | None = None
        self._stream: Stream | None = None
        self._blind: Blind | None = None
        self._observed: Observed | None = None
        self._record: TraceRecord | None = None

    def __enter__(self) -> Trace:
        if self._was_entered:
            raise UsageError("this trace was used already", way_out="Make another with tc.trace()")
        self._was_entered = True
        frame = caller_frame()
        if frame is not None and not self._name:
            self._name = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            self._opener = frame.f_code
        if self._exact is not None:
            self._exact.open()
            self._is_open = True
            return self
        ledger = self._ledger = Ledger(self._opener)
        self._blind = Blind()
        self._stream = Stream(ledger)
        self._blind.open()
        ledger.open()
        self._stream.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ended = "completed" if kind is None else f"raised {kind.__name__}"
        if kind is not None and issubclass(kind, SystemExit) and not getattr(error, "code", None):
            ended = "completed"
        if self._exact is not None:
            self._is_open = False
            try:
                self._observed = self._exact.close(self._name, self._opener, ended)
            except UsageError:
                if kind is None:  # what the program raised goes before what we could not see
                    raise
            return
        assert self._ledger is not None, "it was entered"
        assert self._stream is not None, "it was entered"
        assert self._blind is not None, "it was entered"
        self._stream.__exit__(kind, error, traceback)
        self._blind.close()
        self._ledger.close()
        self._observed = self._look(ended)
        self._ledger.memory.close()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Trace each call of a function. The last one is `function.trace`."""
        exact = self._exact is not None

        @functools.wraps(function)
        def traced(*args: P.args, **kwargs: P.kwargs) -> R:
            with Trace(function.__qualname__, function.__code__, exact=exact) as run:
                traced.trace = run  # type: ignore[attr-defined]
                return function(*args, **kwargs)

        return traced

    @contextmanager
    def step(self) -> Iterator[None]:
        """Mark one iteration, for a loop that is not found by itself."""
        if self._exact is not None:
            with self._exact.step():
                yield
            return
        rounds = self._running().rounds
        rounds.pass_by(MARKED, "begin", self._running().events)
        try:
            yield
        finally:
            rounds.pass_by(MARKED, "end", self._running().events)

    @property
    def record(self) -> TraceRecord:
        """All that was found, as plain data."""
        if self._record is not None:
            return self._record
        if self._observed is None:
            if self._is_open:
                raise UsageError(
                    "the exact tier tells when the block is over",
                    way_out="Ask behind it, or leave out exact=",
                )
            self._running()
            with _torch.disable_torch_function(), _torch.no_modes():
                return record_of(self._look("is running"))
        self._record = record_of(self._observed)
        self._observed = self._ledger = self._stream = None
        return self._record

    @property
    def copies(self) -> tuple[Copy, ...]:
        """Hidden copies, most bytes first."""
        return self.record.copies

    @property
    def lines(self) -> tuple[Line, ...]:
        """What each source line did: most hidden bytes first."""
        return self.record.lines

    @property
    def peak(self) -> Peak:
        """The most that was alive at once, and who held it."""
        return self.record.peak

    @property
    def survivors(self) -> tuple[Survivor, ...]:
        """What iterations leave behind."""
        return self.record.survivors

    @property
    def events(self) -> tuple[Event, ...]:
        """Calls of the user, and operations that no call asked for, in order."""
        return self.record.events

    def summary(self) -> str:
        """The report as text."""
        return str(self.record)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record as JSON, for `truecopy report` and `truecopy compare`."""
        self.record.save(path)

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return self.record._repr_html_()

    def _running(self) -> Ledger:
        if self._ledger is None:
            raise UsageError("nothing was traced", way_out="Use it as `with tc.trace() as t:`")
        return self._ledger

    def _look(self, ended: str) -> Observed:
        """What only the end of a run tells: who holds what is alive now."""
        assert self._ledger is not None, "it was entered"
        assert self._blind is not None, "it was entered"
        ledger = self._ledger
        rounds = ledger.rounds.iterations(ledger.events)
        held, nodes = find_survivors(ledger, rounds)
        return Observed(self._name, ended, ledger, rounds, held, nodes, self._blind.unseen(ledger))
