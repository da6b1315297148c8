"""Sizes as people write them: elements, bytes, powers of two, and ranges of these."""

from __future__ import annotations

import re
from collections.abc import Callable

from truecopy.errors import UsageError

Size = int | str

DEFAULT_SIZES: tuple[Size, ...] = ("1KiB", "1MiB", "16MiB")

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"(?:(\d+)\^)?(\d+)(B|KiB|MiB|GiB)?")
_MOST_POWERS = 48


def elements_of(size: Size, itemsize: int, most: Callable[[], int]) -> list[int]:
    """Numbers of elements that a size names: `1024`, `2^10`, `16MiB` (of memory), `2^0..2^20`, `2^0..`.

    A range goes by powers of two; one without an end goes on to `most()`.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        if size < 1:
            raise _bad_size(size)
        return [size]
    if not isinstance(size, str):
        raise _bad_size(size)
    first, dots, last = size.replace(" ", "").partition("..")
    least = _number(first, itemsize, size)
    if not dots:
        return [least]
    end = _number(last, itemsize, size) if last else most()
    if end < least:
        raise _bad_size(size)
    return [least << power for power in range(_MOST_POWERS) if least << power <= end]


def _number(text: str, itemsize: int, whole: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise _bad_size(whole)
    base, number, unit = found.groups()
    if base is not None and int(number) > 64:
        raise _bad_size(whole)
    value = int(number) if base is None else int(base) ** int(number)
    if unit is not None:
        value = value * _UNITS[unit] // itemsize
    if value < 1:
        raise _bad_size(whole)
    return value


def _bad_size(size: object) -> UsageError:
    return UsageError(
        f"{size!r} is no size",
        expected="elements, 1 or more (1024, 2^10), bytes (16MiB), or a range (2^0..2^20, 2^0..)",
        got=repr(size),
    )
