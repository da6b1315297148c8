"""The record of a capture: what was kept, how, and what could not be seen. The tensors stay behind."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from truecopy.records import Record


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor of a captured value."""

    path: str  # in the value: "", "[0]", ".logits"
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    how: str  # "memory", "disk", a dtype it was lowered to, "stats", "shape", "dropped", "function"
    same_as: str  # the name under which the same value was kept before; else empty
    older: bool  # a view of memory that is older than the capture: a parameter, a buffer, an input


@dataclass(frozen=True, slots=True)
class Captured:
    """One name."""

    name: str
    kind: str  # the class of the module, "function" or "saved"
    leaves: tuple[Leaf, ...]
    node: str  # the autograd node that saved it; else empty
    line: str  # "model.py:12", of the line that made the node
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CaptureRecord(Record):
    """What a capture holds, in the order of the run."""

    model: str  # its class
    ended: str  # "completed", "stopped at NAME", "raised ValueError in NAME"
    values: tuple[Captured, ...]
    held_bytes: (
        int  # in memory: each value once, shared with the model until one of the two is written
    )
    cloned_bytes: int  # what a clone of every value would take
    spilled_bytes: int
    budget_bytes: int | None
    over: str
    unseen: tuple[tuple[str, int], ...]

    kind = "capture"

    @property
    def is_clean(self) -> bool:
        """Whether every value was kept as it was."""
        return all(
            not leaf.how.startswith("dropped") for value in self.values for leaf in value.leaves
        )

    def body(self) -> dict[str, Any]:
        return asdict(self)
