"""What Hypothesis draws, for every feature: views of one buffer, nested structures, module trees.

A new feature joins by taking its material from here; a new kind of view or container is added here
and is from then on met by all features.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import OrderedDict, deque
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

BUFFER_BYTES = 192
DTYPES = {
    torch.uint8: np.uint8,
    torch.int16: np.int16,
    torch.float32: np.float32,
    torch.complex64: np.complex64,
    torch.float64: np.float64,
}


def fresh_buffer() -> np.ndarray[Any, Any]:
    """New memory that views are drawn on; torch and numpy see it alike."""
    return torch.zeros(BUFFER_BYTES, dtype=torch.uint8).numpy()


# --- views of one buffer --------------------------------------------------------------------------


@st.composite
def strided(draw: st.DrawFn, length: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Shape, strides and offset, in items, of any view of `length` items: gaps, overlaps, expansion."""
    dims = draw(st.integers(0, 3))
    shape, strides, room = [], [], length - 1
    for _ in range(dims):
        stride = draw(st.integers(0, max(room, 0)))
        longest = min(room // stride + 1 if stride else 4, 5)
        size = draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, longest))
        shape.append(size)
        strides.append(stride)
        room -= max(size - 1, 0) * stride
    offset = draw(st.integers(0, room))
    order = draw(st.permutations(range(dims)))
    return tuple(shape[i] for i in order), tuple(strides[i] for i in order), offset


@st.composite
def tensor_views(draw: st.DrawFn, buffer: np.ndarray[Any, Any]) -> torch.Tensor:
    """A strided, offset, expanded, transposed, overlapping or dtype-viewed tensor on a buffer."""
    dtype = draw(st.sampled_from(list(DTYPES)))
    skipped = draw(st.sampled_from([0, 0, 0, 1, 4])) if dtype is torch.uint8 else 0
    flat = torch.from_numpy(buffer)[skipped:]
    flat = flat[: len(flat) // dtype.itemsize * dtype.itemsize].view(dtype)
    shape, strides, offset = draw(strided(len(flat)))
    return flat.as_strided(shape, strides, flat.storage_offset() + offset)


EVERY_DTYPE = [
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32,
    torch.int64, torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e4m3fnuz,
    torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip
"""Every dtype that is made of whole bytes and needs no quantizer."""


def noise(seed: int) -> np.ndarray[Any, Any]:
    """A buffer of random bytes: as floats, many are NaN, subnormal or negative zero."""
    buffer = fresh_buffer()
    buffer[:] = np.random.default_rng(seed).choice(
        np.array([0, 1, 0x7F, 0x80, 0xFF, 0xC0, 0x7C, 0xFE, 0x3C, 0xF0], np.uint8), BUFFER_BYTES
    )
    return buffer


@st.composite
def typed_views(draw: st.DrawFn, buffer: np.ndarray[Any, Any]) -> torch.Tensor:
    """A view of a buffer as any dtype; of those that take gradient, Parameters among them."""
    dtype = draw(st.sampled_from(EVERY_DTYPE))
    flat = torch.from_numpy(buffer)
    flat = flat[: len(flat) // dtype.itemsize * dtype.itemsize].view(dtype)
    shape, strides, offset = draw(strided(len(flat)))
    view = flat.as_strided(shape, strides, offset)
    if (dtype.is_floating_point or dtype.is_complex) and draw(st.booleans()):
        return torch.nn.Parameter(view, draw(st.booleans()))
    if dtype in (torch.complex64, torch.complex128) and draw(st.booleans()):
        return view.conj()
    return view


@st.composite
def mixed_views(draw: st.DrawFn, *, most: int = 5) -> list[Any]:
    """Views of one or two buffers of noise, torch's and numpy's, some of them met twice."""
    buffers = [noise(draw(st.integers(0, 99))) for _ in range(draw(st.integers(1, 2)))]
    one = st.sampled_from(buffers).flatmap(
        lambda buffer: st.one_of(typed_views(buffer), typed_views(buffer), array_views(buffer))
    )
    found = draw(st.lists(one, min_size=1, max_size=most))
    return found + draw(st.lists(st.sampled_from(found), max_size=1))


@st.composite
def array_views(draw: st.DrawFn, buffer: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As above for numpy, whose strides may be negative, at addresses that may be unaligned."""
    dtype = np.dtype(draw(st.sampled_from(list(DTYPES.values()))))
    skipped = draw(st.integers(0, 3))
    flat = buffer[skipped:]
    flat = flat[: len(flat) // dtype.itemsize * dtype.itemsize].view(dtype)
    shape, strides, offset = draw(strided(len(flat)))
    steps = [stride * dtype.itemsize for stride in strides]
    view: np.ndarray[Any, Any] = np.lib.stride_tricks.as_strided(flat[offset:], shape, steps)
    flips = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    return view[(..., *(slice(None, None, -1 if flip else None) for flip in flips))]


def views(buffer: np.ndarray[Any, Any]) -> st.SearchStrategy[Any]:
    """Any view of a buffer, torch's or numpy's."""
    return st.one_of(tensor_views(buffer), array_views(buffer))


def element_addresses(view: Any) -> list[int]:
    """The address of every element, counted out one by one: the oracle."""
    if isinstance(view, torch.Tensor):
        start, strides = view.data_ptr(), [s * view.itemsize for s in view.stride()]
    else:
        start, strides = view.__array_interface__["data"][0], list(view.strides)
    return [
        start + sum(i * s for i, s in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, view.shape))
    ]


def byte_addresses(view: Any) -> set[int]:
    """Every byte that a view reaches, counted out: the oracle."""
    return {address + byte for address in element_addresses(view) for byte in range(view.itemsize)}


# --- structures -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class FrozenSlots:
    __slots__ = ("only",)
    only: Any


class Plain:
    """An object with attributes of any name."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Hashed:
    """A key that Python cannot write down."""

    def __init__(self, held: Any) -> None:
        self.held = held


ATTRIBUTE_NAMES = st.sampled_from(
    ["weight", "class", "not an identifier", "ümlaut", "_x", "0", 'qu"ote']
)
KEYS = st.one_of(
    st.text(max_size=4),
    st.integers(-3, 3),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.binary(max_size=3),
    st.tuples(st.integers(0, 2), st.text(max_size=2)),
    st.sampled_from([(), ("a", ("b",))]),
    st.builds(Hashed, st.none()),
    st.just(torch.float32),
)


def tensors() -> st.SearchStrategy[torch.Tensor]:
    """Small tensors of their own memory."""
    return st.builds(torch.zeros, st.integers(0, 3))


def modules() -> st.SearchStrategy[torch.nn.Module]:
    """Module trees with ties, buffers and plain attributes."""
    return st.builds(_module, st.integers(0, 2), st.booleans(), st.booleans())


def _module(depth: int, tied: bool, named: bool) -> torch.nn.Module:
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    if tied:
        second.weight = first.weight
    first.register_buffer("seen", first.weight.detach()[0])
    first.extra = [torch.zeros(1)]  # type: ignore[assignment]
    module: torch.nn.Module = torch.nn.Sequential(first, second)
    if named:
        module = torch.nn.ModuleDict({"a b": module, "plain": torch.nn.ModuleList([first])})
    for _ in range(depth):
        module = torch.nn.Sequential(module)
    return module


def _optimizer(module: torch.nn.Module) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    optimizer = torch.optim.AdamW(module.parameters())
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return module, optimizer


def structures(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Containers of containers of leaves, of every kind that the walker knows."""
    return st.recursive(leaves, _around, max_leaves=6)


def structures_with_modules() -> st.SearchStrategy[Any]:
    """Structures of tensors, modules and optimizers."""
    return structures(st.one_of(tensors(), modules(), st.builds(_optimizer, modules())))


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict),
        st.lists(inner, max_size=3).map(deque),
        st.lists(tensors(), max_size=2).map(set),
        st.lists(tensors(), max_size=2).map(frozenset),
        st.dictionaries(tensors(), inner, max_size=2),
        st.builds(Pair, inner, inner),
        st.builds(FrozenSlots, inner),
        st.dictionaries(ATTRIBUTE_NAMES, inner, max_size=3).map(lambda names: Plain(**names)),
        st.lists(inner, min_size=1, max_size=2).map(_object_array),
        inner.map(lambda held: [held, held]),  # met twice
    )


def _object_array(held: list[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(held), object)
    for index, value in enumerate(held):
        array[index] = value
    return array
