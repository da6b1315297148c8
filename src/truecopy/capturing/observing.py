"""What a capture does at each call: whether it is wanted, what it is called, and that it is kept.

In: calls of modules and of torch functions, from the stream of tracing, with the live tensors. Out: entries.
What runs in a backward pass is recomputed (checkpointing) or of the pass itself, and is not captured twice.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from truecopy import _torch
from truecopy.capturing.entries import Entries, Entry
from truecopy.capturing.fastpaths import may_be_fast, takes_slow_path_now
from truecopy.capturing.functions import GIVING_AWAY, Functions
from truecopy.capturing.gradients import Gradients, Slot
from truecopy.capturing.keeping import Keeper
from truecopy.capturing.names import Name, Pattern
from truecopy.capturing.places import Call, Places, is_wrapper
from truecopy.capturing.selection import Selection
from truecopy.capturing.structures import take
from truecopy.structure.kinds import Kind, kind_of
from truecopy.tracing.operations import tensors_in
from truecopy.tracing.sites import Place, user_frame
from truecopy.tracing.stream import SILENT, Args, Kwargs, Observer


class Inputs(NamedTuple):
    """What a module, or a function, was called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Stopped(BaseException):
    """Ends a run at `until=`. Not an Exception: the model's own `except` clauses do not meet it."""


@dataclass(slots=True)
class _Open:
    """A torch function that is running, and what happened inside of it."""

    node: int  # the number that the next autograd node has
    counts: dict[str, int] | None = None  # before it, where it was opened
    inner: int = 0
    last: Any = None
    entries: list[Entry] = field(default_factory=list)


_NOTHING = _Open(0)


class Recorder(Observer):
    """Captures what the selection wants."""

    ignored = SILENT - GIVING_AWAY
    leaves_regions_alone = False  # they run eagerly, see compiling.py

    def __init__(
        self,
        model: nn.Module,
        selection: Selection,
        keeper: Keeper,
        leaf: Callable[[Tensor], Any],
        *,
        until: Pattern | None,
        gradients: Gradients | None,
        opaque: tuple[type, ...],
    ) -> None:
        self.places = Places(model)
        self.selection = selection
        self.keeper = keeper
        self.leaf = leaf
        self.inner_calls = selection.wants_functions
        self.until = until
        self.gradients = gradients
        self.opaque = opaque
        self.entries = Entries()
        self.functions = Functions()
        self.unseen: Counter[str] = Counter()
        self.failed = ""  # the innermost module in which an exception rose
        self.fast: dict[str, int] = {}  # modules that were left to their fast path
        self.stopped: Stopped | None = None
        self._open: list[_Open] = []

    # --- modules --------------------------------------------------------------------------------

    def around_module(
        self, module: nn.Module, args: Args, kwargs: Kwargs, run: Callable[[], Any]
    ) -> Any:
        """Called in the place of a module's call."""
        if _torch.in_backward():
            self.unseen["module calls inside of a backward pass (recomputed)"] += 1
            return run()
        places = self.places
        above = places.current
        if self.stream.is_aside and above is not None and takes_slow_path_now(above.module):
            self.stream.step_back()
        call = places.enter(module)
        try:
            if call is None:
                return run()
            if is_wrapper(module):
                return self._through_wrapper(call, run)
            if self.selection.inputs and self._takes(call, port="in"):
                self._add(call, Inputs(args, kwargs), Name(call.path, call.number, port="in"))
            call.before = _attributes(module)
            aside = self._steps_aside(call, args, kwargs)
            result = self.stream.run_aside(run) if aside else run()
        except BaseException as error:
            if not isinstance(error, Stopped) and not self.failed and call is not None:
                self.failed = str(Name(call.path, call.number))
            raise
        finally:
            places.stack.pop()
        if isinstance(result, GeneratorType):
            return self._items(call, result)
        self._finish(call, result)
        return result

    def _through_wrapper(self, call: Call, run: Callable[[], Any]) -> Any:
        """A call of a module that stands for another, which may be called by a way that is not seen."""
        result = run()
        if self.places.numbers[call.path] == call.number:
            self.places.numbers[call.path] += 1
            self._finish(call, result)
        return result

    def _finish(self, call: Call, result: Any) -> None:
        self._stash(call)
        if self._takes(call):
            self._add(call, result, Name(call.path, call.number))

    def _steps_aside(self, call: Call, args: Args, kwargs: Kwargs) -> bool:
        """Whether the module is to run without our function mode, so that it goes its fast way."""
        if not may_be_fast(call.module, args, kwargs):
            return False
        inner = [
            (f"{call.path}.{path}" if call.path else path, type(one))
            for path, one in call.module.named_modules()
            if path
        ]
        if self.selection.asks_inside(call.path, inner):
            self.unseen[
                f"the fast path of {Name(call.path)}, which was off: names inside of it were asked for, "
                "so its result may differ in the last bits from that of an unobserved run"
            ] += 1
            return False
        self.fast[call.path] = self.fast.get(call.path, 0) + 1
        return True

    def _items(self, call: Call, source: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """A module's generator, whose body runs later: the items are captured as they come."""
        number, step = 0, source.__next__
        while True:
            self.places.stack.append(call)
            depth = len(self.places.stack)
            try:
                item = step()
            except StopIteration as stop:
                return stop.value
            finally:
                del self.places.stack[depth - 1 :]
            port = f"item.{number}"
            if self.stream.is_open and self._takes(call):
                self._add(call, item, Name(call.path, call.number, port=port))
            number += 1
            try:
                sent = yield item
                step = _sending(source, sent)
            except GeneratorExit:
                source.close()
                raise
            except BaseException as error:  # noqa: BLE001 - thrown in by whoever reads the items
                step = _throwing(source, error)

    # --- attributes -----------------------------------------------------------------------------

    def _stash(self, call: Call) -> None:
        """Tensors that a call put into attributes of its module."""
        after = _attributes(call.module)
        if after is None:
            return
        before = call.before or {}
        for name, (_, marks) in after.items():
            if name in before and before[name][1] == marks:
                continue
            port = f"attr.{name}"
            if self._takes(call, port=port):
                value = getattr(call.module, name)
                self._add(call, value, Name(call.path, call.number, port=port))

    # --- functions ------------------------------------------------------------------------------

    def begin(self, function: Any, args: Args, kwargs: Kwargs) -> None:
        """A torch function is about to run."""
        if kwargs and kwargs.get("out") is not None:
            self._give_up_laziness(kwargs["out"])
        if function in GIVING_AWAY:
            self._give_up_laziness(args[:1])
        if not self.inner_calls:
            return
        opened = self._open
        call = self.places.current
        node = _torch.next_node_number() if self.selection.saved else 0
        counts = dict(call.counts) if call is not None and hasattr(function, "__code__") else None
        opened.append(_Open(node, counts))

    def _give_up_laziness(self, value: Any) -> None:
        """Give tensors memory of their own, and copy them from now on.

        A lazy tensor cannot grow, and who has an address would write around it.
        """
        with _torch.disable_torch_function():
            for tensor in tensors_in(value):
                self.keeper.expose(tensor)

    def end(
        self, function: Any, args: Args, kwargs: Kwargs, result: Any, error: BaseException | None
    ) -> None:
        """A torch function has run."""
        frame = self._open.pop() if self.inner_calls else _NOTHING
        if error is not None:
            return
        self.keeper.moment += 1
        if result is None and getattr(function, "__name__", "") == "__setitem__":
            result = args[0]
        tensors = _tensors(result)
        if not tensors:
            self._pass_on(frame.entries)
            return
        if _torch.in_backward():
            self.unseen["functions inside of a backward pass (recomputed, or of the pass)"] += 1
            return
        with _torch.disable_torch_function():
            for tensor in tensors:
                self._note_birth(tensor, args, kwargs)
            if self.inner_calls:
                self._record(function, args, kwargs, result, frame)

    def _note_birth(self, tensor: Tensor, args: Args, kwargs: Kwargs) -> None:
        """Whether a storage is of this run: it comes out of a call that was not given it."""
        if _torch.is_functorch_wrapper(tensor):
            tensor = _torch.unwrapped(tensor)
        try:
            key = _torch.storage_identity(tensor)
        except (NotImplementedError, RuntimeError):  # sparse tensors and the like have none
            return
        if not self.keeper.knows(key):
            given = any(_identity(one) == key for one in _given(args, kwargs))
            self.keeper.meet(tensor, born=not given)

    def _record(self, function: Any, args: Args, kwargs: Kwargs, result: Any, frame: _Open) -> None:
        call = self.places.current or self.places.outside(sys._getframe(2))
        name = self.functions.name(function)
        if call is None or name is None:
            return
        if frame.inner == 1 and frame.last is result and frame.counts is not None:
            call.counts, frame.entries = frame.counts, []  # thin: the inner call was all of it
        number = call.counts.get(name, 0)
        call.counts[name] = number + 1
        above = self._open[-1] if self._open else None
        if above is not None:
            above.inner += 1
            above.last = result
        entries = frame.entries
        full = Name(call.path, call.number, name, number)
        if self.selection.inputs and self._takes(call, name, number, "in"):
            inputs = Name(call.path, call.number, name, number, "in")
            entries.append(self._entry(Inputs(args, kwargs), inputs, "function"))
        if self._takes(call, name, number):
            entries.append(self._entry(result, full, "function"))
        if self.selection.saved and not frame.inner:  # what is inside has told of its own
            entries += self._saved(call, result, full, frame.node)
        self._pass_on(entries)

    def _pass_on(self, entries: list[Entry]) -> None:
        """Hand entries to the function around, which may turn out to be no more than this one."""
        if self._open:
            self._open[-1].entries += entries
            return
        for entry in entries:
            self._commit(entry)

    def _saved(self, call: Call, result: Any, name: Name, first: int) -> list[Entry]:
        """What the graph nodes saved that this call has made."""
        found: list[Entry] = []
        place: Place | None = None
        for node in _new_nodes(result, first):
            for what, tensor in _torch.saved_by_name(node):
                port = f"saved.{node.name()}.{what}"
                if not self._takes(call, name.function, name.number, port):
                    continue
                if place is None:
                    frame = user_frame(sys._getframe(1))
                    place = None if frame is None else (frame.f_code, frame.f_lasti)
                full = Name(name.module, name.call, name.function, name.number, port)
                entry = self._entry(tensor, full, "saved")
                entry.node, entry.place = node.name(), place
                found.append(entry)
        return found

    # --- entries --------------------------------------------------------------------------------

    def _takes(self, call: Call, function: str = "", number: int = 0, port: str = "") -> bool:
        return self.selection.takes(
            type(call.module), call.path, call.number, function, number, port
        )

    def _add(self, call: Call, value: Any, name: Name) -> None:
        with _torch.disable_torch_function():
            self._commit(self._entry(value, name, type(call.module).__name__))

    def _entry(self, value: Any, name: Name, kind: str) -> Entry:
        if self.gradients is None:
            return Entry(name, kind, take(value, self.leaf, self.opaque))
        expect = self.gradients.expect
        slots: list[Slot | None] = []

        def keep(tensor: Tensor) -> Any:
            slots.append(expect(tensor))
            return self.leaf(tensor)

        return Entry(name, kind, take(value, keep, self.opaque), slots)

    def _commit(self, entry: Entry) -> None:
        self.entries.add(entry)
        if self.until is not None and self.until.matches(entry.name):
            self.stopped = Stopped(str(entry.name))
            raise self.stopped


def _given(args: Args, kwargs: Kwargs) -> Iterator[Tensor]:
    """The tensors among arguments, most of which are arguments themselves."""
    for one in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, (tuple, list, dict)):
            yield from tensors_in(one)


def _identity(tensor: Tensor) -> int | None:
    try:
        return _torch.storage_identity(tensor)
    except (NotImplementedError, RuntimeError):
        return None


def _tensors(result: Any) -> list[Tensor]:
    """The tensors that a function returned."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, (tuple, list)) and type(result) is not torch.Size:
        return list(tensors_in(result))
    return []


def _new_nodes(result: Any, first: int) -> Iterator[Any]:
    """The graph nodes that were made since the number, each once, in the order of the forward pass."""
    found: dict[int, Any] = {}
    waiting = [t.grad_fn for t in _tensors(result) if t.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        number = _torch.node_number(node)
        if number < first or _torch.accumulated_tensor(node) is not None or number in found:
            continue
        found[number] = node
        waiting += [following for following, _ in node.next_functions if following is not None]
    return iter([found[number] for number in sorted(found)])


_OWN = frozenset(vars(nn.Module()))


def _attributes(module: nn.Module) -> dict[str, Any] | None:
    """The attributes of a module that hold tensors, with marks of the tensors; None where there are none.

    The objects are held with their marks, so that no identity is given out again meanwhile.
    """
    found: dict[str, Any] | None = None
    for name, value in module.__dict__.items():
        if name in _OWN:
            continue
        kind = kind_of[type(value)]
        if kind is Kind.TENSOR:
            held: Any = value
            marks: tuple[int, ...] = (id(value),)
        elif kind in _CONTAINERS:
            held = list(tensors_in(value))
            if not held:
                continue
            marks = tuple(map(id, held))
        else:
            continue
        found = {} if found is None else found
        found[name] = (held, marks)
    return found


_CONTAINERS = frozenset((Kind.LIST, Kind.TUPLE, Kind.DICT, Kind.ORDERED))


def _sending(source: Generator[Any, Any, Any], value: Any) -> Callable[[], Any]:
    return lambda: source.send(value)


def _throwing(source: Generator[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: source.throw(error)
