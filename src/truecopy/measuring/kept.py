"""A snapshot as a destination that is kept: how it is filled, and how one sees what it holds."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from truecopy.copying.api import copy
from truecopy.measuring.works import each_byte_once, leaves
from truecopy.snapshots.snapshot import Snapshot


class KeptSnapshot:
    """A snapshot of one source. It gives out nothing of what it keeps: it puts it back."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._snapshot = Snapshot({"source": source})

    def update(self) -> None:
        """Take over what the source holds now."""
        self._snapshot.update()

    def read(self) -> Any:
        """A copy of what comes back into the source when every element of it has been overwritten.

        So bytes that were shared with the source, and not kept, show as other values. The source is
        afterwards as it was.
        """
        written = [_writable(leaf) for leaf in leaves(self._source)]
        before = [tensor.clone() for tensor in written]
        for tensor in written:
            tensor.copy_(tensor == 0)  # no element stays what it is
        self._snapshot.restore()
        found = copy(self._source, alias="whole")
        for tensor, was in zip(written, before, strict=True):
            tensor.copy_(was)
        return found


def _writable(leaf: Tensor) -> Tensor:
    return leaf.detach()[each_byte_once(leaf.stride())]
