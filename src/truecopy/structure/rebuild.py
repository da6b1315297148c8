"""Making the copies: a walk's program, carried out.

In: a walk and a memo that already has the copy of each leaf. Out: the copy of the root. The memo is
the standard library's, so that objects with a `__deepcopy__` of their own join in, whoever comes first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from copy import deepcopy as standard_deepcopy  # bound now: users may put ours in its place
from typing import Any

import torch

from truecopy.errors import CannotCopy
from truecopy.structure.kinds import Kind, arrays_of, foreign_copiers, kind_of
from truecopy.structure.optimizers import rehang
from truecopy.structure.parts import fill_container, hashed, make_container
from truecopy.structure.protocol import fill_reduced, make_reduced
from truecopy.structure.tensors import fill_tensor, make_tensor
from truecopy.structure.walk import Node, Op, Walk
from truecopy.structure.weak import can_rebind, rebound, target_of

Memo = dict[int, Any]
Finish = Callable[[Any, Any], Any]
"""What is still done to a tensor that was made of others: from the source and the new one."""

_MISSING: Any = object()


class Rebuilder:
    """Carries out one walk's program."""

    def __init__(self, walk: Walk, memo: Memo, finish: Finish | None = None) -> None:
        self.walk = walk
        self.memo = memo
        self.finish = finish
        self.made_here: set[int] = set()  # not by a __deepcopy__, nor before: only these are filled
        # What is its own copy: tuples of atoms, what refuses to be copied.
        self.unchanged: set[int] = set()
        self.making: set[int] = set()  # met, and waiting for what they are made from
        self.begun: set[int] = set()  # whose parts are being gathered
        self.unfilled: set[int] = set()  # made, and still without what their hash may need
        self.waiting: list[Node] = []  # sets and dicts, until their members can be hashed

    def run(self, leaves: Memo) -> Any:
        """The copy of the walk's root, given the copies of its leaves by the ids of their sources."""
        for key, kept in self.walk.kept.items():
            self.memo.setdefault(key, kept.value)
        for key, value in self.walk.empty.items():
            self.memo.setdefault(key, type(value)())
        known = self.memo.keys() & leaves.keys() if self.memo else ()
        for key in known:  # copied before, by whoever passed the memo
            del leaves[key]
        self.memo.update(leaves)
        self.made_here.update(leaves)
        for op, node in self.walk.program:
            try:
                if op is Op.MAKE:
                    self.make(node)
                else:
                    self.fill(node)
            except Exception as error:
                _add_path(error, self.walk, node)
                raise
        # Weak containers last: what they do not own may be made at the very end.
        for node in sorted(self.waiting, key=lambda node: node.kind is Kind.WEAKLY):
            self._fill(node)
        return self.copy_of(self.walk.root)

    def make(self, node: Node) -> None:
        """Make a node's object, unless somebody's `__deepcopy__` has done it by now.

        Where a cycle needs it early, what it is made of comes first, with a stack of our own.
        """
        waiting = [node]
        while waiting:
            node = waiting[-1]
            missing = [] if id(node.value) in self.making else self._missing_parts(node)
            if missing:
                self.making.add(id(node.value))
                waiting += missing
            else:
                waiting.pop()
                self._make(node)
                self.making.discard(id(node.value))

    def _missing_parts(self, node: Node) -> list[Node]:
        parts = (self.walk.nodes.get(id(part)) for part in node.parts.made_from)
        return [part for part in parts if part is not None and not self._has(id(part.value))]

    def _make(self, node: Node) -> None:
        key = id(node.value)
        if self._has(key):
            return
        if node.kind is Kind.OPAQUE:
            self._let_copy_itself(node.value)
            return
        if key in self.begun:
            raise CannotCopy(
                f"{type(node.value).__name__} is made from itself: its own __reduce_ex__ says so",
                where=str(self.walk.path_of((node.parent, node.place))),
                expected="constructor arguments that can be made first",
                got="an object among its own arguments",
                way_out="Hand out what leads back as state, the third thing that __reduce_ex__ returns",
            )
        self.begun.add(key)
        copies = self._copies_of(node.parts.made_from)
        self.begun.discard(key)
        match node.kind:
            case Kind.TENSOR:
                made = make_tensor(node.value, node.parts, copies)
                made = made if self.finish is None else self.finish(node.value, made)
            case Kind.REDUCED:
                made = make_reduced(node.value, node.parts, copies)
            case _:
                made = make_container(node.kind, node.value, node.parts, copies)
        if made is node.value:
            self.unchanged.add(key)
        else:
            self.memo[key] = made
            self.made_here.add(key)
            if node.fills:
                self.unfilled.add(key)

    def _has(self, key: int) -> bool:
        return key in self.memo or key in self.unchanged

    def _let_copy_itself(self, value: Any) -> None:
        copier = foreign_copiers().get(type(value))
        if isinstance(value, torch.jit.ScriptModule):
            copier = _copy_scripted
        elif type(value) is arrays_of("tensorflow"):
            copier = _copy_of_tensorflow
        made = value.__deepcopy__(self.memo) if copier is None else copier(value, self.memo)
        if made is value:
            self.unchanged.add(id(value))
        else:
            self.memo.setdefault(id(value), made)

    def fill(self, node: Node) -> None:
        """Put the copies of what it holds into a node's new object, once that can be done."""
        if id(node.value) not in self.made_here:
            return
        self.unfilled.discard(id(node.value))
        if node.kind is Kind.WEAKLY or any(
            id(member) in self.unfilled for member in hashed(node.kind, node.parts)
        ):
            self.waiting.append(node)
        else:
            self._fill(node)

    def _fill(self, node: Node) -> None:
        made = self.memo[id(node.value)]
        copies = self._copies_of(node.parts.filled_with)
        match node.kind:
            case Kind.TENSOR:
                fill_tensor(made, node.parts, copies)
            case Kind.REDUCED:
                fill_reduced(made, node.parts, copies)
                if isinstance(node.value, torch.optim.Optimizer):
                    rehang(node.value, made)
            case _:
                fill_container(node.kind, made, node.parts, copies)

    def _copies_of(self, values: Sequence[Any]) -> list[Any]:
        try:
            return list(map(self.memo.__getitem__, map(id, values)))
        except KeyError:  # atoms among them, or something that a cycle needs early
            return [self.copy_of(value) for value in values]

    def copy_of(self, value: Any) -> Any:
        """The copy of anything in the structure, made on the spot where a cycle needs it early."""
        made = self.memo.get(id(value), _MISSING)
        if made is not _MISSING:
            return made
        kind = kind_of[type(value)]
        if kind in (Kind.ATOM, Kind.FUNCTION) or id(value) in self.unchanged:
            return value
        if kind is Kind.WEAKREF:
            return self._rebound(value)
        node = self.walk.nodes.get(id(value))
        if node is not None:
            self.make(node)
            return self.memo.get(id(value), value)
        return standard_deepcopy(value, self.memo)

    def _rebound(self, reference: Any) -> Any:
        """A weak reference to the copy, where its target is copied too."""
        target = target_of(reference)
        if self.walk.contains(target) and can_rebind(reference):
            return rebound(reference, self.copy_of(target))
        return reference


def _copy_of_tensorflow(value: Any, memo: dict[int, Any]) -> Any:
    """Its `__deepcopy__` returns the tensor itself, since nobody can write it; through DLPack torch can.

    `tf.identity` shares too, whatever its page says. Strings and resources have no such op, and no DLPack.
    """
    kind = value.dtype
    if not (kind.is_floating or kind.is_integer or kind.is_complex or kind.is_bool):
        return value.__deepcopy__(memo)
    return sys.modules["tensorflow"].raw_ops.DeepCopy(x=value)


def _copy_scripted(module: torch.jit.ScriptModule, memo: Memo) -> Any:
    """By its own `__deepcopy__`, whose parameters would otherwise be clones in the graph of the source."""
    with torch.no_grad():
        made = module.__deepcopy__(memo)
    for mine, copied in zip(module.parameters(), made.parameters(), strict=True):
        copied.requires_grad_(mine.requires_grad)
    return made


def _add_path(error: Exception, walk: Walk, node: Node) -> None:
    note = f"while truecopy was copying {walk.path_of((node.parent, node.place))}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
