"""Copies while they happen: how much was written, and those that nobody asked for, by line and reason."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from truecopy import _torch
from truecopy.tracing.copies import (
    CONVERTING,
    SMALL,
    UNKNOWN_SHAPE,
    Written,
    explain,
    is_hidden,
    written_by,
)
from truecopy.tracing.lines import Current, LineOfCode
from truecopy.tracing.operations import Operation
from truecopy.tracing.storages import Storages


class HiddenCopy:
    """Hidden copies of one kind at one line."""

    __slots__ = (
        "advice", "call", "count", "event", "forward", "inside", "line", "nbytes", "operation", "path",
        "phase", "read", "reason",
    )  # fmt: skip

    def __init__(
        self, operation: Operation, current: Current, call: str, why: tuple[str, str]
    ) -> None:
        self.line: LineOfCode = current.line
        self.path = current.path
        self.phase = current.phase
        self.forward = current.forward
        self.event = current.index
        self.operation = operation.name
        self.call = call
        self.inside = "" if call in CONVERTING or call == operation.base else call
        self.reason, self.advice = why
        self.count = self.nbytes = self.read = 0


class Copying:
    """What was copied in a run."""

    def __init__(self, memory: Storages, current: Current) -> None:
        self._memory = memory
        self._current = current
        self._last: HiddenCopy | None = None
        self.hidden: dict[Any, HiddenCopy] = {}
        self.count = 0  # copies of every kind
        self.hidden_count = 0
        self.again: dict[int, tuple[LineOfCode, str, int, int]] = {}  # copies of copies, by line

    def copied(self, operation: Operation, args: tuple[Any, ...], result: Any) -> None:
        """A copying operation has run."""
        current = self._current
        written = written_by(operation, args, result)
        self.note(written)
        source = written.source
        if source is None or not isinstance(result, Tensor):
            return
        self._note_again(source, result, written.nbytes)
        call = current.call
        if not is_hidden(operation, call, written, result):
            return
        self.hide(operation, call, written, result)

    def note(self, written: Written) -> None:
        """Bytes were written by copying."""
        current = self._current
        current.written += written.nbytes
        current.read += written.read_bytes
        if written.nbytes:
            self.count += 1
            current.line.copies += 1

    def hide(self, operation: Operation, call: str, written: Written, result: Any) -> HiddenCopy:
        """Note a hidden copy."""
        current, source = self._current, written.source
        key: tuple[Any, ...] = (
            id(current.line), call, operation.base, source.shape, source.stride(), source.dtype,
            result.dtype, current.phase,
        )  # fmt: skip
        found = self.hidden.get(key)
        if found is None:
            if len(self.hidden) >= MOST_KINDS:  # shapes that never come again
                key = (id(current.line), call, operation.base, current.phase)
                found = self.hidden.get(key)
            if found is None:
                why = explain(operation, call, source, result)
                found = self.hidden[key] = HiddenCopy(operation, current, call, why)
        found.count += 1
        found.nbytes += written.nbytes
        found.read += written.read_bytes
        current.hidden += written.nbytes
        current.line.hidden += 1
        self.hidden_count += 1
        self._last = found
        return found

    def viewed_as(self, shape: Any) -> None:
        """What was just copied is viewed in the shape that it had to be copied for."""
        found = self._last
        if found is not None and found.reason.endswith(UNKNOWN_SHAPE):
            found.reason = found.reason.removesuffix(UNKNOWN_SHAPE) + str(tuple(shape))

    def materialized(self, operation: Operation, args: tuple[Any, ...], kwargs: Any) -> None:
        """An operation is about to write: the first write to a lazy clone makes the copy."""
        for slot in operation.writes(args):
            for tensor in slot.tensors(args, kwargs):
                if not _torch.is_copy_on_write(tensor):
                    continue
                block = self._memory.find(tensor)
                if block is not None:
                    self.count += 1
                    self._current.line.copies += 1
                    self._current.written += block.nbytes
                    self._current.read += block.nbytes
                    if block.origin == "lazy":
                        self._memory.lazy -= 1
                        block.origin = "new"

    def _note_again(self, source: Tensor, result: Tensor, nbytes: int) -> None:
        """Note a copy of what the event before has copied."""
        index = self._current.index
        made, held = self._memory.find(result), self._memory.find(source)
        if made is None or made is held:
            return
        if (
            held is not None
            and 0 <= held.copied_at >= index - 1
            and made.birth == index
            and nbytes > SMALL
        ):
            line, path, count, total = self.again.get(
                id(self._current.line), (self._current.line, self._current.path, 0, 0)
            )
            self.again[id(line)] = (line, path, count + 1, total + nbytes)
        if made.birth == index:
            made.copied_at = index


MOST_KINDS = 10_000
"""Kinds of hidden copies that are told apart by shape: a run over texts has a shape for each."""
