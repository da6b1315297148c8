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

_PIECE = 4 << 20
"""Bytes that are compared in one go."""


class SpillFile:
    """Where the bytes of values go. Opened when the first value comes."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self.nbytes = 0

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()  # mappings keep the file alive for themselves

    def put(self, tensor: Tensor) -> tuple[int, Tensor]:
        """Where the bytes went, and the values mapped from there. Allocates nothing for dense ones."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="truecopy-capture-")  # noqa: SIM115 - kept open
        dense = dense_bytes(tensor)
        start = self.nbytes
        self._file.seek(start)
        write_bytes(self._file, dense)
        self._file.flush()
        self.nbytes = -(-(start + dense.nbytes) // _ALIGNED) * _ALIGNED
        return start, self._mapped(start, dense)

    def has(self, start: int, dense: Tensor) -> bool:
        """Whether the bytes at a place are those of a dense tensor.

        Read and not mapped: pages of a mapping count as the process's own while they are there.
        """
        if self._file is None:
            return False
        flat = dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)
        self._file.seek(start)
        for begin in range(0, flat.numel(), _PIECE):
            piece = flat[begin : begin + _PIECE]
            kept = torch.frombuffer(bytearray(self._file.read(piece.numel())), dtype=torch.uint8)
            if not torch.equal(kept, piece):
                return False
        return True

    def _mapped(self, start: int, like: Tensor) -> Tensor:
        if not like.nbytes:
            return torch.empty_like(like)
        pages = np.memmap(self._file, np.uint8, "c", start, (like.nbytes,))  # type: ignore[call-overload]
        return torch.from_numpy(pages).view(like.dtype).view(like.shape)
