"""From a kept set to named bytes and plain data.

A `Description` is a graph: objects (`nodes`) with their drawers, and tensors and arrays (`leaves`) with
the name of the bytes in the file. It names classes and never needs one to be read.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.copying.blocks import Member
from truecopy.errors import CannotWrite
from truecopy.snapshots.contents import Contents, Drawer, Table
from truecopy.snapshots.disk.encoding import Unwritable, encode, encode_state, type_name
from truecopy.snapshots.keeping import Home, Kept, members, typed_member
from truecopy.snapshots.looking import Image
from truecopy.structure.kinds import Kind, kind_of

LEFT = {"$left": True}
"""Stands where the snapshot has nothing: code, and what it left out."""

DTYPES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16",
    torch.uint16: "U16", torch.int32: "I32", torch.uint32: "U32", torch.int64: "I64",
    torch.uint64: "U64", torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32",
    torch.float64: "F64", torch.complex64: "C64", torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
"""What safetensors calls a dtype. Others are stored as bytes, and the description says what they are."""


@dataclass(frozen=True, slots=True)
class Payload:
    """One named tensor of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    read: Callable[[], torch.Tensor]  # its bytes, flat; a copy only where they do not lie in a row


@dataclass(slots=True)
class Description:
    """All that is not bytes, as plain data, and the names of what is."""

    sources: list[str]
    roots: list[Any] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    leaves: list[dict[str, Any]] = field(default_factory=list)
    random: Any = None
    unseen: list[str] = field(default_factory=list)
    payloads: list[Payload] = field(default_factory=list)
    ties: dict[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The JSON-able part."""
        return {
            "sources": self.sources, "roots": self.roots, "nodes": self.nodes,
            "leaves": self.leaves, "random": self.random, "unseen": self.unseen,
        }  # fmt: skip


def describe(kept: Kept, unseen: tuple[str, ...], target: str) -> Description:
    """Everything that is kept, under names. Raises CannotWrite, naming all that plain data cannot hold."""
    assert kept.arrangement is not None
    image = kept.arrangement.image
    made = Description(list(image.sources), unseen=list(unseen))
    _Describer(kept, image, made, target).run()
    return made


class _Describer:
    """The graph, object by object."""

    def __init__(self, kept: Kept, image: Image, made: Description, target: str) -> None:
        self.kept, self.image, self.made, self.target = kept, image, made, target
        self.drawers: dict[int, list[int]] = {}
        for place, drawer in enumerate(image.drawers):
            self.drawers.setdefault(id(drawer.owner), []).append(place)
        self.hidden = dict(kept.hidden)
        self.numbers: dict[int, int] = {}
        self.waiting: deque[Any] = deque()
        self.failures: list[tuple[str, str]] = []

    def run(self) -> None:
        self.made.leaves = [{} for _ in self.image.leaves]
        self.made.roots = [self._value(value, None) for value in self.image.sources.values()]
        while self.waiting:
            value = self.waiting.popleft()
            self.made.nodes[self.numbers[id(value)]] = self._node(value)
        _Namer(self.kept, self.image, self.made).run()
        for row, leaf in enumerate(self.image.leaves):
            if id(leaf) in self.drawers:
                self.made.leaves[row]["holder"] = self._node(leaf)
                while self.waiting:
                    value = self.waiting.popleft()
                    self.made.nodes[self.numbers[id(value)]] = self._node(value)
        if self.kept.random is not None:
            state = self.kept.random
            self.made.random = {
                name: self._state(getattr(state, name), f"random state of {name}")
                for name in ("python", "numpy", "cpu", "devices")
            }
        if self.failures:
            raise self._refusal()

    def _refusal(self) -> CannotWrite:
        named = "; ".join(f"{path} is {what}" for path, what in self.failures[1:])
        path, what = self.failures[0]
        return CannotWrite(
            f"cannot be written to {self.target}: plain data has no form for it; no file was touched",
            where=path,
            expected="tensors, numbers, strings, containers of them, and objects that hold such",
            got=f"{what}; {named}" if named else what,
            way_out="Leave it out with only=",
        )

    def _state(self, state: Any, path: str) -> Any:
        try:
            return encode_state(state)
        except Unwritable as error:
            self.failures.append((path, str(error)))
            return LEFT

    def _value(self, value: Any, place: tuple[Drawer, Contents, int] | None) -> Any:
        kind = kind_of[type(value)]
        if kind is Kind.ATOM:
            try:
                return encode(value)
            except Unwritable as error:
                self.failures.append((self._path(place), str(error)))
                return LEFT
        held = _torch.local_part(value) if _torch.is_sharded(value) else value
        row = self.image.rows.leaf_of.get(id(held))
        if row is not None:
            return {"$leaf": row}
        if id(value) in self.image.walked.nodes:
            if id(value) not in self.numbers:
                self.numbers[id(value)] = len(self.made.nodes)
                self.made.nodes.append({})
                self.waiting.append(value)
            return {"$node": self.numbers[id(value)]}
        return LEFT

    def _path(self, place: tuple[Drawer, Contents, int] | None) -> str:
        if place is None:
            return "sources"
        drawer, contents, index = place
        return self.image.place(drawer.owner, drawer.step(contents, index))

    def _node(self, value: Any) -> dict[str, Any]:
        node: dict[str, Any] = {"type": type_name(type(value))}
        tables = [self._drawer(place) for place in self.drawers.get(id(value), ())]
        if tables:
            node["tables"] = tables
        elif isinstance(value, tuple | frozenset):
            node["items"] = [self._value(held, None) for held in value]
        elif (known := self.image.walked.nodes.get(id(value))) is not None:
            node["items"] = [self._value(held, None) for held in known.children]
        return node

    def _drawer(self, place: int) -> dict[str, Any]:
        drawer, contents = self.image.drawers[place], self.kept.contents[place]
        table: dict[str, Any] = {"table": drawer.table.name}
        if drawer.table is Table.HIDDEN:
            table["state"] = self._state(
                self.hidden.get(place), str(self.image.path_of(drawer.owner))
            )
            return table
        keys, values = contents
        chosen = self.image.chosen[place]
        if keys:
            table["keys"] = [self._value(key, (drawer, contents, i)) for i, key in enumerate(keys)]
        table["values"] = [
            self._value(value, (drawer, contents, index))
            if drawer.is_part(keys[index] if keys else index, value)
            and (chosen or kind_of[type(value)] is not Kind.ATOM)
            else LEFT
            for index, value in enumerate(values)
        ]
        return table


# --- names and bytes --------------------------------------------------------------------------------


class _Namer:
    """A name for every leaf; each byte once."""

    def __init__(self, kept: Kept, image: Image, made: Description) -> None:
        assert kept.arrangement is not None
        self.arrangement, self.image, self.made = kept.arrangement, image, made
        self.own = dict(model_names(image.sources))
        self.taken: set[str] = set()
        self.flags = dict(zip(map(id, image.tensors), image.requires_grad, strict=True))

    def run(self) -> None:
        homes: dict[int, tuple[Home, list[Member]]] = {}
        small = set(self.arrangement.small_rows)
        for row, home, member in members(self.arrangement):
            if row in small:
                start = home.offset
                length = home.block.nbytes
                self._alone(row, home, member, home.base[start : start + length])
            else:
                homes.setdefault(id(home), (home, []))[1].append(member)
        for home, together in homes.values():
            for cluster in _clusters(together):
                self._cluster(home, cluster)
        for row in range(len(self.image.leaves)):
            if "tensor" not in self.made.leaves[row]:  # without bytes: empty, or on the meta device
                self._leaf(row, self._add(row, [], 0, _nothing), 0, ())

    def _cluster(self, home: Home, cluster: list[Member]) -> None:
        if len(cluster) == 1:
            self._alone(cluster[0].row, home, cluster[0], None)
            return
        low = min(_span(member)[0] for member in cluster)
        high = max(_span(member)[1] for member in cluster)
        cover = next(
            (m for m in cluster if _span(m) == (low, high) and m.strides == _contiguous(m)), None
        )
        scale = 1.0
        if home.dtype is not None:
            scale = home.dtype.itemsize / cluster[0].itemsize
        data = home.base[int(low * scale) : int(high * scale)]
        if cover is not None:
            name = self._add(cover.row, list(cover.shape), data.nbytes, lambda: data, home.dtype)
        else:
            name = self._free(f"bytes of {self._name(cluster[0].row)}")
            self.made.payloads.append(
                Payload(name, "U8", (data.nbytes,), data.nbytes, lambda: data)
            )
        for member in cluster:
            self._leaf(member.row, name, member.offset - low, member.strides, home.dtype)
            is_tie = cover is not None and member is not cover and self._is_tie(member, cover)
            if is_tie:
                self.made.ties[self._free(self._name(member.row))] = name

    def _is_tie(self, member: Member, cover: Member) -> bool:
        alike = (member.offset, member.shape, member.strides)
        leaves = self.image.leaves
        return alike == (cover.offset, cover.shape, cover.strides) and _dtype(
            leaves[member.row]
        ) == _dtype(leaves[cover.row])

    def _alone(
        self, row: int, home: Home, member: Member, data: torch.Tensor | None
    ) -> None:  # fmt: skip
        thin = tuple(1 if s == 0 else n for n, s in zip(member.shape, member.strides, strict=True))
        strides = _contiguous(Member(row, 0, thin, (), member.itemsize))
        kept = tuple(0 if s == 0 else new for s, new in zip(member.strides, strides, strict=True))
        itemsize = member.itemsize if home.dtype is None else home.dtype.itemsize
        read = (lambda: _gathered(home, member, thin)) if data is None else (lambda: data)
        name = self._add(row, list(thin), math.prod(thin) * itemsize, read, home.dtype)
        self._leaf(row, name, 0, kept, home.dtype)

    def _add(
        self, row: int, shape: list[int], nbytes: int, read: Callable[[], torch.Tensor],
        dtype: torch.dtype | None = None,
    ) -> str:  # fmt: skip
        name = self._free(self._name(row))
        known = DTYPES.get(dtype or _dtype(self.image.leaves[row]))
        if not nbytes and not shape:
            shape = [*_shape(self.image.leaves[row])]
            shape = shape if 0 in shape else [0]
        if known is None:
            known, shape = "U8", [nbytes]
        self.made.payloads.append(Payload(name, known, tuple(shape), nbytes, read))
        for other in self.own.get(id(self.image.leaves[row]), [])[1:]:
            self.made.ties[self._free(other)] = name
        return name

    def _leaf(
        self, row: int, name: str, offset: int, strides: tuple[int, ...],
        stored: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        leaf = self.image.leaves[row]
        about: dict[str, Any] = {
            "path": self.image.path(row), "tensor": name, "offset": offset,
            "strides": list(strides), "dtype": str(_dtype(leaf) or "bytes").removeprefix("torch."),
            "shape": list(_shape(leaf)),
        }  # fmt: skip
        if isinstance(leaf, torch.Tensor):
            about["requires_grad"] = self.flags[id(leaf)]
        if stored is not None:
            about["stored"] = str(stored).removeprefix("torch.")
        self.made.leaves[row] = about | self.made.leaves[row]

    def _name(self, row: int) -> str:
        names = self.own.get(id(self.image.leaves[row]))
        return names[0] if names else self.image.path(row)

    def _free(self, name: str) -> str:
        while name in self.taken or name == "__metadata__":
            name += "'"
        self.taken.add(name)
        return name


def _nothing() -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8)


def model_names(sources: dict[str, Any]) -> Iterator[tuple[int, list[str]]]:
    """Ids of the tensors of the first module among the sources, with the names that it gives them."""
    model = next((one for one in sources.values() if isinstance(one, torch.nn.Module)), None)
    if model is None:
        return
    found: dict[int, list[str]] = {}
    for named in (model.named_parameters, model.named_buffers):
        for name, tensor in named(remove_duplicate=False):
            held = _torch.local_part(tensor) if _torch.is_sharded(tensor) else tensor
            found.setdefault(id(held), []).append(name)
    yield from found.items()


def _gathered(home: Home, member: Member, thin: tuple[int, ...]) -> torch.Tensor:
    """The bytes of one leaf in the order of its indices, as a view where they lie so."""
    if home.dtype is not None:
        kept = typed_member(home, member)
        for dimension, length in enumerate(thin):
            kept = kept.narrow(dimension, 0, length)
        return kept.contiguous().view(-1).view(torch.uint8)
    step = member.itemsize
    start = home.offset + member.offset
    nbytes = step
    for length in thin:
        nbytes *= length
    if _compact(member, thin):
        return home.base[start : start + nbytes]
    shape, strides = (*thin, step), (*member.strides, 1)
    low = sum((n - 1) * s for n, s in zip(thin, member.strides, strict=True) if s < 0)
    flat = home.base.as_strided(
        shape, tuple(map(abs, strides)), start + low
    )  # fmt: skip
    backwards = [d for d, s in enumerate(member.strides) if s < 0]
    return flat.flip(backwards).contiguous().view(-1) if backwards else flat.contiguous().view(-1)


def _compact(member: Member, thin: tuple[int, ...]) -> bool:
    strides = _contiguous(Member(member.row, 0, thin, (), member.itemsize))
    return all(
        n == 1 or own == dense for n, own, dense in zip(thin, member.strides, strides, strict=True)
    )


def _contiguous(member: Member) -> tuple[int, ...]:
    strides, step = [], member.itemsize
    for length in reversed(member.shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def _span(member: Member) -> tuple[int, int]:
    low = high = member.offset
    for length, stride in zip(member.shape, member.strides, strict=True):
        low += min((length - 1) * stride, 0)
        high += max((length - 1) * stride, 0)
    return low, high + member.itemsize


def _clusters(together: list[Member]) -> Iterator[list[Member]]:
    """Members whose spans touch, together: the others have names of their own."""
    cluster: list[Member] = []
    reach = -1
    for member in sorted(together, key=_span):
        low, high = _span(member)
        if cluster and low >= reach:
            yield cluster
            cluster = []
        cluster.append(member)
        reach = max(reach, high) if len(cluster) > 1 else high
    if cluster:
        yield cluster


def _dtype(leaf: Any) -> Any:
    return leaf.dtype if isinstance(leaf, torch.Tensor) else _numpy_dtype(leaf)


def _numpy_dtype(leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray):
        return torch.uint8
    try:
        return torch.from_numpy(np.empty(0, leaf.dtype)).dtype
    except TypeError:
        return leaf.dtype.str


def _shape(leaf: Any) -> tuple[int, ...]:
    if isinstance(leaf, torch.Tensor | np.ndarray):
        return tuple(leaf.shape)
    nbytes = (
        leaf.nbytes() if isinstance(leaf, torch.UntypedStorage | torch.TypedStorage) else len(leaf)
    )
    return (nbytes,)
