"""Weak references and containers of them: what they refer to, and how they are made for a copy."""

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


def weak_members(container: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """What a weak container holds: keys or members, values, and the objects that it does not own.

    Those stand in the first two lists as weak references without a callback, which follow their target
    into a copy; whoever keeps the third list keeps them alive until then.
    """
    if isinstance(container, weakref.WeakSet):
        members = list(container)
        return list(map(weakref.ref, members)), [], members
    pairs = list(container.items())  # no key is looked up: tensors compare element by element
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    if isinstance(container, weakref.WeakKeyDictionary):
        return list(map(weakref.ref, keys)), values, keys
    return keys, list(map(weakref.ref, values)), values


def fill_weak(made: Any, first: list[Any], second: list[Any]) -> None:
    """Put into a new container what `weak_members` told of another, or copies of that."""
    match made:
        case weakref.WeakSet():
            made.update(reference() for reference in first)
        case weakref.WeakKeyDictionary():
            for reference, value in zip(first, second, strict=True):
                made[reference()] = value
        case _:
            for key, reference in zip(first, second, strict=True):
                made[key] = reference()
