"""What a copy was asked to do, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from truecopy import _torch
from truecopy.errors import UsageError
from truecopy.structure.paths import Attribute, Path
from truecopy.structure.walk import Keep

Alias = Literal["preserve", "whole", "break", "error"]
Grad = Literal["detach", "keep", "error"]
Share = str | type | Path | Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Options:
    """How aliasing and gradient are treated, what is kept by reference, and where the copy lives."""

    alias: Alias = "preserve"
    grad: Grad = "detach"
    device: torch.device | None = None

    @classmethod
    def checked(cls, alias: str, grad: str, device: torch.device | str | None) -> Options:
        """Options from what a caller passed."""
        for name, value, allowed in (
            ("alias", alias, get_args(Alias)),
            ("grad", grad, get_args(Grad)),
        ):
            if value not in allowed:
                raise UsageError(
                    f"{name}={value!r} means nothing",
                    expected="one of " + ", ".join(map(repr, allowed)),
                    got=repr(value),
                )
        try:
            where = None if device is None else torch.device(device)
            if where is not None:
                with _torch.disable_torch_function():
                    torch.empty(0, device=where)  # a name alone does not say that there is one
        except (RuntimeError, TypeError, AssertionError) as error:
            raise UsageError(
                f"device={device!r} names no device of this machine",
                expected="a torch.device or its name",
                got=str(error).partition("\n")[0],
            ) from None
        return cls(alias, grad, where)  # type: ignore[arg-type]


DEFAULT = Options()


def keeper(root: Any, share: Share | Iterable[Share]) -> Keep | None:
    """One predicate from everything that `share=` may name: types, paths, predicates."""
    if isinstance(share, str | type | Path) or callable(share):
        share = (share,)
    if not isinstance(share, Iterable):
        raise _names_nothing(share)
    wanted = list(share)
    if not wanted:
        return None
    types: list[type] = []
    predicates: list[Callable[[Any], bool]] = []
    named: list[Any] = []
    for one in wanted:
        match one:
            case type():
                types.append(one)
            case str() | Path():
                named.append(_follow(root, one))
            case _ if callable(one):
                predicates.append(one)
            case _:
                raise _names_nothing(one)
    of_type = tuple(types)

    def keep(value: Any, _path: Callable[[], Path]) -> bool:
        return (
            any(value is one for one in named)
            or isinstance(value, of_type)
            or any(test(value) for test in predicates)
        )

    return keep


def _names_nothing(one: Any) -> UsageError:
    return UsageError(
        f"share={one!r} names nothing",
        expected="a path, a type or a predicate",
        got=type(one).__name__,
    )


def _follow(root: Any, path: str | Path) -> Any:
    """What a path leads to: as it is printed, or relative to the root."""
    for attempt in _readings(path):
        try:
            return attempt.follow(root)
        except (AttributeError, LookupError, TypeError):
            continue
    raise UsageError(
        f"share={str(path)!r} leads nowhere",
        expected="a path into the value, such as model.backbone or .backbone",
        got=f"a {type(root).__name__} without it",
    )


def _readings(path: str | Path) -> list[Path]:
    """What a path may mean: names with dots as `named_parameters` gives them, then as it is printed.

    A name alone is never the value itself: that would make of a slip of the pen a copy of nothing.
    """
    if isinstance(path, Path):
        return [path]
    if path.startswith((".", "[")):
        return [Path.parse(f"it{path}")]
    dotted = Path("it", tuple(map(Attribute, path.split("."))))
    if all(part.isidentifier() or part.isdigit() for part in path.split(".")):
        return [dotted, *([Path.parse(path)] if path.isascii() and _has_steps(path) else [])]
    printed = Path.parse(path)
    return [Path(printed.root, (Attribute(printed.root), *printed.steps)), printed]


def _has_steps(path: str) -> bool:
    return "." in path and all(part.isidentifier() for part in path.split("."))
