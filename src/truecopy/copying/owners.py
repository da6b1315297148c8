"""Optimizers that are copied without the model whose parameters they train.

Such a copy has parameters of its own, that nobody's forward pass will ever use.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from truecopy.structure.walk import Place, Walk

WHY_ORPHANED = (
    "the copy has parameters of its own, that no module of the copy holds. "
    "Copy the two together, or keep the parameters with share=torch.nn.Parameter"
)


def orphaned(walked: Walk) -> Iterator[Place]:
    """Optimizers of whose parameters none is met outside of optimizers."""
    for node in walked.nodes.values():
        if isinstance(node.value, torch.optim.Optimizer):
            trained = (p for group in node.value.param_groups for p in group["params"])
            rows = [row for p in trained if (row := walked.leaf_of.get(id(p))) is not None]
            if rows and not any(_has_owner(walked, row) for row in rows):
                yield node.parent, node.place


def _has_owner(walked: Walk, row: int) -> bool:
    return not all(map(_is_in_optimizer, walked.places(row)))


def _is_in_optimizer(place: Place) -> bool:
    parent, _ = place
    while parent is not None and not isinstance(parent.value, torch.optim.Optimizer):
        parent = parent.parent
    return parent is not None
