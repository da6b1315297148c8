"""What only the whole profile tells of an allocation: whose memory it is, and which node keeps it."""

from __future__ import annotations

from collections.abc import Iterable

from truecopy.tracing import storages
from truecopy.tracing.exact.recorded import Recorded, recorded_in
from truecopy.tracing.exact.tree import OPERATION, Node, Told
from truecopy.tracing.facts import OWNERS
from truecopy.tracing.nodes import ACCUMULATOR


class Kinship:
    """Owners by the number of an allocation."""

    def __init__(self, roots: Iterable[Node], told: Told) -> None:
        self.owners = {number: OWNERS.index(owner) for number, owner in told.owners.items()}
        self.read_by: dict[int, str] = {}  # the first node of a graph that reads it
        flowing: set[int] = set()  # gradients, which nodes are given and nobody has saved
        waiting: list[tuple[Node, str]] = [(root, "") for root in roots]
        while waiting:
            one, node = waiting.pop()
            if one.kind == OPERATION:
                if one.is_backward:
                    node = one.name
                    flowing.update(tensor.allocation for tensor in recorded_in(one.inputs))
                    if node == ACCUMULATOR:
                        self._accumulates(one)
                elif node and node != ACCUMULATOR:
                    for tensor in recorded_in(one.inputs):
                        if tensor.allocation >= 0:
                            self.read_by[tensor.allocation] = node  # gone through backwards
            waiting += [(child, node) for child in one.children]
        for number in flowing & self.read_by.keys():
            del self.read_by[number]

    def _accumulates(self, node: Node) -> None:
        """A gradient is put in its place, or added to what is there."""
        for operation in node.children:
            if operation.kind == OPERATION and operation.inputs:
                first = operation.inputs[0]
                if type(first) is Recorded and operation.name in ("aten::detach", "aten::add_"):
                    self.owners.setdefault(first.allocation, storages.GRADIENT)
