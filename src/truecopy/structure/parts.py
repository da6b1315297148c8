"""What each kind of object holds, how to reach it, and how the object is made again.

Every kind answers three questions: `parts_of` (what it is made from, and what it is filled with
afterwards), `make` and `fill`. Looking and copying ask the same questions; only objects with a copy
protocol of their own answer differently: to a look they show their attributes, to a copy what their
protocol hands out (see `protocol.py`).
"""

from __future__ import annotations

import cmath
import copyreg
import functools
import gc
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from truecopy.structure.kinds import Kind, kind_of, registered
from truecopy.structure.paths import Attribute, Behind, Item, Nth, NthValue, Referent, Step
from truecopy.structure.weak import fill_weak, weak_members


@dataclass(frozen=True, slots=True)
class Parts:
    """What an object holds: what it is made from, what it is filled with, and how to reach each."""

    made_from: Sequence[Any] = ()
    filled_with: Sequence[Any] = ()
    step: Callable[[int], Step] = Item
    memory: Any = None  # what `make` and `fill` of this kind need to know again


def attributes(value: Any) -> list[tuple[str, Any]]:
    """Names and values of what an object carries in its dictionary and its slots. Runs no user code."""
    held = getattr(value, "__dict__", None)
    found = list(held.items()) if type(held) is dict else []
    for name in copyreg._slotnames(type(value)):  # type: ignore[attr-defined]
        try:
            found.append((name, object.__getattribute__(value, name)))
        except AttributeError:
            continue  # a slot that was never filled
    return found


def container_parts(kind: Kind, value: Any) -> Parts:
    """What Python's own containers, methods and registered objects hold."""
    match kind:
        case Kind.LIST:
            return Parts(filled_with=list(value))
        case Kind.TUPLE:
            return Parts(made_from=value)
        case Kind.DICT:
            return dict_parts(value)
        case Kind.SET:
            return Parts(filled_with=list(value), step=Nth)
        case Kind.FROZENSET:
            return Parts(made_from=list(value), step=Nth)
        case Kind.METHOD:
            return Parts(made_from=[value.__self__], step=lambda _: Attribute("__self__"))
        case Kind.READ_ONLY:
            return Parts(made_from=gc.get_referents(value), step=lambda _: Behind())
        case Kind.ARRAY:
            return _object_array_parts(value)
        case Kind.SUBARRAY:
            return _subarray_parts(value)
        case Kind.WEAKLY:
            return _weak_parts(value)
        case Kind.REGISTERED:
            held = dict(registered[type(value)].children(value))
            names = list(held)
            return Parts(list(held.values()), (), lambda i: Attribute(names[i]), names)
    return look_parts(value)


_WRITABLE_KEYS = (str, int, float, bool, bytes, type(None))


def _is_literal(key: Any) -> bool:
    if type(key) is tuple:
        return all(map(_is_literal, key))
    if type(key) in (float, complex):
        return cmath.isfinite(key)  # inf and nan are names, not literals
    return type(key) in _WRITABLE_KEYS


def dict_step(keys: list[Any], index: int) -> Step:
    """The way to a dict's n-th value: by its key, where Python can write the key."""
    if index >= len(keys):
        raise IndexError(index)
    key = keys[index]
    return Item(key) if _is_literal(key) else NthValue(index, key)


def dict_parts(value: dict[Any, Any]) -> Parts:
    """A dict's values, and those of its keys that are objects themselves."""
    if not dict.__len__(value):
        return _EMPTY
    # The order of an OrderedDict is its own: `move_to_end` does not move what the dict in it has.
    keys = list((OrderedDict if isinstance(value, OrderedDict) else dict).keys(value))
    values = [dict.__getitem__(value, key) for key in keys]
    odd = odd_keys(keys)
    return Parts(
        filled_with=[*values, *(keys[i] for i in odd)] if odd else values,
        step=lambda i: dict_step(keys, i) if i < len(keys) else Nth(odd[i - len(keys)]),
        memory=(keys, odd),
    )


_EMPTY = Parts(memory=([], []))


def odd_keys(keys: list[Any]) -> list[int]:
    """Positions of keys that are not atoms, and so are copied themselves."""
    if all(kind_of[cls] is Kind.ATOM for cls in set(map(type, keys))):
        return []
    return [i for i, key in enumerate(keys) if kind_of[type(key)] is not Kind.ATOM]


def _object_array_parts(value: np.ndarray[Any, Any]) -> Parts:
    places = list(np.ndindex(value.shape))
    return Parts(
        filled_with=[value[place] for place in places],
        step=lambda i: Item(places[i] if len(places[i]) != 1 else places[i][0]),
        memory=places,
    )


def _subarray_parts(value: np.ndarray[Any, Any]) -> Parts:
    """Attributes; those of a memmap tell of its file, where no copy of it lies."""
    named = [] if isinstance(value, np.memmap) else attributes(value)
    names = [name for name, _ in named]
    return Parts(
        filled_with=[held for _, held in named],
        step=lambda i: Attribute(names[i]),
        memory=names,
    )


def _weak_parts(value: Any) -> Parts:
    first, second, targets = weak_members(value)
    keys, count = targets if isinstance(value, WeakKeyDictionary) else first, len(first)
    return Parts(
        filled_with=[*first, *second],
        step=lambda i: Nth(i) if i < count else dict_step(keys, i - count),
        memory=targets,
    )


def look_parts(value: Any) -> Parts:
    """Attributes and members, read without running code of the object's class."""
    named = attributes(value)
    inner = _member_parts(value)
    if not named:
        return inner
    steps = [Attribute(name) for name, _ in named]
    count = len(steps)
    return Parts(
        filled_with=[*(held for _, held in named), *inner.filled_with],
        step=lambda i: steps[i] if i < count else inner.step(i - count),
    )


def _member_parts(value: Any) -> Parts:
    """What an object holds beside its attributes, by the built-in type that it derives from."""
    match value:
        case dict():
            return dict_parts(value)
        case list():
            return Parts(filled_with=list(list.__iter__(value)))
        case tuple():
            return Parts(filled_with=list(tuple.__iter__(value)))
        case deque():
            return Parts(filled_with=list(deque.__iter__(value)))
        case set() | frozenset():
            return Parts(filled_with=list(value), step=Nth)
        case functools.partial():
            names = ("func", "args", "keywords")
            return Parts(
                filled_with=[getattr(value, n) for n in names], step=lambda i: Attribute(names[i])
            )
    if type(value).__flags__ & _IS_PYTHON_CLASS:
        return Parts()
    # A type written in C keeps what it holds to itself; the garbage collector knows.
    return Parts(
        filled_with=[held for held in gc.get_referents(value) if held is not type(value)],
        step=Referent,
    )


_IS_PYTHON_CLASS = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def named_parts(kind: Kind, value: Any) -> Parts:
    """`container_parts` in the order of their names, whoever put them there first.

    So two structures can be compared member by member. Members of sets come in the order of their
    values. Bound methods are left out: they are what an object does, not what it holds.
    """
    parts = container_parts(kind, value)
    if kind in (Kind.LIST, Kind.TUPLE, Kind.METHOD, Kind.ARRAY, Kind.REGISTERED):
        return parts
    held = [*parts.made_from, *parts.filled_with]
    steps = [parts.step(index) for index in range(len(held))]
    named = [
        (repr(value) if isinstance(step, Nth) else step.code(""), index)
        for index, (value, step) in enumerate(zip(held, steps, strict=True))
        if kind_of[type(value)] is not Kind.METHOD
    ]
    order = [index for _, index in sorted(named)]
    in_order = [
        Nth(i) if isinstance(steps[old], Nth) else steps[old] for i, old in enumerate(order)
    ]
    return Parts(
        filled_with=[held[index] for index in order], step=in_order.__getitem__, memory=parts.memory
    )


# --- made again -----------------------------------------------------------------------------------


def make_container(kind: Kind, value: Any, parts: Parts, copies: list[Any]) -> Any:
    """The new object, made from copies of what it is made from, not yet filled."""
    match kind:
        case Kind.LIST:
            return []
        case Kind.DICT:
            return type(value)()
        case Kind.SET:
            return set()
        case Kind.WEAKLY:
            return type(value)()
        case Kind.TUPLE:
            same = all(old is new for old, new in zip(value, copies, strict=True))
            return value if same else tuple(copies)
        case Kind.FROZENSET:
            same = all(old is new for old, new in zip(parts.made_from, copies, strict=True))
            return value if same else frozenset(copies)
        case Kind.METHOD:
            return type(value)(value.__func__, copies[0])
        case Kind.READ_ONLY:
            return types.MappingProxyType(copies[0])
        case Kind.ARRAY:
            return np.empty_like(value, subok=False)
        case Kind.REGISTERED:
            return registered[type(value)].rebuild(
                value, dict(zip(parts.memory, copies, strict=True))
            )
    raise AssertionError(f"{kind} is not made from parts")


def fill_container(kind: Kind, made: Any, parts: Parts, copies: list[Any]) -> None:
    """Put copies of what an object is filled with into the new one."""
    match kind:
        case Kind.LIST:
            made[:] = copies
        case Kind.DICT:
            keys, odd = parts.memory
            made.update(zip(copied_keys(keys, odd, copies[len(keys) :]), copies, strict=False))
        case Kind.SET:
            made.update(copies)
        case Kind.SUBARRAY:
            for name, copied in zip(parts.memory, copies, strict=True):
                object.__setattr__(made, name, copied)
        case Kind.WEAKLY:
            count = len(parts.memory)
            fill_weak(made, copies[:count], copies[count:])
        case Kind.ARRAY:
            for place, copied in zip(parts.memory, copies, strict=True):
                made[place] = copied


def hashed(kind: Kind, parts: Parts) -> Sequence[Any]:
    """What of it a dict or a set has to hash when it is filled."""
    match kind:
        case Kind.SET:
            return parts.filled_with
        case Kind.DICT:
            return parts.filled_with[len(parts.memory[0]) :]
    return ()


def copied_keys(keys: Sequence[Any], odd: Sequence[int], copies: Sequence[Any]) -> Sequence[Any]:
    """A dict's keys, with the odd ones replaced by their copies."""
    if not odd:
        return keys
    replaced = list(keys)
    for place, copied in zip(odd, copies, strict=True):
        replaced[place] = copied
    return replaced
