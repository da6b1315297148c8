"""Records of this room as JSON-able data and back: the sites first, each once, then the fields."""

from __future__ import annotations

from typing import Any

from truecopy.encoding import Places, as_list, decode, decode_fact, encode, encode_places
from truecopy.records import read_again
from truecopy.tracing.facts import Site


def body_of(record: Any, hints: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record, and before them the sites that they name."""
    places: Places = {}
    body = {name: encode(getattr(record, name), hint, places) for name, hint in hints.items()}
    # First, so that whoever reads in order knows the sites before they are named.
    return {"clean": record.is_clean, "sites": encode_places(places), **body}


def values_of(data: dict[str, Any], kind: str, hints: dict[str, Any], where: str | None) -> Any:
    """The fields of a record of this kind from its JSON form. Raises CannotRead for anything else."""

    def read(data: dict[str, Any]) -> dict[str, Any]:
        sites = [decode_fact(site, Site) for site in as_list(data["sites"])]
        return {name: decode(data[name], hint, sites) for name, hint in hints.items()}

    return read_again(data, kind, read, where)
