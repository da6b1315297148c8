"""The short way for one container of many small tensors, alike and apart: no walk, no plan.

In: any object. Out: its copy, or None where the ordinary way has to be taken: anything that is shared,
odd, large, or carries more than its bytes. Every question is asked of all tensors in one C loop, since
for small tensors knowing who shares costs as much as copying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.copying.leaves import finish_all
from truecopy.copying.transfer import LARGE
from truecopy.memory.sweeps import Ints
from truecopy.structure.kinds import Kind, kind_of
from truecopy.structure.parts import odd_keys
from truecopy.structure.tensors import all_alike, all_bare

_MANY = 16
"""Tensors from which looking at all of them at once pays."""


def copy_flat(obj: Any) -> Any:
    """The copy of a dict, list or tuple of many small tensors that are alike; None for anything else."""
    kind = kind_of[type(obj)]
    if kind not in (Kind.DICT, Kind.LIST, Kind.TUPLE) or len(obj) < _MANY:
        return None
    values = list(obj.values() if kind is Kind.DICT else obj)
    if kind_of[type(values[0])] is not Kind.TENSOR or (kind is Kind.DICT and odd_keys([*obj])):
        return None
    with _torch.disable_torch_function():
        if not _are_small_and_apart(values):
            return None
        with torch.inference_mode(False), torch.no_grad():
            copies = finish_all(values, _torch.clone_all(values))
    match kind:
        case Kind.DICT:
            return dict(zip(obj, copies, strict=True))
        case Kind.LIST:
            return copies
    return tuple(copies)


def _are_small_and_apart(values: list[Any]) -> bool:
    """Whether these are ordinary dense tensors, alike, and no two of them share a byte."""
    if not all_alike(values):
        return False
    first = values[0]
    if (
        not first.is_contiguous()
        or not 0 < first.nbytes < LARGE
        or first.dtype in _torch.NOT_MOVED_AS_IS
        or _torch.in_dual_level()
        or not all_bare(values, alike=True)
    ):
        return False
    return _are_apart(values, first.nbytes, first.itemsize)


def _are_apart(tensors: list[torch.Tensor], nbytes: int, itemsize: int) -> bool:
    """Whether no two share a byte, and each lies within its storage. Materializes nothing."""
    count = len(tensors)
    start = _column(map(_torch.storage_address_as_is, tensors), count)
    room = _column(map(_torch.storage_bytes, map(_STORAGE, tensors)), count)
    offset = _column(map(_OFFSET, tensors), count) * itemsize
    low = np.sort(start + offset)
    return bool(start.all() and (offset + nbytes <= room).all() and (np.diff(low) >= nbytes).all())


_OFFSET: Callable[[Any], Any] = torch.Tensor.storage_offset
_STORAGE: Callable[[Any], Any] = torch.Tensor.untyped_storage


def _column(numbers: Iterable[int], count: int) -> Ints:
    return np.fromiter(numbers, np.int64, count)
