"""The steps from any container to what it holds, read off dictionaries, slots and closures.

No code of any object is run: attributes are read through the types that Python itself defines, and
`isinstance`, which asks an object for its class, is not used.
"""

from __future__ import annotations

import functools
import gc
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from truecopy.structure.parts import dict_step
from truecopy.structure.paths import Attribute, Item, Nth, Step


def steps_between(parent: Any, child: Any) -> Iterator[Step]:
    """Every step that leads from a container to what it holds. Runs no code of either."""
    for name, held in _attributes(parent):
        if held is child:
            yield Attribute(name)
    cls = type(parent)  # isinstance would ask the object for its class
    if issubclass(cls, dict):
        yield from _dict_steps(parent, child)
    elif issubclass(cls, (list, tuple, deque)):
        base: Any = next(base for base in (list, tuple, deque) if issubclass(cls, base))
        yield from (Item(i) for i, held in enumerate(base.__iter__(parent)) if held is child)
    elif issubclass(cls, (set, frozenset)):
        base = set if issubclass(cls, set) else frozenset
        yield from _nth_steps(base.__iter__(parent), child)
    elif is_object_array(parent):
        for place in np.ndindex(_shape(parent)):
            if np.ndarray.__getitem__(parent, place) is child:
                yield Item(place if len(place) != 1 else place[0])


def is_object_array(value: Any) -> bool:
    """Whether a value is a numpy array of Python objects, of which the collector is told nothing."""
    return issubclass(type(value), np.ndarray) and np.ndarray.dtype.__get__(value).kind == "O"


_shape = np.ndarray.shape.__get__


def _dict_steps(parent: dict[Any, Any], child: Any) -> Iterator[Step]:
    keys = list(dict.keys(parent))
    for index, held in enumerate(list(dict.values(parent))):
        if held is child:
            yield dict_step(keys, index)
    yield from _nth_steps(iter(keys), child)


def _nth_steps(members: Iterator[Any], child: Any) -> Iterator[Step]:
    yield from (Nth(index) for index, held in enumerate(members) if held is child)


_FIXED = {
    types.CellType: ("cell_contents",),
    types.FunctionType: ("__closure__", "__defaults__", "__kwdefaults__", "__dict__"),
    types.MethodType: ("__self__", "__func__"),
    types.BuiltinFunctionType: ("__self__",),
    functools.partial: ("func", "args", "keywords"),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
}


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """What the built-in types keep under fixed names; of other objects the dictionary and the slots."""
    for name in _FIXED.get(type(value), ()):
        try:
            yield name, getattr(value, name)
        except ValueError:  # an empty cell
            continue
    if issubclass(type(value), torch.Tensor):
        yield "grad", gradient_of(value)
    if issubclass(type(value), type):
        yield from _class_dict(value)
        return
    for base in type(value).__mro__:
        for name, slot in vars(base).items():
            if type(slot) is types.MemberDescriptorType:
                try:
                    yield name, slot.__get__(value)
                except AttributeError:
                    continue  # a slot that was never filled
    if (names := instance_dict(value)) is not None:
        yield "__dict__", names
        yield from names.items()


_TENSOR: Any = torch.Tensor
"""Its attributes are read through the class, where no subclass has put code in their place."""


def gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The `.grad` of a tensor that may have one, or None."""
    if _TENSOR.is_leaf.__get__(tensor) or _TENSOR.retains_grad.__get__(tensor):
        gradient: torch.Tensor | None = _TENSOR.grad.__get__(tensor)
        return gradient
    return None


def graph_of(tensor: torch.Tensor) -> Any:
    """The `.grad_fn` of a tensor."""
    return _TENSOR.grad_fn.__get__(tensor)


def _class_dict(cls: type) -> Iterator[tuple[str, Any]]:
    for held in gc.get_referents(cls):
        if type(held) is dict and held.keys() == vars(cls).keys():
            yield "__dict__", held
    yield from vars(cls).items()


def instance_dict(value: Any) -> dict[str, Any] | None:
    """The dictionary of an object, unless its class answers for it with code of its own."""
    for base in type(value).__mro__:
        if (found := vars(base).get("__dict__")) is not None:
            if type(found) is not types.GetSetDescriptorType:
                return None
            names = found.__get__(value)
            return names if type(names) is dict else None
    return None
