"""One cell is one combination of every axis. None of them is hidden: a cell's title names them all."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch

from truecopy.measuring.regimes import Regime

Library = Literal["torch", "numpy", "jax", "tensorflow"]
Task = Literal["copy", "duplicate", "sum", "matmul", "convolution", "indexing"]
Mode = Literal["plain", "requires_grad", "no_grad", "inference"]

DUPLICATES = 4
"""How many duplicates a method of the task `duplicate` makes."""

MODES: tuple[Mode, ...] = ("plain", "requires_grad", "no_grad", "inference")
REGIMES: tuple[Regime, ...] = ("recycled", "fresh", "into")

OWN_THREADS = 0
"""Of libraries whose threads torch does not govern."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured together: one input, one regime, one number of threads, one mode."""

    library: str
    task: str
    shape: str
    elements: int
    dtype: str
    regime: str
    threads: int
    mode: str
    device: str

    @property
    def title(self) -> str:
        """Every axis in words, in one line."""
        what = {
            "copy": "one copy", "duplicate": f"{DUPLICATES} duplicates",
        }.get(self.task, f"{self.task}, as it is or made contiguous before")  # fmt: skip
        threads = (
            "its own threads" if self.threads == OWN_THREADS
            else f"{self.threads} thread{'' if self.threads == 1 else 's'}"
        )  # fmt: skip
        return (
            f"{self.library}: {what} of {self.shape}, {self.elements:,} x {self.dtype}, "
            f"{self.regime} memory, {threads}, {self.mode}, {self.device}"
        )


def in_mode(mode: str) -> AbstractContextManager[Any]:
    """The context in which the methods of a cell run.

    plain          gradient is recorded, and the input requires none
    requires_grad  gradient is recorded, and the input requires it
    no_grad        the input requires gradient, which is not recorded
    inference      in torch.inference_mode
    """
    match mode:
        case "no_grad":
            return torch.no_grad()
        case "inference":
            return torch.inference_mode()
    return torch.enable_grad()
