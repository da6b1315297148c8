"""Places in source files: found in frames while the program runs, resolved when somebody reads.

While it runs, a place is a code object and an offset into it, nothing more. Which code is the user's is
decided once for each code object: all but torch's, Python's own library, and ours.
"""

from __future__ import annotations

import linecache
import sys
import sysconfig
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

import torch

from truecopy.tracing.facts import Site

OURS, LIBRARY, OPTIMIZER, CHECKPOINT, USER = range(5)
"""Kinds of code."""

Place = tuple[CodeType, int]
"""A code object, and the offset of an instruction in it."""

_TORCH = str(Path(torch.__file__).parent) + "/"
_OURS = str(Path(__file__).parents[1]) + "/"
_PYTHON = tuple(
    {sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib")}
)  # site-packages may be inside of it

KINDS: dict[int, int] = {}  # by identity: to hash a code object is to hash all that it does
_kept: list[CodeType] = []  # so that no identity is given out again


def kind_of_code(code: CodeType) -> int:
    """Whose code it is. Decided once."""
    kind = KINDS.get(id(code))
    if kind is None:
        _kept.append(code)
        kind = KINDS[id(code)] = kind_of_file(code.co_filename)
    return kind


def kind_of_file(file: str) -> int:
    """Whose code a file is."""
    if file.startswith(_TORCH):
        if file.startswith(_TORCH + "optim/") and not file.endswith("lr_scheduler.py"):
            return OPTIMIZER
        return CHECKPOINT if file == _TORCH + "utils/checkpoint.py" else LIBRARY
    if file.startswith(_OURS):
        return OURS
    if file.startswith("<frozen ") or (file.startswith(_PYTHON) and "/site-packages/" not in file):
        return LIBRARY
    return USER


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that runs code of the user."""
    kinds = KINDS
    while frame is not None:
        code = frame.f_code
        kind = kinds.get(id(code))
        if kind is None:
            kind = kind_of_code(code)
        if kind == USER:
            return frame
        frame = frame.f_back
    return None


def kinds_on_the_way(frame: FrameType | None) -> set[int]:
    """The kinds of all code that is running."""
    found = set()
    while frame is not None:
        found.add(kind_of_code(frame.f_code))
        frame = frame.f_back
    return found


def resolve(place: Place) -> Site:
    """A place as people read it: file, line, column and the text of the line."""
    code, offset = place
    file = code.co_filename
    line, end_line, column, end_column = next(
        islice(code.co_positions(), offset // 2, None), (None, None, None, None)
    )
    text = linecache.getline(file, line) if line else ""
    return Site(
        file,
        line or 0,
        end_line or line or 0,
        characters(file, line, column),
        characters(file, end_line, end_column),
        code.co_qualname,
        text.strip(),
    )


def characters(file: str, line: int | None, column: int | None) -> int:
    """The column in characters: Python counts columns in bytes of UTF-8."""
    if line is None or column is None:
        return -1
    text = linecache.getline(file, line).encode()
    return len(text[:column].decode(errors="replace")) if text else column


def caller_place() -> Place | None:
    """Where the user's code is that called us."""
    frame = user_frame(sys._getframe(1))
    return None if frame is None else (frame.f_code, frame.f_lasti)
