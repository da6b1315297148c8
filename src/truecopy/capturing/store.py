"""Captures on disk and back: each value once, structures and the order of the run as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from truecopy.capturing.absent import not_captured
from truecopy.capturing.entries import Entry
from truecopy.capturing.names import Pattern
from truecopy.capturing.record import CaptureRecord
from truecopy.capturing.statistics import Statistics
from truecopy.errors import CannotRead
from truecopy.files.captures import (
    CaptureComparison,
    Stored,
    about_of,
    compare_captures,
    keys_in_order,
    write_captured,
)
from truecopy.files.raw import CODES
from truecopy.files.reading import read


def write_capture(
    record: CaptureRecord, entries: Sequence[Entry], path: Path | str, *, force: bool
) -> int:
    """Write the values of a capture, and return the bytes of the file."""
    about = record.to_json()
    stored: list[Stored] = []
    for value, entry in zip(about["values"], entries, strict=True):
        value["structure"] = _structure(entry)
        for told, leaf, where in zip(
            value["leaves"], entry.kept.leaves, entry.kept.paths, strict=True
        ):
            told["key"] = told["same_as"] or f"{entry.name}{where}"
            if told["same_as"]:
                continue
            why = _put(told, leaf, stored)
            if why:
                told["key"], told["not_saved"] = "", why
    missing = {t["name"] + leaf["path"] for t in about["values"] for leaf in t["leaves"]
               if not leaf["key"]}  # fmt: skip
    for value in about["values"]:
        for told in value["leaves"]:
            if told["same_as"] in missing:
                told["key"] = ""
    return write_captured(stored, about, path, force=force)


def _put(told: dict[str, Any], leaf: Any, stored: list[Stored]) -> str:
    """Have a leaf written; otherwise say why it is not."""
    value = leaf.value
    if isinstance(value, Statistics):
        told["statistics"] = asdict(value) | {"dtype": str(value.dtype).removeprefix("torch.")}
        return "only its statistics were kept"
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__} was kept of it"
    if value.device.type == "meta":
        return "it has no bytes: a meta tensor"
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        return f"safetensors has no {str(value.layout).removeprefix('torch.')} or quantized tensors"
    if value.dtype not in CODES:
        return f"safetensors has no {value.dtype}"
    stored.append(Stored(told["key"], tuple(value.shape), value.dtype, lambda: leaf.value))
    return ""


def _structure(entry: Entry) -> Any:
    """The value's structure as plain data: leaves by number, containers by kind, classes by name."""
    numbers = iter(range(len(entry.kept.leaves)))
    marks = [_Mark(number) for number in numbers]
    left = iter(marks)
    return _plain(entry.kept.build(lambda _: next(left)), 0)


class _Mark(str):  # a string, so that constructors which look at what they are given let it pass
    __slots__ = ("number",)

    def __new__(cls, number: int) -> _Mark:
        return super().__new__(cls, f"leaf {number}")

    def __init__(self, number: int) -> None:
        self.number = number


_DEEPEST = 50


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, _Mark):
        return {"leaf": value.number}
    if value is None or type(value) in (bool, int, float, str):
        return {"value": value}
    if depth > _DEEPEST:
        return {"object": type(value).__name__}
    if isinstance(value, tuple | list):
        fields = getattr(value, "_fields", None)
        items = [_plain(one, depth + 1) for one in value]
        if fields is not None:
            return {"dict": [[name, one] for name, one in zip(fields, items, strict=True)]}
        return {"list" if isinstance(value, list) else "tuple": items}
    if isinstance(value, Mapping):
        return {"dict": [[str(key), _plain(one, depth + 1)] for key, one in value.items()]}
    named = getattr(value, "__dict__", None)
    if isinstance(named, dict) and named:
        return {"dict": [[name, _plain(one, depth + 1)] for name, one in named.items()]}
    return {"object": type(value).__name__}


class SavedCapture(Mapping[str, Any]):
    """A capture that was read from a file: names to values, in the order of the run."""

    def __init__(self, path: Path, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.path = path
        self.about = about
        self._tensors = tensors
        self._values = {value["name"]: value for value in about["values"]}

    @classmethod
    def read(cls, path: Path | str) -> SavedCapture:
        """Read a file. Raises CannotRead for one that holds no capture; runs no code of it."""
        checkpoint = read(path)
        about = about_of(checkpoint)
        if about is None:
            raise CannotRead(
                "holds no capture",
                where=str(path),
                expected="a file that Capture.save wrote",
                way_out="safetensors.torch.load_file reads other safetensors files",
            )
        keys_in_order(about, str(path))
        return cls(Path(path), about, checkpoint.obj)

    def __getitem__(self, name: str) -> Any:
        value = self._values.get(name)
        if value is None:
            raise not_captured(name, self.names(), None)
        leaves = [self._leaf(told) for told in value["leaves"]]
        return _built(value["structure"], leaves)

    def _leaf(self, told: dict[str, Any]) -> Any:
        if told.get("key"):
            return self._tensors[told["key"]]
        found = told.get("statistics")
        if found is None:
            return None
        dtype = getattr(torch, found["dtype"]) if found["dtype"] in _DTYPES else torch.float32
        bins = found["histogram"]
        return Statistics(
            **found | {"dtype": dtype, "shape": tuple(found["shape"]),
                       "histogram": None if bins is None else tuple(bins)}
        )  # fmt: skip

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<capture of {self.about['model']} in {self.path}: {len(self)} values>"

    def names(self, pattern: str | None = None) -> list[str]:
        """Names in the order of the run; those that a pattern means, if one is given."""
        if pattern is None:
            return list(self._values)
        from truecopy.capturing.names import Name

        meant = Pattern.parse(pattern)
        return [name for name in self._values if meant.matches(Name.parse(name))]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor by the name of its value and its path in it."""
        for name, key in keys_in_order(self.about, str(self.path)):
            yield name, self._tensors[key]

    def compare(self, other: Any, *, rtol: float = 0.0, atol: float = 0.0) -> CaptureComparison:
        """Where two runs differ, in the order of the run."""
        return compare_captures(
            (str(self.path), dict(self.tensors())),
            ("other", dict(other.tensors())),
            rtol=rtol,
            atol=atol,
        )


_DTYPES = frozenset(str(dtype).removeprefix("torch.") for dtype in CODES)


def _built(structure: Any, leaves: list[Any]) -> Any:
    match structure:
        case {"leaf": int(number)}:
            return leaves[number]
        case {"value": value}:
            return value
        case {"tuple": list(items)}:
            return tuple(_built(one, leaves) for one in items)
        case {"list": list(items)}:
            return [_built(one, leaves) for one in items]
        case {"dict": list(items)}:
            return {name: _built(one, leaves) for name, one in items}
    return None
