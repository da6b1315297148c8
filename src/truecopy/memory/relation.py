"""How two values stand: one object, the same bytes, some bytes in common, or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from truecopy import _torch
from truecopy.errors import NotIndependent
from truecopy.memory.autograd import route
from truecopy.memory.counting import are_identical, count_common, count_reached
from truecopy.memory.groups import Table, partition, tabulate
from truecopy.memory.mappings import by_file
from truecopy.memory.overlap import are_lazy_siblings, common_span, overlaps
from truecopy.memory.region import Region, Unreadable
from truecopy.memory.sides import Side, side_of
from truecopy.structure.naming import name_of

RelationKind = Literal["same", "identical", "overlapping", "disjoint", "unknown"]

_MOST_PAIRS = 1000
"""Touching pairs that a relation of two structures lists; the count goes on."""

_MOST_TESTS = 1_000_000
"""Pairs that are tested one by one inside groups; views of thousands of pieces need more."""

_MOST_RUNS = 10_000
"""Pieces up to which the bytes in common of a listed pair are counted, the first pair aside."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two values, one from each side, that touch."""

    a: str
    b: str
    kind: RelationKind
    common_bytes: int | None  # None: too many pieces to count

    def to_json(self) -> dict[str, Any]:
        return {"a": self.a, "b": self.b, "kind": self.kind, "common_bytes": self.common_bytes}


@dataclass(frozen=True, slots=True)
class Relation:
    """How two values stand. `str(relation)` is one plain sentence."""

    kind: RelationKind
    why: str
    connected: bool = False
    flows: str | None = None  # "from b to a": the way that a gradient takes
    route: tuple[str, ...] = ()  # the autograd nodes between
    pairs: tuple[Pair, ...] = ()
    pair_count: int = 0

    @property
    def shares_memory(self) -> bool | None:
        """Whether a byte is in common; None where that cannot be told."""
        return None if self.kind == "unknown" else self.kind != "disjoint"

    def __str__(self) -> str:
        text = f"{self.kind}: {self.why}."
        if self.connected:
            nodes = " -> ".join(self.route) if self.route else "no node between"
            text += f" Gradient flows {self.flows} ({nodes})."
        return text

    def to_json(self) -> dict[str, Any]:
        """The record as plain data."""
        return {
            "kind": self.kind, "why": self.why, "shares_memory": self.shares_memory,
            "connected": self.connected, "flows": self.flows, "route": list(self.route),
            "pairs": [pair.to_json() for pair in self.pairs], "pair_count": self.pair_count,
        }  # fmt: skip


def relate(a: Any, b: Any) -> Relation:
    """How `a` and `b` stand: the same memory, some of it, or none, exact to the byte.

    Takes tensors, numpy arrays, arrays of other libraries, storages, and structures of them. A
    tensor stands for its own bytes, without its `.grad`. Allocates no tensor memory, returns no
    view, does not synchronize, and tells through `.connected` whether gradient flows.

    >>> import torch, truecopy as tc
    >>> a = torch.zeros(3, 4)
    >>> tc.relate(a, a[1]).kind
    'overlapping'
    >>> tc.relate(a, a.clone()).shares_memory
    False
    """
    return _relate(a, b, *_two_names(a, b))


def _relate(a: Any, b: Any, name_a: str, name_b: str) -> Relation:
    if a is b:
        return Relation("same", f"{name_a} and {name_b} are one object")
    side_a, side_b = side_of(a, name_a), side_of(b, name_b)
    relation = _of_sides(side_a, side_b)
    return _with_gradient(relation, side_a, side_b)


def assert_independent(a: Any, b: Any) -> None:
    """Raise NotIndependent if `a` and `b` have a byte in common, naming both paths.

    Also raises where that cannot be told: what is not known is not promised. Allocates no tensor
    memory, returns nothing, and says nothing of gradient.
    """
    require_independent(a, b, *_two_names(a, b))


def require_independent(a: Any, b: Any, name_a: str, name_b: str) -> None:
    """`assert_independent` for who knows what the values are called."""
    relation = _relate(a, b, name_a, name_b)
    if relation.kind == "disjoint":
        return
    if relation.kind == "same":
        pair: tuple[str, str] | None = (name_a, name_b)
        got = "one object"
    else:
        first = relation.pairs[0] if relation.pairs else None
        pair = (first.a, first.b) if first else None
        got = f"{_bytes(first.common_bytes)} in common" if first else "no answer"
    raise NotIndependent(
        relation.why,
        where=f"{pair[0]} and {pair[1]}" if pair else None,
        expected="no byte in common",
        got=got,
        way_out="Make one of them a copy: tc.copy(...)",
    )


def _bytes(count: int | None) -> str:
    if count is None:
        return "bytes in more pieces than are counted"
    return f"{count} {'byte' if count == 1 else 'bytes'}"


def _two_names(a: Any, b: Any) -> tuple[str, str]:
    name_a, name_b = name_of(a, "a"), name_of(b, "b")
    if a is b:
        return name_a, name_b
    return (name_a, name_b) if name_a != name_b else ("a", "b")


@dataclass(slots=True)
class _Touching:
    """Pairs with bytes in common, as they are found."""

    pairs: list[Pair] = field(default_factory=list)
    count: int = 0
    doubt: str | None = None  # why pairs may be missing


def _of_sides(a: Side, b: Side) -> Relation:
    table = by_file(tabulate([*a.leaves, *b.leaves]))
    found = _Touching()
    for i, j, first, second in _candidates(a, table, found):
        answer = overlaps(first, second)
        if answer is None:
            found.doubt = "their strides interleave in a way that takes too long to decide"
        elif answer:
            found.count += 1
            if len(found.pairs) < _MOST_PAIRS:
                most = _MOST_RUNS if found.pairs else None
                found.pairs.append(_pair(a, b, i, j - len(a.leaves), first, second, most))
    if not a.is_structure and not b.is_structure and len(table.values) == 2:
        return _of_two(str(a.path(0)), str(b.path(0)), table, found)
    return _of_many(a, b, table, found)


def _candidates(
    a: Side, table: Table, found: _Touching
) -> Iterator[tuple[int, int, Region, Region]]:
    """Pairs of rows, one from each side, whose spans meet."""
    middle, tests = len(a.leaves), 0
    for group in partition(table).shared:
        ours = [(row, table.region(row)) for row in group if row < middle]
        theirs = [(row, table.region(row)) for row in group if row >= middle]
        for i, first in ours:
            for j, second in theirs:
                assert isinstance(first, Region)
                assert isinstance(second, Region)
                if first.space[0] == "freed":
                    found.doubt = "views of a storage whose memory was freed"
                    continue
                tests += 1
                if tests > _MOST_TESTS:
                    found.doubt = f"more than {_MOST_TESTS} pairs of interleaved views"
                    return
                yield i, j, first, second


def _pair(
    a: Side, b: Side, i: int, j: int, first: Region, second: Region, most_runs: int | None
) -> Pair:
    kind: RelationKind = "identical" if are_identical(first, second) else "overlapping"
    if a.leaves[i] is b.leaves[j]:
        kind = "same"
    common = count_common(first, second, *(() if most_runs is None else (most_runs,)))
    return Pair(str(a.path(i)), str(b.path(j)), kind, common)


def _of_two(a: str, b: str, table: Table, found: _Touching) -> Relation:
    """Two plain values, with a sentence that tells where they meet."""
    first, second = table.region(0), table.region(1)
    for name, region in ((a, first), (b, second)):
        if isinstance(region, Unreadable):
            if region.proven_apart:
                return Relation("disjoint", f"{name} shares with nobody: {region.reason}")
            return Relation("unknown", f"the memory of {name} cannot be told: {region.reason}")
    assert isinstance(first, Region)
    assert isinstance(second, Region)
    if found.pairs:
        (pair,) = found.pairs
        why = _where_they_meet(a, b, pair, first, second)
        return Relation(pair.kind, why, pairs=(pair,), pair_count=1)
    if found.doubt:
        return Relation("unknown", f"whether {a} and {b} meet cannot be told: {found.doubt}")
    return Relation("disjoint", _why_apart(a, b, first, second))


def _where_they_meet(a: str, b: str, pair: Pair, first: Region, second: Region) -> str:
    low, high = common_span(first, second)
    base = first.storage_start if first.storage else first.span[0]
    stretch = f"{low - base} to {high - base} of the storage of {a}"
    if _is_file(first):
        stretch = f"{low} to {high} of a file that both map"
    whole = pair.common_bytes == high - low
    part = "some" if pair.common_bytes is None else pair.common_bytes
    where = f"bytes {stretch}" if whole else f"{part} of the bytes {stretch}"
    if pair.kind == "identical":
        return f"{b} and {a} reach the same {where}"
    if pair.common_bytes is not None and pair.common_bytes == count_reached([second]):
        return f"{b} is a view of {a}: both reach {where}"
    if pair.common_bytes is not None and pair.common_bytes == count_reached([first]):
        return f"{a} is a view of {b}: both reach {where}"
    return f"{a} and {b} meet in {where}"


def _why_apart(a: str, b: str, first: Region, second: Region) -> str:
    if first.is_empty or second.is_empty:
        return f"{a if first.is_empty else b} is empty and reaches no byte"
    if first.space != second.space:
        if "freed" in (first.space[0], second.space[0]):
            return f"{a if first.space[0] == 'freed' else b} has no memory: its storage was freed"
        if _is_file(first) or _is_file(second):
            return f"no byte of {b} is a byte of {a}"
        if first.space[0] != second.space[0]:
            return f"{a} and {b} are on different devices ({first.space[0]} and {second.space[0]})"
        return f"{a} and {b} are on different storages"
    if are_lazy_siblings(first, second):
        return (
            f"{a} and {b} are copy-on-write siblings: they share pages until one of them is written"
        )
    if first.storage is not None and first.storage == second.storage:
        return f"{a} and {b} are views of one storage that reach no common byte"
    return f"no byte of {b} is a byte of {a}"


def _is_file(region: Region) -> bool:
    return region.space[0].startswith("file ")


def _of_many(a: Side, b: Side, table: Table, found: _Touching) -> Relation:
    if found.count:
        return _of_touching(a, b, found)
    for name, side in ((a.name, a), (b.name, b)):
        if not side.leaves and not side.closed:
            return Relation("disjoint", f"{name} holds no tensor and no array")
    doubts = [
        region.reason
        for region in table.odd.values()
        if isinstance(region, Unreadable) and not region.proven_apart
    ]
    doubts += [found.doubt] if found.doubt else []
    doubts += (*a.closed, *b.closed)
    if doubts:
        why = (
            f"no value of {a.name} is known to touch {b.name}, but not all can be told: {doubts[0]}"
        )
        return Relation("unknown", why)
    return Relation("disjoint", f"no byte of {b.name} is a byte of {a.name}")


def _of_touching(a: Side, b: Side, found: _Touching) -> Relation:
    first, count = found.pairs[0], found.count
    alike = all(pair.kind in ("same", "identical") for pair in found.pairs)
    ours, theirs = {pair.a for pair in found.pairs}, {pair.b for pair in found.pairs}
    everything = len(ours) == len(a.leaves) and len(theirs) == len(b.leaves)
    common = f"{first.a} and {first.b} have {_bytes(first.common_bytes)} in common"
    if count > 1:
        common += f", and so have {count - 1} more {'pair' if count == 2 else 'pairs'} of values"
    kind: RelationKind = "identical" if alike and everything else "overlapping"
    return Relation(kind, common, pairs=tuple(found.pairs), pair_count=count)


def _with_gradient(relation: Relation, a: Side, b: Side) -> Relation:
    with _torch.disable_torch_function():
        for later, earlier in ((b, a), (a, b)):
            nodes = route(later.tensors, earlier.tensors)
            if nodes is not None:
                flows = f"from {later.name} to {earlier.name}"
                return replace(relation, connected=True, flows=flows, route=nodes)
    return relation
