"""From values to regions: torch tensors, torch storages, numpy arrays, and foreign memory.

Looking never materializes a copy-on-write tensor, never touches the memory, and never asks a value
for more than numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.memory.foreign import read_foreign
from truecopy.memory.region import CPU, Region, Space, Unreadable
from truecopy.structure.tensors import Form, form_of


def read(value: Any) -> Region | Unreadable:
    """The region of one value that is a leaf of a walk. Allocates nothing on any device."""
    if isinstance(value, torch.Tensor):
        with _torch.disable_torch_function():
            return _read_tensor(value)
    if isinstance(value, np.ndarray):
        return read_array(value)
    if isinstance(value, torch.TypedStorage):
        value = value.untyped()
    if isinstance(value, torch.UntypedStorage):
        return _read_storage(value)
    return read_foreign(value)


def _read_tensor(tensor: torch.Tensor) -> Region | Unreadable:
    match form_of(tensor):
        case Form.TRANSFORMED:
            return Unreadable("it is a stand-in inside a running torch.func transform")
        case Form.ENCLOSED:
            return Unreadable(f"torch does not show the memory of a {_describe(tensor)}")
        case Form.DENSE | Form.QUANTIZED:
            return _read_strided(tensor)
    return Unreadable("its bytes are in the tensors that it is made of")


def _describe(tensor: torch.Tensor) -> str:
    layout = str(tensor.layout).removeprefix("torch.").lstrip("_")
    return f"{layout} tensor" if type(tensor) is torch.Tensor else f"{type(tensor).__name__}"


def _read_strided(tensor: torch.Tensor) -> Region | Unreadable:
    shape = tuple(tensor.shape)
    if not all(type(number) is int for number in (*shape, *tensor.stride())):
        return Unreadable("its shape is symbolic")  # to compare it would be to write a guard
    storage = tensor.untyped_storage()
    identity = _torch.storage_identity(tensor)
    nbytes = storage.nbytes()
    itemsize = tensor.itemsize
    offset = int(tensor.storage_offset()) * itemsize
    strides = tuple(s * itemsize for s in tensor.stride())
    device = storage.device
    if device.type == "meta":
        # Real and fake devices alike: without an address, the storage object is what is shared.
        return Region(("meta", identity), offset, shape, strides, itemsize, (identity, nbytes))
    lazy = _torch.is_copy_on_write(tensor)
    base = _torch.storage_address(tensor)
    if base == 0 and nbytes == 0 and tensor.numel():
        return Region(("freed", identity), offset, shape, strides, itemsize, (identity, 0))
    if base == 0 and tensor.numel():
        return Unreadable(f"torch does not show the memory of a {_describe(tensor)}")
    space: Space = CPU if device.type == "cpu" else (device.type, device.index or 0)
    region = Region(space, base + offset, shape, strides, itemsize, (identity, nbytes), base, lazy)
    if not region.is_empty and region.span[1] > base + nbytes:
        needed = region.span[1] - base
        return Unreadable(
            f"its storage was resized to {nbytes} bytes, of the {needed} that it needs"
        )
    return region


def _read_storage(storage: torch.UntypedStorage) -> Region | Unreadable:
    with _torch.no_modes():
        flat = torch.empty(0, dtype=torch.uint8, device=storage.device)
        try:
            flat.set_(storage)
        except RuntimeError as error:  # a fake one, made while a program is exported
            return Unreadable(f"torch cannot tell the size of its storage: {error}")
        return _read_strided(flat)


def read_array(array: np.ndarray[Any, Any]) -> Region:
    """The region of a numpy array, whoever owns its memory."""
    owner, plain = _plain(owner_of(array)), _plain(array)
    start, storage = address_of(owner), None
    if owner.flags.forc or owner.flags.owndata:
        storage = (start, owner.nbytes)
    return Region(
        CPU, address_of(plain), plain.shape, plain.strides, plain.itemsize, storage, start
    )


def owner_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array that an array is a view of, the last one."""
    while isinstance(base := base_of(array), np.ndarray):
        array = base
    return array


base_of = np.ndarray.base.__get__
"""What owns an array's memory. Asked of the class, since a subclass may have put code in its place."""


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array without its subclass, which may show other numbers, or run code to show them."""
    return array if type(array) is np.ndarray else np.ndarray.view(array, np.ndarray)


def address_of(array: np.ndarray[Any, Any]) -> int:
    """The address of an array's first element."""
    return int(array.__array_interface__["data"][0])
