"""Slow, plain answers to compare ours with: every byte is listed, nothing is concluded."""

from __future__ import annotations

import collections
import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]


def offsets_of(value: torch.Tensor | Array) -> Array:
    """Byte offset of each element from the start of the storage (the first element of an array)."""
    if isinstance(value, torch.Tensor):
        itemsize = value.element_size()
        start, strides = value.storage_offset() * itemsize, [s * itemsize for s in value.stride()]
    else:
        start, strides = 0, list(value.strides)
    offsets = np.full(tuple(value.shape), start, np.int64)
    for axis, (length, stride) in enumerate(zip(value.shape, strides, strict=True)):
        shape = [1] * len(strides)
        shape[axis] = length
        offsets += (np.arange(length, dtype=np.int64) * stride).reshape(shape)
    return offsets


def base_address(value: torch.Tensor | Array) -> int:
    """Where `offsets_of` counts from."""
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().data_ptr()
    return int(value.__array_interface__["data"][0])


def addresses(value: torch.Tensor | Array) -> set[int]:
    """The address of every byte that a value reaches."""
    starts = (base_address(value) + offsets_of(value)).reshape(-1, 1)
    itemsize = value.element_size() if isinstance(value, torch.Tensor) else value.itemsize
    return set((starts + np.arange(itemsize)).reshape(-1).tolist())


def partition(values: Iterable[torch.Tensor | Array]) -> set[frozenset[int]]:
    """Places of the values that share a byte with another, directly or through others."""
    groups: list[tuple[set[int], set[int]]] = []
    for place, value in enumerate(values):
        mine, members = addresses(value), {place}
        apart = []
        for reached, others in groups:
            if reached & mine:
                mine, members = mine | reached, members | others
            else:
                apart.append((reached, others))
        groups = [*apart, (mine, members)]
    return {frozenset(members) for _, members in groups if len(members) > 1}


def payload(tensor: torch.Tensor | Array) -> bytes:
    """The bytes of every element in order, as they lie in memory: no conversion, no conj or neg bit."""
    if isinstance(tensor, np.ndarray):
        return tensor.tobytes()
    flat = torch.empty(0, dtype=torch.uint8).set_(tensor.detach().untyped_storage()).numpy()
    places = offsets_of(tensor).reshape(-1, 1) + np.arange(tensor.element_size())
    return flat[places].tobytes()


def poke(value: torch.Tensor | Array, element: int, byte: int) -> None:
    """Write one byte of one element, around everything that torch and numpy know of."""
    place = int(offsets_of(value).reshape(-1)[element])
    ctypes.memset(base_address(value) + place, byte, 1)


def portrait(value: Any, seen: dict[int, tuple[int, Any]] | None = None) -> Any:
    """A structure as plain tuples: types, keys, bytes, and which objects are one.

    Members of sets come in the order of their bytes; which of two equal ones is which is not told.
    """
    seen = {} if seen is None else seen
    if isinstance(value, int | float | str | bytes | bool | type | torch.dtype | torch.Size | None):
        return repr(value)
    if id(value) in seen:
        return ("again", seen[id(value)][0])
    seen[id(value)] = len(seen), value  # held, since ids of the dead are given out again
    name = type(value).__name__
    match value:
        case torch.Tensor():
            rest = portrait([value.grad, sorted(vars(value))] if value.is_leaf else None, seen)
            return (name, value.shape, value.dtype, value.requires_grad, payload(value), rest)
        case np.ndarray() if not value.dtype.hasobject:
            return (name, value.shape, value.dtype, payload(value))
        case np.ndarray():
            return (name, value.shape, [portrait(held, seen) for held in value.reshape(-1)])
        case dict():
            pairs = [(portrait(k, seen), portrait(v, seen)) for k, v in value.items()]
            return (name, pairs, portrait(getattr(value, "__dict__", None), seen))
        case list() | tuple() | collections.deque():
            return (name, [portrait(held, seen) for held in value])
        case set() | frozenset():
            return (name, sorted(map(payload, value)))
    slots = [n for n in getattr(type(value), "__slots__", ()) if n != "__dict__"]
    held = {**getattr(value, "__dict__", {}), **{n: getattr(value, n) for n in slots}}
    return (name, portrait(held, seen))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are alike in everything but where they lie: bytes, flags, shape, dtype."""
    return (
        payload(a) == payload(b)
        and (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
        and (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg())
    )


def apart(a: Iterable[torch.Tensor | Array], b: Iterable[torch.Tensor | Array]) -> bool:
    """Whether no byte of the ones is a byte of the others."""
    mine = set().union(*map(addresses, a))
    return not any(mine & addresses(value) for value in b)
