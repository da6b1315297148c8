"""`duplicate`: one value many times, by the way that costs what you can afford.

Four ways, one walk. The value is taken apart once; what differs is where the bytes of the leaves come
from, and whether n structures are put together or one that has a new axis:

    how       structures   bytes
    "list"    n            n copies
    "lazy"    n            one copy, and one more for each duplicate that is written
    "stack"   one          n copies
    "view"    one          the source's own
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, overload

import numpy as np

from truecopy import _torch
from truecopy.copying.duplicates.available import (
    OBJECT_BYTES,
    bytes_of_objects,
    bytes_of_one,
    refuse_more_than_there_is,
)
from truecopy.copying.duplicates.stacks import (
    axes,
    check_all_stacked,
    refuse_what_has_no_axis,
    stack_leaves,
    view_leaves,
)
from truecopy.copying.duplicates.twins import cast, live_mold, private_mold
from truecopy.copying.independence import check_duplicates_apart, check_self_made
from truecopy.copying.leaves import Layout, copy_leaves, copy_one_plain, is_one_plain
from truecopy.copying.making import put_together, take_apart
from truecopy.copying.options import Grad, Options
from truecopy.errors import UsageError
from truecopy.memory.region import CPU, Space
from truecopy.structure.naming import name_of
from truecopy.structure.rebuild import Memo
from truecopy.structure.walk import Walk

T = TypeVar("T")
How = Literal["list", "stack", "view", "lazy"]
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Request:
    """What was asked for, once it makes sense."""

    n: int
    how: How
    dim: int
    live: bool


@overload
def duplicate(x: T, n: int, *, how: Literal["list"] = "list", grad: Grad = "detach") -> list[T]: ...


@overload
def duplicate(
    x: T, n: int, *, how: Literal["lazy"], grad: Grad = "detach", live: bool = False
) -> list[T]: ...


@overload
def duplicate(
    x: T, n: int, *, how: Literal["stack", "view"], dim: int = 0, grad: Grad = "detach"
) -> T: ...


@_torch.run_eagerly
def duplicate(
    x: Any,
    n: int,
    *,
    how: How = "list",
    dim: int = 0,
    grad: Grad = "detach",
    live: bool = False,
) -> Any:
    """`x` n times: as a list of copies, as one stack, as views without memory, or lazily.

    Args:
        x: a tensor, a model, or any structure, as `copy` takes it.
        n: how many; 0 and 1 are welcome.
        how: "list" gives n copies. "lazy" gives n copies that share their bytes until one is written.
            "stack" gives one x whose tensors have a new axis of length n; of a model, the parameters that
            `torch.func.functional_call` takes under `vmap`. "view" gives the same without memory: the new
            axis has stride 0, and a write reaches all n, and `x`.
        dim: where the new axis of "stack" and "view" stands; negative from the end.
        grad: as in `copy`; with "keep", `x` gets the sum of the gradients of its duplicates.
        live: with how="lazy", clone the memory of `x` itself, without a first copy. `x` then moves to new
            memory when it is next written. Refuses memory that numpy, a file or another process may write.

    Allocates n copies for "list" and "stack", one for "lazy", nothing for "view" and live=True. Only "view"
    returns views of `x`. Gradient flows to `x` only with grad="keep". Synchronizes as `copy` does.
    Inner aliasing is kept in each duplicate, and no two of a list share a byte that can be written.

    >>> import torch, truecopy as tc
    >>> first, second = tc.duplicate(torch.zeros(3), 2)
    >>> tc.relate(first, second).shares_memory
    False
    >>> tc.duplicate(torch.zeros(3), 4, how="stack", dim=-1).shape
    torch.Size([3, 4])
    """
    request = _checked(n, how, dim, live)
    options = Options.checked("preserve", grad, None)
    if how == "list" and grad == "detach" and is_one_plain(x):
        _refuse_too_many(request, {CPU: x.nbytes}, OBJECT_BYTES, name_of(x))
        return [copy_one_plain(x) for _ in range(request.n)]
    walked, layout = take_apart(x, options)
    with _torch.disable_torch_function():
        if request.how in ("stack", "view"):
            return _one(walked, layout, options, request)
        return _many(walked, layout, options, request)


def _many(walked: Walk, layout: Layout, options: Options, request: _Request) -> list[Any]:
    """N structures."""
    _refuse_too_many(request, bytes_of_one(walked, layout), bytes_of_objects(walked), _name(walked))
    if request.how == "list" or request.n == 0:
        leaves = [copy_leaves(walked, layout, options) for _ in range(request.n)]
    else:
        mold = (live_mold if request.live else private_mold)(walked, layout, options)
        leaves = [cast(walked, layout, options, mold) for _ in range(request.n)]
    memos: list[Memo] = [{} for _ in leaves]
    made = [
        put_together(walked, copies, memo, options.grad)
        for copies, memo in zip(leaves, memos, strict=True)
    ]
    for memo in memos:
        check_self_made(walked, layout, memo, honor=False)
    check_duplicates_apart(walked, memos)
    return made


def _one(walked: Walk, layout: Layout, options: Options, request: _Request) -> Any:
    """One structure with a new axis."""
    refuse_what_has_no_axis(walked, request.n)
    axis_of = axes(walked, request.dim)
    memo: Memo = {}
    if request.how == "view":
        leaves = view_leaves(walked, request.n, axis_of, options.grad)
    else:
        _refuse_too_many(request, bytes_of_one(walked, layout), 0, _name(walked))
        leaves = stack_leaves(walked, layout, options, request.n, axis_of)
    made = put_together(walked, leaves, memo, options.grad)
    if request.how == "stack":
        check_self_made(walked, layout, memo, honor=False)
    check_all_stacked(walked, leaves, lambda value: memo.get(id(value), value))
    return made


def _name(walked: Walk) -> str:
    return str(walked.path_of((None, 0)))


def _refuse_too_many(
    request: _Request, of_one: Mapping[Space, int], objects: int, name: str
) -> None:
    """Before memory is touched: what n of them take, against what there is."""
    copies = request.n
    if request.how == "lazy":
        copies = 0 if request.live else min(request.n, 1)
    needed = {space: copies * nbytes for space, nbytes in of_one.items()}
    needed[CPU] = needed.get(CPU, 0) + request.n * objects
    refuse_more_than_there_is(
        needed,
        f"{request.n:,} duplicates of {name}",
        'Ask for fewer; how="lazy" allocates one copy for all of them, how="view" none',
    )


# --- what was asked for ---------------------------------------------------------------------------


def _checked(n: Any, how: Any, dim: Any, live: Any) -> _Request:
    if how not in get_args(How):
        raise UsageError(
            f"how={how!r} means nothing",
            expected="one of " + ", ".join(map(repr, get_args(How))),
            got=repr(how),
        )
    count = _whole_number("n", n, "how many duplicates to make, such as 3")
    if not 0 <= count <= _MOST:
        raise UsageError(
            f"n={count} is no number of duplicates",
            expected="a whole number, 0 or more" if count < 0 else f"at most {_MOST}",
            got=str(count),
        )
    place = _whole_number("dim", dim, "a dimension, such as 0 or -1")
    if place and how not in ("stack", "view"):
        raise UsageError(
            f"dim={place} means nothing with how={how!r}, which makes no axis",
            expected='dim= with how="stack" or how="view"',
            got=f"dim={place}, how={how!r}",
        )
    if live is not False and (live is not True or how != "lazy"):
        raise UsageError(
            f"live={live!r} means nothing with how={how!r}",
            expected='live=True with how="lazy"',
            got=f"live={live!r}, how={how!r}",
        )
    return _Request(count, how, place, live)


def _whole_number(name: str, value: Any, expected: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise UsageError(
            f"{name}={value!r} is no whole number",
            expected=expected,
            got=type(value).__name__,
        )
    return int(value)
