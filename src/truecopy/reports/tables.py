"""Sizes, counts and tables as text of a fixed width: what reports of every kind are made of."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from truecopy.files.text import printable, shorten

MOST_ROWS = 20
_LONGEST_PARAGRAPH = 300
_LEAST_WORD, _LEAST_LAST = 8, 30  # characters of a column of words, and of the last, that stay
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def size(nbytes: int) -> str:
    """Bytes as people read them: `12 bytes`, `4.0 MiB`."""
    if nbytes < 1024:
        return count(nbytes, "byte")
    value = float(nbytes)
    for unit in _UNITS:
        value /= 1024
        if value < 1023.95 or unit == _UNITS[-1]:
            return f"{value:,.1f} {unit}"
    raise AssertionError("the last unit takes everything")


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun: `1 copy`, `2 copies`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def number(value: float) -> str:
    """A number that may be an average: three digits of it, and all of a large one."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def share(part: int, whole: int) -> str:
    """A part in percent that never says 0 of something, nor 100 of less than all."""
    percent = 100 * part / whole if whole else 0.0
    if part and percent < 0.1:
        return "less than 0.1 %"
    if part < whole and percent > 99.9:
        return "more than 99.9 %"
    return f"{percent:.1f} %"


# --- tables ---------------------------------------------------------------------------------------


def section(
    title: str,
    rows: Sequence[Any],
    cells: Callable[[Any], tuple[str, ...]],
    width: int,
    total: int | None = None,
    header: tuple[str, ...] | None = None,
) -> list[str]:
    """A titled table of the first rows, the last column last to be cut; nothing where no rows are."""
    if not rows:
        return []
    shown = [tuple(map(printable, cells(row))) for row in rows[:MOST_ROWS]]
    more = (len(rows) if total is None else total) - len(shown)
    lines = ["", title, *_table(shown, width, header)]
    if more > 0:
        lines.append(f"  ... and {more:,} more")
    return lines


def paragraph(text: str, width: int, indent: int) -> list[str]:
    """Prose in lines that fit, its names made safe to print."""
    safe = shorten(printable(text), _LONGEST_PARAGRAPH)
    margin = " " * indent
    return textwrap.wrap(safe, width, initial_indent=margin, subsequent_indent=margin)


def _table(
    rows: Sequence[tuple[str, ...]], width: int, header: tuple[str, ...] | None = None
) -> Iterable[str]:
    """Columns side by side; numbers and what stands above them to the right, the last column cut."""
    if header is not None:
        above = [_is_number(cell) for cell in rows[0]]
        rows = [header, *rows]
    last = len(rows[0]) - 1
    widths = [max(len(row[i]) for row in rows) for i in range(last)]
    widths = [min(w, max(12, width // 2)) for w in widths]
    room = width - 2 - 2 * last
    longest = max(len(row[last]) for row in rows)
    words = [
        i for i in range(last) if not all(_is_number(row[i]) for row in rows if row is not header)
    ]
    _narrow(widths, words, room - min(longest, _LEAST_LAST))
    left = max(_LEAST_WORD, room - sum(widths))
    for row in rows:
        to_right = above if row is header else [_is_number(cell) for cell in row]
        cells = [
            cell.rjust(w) if right else shorten(cell, w).ljust(w)
            for cell, w, right in zip(row, widths, to_right, strict=False)
        ]
        yield "  " + "  ".join([*cells, shorten(row[last], left)])


def _narrow(widths: list[int], words: Sequence[int], room: int) -> None:
    """Take from the widest columns of words, in turn, until all columns fit: numbers stay whole."""
    while sum(widths) > room and words:
        widest = max(words, key=lambda i: widths[i])
        if widths[widest] <= _LEAST_WORD:
            return
        widths[widest] -= 1


def _is_number(cell: str) -> bool:
    """Whether a cell is a size, a count or a shape: prose that begins with a digit is not."""
    first, _, unit = cell.partition(" ")
    return first[:1].isdigit() and unit in ("", "byte", "bytes", *_UNITS)


def name_all(paths: Sequence[str]) -> str:
    """The first paths to one thing, and the number of the others."""
    shown = [shorten(path, 60) for path in paths[:4]]
    more = len(paths) - len(shown)
    return " = ".join(shown) + (f" ... and {more:,} more" if more else "")
