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


class ModuleStack:
    """The modules that run on the thread that made it, the outermost first."""

    def __init__(
        self,
        outermost: Callable[[Any], None] | None,
        around: Callable[[Callable[[], Any]], Any],
    ) -> None:
        """`outermost` is told of modules that no other called; `around` runs those with a fast path."""
        self.modules: list[Any] = []
        self.paths: list[str] = []
        self.path = ""  # of the innermost: "layers.0.attn"; of the outermost its class; "" outside
        self._known: dict[int, tuple[Any, str]] = {}  # by identity: weak reference, path
        self._thread = threading.get_ident()
        self._original: Any = None
        self._wrapper: Any = None
        self._outermost = outermost
        self._around = around

    def open(self) -> None:
        """Begin to look."""
        original = self._original = nn.Module.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return original(module, *args, **kwargs)
            before = self.path
            if not self.modules and self._outermost is not None:
                self._outermost(module)
            self.modules.append(module)
            path = self.path = self._path(module)
            self.paths.append(path)
            try:
                if isinstance(module, FAST):
                    return self._around(lambda: original(module, *args, **kwargs))
                return original(module, *args, **kwargs)
            finally:
                self.modules.pop()
                self.paths.pop()
                self.path = before

        _torch.leave_to_python(call)
        self._wrapper = nn.Module.__call__ = call  # type: ignore[method-assign]

    def close(self) -> None:
        """Look no more."""
        self.step_aside()
        self._thread = (
            0  # where the method was wrapped again in between, ours stays, and does nothing
        )

    def step_aside(self) -> None:
        """Leave the method as it was, for the compiler to find."""
        if nn.Module.__call__ is self._wrapper:
            nn.Module.__call__ = self._original  # type: ignore[method-assign]

    def step_back(self) -> None:
        """Look again."""
        if nn.Module.__call__ is self._original:
            nn.Module.__call__ = self._wrapper  # type: ignore[method-assign]

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
