"""Files and shared memory that a process maps more than once: the same bytes at two addresses.

Two `np.memmap` of one file lie at different addresses, and yet what is written through one is read
through the other. Linux lists the mappings in /proc/self/maps; elsewhere addresses are all we know.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.memory.groups import Table
from truecopy.memory.reading import base_of, owner_of
from truecopy.memory.region import CPU, Region

_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True)
class Mapping:
    """Addresses at which a file's bytes are seen, and changed, by all who map it."""

    start: int
    end: int
    file: str  # device and inode
    offset: int


def by_file(table: Table) -> Table:
    """The table, with rows that lie in a file that is mapped twice told by their place in the file."""
    with _torch.disable_torch_function():
        if sum(map(_may_be_mapped, table.values)) < 2:
            return table
    mappings = _mapped_twice()
    if not mappings:
        return table
    found = Table(table.values, table.low.copy(), table.high.copy(), dict(table.odd))
    for row in range(len(table.values)):
        region = table.region(row)
        if isinstance(region, Region) and (moved := _in_file(region, mappings)) is not None:
            found.odd[row] = moved
            found.low[row], found.high[row] = moved.span
    return found


def _may_be_mapped(value: Any) -> bool:
    """Whether memory may be a mapping: not so if torch or numpy took it from the system themselves."""
    if isinstance(value, torch.Tensor):
        try:
            storage = value.untyped_storage()
            return storage.device.type == "cpu" and (storage.is_shared() or bool(storage.filename))
        except (NotImplementedError, RuntimeError):
            return False
    if isinstance(value, np.ndarray):
        return base_of(owner_of(value)) is not None
    return True


def _mapped_twice() -> list[Mapping]:
    """Shared mappings of files that have more than one, by address."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return []
    found = [mapping for line in lines if (mapping := _shared_mapping(line)) is not None]
    files = [mapping.file for mapping in found]
    return [mapping for mapping in found if files.count(mapping.file) > 1]


def _shared_mapping(line: str) -> Mapping | None:
    addresses, permissions, offset, device, inode = line.split(maxsplit=5)[:5]
    if permissions[3] != "s" or inode == "0":
        return None
    start, _, end = addresses.partition("-")
    return Mapping(int(start, 16), int(end, 16), f"{device} {inode}", int(offset, 16))


def _in_file(region: Region, mappings: list[Mapping]) -> Region | None:
    low, high = region.span
    place = bisect_right([mapping.start for mapping in mappings], low) - 1
    if region.space != CPU or low == high or place < 0:
        return None
    mapping = mappings[place]
    if high > mapping.end:
        return None
    move = mapping.offset - mapping.start
    return replace(
        region,
        space=(f"file {mapping.file}", 0),
        start=region.start + move,
        storage=None,
        storage_start=0,
    )
