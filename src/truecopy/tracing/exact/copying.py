"""Copies in a profile: what was written, from what, and inside of which kernel.

In it, every copy ends in `copy_`, with where it wrote and what it read; around it stand the operations
that asked for it, the outermost of which is the copy that people know: `clone`, `cat`, `index`.
"""

from __future__ import annotations

from truecopy.tracing.copies import CONVERTING, HIDING, VIEWING, Written, into
from truecopy.tracing.exact.recorded import Recorded
from truecopy.tracing.exact.tree import OPERATION, Node
from truecopy.tracing.operations import Operation
from truecopy.tracing.storages import Block

_THROUGH = CONVERTING | VIEWING | {"resolve_conj", "resolve_neg", "expand", "view", "lift_fresh"}
"""Operations that are no kernel: a copy inside of them is theirs by name."""


class Copied:
    """One copy, while it goes on."""

    __slots__ = ("base", "inside", "made", "node", "pairs", "shaper")

    def __init__(self, node: Node, base: str, around: tuple[Node, ...], allocated: int) -> None:
        self.node = node
        self.base = base
        kernels = [one for one in map(base_of, around) if one not in _THROUGH]
        self.inside = kernels[-1] if kernels else ""
        self.shaper = around[-1] if around and base_of(around[-1]) in VIEWING else None
        self.pairs: list[tuple[Recorded, Recorded]] = []  # where was written, what was read
        self.made = -allocated  # bytes, when it is over

    def wrote(self, node: Node) -> None:
        """A `copy_` runs, which this is or has inside."""
        if len(node.inputs) > 1:
            target, source = node.inputs[:2]
            if type(target) is Recorded and type(source) is Recorded:
                self.pairs.append((target, source))

    def ended(self, allocated: int) -> None:
        """It is over, and so much was allocated by its event."""
        self.made += allocated

    @property
    def written(self) -> Written:
        """How much was copied."""
        if not self.pairs or self.base not in HIDING:
            return Written(self.made, self.made, None)
        parts = [into(target, source) for target, source in self.pairs]
        source = self.pairs[0][1] if len(parts) == 1 else None
        return Written(sum(p.nbytes for p in parts), sum(p.read_bytes for p in parts), source)

    def is_the_result(self, blocks: dict[int, Block]) -> bool:
        """Whether a kernel has copied into what it hands out, or into what it was given to write.

        To write its result is what it was called for. `blocks` are those of the event, by number.
        """
        if not self.inside or self.base != "copy_" or not self.pairs:
            return False
        block = blocks.get(self.pairs[0][0].allocation)
        return block is None or block.death < 0

    @property
    def asked(self) -> str:
        """The operation that made it, where a node of a backward pass has run that: `reshape`."""
        return "" if self.shaper is None else base_of(self.shaper)

    @property
    def operation(self) -> Operation:
        """The operation that copied."""
        return Operation(None, self.node.name, self.base, (), ())

    def viewed_as(self) -> int:
        """The number of the operation that views the copy in the shape that it was made for; or -1."""
        for child in self.shaper.children if self.shaper is not None else ():
            if child.kind == OPERATION and child.name in SHAPING:
                return child.number
        return -1


SHAPING = frozenset(("aten::_unsafe_view", "aten::view"))
"""What views a copy in another shape."""


def base_of(node: Node) -> str:
    """`clone`, of `aten::clone`."""
    return node.name.rpartition("::")[2]
