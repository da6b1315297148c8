"""Facts as JSON-able data and back: frozen dataclasses of numbers, words, tuples and other facts.

Reading is strict: a missing or unknown field, or a value of another type, is a ValueError. Two marks,
set where a class is defined, keep long records short: facts of a class `in_tables` have their field
names written once for all of them, and a fact that is `written_once` stands elsewhere as its place in
a list.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

_Class = TypeVar("_Class", bound=type)

_TABLES: set[type] = set()
_ONCE: set[type] = set()

Places = dict[Any, int]
"""Facts that are written once, in the order in which they were met, each with its place in their list."""


def in_tables(kind: _Class) -> _Class:
    """Mark a class of facts of which there are many: tuples of them are written as tables."""
    _TABLES.add(kind)
    return kind


def written_once(kind: _Class) -> _Class:
    """Mark a class of facts that others name again and again: they are written as places."""
    _ONCE.add(kind)
    return kind


def is_in_tables(kind: Any) -> bool:
    """Whether tuples of these facts are written as tables."""
    return kind in _TABLES


def encode(value: Any, hint: Any, places: Places | None = None) -> Any:
    """A fact, or tuples of facts, as JSON-able data; those that are written once as their `places`."""
    if is_dataclass(value) and not isinstance(value, type):
        if type(value) in _ONCE:
            assert places is not None, "the record has no list of facts that are written once"
            return places.setdefault(value, len(places))
        return {
            name: encode(getattr(value, name), inner, places)
            for name, inner in hints_of(type(value)).items()
        }
    if isinstance(value, tuple):
        kinds = get_args(hint)
        if kinds[-1] is not ...:
            return [encode(v, kind, places) for v, kind in zip(value, kinds, strict=True)]
        if kinds[0] in _TABLES:
            hints = hints_of(kinds[0])
            rows = [[encode(getattr(v, n), h, places) for n, h in hints.items()] for v in value]
            return {"columns": list(hints), "rows": rows}
        return [encode(inner, kinds[0], places) for inner in value]
    return value


def encode_places(places: Places) -> list[dict[str, Any]]:
    """The list of the facts that are written once, to be made when everything else is encoded."""
    kinds: list[Any] = list(map(type, places))
    return [
        {name: getattr(one, name) for name in hints_of(kind)}
        for one, kind in zip(places, kinds, strict=True)
    ]


def decode(data: Any, hint: Any, once: Sequence[Any] = ()) -> Any:
    """The value of type `hint` that `encode` wrote; `once`: the facts that were written once."""
    origin = get_origin(hint)
    if origin is types.UnionType:  # of one type and None
        return None if data is None else decode(data, get_args(hint)[0], once)
    if origin is Literal:
        if data not in get_args(hint):
            raise ValueError(f"{data!r:.40} is none of {', '.join(map(str, get_args(hint)))}")
        return data
    if origin is tuple:
        return _tuple(data, get_args(hint), once)
    if hint in _ONCE:
        if type(data) is not int or not 0 <= data < len(once):
            raise ValueError(f"{data!r:.40} is the place of no {hint.__name__.lower()}")
        return once[data]
    if is_dataclass(hint):
        return decode_fact(data, hint, once)
    if hint is float and type(data) is int:
        return float(data)
    if type(data) is not hint:
        raise ValueError(f"{data!r:.40} is no {hint.__name__}")
    return data


def decode_fact(data: Any, kind: Any, once: Sequence[Any] = ()) -> Any:
    """A fact from its fields, one that is written once too."""
    hints = hints_of(kind)
    if not isinstance(data, dict) or data.keys() != hints.keys():
        raise ValueError(f"the fields of an object are not those of {kind.__name__}")
    return kind(*(decode(data[name], hint, once) for name, hint in hints.items()))


def _tuple(data: Any, kinds: tuple[Any, ...], once: Sequence[Any]) -> tuple[Any, ...]:
    if kinds[-1] is not ...:
        return tuple(decode(d, k, once) for d, k in zip(as_list(data), kinds, strict=True))
    kind = kinds[0]
    if kind not in _TABLES:
        return tuple(decode(one, kind, once) for one in as_list(data))
    hints = hints_of(kind)
    if not isinstance(data, dict) or data.get("columns") != list(hints):
        raise ValueError(f"the columns of a table are not those of {kind.__name__}")
    types_of_row = tuple(hints.values())
    return tuple(kind(*_tuple(row, types_of_row, once)) for row in as_list(data.get("rows")))


def as_list(data: Any) -> list[Any]:
    """The data, which must be a list."""
    if not isinstance(data, list):
        raise ValueError(f"{data!r:.40} is no list")
    return data


@functools.cache
def hints_of(kind: Any) -> dict[str, Any]:
    """Name and type of each field, in order."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
