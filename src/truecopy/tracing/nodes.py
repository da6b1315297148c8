"""Which line made a node of a graph: nodes are numbered in the order in which they are made.

A call that has made nodes leaves one number, the first of them. Anomaly mode, which keeps a stack for
each node, is not used, and no node is kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Any

from truecopy import _torch

ACCUMULATOR = "torch::autograd::AccumulateGrad"
"""Adds a gradient to a leaf: made when first needed, so no line of the forward pass has made it."""


class Nodes:
    """The lines of all nodes that were made while the run was looked at."""

    def __init__(self, first: int | None = None) -> None:
        self.next = _torch.next_node_number() if first is None else first
        self._starts = array("q", [self.next])
        self._lines = array("l", [-1])
        self._events = array("q", [-1])
        self._known: list[Any] = []
        self._places: dict[int, int] = {}  # of a line among those known, by identity

    def made_by(self, line: Any, event: int) -> int:
        """A call has ended: how many nodes it made."""
        now = _torch.next_node_number()
        made = now - self.next
        if made > 0:
            self._starts.append(self.next)
            self._lines.append(self._place(line))
            self._events.append(event)
            self.next = now
        return made

    def note(self, number: int, line: Any, event: int) -> None:
        """A call may make the node of this number; one that makes none leaves it to the next."""
        last = self._starts[-1]
        if number < last:
            return  # of another thread, which counts for itself
        if number == last and len(self._starts) > 1:
            self._lines[-1], self._events[-1] = self._place(line), event
            return
        self._starts.append(number)
        self._lines.append(self._place(line))
        self._events.append(event)
        self.next = number + 1

    def _place(self, line: Any) -> int:
        place = self._places.get(id(line))
        if place is None:
            place = self._places[id(line)] = len(self._known)
            self._known.append(line)
        return place

    @property
    def nbytes(self) -> int:
        """Memory that the numbers take."""
        return sum(one.itemsize * len(one) for one in (self._starts, self._lines, self._events))

    def find(self, number: int) -> tuple[Any, int]:
        """Line and event of the call that made the node of this number; None for older ones."""
        if number >= self.next:
            return None, -1
        index = bisect_right(self._starts, number) - 1
        if index <= 0:
            return None, -1
        return self._known[self._lines[index]], self._events[index]

    def describe(self, node: Any) -> tuple[str, Any]:
        """Name of a node, and the line that made it."""
        name = node.name()
        return name, None if name == ACCUMULATOR else self.find(_torch.node_number(node))[0]
