"""What the caller calls a value, so that printed paths can be pasted where they are read."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Container
from types import FrameType
from typing import Any

_OWN_PACKAGE = __name__.partition(".")[0]


_FRAME_AND_US = 3
"""References to a snapshot of which `locals()` has handed out none: the frame's, ours, the call's."""


def caller_frame() -> FrameType | None:
    """The nearest frame outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while (
        frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _OWN_PACKAGE
    ):
        frame = frame.f_back
    return frame


def variables(frame: FrameType, listed: Container[int] = ()) -> list[tuple[str, Any]]:
    """The local variables of a frame, leaving the frame as it was.

    `listed` has the ids of objects that the caller holds in one list.
    """
    names = frame.f_locals
    held = list(names.items())
    is_snapshot = frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(names, dict)
    if is_snapshot and sys.getrefcount(names) <= _FRAME_AND_US + (id(names) in listed):
        # Up to Python 3.12 a function's f_locals is a snapshot that the frame keeps: left filled, it
        # would hold the caller's tensors beyond their `del`. It is refilled at the next look.
        names.clear()
    return held


def name_of(value: Any, default: str = "obj") -> str:
    """The variable that holds `value` where truecopy was called, or `default`."""
    frame = caller_frame()
    if frame is None:
        return default
    for names in (variables(frame), list(frame.f_globals.items())):
        for name, held in names:
            if held is value and name.isidentifier() and not name.startswith("_"):
                return name
    return default


def warn_caller(warning: Warning) -> None:
    """Warn at the line that called into this package, however many frames lie between."""
    frame: FrameType | None = sys._getframe(0)
    outside, level = caller_frame(), 1
    while frame is not None and frame is not outside:
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)
