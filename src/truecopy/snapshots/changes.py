"""What has changed since a snapshot was taken, by path; bytes are compared as bytes."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from truecopy.copying.blocks import Member
from truecopy.copying.leaves import integers_in, integers_of
from truecopy.snapshots.contents import CONTAINERS, Contents, Drawer
from truecopy.snapshots.keeping import Home, Kept, member_move, members, typed_member
from truecopy.snapshots.looking import Image, described
from truecopy.snapshots.random_state import RandomState
from truecopy.structure.kinds import Kind, kind_of

_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One value that is not what it was. `str(change)` is a sentence."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


def changes(kept: Kept, now: Image) -> Iterator[Change]:
    """Everything that differs: tensors and arrays first, then plain values, then random state."""
    assert kept.arrangement is not None
    then = kept.arrangement.image
    known, found = set(map(id, then.leaves)), set(map(id, now.leaves))
    for row, home, member in sorted(members(kept.arrangement), key=operator.itemgetter(0)):
        if id(then.leaves[row]) in found:
            yield from _leaf_changes(then, row, home, member)
    for image, others, what in ((then, found, "is gone"), (now, known, "is new")):
        for row, leaf in enumerate(image.leaves):
            if id(leaf) not in others:
                yield Change(image.path(row), what)
    for drawer, contents, chosen in zip(then.drawers, kept.contents, then.chosen, strict=True):
        if chosen:
            yield from _value_changes(then, drawer, contents)
    for place, state in kept.hidden:
        drawer = then.drawers[place]
        assert drawer.hidden is not None
        if not _is_same_state(drawer.hidden.read(drawer.owner), state):
            yield Change(str(then.path_of(drawer.owner)), "is at another place of its sequence")
    if kept.random is not None:
        yield from _random_changes(kept.random, RandomState.now())


def _leaf_changes(image: Image, row: int, home: Home, member: Member) -> Iterator[Change]:
    leaf = image.leaves[row]
    was, now = image.described_as[row], described(leaf)
    if was != now:
        yield Change(image.path(row), f"was {was[1]} {tuple(was[2])}, is {now[1]} {tuple(now[2])}")
    elif not _holds(leaf, home, member):
        yield Change(image.path(row), "has other values")


def _holds(leaf: Any, home: Home, member: Member) -> bool:
    """Whether a leaf still has, bit for bit, what is kept of it."""
    if home.dtype is not None:
        kept = typed_member(home, member).contiguous()
        cast = leaf.detach().to(home.dtype, copy=True).to(kept.device).contiguous()
        return torch.equal(kept.view(torch.uint8), cast.view(torch.uint8))
    move = member_move(leaf, home, member)
    kept, live = integers_in(home.base, move), integers_of(leaf, move)
    return torch.equal(kept, live if live.device == kept.device else live.to(kept.device))


def _value_changes(image: Image, drawer: Drawer, then: Contents) -> Iterator[Change]:
    now = drawer.read()
    was, held = _by_place(then), _by_place(now)
    for place, (index, old) in was.items():
        if not drawer.is_part(place, old):
            continue
        if place not in held:
            if kind_of[type(old)] is not Kind.TENSOR:
                yield Change(image.place(drawer.owner, drawer.step(then, index)), "is gone")
            continue
        new = held[place][1]
        if new is not old and drawer.is_part(place, new) and not _are_alike(old, new):
            what = f"was {_short(old)}, is {_short(new)}"
            yield Change(image.place(drawer.owner, drawer.step(then, index)), what)
    for place, (index, new) in held.items():
        is_leaf = kind_of[type(new)] is Kind.TENSOR
        if place not in was and not is_leaf and drawer.is_part(place, new):
            yield Change(image.place(drawer.owner, drawer.step(now, index)), "is new")


def _by_place(contents: Contents) -> dict[Any, tuple[int, Any]]:
    keys, values = contents
    places = [key if kind_of[type(key)] is Kind.ATOM else id(key) for key in keys]
    return {
        place: (index, value)
        for index, (place, value) in enumerate(
            zip(places or range(len(values)), values, strict=True)
        )
    }


def _are_alike(old: Any, new: Any) -> bool:
    """Whether two plain values are written alike. Tensors are compared where their bytes are."""
    kinds = {kind_of[type(old)], kind_of[type(new)]}
    if kinds <= {Kind.TENSOR, Kind.ARRAY}:
        return True
    if not kinds <= CONTAINERS | {Kind.ATOM}:
        return False
    return type(old) is type(new) and repr(old) == repr(new)


def _short(value: Any) -> str:
    if kind_of[type(value)] in (Kind.TENSOR, Kind.ARRAY):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _is_same_state(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and np.array_equal(a, b)
    if isinstance(a, dict):
        return (
            isinstance(b, dict) and a.keys() == b.keys()
            and all(_is_same_state(a[key], b[key]) for key in a)
        )  # fmt: skip
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_is_same_state, a, b))
    return bool(a == b)


def _random_changes(then: RandomState, now: RandomState) -> Iterator[Change]:
    for name in ("python", "numpy", "cpu", "devices"):
        if not _is_same_state(getattr(then, name), getattr(now, name)):
            yield Change(f"random state of {name}", "is at another place of its sequence")
