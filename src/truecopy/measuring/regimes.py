"""Where the bytes of a copy go, which costs more than copying them.

    recycled   outputs are dropped at once, so each goes where the allocator puts it: most often into
               memory that it just got back
    fresh      outputs are held until their block ends, and what is free is given back to the kernel
               before the next: each goes into pages that were never touched
    into       a destination that is kept and was touched; methods that return new memory have no such form

A regime is what we do. What the machine did is in the page faults: an allocator may give large blocks
back to the kernel by itself, and `recycled` is then fresh in truth.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Literal

import torch

Regime = Literal["recycled", "fresh", "into"]

MOST_HELD = 256 << 20
"""Bytes that a block of the fresh regime holds, one output at least."""

_MOST_SETTLED = 1 << 30


def give_back() -> None:
    """Let the allocator return what is free to the kernel, where it can (glibc)."""
    trim = _trim()
    if trim is not None:
        trim(0)


def settle(nbytes: int) -> None:
    """Touch and free as many bytes as a block will take.

    The host of a virtual machine takes back what is free, and giving it again would be charged to
    whoever comes first.
    """
    block = torch.empty(min(nbytes, _MOST_SETTLED), dtype=torch.uint8)
    block.fill_(1)
    del block
    give_back()


def _trim() -> Callable[[int], Any] | None:
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
    return found
