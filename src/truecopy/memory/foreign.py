"""Memory that neither torch nor numpy made: whatever speaks one of four protocols.

The Python buffer protocol, `__array_interface__`, `__cuda_array_interface__` and DLPack. A value is
asked twice, and both answers are held until they were compared: what lies elsewhere the second time
is a new array for everyone who asks, and nobody's memory.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import torch

from truecopy.memory.region import CPU, Region, Space, Unreadable
from truecopy.structure.capsules import CAPSULE, holds_tensor

_PROTOCOLS = ("__array_interface__", "__cuda_array_interface__", "__dlpack__")
_DLPACK_CPU = 1
_LAST_ADDRESS = 2**63 - 1


def read_foreign(value: Any) -> Region | Unreadable:
    """The region of a foreign array, or why it cannot be told. Allocates nothing."""
    if type(value) is CAPSULE:
        return Unreadable("a DLPack capsule shows its memory only to whoever makes a tensor of it")
    readers = (_from_array_interface, _from_cuda_interface, _from_dlpack)
    for protocol, reader in zip(_PROTOCOLS, readers, strict=True):
        if _speaks(value, protocol):
            try:
                return reader(value)
            except AttributeError:  # as JAX says that an array is not on that kind of device
                continue
            except Exception as error:  # noqa: BLE001 - others' code fails in ways of its own
                return Unreadable(f"{type(value).__name__}.{protocol} failed: {error}")
    return _from_buffer(value)


def is_foreign(value: Any) -> bool:
    """Whether a value speaks any of the protocols."""
    if type(value) is CAPSULE:
        return holds_tensor(value)
    return any(_speaks(value, name) for name in _PROTOCOLS) or has_buffer(value)


def has_buffer(value: Any) -> bool:
    """Whether a value speaks the buffer protocol, and shows its buffer now."""
    try:
        memoryview(value).release()
    except (TypeError, BufferError, ValueError):
        return False
    return True


def _speaks(value: Any, protocol: str) -> bool:
    """Whether the class or the object itself has the method. Asks no `__getattr__`."""
    if any(protocol in vars(base) for base in type(value).__mro__):
        return True
    try:
        return protocol in object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return False


def _makes_new(value: Any) -> Unreadable:
    reason = f"{type(value).__name__} makes a new array for everyone who asks"
    return Unreadable(reason, proven_apart=True)


def _from_array_interface(value: Any) -> Region | Unreadable:
    first, second = value.__array_interface__, value.__array_interface__
    one, two = _from_interface(value, first, CPU), _from_interface(value, second, CPU)
    if isinstance(one, Region) and isinstance(two, Region) and one.start != two.start:
        return _makes_new(value)
    return one


def _from_cuda_interface(value: Any) -> Region | Unreadable:
    # Only one byte is shown to torch: of strides below zero it ends the process.
    interface = value.__cuda_array_interface__
    address = int(interface["data"][0])
    index = _cuda_device_of(address)
    if index is None:
        return Unreadable(f"{type(value).__name__} lies on no CUDA device that torch knows")
    return _from_interface(value, interface, ("cuda", index))


class _Byte:
    """The byte at an address of a CUDA device, shown to torch."""

    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": (1,),
            "typestr": "|u1",
        }


def _cuda_device_of(address: int) -> int | None:
    """The device that owns an address: the one for which torch takes the byte where it is, and copies not."""
    if address == 0:
        return 0
    for index in range(torch.cuda.device_count()):
        if torch.as_tensor(_Byte(address), device=f"cuda:{index}").data_ptr() == address:
            return index
    return None


def _from_interface(value: Any, interface: Any, space: Space) -> Region | Unreadable:
    shape = tuple(map(operator.index, interface["shape"]))
    itemsize = np.dtype(interface["typestr"]).itemsize
    data = interface.get("data")
    if isinstance(data, tuple):
        start = int(data[0])
    else:  # an object with a buffer; where there is none, the value itself is it
        buffer = _from_buffer(value if data is None else data)
        if isinstance(buffer, Unreadable):
            return buffer
        start = buffer.start + int(interface.get("offset", 0))
    strides = interface.get("strides") or _dense_strides(shape, itemsize)
    region = Region(space, start, shape, tuple(map(operator.index, strides)), itemsize)
    low, high = region.span
    if min(low, *shape, 0) < 0 or high > _LAST_ADDRESS:
        raise ValueError(f"no memory is of shape {shape} and strides {region.strides}")
    return region


def _dense_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _from_dlpack(value: Any) -> Region | Unreadable:
    if _is_handle_of_tensorflow(value):
        return Unreadable(f"TensorFlow shows no memory of {value.dtype.name}s")
    kind, index = value.__dlpack_device__()
    if int(kind) != _DLPACK_CPU:
        tensor: torch.Tensor = torch.utils.dlpack.from_dlpack(value)
        return _of_tensor(tensor, (tensor.device.type, tensor.device.index or index))
    first, second = _view(value), _view(value)
    one, two = _of_view(first), _of_view(second)
    return one if one.start == two.start else _makes_new(value)


def _is_handle_of_tensorflow(value: Any) -> bool:
    """Whether it is a TensorFlow tensor without plain numbers: asked for DLPack, it ends the process."""
    from_tensorflow = type(value).__module__.startswith("tensorflow.")
    return from_tensorflow and value.dtype.name in ("resource", "string", "variant")


def _view(value: Any) -> np.ndarray[Any, Any] | torch.Tensor:
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):  # dtypes that numpy lacks, such as bfloat16
        return torch.utils.dlpack.from_dlpack(value)


def _of_view(view: np.ndarray[Any, Any] | torch.Tensor) -> Region:
    if isinstance(view, torch.Tensor):
        return _of_tensor(view, CPU)
    return _of_array(view)


def _of_tensor(tensor: torch.Tensor, space: Space) -> Region:
    strides = tuple(stride * tensor.itemsize for stride in tensor.stride())
    return Region(space, tensor.data_ptr(), tuple(tensor.shape), strides, tensor.itemsize)


def _of_array(array: np.ndarray[Any, Any]) -> Region:
    start = int(array.__array_interface__["data"][0])
    return Region(CPU, start, array.shape, array.strides, array.itemsize)


def _from_buffer(value: Any) -> Region | Unreadable:
    name = type(value).__name__
    try:
        with memoryview(value) as first, memoryview(value) as second:
            one, two = _of_buffer(first), _of_buffer(second)
    except TypeError:
        return Unreadable(f"{name} has no buffer", proven_apart=True)
    except ValueError as error:  # closed, or released
        return Unreadable(f"{name} shows no memory: {error}", proven_apart=True)
    except BufferError as error:
        return Unreadable(f"{name} does not show its memory: {error}")
    if one is None or two is None:
        return Unreadable(f"{name} has items that numpy does not know, and gaps")
    return one if one.start == two.start else _makes_new(value)


def _of_buffer(view: memoryview) -> Region | None:
    """The region of a buffer; None for what numpy cannot read. The view can be released afterwards."""
    if view.nbytes == 0:
        return Region(CPU, 0, (0,), (1,), 1)
    try:
        array: np.ndarray[Any, Any] = np.asarray(view)
    except (ValueError, NotImplementedError, RuntimeError):
        if not view.contiguous:
            return None
        array = np.frombuffer(view, np.uint8)
    region = _of_array(array)
    storage = (region.start, view.nbytes) if view.contiguous else None
    return Region(
        CPU, region.start, region.shape, region.strides, region.itemsize, storage, region.start
    )
