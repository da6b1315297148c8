"""A file for values that memory has no room for: written once, mapped when somebody reads them.

The file has no name, so it is gone with the capture, whatever ends the process. Its pages belong to the
file, not to the process: the system takes them back when it needs them.
"""

from __future__ import annotations

import tempfile
from typing import IO

import numpy as np
import torch
from torch import Tensor

from truecopy.files.raw import dense_bytes, write_bytes

_ALIGNED = 64
"""Bytes at whose multiples values begin, as torch's own allocator has it."""


class SpillFile:
    """Where the bytes of values go. Opened when the first value comes."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self.nbytes = 0

    def put(self, tensor: Tensor) -> Tensor:
        """A tensor with the same values, mapped from the file. Allocates nothing for dense ones."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="truecopy-capture-")  # noqa: SIM115 - kept open
        dense = dense_bytes(tensor)
        start = self.nbytes
        self._file.seek(start)
        write_bytes(self._file, dense)
        self._file.flush()
        self.nbytes = -(-(start + dense.nbytes) // _ALIGNED) * _ALIGNED
        return self._mapped(start, dense)

    def _mapped(self, start: int, like: Tensor) -> Tensor:
        if not like.nbytes:
            return torch.empty_like(like)
        pages = np.memmap(self._file, np.uint8, "c", start, (like.nbytes,))  # type: ignore[call-overload]
        return torch.from_numpy(pages).view(like.dtype).view(like.shape)
