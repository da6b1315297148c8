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
    switch: int = -1  # place of the flag without which nothing is written, if there is one
    may_alias: bool = True  # an output may lie on the memory of an argument, as the schema says
    reshaped: tuple[Slot, ...] = ()  # arguments whose shape, or storage, is changed in place
    is_silent: bool = False  # it marks a stretch of time for a profiler, and does nothing else
    has_schema: bool = True  # not so of higher order operators, whose arguments may be anything

    def writes(self, args: tuple[Any, ...]) -> tuple[Slot, ...]:
        """The arguments that a call writes."""
        return self.written if self.switch < 0 or args[self.switch] else ()

    def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
        """Every tensor that a call passes."""
        if not self.has_schema:
            yield from tensors_in((args, kwargs))
            return
        for slot in self.slots:
            yield from slot.tensors(args, kwargs)


_known: dict[Any, Operation] = {}


def operation_of(function: Any) -> Operation:
    """The operation that torch dispatches as `function`. Looked up once."""
    found = _known.get(function)
    if found is None:
        found = _known[function] = _look(function)
    return found


UNDECLARED = {
    "aten::native_batch_norm": ("training", ("running_mean", "running_var")),
}
"""Arguments that operations write, where a flag is on, though their schemas say no such thing."""


def _look(function: Any) -> Operation:
    if not isinstance(function, _torch.OpOverload):
        return Operation(function, str(function), str(function), (), (), has_schema=False)
    schema = _torch.schema_of(function)
    flag, undeclared = UNDECLARED.get(schema.name, ("", ()))
    slots, place, switch = [], 0, -1
    for argument in schema.arguments:
        kind = str(argument.type)
        if "Tensor" in kind:
            declared = argument.alias_info is not None and argument.alias_info.is_write
            hidden = argument.name in undeclared
            slots.append(
                Slot(
                    argument.name,
                    -1 if argument.kwarg_only else place,
                    "List" in kind,
                    declared or hidden,
                    hidden and not declared,
                )
            )
        if argument.name == flag:
            switch = place
        place += not argument.kwarg_only
    # `t_` and its kin change what a tensor reaches, and no byte.
    changed = tuple(slot for slot in slots if slot.is_written)
    written: tuple[Slot, ...] = changed
    reshaped: tuple[Slot, ...] = ()
    if torch.Tag.inplace_view in function.tags:
        written, reshaped = (), changed
    may_alias = any(out.alias_info is not None for out in schema.returns)
    base = schema.name.rpartition("::")[2]
    return Operation(
        function,
        schema.name,
        base,
        tuple(slots),
        written,
        switch,
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
