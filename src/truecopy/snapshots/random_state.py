"""The random state of the process: Python's, numpy's, torch's, and that of every device."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class RandomState:
    """All global generators at one moment."""

    python: Any
    numpy: Any
    cpu: torch.Tensor
    devices: tuple[torch.Tensor, ...] = ()

    @classmethod
    def now(cls) -> RandomState:
        """Read them. Synchronizes with each device."""
        return cls(random.getstate(), _numpy_state(), torch.get_rng_state(), _device_states())

    def put_back(self) -> None:
        """Write them. Synchronizes with each device."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.cpu)
        for index, state in enumerate(self.devices):
            _device().set_rng_state(state, index)


def _numpy_state() -> Any:
    return np.random.get_state(legacy=False)


def _device() -> Any:
    accelerator = torch.accelerator.current_accelerator()
    return None if accelerator is None else torch.get_device_module(accelerator)


def _device_states() -> tuple[torch.Tensor, ...]:
    if not torch.accelerator.is_available():
        return ()
    return tuple(_device().get_rng_state(i) for i in range(torch.accelerator.device_count()))
