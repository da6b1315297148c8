"""The few words that proofs share, kept small enough to be read once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def nbytes(tensor: Tensor) -> int:
    """Bytes of the storage behind a tensor: what it keeps in memory, whatever it shows of it."""
    return tensor.untyped_storage().nbytes()


def refusal(kind: type[Exception], call: Callable[[], object]) -> str:
    """The message of the error that the call raises; an AssertionError where it raises none."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} was raised")


def operations(call: Callable[[], object]) -> list[str]:
    """Names of the operations of torch that run in a call, as its profiler sees them, in order."""
    with torch.autograd.profiler.profile(use_kineto=False) as seen:
        call()
    return [event.name for event in seen.function_events if event.name.startswith("aten::")]


def allocated(call: Callable[[], object]) -> int:
    """Bytes that operations of torch allocate in a call, freed ones not subtracted."""
    with torch.autograd.profiler.profile(use_kineto=False, profile_memory=True) as seen:
        kept = call()
    del kept
    return sum(max(0, event.self_cpu_memory_usage) for event in seen.function_events)
