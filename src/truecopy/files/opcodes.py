"""Pickles as opcodes: read by the standard library, and searched for what they would import."""

from __future__ import annotations

import os
import pickletools
import warnings
from collections.abc import Iterator
from typing import IO, Any, cast

from truecopy.files.plain_data import is_allowed

_LARGE = 1 << 16

_MOST_PICKLES = 4
"""In a file of the old format: its mark, its version, its machine, and then the object."""


def opcodes_of(file: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """Opcodes and arguments. A backslash in a name, which Python only warns of, is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for opcode, argument, _ in pickletools.genops(cast("IO[bytes]", _Bounded(file))):
            yield opcode.name, argument


class _Bounded:
    """A file that is never asked for more than it has: Python takes the memory before it reads."""

    def __init__(self, file: IO[bytes]) -> None:
        self.readline = file.readline
        self.tell = file.tell
        self._file = file
        place = file.tell()
        self._end = file.seek(0, os.SEEK_END)
        file.seek(place)

    def read(self, length: int) -> bytes:
        if length > _LARGE:
            length = min(length, self._end - self._file.tell())
        return self._file.read(length)


def names_its_code(file: IO[bytes]) -> str | None:
    """The first global that is not plain data, in pickles of any protocol behind each other."""
    try:
        for _ in range(_MOST_PICKLES):
            for module, name in _globals(file):
                if not is_allowed(tuple(module.split(".")), name):
                    return f"{module}.{name}"
    except (ValueError, Warning):
        return None
    return None


def _globals(file: IO[bytes]) -> Iterator[tuple[str, str]]:
    """What one pickle asks for; later protocols push the names as strings, and remember those."""
    strings: list[Any] = []
    memo: dict[int, Any] = {}
    for opcode, argument in opcodes_of(file):
        match opcode:
            case "GLOBAL" | "INST":
                module, _, name = argument.partition(" ")
                yield ("builtins" if module == "__builtin__" else module), name
            case "STACK_GLOBAL":
                yield (str(strings[-2]), str(strings[-1])) if len(strings) > 1 else ("", "")
            case "MEMOIZE":
                memo[len(memo)] = strings[-1] if strings else None
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = strings[-1] if strings else None
            case "BINGET" | "LONG_BINGET":
                strings.append(memo.get(argument))
            case _:
                strings.append(argument)
