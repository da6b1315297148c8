"""Capsules: what C code hands around in Python, DLPack's tensors among it."""

from __future__ import annotations

import ctypes
import datetime as dt
from typing import Any

CAPSULE = type(dt.datetime_CAPI)
"""`types.CapsuleType`, which has that name from Python 3.13 on."""

_TENSORS = (b"dltensor", b"dltensor_versioned")


def holds_tensor(capsule: Any) -> bool:
    """Whether a capsule is one of DLPack's, and not used up. Only its name is read."""
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    return any(is_valid(ctypes.py_object(capsule), name) for name in _TENSORS)
