"""Copies that share their bytes until one of them is written: one lazy clone for each block.

In: blocks of private memory, or the live source's own storages. Out: leaves for one more duplicate, as
often as asked. Views of one block are views of one lazy clone, so what is tied in the source is tied in
every duplicate, before and after a write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import torch

from truecopy import _torch
from truecopy.copying.blocks import Block, Member
from truecopy.copying.leaves import (
    Layout,
    attach_leaves,
    clone_closed,
    copy_plain,
    fill_blocks,
    finish,
    put_members,
)
from truecopy.copying.options import Options
from truecopy.errors import CannotCopy
from truecopy.memory.region import CPU, Region
from truecopy.structure.walk import Walk


@dataclass(slots=True)
class Mold:
    """What the duplicates are cloned from. Nobody else holds it, but for the storages of a live source."""

    plain: list[tuple[int, torch.Tensor]] = field(
        default_factory=list
    )  # rows, and their whole bytes
    blocks: list[tuple[Block, torch.Tensor]] = field(default_factory=list)


def private_mold(walked: Walk, layout: Layout, options: Options) -> Mold:
    """One copy of everything, that nobody reached before. Allocates what a copy allocates."""
    copies: list[Any] = [None] * len(walked.leaves)
    with _torch.disable_torch_function(), torch.inference_mode(False), torch.no_grad():
        copy_plain(walked.leaves, layout, options, copies)
        blocks = fill_blocks(walked, layout, options)
    return Mold([(row, copies[row].detach()) for row in layout.plain], blocks)


def cast(walked: Walk, layout: Layout, options: Options, mold: Mold) -> list[Any]:
    """The leaves of one more duplicate. Allocates no tensor memory, but for what cannot be lazy.

    That is what lies off the CPU, numpy arrays and whoever shares memory with them, and memory that torch
    does not show.
    """
    copies: list[Any] = [None] * len(walked.leaves)
    with _torch.disable_torch_function(), torch.inference_mode(False), torch.no_grad():
        for row, data in mold.plain:
            copies[row] = finish(walked.leaves[row], _torch.lazy_clone(data))
        for block, base in mold.blocks:
            put_members(walked.leaves, block, _twin(block, base), copies)
        for row in layout.closed:
            copies[row] = clone_closed(walked, row, options)
    if options.grad == "keep":
        attach_leaves(walked, layout, copies)
    return copies


def _twin(block: Block, base: torch.Tensor) -> torch.Tensor:
    return _torch.lazy_clone(base) if block.space == CPU and block.nbytes else base.clone()


# --- the live source ------------------------------------------------------------------------------


def live_mold(walked: Walk, layout: Layout, options: Options) -> Mold:
    """Lazy clones of the source's own storages, whole. Allocates nothing; what has no bytes is copied."""
    rows = _rows_with_bytes(layout)
    for row in rows:
        _refuse_unsafe(walked, row)
    rest = replace(
        layout,
        plain=[row for row in layout.plain if row not in rows],
        blocks=[block for block in layout.blocks if block.members[0].row not in rows],
    )
    mold = private_mold(walked, rest, options)
    for row in layout.closed:
        _refuse(walked, row, "torch does not show its memory")
    with _torch.disable_torch_function(), torch.inference_mode(False), torch.no_grad():
        for flat, held in _by_storage(walked.leaves, rows):
            mold.blocks.append(_live_block(walked, layout, flat, held))
    return mold


def _rows_with_bytes(layout: Layout) -> set[int]:
    rows = [*layout.plain, *(member.row for block in layout.blocks for member in block.members)]
    regions = {row: layout.table.region(row) for row in rows}
    return {
        row
        for row, region in regions.items()
        if isinstance(region, Region)
        and region.space[0] not in ("meta", "freed")
        and not region.is_empty
    }


def _refuse_unsafe(walked: Walk, row: int) -> None:
    """Raise where somebody else may hold an address of the memory, as far as torch can tell."""
    leaf = walked.leaves[row]
    if isinstance(leaf, np.ndarray):
        _refuse(walked, row, "numpy writes to its memory without asking torch")
    storage = _storage(leaf)
    if storage.device.type != "cpu":
        _refuse(walked, row, f"it is on {storage.device}, where lazy clones are not tried")
    if storage.is_shared():
        _refuse(walked, row, "its memory is shared with other processes, or is a file")
    if not storage.resizable():
        _refuse(
            walked, row, "its memory is not torch's own: numpy, another library or a file owns it"
        )


def _refuse(walked: Walk, row: int, why: str) -> NoReturn:
    raise CannotCopy(
        f"cannot be duplicated live: {why}",
        where=str(walked.path(row)),
        expected="memory that torch has allocated on the CPU, and that nobody else can write",
        got=why,
        way_out="Without live=True the duplicates are clones of one private copy",
    )


def _storage(leaf: Any) -> torch.UntypedStorage:
    if isinstance(leaf, torch.Tensor):
        return leaf.untyped_storage()
    storage: torch.UntypedStorage = leaf.untyped() if isinstance(leaf, torch.TypedStorage) else leaf
    return storage


def _by_storage(leaves: Sequence[Any], rows: set[int]) -> list[tuple[torch.Tensor, list[int]]]:
    """The bytes of each storage, flat, and the rows that lie in it."""
    found: dict[int, tuple[torch.Tensor, list[int]]] = {}
    for row in sorted(rows):
        flat = torch.empty(0, dtype=torch.uint8).set_(_storage(leaves[row]))
        found.setdefault(_torch.storage_identity(flat), (flat, []))[1].append(row)
    return list(found.values())


def _live_block(
    walked: Walk, layout: Layout, flat: torch.Tensor, rows: list[int]
) -> tuple[Block, torch.Tensor]:
    """A whole storage with all that lies in it, and a lazy clone of it."""
    try:
        base = _torch.lazy_clone(flat)
    except RuntimeError:
        _refuse(walked, rows[0], "torch's own allocator does not own its memory")
    members = tuple(_member(row, layout.table.region(row)) for row in rows)
    return Block(CPU, flat.nbytes, members, ()), base


def _member(row: int, region: Any) -> Member:
    offset = region.start - region.storage_start
    return Member(row, offset, region.shape, region.strides, region.itemsize)
