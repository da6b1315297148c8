"""The standard copy protocol: objects taken apart by `__reduce_ex__`, and put together again."""

from __future__ import annotations

import copy as stdlib_copy
import copyreg
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from truecopy.structure.optimizers import with_what_is_left_out
from truecopy.structure.parts import Parts, copied_keys, dict_step, odd_keys
from truecopy.structure.paths import Attribute, Item, Nth, Reduced, Step


@dataclass(frozen=True, slots=True)
class Reduction:
    """What `__reduce_ex__(4)` handed out, cut into the pieces that are copied."""

    function: Callable[..., Any]
    arguments: int
    state_names: tuple[str, ...] | None = None  # the state is a dict with these keys
    slot_names: tuple[str, ...] | None = None  # and a second dict, of slots
    whole_state: bool = False  # the state is something else, copied as one
    list_items: int = 0
    keys: tuple[Any, ...] = ()
    odd_keys: tuple[int, ...] = ()
    itself: bool = False

    @property
    def has_state(self) -> bool:
        """Whether the protocol handed out a state, be it empty."""
        return self.whole_state or self.state_names is not None or self.slot_names is not None


def _itself(value: Any) -> Any:
    return value


def _reduce(value: Any) -> Any:
    cls = type(value)
    reducer = copyreg.dispatch_table.get(cls)
    if reducer is not None:
        return reducer(value)
    reducer = getattr(value, "__reduce_ex__", None)
    if reducer is not None:
        return reducer(4)
    reducer = getattr(value, "__reduce__", None)
    if reducer is not None:
        return reducer()
    raise stdlib_copy.Error(f"un(deep)copyable object of type {cls}")


def reduced_parts(value: Any) -> Parts:
    """What an object's own `__reduce_ex__` hands out: arguments, state, items."""
    reduced = _reduce(value)
    if isinstance(reduced, str):
        return Parts(memory=Reduction(_itself, 0, itself=True))
    function, arguments, state, items, pairs = _five(reduced)
    if isinstance(value, torch.optim.Optimizer):
        state = with_what_is_left_out(value, state)
    filled: list[Any] = []
    state_names = slot_names = None
    whole = False
    if state is not None:
        in_dict, in_slots = _split_state(value, state)
        whole = in_dict is None and in_slots is None
        if whole:
            filled = [state]
        if in_dict is not None:
            state_names = tuple(in_dict)
            filled += in_dict.values()
        if in_slots is not None:
            slot_names = tuple(in_slots)
            filled += in_slots.values()
    members = list(items) if items is not None else []
    pairs = list(pairs) if pairs is not None else []
    keys = [key for key, _ in pairs]
    odd = odd_keys(keys)
    filled += members
    filled += [held for _, held in pairs]
    filled += [keys[i] for i in odd]
    reduction = Reduction(
        function, len(arguments), state_names, slot_names, whole, len(members), tuple(keys), tuple(odd)
    )  # fmt: skip
    # Steps are made when a path is asked for: there are many, and mostly nobody asks.
    return Parts(arguments, filled, lambda i: _step(value, reduction, i), reduction)


def _step(value: Any, reduction: Reduction, index: int) -> Step:
    """The way to the n-th thing that was handed out."""
    if index < reduction.arguments:
        # A tuple's arguments are its members; others have no path but the protocol.
        is_member = isinstance(value, tuple) and index
        return Item(index - 1) if is_member else Reduced((1, index))
    index -= reduction.arguments
    if reduction.whole_state:
        if index == 0:
            return Reduced((2,))
        index -= 1
    for names in (reduction.state_names or (), reduction.slot_names or ()):
        if index < len(names):
            own = names is reduction.slot_names or names[index] in getattr(value, "__dict__", {})
            return Attribute(names[index]) if own else Reduced((2, names[index]))
        index -= len(names)
    if index < reduction.list_items:
        return Item(index)
    index -= reduction.list_items
    if index < len(reduction.keys):
        return dict_step(list(reduction.keys), index)
    return Nth(reduction.odd_keys[index - len(reduction.keys)])


def _five(reduced: Any) -> tuple[Any, ...]:
    if not isinstance(reduced, tuple) or not 2 <= len(reduced) <= 5:
        raise TypeError(
            f"__reduce_ex__ must return a string or a tuple of two to five, got {reduced!r}"
        )
    return (*reduced, None, None, None)[:5]


def _split_state(value: Any, state: Any) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The state as attributes and slots, where it has the form that Python's own objects give it."""
    if type(state) is dict and all(type(name) is str for name in state):
        return state, None
    if hasattr(type(value), "__setstate__"):  # it may expect any form of its own
        return None, None
    match state:
        case (dict() | None as names, dict() as slots):
            return names, slots
    return None, None


def make_reduced(value: Any, parts: Parts, copies: list[Any]) -> Any:
    """The new object, from copies of the arguments that the protocol handed out."""
    reduction: Reduction = parts.memory
    return value if reduction.itself else reduction.function(*copies)


def fill_reduced(made: Any, parts: Parts, copies: list[Any]) -> None:
    """The second half of the standard library's `_reconstruct`, on copies that exist already."""
    reduction: Reduction = parts.memory
    if reduction.itself:
        return
    rest = iter(copies)
    state: Any = None
    slots: dict[str, Any] | None = None
    if reduction.whole_state:
        state = next(rest)
    if reduction.state_names is not None:
        state = {name: next(rest) for name in reduction.state_names}
    if reduction.slot_names is not None:
        slots = {name: next(rest) for name in reduction.slot_names}
    if state is not None or slots is not None:
        if hasattr(type(made), "__setstate__"):
            made.__setstate__(state if slots is None else (state, slots))
        else:
            if state is not None:
                made.__dict__.update(state)
            for name, held in (slots or {}).items():
                object.__setattr__(made, name, held)  # as `__dict__` above: frozen classes too
    for _ in range(reduction.list_items):
        made.append(next(rest))
    values = [next(rest) for _ in reduction.keys]
    keys = copied_keys(reduction.keys, reduction.odd_keys, list(rest))
    for key, held in zip(keys, values, strict=True):
        made[key] = held
