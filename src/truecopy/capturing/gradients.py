"""Gradients of what was captured, caught by a hook on the tensor at the moment of the capture.

Such a hook sees the gradient of that value, whatever is done to the tensor afterwards: `retain_grad` would
tell of the changed tensor, and backward hooks of modules raise where something is changed in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from truecopy import _torch
from truecopy.capturing.keeping import Held, Keeper


@dataclass(slots=True, eq=False)
class Slot:
    """Where the gradient of one tensor comes to, and why none came."""

    why: str = "no backward pass reached it inside the capture"
    held: Held | None = None
    total: Tensor | None = None  # of several backward passes
    times: int = 0

    @property
    def value(self) -> Any:
        """The gradient, summed over backward passes as `.grad` is; None where none came."""
        if self.total is not None:
            return self.total
        return None if self.held is None else self.held.value


@dataclass(slots=True)
class Gradients:
    """The hooks of one capture."""

    keeper: Keeper
    in_graph: bool
    _handles: list[Any] = field(default_factory=list)

    def expect(self, tensor: Tensor) -> Slot:
        """Ask for the gradient of a tensor as it is now."""
        slot = Slot()
        if not tensor.requires_grad:
            slot.why = "the value requires no gradient"
        else:
            self._handles.append(tensor.register_hook(partial(self._came, slot)))
        return slot

    def _came(self, slot: Slot, gradient: Tensor) -> None:
        with _torch.disable_torch_function():
            self.keeper.moment += 1
            slot.times += 1
            if slot.held is None:
                slot.held = self.keeper.keep(gradient)
                return
            before = slot.value
            if isinstance(before, Tensor):
                slot.total = before + (gradient if self.in_graph else gradient.detach())

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
