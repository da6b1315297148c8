"""What was read from disk: the object, and what only the file could tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from truecopy.errors import CannotRead
from truecopy.memory.aliases import Aliases
from truecopy.memory.groups import Partition, Table, partition, tabulate
from truecopy.structure.walk import Node, Walk, walk

Kind = Literal["torch", "torch-legacy", "safetensors", "npz", "npy", "shards"]

ROOT = "checkpoint"
"""The name under which paths into a checkpoint begin: `checkpoint['embed.weight']`."""

MOST_DEPTH = 250
"""Containers inside each other; torch.save itself ends below a thousand."""

_MOST_NAME_CHARACTERS = 200_000_000


@dataclass(frozen=True, slots=True)
class Unreferenced:
    """Bytes of a file that no entry refers to."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as loaded: plain data, tensors mapped from the file where its kind allows."""

    path: Path
    kind: Kind
    obj: Any
    file_bytes: int
    metadata: dict[str, str] = field(default_factory=dict)  # safetensors' free text
    unreferenced: tuple[Unreferenced, ...] = ()
    compressed: bool = False
    unseen: tuple[str, ...] = ()  # what could not be looked at, and why

    @cached_property
    def walked(self) -> Walk:
        """Every tensor and array, with its paths."""
        found = walk(self.obj, ROOT)
        self._bound_depth(found)
        self._bound_names(found)
        return found

    @cached_property
    def table(self) -> Table:
        """The region of each tensor and array."""
        return tabulate(self.walked.leaves, self.walked.bare)

    @cached_property
    def partition(self) -> Partition:
        """Tensors and arrays by alias group."""
        return partition(self.table)

    @cached_property
    def aliases(self) -> Aliases:
        """Who shares memory with whom."""
        return Aliases(self.walked, self.partition)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The best path to each tensor and array, in the order of the file."""
        return tuple(str(self.walked.path(row)) for row in range(len(self.walked.leaves)))

    def _bound_depth(self, found: Walk) -> None:
        """A path is as long as its value is deep, and there may be one for every value."""
        depths: dict[int, int] = {}
        for node in found.nodes.values():
            chain = []
            current: Node | None = node
            while current is not None and id(current) not in depths:
                chain.append(current)
                current = current.parent
            depth = depths[id(current)] if current is not None else 0
            for above in reversed(chain):
                depth += 1
                depths[id(above)] = depth
        if max(depths.values(), default=0) > MOST_DEPTH:
            raise CannotRead(
                "is nested too deeply",
                where=str(self.path),
                expected=f"at most {MOST_DEPTH} containers inside each other",
                got=f"{max(depths.values()):,}",
            )

    def _bound_names(self, found: Walk) -> None:
        """Long keys above many tensors: a small file can ask for terabytes of paths."""
        total = 0
        for row in range(len(found.leaves)):
            total += sum(len(str(path)) for path in found.paths(row))
            if total > _MOST_NAME_CHARACTERS:
                raise CannotRead(
                    "has paths too long to write down",
                    where=str(self.path),
                    expected=f"at most {_MOST_NAME_CHARACTERS:,} characters of paths",
                    got="more, from long keys above many tensors",
                )


def unreferenced(pairs: Iterable[tuple[str, int]]) -> tuple[Unreferenced, ...]:
    """Largest first; entries without bytes are left out."""
    found = [Unreferenced(name, nbytes) for name, nbytes in pairs if nbytes]
    return tuple(sorted(found, key=lambda entry: (-entry.nbytes, entry.name)))
