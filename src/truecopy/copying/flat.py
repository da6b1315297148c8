"""The short way for one container of tensors that are alike and apart: no walk, no plan.

In: any object. Out: its copy, or None where the ordinary way has to be taken: anything that is shared,
odd, or carries more than its bytes. Every question is asked of all tensors in one C loop, since for
small tensors knowing who shares costs as much as copying.
"""

from __future__ import annotations

from typing import Any

import torch

from truecopy import _torch
from truecopy.copying.leaves import clones_of, finish_all
from truecopy.memory.groups import ADDRESSES, OFFSETS, columns, rooms
from truecopy.structure.kinds import Kind, kind_of
from truecopy.structure.parts import odd_keys
from truecopy.structure.tensors import all_alike, all_bare


def copy_flat(obj: Any) -> Any:
    """The copy of a dict, list or tuple of tensors that are alike; None for anything else."""
    kind = kind_of[type(obj)]
    if kind not in (Kind.DICT, Kind.LIST, Kind.TUPLE) or not obj:
        return None
    values = list(obj.values() if kind is Kind.DICT else obj)
    if kind_of[type(values[0])] is not Kind.TENSOR or (kind is Kind.DICT and odd_keys([*obj])):
        return None
    with _torch.disable_torch_function():
        if not _are_alike_and_apart(values):
            return None
        with _torch.Unrecorded():
            copies = finish_all(values, clones_of(values, alike=True), alike=True)
    match kind:
        case Kind.DICT:
            return dict(zip(obj, copies, strict=True))
        case Kind.LIST:
            return copies
    return tuple(copies)


def _are_alike_and_apart(values: list[Any]) -> bool:
    """Whether these are ordinary dense tensors, alike, and no two of them share a byte."""
    if not all_alike(values):
        return False
    first = values[0]
    if (
        not first.is_contiguous()
        or not first.nbytes
        or _torch.in_dual_level()
        or not all_bare(values, alike=True)
    ):
        return False
    return _are_apart(values, first.nbytes, first.itemsize)


def _are_apart(tensors: list[torch.Tensor], nbytes: int, itemsize: int) -> bool:
    """Whether no two share a byte, and each lies within its storage. Materializes nothing."""
    low, offset, room = columns(tensors, ADDRESSES, OFFSETS, rooms)
    if (offset * itemsize + nbytes > room).any():
        return False
    low.sort()
    return bool(low[0] > 0 and (low[1:] - low[:-1] >= nbytes).all())
