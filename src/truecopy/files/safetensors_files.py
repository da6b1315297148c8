"""safetensors: the header checked here to the byte, the tensors mapped by safetensors' own reader."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from math import prod
from typing import Any

from truecopy.errors import CannotRead
from truecopy.files.checkpoint import Checkpoint
from truecopy.files.opening import Source, refusing
from truecopy.files.text import printable, reason_of, shorten

_KIND = "safetensors file"
_LONGEST_HEADER = 100_000_000
"""safetensors' own bound."""
_LONGEST_NAME = 1_000

_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a file says, once it is known to be so."""

    names: tuple[str, ...]  # in the order of their bytes
    metadata: dict[str, str]

    @property
    def ties(self) -> dict[str, str]:
        """Names without bytes of their own, each with the name whose tensor it is.

        The format cannot say that two names are one tensor. safetensors' `save_model` keeps one
        and writes the other into the metadata: {"lm_head.weight": "embed.weight"}.
        """
        own = set(self.names)
        return {
            name: kept
            for name, kept in self.metadata.items()
            if name not in own and kept in own and name != kept
        }


def refuse(source: Source, what: str, got: str | None = None) -> CannotRead:
    """A sentence about a damaged or hostile file."""
    return CannotRead(
        what, where=str(source.path), got=got, way_out="Copy or download the file again; "
        "if it stays so, do not trust it",
    )  # fmt: skip


def read_safetensors(source: Source) -> Checkpoint:
    """A checkpoint whose tensors are mapped from the file; ties in the metadata are tied again."""
    header = read_header(source)
    with refusing(source, _KIND):
        from safetensors import safe_open

        with safe_open(source.stable_path, framework="pt") as file:
            obj: dict[str, Any] = {name: file.get_tensor(name) for name in header.names}
    for name, kept in header.ties.items():
        obj[name] = obj[kept]
    return Checkpoint(source.path, "safetensors", obj, source.size, metadata=header.metadata)


def read_header(source: Source) -> Header:
    """The header of a file, refused unless its tensors fill the file without gap or overlap."""
    if source.size < 8:
        raise refuse(source, "is cut off", f"{source.size} bytes, where a length takes 8")
    (length,) = struct.unpack("<Q", source.read_at(0, 8))
    if length > min(_LONGEST_HEADER, source.size - 8):
        raise refuse(
            source,
            "has a header longer than the file or the format allows",
            f"{length:,} bytes in a file of {source.size:,}",
        )
    fields = parse_json_object(source, source.read_at(8, length))
    metadata = fields.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(type(v) is str for v in metadata.values()):
        raise refuse(source, "has metadata that is not text", "a __metadata__ of another form")
    starts = {name: _start(source, name, value) for name, value in fields.items()}
    names = tuple(sorted(fields, key=lambda name: (starts[name], fields[name]["data_offsets"][1])))
    _refuse_gaps(source, names, fields, source.size - 8 - length)
    return Header(names, metadata)


def parse_json_object(source: Source, text: bytes) -> dict[str, Any]:
    """One JSON object without duplicate keys, or a sentence."""
    try:
        value = json.loads(
            text.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_constant
        )
    except UnicodeDecodeError as error:
        raise refuse(
            source, "has JSON that is not UTF-8", f"{error.reason} at {error.start:,}"
        ) from error
    except RecursionError as error:
        raise refuse(source, "has JSON that is nested too deeply") from error
    except ValueError as error:
        raise refuse(source, "has JSON that cannot be read", reason_of(error)) from error
    if not isinstance(value, dict):
        raise refuse(source, "has JSON that is no object", f"a {type(value).__name__}")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shorten(key, 80)!r} is there twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _start(source: Source, name: str, value: Any) -> int:
    """Where a tensor's bytes begin; refused unless they are as many as its shape and dtype need."""
    shown = shorten(name, 80)
    if len(name) > _LONGEST_NAME:
        raise refuse(
            source, "has a name too long", f"{len(name):,} characters, beginning {shown!r}"
        )
    match value:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, end]}:
            numbers = [*shape, start, end]
        case _:
            raise refuse(source, f"does not say dtype, shape and data_offsets of {shown!r}")
    if len(value) != 3 or any(type(n) is not int or n < 0 for n in numbers):
        raise refuse(source, f"gives {shown!r} a shape or offsets that are no counts")
    if dtype not in _BITS:
        raise refuse(source, f"gives {shown!r} an unknown dtype", shorten(printable(dtype), 40))
    bits = prod(shape) * _BITS[dtype]
    if bits != (end - start) * 8:
        raise refuse(
            source,
            f"gives {shown!r} bytes that do not fit its shape",
            f"{shorten(f'{dtype} {shape}', 80)} in bytes {start:,} to {end:,}",
        )
    return int(start)


def _refuse_gaps(
    source: Source, names: tuple[str, ...], fields: dict[str, Any], available: int
) -> None:
    """Tensors follow each other; a hole could hide data, an overlap would make them share."""
    end = 0
    for name in names:
        start, stop = fields[name]["data_offsets"]
        if start != end:
            what = "overlaps the tensor before it" if start < end else "leaves a gap before it"
            raise refuse(
                source,
                f"has a tensor {shorten(name, 80)!r} that {what}",
                f"bytes {start:,} to {stop:,} after byte {end:,}",
            )
        end = stop
    if end != available:
        what = "is cut off" if end > available else "has bytes that belong to no tensor"
        raise refuse(source, what, f"{available:,} bytes of data, where its header says {end:,}")
