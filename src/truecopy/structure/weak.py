"""Weak references: what they refer to, and which of them can be made again for a copy."""

from __future__ import annotations

import gc
import weakref
from typing import Any


def target_of(reference: Any) -> Any:
    """What a weak reference or proxy refers to; None once that is gone."""
    if issubclass(type(reference), weakref.ref):  # asking a dead proxy itself would raise
        return weakref.ref.__call__(reference)  # a WeakMethod would make a new bound method
    try:
        return reference.__repr__.__self__  # a proxy hands on everything, but not its target
    except (AttributeError, ReferenceError):
        return None


def can_rebind(reference: Any) -> bool:
    """Whether one like it can be made for another target: a callback belongs to whoever set it."""
    if type(reference) is weakref.ref:
        return reference.__callback__ is None
    return type(reference) in weakref.ProxyTypes and not gc.get_referents(reference)


def rebound(reference: Any, target: Any) -> Any:
    """The same kind of weak reference to another target."""
    return weakref.ref(target) if type(reference) is weakref.ref else weakref.proxy(target)
