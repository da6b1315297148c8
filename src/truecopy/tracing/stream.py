"""One stream of what a thread does with tensors, and who looks on.

What comes in: calls of torch functions, from a function mode, and the operations that torch dispatches,
from a dispatch mode: `x.reshape(6)` is one call, and inside of it the operations `clone` and
`_unsafe_view`; in a backward pass there are operations and no calls. What goes out: methods of one
`Observer`, called with the live tensors at the very moment. It owns the modes, the stack of modules
and the switch that leaves compiled regions alone; it keeps no tensor, and resolves nothing.

    with Stream(observer): ...

A stream is of the thread that opens it. Streams nest, each with its own modes: the inner sees first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Set
from types import FrameType, TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from truecopy import _torch
from truecopy.tracing.compiled import CompiledRegions
from truecopy.tracing.composites import Composites
from truecopy.tracing.modules import FAST, ModuleStack
from truecopy.tracing.operations import KNOWN, Operation, operation_of

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


SILENT: set[Any] = {
    *(getattr(torch.Tensor, name).__get__ for name in (
        "shape", "dtype", "device", "layout", "requires_grad", "is_leaf", "grad_fn", "ndim", "itemsize",
        "nbytes", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_sparse_csr", "is_quantized",
        "is_nested", "is_mkldnn", "is_xpu", "is_mps", "names", "output_nr", "retains_grad", "grad_dtype",
        "_version", "grad",
    ) if hasattr(torch.Tensor, name)),
    *(getattr(torch.Tensor, name) for name in (
        "size", "stride", "dim", "numel", "nelement", "element_size", "storage_offset", "is_contiguous",
        "is_floating_point", "is_complex", "is_inference", "is_conj", "is_neg", "get_device",
        "__len__", "untyped_storage", "data_ptr", "register_hook", "__hash__", "ndimension",
        "is_signed", "is_shared", "is_pinned",
    )),
    torch.is_floating_point, torch.is_complex, torch.is_tensor, torch.is_grad_enabled, torch.numel,
    torch.set_grad_enabled, torch.is_storage,
}  # fmt: skip
"""Functions that only tell or set a flag: no calls to speak of. Models ask for shapes all the time."""


class Observer:
    """What wants to know. Methods that a class leaves as they are cost nothing.

    They run inside of the program's own calls: an observer must not call torch functions that
    allocate, must not keep tensors, and is not told of what it does itself. What it raises ends
    the program's call.
    """

    stream: Stream
    operations_alone = False
    """Whether calls and modules are of no interest: then there is no function mode, and half the cost."""
    inner_calls = False
    """Whether calls inside of calls are told too: `softmax` in `F.multi_head_attention_forward`."""
    ignored: Set[Any] = SILENT
    """Functions of which nothing is told."""
    leaves_regions_alone = True
    """Whether to step aside where a compiled region begins; not so of who has them run eagerly."""

    def around_module(
        self,
        module: Any,
        args: Args,  # noqa: ARG002 - for those who override
        kwargs: Kwargs,  # noqa: ARG002
        run: Callable[[], Any],
    ) -> Any:
        """Run a call of a module, and return what it returned.

        Modules with a fast path go it, as they would without us; who overrides this decides that too.
        """
        return self.stream.run_aside(run) if isinstance(module, FAST) else run()

    def begin(self, function: Any, args: Args, kwargs: Kwargs) -> None:
        """A call of a torch function begins."""

    def end(
        self, function: Any, args: Args, kwargs: Kwargs, result: Any, error: BaseException | None
    ) -> None:
        """It has ended, with a result or an exception."""

    def outermost(self, module: Any) -> None:
        """A module is about to run that no other module called."""

    def before(self, operation: Operation, args: Args, kwargs: Kwargs) -> None:
        """An operation is about to run."""

    def after(
        self,
        operation: Operation,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        """It has run. `result` is what torch returns below autograd: it has no `grad_fn` yet."""


class Stream:
    """Shows an observer the calls and the operations of this thread, while it is open."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        observer.stream = self
        self.depth = 0  # of calls that are running
        self.is_open = False
        self.modules = ModuleStack(_told(observer, "outermost"), observer.around_module)
        self.regions = CompiledRegions(self._enter_region, self._leave_region)
        self._functions = _Functions(self)
        self._operations = _Operations(self)
        self._place = -1  # of our function mode among all, where we stepped aside
        self._sees_calls = not observer.operations_alone

    def __enter__(self) -> Stream:
        self.is_open = True
        if self._sees_calls:
            self.modules.open()
        if self.observer.leaves_regions_alone:
            self.regions.open()
        if self._operations.is_wanted:
            self._operations.__enter__()  # type: ignore[no-untyped-call]
        if self._sees_calls:
            self._functions.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._step_aside()
        self.is_open = False
        if self._operations.is_wanted:
            self._operations.__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        self.regions.close()
        self.modules.close()

    def frame(self) -> FrameType | None:
        """The innermost frame that is not of the modes: to be asked by an observer, when it is called."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code not in _HANDLERS:
            frame = frame.f_back
        return frame and frame.f_back

    def _step_aside(self) -> None:
        modes = _torch.function_modes()
        if self._functions in modes:
            self._place = modes.index(self._functions)
            modes.remove(self._functions)
            _torch.set_function_modes(modes)

    def step_back(self) -> None:
        """Put our function mode where it was."""
        if self._place >= 0:
            modes = _torch.function_modes()
            modes.insert(self._place, self._functions)
            _torch.set_function_modes(modes)
            self._place = -1

    def _enter_region(self) -> None:
        self._step_aside()
        self.modules.step_aside()

    def _leave_region(self) -> None:
        self.step_back()
        self.modules.step_back()

    @property
    def is_aside(self) -> bool:
        """Whether our function mode is off, for a module or a compiled region that would notice it."""
        return self._place >= 0

    def run_aside(self, run: Callable[[], Any]) -> Any:
        """Run a module without our function mode, whose presence would change its way and its result."""
        if self.is_aside:
            return run()
        self._step_aside()
        try:
            return run()
        finally:
            self.step_back()


class _Functions(TorchFunctionMode):
    """Sees calls of torch functions."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream
        self._composites = Composites() if stream.observer.inner_calls else None
        self._ignored = stream.observer.ignored
        self._begin = _told(stream.observer, "begin")
        self._end = _told(stream.observer, "end")

    def __torch_function__(
        self, function: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        if kwargs is None:
            kwargs = {}
        stream = self._stream
        if function in self._ignored or (stream.depth < 0 and type(function) is _torch.OpOverload):
            return function(*args, **kwargs)
        stream.depth += 1
        try:
            if self._begin is not None:
                self._begin(function, args, kwargs)
            opened = self._composites and self._composites.opened(function, types)
            if opened:
                with self:
                    result = opened(*args, **kwargs)
            else:
                result = function(*args, **kwargs)
        except BaseException as error:
            if self._end is not None:
                self._end(function, args, kwargs, None, error)
            raise
        else:
            if self._end is not None:
                self._end(function, args, kwargs, result, None)
            return result
        finally:
            stream.depth -= 1


class _Operations(_torch.DispatchMode):
    """Sees the operations that torch dispatches, below autograd."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._stream = stream
        self._before = _told(stream.observer, "before")
        self._after = _told(stream.observer, "after")
        self.is_wanted = self._before is not None or self._after is not None

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        if types and not _are_seen_whole(types):
            return NotImplemented
        if kwargs is None:
            kwargs = {}
        operation = KNOWN.get(id(function)) or operation_of(function)
        if self._before is not None:
            self._before(operation, args, kwargs)
        stream = self._stream
        depth, stream.depth = stream.depth, -1
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            stream.depth = depth
            if self._after is not None:
                self._after(operation, args, kwargs, None, error)
            raise
        stream.depth = depth
        if self._after is not None:
            self._after(operation, args, kwargs, result, None)
        return result


def _told(observer: Observer, name: str) -> Any:
    """The observer's method, or None where its class has not written one."""
    return (
        None
        if getattr(type(observer), name) is getattr(Observer, name)
        else getattr(observer, name)
    )


def _are_seen_whole(types: Args) -> bool:
    """Whether tensors of these classes are looked at as they are, and not as what they are made of.

    A wrapper's operation is seen again, on the tensors inside. A fake tensor has nothing inside.
    """
    seen = _SEEN_WHOLE.get(types)
    if seen is None:
        seen = _SEEN_WHOLE[types] = not any(map(_torch.answers_operations, types))
    return seen


_SEEN_WHOLE: dict[Args, bool] = {}
_HANDLERS = (
    _Functions.__torch_function__.__code__,
    _Operations.__torch_dispatch__.__code__,
)
for _handler in (_Functions.__torch_function__, _Operations.__torch_dispatch__):
    _torch.leave_to_python(_handler)
