"""`copy`, `deepcopy` and `plan`: make independent copies, and tell beforehand what that means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import torch

from truecopy import _torch
from truecopy.copying.flat import copy_flat
from truecopy.copying.independence import check_self_made
from truecopy.copying.into import copy_into
from truecopy.copying.leaves import copy_leaves, copy_one_plain, is_one_plain
from truecopy.copying.making import put_together, take_apart
from truecopy.copying.options import DEFAULT, Alias, Grad, Options, Share, keeper
from truecopy.copying.owners import WHY_ORPHANED, orphaned
from truecopy.copying.plan import Plan, look
from truecopy.errors import Orphaned, UsageError
from truecopy.structure.kinds import Kind, kind_of
from truecopy.structure.naming import name_of, warn_caller
from truecopy.structure.rebuild import Memo
from truecopy.structure.walk import Keep

T = TypeVar("T")


@_torch.run_eagerly
def copy(
    obj: T,
    *,
    alias: Alias = "preserve",
    grad: Grad = "detach",
    share: Share | Iterable[Share] = (),
    device: torch.device | str | None = None,
    into: T | None = None,
    strict: bool = False,
) -> T:
    """A copy of `obj` that shares no tensor memory with it, bit for bit, its inner aliasing kept.

    Args:
        obj: any object: a tensor, a model with its optimizer, a state dict, your own classes.
        alias: "preserve" keeps who shares with whom, "whole" also keeps storages whole, "break"
            gives every tensor its own memory, "error" raises where anything is shared.
        grad: "detach" copies values (a leaf keeps its requires_grad), "keep" makes differentiable
            copies, "error" raises on tensors that autograd computed.
        share: paths, types or a predicate; what they name is kept by reference.
        device: where the tensors of the copy live; their own devices by default.
        into: an existing structure of the same shape, written in place and returned.
        strict: raise where something in the copy would still refer to the original, not only warn.

    Allocates what `plan` says (nothing for tensors with `into`). Never returns a view of `obj`.
    Gradient flows to `obj` only with grad="keep". Waits until the bytes are there;
    what stays on one accelerator is ordered on the current stream, as `clone` is.

    >>> import torch, truecopy as tc
    >>> x = torch.zeros(3)
    >>> both = tc.copy({"x": x, "head": x[:2]})
    >>> tc.relate(both["x"], both["head"]).shares_memory, tc.relate(both, x).shares_memory
    (True, False)
    """
    as_usual = (alias, grad, share, device) == ("preserve", "detach", (), None) and into is None
    if as_usual and is_one_plain(obj):
        one: T = copy_one_plain(obj)
        return one
    if as_usual and (flat := copy_flat(obj)) is not None:
        return flat  # type: ignore[no-any-return]
    options = Options.checked(alias, grad, device)
    keep = keeper(obj, share)
    if into is not None:
        _refuse_with_into(options)
        copy_into(obj, into, name_of(obj), keep, keeper(into, share))
        return into
    copied: T = _new(obj, options, keep, {}, strict=strict, honor=False)
    return copied


@_torch.run_eagerly
def deepcopy(obj: T, memo: Memo | None = None) -> T:
    """`copy.deepcopy` with the guarantees of `copy`: a drop-in, memo and all.

    Inside an object's `__deepcopy__(memo)` it joins that memo. Allocates what `plan` says, never
    returns a view of `obj` (objects whose own `__deepcopy__` keeps memory are honored, with a
    StillShared warning), no gradient flows, waits until the bytes are there.

    >>> import torch, truecopy as tc
    >>> lin = torch.nn.Linear(2, 2)
    >>> tc.relate(tc.deepcopy(lin), lin).shares_memory
    False
    """
    if memo is None and is_one_plain(obj):
        one: T = copy_one_plain(obj)
        return one
    if memo is None and (flat := copy_flat(obj)) is not None:
        return flat  # type: ignore[no-any-return]
    kind = kind_of[type(obj)]
    if kind in (Kind.ATOM, Kind.FUNCTION):
        return obj
    known: Memo = {} if memo is None else memo
    if id(obj) in known:
        copied: T = known[id(obj)]
        return copied
    made: T = _new(obj, DEFAULT, None, known, strict=False, honor=True)
    return made


@_torch.run_eagerly
def plan(
    obj: Any,
    *,
    alias: Alias = "preserve",
    grad: Grad = "detach",
    share: Share | Iterable[Share] = (),
    device: torch.device | str | None = None,
) -> Plan:
    """What `copy` would do with the same arguments: groups, bytes, what is kept, dropped, refused.

    Looks, and copies nothing: allocates no tensor memory, returns no view, does not synchronize.

    >>> import torch, truecopy as tc
    >>> big = torch.zeros(1_000_000)
    >>> tc.plan({"head": big[:3]}).nbytes
    12
    """
    return look(obj, name_of(obj), Options.checked(alias, grad, device), keeper(obj, share))


def _new(
    obj: Any, options: Options, keep: Keep | None, memo: Memo, *, strict: bool, honor: bool
) -> Any:
    walked, layout = take_apart(obj, options, keep, strict=strict)
    for place in orphaned(walked):
        warn_caller(
            Orphaned(f"{walked.path_of(place)} is copied without its model: {WHY_ORPHANED}")
        )
    copies = copy_leaves(walked, layout, options)
    copied = put_together(walked, copies, memo, options.grad)
    check_self_made(walked, layout, memo, honor=honor)
    if copied is not obj:
        # Ids in a memo stay true only while their objects live; the standard library does the same.
        memo.setdefault(id(memo), []).extend((obj, walked))
    return copied


def _refuse_with_into(options: Options) -> None:
    if options != DEFAULT:
        raise UsageError(
            "into= writes into memory that exists; alias=, grad= and device= mean nothing with it",
            expected="into= alone, or with share=",
            got=f"alias={options.alias!r}, grad={options.grad!r}, device={options.device}",
        )
