"""The observer behind `tc.trace`: counts what every call does, in bounded room, while the program runs.

What comes in: the stream. What goes out: a `Ledger` full of numbers, by line, from which `building`
makes the record when the run is over. It keeps numbers, code objects and weak references; names,
source text and sentences are made later, but for the reasons of hidden copies, once for each kind.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections import deque
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn

from truecopy import _torch
from truecopy.tracing import churn, sites, storages
from truecopy.tracing.copies import COPYING
from truecopy.tracing.facts import ORIGINS
from truecopy.tracing.habits import HABITUAL, Habits
from truecopy.tracing.hiding import Copying
from truecopy.tracing.lines import BACKWARD, FORWARD, OPTIMIZER, RECOMPUTE, Current, LineOfCode
from truecopy.tracing.nodes import ACCUMULATOR, Nodes
from truecopy.tracing.operations import Operation, tensors_in
from truecopy.tracing.ownership import Ownership
from truecopy.tracing.record import MOST_EVENTS
from truecopy.tracing.rounds import STRONG, WEAK, Rounds
from truecopy.tracing.storages import Block, Storages
from truecopy.tracing.stream import Args, Kwargs, Observer
from truecopy.tracing.timeline import Timeline

BACKWARDS = {torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad}
"""Calls inside of which operations are of a backward pass, each an event of its own."""

_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
_DEEPCOPY = torch.Tensor.__deepcopy__

MAKERS = frozenset((
    "from_numpy", "frombuffer", "from_dlpack", "asarray", "as_tensor", "tensor", "from_file",
))  # fmt: skip
"""Calls that make tensors without an operation."""

_ONE = {word: (word,) for word in ORIGINS}
_SAME = _ONE["same"]


TOLD = COPYING | {"_unsafe_view", "_lazy_clone"}
"""Operations that are looked at once more when they have run."""


def _is_among(output: Tensor, args: Args, kwargs: Kwargs) -> bool:
    """Whether this very tensor was passed, at any depth."""
    for given in args:
        if given is output:
            return True
        if isinstance(given, (list, tuple)) and any(one is output for one in tensors_in(given)):
            return True
    return bool(kwargs) and any(given is output for given in tensors_in(kwargs))


class Ledger(Observer):
    """What a run did with memory, so far."""

    def __init__(self, opener: CodeType | None = None, memory: Storages | None = None) -> None:
        self.opener = opener  # the code that opened the trace: its lines tell of loops
        self.nowhere = LineOfCode(None, 0)
        self.lines: dict[tuple[int, int], LineOfCode] = {}
        self.current = Current(self.nowhere)
        self.memory = Storages() if memory is None else memory
        self.nodes = Nodes()
        self.rounds = Rounds(self.memory)
        self.timeline = Timeline(self.memory)
        self.copying = Copying(self.memory, self.current)
        self.owners = Ownership(self.memory, self.current, self.nodes)
        self.habits = Habits(self.memory, self.current)
        self.first: list[tuple[Any, ...]] = []
        self.last: deque[tuple[Any, ...]] = deque(maxlen=MOST_EVENTS // 2)
        self.events = self.operations = self.same = self.raised = 0
        self.copied = self.read = self.hidden_bytes = 0
        self.started = self.stopped = time.perf_counter_ns()
        self._calling = False
        self._backward: tuple[LineOfCode, int, int] | None = None  # line, event, start
        self._modules: Any = None
        self._met: dict[int, Any] = {}  # outermost modules, by identity

    def open(self) -> None:
        """The stream is open."""
        self._modules = self.stream.modules
        self.started = time.perf_counter_ns()

    # --- calls ------------------------------------------------------------------------------------

    def begin(self, function: Any, args: Args, kwargs: Kwargs) -> None:  # noqa: ARG002
        if self._calling:
            return
        self._calling = True
        current = self.current
        frame: FrameType | None = sys._getframe(2)
        kinds = sites.KINDS
        current.phase = FORWARD
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = sites.kind_of_code(code)
            if kind == sites.USER:
                break
            if kind == sites.OPTIMIZER:
                current.phase = OPTIMIZER
            frame = frame.f_back
        current.line = line = self._line(frame)
        if self.owners.in_step and current.phase != OPTIMIZER:
            self.owners.end_step()
        self._open_event(function)
        if function in BACKWARDS:
            self._begin_backward(line)
        elif function is _DEEPCOPY:
            self.memory.meet(args[0], storages.INPUT)
        elif line.code is self.opener:
            self.rounds.pass_by(WEAK, line, current.index)
        current.start = time.perf_counter_ns()

    def end(
        self, function: Any, args: Args, kwargs: Kwargs, result: Any, error: BaseException | None
    ) -> None:
        stop = time.perf_counter_ns()
        if self._backward is not None:
            self._end_backward(error, stop)
            return
        self._calling = False
        if error is not None:
            self.close_event((), -1, stop, type(error).__name__)
            return
        current = self.current
        made = _torch.next_node_number() - self.nodes.next
        if made:
            made = self.nodes.made_by(current.line, current.index)
        storage = -1
        if isinstance(result, Tensor):
            origin, storage = self._origin(args, kwargs, result)
            origins: tuple[str, ...] = _ONE[origin]
            if made:
                self.owners.saved_by((result,), made)
        elif current.operations or type(result) in (list, tuple):
            outputs = list(tensors_in(result))
            if not outputs and not current.operations:
                return
            told = [self._origin(args, kwargs, output) for output in outputs]
            origins = tuple(origin for origin, _ in told)
            if outputs:
                storage = told[0][1]
                if made:
                    self.owners.saved_by(outputs, made)
        elif function == _SET_DATA:
            current.touched.append(("self", "replaced"))
            origins = ()
        else:
            return  # it tells something, and does nothing
        if current.born:
            self.owners.outlive(result)
            if len(current.born) == 1 and current.born[0].most >= churn.LEAST:
                churn.note(self.memory, current, args, result)
        if function in HABITUAL:
            self.habits.call(function, args, result)
        self.close_event(origins, storage, stop)

    def _origin(self, args: Args, kwargs: Kwargs, output: Tensor) -> tuple[str, int]:
        """Origin of one output of the event, and the number of its storage."""
        block = self.memory.find(output)
        if block is None:
            block = self._unseen(output)
        elif block.birth == self.current.index:
            return block.origin, block.number  # born now, and so no argument
        number = -1 if block is None else block.number
        if (args and output is args[0]) or _is_among(output, args, kwargs):
            return "same", number
        if block is None:
            return "unknown", -1
        return block.origin if block.birth == self.current.index else "view", number

    def _unseen(self, output: Tensor) -> Block | None:
        """Memory that no operation handed out: made without one, or older than the trace."""
        if self.current.call in MAKERS:
            return self._came_out(output)
        return self.memory.meet(output, storages.INPUT)

    def _begin_backward(self, line: LineOfCode) -> None:
        current = self.current
        self._backward = (line, current.index, time.perf_counter_ns())
        self.rounds.pass_by(STRONG, line, current.index)
        current.parent = current.index
        self.events += 1

    def _end_backward(self, error: BaseException | None, stop: int) -> None:
        assert self._backward is not None, "it has begun"
        current = self.current
        current.line, index, current.start = self._backward
        current.phase, current.node, current.forward, current.parent = BACKWARD, "", None, -1
        current.function = torch.Tensor.backward
        current.clear()
        self._calling, self._backward = False, None
        events, self.events, current.index = self.events, index, index
        self.close_event((), -1, stop, "" if error is None else type(error).__name__)
        self.events = events

    def outermost(self, module: nn.Module) -> None:
        line = self._line(sites.user_frame(sys._getframe(2)))
        self.rounds.pass_by(STRONG, line, self.events)
        known = self._met.get(id(module))
        if known is None or known() is not module:
            self._met[id(module)] = weakref.ref(module)
            with _torch.disable_torch_function():
                self.owners.meet(module)

    # --- operations -------------------------------------------------------------------------------

    def before(self, operation: Operation, args: Args, kwargs: Kwargs) -> None:
        if (not self._calling or self._backward is not None) and not operation.is_silent:
            self._begin_operation(operation)
        if operation.written or operation.reshaped:
            for slot in operation.written or operation.reshaped:
                for tensor in slot.tensors(args, kwargs):
                    self.memory.meet(tensor, storages.INPUT)
            if self.memory.lazy:
                self.copying.materialized(operation, args, kwargs)

    def after(
        self,
        operation: Operation,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if operation.is_silent:
            return
        self.operations += 1
        current = self.current
        current.operations += 1
        memory = self.memory
        base = operation.base
        if base == "lift_fresh":
            self._came_out(args[0])
        if error is None and (operation.written or operation.reshaped):
            self._effects(operation, args, kwargs)
        owner = storages.OPTIMIZER_STATE if current.phase == OPTIMIZER else storages.INPUT
        for given in args:
            if isinstance(given, Tensor):
                if current.function is _DEEPCOPY:
                    self._came_out(given)  # it makes storages without an operation
                else:
                    memory.meet(given, owner)
            elif type(given) is list:
                for one in given:
                    if isinstance(one, Tensor):
                        memory.meet(one, owner)
        if kwargs:
            for one in tensors_in(kwargs):
                memory.meet(one, owner)
        if error is None:
            if isinstance(result, Tensor):
                self._came_out(result)
            elif result is not None:
                for one in tensors_in(result):
                    self._came_out(one)
            if base in TOLD:
                self._told(operation, args, result)
        if not self._calling or self._backward is not None:
            self._end_operation(args, kwargs, result, error)

    def _told(self, operation: Operation, args: Args, result: Any) -> None:
        """An operation has run that copies, or tells more of a copy."""
        if operation.base == "_unsafe_view":
            self.copying.viewed_as(args[1])
            return
        if operation.base == "_lazy_clone":
            block = self.memory.find(result)
            if block is not None:
                block.origin = "lazy"
                self.memory.lazy += 1
            return
        self.copying.copied(operation, args, result)

    def _came_out(self, tensor: Tensor) -> Block | None:
        block, born = self.memory.come_out(tensor)
        if born and block is not None:
            current = self.current
            block.line = current.line
            block.path = current.path
            current.born.append(block)
            if block.origin == "new":
                current.allocated += block.nbytes
        return block

    def _effects(self, operation: Operation, args: Args, kwargs: Kwargs) -> None:
        memory, current = self.memory, self.current
        effect = "mutated" if operation.written else ""
        if operation.base == "set_":
            current.touched.append(("self", "replaced"))
        for slot in operation.writes(args) or operation.reshaped:
            for tensor in slot.tensors(args, kwargs):
                block = memory.find(tensor)
                if block is None:
                    continue
                before, told = block.nbytes, effect
                if memory.resized(block, tensor.untyped_storage().nbytes()):
                    told = "resized"
                    current.allocated += max(0, block.nbytes - before)
                if told and block.birth != current.index:
                    current.touched.append((slot.name, told))
                if block.snapshot is not None:
                    self.habits.written(block, tensor)

    def _begin_operation(self, operation: Operation) -> None:
        """An operation that no call asked for: of a backward pass, or of a function without a hook."""
        current = self.current
        frame = sys._getframe(3)  # whose call torch dispatched
        node = _torch.current_node()
        if node is None:
            current.phase, current.node, current.forward = FORWARD, "", None
            current.line = self._line(sites.user_frame(frame))
        else:
            current.phase = BACKWARD
            current.node, current.forward = self.nodes.describe(node)
            if self._backward is not None:
                current.line = self._backward[0]
            if frame.f_code is not _torch.BACKWARD_ENGINE:
                self._in_python(frame)
            elif self._backward is None:
                current.line = self._line(sites.user_frame(frame))
        node_name, forward = current.node, current.forward
        self._open_event(operation)
        current.node, current.forward = node_name, forward
        current.start = time.perf_counter_ns()

    def _in_python(self, frame: FrameType) -> None:
        """Python runs inside of a backward pass: a function of the user, a hook, or a checkpoint."""
        inner: FrameType | None = frame
        user, checkpoint = None, False
        while inner is not None and inner.f_code is not _torch.BACKWARD_ENGINE:
            kind = sites.kind_of_code(inner.f_code)
            if kind == sites.USER and user is None:
                user = inner
            if kind == sites.CHECKPOINT:
                checkpoint = True
            inner = inner.f_back
        if user is not None and checkpoint:
            self.current.phase = RECOMPUTE
        if user is None and self._backward is None:
            user = sites.user_frame(inner)
        if user is not None:
            self.current.line = self._line(user)

    def _end_operation(
        self, args: Args, kwargs: Kwargs, result: Any, error: BaseException | None
    ) -> None:
        stop = time.perf_counter_ns()
        current = self.current
        if current.node == ACCUMULATOR and args:
            self.owners.accumulate(args[0], result)
        if error is not None:
            self.close_event((), -1, stop, type(error).__name__)
            return
        told = [self._origin(args, kwargs, output) for output in tensors_in(result)]
        if current.function.base == "lift_fresh":
            told = [(block.origin, block.number) for block in current.born]  # made without a call
        if current.born and current.phase != BACKWARD:
            self.owners.outlive(result)
        storage = told[0][1] if told else -1
        self.close_event(tuple(origin for origin, _ in told), storage, stop)

    # --- events -----------------------------------------------------------------------------------

    def _line(self, frame: FrameType | None) -> LineOfCode:
        if frame is None:
            return self.nowhere
        code = frame.f_code
        key = (id(code), frame.f_lasti)
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = LineOfCode(code, frame.f_lasti)
        return line

    def _open_event(self, function: Any) -> None:
        current = self.current
        current.function = function
        current.path = self._modules.path
        current.index = self.memory.event = self.events
        current.node, current.forward = "", None
        current.clear()

    def close_event(
        self, origins: tuple[str, ...], storage: int, stop: int, raised: str = ""
    ) -> None:
        """An event is over: count it by line, and keep it while there is room."""
        current = self.current
        line, path = current.line, current.path
        self.events += 1
        line.events += 1
        line.operations += current.operations
        if path != line.last_path:
            line.last_path = path
            line.paths[path] = None
        line.phases |= 1 << current.phase
        calls = line.calls
        calls[current.function] = calls.get(current.function, 0) + 1
        told = line.origins
        for origin in origins:
            told[origin] = told.get(origin, 0) + 1
        touched: tuple[Any, ...] = ()
        if current.touched:
            touched = tuple(dict.fromkeys(current.touched))
            for _, effect in touched:
                line.effects[effect] = line.effects.get(effect, 0) + 1
        elif origins == _SAME:
            self.same += 1
        if current.allocated:
            line.allocated += current.allocated
        if current.written:
            self._add_copied(line, current)
        if raised:
            line.raised += 1
            self.raised += 1
        event = (
            current.index, current.function, line, path, current.phase, current.parent, current.node,
            current.forward, origins, touched, raised, current.operations, current.allocated,
            current.written, current.read, current.hidden, self.memory.live, storage, current.start, stop,
        )  # fmt: skip
        if len(self.first) < MOST_EVENTS // 2:
            self.first.append(event)
        else:
            self.last.append(event)
        if current.index >= self.timeline.due:
            self.timeline.pass_by(current.index, self.copied, stop - self.started)

    def _add_copied(self, line: LineOfCode, current: Current) -> None:
        line.copied += current.written
        line.read += current.read
        line.hidden_bytes += current.hidden
        self.copied += current.written
        self.read += current.read
        self.hidden_bytes += current.hidden
        self.rounds.copied = self.copied

    def close(self) -> None:
        """The run is over."""
        self.stopped = time.perf_counter_ns()
        self.owners.end_step()
