"""The peak of a process that captures more than its budget: `peak.py LAYERS MIB BUDGET`, JSON out.

A process of its own, because the peak of a process never falls. Each layer makes one activation of so many
MiB, and all of them together would not fit into the budget. `plain` is the peak before the capture.
"""

from __future__ import annotations

import json
import resource
import sys

import torch
from torch import nn

import truecopy as tc

MIB = 1 << 20


class Layer(nn.Module):
    """Makes one activation of its input's size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One operation."""
        return x + 1


def peak() -> int:
    """The most that this process had in memory, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Run the model plain, then observed, and check a few of the values that were spilled."""
    layers, mib, budget = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    model = nn.Sequential(*(Layer() for _ in range(layers)))
    with tc.capture(model, budget=1):  # what it imports is no activation
        model(torch.zeros(8))
    x = torch.zeros(mib * MIB // 4)
    with torch.no_grad():
        model(x)
        plain = peak()
        with tc.capture(model, budget=budget, over="spill") as cap:
            model(x)
    observed = peak()
    right = all(bool(cap[str(i)][-1] == i + 1) for i in range(layers))
    told = {
        "plain": plain, "observed": observed, "held": cap.nbytes, "right": right,
        "made": layers * mib * MIB, "spilled": cap.record.spilled_bytes,
    }  # fmt: skip
    print(json.dumps(told))


if __name__ == "__main__":
    main()
