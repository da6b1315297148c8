"""What one object holds, read so that it can be put back: attributes, items, members, hidden state.

In: an object. Out: its drawers. A drawer is one table of an object, be it `__dict__`, slots, the items
of a dict or a list, and is written past whatever the object's class makes of writing.
"""

from __future__ import annotations

import enum
import operator
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from truecopy import _torch
from truecopy.errors import CannotCopy
from truecopy.structure.hidden import HiddenState, hidden_state_of
from truecopy.structure.kinds import Kind, kind_of
from truecopy.structure.parts import attributes, dict_step
from truecopy.structure.paths import Attribute, Item, Nth, Step

Contents = tuple[Sequence[Any], Sequence[Any]]
"""What a drawer held: keys (or nothing, where places are counted) and values."""


class Table(enum.Enum):
    """How a drawer is read and written."""

    NAMES = "attributes in a dictionary"
    SLOTS = "attributes in slots"
    MAPPING = "items of a dict"
    ORDERED = "items of an OrderedDict, whose order is its own"
    LIST = "items of a list"
    DEQUE = "items of a deque"
    SET = "members of a set"
    FIXED = "members that are there for good"
    HIDDEN = "state that no attribute shows"


@dataclass(frozen=True, slots=True, eq=False)
class Drawer:
    """One table of one object."""

    owner: Any
    table: Table
    hidden: HiddenState | None = None
    of_module: bool = False  # the owner is a module, or a container that a module holds

    def read(self) -> Contents:
        """Keys and values now, in fresh sequences. Runs no code of the owner's class."""
        owner = self.owner
        match self.table:
            case Table.NAMES:
                return list(owner.__dict__), list(owner.__dict__.values())
            case Table.MAPPING:
                return list(dict.keys(owner)), list(dict.values(owner))
            case Table.ORDERED:
                keys = list(OrderedDict.keys(owner))
                return keys, [dict.__getitem__(owner, key) for key in keys]
            case Table.LIST:
                return (), list(list.__iter__(owner))
            case Table.DEQUE:
                return (), list(deque.__iter__(owner))
            case Table.SET:
                return (), list(set.__iter__(owner))
            case Table.SLOTS:
                slots = _slots(owner)
                return [name for name, _ in slots], [held for _, held in slots]
        return (), ()

    def step(self, contents: Contents, index: int) -> Step:
        """The way from the owner to its n-th value."""
        keys, _ = contents
        match self.table:
            case Table.NAMES | Table.SLOTS:
                return Attribute(keys[index])
            case Table.MAPPING | Table.ORDERED:
                return dict_step(list(keys), index)
            case Table.SET:
                return Nth(index)
        return Item(index)

    def write(self, contents: Contents) -> None:
        """Let the owner hold exactly this again; what is no state stays as it is now."""
        keys, values = contents
        owner = self.owner
        match self.table:
            case Table.NAMES:
                self._write_names(owner.__dict__, dict(zip(keys, values, strict=True)))
            case Table.MAPPING | Table.ORDERED:
                _write_items(owner, keys, values)
            case Table.LIST:
                list.__setitem__(owner, slice(None), values)
            case Table.DEQUE:
                deque.clear(owner)
                deque.extend(owner, values)
            case Table.SET:
                set.clear(owner)
                set.update(owner, values)
            case Table.SLOTS:
                self._write_slots(dict(zip(keys, values, strict=True)))

    def is_part(self, name: Any, value: Any) -> bool:
        """Whether what stands under a name is part of the state, to be followed and to be put back."""
        if self.of_module:
            return is_owned_by_modules(value) and not is_hooks(self.owner, name)
        return is_state(value) and not is_hooks(self.owner, name)

    def _write_names(self, names: dict[str, Any], then: dict[str, Any]) -> None:
        for name in [name for name in names if name not in then]:
            if self.is_part(name, names[name]):
                del names[name]
        for name, held in then.items():
            if name not in names or (self.is_part(name, held) and self.is_part(name, names[name])):
                names[name] = held

    def _write_slots(self, then: dict[str, Any]) -> None:
        for name, held in _slots(self.owner):
            if name not in then and is_state(held):
                object.__delattr__(self.owner, name)
        for name, held in then.items():
            object.__setattr__(self.owner, name, held)


def drawers_of(kind: Kind, value: Any, *, of_module: bool = False) -> list[Drawer]:
    """The tables of an object that can be put back. None for what shows nothing, or never changes."""
    hidden = hidden_state_of(value)
    if hidden is not None:
        return [Drawer(value, Table.HIDDEN, hidden)]
    of_module = of_module or isinstance(value, torch.nn.Module)
    found = []
    if kind not in (Kind.LIST, Kind.TUPLE, Kind.DICT, Kind.SET, Kind.FROZENSET):
        if type(getattr(value, "__dict__", None)) is dict:
            found.append(Drawer(value, Table.NAMES, of_module=of_module))
        if _slots(value):
            found.append(Drawer(value, Table.SLOTS, of_module=of_module))
    table = _members(value)
    return found if table is None else [*found, Drawer(value, table, of_module=of_module)]


def _members(value: Any) -> Table | None:
    match value:
        case OrderedDict():
            return Table.ORDERED
        case dict():
            return Table.MAPPING
        case list():
            return Table.LIST
        case deque():
            return Table.DEQUE
        case set():
            return Table.SET
    return None


def _slots(value: Any) -> list[tuple[str, Any]]:
    own = getattr(value, "__dict__", None)
    found = attributes(value)
    return found[len(own) :] if type(own) is dict else found


# --- what is state ----------------------------------------------------------------------------------

_NOT_STATE = frozenset((Kind.FUNCTION, Kind.METHOD, Kind.WEAKREF, Kind.HANDLE))
_TORCH_OBJECTS = (torch.nn.Module, torch.optim.Optimizer)
CONTAINERS = frozenset(
    (Kind.LIST, Kind.TUPLE, Kind.DICT, Kind.SET, Kind.FROZENSET, Kind.ORDERED, Kind.READ_ONLY)
)

_MODULE_STATE = CONTAINERS | {
    Kind.ATOM,
    Kind.TENSOR,
    Kind.ARRAY,
    Kind.SUBARRAY,
    Kind.STORAGE,
    Kind.FOREIGN,
}


class Keeper:
    """What keeps the state of others. It is no part of any: a trainer may hold its own snapshot."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise CannotCopy(
            f"a {type(self).__name__} puts back the very objects that it was made of, which a copy has not",
            way_out="Make another one, or write it to a file with Snapshot.save",
        )


def is_state(value: Any) -> bool:
    """Whether a value is data. Code, weak references and handles belong to whoever put them there."""
    return kind_of[type(value)] not in _NOT_STATE and not isinstance(value, Keeper)


def is_owned_by_modules(value: Any) -> bool:
    """Whether a module owns what it refers to: tensors, numbers, containers, modules, generators.

    Other objects that hang on a module (a trainer, a configuration, a logger) are not rolled back with it.
    Whoever wants that names them as sources.
    """
    kind = kind_of[type(value)]
    return (
        kind in _MODULE_STATE
        or isinstance(value, torch.nn.Module | torch.Tensor)
        or hidden_state_of(value) is not None
    )


def is_hooks(owner: Any, name: Any) -> bool:
    """Whether an attribute of a module or optimizer holds hooks, which tracers and trainers hang there."""
    return (
        isinstance(owner, _TORCH_OBJECTS)
        and isinstance(name, str)
        and ("_hooks" in name or name.startswith(_torch.COMPOSED))
    )


# --- compared ---------------------------------------------------------------------------------------


def is_same(now: Contents, then: Contents) -> bool:
    """Whether two readings show the very same objects in the same order."""
    return _all_same(now[1], then[1]) and _all_same(now[0], then[0])


def _all_same(now: Sequence[Any], then: Sequence[Any]) -> bool:
    return len(now) == len(then) and all(map(operator.is_, now, then))


def replaced(now: Contents, then: Contents) -> list[tuple[Any, Any]] | None:
    """Where two readings differ in plain values alone: the flat containers that took another's place.

    Old and new, as a scheduler replaces its `_last_lr`. None where anything else is not where it was.
    """
    objects, before = _objects(now), _objects(then)
    if len(objects) != len(before):
        return None
    found = []
    for (key, new), (old_key, old) in zip(objects, before, strict=True):
        if key is not old_key and not (
            type(key) is type(old_key) and _is_atom(key) and key == old_key
        ):
            return None
        if new is not old:
            if type(new) is not type(old) or not _is_flat(new) or not _is_flat(old):
                return None
            found.append((old, new))
    return found


def _objects(contents: Contents) -> list[tuple[Any, Any]]:
    """All but plain values under plain keys, each with its key or its place."""
    keys, values = contents
    return [
        (key, value)
        for key, value in zip(keys or range(len(values)), values, strict=True)
        if not (_is_atom(value) and _is_atom(key))
    ]


FLAT = frozenset((list, tuple, dict))
"""Classes of containers that a program makes anew where it could have written into the old one."""


def _is_flat(value: Any) -> bool:
    """Whether this is a container of plain values."""
    return (
        type(value) in FLAT
        and all(map(_is_atom, value))
        and (type(value) is not dict or all(map(_is_atom, value.values())))
    )


def _is_atom(value: Any) -> bool:
    return kind_of[type(value)] is Kind.ATOM


# --- written ----------------------------------------------------------------------------------------


def _write_items(owner: dict[Any, Any], keys: Sequence[Any], values: Sequence[Any]) -> None:
    if isinstance(owner, OrderedDict):
        OrderedDict.clear(owner)
        for key, held in zip(keys, values, strict=True):
            OrderedDict.__setitem__(owner, key, held)
        return
    if len(owner) == len(keys) and all(map(operator.is_, dict.keys(owner), keys)):
        for key, held in zip(keys, values, strict=True):
            dict.__setitem__(owner, key, held)
        return
    dict.clear(owner)
    dict.update(owner, zip(keys, values, strict=True))
