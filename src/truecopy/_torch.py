"""The only module that names torch's internals: one function for each need.

Each docstring says which public API is missing and what happens without the internal one. What is
relied upon is checked by its behavior in tests/unit/test_torch_internals.py, for the torch that is pinned.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils import _python_dispatch

# Read once: the attribute walk costs as much as the calls themselves.
_C: Any = torch._C
_dispatch_keys = _C._dispatch_keys


def disable_torch_function() -> Any:
    """A context in which tensors of subclasses, and modes, are read as plain tensors.

    `torch.overrides` has no public form. Without it, reading a shape would run users' code.
    """
    return _C.DisableTorchFunction()


P = ParamSpec("P")
R = TypeVar("R")


def run_eagerly(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which torch.compile calls instead of tracing into it.

    Public names only, and here since every room needs it. `torch.compiler.disable` as a decorator
    would import the compiler for everyone; tracing takes the first branch, and no other run does.
    """

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)  # type: ignore[no-any-return]
        return function(*args, **kwargs)

    return called


def no_modes() -> Any:
    """A context in which no dispatch mode sees what we do, and none changes what we get.

    Only underscored names tell of the modes that are on. Without it, an empty tensor that we make to
    read an address would be a fake one under FakeTensorMode, and an event in somebody's log.
    """
    return _python_dispatch._disable_current_modes()


class Unrecorded:
    """`torch.inference_mode(False)` and `torch.no_grad()` at once, a context.

    The public ones take 4 us each time, where a small tensor is cloned in 1.
    """

    __slots__ = ("_grad", "_ordinary")

    def __enter__(self) -> None:
        self._ordinary = _C._InferenceMode(False) if torch.is_inference_mode_enabled() else None
        if self._ordinary is not None:
            self._ordinary.__enter__()
        self._grad = torch.is_grad_enabled()  # leaving inference mode turned it on
        _C._set_grad_enabled(False)

    def __exit__(self, *raised: object) -> None:
        _C._set_grad_enabled(self._grad)
        if self._ordinary is not None:
            self._ordinary.__exit__(*raised)


def saved_tensors(node: Any) -> list[Tensor]:
    """What a graph node saved for the backward pass, as it was saved: no unpack hook is run.

    The public `_saved_*` attributes run users' unpack hooks, and raise once the graph was freed.
    """
    return [tensor for _, tensor in saved_by_name(node)]


def saved_by_name(node: Any) -> list[tuple[str, Tensor]]:
    """The same with names: `result`, `self`, and `tensors[1]` where there are many of one name."""
    found: list[tuple[str, Tensor]] = []
    cls: Any = type(node)
    for attribute in _saved_names(cls):
        name, held = attribute.removeprefix("_raw_saved_"), getattr(node, attribute)
        many = isinstance(held, (list, tuple))
        for i, saved in enumerate(held if many else (held,)):
            data = _saved_data(saved)
            if isinstance(data, Tensor):
                found.append((f"{name}[{i}]" if many else name, data))
    return found


@functools.cache
def _saved_names(cls: Any) -> tuple[str, ...]:
    return tuple(name for name in dir(cls) if name.startswith("_raw_saved_"))


def _saved_data(saved: Any) -> Any:
    try:
        return saved.data
    except (AttributeError, RuntimeError):  # freed by a backward pass, or an older torch
        return None


def dispatch_keys(tensor: Tensor) -> int:
    """What a tensor is, as one number: device, layout, conj and neg bits, wrappers, inference.

    Public readers exist for each part, a dozen calls against one.
    """
    return _dispatch_keys(tensor).raw_repr()  # type: ignore[no-any-return]


def dispatch_keys_of_all(tensors: Iterable[Tensor]) -> set[int]:
    """The different `dispatch_keys` of many tensors."""
    return set(map(_C.DispatchKeySet.raw_repr, map(_dispatch_keys, tensors)))


def _plain_keys() -> frozenset[int]:
    with disable_torch_function(), torch.inference_mode(False):
        ordinary = dispatch_keys(torch.empty(0, device="cpu"))
    with disable_torch_function(), torch.inference_mode():
        inference = dispatch_keys(torch.empty(0, device="cpu"))
    return frozenset((ordinary, inference))


PLAIN_KEYS = _plain_keys()
"""`dispatch_keys` of ordinary dense CPU tensors, made outside and inside of inference mode."""


_ALIKE_AT_ONCE = 64


def all_alike(tensors: Sequence[Tensor], *, of_one_shape: bool = True) -> bool:
    """Whether all are of the first one's class, dispatch keys, dtype, device, requires_grad, dimensions.

    With `of_one_shape`, also of its shape and strides.

    Public readers exist for each, seven calls for every tensor against one for 64. These are the
    checks that compiled programs make of their inputs, in C++. Without them, nothing is alike.
    """
    if not (guards := getattr(_C._dynamo.guards, "TensorGuards", None)) or not tensors:
        return False
    first, count = tensors[0], min(_ALIKE_AT_ONCE, len(tensors))
    any_number: list[int | None] = [None] * first.dim()
    shape, strides = [*first.shape], [*first.stride()]
    with torch.enable_grad():  # else requires_grad is not compared
        expected = guards(
            *[first] * count,
            dynamic_dims_sizes=[shape if of_one_shape else any_number] * count,
            dynamic_dims_strides=[strides if of_one_shape else any_number] * count,
        )
        last = len(tensors) - count
        return all(expected.check(*tensors[i : i + count]) for i in range(0, last, count)) and (
            expected.check(*tensors[last:])
        )


def is_functorch_wrapper(tensor: Tensor) -> bool:
    """Whether the tensor is a stand-in that vmap, grad or jvp made; it dies with its transform."""
    return bool(_C._functorch.is_functorch_wrapped_tensor(tensor))


def is_python_dispatched(tensor: Tensor) -> bool:
    """Whether the tensor's operations are answered by `__torch_dispatch__`: a wrapper or a fake."""
    return bool(_dispatch_keys(tensor).has(_C.DispatchKey.Python))


def is_copy_on_write(tensor: Tensor) -> bool:
    """Whether the storage is shared lazily until somebody writes (`torch._lazy_clone`).

    Nothing public tells. Asking `data_ptr()` instead would make the copy.
    """
    return bool(_C._is_cow_tensor(tensor))


is_copy_on_write_as_is: Callable[[Tensor], bool] = _C._is_cow_tensor
"""`is_copy_on_write`, for loops in C over many tensors."""


@functools.cache
def lazy_clones_hold() -> bool:
    """Whether torch still has lazy clones that share bytes, and of which a write changes one alone."""
    with disable_torch_function(), no_modes(), torch.inference_mode(False), torch.no_grad():
        source = torch.zeros(16)
        try:
            clones = [torch._lazy_clone(source) for _ in range(2)]
        except (AttributeError, RuntimeError):
            return False
        share = len({storage_address(one) for one in (source, *clones)}) == 1
        clones[0].fill_(1)
        source.fill_(2)
        return share and [one.sum().item() for one in (source, *clones)] == [32, 16, 0]


def lazy_clone(tensor: Tensor) -> Tensor:
    """A clone of the tensor's whole storage that shares its bytes until one of the two is written.

    Nothing public makes one. Without it, or where it does not do what it did, an ordinary clone.
    Raises RuntimeError for storages that torch's own allocator did not make.
    """
    if not lazy_clones_hold():
        return tensor.clone()
    made: Tensor = torch._lazy_clone(tensor)
    return made


def any_copy_on_write(tensors: Iterable[Tensor]) -> bool:
    """Whether `is_copy_on_write` holds for any of many tensors, asked in one C loop."""
    return any(map(_C._is_cow_tensor, tensors))


def storage_address(tensor: Tensor) -> int:
    """Address of the storage's first byte, without materializing a copy-on-write storage.

    The public `untyped_storage().data_ptr()` materializes. 0 for storages without memory.
    """
    return int(_C._data_address(tensor))


storage_address_as_is: Callable[[Tensor], int] = _C._data_address
"""`storage_address`, for loops in C over many tensors: a Python function between would double the time."""

address_as_is: Callable[[Tensor], int] = _C.TensorBase.const_data_ptr
"""Address of the first element, without materializing: the public `data_ptr` does. In C, for loops."""

storage_bytes: Callable[[Any], int] = _C.StorageBase.nbytes
"""The size of a storage. `torch.UntypedStorage` has it from this base, for loops in C as well."""


def storage_identity(tensor: Tensor) -> int:
    """A number that two tensors share exactly while they share one storage object.

    Public storages are new Python objects at every access; their addresses are equal for empty ones.
    """
    return int(tensor.untyped_storage()._cdata)


below_autograd: Callable[[], Any] = _C._AutoDispatchBelowAutograd
"""A context in which autograd records nothing, at a quarter of what `torch.no_grad()` costs."""


def without_functorch() -> Any:
    """A context in which no transform of torch.func sees what we do; nothing public leaves one."""
    return _C._DisableFuncTorch()


def unwrapped(tensor: Tensor) -> Tensor:
    """The memory behind the stand-ins of vmap, grad and jvp, batch axes first, the outermost the first.

    Nothing public unwraps. Without it, what was computed under a transform dies with the transform.
    """
    functorch = _C._functorch
    axes: list[int] = []  # of each vmap, the innermost first, counted without those further out
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            axes.append(functorch.maybe_get_bdim(tensor))
        tensor = functorch.get_unwrapped(tensor)
    with without_functorch():
        rest = list(range(tensor.dim()))
        first = [rest.pop(axis) for axis in reversed(axes)]
        return tensor.permute(*first, *rest) if first else tensor


class StorageLife:
    """Keeps the number of a storage from being given out again, without keeping its memory.

    `torch.multiprocessing.reductions.StorageWeakRef` is the same, and as little public.
    """

    __slots__ = ("_pointer",)

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._pointer: Any = storage._weak_ref()

    @property
    def is_over(self) -> bool:
        """Whether the memory was freed."""
        return bool(torch.UntypedStorage._expired(self._pointer))

    def __del__(self) -> None:
        torch.UntypedStorage._free_weak_ref(self._pointer)


def compiles_itself(module: torch.nn.Module) -> bool:
    """Whether `module.compile()` was called; nothing public tells."""
    return module._compiled_call_impl is not None


def dispatch_modes_are_on() -> bool:
    """Whether any dispatch mode would see what we do: fake tensors, loggers."""
    return bool(_C._len_torch_dispatch_stack() > 0)


def in_backward() -> bool:
    """Whether a backward pass is running on this thread: code that runs now is recomputed, or a hook.

    Holds for both kinds of checkpointing; nothing public tells.
    """
    return bool(_C._current_graph_task_id() != -1)


def graph_task() -> int:
    """The number of the backward pass that is running on this thread, or -1."""
    return int(_C._current_graph_task_id())


def make_subclass(cls: type[Tensor], data: Tensor, requires_grad: bool) -> Tensor:
    """`data` itself as a tensor of class `cls`, without running the class's constructor."""
    return torch.Tensor._make_subclass(cls, data, requires_grad)


def hooks_of(tensor: Tensor) -> list[str]:
    """Names of the kinds of hooks that hang on a tensor; only underscored attributes tell."""
    found = []
    if tensor._backward_hooks:
        found.append("backward hooks")
    if getattr(tensor, "_post_accumulate_grad_hooks", None):
        found.append("post-accumulate-grad hooks")
    return found


def coo_parts(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Indices and values of a COO tensor as they are; the public readers demand a coalesced one."""
    return tensor._indices(), tensor._values()


def set_coalesced(tensor: Tensor, coalesced: bool) -> None:
    """The coalesced flag, as the source has it. The constructor's argument is public only in part."""
    tensor._coalesced_(coalesced)


def nested_parts(tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sizes, strides and offsets of a strided nested tensor; nothing public hands them out."""
    return (
        tensor._nested_tensor_size(),
        tensor._nested_tensor_strides(),
        tensor._nested_tensor_storage_offsets(),
    )


def nested_from_buffer(buffer: Tensor, sizes: Tensor, strides: Tensor, offsets: Tensor) -> Tensor:
    """A strided nested tensor on a buffer that exists already."""
    result: Tensor = torch._nested_view_from_buffer(buffer, sizes, strides, offsets)
    return result


def keep_ragged_size(source_offsets: Tensor, copied_offsets: Tensor) -> None:
    """Let a copied jagged tensor keep the symbolic length of its source.

    Two jagged tensors add up only if that length is one object. Without this, the copy and its
    siblings have different shapes.
    """
    from torch.nested._internal import nested_tensor

    registry = nested_tensor._tensor_symint_registry
    length = registry.get(source_offsets)
    if length is not None:
        registry[copied_offsets] = length


def is_jagged(tensor: Tensor) -> bool:
    """Whether this is torch's own NestedTensor of the jagged layout."""
    return tensor.layout is torch.jagged and hasattr(tensor, "_offsets")


def quantized_on(
    source: Tensor, storage: torch.UntypedStorage, offset: int, strides: tuple[int, ...]
) -> Tensor:
    """A tensor with the source's quantizer on given memory; the public constructors compute instead."""
    if source.qscheme() == torch.per_tensor_affine:
        made: Tensor = torch._empty_affine_quantized(
            (0,),
            scale=source.q_scale(),
            zero_point=source.q_zero_point(),
            dtype=source.dtype,
            device=storage.device,
        )
    else:
        made = torch._empty_per_channel_affine_quantized(
            source.shape,
            scales=source.q_per_channel_scales().clone(),
            zero_points=source.q_per_channel_zero_points().clone(),
            axis=source.q_per_channel_axis(),
            dtype=source.dtype,
            device=storage.device,
        )
    return made.set_(storage, offset, source.shape, strides)


def with_bits_of(source: Tensor, copied: Tensor) -> Tensor:
    """`copied` with the conjugate and negative bits of the source, its bytes untouched."""
    if source.is_conj():
        copied = torch._conj(copied)
    if source.is_neg():
        copied = torch._neg_view(copied)
    return copied


NOT_MOVED_AS_IS = frozenset(
    (torch.bool, *(getattr(torch, f"{sign}int{n}") for n in range(1, 8) for sign in ("", "u")))
)
"""Dtypes of one byte that `clone` and `copy_` compute (True for any byte but 0) or refuse."""


def as_bytes(tensor: Tensor) -> Tensor:
    """The same memory as something that `copy_` moves and does not compute.

    Without conjugate and negative bits; bools and parts of bytes as whole bytes.
    """
    if tensor.dtype in NOT_MOVED_AS_IS:
        return tensor.view(torch.uint8)
    if tensor.is_conj():
        tensor = torch._conj(tensor)
    if tensor.is_neg():
        tensor = torch._neg_view(tensor)
    return tensor


def clone_all(tensors: list[Tensor], *, alike: bool = False) -> list[Tensor]:
    """One clone each, in one call. `[t.clone() for t in tensors]` is the public form, and slower.

    Of those known to be `alike` and dense, memory is taken as torch's compiled programs take it, which
    is faster still. A second thread for one half saved nothing: both wait for the allocator.
    """
    make = getattr(_C._dynamo.guards, "_empty_strided_cpu", None) if alike and tensors else None
    if make is None:
        return list(torch._foreach_clone(tensors))
    first = tensors[0]
    layout = tuple(first.shape), first.stride(), first.dtype
    clones = [make(*layout) for _ in tensors]
    torch._foreach_copy_(clones, tensors)
    return clones


def copy_all(into: list[Tensor], sources: list[Tensor]) -> None:
    """One `copy_` each, in one call; version counters move. A loop of `copy_` is the public form."""
    torch._foreach_copy_(into, sources)


def in_dual_level() -> bool:
    """Whether forward-mode differentiation is on, and tensors may carry tangents."""
    return forward_ad._current_level >= 0


def tangent(tensor: Tensor) -> Tensor | None:
    """The forward-mode tangent of a dual tensor, or None."""
    return forward_ad.unpack_dual(tensor).tangent if in_dual_level() else None


def accumulated_tensor(node: Any) -> Tensor | None:
    """The leaf into whose `.grad` a graph node accumulates, or None for every other node.

    AccumulateGrad nodes have no public type; they alone have `variable`.
    """
    return (
        getattr(node, "variable", None)
        if node.name() == "torch::autograd::AccumulateGrad"
        else None
    )


class DispatchMode(_python_dispatch.TorchDispatchMode):
    """Base of modes that see each operation that torch dispatches, and leave torch.compile on.

    `torch.utils._python_dispatch` has no public name. Compiled regions run as compiled, and the
    first operation does not import the compiler, which the base class wraps handlers with; frames
    of handlers are kept from it by `leave_to_python` instead.
    """

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Say that ordinary compilation goes on below this mode."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def leave_to_python(function: Any) -> None:
    """Keep torch.compile from a function and all that it calls.

    `torch.compiler.disable` is the public form; it imports the compiler, and wraps the function in
    another. Without it, handlers that run inside of a compiled region would be compiled too.
    """
    frames = _C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


def function_modes() -> list[Any]:
    """The function modes of this thread, the outermost first. `torch.overrides` has no public form."""
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


def set_function_modes(modes: list[Any]) -> None:
    """Put these function modes in the place of those of this thread."""
    for _ in range(_C._len_torch_function_stack()):
        _C._pop_torch_function_stack()
    for mode in modes:
        _C._push_on_torch_function_stack(mode)


COMPILER = "torch._dynamo.eval_frame"
"""The module that runs compiled regions. It is there once a program imports the compiler."""

REGION = "compile_wrapper"
"""The function of that module in which a region runs."""

SetCallback = Callable[[Any], Any]


def compiled_region_switch(module: Any) -> SetCallback:
    """What the compiler calls with a callback where a region begins, and with None where one ends."""
    switch: SetCallback = module._maybe_set_eval_frame
    return switch


def set_compiled_region_switch(module: Any, switch: SetCallback) -> None:
    """Put a function in its place.

    Function modes have no `ignore_compile_internals`: the compiler compiles their handlers into the
    region. Nothing public tells where a region begins, for a mode to step aside.
    """
    module._maybe_set_eval_frame = switch


current_node: Callable[[], Any] = _C._current_autograd_node
"""The node of the graph that a backward pass is at, or None. Only anomaly mode tells in public."""

next_node_number: Callable[[], int] = _C._autograd._get_sequence_nr
"""The number that the next node of this thread's graphs will get."""


def node_number(node: Any) -> int:
    """The number of a node in the order in which they were made; gradient accumulators have none."""
    return int(node._sequence_nr())


storage_key: Callable[[torch.UntypedStorage], int] = operator.attrgetter("_cdata")
"""`storage_identity`, of a storage that was asked for already: in C, for whoever asks at every operation."""


def version_of(tensor: Tensor) -> int | None:
    """How often autograd was told of a write; None for inference tensors. No public reader is known."""
    return None if tensor.is_inference() else tensor._version


OpOverload = torch._ops.OpOverload
"""The class of single operations: `torch.ops.aten.add.Tensor`. Public objects of a class that is not."""


def schema_of(operation: Any) -> Any:
    """Arguments and results of an operation, with their names and what may alias what."""
    return operation._schema


def answers_operations(cls: type) -> bool:
    """Whether a class answers operations on its tensors by others, on what they are made of.

    Fake tensors have nothing inside, and plain subclasses are as they are. Nothing public names the
    class of fake tensors, nor what a class without `__torch_dispatch__` of its own has in its place.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    return getattr(cls, "__torch_dispatch__", None) not in (
        None,
        torch.Tensor.__torch_dispatch__,
        _C._disabled_torch_dispatch_impl,
    ) and not issubclass(cls, FakeTensor)


def operator_database() -> list[Any]:
    """Every operation that torch tests itself with, with its samples.

    Nothing public lists operations with inputs that they take. Its module asks for a test library, for
    one class; a stand-in does where that is not installed.
    """
    import sys
    import types
    import unittest

    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    missing = "expecttest" not in sys.modules
    sys.modules.setdefault("expecttest", stand_in)
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    finally:
        if missing:
            del sys.modules["expecttest"]
    return list(op_db)


BACKWARD_ENGINE = torch.autograd.graph._engine_run_backward.__code__
"""The last Python frame before a backward pass: below it nodes run, and what Python code they call."""


def description_of(tensors: Sequence[Tensor]) -> Callable[[Sequence[Tensor]], bool]:
    """A check that as many tensors have the type, dtype, device, shape, strides and flags of these.

    Public readers exist for each part; six of them take longer than to copy a small tensor. This is how
    torch.compile guards its graphs. Without it, those readers. To be asked in the same modes.
    """
    count = len(tensors)
    try:
        guard = _C._dynamo.guards.TensorGuards(
            *tensors,
            dynamic_dims_sizes=[list(tensor.shape) for tensor in tensors],
            dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors],
        )
        if guard.check(*tensors):
            return lambda now: len(now) == count and bool(guard.check(*now))
    except (AttributeError, RuntimeError, TypeError, SystemError):
        pass
    then = [_description(tensor) for tensor in tensors]
    return lambda now: list(map(_description, now)) == then


def _description(tensor: Tensor) -> tuple[Any, ...]:
    return (
        type(tensor), dispatch_keys(tensor), tensor.dtype, tensor.device, tensor.requires_grad,
        tensor.shape, tensor.stride() if tensor.layout is torch.strided else None,
    )  # fmt: skip


def is_compiler_part(cls: type) -> bool:
    """Whether a class belongs to torch's compiler or tracer, whose modules are underscored."""
    return cls.__module__.startswith(("torch._", "torch.fx"))


def move_versions(tensors: list[Tensor]) -> None:
    """Move the version counter of each, as `copy_` would have: a pending backward then notices.

    Public, and here since versions are torch's own affair everywhere else.
    """
    torch.autograd.graph.increment_version(tensors)


def profiler_is_on() -> bool:
    """Whether a profiler runs on this thread already: there can be but one. No public name tells."""
    return bool(_C._autograd._profiler_enabled())


EventKind = _C._profiler._EventType
"""Kinds of events in a profile: `TorchOp`, `Allocation`, `PyCall`, `PyCCall` and others."""

EventScope = _C._profiler.RecordScope
"""What an operation in a profile is: `FUNCTION`, `BACKWARD_FUNCTION` (a node of a graph), `USER_SCOPE`."""


def profiled_tree(profile: torch.autograd.profiler.profile) -> list[Any]:
    """The outermost events of a profile that is over, with all that happened inside of each.

    The public forms, `events()` and `export_chrome_trace()`, have neither callers' lines nor the
    numbers of allocations. Raises RuntimeError where the profile has none.
    """
    results = getattr(profile, "kineto_results", None)
    if results is None:
        raise RuntimeError("the profile has no results")
    return list(results.experimental_event_tree())


def profiled_sizes(
    profile: torch.autograd.profiler.profile, names: frozenset[str]
) -> dict[int, list[Any]]:
    """Arguments that are numbers, or lists of them, for operations of these names in a profile.

    By the number that events of the tree have too, which leaves lists of numbers out.
    """
    results = getattr(profile, "kineto_results", None)
    found: dict[int, list[Any]] = {}
    for event in results.events() if results is not None else ():
        try:
            if event.name() in names:
                found[event.correlation_id()] = event.concrete_inputs()
        except UnicodeDecodeError:
            continue  # a function in C, whose name may be any bytes
    return found


def profiled_prefixes() -> list[str]:
    """Beginnings of paths that a profile cuts off the names of files, in the order in which it tries.

    Without them, a file is looked for where Python looks for modules.
    """
    try:
        from torch.profiler.python_tracer import _prefix_regex
    except ImportError:
        return [f"{Path(path).absolute()}{os.sep}" for path in sys.path]
    return list(_prefix_regex())


def is_sharded(tensor: object) -> bool:
    """Whether a tensor is a DTensor: this process has its own part, and others have theirs.

    Public names only. Where nobody has imported DTensor there is none; importing it takes a second.
    """
    module: Any = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: Any) -> Tensor:
    """The very tensor in which a DTensor keeps the part of this process.

    `to_local` is public and gives another object each time. Without it a part could not be told again.
    """
    part: Tensor = tensor._local_tensor
    return part


def is_fully_sharded(module: object) -> bool:
    """Whether a module is FSDP2's, which swaps its parameters. Public names only."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)


def reshard(module: Any) -> None:
    """Let a module of FSDP2 drop the full parameters that it holds after a forward pass, and show its shards.

    Until then it has plain parameters that are thrown away later, and writing them changes nothing. It is
    what `state_dict` does first. Public names only; not recursive.
    """
    if is_fully_sharded(module):
        module.reshard()


def class_before_sharding(cls: type) -> type:
    """The class of a module before `fully_shard` gave it one of its own; any other class is itself.

    FSDP2 makes `FSDPLinear` of `Linear`, with FSDPModule before it, and has no public way back. Without it a
    saved model could not be told to be the same model where nothing is sharded.
    """
    if cls.__module__.startswith("torch.distributed.fsdp") and len(cls.__bases__) == 2:
        first, own = cls.__bases__
        if first.__name__ == "FSDPModule":
            return own
    return cls


COMPOSED = ("__composable_api_state_key", "_is_fsdp_managed_module", "_fsdp_use_orig_params")
"""How the names begin under which `fully_shard` and `replicate` hang their own state on a module."""
