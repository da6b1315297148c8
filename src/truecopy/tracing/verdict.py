"""What one call did with memory: an origin for each output, an effect for each argument.

Storages decide: who is the same object, who lies on the same storage, whether a storage grew or was
replaced, and which bytes an operation inside of the call wrote. Schemas say what may alias and what is
written; where storages or version counters say otherwise, the verdict says so.

    result, verdict = judge(torch.reshape, x, (-1,))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from truecopy import _torch
from truecopy.memory.overlap import overlaps
from truecopy.memory.reading import read
from truecopy.memory.region import Region
from truecopy.memory.sides import own_leaves
from truecopy.structure.paths import Path
from truecopy.tracing.operations import Operation, tensors_in
from truecopy.tracing.stream import Args, Kwargs, Observer, Stream


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a call did. Words as in `tracing.facts`."""

    origins: tuple[str, ...]  # one for each tensor in the result, in order
    effects: tuple[tuple[str, str], ...]  # argument, effect, for each tensor that is not untouched
    raised: str = ""  # the exception's name
    disagreements: tuple[str, ...] = ()  # where a schema says otherwise than storages do

    @property
    def is_copy(self) -> bool:
        """Whether every output has memory of its own."""
        return bool(self.origins) and set(self.origins) <= {"new", "lazy"}


@dataclass(frozen=True, slots=True)
class Judged:
    """A result, or the exception, and the verdict."""

    result: Any
    verdict: Verdict
    error: BaseException | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.result, self.verdict))


def judge(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Judged:
    """Call a function and tell what it did with the memory of its arguments.

    The function runs once, as it would. Allocates nothing beside it, changes nothing, materializes no
    copy-on-write tensor; the verdict holds no tensor. What the function raises is returned.

    >>> import torch
    >>> judge(torch.reshape, torch.zeros(2, 3).t(), (6,)).verdict.origins
    ('new',)
    >>> judge(torch.Tensor.add_, torch.zeros(3), 1).verdict
    Verdict(origins=('same',), effects=(('args[0]', 'mutated'),), raised='', disagreements=())
    """
    witness = _Witness(function, args, kwargs)
    result, error = None, None
    try:
        with Stream(witness):
            result = function(*args, **kwargs)
    except Exception as raised:  # noqa: BLE001 - part of the verdict, and handed on
        error = raised
    return Judged(result, witness.verdict(result, error), error)


@dataclass(slots=True)
class _Before:
    """One tensor among the arguments, as it was."""

    name: str
    tensor: Tensor
    leaves: tuple[Tensor, ...]  # what its bytes are in: itself, or its parts
    keys: tuple[int, ...]  # of their storages
    nbytes: tuple[int, ...]
    regions: tuple[Any, ...]

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> _Before:
        leaves = memory_of(tensor)
        return cls(
            name,
            tensor,
            leaves,
            tuple(map(_torch.storage_identity, leaves)),
            tuple(leaf.untyped_storage().nbytes() for leaf in leaves),
            tuple(map(read, leaves)),
        )

    def effect(self, writes: list[Region]) -> str:
        keys = tuple(map(_torch.storage_identity, memory_of(self.tensor)))
        if keys != self.keys:
            return "replaced"
        if tuple(leaf.untyped_storage().nbytes() for leaf in self.leaves) != self.nbytes:
            return "resized"
        return "mutated" if self.is_reached_by(writes) else "untouched"

    def is_reached_by(self, writes: list[Region]) -> bool:
        return any(_meet(region, write) for region in self.regions for write in writes)


class _Witness(Observer):
    """Remembers the arguments, and what operations inside of the call wrote."""

    def __init__(self, function: Any, args: Args, kwargs: Kwargs) -> None:
        with _torch.disable_torch_function(), _torch.no_modes():
            self.given = [
                _Before.of(name, tensor) for name, tensor in _named(function, args, kwargs)
            ]
        self.writes: list[Region] = []
        self.kept: list[Any] = []  # what was compared: identities may be given out again
        self.doubts: list[str] = []
        self.versions: dict[int, tuple[Tensor, int | None, list[int]]] = {}  # of one operation

    def before(self, operation: Operation, args: Args, kwargs: Kwargs) -> None:
        self.versions = {
            id(t): (t, _torch.version_of(t), _keys(t)) for t in operation.tensors(args, kwargs)
        }
        self.kept.append(self.versions)
        for slot in operation.writes(args):
            for tensor in slot.tensors(args, kwargs):
                self.writes += _regions(tensor)

    def after(
        self,
        operation: Operation,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        for slot in operation.writes(args):
            for tensor in slot.tensors(args, kwargs):
                if _keys(tensor) == self.versions[id(tensor)][2]:
                    self.writes += _regions(tensor)  # once more: it may have grown
        if error is not None or not operation.has_schema:
            return
        self._check_writes(operation, args, kwargs)
        if not operation.may_alias:
            self._check_outputs(operation, result)

    def _check_outputs(self, operation: Operation, result: Any) -> None:
        given = {key for one in self.given for key in one.keys}
        passed = {key for _, _, keys in self.versions.values() for key in keys} & given
        for tensor in tensors_in(result):
            if id(tensor) not in self.versions and passed.intersection(_keys(tensor)):
                self.doubts.append(f"{operation.name} returned an alias; its schema says new")

    def _check_writes(self, operation: Operation, args: Args, kwargs: Kwargs) -> None:
        """Version counters move for writes, of all aliases at once; not for every write."""
        declared = [slot for slot in operation.slots if slot.is_written]
        written = {id(t) for slot in declared for t in slot.tensors(args, kwargs)}
        keys = {key for one in written for key in self.versions[one][2]}
        for tensor, version, own in self.versions.values():
            if version != _torch.version_of(tensor) and not keys.intersection(own):
                self.writes += _regions(tensor)
                self.doubts.append(
                    f"{operation.name} wrote an argument; its schema says no such thing"
                )
        self.doubts += (
            f"{operation.name} writes {slot.name}; its schema says no such thing"
            for slot in operation.writes(args)
            if slot.is_undeclared
        )

    def verdict(self, result: Any, error: BaseException | None) -> Verdict:
        with _torch.disable_torch_function(), _torch.no_modes():
            origins = tuple(self._origin(tensor) for tensor in tensors_in(result))
            effects = tuple(
                (one.name, effect)
                for one in self.given
                if (effect := one.effect(self.writes)) != "untouched"
            )
        raised = "" if error is None else type(error).__name__
        return Verdict(origins, effects, raised, tuple(dict.fromkeys(self.doubts)))

    def _origin(self, tensor: Tensor) -> str:
        if any(tensor is one.tensor for one in self.given):
            return "same"
        keys = set(_keys(tensor))
        if not keys:
            return "unknown"
        if keys & {key for one in self.given for key in one.keys}:
            return "view"
        return origin_of_unrelated(tensor)


def origin_of_unrelated(tensor: Tensor) -> str:
    """The origin of an output that lies on no storage of the arguments."""
    leaves = memory_of(tensor)
    if any(map(_torch.is_copy_on_write, leaves)):
        return "lazy"
    if all(leaf.untyped_storage().resizable() for leaf in leaves):
        return "new"
    return "adopted"


def memory_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors whose storages hold a tensor's bytes: itself, its parts, or none that torch shows."""
    try:
        tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        leaves = own_leaves(tensor, Path("")) or ()
        return tuple(t for t, _ in leaves if isinstance(t, Tensor) and t is not tensor)
    return (tensor,)


def _keys(tensor: Tensor) -> list[int]:
    return [_torch.storage_identity(leaf) for leaf in memory_of(tensor)]


def _regions(tensor: Tensor) -> list[Region]:
    return [region for leaf in memory_of(tensor) if isinstance(region := read(leaf), Region)]


def _meet(one: Any, other: Region) -> bool:
    return isinstance(one, Region) and one.space == other.space and bool(overlaps(one, other))


def _named(function: Any, args: Args, kwargs: Kwargs) -> Iterator[tuple[str, Tensor]]:
    """Each tensor among the arguments, once, with a name."""
    names: list[str] = []
    if isinstance(function, _torch.OpOverload):
        names = [argument.name for argument in _torch.schema_of(function).arguments]
    seen: set[int] = set()
    for place, value in [*enumerate(args), *kwargs.items()]:
        name = place if isinstance(place, str) else f"args[{place}]"
        if isinstance(place, int) and place < len(names):
            name = names[place]
        for path, tensor in _paths(value, str(name)):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield path, tensor


def _paths(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (tuple, list)):
        for index, one in enumerate(value):
            yield from _paths(one, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _paths(one, f"{path}[{key!r}]")
