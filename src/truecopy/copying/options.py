"""What a copy was asked to do, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from truecopy import _torch
from truecopy.errors import UsageError
from truecopy.structure.paths import Path
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
    wanted = [share] if isinstance(share, str | type | Path) or callable(share) else list(share)
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
                raise UsageError(
                    f"share={one!r} names nothing",
                    expected="a path, a type or a predicate",
                    got=type(one).__name__,
                )
    of_type = tuple(types)

    def keep(value: Any, _path: Callable[[], Path]) -> bool:
        return (
            any(value is one for one in named)
            or isinstance(value, of_type)
            or any(test(value) for test in predicates)
        )

    return keep


def _follow(root: Any, path: str | Path) -> Any:
    """What a path leads to: as it is printed, or relative to the root."""
    if isinstance(path, Path):
        attempts = [path]
    elif path.startswith((".", "[")):
        attempts = [Path.parse(f"root{path}")]
    else:
        attempts = [Path.parse(f"root.{path}"), Path.parse(path)]
    for attempt in attempts:
        try:
            return attempt.follow(root)
        except (AttributeError, LookupError, TypeError):
            continue
    raise UsageError(
        f"share={str(path)!r} leads nowhere",
        expected="a path into the value, such as model.backbone or .backbone",
        got=f"a {type(root).__name__} without it",
    )
