"""Where in the model a call happens: a stack of module calls, each with its path by the way it was reached.

A module is named by the edge from the module that called it, so one module under two parents has two names,
and each of them is the one that people would write. Wrappers (torch.compile, DDP) have no name of their own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torch import nn

from truecopy.structure.naming import variables

_INNER = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))
"""Attributes under which wrappers keep the module that they wrap."""

_WRAPPERS = frozenset((
    "OptimizedModule", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel",
    "CheckpointWrapper", "OffloadWrapper",
))  # fmt: skip


@dataclass(slots=True, eq=False)
class Call:
    """One call of a module, while it runs."""

    module: nn.Module
    path: str
    number: int
    counts: dict[str, int] = field(default_factory=dict)  # of functions, in this call
    before: dict[str, Any] | None = None  # what its attributes held, where anything


def is_wrapper(module: nn.Module) -> bool:
    """Whether a module stands for the one in it."""
    return type(module).__name__ in _WRAPPERS


class Places:
    """The module calls of one capture."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.stack: list[Call | None] = []
        self.numbers: Counter[str] = Counter()
        self._edges: dict[int, dict[int, str]] = {}
        self._outside: dict[int, Call] = {}
        self._clean: dict[str, str] = {}

    def enter(self, module: nn.Module) -> Call | None:
        """A call of a module begins; None where the module is not the model's.

        A wrapper's call does not count: it is that of the module for which it stands.
        """
        above = self.stack[-1] if self.stack else None
        path = self.path_of(module, above)
        if path is None:
            self.stack.append(above)
            return None
        call = Call(module, path, self.numbers[path])
        if not is_wrapper(module):
            self.numbers[path] += 1
        self.stack.append(call)
        return call

    def path_of(self, module: nn.Module, above: Call | None) -> str | None:
        """The path of a module that is called from another, or from outside."""
        if above is not None:
            edge = self._edge(above.module, module)
            if edge is not None:
                return self._cleaned(above.module, above.path, edge)
        edge = self._edge(self.model, module)
        return None if edge is None else self._cleaned(self.model, "", edge)

    def _edge(self, parent: nn.Module, module: nn.Module) -> str | None:
        for name, child in parent.named_children():  # nearly every call is of a child
            if child is module:
                return name
        known = self._edges.get(id(parent))
        if known is None or id(module) not in known:
            if (
                known is not None
                and parent is not self.model
                and id(module) not in self._edges.get(id(self.model), {})
            ):
                return None
            known = self._edges[id(parent)] = {}
            for path, one in parent.named_modules(remove_duplicate=False):
                known.setdefault(id(one), path)
        return known.get(id(module))

    def _cleaned(self, parent: nn.Module, above: str, edge: str) -> str:
        """The path without what wrappers put into it."""
        names: list[str] = []
        module: Any = parent
        for name in edge.split(".") if edge else ():
            inner = name in _INNER or (name == "module" and is_wrapper(module))
            if not inner:
                names.append(name)
            module = getattr(module, name, None)
        return ".".join([above, *names] if above else names)

    @property
    def current(self) -> Call | None:
        """The innermost call of a module of the model."""
        return self.stack[-1] if self.stack else None

    def outside(self, frame: FrameType | None) -> Call | None:
        """The call that runs where no module was called: a method of one, by the `self` of a frame."""
        while frame is not None:
            code = frame.f_code
            if code.co_argcount and code.co_varnames[0] == "self":
                owner = next((held for name, held in variables(frame) if name == "self"), None)
                if isinstance(owner, nn.Module):
                    path = self.path_of(owner, None)
                    if path is not None:
                        known = self._outside.get(id(owner))
                        if known is None:
                            known = self._outside[id(owner)] = Call(owner, path, 0)
                        return known
            frame = frame.f_back
        return None
