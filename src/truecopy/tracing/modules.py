"""Which module is running, and what it is called: a stack beside Python's own.

Hooks are not used: global ones make torch.compile warn, those of a module switch fast paths off. The
one method that calls every module is wrapped instead, while somebody looks, and for the thread that looks.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn

from truecopy import _torch

Run = Callable[..., Any]
Around = Callable[[Any, tuple[Any, ...], dict[str, Any], Callable[[], Any]], Any]
"""Runs a call of a module: from the module, its arguments, and what runs it."""

_watching: tuple[tuple[int, Any], ...] = ()  # threads, and who looks there, the outermost first
_lock = threading.Lock()
_original: Run = nn.Module.__call__


def _called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Stands in the place of `nn.Module.__call__` while anybody looks, on any thread."""
    run, thread = _original, threading.get_ident()
    for of, call in _watching:
        if of == thread:
            run = _inside(call, run)
    return run(module, *args, **kwargs)


def _inside(call: Any, run: Run) -> Run:
    return lambda module, *args, **kwargs: call(run, module, args, kwargs)


for _function in (_called, _inside):
    _torch.leave_to_python(_function)


def _watch(thread: int, call: Any) -> None:
    """Let somebody be called around each call of a module."""
    global _watching  # noqa: PLW0603 - one place of the process, whoever looks
    with _lock:
        _watching = (*_watching, (thread, call))
        _take_place()


def _unwatch(thread: int, call: Any) -> None:
    """The last one gives the place back, in whatever order they end."""
    global _watching  # noqa: PLW0603
    with _lock:
        _watching = tuple(one for one in _watching if one != (thread, call))
        if not _watching:
            _give_place()


def _take_place() -> None:
    global _original  # noqa: PLW0603
    if _watching and nn.Module.__call__ is not _called:
        _original = nn.Module.__call__
        nn.Module.__call__ = _called  # type: ignore[method-assign]


def _give_place() -> None:
    if nn.Module.__call__ is _called:
        nn.Module.__call__ = _original  # type: ignore[method-assign]


class ModuleStack:
    """The modules that run on the thread that made it, the outermost first."""

    def __init__(self, outermost: Callable[[Any], None] | None, around: Around) -> None:
        """`outermost` is told of modules that no other called; `around` runs each call, in its place."""
        self.modules: list[Any] = []
        self.paths: list[str] = []
        self.path = ""  # of the innermost: "layers.0.attn"; of the outermost its class; "" outside
        self._known: dict[int, tuple[Any, str]] = {}  # by identity: weak reference, path
        self._thread = threading.get_ident()
        self._outermost = outermost
        self._around = around

    def open(self) -> None:
        """Begin to look."""
        _watch(self._thread, self._call)

    def close(self) -> None:
        """Look no more."""
        _unwatch(self._thread, self._call)

    def step_aside(self) -> None:
        """Leave the method as it was, for the compiler to find."""
        _give_place()

    def step_back(self) -> None:
        """Look again."""
        _take_place()

    def _call(self, run: Run, module: nn.Module, args: Any, kwargs: Any) -> Any:
        before = self.path
        if not self.modules and self._outermost is not None:
            self._outermost(module)
        self.modules.append(module)
        path = self.path = self._path(module)
        self.paths.append(path)
        try:
            return self._around(module, args, kwargs, lambda: run(module, *args, **kwargs))
        finally:
            self.modules.pop()
            self.paths.pop()
            self.path = before

    def _path(self, module: nn.Module) -> str:
        known = self._known.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        if len(self.modules) == 1:
            self._name_all(module)
        elif not self._name_all(self.modules[0], module):
            # Neither a child of the outermost: it is called from where it is kept, by its class.
            self._known[id(module)] = (weakref.ref(module), type(module).__name__)
        return self._known[id(module)][1]

    def _name_all(self, root: nn.Module, wanted: nn.Module | None = None) -> bool:
        for path, module in root.named_modules():
            name = path or type(root).__name__
            known = self._known.get(id(module))
            if known is None or known[0]() is not module or not path:
                self._known[id(module)] = (weakref.ref(module), name)
        return wanted is None or id(wanted) in self._known


FAST = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)
"""Modules that take a slower path, with other results in the last bits, where a function mode is on."""
