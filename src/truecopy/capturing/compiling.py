"""Compiled regions run eagerly while they are observed: inside of a compiled one there is nothing to see.

torch has one stance for the whole process, so captures that overlap share it: the first sets it, the last
puts back what was there.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch

from truecopy import _torch

_lock = threading.Lock()
_open = 0
_stance: Any = None


class Eager:
    """One capture's share of the stance. Costs nothing where the program has no compiler in it."""

    def __init__(self) -> None:
        self.was_needed = False

    def begin(self) -> None:
        global _open, _stance  # noqa: PLW0603 - as torch has it: one of the process
        if _torch.COMPILER not in sys.modules:
            return
        with _lock:
            self.was_needed = True
            if _open == 0:
                _stance = torch.compiler.set_stance("force_eager")
                _stance.__enter__()
            _open += 1

    def end(self) -> None:
        global _open, _stance  # noqa: PLW0603
        if not self.was_needed:
            return
        with _lock:
            _open -= 1
            if _open == 0:
                _stance.__exit__(None, None, None)
                _stance = None
