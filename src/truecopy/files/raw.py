"""The bytes of tensors written to a file, without a copy of them in between."""

from __future__ import annotations

import ctypes
from typing import IO

import torch

from truecopy import _torch

CODES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.uint16: "U16",
    torch.int32: "I32", torch.uint32: "U32", torch.int64: "I64", torch.uint64: "U64",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64",
    torch.complex64: "C64", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float8_e8m0fnu: "F8_E8M0",
}  # fmt: skip
"""What safetensors calls the dtypes that it knows."""


def dense_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor on the CPU, contiguous, its conjugate and negative bits resolved. Itself where it is so."""
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def write_bytes(file: IO[bytes], dense: torch.Tensor) -> None:
    """Write the bytes of a contiguous CPU tensor. Allocates nothing.

    By its address: `numpy()` would mark the storage for good, and make the copy of a lazy one.
    """
    if dense.nbytes:
        start = _torch.storage_address(dense) + int(dense.storage_offset()) * dense.itemsize
        file.write((ctypes.c_char * dense.nbytes).from_address(start))
