"""What can be told of results and arguments that a profile does not have: by names and allocations."""

from __future__ import annotations

import functools

import torch

from truecopy.tracing.copies import CONVERTING
from truecopy.tracing.operations import operation_of


def told_by(call: str, has_kept: bool) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Origins of what a call has returned, and its effects.

    `has_kept`: memory that it has allocated outlived it.
    """
    writes, views = _declared(call.rpartition("::")[2])
    if writes:
        return ("same",), [("self", "mutated")]
    if has_kept:
        return ("new",), []
    return ("view" if views else "unknown",), []


@functools.cache
def _declared(base: str) -> tuple[bool, bool]:
    """Whether an operation of this name writes its first argument, and whether it returns a view."""
    packet = getattr(torch.ops.aten, base, None)
    if packet is None or base.startswith("__"):
        return False, False
    overloads = [operation_of(getattr(packet, name)) for name in packet.overloads()]
    if base.endswith("_"):
        return any(one.written for one in overloads), False
    return False, base not in CONVERTING and all(one.may_alias for one in overloads)
