"""Tensors as part of a structure: where they keep their bytes, what they are made of, what they carry."""

from __future__ import annotations

import enum
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from truecopy import _torch
from truecopy.structure.parts import Parts, attributes
from truecopy.structure.paths import Attribute, Call, Step

_CACHED_CAPSULES = frozenset(
    (
        "_sym_sizes_capsule",
        "_sym_sizes_capsule_len",
        "_sym_strides_capsule",
        "_sym_strides_capsule_len",
    )
)


class Form(enum.Enum):
    """Where a tensor keeps its bytes; decided once for each tensor."""

    DENSE = "in one strided region"
    QUANTIZED = "in one strided region, with a quantizer"
    COO = "in indices and values"
    COMPRESSED = "in two index tensors and values"
    NESTED = "in one buffer"
    WRAPPER = "in the tensors that its class names"
    ENCLOSED = "where torch does not show"
    TRANSFORMED = "in a transform that is running"
    UNINITIALIZED = "nowhere yet"


_COMPRESSED_PARTS = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def form_of(tensor: torch.Tensor) -> Form:
    """Where a tensor keeps its bytes. Reads flags alone."""
    if torch.nn.parameter.is_lazy(tensor):
        return Form.UNINITIALIZED
    if _torch.dispatch_keys(tensor) in _torch.PLAIN_KEYS:
        return Form.DENSE
    if _torch.is_functorch_wrapper(tensor):
        return Form.TRANSFORMED
    if _torch.is_python_dispatched(tensor):
        if hasattr(type(tensor), "__tensor_flatten__"):
            return Form.WRAPPER
        return Form.DENSE if _has_memory(tensor) else Form.ENCLOSED
    if tensor.layout is torch.sparse_coo:
        return Form.COO
    if tensor.layout in _COMPRESSED_PARTS:
        return Form.COMPRESSED
    if tensor.is_nested:
        return Form.NESTED
    if not _has_storage(tensor):
        return Form.ENCLOSED
    return Form.QUANTIZED if tensor.is_quantized else Form.DENSE


def _has_storage(tensor: torch.Tensor) -> bool:
    try:
        tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return False
    return True


def _has_memory(wrapper: torch.Tensor) -> bool:
    """Whether a tensor that answers for itself has bytes of its own, real or fake.

    A wrapper's storage has a size and a device, and nothing behind it.
    """
    if not _has_storage(wrapper):
        return False
    storage = wrapper.untyped_storage()
    if storage.device.type == "meta" or storage.nbytes() == 0:
        return True
    return _torch.storage_address(wrapper) != 0


@dataclass(frozen=True, slots=True)
class TensorParts:
    """What a tensor is made from and carries, beside its own bytes."""

    form: Form
    made_from: tuple[str, ...] = ()
    context: Any = None
    carries: tuple[str, ...] = ()
    inner: list[Any] = field(default_factory=list)


LEAF_FORMS = frozenset((Form.DENSE, Form.QUANTIZED, Form.ENCLOSED, Form.TRANSFORMED))
"""Forms whose bytes are not in other tensors that can be asked for."""


_PLAIN_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one strided region on the CPU, whatever it carries."""
    return type(tensor) in _PLAIN_TYPES and _torch.dispatch_keys(tensor) in _torch.PLAIN_KEYS


def is_bare(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one strided region on the CPU and carries nothing: the common case.

    Walks ask this of every tensor, so it asks torch as little as it can.
    """
    return (
        is_plain(tensor)
        and not tensor.__dict__
        and (tensor.grad is None if tensor.is_leaf else not tensor.retains_grad)
    )


def all_bare(values: Sequence[Any], *, alike: bool = False) -> bool:
    """Whether all are bare: the same questions, each asked of all values in one C loop.

    Of those known to be `alike`, the first answers for all where it can.
    """
    asked = values[:1] if alike else values
    return (
        set(map(type, asked)) <= _PLAIN_TYPES
        and _torch.dispatch_keys_of_all(asked) <= _torch.PLAIN_KEYS
        and not any(map(_ATTRIBUTES, values))
        and all(map(_IS_LEAF, () if alike and not values[0].requires_grad else values))
        and set(map(_GRAD, values)) <= {None}
    )


def all_alike(values: Sequence[Any], *, of_one_shape: bool = True) -> bool:
    """Whether all are tensors of one class, dtype and shape, strides and all, of which the first is plain."""
    return (
        bool(values) and is_plain(values[0]) and _torch.all_alike(values, of_one_shape=of_one_shape)
    )


_ATTRIBUTES, _IS_LEAF, _GRAD = map(operator.attrgetter, ("__dict__", "is_leaf", "grad"))


def tensor_parts(tensor: torch.Tensor, *, with_grad: bool = True) -> Parts:
    """What a tensor is made of, its attributes, and its gradient. Runs no `__torch_function__`."""
    with _torch.disable_torch_function():
        form = form_of(tensor)
        names, inner, steps, context = _made_of(form, tensor)
        carried = [
            (name, value)
            for name, value in attributes(tensor)
            if name not in _CACHED_CAPSULES and name not in names
        ]
        if with_grad and (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None:
            carried.append(("grad", tensor.grad))
    steps += [Attribute(name) for name, _ in carried]
    return Parts(
        made_from=inner,
        filled_with=[value for _, value in carried],
        step=steps.__getitem__,
        memory=TensorParts(form, names, context, tuple(name for name, _ in carried), inner),
    )


def _made_of(
    form: Form, tensor: torch.Tensor
) -> tuple[tuple[str, ...], list[Any], list[Step], Any]:
    """Names of a tensor's inner tensors, the tensors, the steps to them, and what else is needed."""
    match form:
        case Form.COO:
            names: tuple[str, ...] = ("_indices", "_values")
            return names, list(_torch.coo_parts(tensor)), [Call(name) for name in names], None
        case Form.COMPRESSED:
            names = _COMPRESSED_PARTS[tensor.layout]
            plain = tensor.detach()
            return names, [getattr(plain, n)() for n in names], [Call(n) for n in names], None
        case Form.NESTED:
            storage = tensor.untyped_storage()
            with _torch.no_modes():
                buffer = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
                buffer.set_(storage, 0, (storage.nbytes() // tensor.itemsize,), (1,))
            return ("untyped_storage",), [buffer], [Call("untyped_storage")], None
        case Form.WRAPPER:
            inner_names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
            names = tuple(inner_names)
            return (
                names,
                [getattr(tensor, n) for n in names],
                [Attribute(n) for n in names],
                context,
            )
    return (), [], [], None


def make_tensor(source: torch.Tensor, parts: Parts, copies: list[Any]) -> torch.Tensor:
    """A tensor like `source` on copies of the tensors that it is made of."""
    known: TensorParts = parts.memory
    with _torch.disable_torch_function(), torch.inference_mode(False), torch.no_grad():
        return _with_flags_of(source, _on_parts(source, known, copies))


def _with_flags_of(source: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    if made.is_leaf and made.requires_grad != (source.requires_grad and source.is_leaf):
        made.requires_grad_(not made.requires_grad)
    if isinstance(source, torch.nn.Parameter) and not isinstance(made, torch.nn.Parameter):
        made = torch.nn.Parameter(made, source.requires_grad)
    return made


def _on_parts(source: torch.Tensor, known: TensorParts, copies: list[Any]) -> torch.Tensor:
    match known.form:
        case Form.COO:
            indices, values = copies
            made = torch.sparse_coo_tensor(indices, values, source.shape, check_invariants=False)
            _torch.set_coalesced(made, source.is_coalesced())
            return made
        case Form.COMPRESSED:
            compressed, plain, values = copies
            return torch.sparse_compressed_tensor(
                compressed,
                plain,
                values,
                source.shape,
                layout=source.layout,
                check_invariants=False,
            )
        case Form.NESTED:
            return _torch.nested_from_buffer(
                copies[0], *(t.clone() for t in _torch.nested_parts(source))
            )
        case Form.WRAPPER:
            inner = dict(zip(known.made_from, copies, strict=True))
            if _torch.is_jagged(source):
                _torch.keep_ragged_size(
                    known.inner[known.made_from.index("_offsets")], inner["_offsets"]
                )
            rewrapped: torch.Tensor = type(source).__tensor_unflatten__(  # type: ignore[attr-defined]
                inner, known.context, source.size(), source.stride()
            )
            return rewrapped
        case Form.UNINITIALIZED:
            uninitialized: Any = type(source)
            return uninitialized(source.requires_grad, device=source.device, dtype=source.dtype)  # type: ignore[no-any-return]
    raise AssertionError(f"a tensor whose bytes are {known.form.value} is not made from parts")


def fill_tensor(made: torch.Tensor, parts: Parts, copies: list[Any]) -> None:
    """Give a copied tensor the gradient and the attributes of its source."""
    known: TensorParts = parts.memory
    already = set(made.__dict__) if known.form is Form.WRAPPER else set()
    with _torch.disable_torch_function():
        for name, value in zip(known.carries, copies, strict=True):
            if name not in already:  # a wrapper's own constructor knows better
                setattr(made, name, value)
