"""Where compiled regions begin and end, so that who looks on can step aside: they run as compiled."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import CodeType, FrameType, ModuleType
from typing import Any

from truecopy import _torch


class CompiledRegions:
    """Calls `enter` and `leave` where the thread that made it enters and leaves a compiled region.

    Does not import the compiler: where a program does so later, it is met there.
    """

    def __init__(self, enter: Callable[[], None], leave: Callable[[], None]) -> None:
        self.count = 0
        self._enter = enter
        self._leave = leave
        self._thread = threading.get_ident()
        self._inside: list[int] = []  # identities of the compiler's frames that run regions
        self._module: ModuleType | None = None
        self._original: _torch.SetCallback | None = None
        self._switch: _torch.SetCallback | None = None
        self._waiting: _Arrival | None = None

    def open(self) -> None:
        """Begin to look."""
        module = sys.modules.get(_torch.COMPILER)
        if module is not None and not _is_loading(module):
            self._wrap(module)
        else:
            self._waiting = _Arrival(self._wrap)
            sys.meta_path.insert(0, self._waiting)

    def close(self) -> None:
        """Look no more, wherever the compiler's function was wrapped again in between."""
        self._thread = 0
        if self._waiting in sys.meta_path:
            sys.meta_path.remove(self._waiting)
        module, original = self._module, self._original
        if module is None or original is None:
            return
        if _torch.compiled_region_switch(module) is self._switch:
            _torch.set_compiled_region_switch(module, original)

    def _wrap(self, module: ModuleType) -> None:
        original = _torch.compiled_region_switch(module)

        def switch(callback: Any) -> Any:
            before = original(callback)
            if threading.get_ident() == self._thread:
                self._pass(_caller(switch.__code__))
            return before

        _torch.leave_to_python(switch)
        self._module, self._original, self._switch = module, original, switch
        _torch.set_compiled_region_switch(module, switch)

    def _pass(self, frame: FrameType) -> None:
        """The compiler's frame passes here on its way in, and on its way out.

        Others pass as well: functions inside of a region that are not compiled.
        """
        if frame.f_code.co_name != _torch.REGION:
            return
        if id(frame) not in self._inside:
            self._inside.append(id(frame))
            if len(self._inside) == 1:
                self.count += 1
                self._enter()
        else:
            self._inside.remove(id(frame))
            if not self._inside:
                self._leave()


def _caller(switch: CodeType) -> FrameType:
    """The frame that called the outermost of our switches: streams nest, and so do they."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is switch:
        frame = frame.f_back
    assert frame is not None, "somebody called"
    return frame


def _is_loading(module: ModuleType) -> bool:
    return getattr(module.__spec__, "_initializing", False)


class _Arrival(importlib.abc.MetaPathFinder):
    """Tells when the compiler has been imported. It finds nothing of its own."""

    def __init__(self, tell: Callable[[ModuleType], None]) -> None:
        self._tell = tell

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _torch.COMPILER or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute, tell = spec.loader.exec_module, self._tell

        def execute_and_tell(module: ModuleType) -> None:
            execute(module)
            tell(module)

        spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec
