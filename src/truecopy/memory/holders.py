"""Who else in this process reaches a value's memory, by variable, attribute and container."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch

from truecopy import _torch
from truecopy.memory.counting import are_identical, count_common, count_reached
from truecopy.memory.groups import Table, tabulate
from truecopy.memory.heap import Heap, Name, Variable, look
from truecopy.memory.overlap import overlaps
from truecopy.memory.reading import read
from truecopy.memory.region import Region
from truecopy.memory.sides import own_leaves
from truecopy.memory.steps import gradient_of, graph_of
from truecopy.records import Record
from truecopy.structure.kinds import arrays_of_others
from truecopy.structure.naming import caller_frame, name_of
from truecopy.structure.paths import Item, Path, Step
from truecopy.structure.tensors import Form, form_of, is_bare
from truecopy.structure.walk import walk

HolderKind = Literal["same", "identical", "overlapping"]
_ORDER = ("same", "identical", "overlapping")


@dataclass(frozen=True, slots=True)
class Holder(Record):
    """One way by which the process reaches the memory in question. `str(holder)` is one sentence."""

    path: str  # reads like Python: "train.py:42 in fit(): batch", "__main__.model.layers[3].weight"
    relation: HolderKind  # the same object, another with the same bytes, or with some of them
    of: str  # which value it shares with: the argument, or a path in it
    common_bytes: int | None  # None: too many pieces to count
    type: str
    shape: tuple[int, ...]

    kind = "holder"

    def body(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "relation": self.relation,
            "of": self.of,
            "common_bytes": self.common_bytes,
            "type": self.type,
            "shape": list(self.shape),
        }

    def __str__(self) -> str:
        what = f"{self.path} ({self.type} of shape {self.shape})"
        if self.relation == "same":
            return f"{what} is {self.of}"
        count = "some" if self.common_bytes is None else self.common_bytes
        amount = "all" if self.relation == "identical" else count
        return f"{what} shares {amount} bytes with {self.of}"


def who_shares(x: Any) -> list[Holder]:
    """Who else in this process reaches the memory of `x`: every other tensor, storage and array.

    Looks at what the garbage collector and the running frames know. Told are variables, attributes
    and containers, and what autograd saved for a backward pass; `x` itself is left out, but who else
    holds that very object is told. Allocates no tensor memory, returns no view, does not synchronize,
    runs no code of the objects that it meets, and keeps nothing alive.

    >>> import torch, truecopy as tc
    >>> x = torch.zeros(4)
    >>> head = x[:2]
    >>> "overlapping" in [holder.relation for holder in tc.who_shares(x)]
    True
    """
    with _torch.disable_torch_function(), _torch.no_modes():
        name = name_of(
            x, "x"
        )  # before the look, whose list would hold on to the snapshot of locals
        heap = look()  # before anything else of ours exists
        search = _Search(heap, x, name, caller_frame())
        return sorted(
            dict.fromkeys(search.run()), key=lambda h: (_ORDER.index(h.relation), h.path, h.of)
        )


@dataclass(frozen=True, slots=True)
class _Target:
    """A value whose memory is asked for."""

    owner: Any
    path: str
    region: Region | None


@dataclass(frozen=True, slots=True)
class _Hit:
    """A value that is a target, or reaches memory of one."""

    value: Any
    target: _Target
    relation: HolderKind
    common_bytes: int | None

    def at(self, path: str) -> Holder:
        shape = _shape(self.value)
        return Holder(
            path,
            self.relation,
            self.target.path,
            self.common_bytes,
            type(self.value).__name__,
            shape,
        )


class _Search:
    """One question, put to one look at the process."""

    def __init__(self, heap: Heap, x: Any, name: str, caller: FrameType | None) -> None:
        assert caller is not None, "somebody asked"
        self.heap = heap
        self.x = x
        self.name = name
        self.caller = caller
        self.inside: set[int] = {id(x)}  # the argument and its own containers
        self.targets = list(self._find_targets())

    def run(self) -> Iterator[Holder]:
        hits = [*self._same(), *self._others()]
        by_value: dict[int, list[_Hit]] = {}
        for hit in hits:
            by_value.setdefault(id(hit.value), []).append(hit)
        edges = [
            edge
            for edge in self.heap.holders(hit.value for hit in hits)
            if id(edge[1]) not in self.inside and not self._is_own_variable(*edge)
        ]
        names = self.heap.names(parent for _, parent, _ in edges)
        for value, parent, step in edges:
            name = names.get(id(parent)) or Name(f"<{type(parent).__name__}>", 0, parent)
            yield from (hit.at(name.then(step, value).text) for hit in by_value[id(value)])
        for hit in hits:
            yield from map(hit.at, self._variables(hit.value))
        yield from self._saved()

    def _find_targets(self) -> Iterator[_Target]:
        own = own_leaves(self.x, Path(self.name))
        if own is not None and not _holds_objects(self.x):
            yield from self._targets([(self.x, leaf, str(path)) for leaf, path in own])
            return
        walked = walk(self.x, self.name)
        for node in walked.nodes.values():
            self.inside |= {id(node.value), id(self.heap.dict_of(node.value))}
        rows = [(leaf, leaf, str(walked.path(row))) for row, leaf in enumerate(walked.leaves)]
        yield from self._targets(rows)

    def _targets(self, rows: list[tuple[Any, Any, str]]) -> Iterator[_Target]:
        table = tabulate([leaf for _, leaf, _ in rows])
        for row, (owner, _, path) in enumerate(rows):
            region = table.region(row)
            usable = isinstance(region, Region) and not region.is_empty
            yield _Target(owner, path, region if usable else None)  # type: ignore[arg-type]

    def _same(self) -> Iterator[_Hit]:
        """The targets themselves: others may hold the very objects."""
        seen: set[int] = set()
        for target in self.targets:
            if id(target.owner) not in seen:
                seen.add(id(target.owner))
                region = target.region
                yield _Hit(
                    target.owner,
                    target,
                    "same",
                    None if region is None else count_reached([region]),
                )

    def _others(self) -> Iterator[_Hit]:
        own = {id(target.owner) for target in self.targets} | self.inside
        found = [(value, leaf) for value, leaf in _candidates(self.heap) if id(value) not in own]
        leaves = [leaf for _, leaf in found]
        bare = [
            row
            for row, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor) and is_bare(leaf)
        ]
        table = tabulate(leaves, bare)
        for target in self.targets:
            for row in _near(table, target.region):
                if (hit := _hit(found[row][0], table.region(row), target)) is not None:
                    yield hit

    def _is_own_variable(self, value: Any, parent: Any, step: Step) -> bool:
        """Whether this is the module variable that the caller passed `x` by."""
        return (
            value is self.x
            and parent is self.caller.f_globals
            and step == Item(self.name)
            and not any(self._is_own_local(v) for v in self.heap.locals.get(id(value), ()))
        )

    def _is_own_local(self, variable: Variable) -> bool:
        return variable.frame == id(self.caller) and variable.name == self.name

    def _variables(self, value: Any) -> Iterator[str]:
        for variable in self.heap.locals.get(id(value), ()):
            if value is not self.x or not self._is_own_local(variable):
                yield str(variable)

    def _saved(self) -> Iterator[Holder]:
        """Tensors that the graphs of living tensors have saved for the backward pass."""
        roots: dict[int, tuple[Any, torch.Tensor]] = {}
        for tensor in self.heap.tensors:
            if (node := graph_of(tensor)) is not None:
                roots.setdefault(id(node), (node, tensor))
        hits = [
            (hit, node.name(), tensor)
            for node, tensor in _nodes(roots)
            for saved in _torch.saved_tensors(node)
            for target in self.targets
            if (hit := _hit(saved, read(saved), target)) is not None
        ]
        names = self.heap.names([tensor for _, _, tensor in hits])
        for hit, node_name, tensor in hits:
            name = names.get(id(tensor))
            owner = name.text if name else "a tensor that no name leads to"
            yield hit.at(f"saved by {node_name} of {owner}")


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of a tensor or array; of a storage its length in bytes."""
    if issubclass(type(value), torch.Tensor):
        return tuple(torch.Tensor.size(value))
    if issubclass(type(value), np.ndarray):
        shape: tuple[int, ...] = np.ndarray.view(value, np.ndarray).shape
        return shape
    if type(value) in arrays_of_others():
        return tuple(value.shape)
    length: int = value.nbytes()
    return (length,)


def _holds_objects(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.hasobject


def _candidates(heap: Heap) -> Iterator[tuple[Any, Any]]:
    """Every tensor, storage and array, with the leaves that its bytes are in."""
    seen: set[int] = set()
    for tensor in [*heap.tensors, *_untracked_gradients(heap)]:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield from ((tensor, leaf) for leaf in _leaves(tensor))
    yield from ((storage, storage) for storage in heap.storages)
    yield from ((array, array) for array in (*heap.arrays.values(), *heap.foreign))


def _untracked_gradients(heap: Heap) -> Iterator[torch.Tensor]:
    for owners in heap.gradients.values():
        gradient = gradient_of(owners[0])
        if gradient is not None and id(gradient) not in heap.known:
            yield gradient


def _leaves(tensor: torch.Tensor) -> list[Any]:
    # The parts of a wrapper are tensors with Python objects of their own; asking for them is its code.
    if form_of(tensor) is Form.WRAPPER:
        return []
    return [leaf for leaf, _ in own_leaves(tensor, Path("")) or ()]


def _near(table: Table, region: Region | None) -> list[int]:
    """Rows whose spans meet the region's."""
    if region is None:
        return []
    low, high = region.span
    found: list[int] = np.flatnonzero((table.low < high) & (table.high > low)).tolist()
    return found


def _hit(value: Any, region: Any, target: _Target) -> _Hit | None:
    if (
        target.region is None
        or not isinstance(region, Region)
        or not overlaps(region, target.region)
    ):
        return None
    if value is target.owner:
        return _Hit(value, target, "same", count_reached([target.region]))
    relation: HolderKind = "identical" if are_identical(region, target.region) else "overlapping"
    return _Hit(value, target, relation, count_common(region, target.region))


def _nodes(roots: dict[int, tuple[Any, torch.Tensor]]) -> Iterator[tuple[Any, torch.Tensor]]:
    """Every node of the graphs, with the tensor by which it was reached."""
    seen = dict(roots)
    waiting = list(roots.values())
    while waiting:
        node, tensor = waiting.pop()
        yield node, tensor
        for after, _ in node.next_functions:
            if after is not None and id(after) not in seen:
                seen[id(after)] = (after, tensor)
                waiting.append((after, tensor))
