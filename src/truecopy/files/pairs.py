"""Two structures gone through together, value by value."""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.errors import CannotRead
from truecopy.files.checkpoint import MOST_DEPTH, ROOT
from truecopy.files.elements import Measured, Tolerance, measure
from truecopy.files.text import shorten
from truecopy.structure.parts import attributes
from truecopy.structure.paths import Attribute, Item, Path, Step
from truecopy.structure.tensors import LEAF_FORMS, Form, form_of, tensor_parts

_LONGEST_VALUE = 80
_MOST_PAIRS = 20_000_000


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where the two differ."""

    path: str
    what: str  # "values", "shape", "dtype", "type", "value", "flags", "length", "strides"
    a: str
    b: str
    elements: int | None = None
    differing: int | None = None
    max_abs: float | int | None = None
    max_rel: float | None = None
    nan_in_one: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain data; JSON has no infinity, so that is text."""
        found = asdict(self)
        for name in ("max_abs", "max_rel"):
            if isinstance(found[name], float) and not math.isfinite(found[name]):
                found[name] = str(found[name])
        return found


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: steps are linked, so that a path costs nothing until it is printed."""

    above: _Place | None
    step: Step | None
    depth: int = 0

    def then(self, step: Step) -> _Place:
        if self.depth >= MOST_DEPTH:
            raise CannotRead(
                "is nested too deeply to compare",
                where=str(self),
                expected=f"at most {MOST_DEPTH} containers inside each other",
            )
        return _Place(self, step, self.depth + 1)

    def __str__(self) -> str:
        steps: list[Step] = []
        place: _Place | None = self
        while place is not None and place.step is not None:
            steps.append(place.step)
            place = place.above
        return str(Path(ROOT, tuple(reversed(steps))))


class Pairs:
    """Goes through two structures together."""

    def __init__(self, tolerance: Tolerance, *, same_kind: bool) -> None:
        self.tolerance = tolerance
        self.same_kind = same_kind
        self.compared = 0
        self.differences: list[Difference] = []
        self.only_a: list[str] = []
        self.only_b: list[str] = []
        self.layouts: list[Difference] = []
        self.seen: set[tuple[int, int]] = set()
        self.waiting: list[tuple[_Place, Any, Any]] = []

    def run(self, a: Any, b: Any) -> None:
        self.waiting.append((_Place(None, None), a, b))
        while self.waiting:
            place, left, right = self.waiting.pop()
            self.compare(place, left, right)

    def compare(self, place: _Place, a: Any, b: Any) -> None:
        if _is_memory(a) and _is_memory(b):
            self.compared += 1
            self.tensors(place, a, b)
            return
        if self.same_kind and type(a) is not type(b):
            self.compared += 1
            self.differ(place, "type", type(a).__name__, type(b).__name__)
            return
        is_pair_of_containers = any(
            isinstance(a, kind) and isinstance(b, kind) for kind in (dict, (list, tuple))
        )
        if is_pair_of_containers:
            self.containers(place, a, b)
            return
        self.compared += 1
        if not _equal_values(a, b):
            self.differ(place, "value", _shown(a), _shown(b))

    def containers(self, place: _Place, a: Any, b: Any) -> None:
        """Members and attributes of two dicts or two sequences, each pair of objects once."""
        if (id(a), id(b)) in self.seen:
            return
        self.seen.add((id(a), id(b)))
        if len(self.seen) > _MOST_PAIRS:
            raise CannotRead("holds too many containers to compare", where=str(place))
        children: list[tuple[_Place, Any, Any]] = []
        if isinstance(a, dict):
            children += self.keys(place, a, b)
        else:
            if len(a) != len(b):
                self.differ(place, "length", str(len(a)), str(len(b)))
            items = enumerate(zip(tuple(a), tuple(b), strict=False))
            children += [(place.then(Item(i)), x, y) for i, (x, y) in items]
        children += self.attributes(place, a, b)
        self.waiting += reversed(children)

    def keys(self, place: _Place, a: dict[Any, Any], b: dict[Any, Any]) -> Iterator[Any]:
        for key in dict.keys(a):
            if dict.__contains__(b, key):
                yield place.then(Item(key)), dict.__getitem__(a, key), dict.__getitem__(b, key)
            else:
                self.only_a.append(str(place.then(Item(key))))
        missing = (key for key in dict.keys(b) if not dict.__contains__(a, key))
        self.only_b += (str(place.then(Item(key))) for key in missing)

    def attributes(self, place: _Place, a: Any, b: Any) -> list[Any]:
        """What OrderedDicts (`_metadata`) and Parameters carry beside their content."""
        if not self.same_kind:
            return []
        left, right = dict(attributes(a)), dict(attributes(b))
        self.only_a += (str(place.then(Attribute(n))) for n in left if n not in right)
        self.only_b += (str(place.then(Attribute(n))) for n in right if n not in left)
        return [
            (place.then(Attribute(name)), left[name], right[name]) for name in left if name in right
        ]

    def tensors(self, place: _Place, a: Any, b: Any) -> None:
        if self.same_kind and type(a) is not type(b):
            self.differ(place, "type", type(a).__name__, type(b).__name__)
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and self.same_kind:
            if a.requires_grad != b.requires_grad:
                wants = [f"requires_grad={tensor.requires_grad}" for tensor in (a, b)]
                self.differ(place, "flags", wants[0], wants[1])
            self.waiting += self.attributes(place, a, b)
        left, right = _parts(a), _parts(b)
        if _whole_shape(a) != _whole_shape(b):
            self.differ(place, "shape", _whole_shape(a), _whole_shape(b))
        if [name for name, _ in left] != [name for name, _ in right]:
            self.differ(place, "type", _layout(a), _layout(b))
            return
        for (step, x), (_, y) in zip(left, right, strict=True):
            self.memories(place if step is None else place.then(step), x, y)

    def memories(self, place: _Place, a: Any, b: Any) -> None:
        """Two blocks of elements: shape, dtype, values, strides."""
        shapes, dtypes = (tuple(a.shape), tuple(b.shape)), (_dtype(a), _dtype(b))
        if shapes[0] != shapes[1]:
            self.differ(place, "shape", str(shapes[0]), str(shapes[1]))
            return
        if _quantizer(a) != _quantizer(b):
            both = [shorten(_quantizer(x), _LONGEST_VALUE) for x in (a, b)]
            self.differ(place, "flags", both[0], both[1])
        measured = _measure(a, b, self.tolerance)
        if dtypes[0] != dtypes[1]:
            self.differ(place, "dtype", dtypes[0], dtypes[1], measured=measured)
        elif measured.differing:
            self.differ(place, "values", dtypes[0], dtypes[1], measured=measured)
        elif _strides(a) != _strides(b):
            self.layouts.append(Difference(str(place), "strides", _strides(a), _strides(b)))

    def differ(
        self, place: _Place, what: str, a: str, b: str, measured: Measured | None = None
    ) -> None:
        found = measured or Measured(0)
        self.differences.append(
            Difference(
                str(place),
                what,
                a,
                b,
                found.elements if measured else None,
                found.differing if measured and found.counted else None,
                found.max_abs,
                found.max_rel,
                found.nan_in_one,
            )
        )


def _is_memory(value: Any) -> bool:
    storages = torch.UntypedStorage | torch.TypedStorage
    return isinstance(value, torch.Tensor | np.ndarray | storages)


def _parts(value: Any) -> list[tuple[Step | None, Any]]:
    """The strided tensors that a tensor is made of; itself, for most."""
    if isinstance(value, torch.TypedStorage):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the type is deprecated is the file's affair
            value = value.untyped()
    if isinstance(value, torch.UntypedStorage):
        return [(None, torch.empty(0, dtype=torch.uint8).set_(value))]
    if isinstance(value, torch.Tensor) and form_of(value) not in LEAF_FORMS:
        parts = tensor_parts(value)
        found: list[tuple[Step | None, Any]] = [
            (parts.step(i), part) for i, part in enumerate(parts.made_from)
        ]
        if value.is_nested:  # its parts are one flat buffer; where each tensor lies is beside it
            found += [(Attribute("layout"), part) for part in _torch.nested_parts(value)]
        return found
    return [(None, value)]


def _whole_shape(value: Any) -> str:
    """The shape of a sparse tensor, which its parts do not tell."""
    is_sparse = isinstance(value, torch.Tensor) and form_of(value) in (Form.COO, Form.COMPRESSED)
    return str(tuple(value.shape)) if is_sparse else ""


def _quantizer(value: Any) -> str:
    """Scale and zero point of a quantized tensor, which its integers do not tell."""
    if not isinstance(value, torch.Tensor) or not value.is_quantized:
        return ""
    if value.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return f"scale {value.q_scale()!r}, zero point {value.q_zero_point()}"
    scales, points = value.q_per_channel_scales(), value.q_per_channel_zero_points()
    return f"scales {scales.tolist()}, zero points {points.tolist()}, axis {value.q_per_channel_axis()}"


def _strides(value: Any) -> str:
    """Strides in elements, without those that nobody takes; nothing for numpy arrays."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return ""
    steps = zip(value.shape, value.stride(), strict=True)
    return shorten(str(tuple(s if n > 1 else 1 for n, s in steps)), _LONGEST_VALUE)


def _layout(value: Any) -> str:
    return str(getattr(value, "layout", type(value).__name__)).removeprefix("torch.")


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _measure(a: Any, b: Any, tolerance: Tolerance) -> Measured:
    tensors = [_as_tensor(a), _as_tensor(b)]
    if tensors[0] is not None and tensors[1] is not None:
        return measure(tensors[0], tensors[1], tolerance)
    left, right = np.asarray(a), np.asarray(b)
    same = left.dtype == right.dtype and left.tobytes() == right.tobytes()
    return Measured(left.size, 0 if same else 1, counted=same)


def _as_tensor(value: Any) -> torch.Tensor | None:
    """A numpy array as the tensor of the same memory, where torch knows its dtype."""
    if isinstance(value, torch.Tensor):
        return value
    try:
        return torch.from_numpy(value)
    except (TypeError, ValueError):
        return None


def _equal_values(a: Any, b: Any) -> bool:
    """Whether two plain values are one value: True is not 1, -0.0 is not 0.0, NaN is NaN."""
    if type(a) is not type(b):
        return False
    match a:
        case float():
            return struct.pack("<d", a) == struct.pack("<d", b)
        case complex():
            return struct.pack("<2d", a.real, a.imag) == struct.pack("<2d", b.real, b.imag)
        case set() | frozenset():
            types = [sorted(str(type(x)) for x in members) for members in (a, b)]
            return bool(a == b) and types[0] == types[1]
    return bool(a == b)


def _shown(value: Any) -> str:
    if isinstance(value, str | bytes | bytearray):
        value = value[:_LONGEST_VALUE]
    if not isinstance(value, set | frozenset):
        return shorten(repr(value), _LONGEST_VALUE)
    return f"a set of {len(value)}"
