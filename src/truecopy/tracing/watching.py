"""`tc.watch`: who writes into this memory, through whatever name.

What comes in: the operations of the stream, before they run. What goes out: `Write`s, to whoever was
named by `on_write`. An operation tells what it is about to write, so a write can be refused; what
no operation tells of is found by comparing bytes, at the next operation on the same memory.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType, TracebackType
from typing import Any, Literal

from torch import Tensor

from truecopy import _torch
from truecopy.errors import MemoryWritten, UsageError, WrittenTo
from truecopy.memory.counting import count_common
from truecopy.memory.overlap import overlaps
from truecopy.memory.reading import read
from truecopy.memory.region import Region
from truecopy.structure.naming import name_of
from truecopy.tracing import sites
from truecopy.tracing.facts import Site
from truecopy.tracing.limits import amount
from truecopy.tracing.operations import Operation
from truecopy.tracing.sites import Place
from truecopy.tracing.stream import Args, Kwargs, Observer, Stream
from truecopy.tracing.verdict import memory_of
from truecopy.tracing.watched import Leaf, Watched

OnWrite = Literal["raise", "report", "warn"]


@dataclass(frozen=True, slots=True)
class Write:
    """One line that writes, or wrote, into watched memory. `str(write)` is one plain sentence."""

    path: str  # what was watched: "x", "model.weight"
    site: Site | None  # the line; None where no line of the user is running
    operation: str  # "aten::add_"; empty for a write from outside
    argument: str  # through which the operation writes: "self", "out"
    node: str  # in a backward pass the autograd node: "AccumulateGrad"; else empty
    nbytes: int | None  # of the watched bytes: reached by the argument, or found changed
    since: Site | None = None  # from outside: the line at which the bytes were last as before
    count: int = 1

    @property
    def is_from_outside(self) -> bool:
        """Whether the bytes changed and no operation told of it: numpy, or another thread."""
        return not self.operation

    def __str__(self) -> str:
        times = f" {self.count:,} times" if self.count > 1 else ""
        if self.is_from_outside:
            return (
                f"{self.path} was changed from outside{times} between {_place(self.since)} and "
                f"{_place(self.site)}, {_bytes(self.nbytes)}"
            )
        node = f", in the backward pass, by {self.node}" if self.node else ""
        return (
            f"{self.path} is written{times} at {_place(self.site)}, by {self.operation} through its "
            f"argument {self.argument}{node}, {_bytes(self.nbytes)}"
        )


def watch(
    *tensors: Any,
    on_write: OnWrite | Callable[[Write], object] = "raise",
    outside: str | int = "64 MiB",
) -> Watch:
    """Find the line that writes into this memory: through views, `out=`, `.data`, optimizers, any alias.

    Takes tensors, arrays, modules, and structures of them. Bytes decide: a write to another part of the
    same storage is none. A write is told *before* it is carried out.

    Args:
        tensors: what to watch, as it is when the block begins.
        on_write: "raise" refuses the operation with `WrittenTo`, and nothing is written. "report" lets it
            write and keeps it in `.writes`; "warn" does so with a `MemoryWritten` warning at that line;
            a callable is given the `Write`, and refuses by raising.
        outside: the most memory for a copy of the bytes, with which writes are found that torch does not
            see (numpy, ctypes, other threads, compiled kernels): at the next operation on the same storage,
            at `.look()` and at the end. 0 for none. What is more than fits, and memory of devices, is not
            compared; `.not_compared_bytes` tells how much. It costs a comparison at each such operation.

    Allocates that copy and no more, returns no view, holds what it watches, gradient flows as before,
    does not synchronize. It sees the thread that opens it, and backward passes on the CPU.

    >>> import torch, truecopy as tc
    >>> x = torch.zeros(2, 3)
    >>> alias = x.view(6)
    >>> with tc.watch(x):
    ...     alias[4] = 1
    Traceback (most recent call last):
        ...
    truecopy.errors.WrittenTo: ...: is about to be written at ...:2 (`alias[4] = 1`), by aten::copy_ ...
    >>> x.sum().item()
    0.0
    """
    return Watch(tensors, on_write, outside)


class Watch:
    """Memory while it is watched, and who wrote there."""

    def __init__(
        self,
        values: tuple[Any, ...],
        on_write: OnWrite | Callable[[Write], object],
        outside: str | int,
    ) -> None:
        if not values:
            raise UsageError("nothing to watch", way_out="Name tensors: tc.watch(x, y)")
        if on_write not in ("raise", "report", "warn") and not callable(on_write):
            raise UsageError(
                f"on_write={on_write!r} means nothing here",
                expected='"raise", "report", "warn", or something to call',
            )
        self._most_kept = amount(outside, "outside")
        self._watched = Watched(
            (name_of(value, f"tensors[{i}]"), value) for i, value in enumerate(values)
        )
        self._on_write = on_write
        self._writes: dict[Any, Write] = {}
        self._sentry = _Sentry(self._watched, self._found)
        self._stream = Stream(self._sentry)
        self._is_used = False

    def __enter__(self) -> Watch:
        if self._is_used:
            raise UsageError("this watch was used already", way_out="Make another with tc.watch(x)")
        self._is_used = True
        self._watched.keep(self._most_kept, _place_of(sites.user_frame(sys._getframe(1))))
        self._stream.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stream.__exit__(kind, error, traceback)
        if kind is None or self._on_write == "report":  # what the block raised is not to be hidden
            self._sentry.look_at_all()

    def look(self) -> None:
        """Look now for what was changed from outside."""
        self._sentry.look_at_all()

    @property
    def writes(self) -> tuple[Write, ...]:
        """Who wrote, in the order in which they were first seen: a line once, with how often."""
        return tuple(self._writes.values())

    @property
    def not_compared_bytes(self) -> int:
        """Watched bytes in which writes from outside are not found."""
        return self._watched.not_compared_bytes

    def __str__(self) -> str:
        return "\n".join(f"{write}." for write in self.writes) or "Nothing was written."

    def _found(
        self, key: tuple[Any, ...], frame: FrameType | None, done: bool, make: Callable[[], Write]
    ) -> None:
        """Somebody writes. Unless it is done, raising prevents it."""
        known = self._writes.get(key)
        if known is not None:
            self._writes[key] = replace(known, count=known.count + 1)
            if self._on_write == "report":
                return  # in a loop of training, the usual case
        write = make()
        if known is None and len(self._writes) < MOST_WRITES:
            self._writes[key] = write
        match self._on_write:
            case "raise":
                raise _refusal(write, done)
            case "warn":
                _warn(write, frame)
            case "report":
                pass
            case tell:
                tell(write)


MOST_WRITES = 1000
"""Lines that are told apart: programs that make code as they run have no end of them."""

Found = Callable[[tuple[Any, ...], FrameType | None, bool, Callable[[], Write]], None]


class _Sentry(Observer):
    """Stands before every operation, and looks whether it is about to write watched bytes."""

    operations_alone = True

    def __init__(self, watched: Watched, found: Found) -> None:
        self._watched = watched
        self._found = found
        self._allowed: list[Leaf] = []  # written by the operation that is running

    def before(self, operation: Operation, args: Args, kwargs: Kwargs) -> None:
        reads = self._watched.compares and not (operation.may_alias and operation.has_schema)
        if not (operation.written or reads) or operation.is_silent:
            return  # a view reads nothing, and what is read is of no interest where nothing is kept
        near = self._watched.near
        for given in args:
            if isinstance(given, Tensor):
                if near(given):
                    break
            elif type(given) is list and any(isinstance(t, Tensor) and near(t) for t in given):
                break
        else:
            if not kwargs or not any(near(t) for t in operation.tensors((), kwargs)):
                return
        with _torch.disable_torch_function():
            self._meet(operation, args, kwargs)

    def after(
        self,
        operation: Operation,
        args: Args,
        kwargs: Kwargs,
        result: Any,  # noqa: ARG002
        error: BaseException | None,  # noqa: ARG002 - what raised in the middle may have written
    ) -> None:
        if operation.written and operation.written[-1].place < 0:
            # `out=` of another size was given more bytes of its storage, and they were written.
            for slot in operation.writes(args):
                for tensor in slot.tensors(args, kwargs):
                    for leaf in self._watched.near(tensor):
                        self._tell(leaf, tensor, operation, slot.name, done=True)
        if self._allowed:
            place = _place_of(sites.user_frame(sys._getframe(2)))
            for leaf in self._allowed:
                self._watched.keep_again(leaf, place)
            self._allowed = []

    def look_at_all(self) -> None:
        """Tell of all that was changed from outside."""
        frame = sites.user_frame(sys._getframe(2))
        for leaf in self._watched.leaves:
            self._look_at(leaf, frame)

    def _meet(self, operation: Operation, args: Args, kwargs: Kwargs) -> None:
        """An operation is given memory that is watched."""
        frame = sites.user_frame(sys._getframe(3))
        written = {
            id(tensor): slot.name
            for slot in operation.writes(args)
            for tensor in slot.tensors(args, kwargs)
        }
        for tensor in operation.tensors(args, kwargs):
            argument = written.get(id(tensor))
            for leaf in self._watched.near(tensor):
                if leaf not in self._allowed:
                    self._look_at(leaf, frame)
                if argument is not None:
                    self._tell(leaf, tensor, operation, argument, done=False)

    def _look_at(self, leaf: Leaf, frame: FrameType | None) -> None:
        """Tell of bytes that are not as they were, and no operation said so."""
        if leaf.kept is None:
            return
        place, since = _place_of(frame), leaf.since
        changed = self._watched.changed_bytes(leaf)
        if not changed:
            leaf.since = place
            return
        self._watched.keep_again(leaf, place)

        def make() -> Write:
            return Write(leaf.path, _site(place), "", "", "", changed, _site(since))

        self._found((leaf.path, _key(place), _key(since)), frame, True, make)

    def _tell(
        self, leaf: Leaf, tensor: Tensor, operation: Operation, argument: str, *, done: bool
    ) -> None:
        """Tell of a tensor that an operation writes, if it reaches the leaf; once for each leaf."""
        if leaf in self._allowed:
            return
        common = _common_bytes(self._watched.follow(leaf), tensor)
        if common == 0:
            return
        frame = sites.user_frame(sys._getframe(3))
        place, node = _place_of(frame), _torch.current_node()
        if done:
            self._watched.keep_again(leaf, place)

        def make() -> Write:
            by = "" if node is None else node.name().rpartition("::")[2]
            return Write(leaf.path, _site(place), operation.name, argument, by, common)

        self._allowed.append(leaf)
        try:
            self._found((leaf.path, _key(place), operation.name, argument), frame, done, make)
        except BaseException:
            self._allowed = []  # it will not run, and there is no `after`
            raise


def _common_bytes(region: Region, tensor: Tensor) -> int | None:
    """How many watched bytes a tensor reaches; None where there are too many pieces to count."""
    total: int | None = 0
    for part in memory_of(tensor):
        written = read(part)
        if isinstance(written, Region) and overlaps(region, written) is not False:
            common = count_common(region, written, _MOST_PIECES)
            total = None if total is None or common is None else total + common
    return total


_MOST_PIECES = 10_000


def _refusal(write: Write, done: bool) -> WrittenTo:
    where = write.path
    if write.is_from_outside:
        return WrittenTo(
            str(write).removeprefix(f"{where} "),
            where=where,
            expected="no write while it is watched",
            way_out="torch did not see it: look there for numpy, storages, other threads and libraries",
        )
    said = str(write).removeprefix(f"{where} is ")
    return WrittenTo(
        f"was {said}; it could not be told before" if done else f"is about to be {said}",
        where=where,
        expected="no write while it is watched",
        way_out="Let it write to a copy, tc.copy(...)"
        + ("" if done else ". The operation was refused, and nothing is written"),
    )


def _warn(write: Write, frame: FrameType | None) -> None:
    """Warn at the line itself."""
    if frame is None:
        warnings.warn(MemoryWritten(f"{write}."), stacklevel=1)
        return
    warnings.warn_explicit(
        MemoryWritten(f"{write}."),
        MemoryWritten,
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_globals.get("__name__"),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _place_of(frame: FrameType | None) -> Place | None:
    return None if frame is None else (frame.f_code, frame.f_lasti)


def _key(place: Place | None) -> tuple[int, int] | None:
    """Two places are one if they are the same instruction: equal code elsewhere is another place."""
    return None if place is None else (id(place[0]), place[1])


def _site(place: Place | None) -> Site | None:
    return None if place is None else sites.resolve(place)


def _place(site: Site | None) -> str:
    if site is None:
        return "a line that is not known"
    return f"{site.place} (`{site.text}`)" if site.text else site.place


def _bytes(count: int | None) -> str:
    if count is None:
        return "in more pieces than are counted"
    return f"{count:,} {'byte' if count == 1 else 'bytes'} of it"
