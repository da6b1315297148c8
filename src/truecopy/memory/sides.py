"""The two sides of a relation: what of a value holds memory, and how to reach that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.memory.foreign import is_foreign
from truecopy.structure.kinds import Kind, kind_of
from truecopy.structure.paths import Attribute, Call, Item, Path
from truecopy.structure.tensors import LEAF_FORMS, Form, form_of, tensor_parts
from truecopy.structure.walk import Node, walk

Leaf = tuple[Any, Path]


@dataclass(frozen=True, slots=True)
class Side:
    """A value, taken apart as far as memory needs it."""

    name: str
    leaves: list[Any]
    path: Callable[[int], Path]
    is_structure: bool
    tensors: list[Any]  # that gradient may flow through: the leaves, or what they are the parts of
    closed: tuple[str, ...] = ()  # why some of it could not be looked into


def side_of(value: Any, name: str) -> Side:
    """One value by its own memory, without what it carries; a structure by all that it holds."""
    own = own_leaves(value, Path(name))
    if own is None:
        return _side_of_structure(value, name, [])
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return _side_of_structure(value, name, own)
    return Side(name, [leaf for leaf, _ in own], lambda i: own[i][1], False, [value])


def _side_of_structure(value: Any, name: str, own: list[Leaf]) -> Side:
    walked = walk(value, name)
    closed = [
        f"{walked.path_of(f.place)} refused to be looked into: {f.error}" for f in walked.failures
    ]
    made = [node for node in walked.nodes.values() if isinstance(node.value, torch.Tensor)]
    nested = {id(node) for node in made if node.kind is Kind.TENSOR and _is_nested(node)}
    rows = [row for row, node in enumerate(walked.parents) if id(node) not in nested]
    for node in made:
        if id(node) in nested:
            own = [*own, *_nested_leaves(node.value, walked.path_of((node.parent, node.place)))]
    first = len(own)
    return Side(
        name,
        [*(leaf for leaf, _ in own), *(walked.leaves[row] for row in rows)],
        lambda i: own[i][1] if i < first else walked.path(rows[i - first]),
        True,
        [*walked.leaves, *(node.value for node in made)],
        tuple(closed),
    )


def _is_nested(node: Node) -> bool:
    """Whether the walk tells a strided nested tensor by its whole buffer, parts of others and all."""
    return node.parts.memory.form is Form.NESTED and len(node.children) == len(node.parts.made_from)


def own_leaves(value: Any, path: Path) -> list[Leaf] | None:
    """The leaves of one tensor or array, without what it carries; None for structures."""
    kind = kind_of[type(value)]
    match kind:
        case Kind.TENSOR:
            return _tensor_leaves(value, path)
        case Kind.OPAQUE if isinstance(value, torch.Tensor):
            return _tensor_leaves(value, path)
        case Kind.SUBARRAY | Kind.FOREIGN if isinstance(value, np.ma.MaskedArray):
            mask = Path(path.root, (*path.steps, Attribute("mask")))
            return [(value, path), (np.ma.getmask(value), mask)]
        case Kind.ARRAY | Kind.SUBARRAY | Kind.STORAGE | Kind.FOREIGN:
            return [(value, path)]
        case Kind.CAPSULE | Kind.REDUCED | Kind.OPAQUE if is_foreign(value):
            return [(value, path)]
        case Kind.ATOM if isinstance(value, bytes):
            return [(value, path)]
    return None


def _tensor_leaves(tensor: torch.Tensor, path: Path) -> list[Leaf]:
    with _torch.disable_torch_function():
        form = form_of(tensor)
    if form in LEAF_FORMS:
        return [(tensor, path)]
    if form is Form.NESTED:
        return _nested_leaves(tensor, path)
    parts = tensor_parts(tensor, with_grad=False)
    return [
        leaf
        for index, part in enumerate(parts.made_from)
        for leaf in own_leaves(part, Path(path.root, (*path.steps, parts.step(index)))) or ()
    ]


def _nested_leaves(tensor: torch.Tensor, path: Path) -> list[Leaf]:
    """The tensors of a strided nested one. Its buffer may hold what belongs to others."""
    with _torch.disable_torch_function(), _torch.no_modes(), torch.no_grad():
        inner = tensor.detach().unbind()
    return [
        (part, Path(path.root, (*path.steps, Call("unbind"), Item(index))))
        for index, part in enumerate(inner)
    ]
