"""What a module returned, as it was: the structure apart from the tensors in it.

In: any value. Out: a `Kept`, that has one `Held` for each tensor, and can make the structure again around
whatever stands for them: values, gradients. The structure is copied at once, so that what happens to the
original later does not matter; in the copy small *tokens* of the same shapes stand for the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from truecopy import _torch
from truecopy.copying.api import copy
from truecopy.structure.kinds import Kind, kind_of
from truecopy.structure.rebuild import Rebuilder
from truecopy.structure.walk import Walk, walk

Keep = Callable[[Tensor], Any]
"""Keeps one tensor: as a `Held`, or as whatever the user's function made of it."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """Stands for an object that was not looked into."""

    type: str
    why: str


@dataclass(slots=True)
class Kept:
    """One value: its tensors, and what is around them."""

    leaves: list[Any]  # Held, or what the user's function returned
    paths: list[str]  # of each in the value: "", "[0]", ".logits"
    around: Any = None  # None: the one leaf is the value
    notes: list[str] = field(default_factory=list)

    def build(self, of: Callable[[Any], Any]) -> Any:
        """The structure again, around what `of` says for each leaf."""
        values = [of(leaf) for leaf in self.leaves]
        if self.around is None:
            return values[0]
        made: Any = self.around.build(values, self.paths)
        return made


@dataclass(frozen=True, slots=True)
class _Constant:
    """A value in which there is no tensor."""

    value: Any

    def build(self, _: Sequence[Any], __: Sequence[str]) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class _Flat:
    """A tuple or a list of tensors and atoms; an atom stands where `places` has none."""

    kind: type
    atoms: tuple[Any, ...]
    places: tuple[int, ...]

    def build(self, values: Sequence[Any], _: Sequence[str]) -> Any:
        items = list(self.atoms)
        for place, value in zip(self.places, values, strict=True):
            items[place] = value
        return self.kind(items)


@dataclass(frozen=True, slots=True)
class _Nested:
    """Any other structure: a copy of it with tokens in the place of tensors."""

    walked: Walk
    order: tuple[int, ...]  # the leaf that each leaf of the walk stands for

    def build(self, values: Sequence[Any], paths: Sequence[str]) -> Any:
        leaves = {
            id(token): values[place]
            for token, place in zip(self.walked.leaves, self.order, strict=True)
        }
        try:
            return Rebuilder(self.walked, {}).run(leaves)
        except Exception:  # noqa: BLE001 - a class that takes tensors only, where others stand for them
            return dict(zip(paths, values, strict=True))


@dataclass(frozen=True, slots=True)
class _Unrolled:
    """A structure that cannot be made again: its tensors by their paths."""

    def build(self, values: Sequence[Any], paths: Sequence[str]) -> Any:
        return dict(zip(paths, values, strict=True))


def take(value: Any, keep: Keep, opaque: tuple[type, ...] = ()) -> Kept:
    """Keep every tensor in a value, and the structure around them.

    Runs no code of users, but for classes that bring a copy protocol of their own.
    """
    if isinstance(value, Tensor):
        return Kept([keep(value)], [""])
    kind = type(value)
    if kind_of[kind] is Kind.ATOM:
        return Kept([], [], _Constant(value))
    if kind is tuple or kind is list:
        flat = _take_flat(kind, value, keep)
        if flat is not None:
            return flat
    try:
        return _take_nested(value, keep, opaque)
    except Exception as error:  # noqa: BLE001 - users' protocols raise anything; the run goes on
        why = f"could not be taken apart: {type(error).__name__}: {error}"[:200]
        return Kept([], [], _Constant(Opaque(kind.__name__, why)), [why])


def _take_flat(kind: type, value: Any, keep: Keep) -> Kept | None:
    places = tuple(i for i, one in enumerate(value) if isinstance(one, Tensor))
    atoms = tuple(None if i in places else one for i, one in enumerate(value))
    if any(kind_of[type(one)] is not Kind.ATOM for one in atoms):
        return None
    leaves = [keep(value[i]) for i in places]
    return Kept(leaves, [f"[{i}]" for i in places], _Flat(kind, atoms, places))


def _take_nested(value: Any, keep: Keep, opaque: tuple[type, ...]) -> Kept:
    by_reference: list[str] = []

    def stays(one: Any, path: Callable[[], Any]) -> bool:
        if isinstance(one, (nn.Module, torch.autograd.graph.Node, *opaque)):
            by_reference.append(f"{path()}: a {type(one).__name__}, by reference")
            return True
        return False

    if isinstance(value, opaque):
        return Kept([], [], _Constant(Opaque(type(value).__name__, "named in opaque=")))
    walked = walk(value, "", protocol=True, keep=stays, with_grad=False)
    if walked.failures:
        raise walked.failures[0].error
    leaves: list[Any] = []
    tokens: list[Any] = []
    paths = [str(walked.path(row)) for row in range(len(walked.leaves))]
    for leaf in walked.leaves:
        held, token = _leaf(leaf, keep)
        leaves.append(held)
        tokens.append(token)
    if not leaves:
        return Kept([], [], _Constant(_without_tensors(walked, value)), by_reference)
    skeleton = Rebuilder(walked, {}).run(dict(zip(map(id, walked.leaves), tokens, strict=True)))
    again = walk(skeleton, "", protocol=True, keep=stays, with_grad=False)
    places = {id(token): place for place, token in enumerate(tokens)}
    order = [places.get(id(leaf)) for leaf in again.leaves]
    if sorted(order, key=str) != sorted(range(len(tokens)), key=str):
        # Its class changes what it is made from; what would come out is not what went in.
        note = f"a {type(value).__name__} cannot be made again, its tensors are in a dict by path"
        return Kept(leaves, paths, _Unrolled(), [note])
    return Kept(
        leaves, paths, _Nested(again, tuple(o for o in order if o is not None)), by_reference
    )


def _leaf(leaf: Any, keep: Keep) -> tuple[Any, Any]:
    """What is kept of a leaf, and what stands for it meanwhile."""
    if isinstance(leaf, Tensor):
        return keep(leaf), _token(leaf)
    if isinstance(leaf, np.ndarray) and type(leaf) is np.ndarray:
        held = copy(leaf)
        return _Given(held), np.empty(leaf.shape, leaf.dtype)
    copied = copy(leaf)
    return _Given(copied), copied


@dataclass(frozen=True, slots=True)
class _Given:
    """A copy of something that is no tensor."""

    value: Any
    how: str = "memory"


def _token(tensor: Tensor) -> Tensor:
    """A tensor of the same shape and dtype in memory for one element."""
    with _torch.no_modes(), _torch.disable_torch_function(), _torch.without_functorch():
        device = "cpu" if tensor.device.type != "meta" else "meta"
        shape = tuple(tensor.shape) if not tensor.is_nested else (1,)
        return torch.zeros((), dtype=tensor.dtype, device=device).expand(shape)


def _without_tensors(walked: Walk, value: Any) -> Any:
    """A structure without tensors, copied as far as it is made of containers."""
    return Rebuilder(walked, {}).run({}) if walked.program else value
