"""Two checkpoints set beside each other: the record, and how it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from truecopy.errors import UsageError
from truecopy.files.checkpoint import Checkpoint
from truecopy.files.elements import Tolerance
from truecopy.files.pairs import Difference, Pairs
from truecopy.memory.region import Region
from truecopy.records import Record


@dataclass(frozen=True, slots=True)
class Tie:
    """Values that share memory in one of the two, and where in the memory that they share."""

    paths: tuple[str, ...]
    offsets: tuple[int, ...]  # in bytes, from the first byte of the group

    def to_json(self) -> dict[str, Any]:
        return {"paths": list(self.paths), "offsets": list(self.offsets)}


@dataclass(frozen=True, slots=True)
class Comparison(Record):
    """Where two checkpoints differ."""

    a: str
    b: str
    formats: tuple[str, str]
    rtol: float
    atol: float
    compared: int  # values that stand in both
    differences: tuple[Difference, ...]  # worst first
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    ties_only_a: tuple[Tie, ...]
    ties_only_b: tuple[Tie, ...]
    layouts: tuple[Difference, ...]  # other strides of the same values: information, no finding
    unseen: tuple[str, ...] = ()

    kind = "comparison"

    @property
    def is_clean(self) -> bool:
        """Whether nothing differs that is more than layout in memory."""
        return not (
            self.differences or self.only_a or self.only_b or self.ties_only_a or self.ties_only_b
        )

    def body(self) -> dict[str, Any]:
        return {
            "a": self.a,
            "b": self.b,
            "formats": list(self.formats),
            "rtol": self.rtol,
            "atol": self.atol,
            "clean": self.is_clean,
            "compared": self.compared,
            "differences": [difference.to_json() for difference in self.differences],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "ties_only_a": [tie.to_json() for tie in self.ties_only_a],
            "ties_only_b": [tie.to_json() for tie in self.ties_only_b],
            "layouts": [difference.to_json() for difference in self.layouts],
            "unseen": list(self.unseen),
        }


def compare(a: Checkpoint, b: Checkpoint, *, rtol: float = 0.0, atol: float = 0.0) -> Comparison:
    """Set two checkpoints beside each other: values, types, names and ties.

    Without tolerances equal means equal bits. Reads every byte once, allocates a few pieces.
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not value >= 0 or math.isinf(value):
            raise UsageError(f"{name}={value} means nothing", expected="a number of 0 or more")
    pairs = Pairs(Tolerance(rtol, atol), same_kind=_family(a) == _family(b))
    pairs.run(a.obj, b.obj)
    both_see = set(a.names) & set(b.names)
    ties_a, ties_b = ties_of(a, both_see), ties_of(b, both_see)
    return Comparison(
        str(a.path), str(b.path), (a.kind, b.kind), rtol, atol, pairs.compared,
        tuple(sorted(pairs.differences, key=_worst_first)),
        tuple(pairs.only_a), tuple(pairs.only_b),
        tuple(tie for tie in ties_a if tie not in ties_b),
        tuple(tie for tie in ties_b if tie not in ties_a),
        tuple(pairs.layouts), (*a.unseen, *b.unseen),
    )  # fmt: skip


def _family(checkpoint: Checkpoint) -> str:
    """Kinds that can hold the same types; between others, types are not compared."""
    kinds = {"torch-legacy": "torch", "shards": "safetensors", "npy": "npz"}
    return kinds.get(checkpoint.kind, checkpoint.kind)


def _worst_first(difference: Difference) -> tuple[int, float, str]:
    order = ("type", "shape", "dtype", "length", "value", "values", "flags").index(difference.what)
    size = math.inf if difference.nan_in_one else float(difference.max_abs or 0)
    return order, -size, difference.path


def ties_of(checkpoint: Checkpoint, names: set[str]) -> list[Tie]:
    """Alias groups of two paths and more, as far as both checkpoints have their names."""
    walked, table = checkpoint.walked, checkpoint.table
    found = []
    for rows in _tied_rows(checkpoint):
        regions = {row: table.region(row) for row in rows}
        starts = {
            row: region.span[0] for row, region in regions.items() if isinstance(region, Region)
        }
        low = min(starts.values(), default=0)
        members = sorted(
            (str(path), starts.get(row, low) - low)
            for row in rows
            if str(walked.path(row)) in names
            for path in walked.paths(row)
        )
        if len(members) > 1:
            paths, offsets = zip(*members, strict=True)
            found.append(Tie(paths, offsets))
    return sorted(found, key=lambda tie: tie.paths)


def _tied_rows(checkpoint: Checkpoint) -> list[list[int]]:
    shared = checkpoint.partition.shared
    together = {row for group in shared for row in group}
    return [*shared, *([row] for row in checkpoint.walked.again if row not in together)]
