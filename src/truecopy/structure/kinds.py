"""What kinds of objects there are. A kind is decided once for a type; users can add their own."""

from __future__ import annotations

import array
import collections
import copy as stdlib_copy
import enum
import mmap
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from truecopy.errors import UsageError
from truecopy.structure.capsules import CAPSULE


class Kind(enum.Enum):
    """How the walker treats an object."""

    ATOM = "is its own copy"
    FUNCTION = "is its own copy, and may refer to anything"
    WEAKREF = "refers to an object without holding it"
    WEAKLY = "a weak set or dictionary, which holds its members, keys or values without owning them"
    HANDLE = "stands for something outside the structure, which a copy shares"
    TENSOR = "a torch tensor"
    ARRAY = "a numpy array"
    SUBARRAY = "a numpy array with a class and attributes of its own"
    STORAGE = "a torch storage"
    FOREIGN = "memory that another library owns"
    CAPSULE = "what C code hands around, a tensor of DLPack perhaps"
    LIST = "list"
    TUPLE = "tuple"
    DICT = "dict"
    SET = "set"
    FROZENSET = "frozenset"
    METHOD = "bound method"
    ORDERED = "collections.OrderedDict, with attributes or without"
    READ_ONLY = "a read-only view of a mapping"
    REGISTERED = "a kind that the user registered"
    OPAQUE = "copies itself: has a __deepcopy__ of its own"
    REDUCED = "everything else: the standard copy protocol"


_ATOMS: tuple[type, ...] = (
    type(None), type(Ellipsis), type(NotImplemented), int, float, bool, complex, bytes, str,
    types.CodeType, type, range, property, torch.dtype, torch.device, torch.layout,
    torch.memory_format, torch.qscheme, torch.Size, np.dtype,
    type(np.ma.masked),
)  # fmt: skip
_BUFFERS: tuple[type, ...] = (bytearray, memoryview, array.array, mmap.mmap)
_ARRAY_PROTOCOLS = ("__dlpack__", "__array_interface__", "__cuda_array_interface__")
_COPIERS_OF_ARRAYS = (np.ndarray.__deepcopy__, np.ma.MaskedArray.__deepcopy__)
"""numpy's own, which know of no tensor on the same bytes, and leave attributes shared."""
_HANDLES: tuple[type, ...] = (types.ModuleType, torch.Stream, torch.Event)
_EXACT: dict[type, Kind] = {
    **dict.fromkeys(_ATOMS, Kind.ATOM),
    types.FunctionType: Kind.FUNCTION,
    types.BuiltinFunctionType: Kind.FUNCTION,
    **dict.fromkeys((weakref.ref, *weakref.ProxyTypes), Kind.WEAKREF),
    **dict.fromkeys(
        (weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary), Kind.WEAKLY
    ),
    np.ndarray: Kind.ARRAY,
    list: Kind.LIST,
    tuple: Kind.TUPLE,
    dict: Kind.DICT,
    collections.OrderedDict: Kind.ORDERED,
    set: Kind.SET,
    frozenset: Kind.FROZENSET,
    types.MethodType: Kind.METHOD,
    types.MappingProxyType: Kind.READ_ONLY,
    CAPSULE: Kind.CAPSULE,
}


class _KindOfType(dict[type, Kind]):
    """Kinds by exact type, worked out at the first meeting."""

    def __init__(self, exact: dict[type, Kind]) -> None:
        super().__init__(exact)
        self._by_protocol: set[type] = set()

    def __missing__(self, cls: type) -> Kind:
        self[cls] = kind = _decide(cls)
        if kind in (Kind.REDUCED, Kind.OPAQUE, Kind.SUBARRAY):
            self._by_protocol.add(cls)
        return kind

    def ask_protocols_again(self) -> None:
        """Forget what depends on a class's copy protocol: it can be given one later, or lose it."""
        for cls in tuple(self._by_protocol):
            self._by_protocol.discard(cls)
            self.pop(cls, None)


def _decide(cls: type) -> Kind:
    if issubclass(cls, torch.Tensor):
        return Kind.OPAQUE if _copies_itself(cls) else Kind.TENSOR
    if issubclass(cls, (torch.UntypedStorage, torch.TypedStorage)):
        return Kind.STORAGE
    if issubclass(cls, type | enum.Enum | np.dtype):
        return Kind.ATOM
    if issubclass(cls, np.generic) and not issubclass(cls, (np.void, np.object_)):
        return Kind.ATOM
    if issubclass(cls, weakref.ref):
        return Kind.WEAKREF
    if issubclass(cls, _HANDLES + _process_groups()):
        return Kind.HANDLE
    if issubclass(cls, np.ndarray) and cls.__deepcopy__ in _COPIERS_OF_ARRAYS:
        return Kind.SUBARRAY
    if issubclass(cls, (np.ndarray, *_BUFFERS)):
        return Kind.FOREIGN
    if any(name in vars(base) for base in cls.__mro__ for name in _ARRAY_PROTOCOLS):
        return Kind.FOREIGN
    return protocol_kind(cls)


_ARRAYS_OF_OTHERS = {
    "jax": ("jaxlib._jax", "ArrayImpl"),
    "tensorflow": ("tensorflow.python.framework.ops", "EagerTensor"),
}


def arrays_of(library: str) -> type | None:
    """The class of another library's arrays; None where nobody has imported it."""
    module, name = _ARRAYS_OF_OTHERS[library]
    found: type | None = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return found


def arrays_of_others() -> tuple[type, ...]:
    """The classes of arrays of all libraries that are known here and imported."""
    return tuple(
        found for library in _ARRAYS_OF_OTHERS if (found := arrays_of(library)) is not None
    )


def protocol_kind(cls: type) -> Kind:
    """How the standard copy protocol treats a type: it copies itself, or it is reduced."""
    own = getattr(cls, "__deepcopy__", None)
    if cls in foreign_copiers() or (
        own is not None and getattr(own, "__module__", None) not in _FORGETFUL
    ):
        return Kind.OPAQUE
    return Kind.REDUCED


_FORGETFUL = ("tensordict.base", "tensordict.tensorclass")
"""Where a `__deepcopy__` clones and forgets the memo, so that ties to everything beside it are lost.

What these classes hand out to be pickled is all that they are.
"""


def _copies_itself(cls: type[torch.Tensor]) -> bool:
    """Whether a tensor class brings a `__deepcopy__` that is not torch's own for ordinary tensors."""
    own = cls.__deepcopy__
    return own not in (torch.Tensor.__deepcopy__, torch.nn.Parameter.__deepcopy__)


def _process_groups() -> tuple[type, ...]:
    if not torch.distributed.is_available():
        return ()
    from torch.distributed.device_mesh import DeviceMesh

    return (torch.distributed.ProcessGroup, DeviceMesh)


def foreign_copiers() -> Mapping[type, Any]:
    """Copiers that other libraries have put into the standard library's table."""
    table: Mapping[type, Any] = stdlib_copy._deepcopy_dispatch  # type: ignore[attr-defined]
    return table


kind_of: _KindOfType = _KindOfType(_EXACT)
"""`kind_of[type(value)]`, in one dictionary access."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A user's pair for one type."""

    children: Callable[[Any], Mapping[str, Any]]
    rebuild: Callable[[Any, Mapping[str, Any]], Any]


registered: dict[type, Registration] = {}


def register(
    cls: type,
    children: Callable[[Any], Mapping[str, Any]],
    rebuild: Callable[[Any, Mapping[str, Any]], Any],
) -> None:
    """Teach truecopy a type: what it holds, by name, and how to make it again from copies of that.

    `children(value)` returns a mapping from attribute names to what they hold; `rebuild(value,
    copies)` returns the new object from a mapping with the same names. Allocates nothing.
    """
    if not isinstance(cls, type):
        raise UsageError("register needs a class", expected="a type", got=repr(cls))
    if cls in _EXACT or issubclass(cls, torch.Tensor):
        raise UsageError(f"{cls.__name__} has a fixed meaning and cannot be registered")
    registered[cls] = Registration(children, rebuild)
    kind_of.ask_protocols_again()
    kind_of[cls] = Kind.REGISTERED
