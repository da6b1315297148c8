"""What an operation did with memory, found out from addresses and bytes alone.

Nothing here is shared with what it proves: no mode, no schema, no identity of storage objects. Before
and after a call the bytes of every storage are read through their addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Span = tuple[int, int]


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Tensors at any depth, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors(one)


def parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that hold a tensor's bytes."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_nested:
        return [tensor.values()] if tensor.layout is torch.jagged else list(tensor.unbind())
    return [tensor]


def span(tensor: torch.Tensor) -> Span:
    """First and last address of the storage."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def reached(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Every byte that a tensor reaches, as offsets into its storage, by brute force."""
    offsets = np.zeros(1, np.int64)
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        steps = np.arange(length, dtype=np.int64) * stride
        offsets = (offsets[:, None] + steps[None, :]).ravel()
    first = (offsets + tensor.storage_offset()) * tensor.itemsize
    return np.unique((first[:, None] + np.arange(tensor.itemsize)).ravel())


def content(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The bytes of the storage, read at its address."""
    low, high = span(tensor)
    return np.frombuffer(ctypes.string_at(low, high - low), np.uint8) if high > low else np.zeros(0)


@dataclass
class Argument:
    """One tensor that goes in, as it was."""

    tensor: torch.Tensor
    parts: list[torch.Tensor]
    spans: list[Span]
    contents: list[Any]
    reached: list[Any]
    version: int | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Argument:
        held = parts(tensor)
        return cls(
            tensor,
            held,
            [span(part) for part in held],
            [content(part) for part in held],
            [reached(part) for part in held],
            None if tensor.is_inference() else tensor._version,
        )

    def allowed(self) -> set[str]:
        """The effects that the memory allows. More than one where a write may have changed nothing."""
        now = parts(self.tensor)
        sizes = [high - low for low, high in self.spans]
        if [high - low for low, high in map(span, now)] != sizes:
            return {"resized", "replaced"}
        if [span(part) for part in now] != self.spans:
            return {"replaced"}
        for part, old, where in zip(now, self.contents, self.reached, strict=True):
            if not np.array_equal(content(part)[where], old[where]):
                return {"mutated"}
        moved = self.version is not None and self.version != self.tensor._version
        return {"untouched", "mutated"} if moved else {"untouched"}


def origin(output: torch.Tensor, arguments: list[Argument]) -> str:
    """Where the memory of an output comes from."""
    if any(output is argument.tensor for argument in arguments):
        return "same"
    given = [s for argument in arguments for s in argument.spans]
    for part in parts(output):
        low, high = span(part)
        if any(low < end and start < high for start, end in given):
            return "view"
    return "new"
