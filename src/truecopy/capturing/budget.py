"""How much may be kept in memory, and what becomes of values for which there is no room.

The bound is on the bytes that a capture holds, told before it begins, and it is hard: what would exceed it
is never allocated first. A block that is still shared with the model counts as if it were a copy, since it
would be one as soon as the model writes or lets go.
"""

from __future__ import annotations

import ctypes
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, get_args

from truecopy.errors import UsageError

Over = Literal["spill", "lower", "stats", "stop"]
"""What becomes of a value beyond the budget: it goes to a file and is mapped from there; it is kept in
bfloat16, and as statistics where that is too much; it is kept as statistics; nothing more is kept."""

_MOST_SCATTERED = 32 << 20
"""Bytes of values without room, after which free memory is given back."""

_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{binary}b": (1024 if binary else 1000) ** power
    for power, prefix in enumerate("kmgtp", start=1)
    for binary in ("", "i")
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


@dataclass(slots=True)
class Budget:
    """A bound in bytes, what was promised for values beyond it, and how much of it is used."""

    most: int | None = None
    over: Over = "spill"
    used: int = 0
    refused: int = 0  # bytes, since memory that is free was last given back to the system

    @classmethod
    def checked(cls, budget: int | str | None, over: Over) -> Budget:
        """The budget that the user means. Raises UsageError for anything else."""
        if over not in get_args(Over):
            raise UsageError(
                f"over={over!r} means nothing", expected=" or ".join(map(repr, get_args(Over)))
            )
        return cls(None if budget is None else bytes_of(budget), over)

    def takes(self, nbytes: int) -> bool:
        """Whether there is room for so many bytes; they are then counted."""
        if self.most is not None and self.used + nbytes > self.most:
            self.refused += nbytes
            if self.refused > _MOST_SCATTERED:
                self.refused = 0
                _give_back()
            return False
        self.used += nbytes
        return True


def bytes_of(size: int | str) -> int:
    """A number of bytes, written as people write it: 4096, "512 MiB", "2 GiB"."""
    if type(size) is int and size >= 0:
        return size
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    unit = None if found is None else _UNITS.get(found[2].lower())
    if found is None or unit is None:
        raise UsageError(
            f"{size!r} is no size", expected='bytes, or text such as "512 MiB" or "2 GiB"'
        )
    return int(float(found[1]) * unit)


def _give_back() -> None:
    """Give free memory back to the system, where the C library can.

    What is kept of a value is small and lives long. It is put into the gap that the value's activation
    left, where the next activation then does not fit: the process would grow as if all were kept.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
