"""Every exception and warning of truecopy.

    TruecopyError
    ├── UsageError          (ValueError)       an argument that means nothing here
    ├── CannotCopy          (TypeError, copy.Error)  a value whose copy has no meaning, or would share memory
    │   └── NonLeaf         (RuntimeError)     grad="error" met a tensor that autograd computed
    ├── NotIndependent      (AssertionError)   two values, or two parts of one, share bytes
    ├── StructureMismatch   (ValueError)       what was to be written into differs from what it should be
    ├── TornSnapshot        (RuntimeError)     a snapshot whose last update was cut off in the middle
    ├── NotEnoughMemory     (MemoryError)      more than there is was asked for; nothing was allocated
    ├── BrokenExpectation   (AssertionError)   a run passed a limit that tc.expect had set
    ├── WrittenTo           (RuntimeError)     watched memory is about to be written, or was
    ├── NotCaptured         (KeyError)         a name that was asked for and never seen, or not kept
    ├── CannotRead          (ValueError)       a file that is missing, damaged, hostile or not plain data
    └── CannotWrite         (ValueError)       a file that is not written, and nothing in its place

    TruecopyWarning         (UserWarning)
    ├── MemoryWritten       watched memory is about to be written, or was
    ├── Orphaned            an optimizer is copied without the model that it trains
    ├── PointsBack          something in a copy still refers to the original
    ├── StillShared         an object's own __deepcopy__ kept memory of the original
    └── TieLost             an object's own __deepcopy__ made anew what shares memory with its neighbors

Each says what, where, what was expected, what was got, and the way out:

    try:
        tc.copy(model)
    except tc.CannotCopy as error:
        print(error.where)      # a path that can be pasted: model.layers[3].lock
"""

from __future__ import annotations

import copy as _stdlib_copy


class TruecopyError(Exception):
    """Base of everything that truecopy raises on purpose."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        way_out: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.expected = expected
        self.got = got
        self.way_out = way_out
        super().__init__(what, where, expected, got, way_out)

    def __str__(self) -> str:
        lead = f"`{self.where}`: {self.what}" if self.where else self.what
        parts = [_sentence(lead)]
        if self.expected is not None:
            parts.append(_sentence(f"Expected {self.expected}"))
        if self.got is not None:
            parts.append(_sentence(f"Got {self.got}"))
        if self.way_out is not None:
            parts.append(_sentence(self.way_out))
        return " ".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders (DataLoader workers, pytest-xdist); keyword-only fields
        # do not by default.
        return _rebuild, (type(self), self.what, self.where, self.expected, self.got, self.way_out)


def _rebuild(
    cls: type[TruecopyError],
    what: str,
    where: str | None,
    expected: str | None,
    got: str | None,
    way_out: str | None,
) -> TruecopyError:
    return cls(what, where=where, expected=expected, got=got, way_out=way_out)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


class UsageError(TruecopyError, ValueError):
    """An argument that means nothing here."""


class CannotCopy(TruecopyError, TypeError, _stdlib_copy.Error):
    """A value whose copy has no meaning, or that could not be made without sharing memory."""


class NonLeaf(CannotCopy, RuntimeError):
    """`grad="error"` met a tensor that autograd computed."""


class NotIndependent(TruecopyError, AssertionError):
    """Two values, or two parts of one, have bytes in common."""


class StructureMismatch(TruecopyError, ValueError):
    """What was to be written into (by `into=`, by `restore`) differs; nothing was written."""


class TornSnapshot(TruecopyError, RuntimeError):
    """A snapshot whose last update was cut off in the middle: it holds some of each moment."""


class NotEnoughMemory(TruecopyError, MemoryError):
    """What was asked for does not fit into the memory that there is; nothing was allocated."""


class BrokenExpectation(TruecopyError, AssertionError):
    """A run passed a limit that `tc.expect` had set."""


class WrittenTo(TruecopyError, RuntimeError):
    """Memory that is watched is about to be written, or was written by what torch does not see."""


class NotCaptured(TruecopyError, KeyError):
    """A name that was asked for, and of which no value was seen."""


class CannotRead(TruecopyError, ValueError):
    """A file that is missing, damaged, hostile, or not plain data."""


class CannotWrite(TruecopyError, ValueError):
    """A file that was not written; what stood there before stands there still."""


class TruecopyWarning(UserWarning):
    """Base of everything that truecopy warns of."""


class MemoryWritten(TruecopyWarning):
    """Memory that is watched is about to be written, or was written by what torch does not see."""


class Orphaned(TruecopyWarning):
    """An optimizer is copied without the model whose parameters it trains."""


class PointsBack(TruecopyWarning):
    """Something in a copy still refers to the original, and copying cannot rebind it."""


class StillShared(TruecopyWarning):
    """An object's own `__deepcopy__` kept memory of the original; `deepcopy` honors it."""


class TieLost(TruecopyWarning):
    """An object's own `__deepcopy__` made anew what shares memory with something beside it."""
