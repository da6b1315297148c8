"""State that no attribute shows: generators of random numbers, by the readers and writers they have."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class HiddenState:
    """How an object's state is read, and how it is written back into the same object."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object]


def _set_bits(generator: Any, state: Any) -> None:
    generator.state = state


_HIDDEN: dict[type, HiddenState] = {
    torch.Generator: HiddenState(torch.Generator.get_state, torch.Generator.set_state),
    random.SystemRandom: HiddenState(lambda _: None, lambda _, __: None),  # it has no state
    random.Random: HiddenState(random.Random.getstate, random.Random.setstate),
    np.random.RandomState: HiddenState(
        np.random.RandomState.get_state, np.random.RandomState.set_state
    ),
    np.random.BitGenerator: HiddenState(lambda bits: bits.state, _set_bits),
    np.random.Generator: HiddenState(
        lambda generator: generator.bit_generator.state,
        lambda generator, state: _set_bits(generator.bit_generator, state),
    ),
}


def hidden_state_of(value: Any) -> HiddenState | None:
    """How to read and write what `value` keeps to itself; None where attributes tell all."""
    return next((how for cls, how in _HIDDEN.items() if isinstance(value, cls)), None)
