"""Values kept as they were, at the moment they were: what costs nothing is not copied.

In: live tensors, in the order in which they are met. Out: a `Held` for each, that shares no memory with the
model. What is owned: the *blocks* behind them.

A storage that was born while we looked, on the CPU, is kept by a lazy clone of the whole: nothing is copied
until somebody writes, and then only what is written. The clone is ours alone. While it has the address of
the storage nobody has written to either, so the next value with the same memory is in the same block: one
value is kept once, whatever its names. Each is handed out as a lazy clone of its block, so that two values
with one memory (a tensor and its transpose) do not share it in the hands of the user.

Everything else is copied in *pieces*: parameters, buffers and inputs, whose address somebody else may hold;
small views of large storages, which would keep the whole alive; other devices and layouts. A piece is kept
once as well, as long as its bytes are found again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from truecopy import _torch
from truecopy.capturing.budget import Budget
from truecopy.capturing.spilling import SpillFile
from truecopy.capturing.statistics import Running, summarize
from truecopy.copying.api import copy
from truecopy.errors import CannotCopy
from truecopy.structure.tensors import Form, form_of, is_plain, tensor_parts

_SMALL_PART = 2
"""A view of less than one part in so many of its storage is copied, and does not keep the storage."""

_SWEEP = 4096
"""Storages that are met between two looks for those that are gone."""

_LOWER = torch.bfloat16


@dataclass(slots=True, eq=False)
class Block:
    """Memory of our own."""

    data: Tensor
    nbytes: int
    place: int | None = None  # in the file, if it is there


@dataclass(slots=True, eq=False)
class Held:
    """One value: where it lies in a block, or what is left of it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    nbytes: int  # of the value as it was, each element once
    how: str = "memory"  # or "disk", a dtype, "stats", "shape", "dropped"
    alias: bool = False  # of memory that is older than the capture
    block: Block | None = None
    strides: tuple[int, ...] | None = None  # None: the block's data is the value as it stands
    offset: int = 0
    summary: Any = None  # what is kept in the place of the value
    _value: Any = field(default=None, repr=False)

    @property
    def value(self) -> Any:
        """The value, in memory of its own: the same object every time. Copies nothing that is lazy."""
        if self._value is None:
            self._value = self._made()
        return self._value

    @property
    def identity(self) -> tuple[int, ...]:
        """Equal for two that are one value: the same place in the same block."""
        if self.block is None:
            return (id(self),)
        return (id(self.block), self.offset, *self.shape, -1, *(self.strides or ()))

    def _made(self) -> Any:
        if self.block is None:
            return self.summary.read() if isinstance(self.summary, Running) else self.summary
        if self.strides is None:
            return self.block.data
        with _torch.disable_torch_function(), _torch.no_modes(), torch.inference_mode(False):
            mine = _torch.lazy_clone(self.block.data).untyped_storage()
            empty = torch.empty(0, dtype=self.dtype)
            return empty.set_(mine, self.offset, self.shape, self.strides)


@dataclass(slots=True)
class _Storage:
    """A storage that was met."""

    life: _torch.StorageLife
    born: bool  # while we looked
    block: Block | None = None
    pieces: list[tuple[Any, Held]] | None = None  # with the place of each in the storage


class Keeper:
    """Keeps values, each once."""

    def __init__(self, budget: Budget, dtype: torch.dtype | None, *, in_graph: bool) -> None:
        self.budget = budget
        self.dtype = dtype
        self.in_graph = in_graph
        self.moment = 0  # moves with every call that may have written something
        self.spilled = SpillFile()
        self._storages: dict[int, _Storage] = {}
        self._odd: dict[int, tuple[int, Tensor, Held]] = {}
        self._met = 0

    def meet(self, tensor: Tensor, born: bool) -> None:
        """Take note of a storage, where it is met for the first time."""
        storage = tensor.untyped_storage()
        key = _torch.storage_key(storage)
        if key not in self._storages:
            self._storages[key] = _Storage(_torch.StorageLife(storage), born)
            self._met += 1
            if self._met % _SWEEP == 0:
                self._sweep()

    def knows(self, key: int) -> bool:
        """Whether a storage was met."""
        return key in self._storages

    def expose(self, tensor: Tensor) -> None:
        """Give a tensor memory of its own, and copy it from now on.

        For when somebody gets its address, or its storage changes its size, which torch does not allow
        while it is lazy.
        """
        if not is_plain(tensor):
            return
        if _torch.is_copy_on_write(tensor):
            tensor.untyped_storage().data_ptr()
        self.meet(tensor, born=False)
        self._storages[_torch.storage_identity(tensor)].born = False

    def close(self) -> None:
        """Forget the model's storages."""
        self._storages.clear()
        self._odd.clear()

    def _sweep(self) -> None:
        gone = [key for key, known in self._storages.items() if known.life.is_over]
        for key in gone:
            del self._storages[key]

    # --- keeping --------------------------------------------------------------------------------

    def keep(self, tensor: Tensor) -> Held:
        """The value of a tensor now. Called with function modes off; allocates as the module says."""
        try:
            return self._keep(tensor)
        except (CannotCopy, NotImplementedError, RuntimeError, TypeError) as error:
            # A tensor of a kind that nobody foresaw must not end the run that is only looked at.
            shape, device = tuple(tensor.shape), str(tensor.device)
            why = f"dropped: {type(error).__name__}: {error}"[:200]
            return Held(shape, tensor.dtype, device, 0, how=why)

    def _keep(self, tensor: Tensor) -> Held:
        if self.in_graph and tensor.requires_grad:
            return self._keep_odd(tensor, self._in_graph)
        if _torch.is_functorch_wrapper(tensor):
            tensor = _torch.unwrapped(tensor)
            with _torch.without_functorch():
                return self._keep(tensor)
        if not is_plain(tensor):
            return self._keep_odd(tensor, _copied)
        with _torch.below_autograd():
            if torch.is_inference_mode_enabled() or _torch.dispatch_modes_are_on():
                with _torch.no_modes(), torch.inference_mode(False), _torch.below_autograd():
                    return self._keep_plain(tensor)
            return self._keep_plain(tensor)

    def _keep_plain(self, tensor: Tensor) -> Held:
        storage = tensor.untyped_storage()
        key = _torch.storage_key(storage)
        known = self._storages.get(key)
        if known is None:
            known = self._storages[key] = _Storage(_torch.StorageLife(storage), born=False)
        block = known.block
        if block is not None and _torch.storage_address(block.data) == _torch.storage_address(
            tensor
        ):
            return _placed(tensor, block)
        lowered = self._lowered(tensor.dtype)
        if known.born and lowered is None and tensor.nbytes * _SMALL_PART >= storage.nbytes():
            block = self._lazy_block(tensor, storage.nbytes())
            if block is not None:
                known.block = block
                return _placed(tensor, block)
        return self._keep_piece(tensor, known, lowered)

    def _lowered(self, dtype: torch.dtype) -> torch.dtype | None:
        wanted = self.dtype
        if wanted is None or not dtype.is_floating_point or dtype.itemsize <= wanted.itemsize:
            return None
        return wanted

    def _lazy_block(self, tensor: Tensor, nbytes: int) -> Block | None:
        """A lazy clone of the whole storage; None where there is no room, or it cannot be lazy."""
        if not self.budget.takes(nbytes):
            return None
        try:
            return Block(_torch.lazy_clone(tensor), nbytes)
        except RuntimeError:  # memory that torch's own allocator did not make
            self.budget.used -= nbytes
            return None

    def _keep_piece(self, tensor: Tensor, known: _Storage, lowered: torch.dtype | None) -> Held:
        if known.pieces is None:
            known.pieces = []
        place = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        source = tensor if lowered is None else tensor.to(lowered)
        for at, held in known.pieces:
            if at == place and held.block is not None and self._has(held.block, source):
                return held
        held = described(tensor)
        held.alias = not known.born
        self._put(held, source)
        if lowered is not None and held.how == "memory":
            held.how = _name_of(lowered)
        known.pieces = [(at, one) for at, one in known.pieces if at != place] + [(place, held)]
        return held

    def _has(self, block: Block, source: Tensor) -> bool:
        """Whether a piece has still the bytes of its source."""
        if block.place is None:
            return _same_bytes(block.data, source)
        dense = _compact(source)
        return dense.is_contiguous() and self.spilled.has(block.place, dense)

    def _put(self, held: Held, source: Tensor) -> None:
        """Keep a tensor's bytes by themselves, or what the budget's policy says."""
        nbytes = _compact(source).nbytes
        if self.budget.takes(nbytes):
            held.block = Block(copy(source.detach()), nbytes)
            return
        match self.budget.over:
            case "spill":
                place, mapped = self.spilled.put(_compact(source))
                held.how, held.block = "disk", Block(_expanded(mapped, source), nbytes, place)
            case "lower" if source.is_floating_point() and source.itemsize > _LOWER.itemsize:
                held.how = _name_of(_LOWER)
                self._put_lowered(held, source)
            case "lower" | "stats":
                held.how, held.summary = "stats", summarize(source.detach())
            case "stop":
                held.how = "dropped"

    def _put_lowered(self, held: Held, source: Tensor) -> None:
        nbytes = _compact(source).numel() * _LOWER.itemsize
        if self.budget.takes(nbytes):
            lowered = _compact(source.detach()).to(_LOWER)
            held.block = Block(_expanded(lowered, source), nbytes)
        else:
            held.how, held.summary = "stats", summarize(source.detach())

    def _keep_odd(self, tensor: Tensor, kept: Any) -> Held:
        """What is not one strided region on the CPU, and what stays in the graph: copied whole."""
        before = self._odd.get(id(tensor))
        if before is not None and before[0] == self.moment and before[1] is tensor:
            return before[2]
        held = described(tensor)
        if _has_no_bytes(tensor) or not self.budget.takes(held.nbytes):
            self._without_room(held, tensor)
        else:
            held.block = Block(kept(tensor), held.nbytes)
        self._odd = {id(tensor): (self.moment, tensor, held)}
        return held

    def _in_graph(self, tensor: Tensor) -> Tensor:
        """A copy through which gradient flows, lazy where that is safe."""
        with _torch.no_modes():
            known = (
                self._storages.get(_torch.storage_identity(tensor)) if is_plain(tensor) else None
            )
            if known is not None and known.born:
                try:
                    return _torch.lazy_clone(tensor)
                except RuntimeError:  # memory that torch's own allocator did not make
                    pass
            return tensor.clone()

    def _without_room(self, held: Held, tensor: Tensor) -> None:
        if _has_no_bytes(tensor):
            held.how = "shape"
            with _torch.no_modes():
                is_dense = form_of(tensor) is Form.DENSE
                held.block = Block(_meta_like(tensor) if is_dense else copy(tensor.detach()), 0)
        elif self.budget.over == "stop":
            held.how = "dropped"
        else:
            held.how, held.summary = "stats", summarize(tensor.detach())


def _has_no_bytes(tensor: Tensor) -> bool:
    """Whether there is nothing but a shape: meta tensors, and fake ones, which name another device."""
    if tensor.device.type == "meta":
        return True
    if not _torch.is_python_dispatched(tensor) or form_of(tensor) is not Form.DENSE:
        return False
    return tensor.untyped_storage().device.type == "meta"


def _meta_like(tensor: Tensor) -> Tensor:
    shape, strides = tuple(tensor.shape), tensor.stride()
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device="meta")


def _copied(tensor: Tensor) -> Tensor:
    with _torch.no_modes():
        return copy(tensor.detach())


def described(tensor: Tensor) -> Held:
    """What can be said of a tensor without its bytes."""
    with _torch.no_modes():
        parts = tensor_parts(tensor.detach(), with_grad=False).made_from
    nbytes = sum(part.nbytes for part in parts if isinstance(part, Tensor)) or tensor.nbytes
    return Held(tuple(tensor.shape), tensor.dtype, str(tensor.device), nbytes)


def _placed(tensor: Tensor, block: Block) -> Held:
    """A value of a lazy block, with the layout that it has in its storage."""
    return Held(
        tuple(tensor.shape), tensor.dtype, "cpu", tensor.nbytes, block=block,
        strides=tensor.stride(), offset=int(tensor.storage_offset()),
    )  # fmt: skip


def _compact(tensor: Tensor) -> Tensor:
    """The tensor without the dimensions that only repeat its bytes."""
    for dim, (length, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and length > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _expanded(compact: Tensor, like: Tensor) -> Tensor:
    return compact if compact.shape == like.shape else compact.expand(like.shape)


def _same_bytes(held: Tensor, tensor: Tensor) -> bool:
    """Whether a copy has still the bytes of its source, whatever they mean as numbers."""
    if held.dtype is not tensor.dtype or held.shape != tensor.shape:
        return False
    a, b = (_torch.as_bytes(_compact(one.detach())) for one in (held, tensor))
    integers = _INTEGERS.get(a.itemsize)
    if integers is None:
        return False
    return torch.equal(a.view(integers), b.view(integers))


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
