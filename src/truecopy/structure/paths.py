"""How to reach a value from the root, as Python that can be pasted.

A path is the name of the root and a tuple of steps. A step knows two things: how it is written
behind the code of what comes before, and how it is taken.
"""

from __future__ import annotations

import ast
import gc
import keyword
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from truecopy.errors import UsageError


class Step(Protocol):
    """One move from a value to something that it holds."""

    def code(self, before: str) -> str: ...

    def follow(self, value: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Attribute:
    """`value.name`; written with getattr where the name is no identifier."""

    name: str

    def code(self, before: str) -> str:
        if self.name.isidentifier() and not keyword.iskeyword(self.name):
            return f"{before}.{self.name}"
        return f"getattr({before}, {self.name!r})"

    def follow(self, value: Any) -> Any:
        return getattr(value, self.name)


@dataclass(frozen=True, slots=True)
class Item:
    """`value[key]`, for keys that Python can write down."""

    key: Any

    def code(self, before: str) -> str:
        return f"{before}[{self.key!r}]"

    def follow(self, value: Any) -> Any:
        return value[self.key]


@dataclass(frozen=True, slots=True)
class ItemOf:
    """`value[<path of the key>]`, for a key that is itself an object of the structure."""

    key: Any
    key_code: Callable[[], str]

    def code(self, before: str) -> str:
        return f"{before}[{self.key_code()}]"

    def follow(self, value: Any) -> Any:
        return value[self.key]


@dataclass(frozen=True, slots=True)
class Nth:
    """The n-th thing that iterating yields: members of sets, keys of dicts."""

    index: int

    def code(self, before: str) -> str:
        return f"[*{before}][{self.index}]"

    def follow(self, value: Any) -> Any:
        return [*value][self.index]


@dataclass(frozen=True, slots=True)
class NthValue:
    """The n-th value of a dict whose key Python cannot write down."""

    index: int
    key: Any = field(compare=False)

    def code(self, before: str) -> str:
        return f"[*{before}.values()][{self.index}]"

    def follow(self, value: Any) -> Any:
        return [*value.values()][self.index]


@dataclass(frozen=True, slots=True)
class Behind:
    """What a read-only view looks at: nothing to write, for the view leads to all that it holds."""

    def code(self, before: str) -> str:
        return before

    def follow(self, value: Any) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Referent:
    """What only the garbage collector shows: `gc.get_referents(value)[n]`."""

    index: int

    def code(self, before: str) -> str:
        return f"[r for r in gc.get_referents({before}) if r is not type({before})][{self.index}]"

    def follow(self, value: Any) -> Any:
        return [held for held in gc.get_referents(value) if held is not type(value)][self.index]


@dataclass(frozen=True, slots=True)
class Call:
    """`value.method()`, for what only a method hands out: `weight._values()`."""

    method: str

    def code(self, before: str) -> str:
        return f"{before}.{self.method}()"

    def follow(self, value: Any) -> Any:
        return getattr(value, self.method)()


@dataclass(frozen=True, slots=True)
class Reduced:
    """Something that an object's own `__reduce_ex__` hands out and no attribute does."""

    index: tuple[int | str, ...]

    def code(self, before: str) -> str:
        return f"{before}.__reduce_ex__(4)" + "".join(f"[{i!r}]" for i in self.index)

    def follow(self, value: Any) -> Any:
        value = value.__reduce_ex__(4)
        for i in self.index:
            value = value[i]
        return value


@dataclass(frozen=True, slots=True)
class Path:
    """A root's name and the steps from it. `str(path)` is Python; `follow(root)` takes it."""

    root: str
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        text = self.root
        for step in self.steps:
            text = step.code(text)
        return text

    def follow(self, root: Any) -> Any:
        """The value that the path leads to. Allocates nothing."""
        for step in self.steps:
            root = step.follow(root)
        return root

    @classmethod
    def parse(cls, text: str) -> Path:
        """Read a path as it is printed.

        Only names, attributes, literal subscripts, `getattr` with a literal and the readers of sparse
        tensors are read: nothing is ever evaluated.
        """
        try:
            node = ast.parse(text.strip(), mode="eval").body
            return cls(*_read(node))
        except (SyntaxError, ValueError) as error:
            raise UsageError(
                f"{text!r} is not a path",
                expected="Python as truecopy prints it, such as model.layers[3].weight",
                got=str(error),
            ) from None


_READERS = frozenset(
    ("_indices", "_values", "values", "crow_indices", "col_indices", "ccol_indices", "row_indices")
)
"""Methods that a printed path may call, and so a path that is read: they hand out, and change nothing."""


def _read(node: ast.expr) -> tuple[str, tuple[Step, ...]]:
    steps: list[Step] = []
    while not isinstance(node, ast.Name):
        step, node = _read_step(node)
        steps.append(step)
    return node.id, tuple(reversed(steps))


def _read_step(node: ast.expr) -> tuple[Step, ast.expr]:
    match node:
        case ast.Attribute(value=before, attr=name):
            return Attribute(name), before
        case ast.Subscript(value=ast.List(elts=[ast.Starred(value=before)]), slice=index):
            return Nth(ast.literal_eval(index)), before
        case ast.Subscript(value=before, slice=key):
            return Item(ast.literal_eval(key)), before
        case ast.Call(
            func=ast.Name(id="getattr"), args=[before, ast.Constant(value=str(name))], keywords=[]
        ):
            return Attribute(name), before
        case ast.Call(func=ast.Attribute(value=before, attr=method), args=[], keywords=[]) if (
            method in _READERS
        ):
            return Call(method), before
    raise ValueError(f"cannot read {ast.unparse(node)!r}")
