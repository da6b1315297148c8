"""Files of captured tensors: safetensors, with what a capture knows of them as JSON in the metadata.

Written one tensor after the other, so a file may be larger than memory. Two of them are compared in the
order of the run: what differs first is where two runs part.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from truecopy.errors import CannotRead, CannotWrite
from truecopy.files.checkpoint import Checkpoint
from truecopy.files.elements import Tolerance, measure
from truecopy.files.pairs import Difference
from truecopy.files.raw import CODES, dense_bytes, write_bytes
from truecopy.files.text import shorten
from truecopy.files.writing import drafted, refuse_taken
from truecopy.records import SCHEMA_VERSION, Record

KEY = "truecopy"
"""Where in the metadata of a safetensors file our JSON stands."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor that is to be written: asked for when its turn comes."""

    key: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], torch.Tensor]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return prod(self.shape) * self.dtype.itemsize


def write_captured(
    tensors: Sequence[Stored], about: dict[str, Any], path: Path | str, *, force: bool = False
) -> int:
    """Write tensors to a file, and return its bytes. Takes the memory of one tensor at a time.

    Raises CannotWrite, with nothing changed on disk.
    """
    target = Path(os.path.realpath(path))
    refuse_taken(target, force=force)
    # The widest first, so that every tensor begins where its dtype may.
    tensors = sorted(tensors, key=lambda one: -one.dtype.itemsize)
    header: dict[str, Any] = {"__metadata__": {KEY: json.dumps(about)}}
    end = 0
    for one in tensors:
        begin, end = end, end + one.nbytes
        offsets = [begin, end]
        header[one.key] = {
            "dtype": CODES[one.dtype], "shape": list(one.shape), "data_offsets": offsets,
        }  # fmt: skip
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        with drafted(target) as draft:
            draft.file.write(struct.pack("<Q", len(text)) + text)
            for one in tensors:
                write_bytes(draft.file, dense_bytes(one.read()))
            draft.publish(force=force)
    except OSError as error:
        raise CannotWrite(
            f"cannot be written: {error.strerror or error}", where=str(target)
        ) from error
    return 8 + len(text) + end


def about_of(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """What a file says of its capture; None for one that is of no capture."""
    text = checkpoint.metadata.get(KEY) if checkpoint.kind == "safetensors" else None
    if text is None:
        return None
    try:
        about = json.loads(text)
    except ValueError:
        about = None
    match about:
        case {"kind": "capture", "version": int(version), "values": list()}:
            if version == SCHEMA_VERSION:
                return about  # type: ignore[no-any-return]
        case {"kind": str(kind)} if (
            kind != "capture"
        ):  # a snapshot, which says so in the same place
            return None
    raise CannotRead(
        "is no file of a capture that this truecopy knows",
        where=str(checkpoint.path),
        expected=f"kind capture, version {SCHEMA_VERSION}, in its metadata",
        way_out="Save the capture again with this version",
    )


def keys_in_order(about: dict[str, Any], where: str) -> list[tuple[str, str]]:
    """Every name with its path, in the order of the run, and the key of its tensor."""
    try:
        return [
            (f"{value['name']}{leaf['path']}", leaf["key"])
            for value in about["values"]
            for leaf in value["leaves"]
            if leaf.get("key")
        ]
    except (KeyError, TypeError):
        raise CannotRead("is a file of a capture that is damaged", where=where) from None


# --- comparing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CaptureComparison(Record):
    """Where two captures differ, in the order of the first one's run."""

    a: str
    b: str
    rtol: float
    atol: float
    compared: int
    differences: tuple[Difference, ...]  # in the order of the run: the first is where they part
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    last_alike: str  # the name before the first difference; empty where there is none

    kind = "capture comparison"

    @property
    def first(self) -> Difference | None:
        """The first tensor in which the two differ."""
        return self.differences[0] if self.differences else None

    @property
    def is_clean(self) -> bool:
        """Whether the two have the same names and values."""
        return not (self.differences or self.only_a or self.only_b)

    def body(self) -> dict[str, Any]:
        return {
            "a": self.a, "b": self.b, "rtol": self.rtol, "atol": self.atol,
            "clean": self.is_clean, "compared": self.compared,
            "differences": [difference.to_json() for difference in self.differences],
            "only_a": list(self.only_a), "only_b": list(self.only_b), "last_alike": self.last_alike,
        }  # fmt: skip


Tensors = dict[str, torch.Tensor]


def compare_captures(
    a: tuple[str, Tensors], b: tuple[str, Tensors], *, rtol: float = 0.0, atol: float = 0.0
) -> CaptureComparison:
    """Set two captures beside each other, by name. Reads every byte once, allocates a few pieces."""
    (label_a, left), (label_b, right) = a, b
    tolerance = Tolerance(rtol, atol)
    differences: list[Difference] = []
    alike, compared = "", 0
    for name, value in left.items():
        other = right.get(name)
        if other is None:
            continue
        compared += 1
        found = _difference(name, value, other, tolerance)
        if found is not None:
            differences.append(found)
        elif not differences:
            alike = name
    return CaptureComparison(
        label_a, label_b, rtol, atol, compared, tuple(differences),
        tuple(name for name in left if name not in right),
        tuple(name for name in right if name not in left), alike,
    )  # fmt: skip


def compare_saved(
    a: Checkpoint, b: Checkpoint, *, rtol: float = 0.0, atol: float = 0.0
) -> CaptureComparison:
    """The same for two files."""
    return compare_captures(
        (str(a.path), dict(_tensors_of(a))),
        (str(b.path), dict(_tensors_of(b))),
        rtol=rtol,
        atol=atol,
    )


def _tensors_of(checkpoint: Checkpoint) -> Iterable[tuple[str, torch.Tensor]]:
    about = about_of(checkpoint) or {}
    for name, key in keys_in_order(about, str(checkpoint.path)):
        if key not in checkpoint.obj:
            raise CannotRead(
                f"names a tensor {shorten(key, 80)!r} that is not there", where=str(checkpoint.path)
            )
        yield name, checkpoint.obj[key]


def _difference(
    name: str, a: torch.Tensor, b: torch.Tensor, tolerance: Tolerance
) -> Difference | None:
    if a.shape != b.shape:
        return Difference(name, "shape", str(tuple(a.shape)), str(tuple(b.shape)))
    dtypes = [str(one.dtype).removeprefix("torch.") for one in (a, b)]
    measured = measure(a, b, tolerance)
    if not measured.differing and dtypes[0] == dtypes[1]:
        return None
    return Difference(
        name, "values" if dtypes[0] == dtypes[1] else "dtype", dtypes[0], dtypes[1],
        measured.elements, measured.differing if measured.counted else None,
        measured.max_abs, measured.max_rel, measured.nan_in_one,
    )  # fmt: skip
