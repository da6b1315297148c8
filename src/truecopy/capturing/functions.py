"""What torch's functions are called in names, and which of them say nothing."""

from __future__ import annotations

from typing import Any

import torch

from truecopy import _torch

SILENT_PROPERTIES = frozenset(("grad", "_base", "_grad", "grad_fn"))
"""Attributes of tensors that hand out other tensors, which nobody computed here."""

GIVING_AWAY = frozenset(
    getattr(owner, name)
    for owner, names in (
        (torch.Tensor, (
            "__dlpack__", "numpy", "__array__", "data_ptr", "untyped_storage", "storage",
            "_typed_storage", "share_memory_", "resize_", "resize_as_", "resize_as_sparse_", "set_",
        )),
        (torch, ("to_dlpack",)),
    )
    for name in names
    if hasattr(owner, name)
)  # fmt: skip
"""Functions that hand out the address of their first argument, or change how much memory it has."""

_PLAIN = {
    "__matmul__": "matmul", "__getitem__": "getitem", "__setitem__": "setitem", "__and__": "and",
    "__or__": "or", "__xor__": "xor", "__invert__": "invert", "__floordiv__": "floordiv",
}  # fmt: skip


class Functions:
    """Names of functions, each worked out once."""

    def __init__(self) -> None:
        self._known: dict[Any, str | None] = {}

    def name(self, function: Any) -> str | None:
        """What a function is called; None where its result is nothing that was computed."""
        try:
            return self._known[function]
        except KeyError:
            found = self._known[function] = _name_of(function)
            return found
        except TypeError:  # cannot be hashed
            return _name_of(function)


def _name_of(function: Any) -> str | None:
    own = getattr(function, "__name__", None) or type(function).__name__
    if own == "__get__":  # an attribute of tensors: `x.T`
        own = str(getattr(getattr(function, "__self__", None), "__name__", own))
        return None if own in SILENT_PROPERTIES or own.startswith("_") else own
    if own in ("__set__", "__delete__"):
        return None
    if isinstance(function, _torch.OpOverload):
        own = str(function.overloadpacket.__name__)
    own = _PLAIN.get(own, own)
    if own.startswith("__") and own.endswith("__"):
        own = own.strip("_")
    return own.lstrip("_").replace("/", ".").replace("#", ".").replace(":", ".") or "function"
