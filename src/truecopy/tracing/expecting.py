"""`tc.expect`: limits that a block of code must keep, and the lines that broke them.

What comes in: limits, and the record of the trace that runs meanwhile. What goes out: nothing, or a
`BrokenExpectation` with the lines that did it, worst first. It looks at nothing itself.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, TracebackType
from typing import ParamSpec, TypeVar

from truecopy.errors import BrokenExpectation, UsageError
from truecopy.structure.naming import caller_frame
from truecopy.tracing.api import Trace
from truecopy.tracing.facts import Copy, Line, Owner, Site, Survivor
from truecopy.tracing.limits import Passed, amount, passed
from truecopy.tracing.record import TraceRecord
from truecopy.tracing.survivors import FEWEST_ROUNDS

P = ParamSpec("P")
R = TypeVar("R")

Limit = int | str | None


def expect(
    *,
    hidden_copies: int | None = None,
    copies: int | None = None,
    allocated: int | str | None = None,
    peak: int | str | None = None,
    growth: int | str | None = None,
) -> Expectation:
    """Fail where a block of code copies, allocates or leaves behind more than it may, and say which line.

    A context manager, which gives the `Trace` that runs meanwhile, and a decorator. It raises
    `BrokenExpectation` (an AssertionError) at the end of the block, with the lines that broke a limit, worst
    first; never in the place of what the block raises itself. Limits are numbers or text: 4096, "64 MiB".

    Args:
        hidden_copies: copies that nobody asked for: `reshape` of a transposed tensor, `to` of another dtype.
        copies: all copies, `clone` and `copy_` too.
        allocated: bytes of tensors that are allocated, freed again or not.
        peak: bytes of tensors that are alive at once; what existed before counts once it is used.
        growth: bytes that each iteration of a loop leaves behind. Needs three iterations at least, found by
            themselves, or marked with `with trace.step():`; five, if the block itself frees what they left.

    Allocates no tensor memory, returns no view, gradient flows as before, does not synchronize. It sees
    what `tc.trace` sees: the thread that opens it.

    >>> import torch, truecopy as tc
    >>> x = torch.zeros(64, 96)
    >>> with tc.expect(hidden_copies=0):
    ...     y = x.t().reshape(-1)
    Traceback (most recent call last):
        ...
    truecopy.errors.BrokenExpectation: ... The lines that did it, worst first:
     hidden_copies:
      1 copy, 24,576 bytes, at ...:2 (`y = x.t().reshape(-1)`)
        reshape copied: strides (1, 96) cannot be viewed as (6144,)...
    """
    given: dict[str, Limit] = {
        "hidden-copies": hidden_copies,
        "copies": copies,
        "allocated": allocated,
        "peak": peak,
        "growth": growth,
    }
    limits = {name: amount(limit, name) for name, limit in given.items() if limit is not None}
    if not limits:
        raise UsageError(
            "nothing is expected", way_out="Set a limit: tc.expect(hidden_copies=0), for example"
        )
    return Expectation(limits)


class Expectation:
    """Limits for a block, or for each call of a function. It can be entered many times, also in itself."""

    def __init__(
        self, limits: Mapping[str, int], name: str = "", code: CodeType | None = None
    ) -> None:
        """`name` and `code` are of what is to keep the limits; without, of who enters."""
        self._limits = dict(limits)
        self._name = name
        self._code = code
        self._running: list[Trace] = []

    def __enter__(self) -> Trace:
        name, code = self._name, self._code
        frame = caller_frame()
        if not name and frame is not None:
            name, code = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}", frame.f_code
        self._running.append(Trace(name, code))
        return self._running[-1].__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        trace = self._running.pop()
        trace.__exit__(kind, error, traceback)
        if kind is None:
            judge(trace.record, self._limits)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Expect it of each call of a function."""
        if _returns_early(function):
            raise UsageError(
                "runs when it is awaited or iterated, not when it is called",
                where=function.__qualname__,
                way_out="Use `with tc.expect(...):` inside of it",
            )

        @functools.wraps(function)
        def expected(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.of(function):
                return function(*args, **kwargs)

        return expected

    def of(self, function: Callable[..., object]) -> Expectation:
        """The same limits, in the name of a function: its own lines tell of loops."""
        inner = inspect.unwrap(function)
        return Expectation(self._limits, function.__qualname__, getattr(inner, "__code__", None))


def judge(record: TraceRecord, limits: Mapping[str, int]) -> None:
    """Raise BrokenExpectation if a run has passed a limit."""
    if "growth" in limits and len(record.iterations) < FEWEST_ROUNDS:
        raise UsageError(
            f"growth was to be limited, and {len(record.iterations)} iterations were seen",
            where=record.name,
            expected=f"{FEWEST_ROUNDS} iterations at least",
            way_out="Mark each: `with tc.expect(growth=0) as trace:`, and `with trace.step():` in the loop",
        )
    broken = passed(record, limits)
    if not broken:
        return
    lines = [line for one in broken for line in _lines_of(record, one)]
    raise BrokenExpectation(
        "did more than it may",
        where=record.name,
        expected="at most " + ", ".join(_limit(one.name, one.limit) for one in broken),
        got=", ".join(_limit(one.name, one.got) for one in broken),
        way_out="\n".join(("The lines that did it, worst first:", *lines)),
    )


_MOST_LINES = 5  # of each limit that is passed


def _returns_early(function: Callable[..., object]) -> bool:
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )


def _limit(name: str, number: int) -> str:
    """A limit, or what was got, as it is written in a call."""
    word = name.replace("-", "_")
    return f"{word}={number:,}" + (" bytes" if name in ("allocated", "peak", "growth") else "")


def _lines_of(record: TraceRecord, broken: Passed) -> list[str]:
    """The lines of the program that passed one limit, worst first."""
    match broken.name:
        case "hidden-copies":
            found = [_hidden_copy(copy) for copy in record.copies]
        case "copies":
            found = [_copies(line) for line in _worst(record, "copies")]
        case "allocated":
            found = [
                f"  {_bytes(line.allocated_bytes)} allocated {_at(line.site)}"
                for line in _worst(record, "allocated_bytes")
            ]
        case "peak":
            found = [_owner(owner) for owner in record.peak.owners]
        case _:
            found = [_survivor(one) for one in record.survivors if one.what == "bytes"]
    more = len(found) - _MOST_LINES
    return [
        f" {broken.name.replace('-', '_')}:",
        *found[:_MOST_LINES],
        *([f"  ... and {more:,} more"] if more > 0 else []),
    ]


def _worst(record: TraceRecord, what: str) -> list[Line]:
    guilty = [line for line in record.lines if getattr(line, what)]
    return sorted(guilty, key=lambda line: -int(getattr(line, what)))


def _hidden_copy(copy: Copy) -> str:
    times = f"{copy.count:,} {'copy' if copy.count == 1 else 'copies'}"
    said = f"  {times}, {_bytes(copy.nbytes)}, {_at(copy.site)}"
    said += f"\n    {copy.call or copy.operation} copied: {copy.reason}"
    return said + (f"\n    instead: {copy.advice}" if copy.advice else "")


def _copies(line: Line) -> str:
    times = f"{line.copies:,} {'copy' if line.copies == 1 else 'copies'}"
    return f"  {times}, {_bytes(line.copied_bytes)}, {_at(line.site)}"


def _owner(owner: Owner) -> str:
    kind = f"saved by {owner.saved_by}" if owner.saved_by else owner.owner
    where = "from before the block" if owner.site is None else f"allocated {_at(owner.site)}"
    return f"  {_bytes(owner.nbytes)} of {kind}, {where}"


def _survivor(survivor: Survivor) -> str:
    held = f", held by {survivor.holders[0]}" if survivor.holders else ""
    each = _bytes(math.ceil(survivor.per_iteration))
    return f"  {each} in each iteration, allocated {_at(survivor.site)}{held}"


def _at(site: Site) -> str:
    return f"at {site.place}" + (f" (`{site.text}`)" if site.text else "")


def _bytes(nbytes: int) -> str:
    return f"{nbytes:,} {'byte' if nbytes == 1 else 'bytes'}"
