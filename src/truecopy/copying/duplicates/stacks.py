"""One value with a new axis: n copies of every tensor in one block, or n views of its memory.

The axis is the outermost in memory, wherever it stands in the shape. So each slice along it lies as a
copy would lie, and views that share bytes in the source share them in every slice.
"""

from __future__ import annotations

import array
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.copying.blocks import Block, Member, Move, dense_block
from truecopy.copying.leaves import AxisOf, Layout, attach_leaves, copy_leaves, finish
from truecopy.copying.options import Grad, Options
from truecopy.errors import CannotCopy, UsageError
from truecopy.memory.region import Region
from truecopy.structure.kinds import Kind, kind_of
from truecopy.structure.tensors import Form, TensorParts, form_of
from truecopy.structure.walk import Node, Walk, walk

_MOST_ELEMENTS = 2**63 - 1
_WITHOUT_AXIS = (array.array, bytearray)  # Python's own: numbers in a box, as they are


def axes(walked: Walk, dim: int) -> AxisOf:
    """Where each leaf gets its new axis; raises for the first leaf that cannot have it at `dim`."""
    places = [_axis(walked, row, dim) for row in range(len(walked.leaves))]
    return places.__getitem__


def _axis(walked: Walk, row: int, dim: int) -> int:
    count = walked.leaves[row].ndim
    if not -count - 1 <= dim <= count:
        raise UsageError(
            f"{walked.path(row)} has {count} dimensions, and no place for a new one at dim={dim}",
            expected=f"dim from {-count - 1} to {count}",
            got=f"dim={dim}",
            way_out="dim=0 and dim=-1 have a place in every tensor",
        )
    return dim if dim >= 0 else count + 1 + dim


def refuse_what_has_no_axis(walked: Walk, n: int) -> None:
    """Raise for the first value that cannot be stacked n times. Allocates nothing."""
    for row, leaf in enumerate(walked.leaves):
        if (why := _why_not(leaf)) is not None:
            raise _refusal(why, str(walked.path(row)))
        if n * math.prod(leaf.shape) > _MOST_ELEMENTS:
            raise UsageError(
                f"{n} times {walked.path(row)} are more elements than torch can count",
                expected=f"n={_MOST_ELEMENTS // math.prod(leaf.shape)} at most",
                got=f"n={n}",
            )
    for node in walked.nodes.values():
        if (why := _why_not_object(node)) is not None:
            raise _refusal(why, str(walked.path_of((node.parent, node.place))))


def _refusal(why: str, where: str) -> CannotCopy:
    return CannotCopy(
        f"cannot be stacked: {why}",
        where=where,
        expected="tensors and arrays that are one strided region",
        got=why,
        way_out='how="list" and how="lazy" take it',
    )


def _why_not(leaf: Any) -> str | None:
    if isinstance(leaf, np.ndarray):
        return None if type(leaf) is np.ndarray else _of_class(leaf)
    if isinstance(leaf, torch.UntypedStorage | torch.TypedStorage):
        return "a storage has no axes"
    if not isinstance(leaf, torch.Tensor):
        return f"a {type(leaf).__name__} has no axes that truecopy knows"
    form = form_of(leaf)
    return None if form is Form.DENSE else _kept(form)


def _why_not_object(node: Node) -> str | None:
    value, memory = node.value, node.parts.memory
    if isinstance(memory, TensorParts):
        return None if memory.form is Form.DENSE else _kept(memory.form)
    # Of objects that copy themselves, tensors and arrays; the others are looked into afterwards.
    is_foreign = kind_of[type(value)] is Kind.FOREIGN and not isinstance(value, _WITHOUT_AXIS)
    if is_foreign or isinstance(value, torch.Tensor):
        return f"a {type(value).__name__} copies itself, without a new axis"
    return None


def _of_class(array: np.ndarray[Any, Any]) -> str:
    return f"a {type(array).__name__} may mean something else with one more axis"


def _kept(form: Form) -> str:
    return f"a tensor that keeps its bytes {form.value}"


# --- with memory ------------------------------------------------------------------------------------


def stack_leaves(
    walked: Walk, layout: Layout, options: Options, n: int, axis_of: AxisOf
) -> list[Any]:
    """Each leaf n times along a new axis. Allocates n times what a copy would."""
    stacked = _stacked(layout, n, axis_of)
    copies = copy_leaves(walked, stacked, replace(options, grad="detach"))
    if options.grad == "keep":
        attach_leaves(walked, stacked, copies, axis_of=axis_of)
    return copies


def _stacked(layout: Layout, n: int, axis_of: AxisOf) -> Layout:
    blocks = [*layout.blocks]
    for row in layout.plain:
        region = layout.table.region(row)
        assert isinstance(region, Region)
        blocks.append(dense_block(row, region))
    return Layout(
        layout.table,
        blocks=[_times(block, n, axis_of) for block in blocks],
        undecided=layout.undecided,
    )


def _times(block: Block, n: int, axis_of: AxisOf) -> Block:
    """The block n times, one behind the other; each move goes to all of them at once."""
    unit = math.lcm(*(max(member.itemsize, 1) for member in block.members))
    pitch = -(-block.nbytes // unit) * unit
    members = tuple(_with_axis(m, n, pitch, axis_of(m.row)) for m in block.members)
    moves = tuple(
        Move(
            m.row, m.start, (n, *m.shape), (0, *m.source_strides),
            m.offset, (pitch, *m.strides), m.itemsize,
        )
        for m in block.moves
    )  # fmt: skip
    return Block(block.space, n * pitch, members, moves if n else (), block.freed)


def _with_axis(member: Member, n: int, pitch: int, axis: int) -> Member:
    shape, strides = list(member.shape), list(member.strides)
    shape.insert(axis, n)
    strides.insert(axis, pitch)
    offset = member.offset if n else 0
    return Member(member.row, offset, tuple(shape), tuple(strides), member.itemsize)


# --- without ----------------------------------------------------------------------------------------


def view_leaves(walked: Walk, n: int, axis_of: AxisOf, grad: Grad) -> list[Any]:
    """Each leaf with a new axis along which all is the memory of the source. Allocates nothing."""
    with _torch.disable_torch_function(), torch.inference_mode(False):
        return [_view(leaf, n, axis_of(row), grad) for row, leaf in enumerate(walked.leaves)]


def _view(leaf: Any, n: int, axis: int, grad: Grad) -> Any:
    shape = list(leaf.shape)
    shape.insert(axis, n)
    if isinstance(leaf, np.ndarray):
        return np.broadcast_to(np.expand_dims(leaf, axis), shape)  # read-only, as numpy gives it
    if grad != "keep":
        return finish(leaf, leaf.detach().unsqueeze(axis).expand(shape))
    with torch.enable_grad():
        seen = leaf.unsqueeze(axis).expand(shape)
    is_plain = isinstance(leaf, torch.nn.Parameter) or type(seen) is type(leaf)
    return seen if is_plain else seen.as_subclass(type(leaf))


# --- afterwards -------------------------------------------------------------------------------------


def check_all_stacked(walked: Walk, copies: Sequence[Any], copy_of: Callable[[Any], Any]) -> None:
    """Raise where an object that copied itself made tensors of its own, which have no new axis."""
    stacked = set(map(id, copies))
    for node in walked.nodes.values():
        if node.kind is not Kind.OPAQUE:
            continue
        where = str(walked.path_of((node.parent, node.place)))
        made = walk(copy_of(node.value), where, keep=lambda child, _path: id(child) in walked.kept)
        for row, leaf in enumerate(made.leaves):
            if id(leaf) not in stacked:
                name = type(node.value).__name__
                raise _refusal(f"{name}.__deepcopy__ made {made.path(row)} anew", where)
