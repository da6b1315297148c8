"""Everything alive in this process that Python shows, and how to reach it by name.

The garbage collector knows the containers, the running frames know the variables. Numpy arrays are
not in its lists, nor are dicts and tuples of arrays alone: they are found through what holds them.
Reads dictionaries, slots, closures and frames; runs no code of any object.
"""

from __future__ import annotations

import gc
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

from truecopy.memory.steps import gradient_of, instance_dict, is_object_array, steps_between
from truecopy.structure.kinds import arrays_of_others
from truecopy.structure.naming import variables
from truecopy.structure.paths import Attribute, Item, Step

_MOST_LEVELS = 40
"""Containers inside each other, from a value up to a name."""

_MOST_CONTAINERS = 20_000
"""Containers that are looked at on the way up to the names."""

_FEW = 32
"""Values whose referrers the collector finds quicker than we do."""

_OWN_PACKAGE = __name__.partition(".")[0]
_MODULE_TABLES = frozenset(("_parameters", "_buffers", "_modules"))
_SUSPENDED = {
    types.GeneratorType: "gi_frame",
    types.CoroutineType: "cr_frame",
    types.AsyncGeneratorType: "ag_frame",
}


@dataclass(frozen=True, slots=True)
class Variable:
    """A local variable of a function that is running or suspended."""

    where: str  # "train.py:42 in fit()"
    name: str
    frame: int  # identity of the frame

    def __str__(self) -> str:
        return f"{self.where}: {self.name}"


Edge = tuple[Any, Step]
"""A container, and the step from it to what it holds."""


@dataclass(slots=True)
class Heap:
    """One look at the process. Holds what it saw: to be dropped when the question is answered."""

    objects: list[Any]  # what the collector tracks
    known: set[int] = field(default_factory=set)
    hidden: dict[int, Any] = field(default_factory=dict)  # dicts and tuples that it does not
    object_arrays: list[np.ndarray[Any, Any]] = field(
        default_factory=list
    )  # it sees none of theirs
    arrays: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)
    locals: dict[int, list[Variable]] = field(default_factory=dict)  # by identity of the value
    local_values: list[Any] = field(default_factory=list)
    globals: dict[int, str] = field(default_factory=dict)  # dicts of modules, by name
    gradients: dict[int, list[torch.Tensor]] = field(default_factory=dict)  # whose `.grad` it is

    @property
    def tensors(self) -> Iterator[torch.Tensor]:
        """Every tensor that has a Python object."""
        classes = _classes(self.objects, torch.Tensor)
        return (value for value in self.objects if type(value) in classes)

    @property
    def storages(self) -> Iterator[Any]:
        """Every storage that has a Python object."""
        classes = _classes(self.objects, (torch.UntypedStorage, torch.TypedStorage))
        return (value for value in self.objects if type(value) in classes)

    @property
    def foreign(self) -> Iterator[Any]:
        """Every array of JAX and TensorFlow."""
        classes = _classes(self.objects, arrays_of_others())
        return (value for value in self.objects if type(value) in classes)

    def holders(self, values: Iterable[Any]) -> Iterator[tuple[Any, Any, Step]]:
        """What holds each of the values directly, local variables aside: value, container, step."""
        wanted = {id(value): value for value in values}
        for parent in self._referrers(wanted):
            for value in _held_among(parent, wanted):
                yield from ((value, parent, step) for step in self.steps(parent, value))

    def steps(self, parent: Any, child: Any) -> Iterator[Step]:
        """Every step that leads from a container to what it holds."""
        self.dict_of(parent)
        return steps_between(parent, child)

    def dict_of(self, value: Any) -> dict[str, Any] | None:
        """The dictionary of an object. Python makes one when asked, and the object then holds that."""
        names = instance_dict(value)
        if names is not None and id(names) not in self.known:
            self.known.add(id(names))
            self.objects.append(names)
        return names

    def names(self, containers: Iterable[Any]) -> dict[int, Name]:
        """The shortest name of each container, as Python, by identity."""
        waiting = {id(value): value for value in containers}
        edges: dict[int, list[tuple[Any, Any, Step]]] = {}  # by identity of the parent
        wanted, seen, named = set(waiting), dict(waiting), dict[int, Name]()
        for _ in range(_MOST_LEVELS):
            roots = {key: name for key, value in waiting.items() if (name := self._root(value))}
            named = _spread(roots, named, edges)
            waiting = {key: value for key, value in waiting.items() if key not in named}
            if not waiting or wanted <= named.keys() or len(seen) > _MOST_CONTAINERS:
                break
            waiting = self._upward(waiting, edges, seen)
        return {key: named[key] for key in wanted & named.keys()}

    def _upward(
        self,
        waiting: dict[int, Any],
        edges: dict[int, list[tuple[Any, Any, Step]]],
        seen: dict[int, Any],
    ) -> dict[int, Any]:
        """One level up: the containers of the containers, each met for the first time."""
        found: dict[int, Any] = {}
        for parent in self._referrers(waiting):
            for child in _held_among(parent, waiting):
                step = next(self.steps(parent, child), None)
                if step is not None:
                    edges.setdefault(id(parent), []).append((parent, child, step))
            if id(parent) not in seen and id(parent) in edges:
                seen[id(parent)] = found[id(parent)] = parent
        return found

    def _root(self, value: Any) -> Name | None:
        """The name of what needs no container to be named."""
        if variable := next(iter(self.locals.get(id(value), ())), None):
            return Name(str(variable), 1, value)
        if id(value) in self.globals:
            return Name(self.globals[id(value)], 0, value, is_namespace=True)
        if type(value) is types.FunctionType:
            return Name(f"{value.__module__}.{value.__qualname__}", 1, value)
        if issubclass(type(value), type):
            name: str = type.__dict__["__qualname__"].__get__(value)
            module = type.__dict__["__module__"].__get__(value)
            return Name(f"{module}.{name}", 1, value)
        return None

    def _referrers(self, wanted: dict[int, Any]) -> Iterator[Any]:
        """Every container that holds one of some values, each once."""
        if len(wanted) <= _FEW:
            found = [p for p in gc.get_referrers(*wanted.values()) if id(p) in self.known]
        else:
            found = [parent for parent in self.objects if _holds(parent, wanted)]
        found += [parent for parent in self.object_arrays if _holds(parent, wanted)]
        if not all(map(gc.is_tracked, wanted.values())):  # only such are held by such
            untracked = [*self.hidden.values(), *self._untracked_since()]
            found += [parent for parent in untracked if _holds(parent, wanted)]
        owners = [owner for key in wanted for owner in self.gradients.get(key, ())]
        return iter([p for p in found if type(p) is not types.FrameType] + owners)

    def _untracked_since(self) -> list[Any]:
        """Tuples and dicts that the collector has dropped from its lists after we looked."""
        both = (tuple, dict)
        return [v for v in self.objects if type(v) in both and not gc.is_tracked(v)]


def look() -> Heap:
    """Look at the process. Made first of all, so that none of our own objects are among the seen."""
    heap = Heap(gc.get_objects())
    heap.known = set(map(id, heap.objects))
    for name, module in list(sys.modules.items()):
        if issubclass(type(module), types.ModuleType):
            heap.globals.setdefault(id(vars(module)), name)
    _read_frames(heap)
    _find_untracked(heap)
    _find_gradients(heap)
    return heap


def _read_frames(heap: Heap) -> None:
    """Note the local variables of every function that is running, suspended or in a traceback."""
    seen: set[int] = set()
    for top in [*sys._current_frames().values(), *_other_frames(heap)]:
        frame: types.FrameType | None = top
        while frame is not None and id(frame) not in seen:
            seen.add(id(frame))
            _read_frame(heap, frame)
            frame = frame.f_back


def _other_frames(heap: Heap) -> Iterator[types.FrameType]:
    for value in heap.objects:
        if type(value) is types.FrameType:
            yield value
        elif type(value) in _SUSPENDED:
            frame = getattr(value, _SUSPENDED[type(value)])
            if frame is not None:
                yield frame


def _read_frame(heap: Heap, frame: types.FrameType) -> None:
    own_globals = frame.f_globals
    module = str(own_globals.get("__name__"))
    if module.partition(".")[0] == _OWN_PACKAGE:
        return
    heap.globals.setdefault(id(own_globals), module)  # of a script that runs outside of any module
    if frame.f_code.co_name == "<module>":
        return
    code = frame.f_code
    where = f"{PurePath(code.co_filename).name}:{frame.f_lineno} in {code.co_name}()"
    for name, value in variables(frame, heap.known):
        if not name.isidentifier():
            continue  # what Python or a test runner put there, not the program
        heap.locals.setdefault(id(value), []).append(Variable(where, name, id(frame)))
        heap.local_values.append(value)


def _find_untracked(heap: Heap) -> None:
    """Follow dicts, tuples and arrays of objects that the collector leaves out, down to the arrays."""
    held = [*heap.local_values, *gc.get_referents(*heap.objects)]
    while held:
        arrays = _classes(held, np.ndarray)
        new_arrays = {id(v): v for v in held if type(v) in arrays and id(v) not in heap.arrays}
        followed = {
            id(value): value
            for value in held
            if (type(value) is dict or type(value) is tuple)
            and id(value) not in heap.known
            and id(value) not in heap.hidden
        }
        of_objects = [array for array in new_arrays.values() if is_object_array(array)]
        heap.arrays |= new_arrays
        heap.hidden |= followed
        heap.object_arrays += of_objects
        held = gc.get_referents(*followed.values())
        held += [inner for array in of_objects for inner in _referents(array)]


def _find_gradients(heap: Heap) -> None:
    """Gradients are held by tensors in C++, where the collector does not look."""
    for tensor in heap.tensors:
        if (held := gradient_of(tensor)) is not None:
            heap.gradients.setdefault(id(held), []).append(tensor)


def _classes(values: Iterable[Any], base: type | tuple[type, ...]) -> set[type]:
    return {cls for cls in set(map(type, values)) if issubclass(cls, base)}


def _referents(value: Any) -> list[Any]:
    """What a container holds; an array of objects tells the collector nothing."""
    if is_object_array(value):
        return list(np.ndarray.view(value, np.ndarray).reshape(-1))
    return gc.get_referents(value)


def _holds(parent: Any, wanted: dict[int, Any]) -> bool:
    return any(id(held) in wanted for held in _referents(parent))


def _held_among(parent: Any, wanted: dict[int, Any]) -> list[Any]:
    found = {id(held): held for held in _referents(parent) if id(held) in wanted}
    if issubclass(type(parent), torch.Tensor):
        gradient = gradient_of(parent)
        if gradient is not None and id(gradient) in wanted:
            found[id(gradient)] = gradient
    return list(found.values())


# --- names ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name:
    """How a container is written."""

    text: str
    length: int  # in steps; the shortest way is taken
    value: Any
    is_namespace: bool = False  # the dict behind attributes: `["x"]` on it is written `.x`
    table_of: Any = None  # the module whose table of children this is

    def then(self, step: Step, child: Any) -> Name:
        """The name of what one step leads to."""
        length = self.length + 1
        if self.table_of is not None and isinstance(step, Item):
            module_text = self.text.rpartition(".")[0]
            code = _module_step(self.table_of, str(step.key)).code(module_text)
            return Name(code, length, child)
        if self.is_namespace and isinstance(step, Item) and type(step.key) is str:
            is_table = step.key in _MODULE_TABLES and isinstance(self.value, torch.nn.Module)
            owner = self.value if is_table else None
            return Name(Attribute(step.key).code(self.text), length, child, table_of=owner)
        if step == Attribute("__dict__"):
            return Name(self.text, self.length, self.value, is_namespace=True)
        is_table = isinstance(step, Attribute) and step.name in _MODULE_TABLES
        owner = self.value if is_table and isinstance(self.value, torch.nn.Module) else None
        return Name(step.code(self.text), length, child, table_of=owner)


def _module_step(module: torch.nn.Module, key: str) -> Step:
    if isinstance(module, torch.nn.Sequential | torch.nn.ModuleList) and key.isdigit():
        return Item(int(key))
    return Item(key) if isinstance(module, torch.nn.ModuleDict) else Attribute(key)


def _spread(
    roots: dict[int, Name],
    named: dict[int, Name],
    edges: dict[int, list[tuple[Any, Any, Step]]],
) -> dict[int, Name]:
    """Carry names from the roots down to all that is reached, the shortest first."""
    named = {**named, **{key: name for key, name in roots.items() if key not in named}}
    waiting = deque(sorted(named.items(), key=lambda pair: pair[1].length))
    while waiting:
        key, name = waiting.popleft()
        for _, child, step in edges.get(key, ()):
            if id(child) not in named:
                named[id(child)] = further = name.then(step, child)
                waiting.append((id(child), further))
    return named
