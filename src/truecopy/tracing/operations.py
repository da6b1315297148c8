"""What is to know of an operation before it runs, looked up once: where its tensors stand, what it writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from truecopy import _torch


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument that holds a tensor, or tensors."""

    name: str
    place: int  # among the positional arguments; -1 for those that have a keyword alone
    is_list: bool
    is_written: bool
    is_undeclared: bool = False  # written, and the schema says no such thing

    def value(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the call passed, or None."""
        if 0 <= self.place < len(args):
            return args[self.place]
        return kwargs.get(self.name)

    def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
        """The tensors that the call passed here."""
        value = self.value(args, kwargs)
        if self.is_list:
            yield from (one for one in value or () if isinstance(one, Tensor))
        elif isinstance(value, Tensor):
            yield value


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One overload of an operation, told apart by identity."""

    function: Any
    name: str  # "aten::add"
    base: str  # "add"
    slots: tuple[Slot, ...]
    written: tuple[Slot, ...]
    keeps_statistics: bool = False  # in training alone
    may_alias: bool = True  # an output may lie on the memory of an argument, as the schema says
    reshaped: tuple[Slot, ...] = ()  # arguments whose shape, or storage, is changed in place
    is_silent: bool = False  # it marks a stretch of time for a profiler, and does nothing else
    has_schema: bool = True  # not so of higher order operators, whose arguments may be anything

    def writes(self, args: tuple[Any, ...]) -> tuple[Slot, ...]:
        """The arguments that a call writes."""
        if not self.keeps_statistics or _changes_statistics(self.base, args):
            return self.written
        return tuple(slot for slot in self.written if slot.name not in STATISTICS)

    def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
        """Every tensor that a call passes."""
        if not self.has_schema:
            yield from tensors_in((args, kwargs))
            return
        for slot in self.slots:
            yield from slot.tensors(args, kwargs)


KNOWN: dict[int, Operation] = {}
"""By identity of the overload, which its operation keeps: overloads are hashed in Python, and slowly."""


def operation_of(function: Any) -> Operation:
    """The operation that torch dispatches as `function`. Looked up once."""
    found = KNOWN.get(id(function))
    if found is None:
        found = KNOWN[id(function)] = _look(function)
    return found


STATISTICS = ("running_mean", "running_var")
"""Arguments that `native_batch_norm` writes in training, though its schema says no such thing. Those of
its kin say so, and are not written in evaluation."""

_KEEPERS: dict[str, tuple[int, int]] = {
    "native_batch_norm": (5, 6),
    "_native_batch_norm_legit": (5, 6),
    "_batch_norm_with_update": (-1, 5),
}
"""Operations that keep statistics: where the flag for training stands, if there is one, and the momentum."""


def _changes_statistics(base: str, args: tuple[Any, ...]) -> bool:
    """Whether a batch norm moves its statistics: in training, with a momentum, and with any input."""
    training, momentum = _KEEPERS[base]
    is_training = training < 0 or bool(args[training])
    return is_training and args[momentum] != 0 and args[0].numel() > 0


def _look(function: Any) -> Operation:
    if not isinstance(function, _torch.OpOverload):
        return Operation(function, str(function), str(function), (), (), has_schema=False)
    schema = _torch.schema_of(function)
    base = schema.name.rpartition("::")[2]
    arguments = {argument.name for argument in schema.arguments}
    keeps = base in _KEEPERS and arguments >= set(STATISTICS)
    slots, place = [], 0
    for argument in schema.arguments:
        kind = str(argument.type)
        if "Tensor" in kind:
            declared = argument.alias_info is not None and argument.alias_info.is_write
            hidden = keeps and argument.name in STATISTICS
            slots.append(
                Slot(
                    argument.name,
                    -1 if argument.kwarg_only else place,
                    "List" in kind,
                    declared or hidden,
                    hidden and not declared,
                )
            )
        place += not argument.kwarg_only
    # `t_` and its kin change what a tensor reaches, and no byte.
    changed = tuple(slot for slot in slots if slot.is_written)
    written: tuple[Slot, ...] = changed
    reshaped: tuple[Slot, ...] = ()
    if torch.Tag.inplace_view in function.tags:
        written, reshaped = (), changed
    may_alias = any(out.alias_info is not None for out in schema.returns)
    return Operation(
        function,
        schema.name,
        base,
        tuple(slots),
        written,
        keeps,
        may_alias,
        reshaped,
        schema.name.startswith("profiler::"),
    )


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Tensors in arguments or results: in tuples, lists and dicts, at any depth."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from tensors_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)
