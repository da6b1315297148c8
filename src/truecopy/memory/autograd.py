"""Whether gradient can flow between values, and through which nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch

from truecopy import _torch


def route(later: Iterable[Any], earlier: Iterable[Any]) -> tuple[str, ...] | None:
    """Names of the nodes that a gradient passes from `later` to `earlier`, the shortest way, or None.

    Looks at the graph alone: allocates nothing, runs nothing.
    """
    ends = _Ends.of(earlier)
    if not ends.nodes and not ends.leaves:
        return None
    ways: dict[int, _Way] = {}  # by node; they hold the nodes, whose ids would be given out again
    waiting: deque[_Way] = deque()
    for tensor in later:
        if isinstance(tensor, torch.Tensor) and (node := tensor.grad_fn) is not None:
            if (id(node), tensor.output_nr) in ends.nodes:
                return ()
            if id(node) not in ways:
                ways[id(node)] = way = _Way(node, None)
                waiting.append(way)
    while waiting:
        way = waiting.popleft()
        for after, index in way.node.next_functions:
            if after is None:
                continue
            if ends.has(after, index):
                return way.names()
            if id(after) not in ways:
                ways[id(after)] = further = _Way(after, way)
                waiting.append(further)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """A node, and the way that led there."""

    node: Any
    before: _Way | None

    def names(self) -> tuple[str, ...]:
        found, way = [], cast("_Way | None", self)
        while way is not None:
            found.append(way.node.name())
            way = way.before
        return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where a route may end: outputs of nodes, and leaves."""

    nodes: dict[tuple[int, int], Any]  # held, as above
    leaves: dict[int, torch.Tensor]

    @classmethod
    def of(cls, earlier: Iterable[Any]) -> _Ends:
        found = cls({}, {})
        for tensor in earlier:
            if not isinstance(tensor, torch.Tensor) or not tensor.requires_grad:
                continue
            if (node := tensor.grad_fn) is None:
                found.leaves[id(tensor)] = tensor
            else:
                found.nodes[id(node), tensor.output_nr] = node
        return found

    def has(self, node: Any, index: int) -> bool:
        return (id(node), index) in self.nodes or id(_torch.accumulated_tensor(node)) in self.leaves
