"""What is to be kept, by name, and how: checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from truecopy.copying.options import Options
from truecopy.errors import UsageError
from truecopy.snapshots.contents import Keeper
from truecopy.structure.kinds import Kind, kind_of

Only = Literal["trainable"] | str | Iterable[str] | Callable[[str], bool]

OPTIONS = frozenset(("rng", "only", "device", "dtype", "mode", "keep", "nan"))
"""What a keyword may mean beside a source; a mapping takes any name."""

_HELD_BY_VALUE = frozenset((Kind.ATOM, Kind.FUNCTION, Kind.METHOD, Kind.WEAKREF, Kind.HANDLE))


def named(sources: Mapping[str, Any] | None, by_keyword: Mapping[str, Any]) -> dict[str, Any]:
    """All sources by name, in the order in which they were given."""
    if sources is not None and not isinstance(sources, Mapping):
        raise UsageError(
            "the sources have no names",
            expected="keywords, such as model=model, or a mapping of names to sources",
            got=f"a {type(sources).__name__}",
            way_out=f"Write model=... or {{'model': ...}} around the {type(sources).__name__}",
        )
    given = {**(sources or {})}
    for name in given:
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"{name!r} is no name of a source", expected="a text that is not empty"
            )
    for name, value in by_keyword.items():
        if name in OPTIONS:
            raise _is_option(name)
        if name in given:
            raise UsageError(f"{name!r} is named twice", expected="each source under one name")
        given[name] = value
    if not given:
        raise UsageError(
            "there is nothing to keep", expected="sources by name, such as model=model"
        )
    for name, value in given.items():
        if kind_of[type(value)] in _HELD_BY_VALUE or isinstance(value, Keeper):
            raise UsageError(
                f"{name} is a {type(value).__name__}, into which nothing can be written back",
                expected="a module, an optimizer, a tensor, a container, or another object that holds them",
                got=repr(value)[:80],
                way_out="Name the object or the dict that holds it",
            )
    return given


def _is_option(name: str) -> UsageError:
    return UsageError(
        f"{name}= is an option, and no name of a source by keyword",
        expected="another name, or a mapping of names to sources",
        way_out=f"Pass it first, in a mapping: {{{name!r}: ...}}",
    )


@dataclass(frozen=True, slots=True)
class Keeping:
    """How sources are kept."""

    rng: bool = False
    only: Callable[[str], bool] | None = None
    trainable: bool = False  # leave out parameters that require no gradient
    device: torch.device | None = None
    dtype: torch.dtype | None = None

    @classmethod
    def checked(cls, rng: Any, only: Any, device: Any, dtype: Any) -> Keeping:
        """What a caller passed, or UsageError: a source under an option's name is one of the mistakes."""
        if not isinstance(rng, bool):
            raise _meant_a_source("rng", "True or False", rng)
        if device is not None and not isinstance(device, str | torch.device):
            raise _meant_a_source("device", "a torch.device or its name", device)
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise _meant_a_source("dtype", "a floating torch.dtype, such as torch.bfloat16", dtype)
        where = Options.checked("preserve", "detach", device).device
        if where is not None and where.type == "meta":
            raise UsageError("device='meta' keeps no values", expected="a device that has memory")
        return cls(rng, _path_filter(only), only == "trainable", where, dtype)


def _meant_a_source(name: str, expected: str, got: Any) -> UsageError:
    return UsageError(
        f"{name}= is an option",
        expected=expected,
        got=f"a {type(got).__name__}",
        way_out=f"To keep a source of that name, pass it first, in a mapping: {{{name!r}: ...}}",
    )


def _path_filter(only: Any) -> Callable[[str], bool] | None:
    if only is None or (isinstance(only, str) and only == "trainable"):
        return None
    if isinstance(only, str):
        only = (only,)
    if isinstance(only, Iterable) and not isinstance(only, torch.nn.Module):
        places = tuple(only)
        if places and all(isinstance(place, str) for place in places):
            return lambda path: any(_is_under(path, place) for place in places)
    elif callable(only) and not isinstance(only, torch.nn.Module):
        return only  # type: ignore[no-any-return]
    raise _meant_a_source(
        "only", "'trainable', paths such as 'model.head', or a function of a path", only
    )


def _is_under(path: str, place: str) -> bool:
    """Whether a path is that place, or leads through it."""
    return path == place or (path.startswith(place) and path[len(place)] in ".[")
