"""Which operations copy, which of these copies nobody asked for, why they were made, and what avoids them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from truecopy.tracing.nodes import ACCUMULATOR
from truecopy.tracing.operations import Operation

HIDING = frozenset(("clone", "_to_copy", "copy_", "_reshape_copy", "_lazy_clone"))
"""Operations that copy what is there, byte for byte or into another type: others may hide behind a call."""

COPYING = HIDING | frozenset((
    "cat", "stack", "repeat", "repeat_interleave", "index", "index_select", "gather", "take",
    "masked_select", "flip", "roll", "constant_pad_nd", "lift_fresh_copy", "copy", "_foreach_copy_",
    "_foreach_clone", "unfold_copy", "select_backward", "slice_backward",
))  # fmt: skip
"""Operations whose output consists of bytes of their input."""

ASKED = frozenset((
    "clone", "copy_", "copy", "_foreach_copy_", "_foreach_clone", "tensor", "new_tensor", "asarray",
    "as_tensor", "__setitem__", "index_put_", "deepcopy", "__deepcopy__", "cat", "stack", "repeat",
    "masked_fill", "hstack", "vstack", "dstack", "concat", "concatenate", "column_stack", "row_stack",
    "tile", "load_state_dict", "detach_copy", "_lazy_clone", "fill_", "cpu", "cuda", "numpy", "tolist",
    "block_diag", "lift_fresh_copy", "from_file", "zero_", "set_", "data", "scatter", "scatter_",
    "index_copy", "index_copy_", "share_memory_", "combinations", "meshgrid", "expand_copy",
    "view_copy", "empty_like", "__array__",
))  # fmt: skip
"""Calls by which somebody asks for a copy, or for one that is a part of what it does by its name."""

SMALL = 64
"""Bytes of a conversion of scalars, which are counted and not told."""


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes that one operation wrote by copying."""

    nbytes: int
    read_bytes: int
    source: Any  # a tensor, or what was recorded of one; None where it is not known


def written_by(operation: Operation, args: tuple[Any, ...], result: Any) -> Written:
    """How much a copying operation wrote, and from what."""
    if operation.base in ("copy_", "_foreach_copy_"):
        return into(args[0], args[1])
    source = args[0] if args and isinstance(args[0], Tensor) else None
    if isinstance(result, Tensor):
        nbytes = _dense(result)
        read = nbytes if source is None else min(nbytes, _reach(source))
        if operation.base == "_to_copy" and source is not None:
            read = _reach(source)
        return Written(nbytes, read, source)
    nbytes = sum(_dense(one) for one in result if isinstance(one, Tensor))
    return Written(nbytes, nbytes, None)


def into(target: Any, source: Any) -> Written:
    """How much was written into a tensor, or into each of a list."""
    if not isinstance(target, (list, tuple)):
        return Written(_dense(target), _reach(source), source)
    return Written(sum(map(_dense, target)), sum(map(_reach, source)), None)


def _dense(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _reach(tensor: Any) -> int:
    """Bytes that a tensor has in memory, each once."""
    try:
        strides = tensor.stride()
    except RuntimeError:  # sparse
        return _dense(tensor)
    total = tensor.element_size()
    for length, stride in zip(tensor.shape, strides, strict=True):
        if stride:
            total *= length
    return int(total)


def is_hidden(operation: Operation, call: str, written: Written, result: Any) -> bool:
    """Whether nobody asked for a copy."""
    if operation.base not in HIDING or call in ASKED or written.nbytes == 0:
        return False
    source = written.source
    if source is None or isinstance(result, (list, tuple)):
        return False
    if written.nbytes <= SMALL and (call not in CONVERTING or source.dim() == 0):
        return False
    # To move to another device is to copy, and is asked for by name.
    return bool(source.device == result.device)


CONVERTING = frozenset((
    "reshape", "flatten", "contiguous", "to", "float", "double", "half", "bfloat16", "int", "long",
    "bool", "type", "type_as", "ravel", "unflatten", "reshape_as", "movedim", "tensor_split",
))  # fmt: skip
"""Calls that may or may not copy, and tell nobody."""


VIEWING = frozenset(("reshape", "flatten", "ravel", "unflatten", "reshape_as"))
"""Calls that copy where no view of that shape exists. The next operation inside tells the shape."""

UNKNOWN_SHAPE = "..."


def explain(operation: Operation, call: str, source: Any, result: Any) -> tuple[str, str]:
    """Why a hidden copy was made, and the cheapest change that avoids it.

    Of tensors, or of what was recorded of them.
    """
    if source.is_conj() or source.is_neg():
        bit = "conjugation" if source.is_conj() else "negation"
        return (
            f"lazy {bit} is materialized here",
            "keep it lazy until one operation needs it, or resolve it once",
        )
    if source.dtype != result.dtype:
        return (
            f"{_name(source.dtype)} to {_name(result.dtype)}",
            f"make it {_name(result.dtype)} where it is made, or convert once and keep that",
        )
    reach = _reach(source)
    if reach < _dense(result):
        times = _dense(result) // max(reach, 1)
        return (
            f"expand of {_size(reach)} materialized, x{times}",
            "leave it expanded: broadcasting needs no memory",
        )
    strides = tuple(source.stride())
    if call == ACCUMULATOR:
        return f"the gradient, of strides {strides}, cannot be taken as it is", ""
    if call in ("contiguous", "to"):
        return (
            f"strides {strides} of shape {tuple(source.shape)} are not contiguous",
            "leave it as it is if what follows takes strides, or make it in this order",
        )
    if call in VIEWING:
        return (
            f"strides {strides} cannot be viewed as {UNKNOWN_SHAPE}",
            "keep the order of dimensions until here, or reshape before transposing",
        )
    if operation.base == "copy_":
        return ("its result is written somewhere else", "write it there with out=")
    if call == operation.name:  # by itself, as in a graph that was traced
        return f"strides {strides} of shape {tuple(source.shape)} are made dense", ""
    if call.rstrip("0123456789").endswith("Backward"):
        return f"the gradient, of strides {strides}, is made dense", ""
    return (
        f"{call} makes strides {strides} dense on its own",
        "pass it a contiguous tensor, made once",
    )


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _size(nbytes: int) -> str:
    return f"{nbytes} B"
