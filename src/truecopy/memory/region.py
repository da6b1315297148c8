"""The exact set of bytes that a tensor reaches, as numbers alone."""

from __future__ import annotations

from dataclasses import dataclass

Space = tuple[str, int]
"""Where addresses mean something: ("cpu", 0), ("cuda", 1), or one storage that has no address."""

CPU: Space = ("cpu", 0)


@dataclass(frozen=True, slots=True)
class Region:
    """The bytes at `start + sum(index * stride)`, `itemsize` of them each, for every index."""

    space: Space
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    itemsize: int
    storage: tuple[int, int] | None = (
        None  # identity of the storage and its size in bytes, if known
    )
    storage_start: int = 0
    lazy: bool = False  # copy-on-write: pages may be shared with another storage until one writes

    @property
    def is_empty(self) -> bool:
        """Whether no byte is reached."""
        return 0 in self.shape or self.itemsize == 0

    @property
    def span(self) -> tuple[int, int]:
        """First byte reached, and the byte after the last."""
        if self.is_empty:
            return self.start, self.start
        low = high = self.start
        for length, stride in zip(self.shape, self.strides, strict=True):
            if stride < 0:
                low += (length - 1) * stride
            else:
                high += (length - 1) * stride
        return low, high + self.itemsize

    @property
    def unique(self) -> Region:
        """The same bytes without the dimensions that only repeat them."""
        kept = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1 and s != 0]
        if len(kept) == len(self.shape) or self.is_empty:
            return self
        return Region(
            self.space, self.start, tuple(n for n, _ in kept), tuple(s for _, s in kept),
            self.itemsize, self.storage, self.storage_start, self.lazy,
        )  # fmt: skip

    @property
    def nominal_bytes(self) -> int:
        """Bytes that a dense copy of every element would take."""
        total = self.itemsize
        for length in self.shape:
            total *= length
        return total

    @property
    def is_dense(self) -> bool:
        """Whether every byte of the span is reached."""
        low, high = self.span
        if self.unique.nominal_bytes < high - low:
            return False
        reach = self.itemsize
        for stride, length in sorted((abs(s), n) for s, n in _pairs(self.unique)):
            if stride > reach:
                return False
            reach += stride * (length - 1)
        return True

    @property
    def repeats_itself(self) -> bool:
        """Whether two indices may meet in one byte, dimensions of stride 0 aside.

        Where strides interleave without meeting it says True as well; all that follows from it is
        that a copy keeps the layout as it is.
        """
        reach = self.itemsize
        for stride, length in sorted((abs(s), n) for s, n in _pairs(self.unique)):
            if stride < reach:
                return True
            reach += stride * (length - 1)
        return False

    @property
    def canonical(self) -> tuple[int, int, tuple[tuple[int, int], ...]]:
        """Start, run length and steps, equal for two regions that reach the same bytes.

        Dimensions are sorted and joined where they continue each other, so that a tensor, its
        transpose and its flat view are one. Exact where no byte is reached twice.
        """
        start, run = self.span[0], self.itemsize
        steps: list[tuple[int, int]] = []
        for stride, length in sorted((abs(s), n) for s, n in _pairs(self.unique)):
            if not steps and stride == run:
                run *= length
            elif steps and stride == steps[-1][0] * steps[-1][1]:
                steps[-1] = (steps[-1][0], steps[-1][1] * length)
            else:
                steps.append((stride, length))
        return start, run, tuple(steps)

    def moved(self, start: int) -> Region:
        """The same layout elsewhere."""
        return Region(self.space, start, self.shape, self.strides, self.itemsize)


def _pairs(region: Region) -> list[tuple[int, int]]:
    if region.is_empty:
        return []
    return [(s, n) for n, s in zip(region.shape, region.strides, strict=True)]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value whose memory cannot be told, and why."""

    reason: str
    proven_apart: bool = False  # it has no bytes that another value could share
