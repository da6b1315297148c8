"""What is known of one operation, as frozen facts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from truecopy.records import Record


@dataclass(frozen=True, slots=True)
class Outcome:
    """What forms did on inputs that lie in memory in one way."""

    form: str  # "torch.Tensor.add_", "torch.add(out=)"; "torch.t, torch.Tensor.t" where both did so
    layout: str  # of the first tensor: "contiguous", "transposed", "strided", "expanded", "other"
    origins: (
        str  # "view", or "new, new" where there are two outputs; "" where no tensor is returned
    )
    effects: str  # "args[0]: mutated"; empty where nothing was
    copies_inside: str  # operations inside of the call that copied: "aten::clone"; empty for none
    count: int  # of samples
    example: str  # one of them: "x float32 (2, 3) strides (1, 2); (6,)"


@dataclass(frozen=True, slots=True)
class Autograd:
    """What autograd does with a form on inputs that require gradient."""

    node: str  # the grad_fn: "ViewBackward0"; empty where gradient does not flow, or was not tried
    flows: bool
    keeps: tuple[str, ...]  # until backward: "its inputs", "its result", "memory of its own"


@dataclass(frozen=True, slots=True)
class Explanation(Record):
    """What an operation does with memory: on which inputs, at what cost, with which trap."""

    name: str  # "reshape", "nn.functional.relu"
    spellings: tuple[str, ...]  # all the ways to write it
    sentence: str  # "a view where it can, a copy where it must"
    autograd: Autograd
    cost: str
    trap: str
    instead: str
    samples: int
    outcomes: tuple[Outcome, ...]
    seen_with: str  # version of torch

    kind = "explanation"

    def body(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_body(cls, data: dict[str, Any]) -> Explanation:
        """The explanation that `body` wrote."""
        values = dict(data)
        autograd = values["autograd"]
        values["autograd"] = Autograd(autograd["node"], autograd["flows"], tuple(autograd["keeps"]))
        values["outcomes"] = tuple(Outcome(**one) for one in values["outcomes"])
        values["spellings"] = tuple(values["spellings"])
        return cls(**values)
