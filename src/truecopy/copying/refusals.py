"""What makes a copy fail, found before a byte is copied, each with its path."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.copying.leaves import Layout
from truecopy.copying.options import Options
from truecopy.errors import CannotCopy, NonLeaf
from truecopy.structure.tensors import Form, form_of
from truecopy.structure.walk import Walk


def refuse_what_cannot_be(walked: Walk, layout: Layout, options: Options) -> None:
    """Everything that would fail is found before a byte is copied."""
    if options.grad == "error":
        _refuse_non_leaves(walked)
    if options.grad != "keep" and _torch.in_dual_level():
        _refuse_tangents(walked)
    for row in layout.closed:
        leaf = walked.leaves[row]
        if isinstance(leaf, torch.Tensor) and form_of(leaf) is Form.TRANSFORMED:
            raise CannotCopy(
                "is a stand-in that lives only inside a running torch.func transform",
                where=str(walked.path(row)),
                expected="a tensor with values",
                got=f"a wrapper made by vmap, grad or jvp, of shape {tuple(leaf.shape)}",
                way_out="Return it from the transformed function and copy it there",
            )
        if isinstance(leaf, torch.Tensor) and form_of(leaf) is Form.DENSE:
            _check_storage(walked, row)
    if options.device is not None and options.device.type != "meta":
        _refuse_what_has_no_values(walked, layout, options.device)
    for row in _short_of_storage(walked.leaves, layout):
        _check_storage(walked, row)
    for block in layout.blocks:
        for move in block.moves:
            if isinstance(walked.leaves[move.row], torch.Tensor):
                _check_storage(walked, move.row)


def _refuse_non_leaves(walked: Walk) -> None:
    taken_apart = (n for n in walked.nodes.values() if isinstance(n.value, torch.Tensor))
    places = [
        *(
            (leaf, (walked.parents[row], walked.indices[row]))
            for row, leaf in enumerate(walked.leaves)
        ),
        *((node.value, (node.parent, node.place)) for node in taken_apart),
    ]
    for value, place in places:
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            raise NonLeaf(
                f"was computed by autograd ({value.grad_fn.name()})",
                where=str(walked.path_of(place)),
                expected='graph leaves, as grad="error" asks',
                got="a tensor with a grad_fn",
                way_out='grad="detach" copies its values, grad="keep" keeps it in the graph',
            )


def _refuse_what_has_no_values(walked: Walk, layout: Layout, device: torch.device) -> None:
    for block in layout.blocks:
        leaf = walked.leaves[block.members[0].row]
        if block.space[0] == "meta" and leaf.device != device:
            raise CannotCopy(
                f"has no values that could be moved to {device}",
                where=str(walked.path(block.members[0].row)),
                expected="a tensor with memory behind it",
                got=f"a {type(leaf).__name__} on {leaf.device}",
                way_out="Copy without device=, and give the copy memory with to_empty()",
            )


def _refuse_tangents(walked: Walk) -> None:
    for row, leaf in enumerate(walked.leaves):
        if isinstance(leaf, torch.Tensor) and _torch.tangent(leaf) is not None:
            raise CannotCopy(
                "carries a forward-mode tangent, which a copy of its values would lose",
                where=str(walked.path(row)),
                way_out='grad="keep" copies both; or copy outside of the dual level',
            )


def _short_of_storage(leaves: Sequence[Any], layout: Layout) -> list[int]:
    """Rows of dense tensors that reach beyond their storage, column by column: there may be many."""
    rows = layout.plain
    tensors = [leaves[row] for row in rows]
    lengths = (layout.table.high - layout.table.low)[rows]
    offsets = _column(map(torch.Tensor.storage_offset, tensors), rows)
    if offsets.any():
        offsets *= _column(map(_ITEMSIZE, tensors), rows)
    have = _column(map(_NBYTES, map(torch.Tensor.untyped_storage, tensors)), rows)
    return [rows[place] for place in np.flatnonzero(have < offsets + lengths).tolist()]


_ITEMSIZE = operator.attrgetter("itemsize")
_NBYTES = operator.methodcaller("nbytes")


def _column(numbers: Iterable[Any], rows: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.fromiter(numbers, np.int64, len(rows))


def _check_storage(walked: Walk, row: int) -> None:
    """Raise where a tensor reaches beyond its storage, which torch would read without a word."""
    needed, have = storage_bytes(walked.leaves[row])
    if needed > have:
        raise CannotCopy(
            "reaches beyond the end of its storage",
            where=str(walked.path(row)),
            expected=f"a storage of at least {needed} bytes",
            got=f"{have} bytes",
            way_out="Somebody shrank the storage with untyped_storage().resize_(); restore its size first",
        )


def storage_bytes(leaf: torch.Tensor) -> tuple[int, int]:
    """Bytes of its storage that a strided tensor needs, and bytes that the storage has."""
    last = sum((n - 1) * s for n, s in zip(leaf.shape, leaf.stride(), strict=True))
    needed = (leaf.storage_offset() + last + 1) * leaf.itemsize if leaf.numel() else 0
    return int(needed), leaf.untyped_storage().nbytes()
