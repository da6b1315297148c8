"""What a copy will do, before it does it."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.copying.leaves import Layout, lay_out
from truecopy.copying.options import Options
from truecopy.copying.owners import WHY_ORPHANED, orphaned
from truecopy.copying.refusals import refuse_what_cannot_be
from truecopy.errors import CannotCopy, NotIndependent, TruecopyError
from truecopy.memory.reading import read
from truecopy.memory.region import Region
from truecopy.records import Record
from truecopy.structure.protocol import Reduction
from truecopy.structure.walk import Failure, Keep, Node, Walk, walk
from truecopy.structure.weak import can_rebind, target_of


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """One allocation of the copy."""

    paths: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a copy treats in a way worth knowing."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan(Record):
    """What a copy will do. `print(plan)` is a table; `plan.to_json()` is plain data."""

    name: str
    groups: tuple[PlannedGroup, ...]  # largest first
    kept: tuple[Note, ...]  # by reference, in the copy and in the source
    dropped: tuple[
        Note, ...
    ]  # hooks, what an object's own protocol leaves out, the model of an optimizer
    points_back: tuple[Note, ...]  # functions and weak references that still mean the original
    fails: tuple[Note, ...]  # what makes the copy raise
    undecided: tuple[str, ...]  # interleaved views whose sharing would take too long to decide

    kind = "plan"

    @property
    def nbytes(self) -> int:
        """Bytes that the copy allocates for tensors and arrays."""
        return sum(group.nbytes for group in self.groups)

    def body(self) -> dict[str, Any]:
        def notes(which: tuple[Note, ...]) -> list[dict[str, str]]:
            return [{"path": note.path, "why": note.why} for note in which]

        return {
            "name": self.name,
            "nbytes": self.nbytes,
            "groups": [{"paths": list(g.paths), "nbytes": g.nbytes} for g in self.groups],
            "kept": notes(self.kept),
            "dropped": notes(self.dropped),
            "points_back": notes(self.points_back),
            "fails": notes(self.fails),
            "undecided": list(self.undecided),
        }


def describe(walked: Walk, layout: Layout | None, error: TruecopyError | None) -> Plan:
    """The plan of a walk as a record."""
    fails = [Note(str(walked.path_of(f.place)), refusal(f)) for f in walked.failures]
    if error is not None:
        fails.append(Note(error.where or walked.name or "obj", error.what))
    return Plan(
        walked.name or "obj",
        () if layout is None else tuple(sorted(_groups(walked, layout), key=lambda g: -g.nbytes)),
        tuple(Note(str(walked.path_of(k.place)), k.why) for k in walked.kept.values()),
        (
            *_dropped(walked),
            *(Note(str(walked.path_of(p)), WHY_ORPHANED) for p in orphaned(walked)),
        ),
        tuple(points_back(walked)),
        tuple(fails),
        () if layout is None else tuple(str(walked.path(row)) for row in layout.undecided),
    )


def _groups(walked: Walk, layout: Layout) -> Iterator[PlannedGroup]:
    for row in layout.plain:
        yield PlannedGroup(_paths(walked, [row]), walked.leaves[row].nbytes)
    for block in layout.blocks:
        yield PlannedGroup(_paths(walked, [m.row for m in block.members]), block.nbytes)
    for row in layout.closed:
        leaf = walked.leaves[row]
        yield PlannedGroup(_paths(walked, [row]), leaf.numel() * leaf.itemsize)


def _paths(walked: Walk, rows: list[int]) -> tuple[str, ...]:
    return tuple(str(path) for row in rows for path in walked.paths(row))


def _dropped(walked: Walk) -> Iterator[Note]:
    for row, leaf in enumerate(walked.leaves):
        if isinstance(leaf, torch.Tensor):
            for hooks in _torch.hooks_of(leaf):
                yield Note(
                    str(walked.path(row)),
                    f"{hooks} of tensors belong to their graph and are not copied",
                )
    for node in walked.nodes.values():
        for name in _left_out(node):
            path = f"{walked.path_of((node.parent, node.place))}.{name}"
            yield Note(path, f"{type(node.value).__name__} leaves it out of its own state")


def _left_out(node: Node) -> Iterator[str]:
    """Attributes with something in them that the object's own protocol does not hand out."""
    if not isinstance(node.parts.memory, Reduction) or node.parts.memory.state_names is None:
        return
    held, handed_out = getattr(node.value, "__dict__", {}), set(node.parts.memory.state_names)
    if handed_out <= held.keys():  # else the state has names of its own, and nothing can be told
        for name in held.keys() - handed_out:
            if held[name] is not None and (not isinstance(held[name], dict | list) or held[name]):
                yield name


def refuse_failures(walked: Walk) -> None:
    """Raise for the first object that refused to be taken apart, as what its own protocol raised."""
    for failure in walked.failures:
        path = str(walked.path_of(failure.place))
        if type(failure.error) is not TypeError:  # a user's own error is a user's own business
            failure.error.add_note(f"while truecopy was copying {path}")
            raise failure.error
        raise CannotCopy(
            refusal(failure),
            where=path,
            expected="an object that its class knows how to copy",
            got=f"{type(failure.value).__module__}.{type(failure.value).__qualname__}",
            way_out="Name it in share= to keep it by reference, or register its class",
        ) from failure.error


def refusal(failure: Failure) -> str:
    """Why an object cannot be taken apart, in one sentence."""
    return f"a {type(failure.value).__name__} cannot be copied: {failure.error}"


# --- what still means the original --------------------------------------------------------------


def points_back(walked: Walk) -> Iterator[Note]:
    """Functions and weak references in the copy that reach objects of the original."""
    storages: set[int] | None = None
    for function, place in walked.functions:
        for name, value in _refers_to(function):
            if storages is None:
                storages = _storages(walked)
            if _reaches(walked, storages, value):
                yield Note(
                    str(walked.path_of(place)),
                    f"{_title(function)} refers to the original through {name}",
                )
                break
    for reference, place in walked.weakrefs:
        if walked.contains(target_of(reference)) and not can_rebind(reference):
            yield Note(
                str(walked.path_of(place)),
                "a weak reference with a callback still means the original",
            )


def _title(function: Any) -> str:
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"function {name}"


def _refers_to(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function reaches: closure, defaults, functions inside those, and globals."""
    waiting, seen = [function], {id(function)}
    while waiting:
        current = waiting.pop()
        if isinstance(current, types.BuiltinFunctionType):
            yield "__self__", current.__self__
            continue
        if not isinstance(current, types.FunctionType):
            continue
        free = current.__code__.co_freevars
        held = [
            (name, _cell(cell)) for name, cell in zip(free, current.__closure__ or (), strict=False)
        ]
        held += [("a default", value) for value in current.__defaults__ or ()]
        held += list((current.__kwdefaults__ or {}).items())
        for name, value in held:
            for inner in _unwrap(value):
                if isinstance(inner, types.FunctionType | types.BuiltinFunctionType):
                    if id(inner) not in seen:
                        seen.add(id(inner))
                        waiting.append(inner)
                else:
                    yield name, inner
        yield from _globals_of(current)


def _globals_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Globals that a function names: in a script or a notebook, the model is one.

    Functions among them are not looked into; that would be to look into every library.
    """
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        waiting += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _unwrap(value: Any) -> Iterator[Any]:
    """A value, and what a method, a partial or a small container hands on."""
    match value:
        case types.MethodType():
            yield value.__self__
            yield value.__func__
        case functools.partial():
            for inner in (value.func, *value.args, *value.keywords.values()):
                yield from _unwrap(inner)
        case list() | tuple():
            yield value
            for inner in value:
                yield from (
                    _unwrap(inner)
                    if isinstance(inner, types.MethodType | functools.partial)
                    else (inner,)
                )
        case weakref.ref():
            yield target_of(value)
        case dict():
            yield value
            yield from value.values()
        case _:
            yield value


def _storages(walked: Walk) -> set[int]:
    regions = (_region(leaf) for leaf in walked.leaves)
    return {region.storage[0] for region in regions if region is not None and region.storage}


def _region(leaf: Any) -> Region | None:
    region = read(leaf)
    return region if isinstance(region, Region) else None


def _reaches(walked: Walk, storages: set[int], value: Any) -> bool:
    if walked.contains(value):
        return True
    if not isinstance(value, torch.Tensor | np.ndarray):
        return False
    region = _region(value)
    return region is not None and region.storage is not None and region.storage[0] in storages


def look(obj: Any, name: str, options: Options, keep: Keep | None) -> Plan:
    """Walk and lay out, copy nothing, and tell."""
    walked = walk(obj, name, protocol=True, keep=keep)
    with _torch.disable_torch_function():
        try:
            layout = lay_out(walked, options)
            refuse_what_cannot_be(walked, layout, options)
        except (CannotCopy, NotIndependent) as refused:
            return describe(walked, None, refused)
        return describe(walked, layout, None)
