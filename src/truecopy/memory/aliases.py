"""Who shares with whom inside one structure, and how many bytes nobody reaches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from truecopy.memory.counting import count_reached
from truecopy.memory.groups import Partition, Table, partition, tabulate_to_compare
from truecopy.memory.region import Region
from truecopy.records import Record
from truecopy.structure.naming import name_of
from truecopy.structure.walk import Walk, walk


class AliasGroup:
    """Values that share at least one byte, directly or through others. Spelled out when asked."""

    def __init__(self, walked: Walk, table: Table, rows: list[int], decided: bool) -> None:
        self._walk = walked
        self._table = table
        self._rows = rows
        self.decided = (
            decided  # False: too many interleaved views to test; the members are only near
        )

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Every path to every member."""
        return tuple(str(path) for row in self._rows for path in self._walk.paths(row))

    @cached_property
    def reached_bytes(self) -> int | None:
        """Bytes that at least one member reaches; None where there are too many pieces to count."""
        return count_reached(self._regions)

    @cached_property
    def span_bytes(self) -> int:
        """Bytes from the first that is reached to the last."""
        spans = [region.span for region in self._regions if not region.is_empty]
        return max((end for _, end in spans), default=0) - min((low for low, _ in spans), default=0)

    @cached_property
    def storage_bytes(self) -> int:
        """Bytes of the storages that the members lie in."""
        return sum(end - start for start, end, _ in _blocks(self._regions))

    @cached_property
    def _regions(self) -> list[Region]:
        found = map(self._table.region, self._rows)
        return [region for region in found if isinstance(region, Region)]

    def to_json(self) -> dict[str, Any]:
        """The group as plain data."""
        return {
            "paths": list(self.paths),
            "reached_bytes": self.reached_bytes,
            "span_bytes": self.span_bytes,
            "storage_bytes": self.storage_bytes,
            "decided": self.decided,
        }

    def __repr__(self) -> str:
        return f"<AliasGroup of {', '.join(self.paths[:3])}{', ...' * (len(self.paths) > 3)}>"


@dataclass(frozen=True, slots=True)
class StorageUse:
    """One storage, and how much of it the structure reaches."""

    paths: tuple[str, ...]
    nbytes: int
    reached_bytes: int | None

    @property
    def unreached_bytes(self) -> int:
        """Bytes that no value of the structure reaches, where they could be counted."""
        return 0 if self.reached_bytes is None else max(self.nbytes - self.reached_bytes, 0)

    def to_json(self) -> dict[str, Any]:
        return {
            "paths": list(self.paths), "nbytes": self.nbytes, "reached_bytes": self.reached_bytes,
            "unreached_bytes": self.unreached_bytes,
        }  # fmt: skip


class Aliases(Record):
    """Who shares with whom in a structure. A record: looked at once, spelled out when asked."""

    def __init__(self, walked: Walk, grouped: Partition) -> None:
        self._walk = walked
        self._partition = grouped

    @cached_property
    def groups(self) -> tuple[AliasGroup, ...]:
        """Groups in which something is shared: values with bytes in common, or one value met twice."""
        rows = [*self._partition.shared, *([row] for row in self._met_again())]
        return tuple(self._group(group) for group in sorted(rows, key=lambda group: group[0]))

    @cached_property
    def alone(self) -> tuple[AliasGroup, ...]:
        """Values that share with nobody, a group each."""
        again = set(self._met_again())
        return tuple(self._group([row]) for row in self._partition.alone() if row not in again)

    @cached_property
    def storages(self) -> tuple[StorageUse, ...]:
        """Every storage that the structure reaches, the one with most unreached bytes first."""
        rows = [
            row
            for row in range(self.tensors)
            if isinstance(region := self._partition.table.region(row), Region)
            and region.space[0] != "meta"
        ]
        uses = [
            self._use(end - start, sorted(rows[i] for i in members))
            for start, end, members in _blocks(self._regions(rows))
        ]
        return tuple(sorted(uses, key=lambda use: (-use.unreached_bytes, -use.nbytes)))

    @cached_property
    def unknown(self) -> tuple[tuple[str, str], ...]:
        """Paths of values whose memory cannot be told, with the reason."""
        odd = self._partition.table.odd
        return tuple(
            (str(self._walk.path(row)), region.reason)
            for row, region in odd.items()
            if not isinstance(region, Region)
        )

    @property
    def tensors(self) -> int:
        """How many values hold memory."""
        return len(self._walk.leaves)

    @cached_property
    def reached_bytes(self) -> int:
        """Bytes that the structure reaches, each counted once; pieces too many to count left out."""
        return sum(use.reached_bytes or 0 for use in self.storages)

    @cached_property
    def storage_bytes(self) -> int:
        """Bytes of all storages that the structure keeps alive."""
        return sum(use.nbytes for use in self.storages)

    @property
    def unreached_bytes(self) -> int:
        """Bytes kept alive that nobody reaches."""
        return sum(use.unreached_bytes for use in self.storages)

    kind = "aliases"

    def body(self) -> dict[str, Any]:
        return {
            "tensors": self.tensors,
            "groups": [group.to_json() for group in self.groups],
            "storages": [use.to_json() for use in self.storages],
            "unknown": [list(pair) for pair in self.unknown],
            "reached_bytes": self.reached_bytes,
            "storage_bytes": self.storage_bytes,
            "unreached_bytes": self.unreached_bytes,
        }

    def __repr__(self) -> str:
        return f"<Aliases of {self._walk.name}: {self.tensors} values, {len(self.groups)} groups share>"

    def _met_again(self) -> Iterable[int]:
        if not self._walk.again:
            return []
        together = {row for group in self._partition.shared for row in group}
        return [row for row in self._walk.again if row not in together]

    def _regions(self, rows: Iterable[int]) -> list[Region]:
        found = (self._partition.table.region(row) for row in rows)
        return [region for region in found if isinstance(region, Region)]

    def _group(self, rows: list[int]) -> AliasGroup:
        found = self._partition
        return AliasGroup(self._walk, found.table, rows, rows[0] not in found.undecided)

    def _use(self, nbytes: int, rows: list[int]) -> StorageUse:
        paths = tuple(str(self._walk.path(row)) for row in rows)
        return StorageUse(paths, nbytes, count_reached(self._regions(rows)))


def _blocks(regions: Iterable[Region]) -> list[tuple[int, int, list[int]]]:
    """Start and end of each block of memory, and which regions lie in it.

    By address, since numpy and torch keep storages of their own on the same memory.
    """
    found: list[tuple[int, int, list[int]]] = []
    placed = [(region.space, *_extent(region), i) for i, region in enumerate(regions)]
    space = None
    for own_space, start, end, i in sorted(placed):
        if start == end:
            continue
        if found and own_space == space and start < found[-1][1]:
            low, high, members = found[-1]
            members.append(i)
            found[-1] = (low, max(high, end), members)
        else:
            found.append((start, end, [i]))
        space = own_space
    return found


def _extent(region: Region) -> tuple[int, int]:
    """The whole storage of a region, or its span where no storage is known."""
    if region.storage is None:
        return region.span
    start = 0 if region.space[0] in ("meta", "freed") else region.storage_start
    return start, start + region.storage[1]


def aliases(obj: Any) -> Aliases:
    """Who shares memory with whom inside `obj`: any structure, attributes, `.grad` and all.

    Allocates no tensor memory, returns no view, does not synchronize, says nothing of gradient.

    >>> import torch, truecopy as tc
    >>> x = torch.zeros(4)
    >>> [group.paths for group in tc.aliases({"x": x, "head": x[:2], "own": torch.ones(2)}).groups]
    [("obj['x']", "obj['head']")]
    """
    walked = walk(obj, name_of(obj))
    return Aliases(walked, partition(tabulate_to_compare(walked)))
