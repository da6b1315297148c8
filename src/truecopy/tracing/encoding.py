"""Facts as JSON-able data and back: frozen dataclasses of numbers, words, tuples and sites.

Reading is strict: a missing or unknown field, or a value of another type, is a ValueError.
"""

from __future__ import annotations

import functools
import types
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from truecopy.errors import CannotRead
from truecopy.records import SCHEMA_VERSION
from truecopy.tracing.facts import Event, Moment, Site, StorageLife

_TABLES: tuple[type, ...] = (Event, Moment, StorageLife)
"""Facts of which there are many: their field names are written once."""

Places = dict[Site, int]
"""Sites in the order in which they were met, each with its place in the list of all."""


def body_of(record: Any, hints: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record, and before them the sites that they name."""
    places: Places = {}
    body = {name: encode(getattr(record, name), hint, places) for name, hint in hints.items()}
    # First, so that whoever reads in order knows the sites before they are named.
    return {"clean": record.is_clean, "sites": encode_sites(places), **body}


def values_of(data: dict[str, Any], kind: str, hints: dict[str, Any], where: str | None) -> Any:
    """The fields of a record of this kind from its JSON form. Raises CannotRead for anything else."""
    if data.get("kind") != kind or data.get("version") != SCHEMA_VERSION:
        raise CannotRead(
            f"is no record of a {kind} that this truecopy knows",
            where=where,
            expected=f"kind {kind}, version {SCHEMA_VERSION}",
            got=f"kind {data.get('kind')!r:.80}, version {data.get('version')!r:.80}",
            way_out="Make the record again with this version",
        )
    try:
        sites = decode_sites(data["sites"])
        return {name: decode(data[name], hint, sites) for name, hint in hints.items()}
    except (KeyError, ValueError) as error:
        raise CannotRead(
            f"is a record of a {kind} that is damaged",
            where=where,
            got=f"{type(error).__name__}: {error}"[:200],
            way_out="Make the record again",
        ) from None


def encode(value: Any, hint: Any, places: Places) -> Any:
    """A fact, or tuples of facts, as JSON-able data; sites as their places."""
    if isinstance(value, Site):
        return places.setdefault(value, len(places))
    if is_dataclass(value) and not isinstance(value, type):
        return {
            name: encode(getattr(value, name), inner, places)
            for name, inner in _hints(type(value)).items()
        }
    if isinstance(value, tuple):
        kind = get_args(hint)[0]
        if kind in _TABLES:
            hints = _hints(kind)
            rows = [[encode(getattr(v, n), h, places) for n, h in hints.items()] for v in value]
            return {"columns": list(hints), "rows": rows}
        return [encode(inner, kind, places) for inner in value]
    return value


def encode_sites(places: Places) -> list[dict[str, Any]]:
    """The list of all sites, to be made when everything else is encoded."""
    return [{name: getattr(site, name) for name in _hints(Site)} for site in places]


def decode_sites(data: Any) -> list[Site]:
    """The sites that `encode_sites` wrote."""
    return [_fact(Site, one, []) for one in _list(data)]


def decode(data: Any, hint: Any, sites: list[Site]) -> Any:
    """The value of type `hint` that `encode` wrote."""
    origin = get_origin(hint)
    if origin is types.UnionType:  # of one type and None
        return None if data is None else decode(data, get_args(hint)[0], sites)
    if origin is tuple:
        return _tuple(data, get_args(hint), sites)
    if hint is Site:
        if type(data) is not int or not 0 <= data < len(sites):
            raise ValueError(f"{data!r:.40} is the place of no site")
        return sites[data]
    if is_dataclass(hint):
        return _fact(hint, data, sites)
    if hint is float and type(data) is int:
        return float(data)
    if type(data) is not hint:
        raise ValueError(f"{data!r:.40} is no {hint.__name__}")
    return data


def _tuple(data: Any, kinds: tuple[Any, ...], sites: list[Site]) -> tuple[Any, ...]:
    if kinds[-1] is not ...:
        return tuple(decode(d, k, sites) for d, k in zip(_list(data), kinds, strict=True))
    kind = kinds[0]
    if kind not in _TABLES:
        return tuple(decode(one, kind, sites) for one in _list(data))
    hints = _hints(kind)
    if not isinstance(data, dict) or data.get("columns") != list(hints):
        raise ValueError(f"the columns of a table are not those of {kind.__name__}")
    types_of_row = tuple(hints.values())
    return tuple(kind(*_tuple(row, types_of_row, sites)) for row in _list(data.get("rows")))


def _fact(kind: Any, data: Any, sites: list[Site]) -> Any:
    hints = _hints(kind)
    if not isinstance(data, dict) or data.keys() != hints.keys():
        raise ValueError(f"the fields of an object are not those of {kind.__name__}")
    return kind(*(decode(data[name], hint, sites) for name, hint in hints.items()))


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError(f"{data!r:.40} is no list")
    return data


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """Name and type of each field, in order."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
