"""One iterative walk over any structure: its tensors and arrays, its other objects, and paths to all.

In: a value. Out: a `Walk`, that owns the order in which objects are met and where each was met.
The walk is depth first with a stack of its own, so nesting may be as deep as memory allows, and an
object comes after all that it holds (but for cycles): the order in which copies can be made.
"""

from __future__ import annotations

import enum
from collections import ChainMap, OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.structure.capsules import holds_tensor
from truecopy.structure.kinds import Kind, kind_of, protocol_kind
from truecopy.structure.naming import name_of
from truecopy.structure.parts import Parts, container_parts, look_parts
from truecopy.structure.paths import Attribute, Item, ItemOf, Nth, NthValue, Path, Step
from truecopy.structure.protocol import Reduction, reduced_parts
from truecopy.structure.tensors import (
    LEAF_FORMS,
    all_alike,
    all_bare,
    is_bare,
    is_plain,
    tensor_parts,
)


class Op(enum.Enum):
    """What to do with a node when copies are made, in the order of `Walk.program`."""

    MAKE = "make"
    FILL = "fill"


@dataclass(slots=True, eq=False)
class Node:
    """An object that holds others, and where it was first met."""

    value: Any
    kind: Kind
    parts: Parts
    parent: Node | None
    place: int
    children: list[Any]
    made: bool = False  # its MAKE stands in the program

    @property
    def fills(self) -> bool:
        """Whether something is put in after the object was made; an empty state is something."""
        return len(self.children) > len(self.parts.made_from) or (
            isinstance(self.parts.memory, Reduction) and self.parts.memory.has_state
        )


Place = tuple[Node | None, int]
"""The n-th child of a node; `(None, 0)` is the root."""

Keep = Callable[[Any, Callable[[], Path]], bool]
"""Whether an object is to be kept by reference, told from the object and its path."""

PartsOf = Callable[[Kind, Any], Parts]
"""What an object of a kind holds."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An object that refuses to be taken apart."""

    value: Any
    place: Place
    error: Exception


@dataclass(frozen=True, slots=True)
class Kept:
    """An object that a copy shares with its source, and why."""

    value: Any
    place: Place
    why: str


@dataclass(slots=True)
class Walk:
    """Everything that was met from a root, with the ways to it."""

    root: Any
    name: str | None  # None: what the caller calls the root, looked up when a path is asked for
    leaves: list[Any] = field(default_factory=list)
    parents: list[Node | None] = field(default_factory=list)  # of each leaf, and which child it is;
    indices: list[int] = field(
        default_factory=list
    )  # columns: tuples would keep the collector busy
    bare: set[int] = field(default_factory=set)  # leaves that are one strided region on the CPU
    alike: int = 0  # so many leaves, from the first on, are of one shape, strides and dtype
    again: dict[int, list[Place]] = field(default_factory=dict)
    program: list[tuple[Op, Node]] = field(default_factory=list)
    nodes: MutableMapping[int, Node] = field(default_factory=dict)
    empty: dict[int, Any] = field(default_factory=dict)  # containers that need no node: see `walk`
    leaf_of: dict[int, int] = field(default_factory=dict)
    functions: list[tuple[Any, Place]] = field(default_factory=list)
    weakrefs: list[tuple[Any, Place]] = field(default_factory=list)
    kept: dict[int, Kept] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    inside: list[Walk] = field(default_factory=list)  # looks into objects that copy themselves

    def path(self, leaf: int) -> Path:
        """The best path to a leaf: by attributes and items where there is one."""
        return self.paths(leaf)[0]

    def paths(self, leaf: int) -> tuple[Path, ...]:
        """All paths by which a leaf was met, best first."""
        return tuple(map(self.path_of, sorted(self.places(leaf), key=_is_roundabout)))

    def path_of(self, place: Place) -> Path:
        """The path to the child of a node; `(None, 0)` is the root."""
        steps: list[Step] = []
        node, index = place
        while node is not None:
            steps.append(self._step(node, index))
            index = node.place
            node = node.parent
        if self.name is None:
            self.name = name_of(self.root)
        return Path(self.name, _through_modules(self.root, steps[::-1]))

    def _step(self, node: Node, index: int) -> Step:
        step = node.parts.step(index)
        if isinstance(step, NthValue) and (leaf := self.leaf_of.get(id(step.key))) is not None:
            place = min(self.places(leaf), key=_is_roundabout)
            if not _is_roundabout(place):  # the key has a path of its own, which reads better
                return ItemOf(step.key, lambda: str(self.path_of(place)))
        return step

    def places(self, leaf: int) -> list[Place]:
        """All places where a leaf was met, in the order of the walk."""
        return [(self.parents[leaf], self.indices[leaf]), *self.again.get(leaf, ())]

    def contains(self, value: Any) -> bool:
        """Whether this very object was met."""
        key = id(value)
        return key in self.nodes or key in self.leaf_of or key in self.empty


def _is_roundabout(place: Place) -> bool:
    """Whether a place is reachable only by counting: keys of dicts, members of sets."""
    node, index = place
    return node is not None and isinstance(node.parts.step(index), Nth | NthValue)


_MODULE_TABLES = frozenset(("_parameters", "_buffers", "_modules"))
_INDEXED = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ParameterList)
_KEYED = (torch.nn.ModuleDict, torch.nn.ParameterDict)


def _through_modules(root: Any, steps: list[Step]) -> tuple[Step, ...]:
    """`model._modules["layers"]._modules["3"]` as people write it: `model.layers[3]`."""
    out: list[Step] = []
    value, i = root, 0
    while i < len(steps):
        step = steps[i]
        following = steps[i + 1] if i + 1 < len(steps) else None
        match step, following:
            case Attribute(name), Item(key) if name in _MODULE_TABLES and isinstance(
                value, torch.nn.Module
            ):
                out.append(_module_step(value, key))
                value = getattr(value, name)[key]
                i += 2
                continue
        out.append(step)
        try:
            value = step.follow(value)
        except Exception:  # noqa: BLE001 - only a nicer spelling is lost: the steps stay right
            value = None
        i += 1
    return tuple(out)


def _module_step(module: torch.nn.Module, key: str) -> Step:
    if isinstance(module, _INDEXED) and key.isdigit():
        return Item(int(key))
    if isinstance(module, _KEYED):
        return Item(key)
    return Attribute(key)


def walk(
    root: Any,
    name: str | None,
    *,
    protocol: bool = False,
    keep: Keep | None = None,
    with_grad: bool = True,
    parts_of: PartsOf = container_parts,
) -> Walk:
    """Meet everything that `root` holds. With `protocol`, take objects apart as a copy would.

    `parts_of` tells what an object holds, where its own protocol is not asked: who walks for a purpose
    may leave parts out, or put them into an order.

    A copy of an empty container is a new one of its type. With `protocol`, these are no nodes: every
    module holds a dozen empty tables of hooks, and together they would be most of a model's nodes.
    """
    found = Walk(root, name)
    kind_of.ask_protocols_again()
    _Walker(found, protocol, keep, with_grad, parts_of=parts_of).run(root, None, 0)
    return found


_dtype = np.ndarray.dtype.__get__  # a subclass may have put code in its place
_FILLED_LEAVES = (Kind.TENSOR, Kind.SUBARRAY)
_BUILT_IN = frozenset((list, dict, set, OrderedDict))
_MANY = 16
"""Children from which a container is worth a look at all of them at once."""
_AT_ONCE = 4096
"""Of more, some at a time: what one question reads of a tensor is in the cache for the next."""


def _has_nothing(value: Any) -> bool:
    return not value and (type(value) is not OrderedDict or not value.__dict__)


class _Walker:
    """The loop of one walk; it exists so that the pieces of the loop can share their tables."""

    def __init__(
        self,
        found: Walk,
        protocol: bool,
        keep: Keep | None,
        with_grad: bool,
        *,
        inside: bool = False,
        parts_of: PartsOf = container_parts,
    ) -> None:
        self.found = found
        self.protocol = protocol
        self.inside = inside  # of an object that copies itself, and other libraries' memory with it
        self.keep = keep
        self.with_grad = with_grad
        self.parts_of = parts_of

    def run(self, value: Any, parent: Node | None, place: int) -> None:
        """Meet `value`, and depth first all that it holds."""
        first = self._meet(value, (parent, place))
        if first is None:
            return
        stack = [self._open(first)]
        while stack:
            node, children = stack[-1]
            other = self._next_other(node, children)
            if other is None:
                stack.pop()
                self._close(node)
                continue
            index, child = other
            met = self._meet(child, (node, index))
            if met is not None:
                stack.append(self._open(met))

    def _open(self, node: Node) -> tuple[Node, Iterator[tuple[int, Any]]]:
        if not node.parts.made_from:
            self._note_make(node)
        many = len(node.children) >= _MANY and self.keep is None
        if many and self._take_all(node):
            return node, enumerate(())
        return node, enumerate(node.children)

    def _take_all(self, node: Node) -> bool:
        """Take a container of ordinary tensors, each met for the first time, column by column."""
        found, children = self.found, node.children
        with _torch.disable_torch_function():
            alike = all_alike(children)
            for start in range(0, len(children), _AT_ONCE):
                some = children[start : start + _AT_ONCE]
                of_a_kind = alike or all_alike(some, of_one_shape=False)
                if not all_bare(some, alike=of_a_kind):
                    return False
        rows = range(len(found.leaves), len(found.leaves) + len(children))
        row_of = dict(zip(map(id, children), rows, strict=True))
        if len(row_of) < len(children) or not row_of.keys().isdisjoint(found.leaf_of):
            return False
        if alike and not found.leaves:
            found.alike = len(children)
        found.leaf_of.update(row_of)
        found.bare.update(rows)
        found.leaves += children
        found.parents += [node] * len(children)
        found.indices += range(len(children))
        return True

    def _close(self, node: Node) -> None:
        self._note_make(node)
        if node.fills:
            self.found.program.append((Op.FILL, node))

    def _note_make(self, node: Node) -> None:
        if not node.made:
            node.made = True
            self.found.program.append((Op.MAKE, node))

    def _next_other(
        self, node: Node, children: Iterator[tuple[int, Any]]
    ) -> tuple[int, Any] | None:
        """Go on through a node's children to one that is not an atom, a bare tensor, or known.

        The hot loop. It runs no code of users: reading a tensor must not reach their modes.
        """
        found = self.found
        leaf_of, leaves, bare = found.leaf_of, found.leaves, found.bare
        parents, indices, empty = found.parents, found.indices, found.empty
        filled_from = len(node.parts.made_from)
        bare_tensors = self.keep is None
        empty_ones = self.protocol and self.keep is None
        with _torch.disable_torch_function():
            for index, value in children:
                if index == filled_from:
                    self._note_make(node)
                kind = kind_of[type(value)]
                if kind is Kind.ATOM:
                    continue
                key = id(value)
                if key in leaf_of:
                    found.again.setdefault(leaf_of[key], []).append((node, index))
                elif kind is Kind.TENSOR and bare_tensors and is_bare(value):
                    leaf_of[key] = row = len(leaves)
                    bare.add(row)
                    leaves.append(value)
                    parents.append(node)
                    indices.append(index)
                elif empty_ones and type(value) in _BUILT_IN and _has_nothing(value):
                    empty[key] = value
                elif key not in found.nodes:
                    return index, value
        return None

    def _meet(self, value: Any, place: Place) -> Node | None:
        """Take note of an object met for the first time; return its node if it holds others."""
        found = self.found
        kind = kind_of[type(value)]
        if kind is Kind.ATOM or id(value) in found.kept:
            return None
        if kind is Kind.HANDLE:
            found.kept[id(value)] = Kept(
                value, place, "a handle on something outside the structure"
            )
            return None
        if self.keep is not None and self.keep(value, lambda: found.path_of(place)):
            found.kept[id(value)] = Kept(value, place, "named by share=")
            return None
        match kind:
            case Kind.FUNCTION:
                found.functions.append((value, place))
                return None
            case Kind.WEAKREF:
                found.weakrefs.append((value, place))
                return None
            case Kind.FOREIGN | Kind.CAPSULE if self.protocol:
                kind = protocol_kind(type(value))
            case Kind.CAPSULE:
                if holds_tensor(value):
                    self._leaf(value, place)
                return None
            case Kind.FOREIGN:
                if not self.inside:
                    self._leaf(value, place)
                return None
            case Kind.STORAGE:
                self._leaf(value, place)
                return None
            case Kind.ARRAY if not value.dtype.hasobject:
                self._leaf(value, place)
                return None
            case Kind.SUBARRAY if self.protocol and _dtype(value).hasobject:
                kind = protocol_kind(type(value))
        if kind is Kind.OPAQUE and self.protocol:
            return self._look_inside(value, place)
        if kind is Kind.ORDERED:  # every module holds a dozen, and hardly one carries attributes
            kind = Kind.REDUCED if value.__dict__ else Kind.DICT
        try:
            parts = self._parts(kind, value)
        except Exception as error:  # noqa: BLE001 - users' protocols raise anything
            found.failures.append(Failure(value, place, error.with_traceback(None)))
            return None
        if kind is Kind.SUBARRAY or (kind is Kind.TENSOR and parts.memory.form in LEAF_FORMS):
            if is_plain(value):
                found.bare.add(len(found.leaves))
            self._leaf(value, place)
            if not parts.filled_with:
                return None
        return self._node(value, kind, parts, place)

    def _parts(self, kind: Kind, value: Any) -> Parts:
        if kind is Kind.TENSOR:
            return tensor_parts(value, with_grad=self.with_grad)
        if kind is Kind.REDUCED and self.protocol:
            return reduced_parts(value)
        return self.parts_of(kind, value)

    def _leaf(self, value: Any, place: Place) -> None:
        found = self.found
        found.leaf_of[id(value)] = len(found.leaves)
        found.leaves.append(value)
        found.parents.append(place[0])
        found.indices.append(place[1])

    def _node(self, value: Any, kind: Kind, parts: Parts, place: Place) -> Node:
        children = [*parts.made_from, *parts.filled_with]
        node = Node(value, kind, parts, *place, children)
        self.found.nodes[id(value)] = node
        return node

    def _look_inside(self, value: Any, place: Place) -> Node:
        """Find the tensors in an object that copies itself; the rest of it is its own affair."""
        found = self.found
        node = self._node(value, Kind.OPAQUE, Parts(), place)
        shown = self._node(value, Kind.OPAQUE, look_parts(value), place)
        found.nodes[id(value)] = node
        inside = replace(
            found,
            program=[],
            nodes=ChainMap({}, found.nodes),
            functions=[],
            weakrefs=[],
            failures=[],
        )
        walker = _Walker(inside, False, self.keep, self.with_grad, inside=True)
        for index, child in enumerate(shown.children):
            if kind_of[type(child)] is not Kind.ATOM and id(child) not in inside.nodes:
                walker.run_child(child, shown, index)
        found.program += [step for step in inside.program if step[1].kind in _FILLED_LEAVES]
        found.inside.append(inside)
        return node

    def run_child(self, value: Any, parent: Node, place: int) -> None:
        """Like `run`, for a value that may have been met already."""
        leaf = self.found.leaf_of.get(id(value))
        if leaf is not None:
            self.found.again.setdefault(leaf, []).append((parent, place))
        else:
            self.run(value, parent, place)
