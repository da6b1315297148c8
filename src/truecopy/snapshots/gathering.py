"""Many small pieces of one stretch of memory, moved by a single call of numpy each way.

In: addresses of small leaves that lie close together, as an allocator puts down what is born in a row.
Out: a `Gathering`, which fetches their bytes into a buffer and brings them back. It owns no memory of
theirs; whoever uses it has just seen that they are where they were.

numpy must never take the whole stretch for its own: it would, if a buffer of ours lay inside. So a
stretch has no gap in which one would fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

UNIT = 64
"""Bytes that are moved at once: torch's own allocator aligns to it."""

LONGEST = 4 << 10
"""Bytes of a leaf from which on one call for it costs less than a list of its units."""

_GAP = 4 << 10
"""A buffer of ours has as many bytes or more, and every page of a stretch is in use by a leaf."""

_FEWEST = 512  # units: the list of them, and the bytes, are larger than a gap


@dataclass(frozen=True, slots=True)
class Gathering:
    """Leaves of one stretch of memory, and where they are kept, in a row."""

    live: np.ndarray[Any, Any]  # the whole stretch, in units
    units: np.ndarray[Any, Any]  # those of the leaves, in the order in which they are kept
    kept: np.ndarray[Any, Any]

    @classmethod
    def of(cls, addresses: Sequence[int], sizes: Sequence[int], kept: memoryview) -> Gathering:
        """For leaves in the order of their addresses, none of them twice."""
        start = addresses[0]
        count = (addresses[-1] + sizes[-1] - start) // UNIT
        units = np.concatenate(
            [
                np.arange((address - start) // UNIT, (address + nbytes - start) // UNIT)
                for address, nbytes in zip(addresses, sizes, strict=True)
            ]
        ).astype(np.intp)
        stretch = np.asarray(_Memory(start, count))
        return cls(stretch, units, np.frombuffer(kept, f"V{UNIT}"))

    def fetch(self) -> None:
        """The bytes of the leaves into the buffer."""
        # "clip": with "raise", numpy would fill a buffer of its own first. No unit is out of bounds.
        self.live.take(self.units, out=self.kept, mode="clip")

    def bring_back(self) -> None:
        """The bytes of the buffer into the leaves, and nothing in between."""
        self.live.put(self.units, self.kept, mode="clip")


class _Memory:
    """Some memory of this process, as numpy asks for it."""

    def __init__(self, address: int, units: int) -> None:
        self.__array_interface__ = {
            "data": (address, False), "shape": (units,), "typestr": f"|V{UNIT}", "version": 3,
        }  # fmt: skip


def stretches(addresses: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Places of leaves that can be gathered, each stretch in the order of addresses."""
    fitting = [
        place
        for place, (address, nbytes) in enumerate(zip(addresses, sizes, strict=True))
        if 0 < nbytes < LONGEST and not address % UNIT and not nbytes % UNIT
    ]
    stretch: list[int] = []
    end, units = 0, 0
    for place in sorted(fitting, key=addresses.__getitem__):
        if stretch and not 0 <= addresses[place] - end < _GAP:
            if units >= _FEWEST:
                yield stretch
            stretch, units = [], 0
        stretch.append(place)
        end = addresses[place] + sizes[place]
        units += sizes[place] // UNIT
    if units >= _FEWEST:
        yield stretch
