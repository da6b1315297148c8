"""One sample run and watched: origins, effects, what was copied inside, what autograd keeps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truecopy import _torch
from truecopy.explaining.advice import is_in_place
from truecopy.explaining.facts import Autograd
from truecopy.explaining.layouts import laid_out, layout_of
from truecopy.memory.relation import relate
from truecopy.tracing.operations import Operation, tensors_in
from truecopy.tracing.stream import Args, Kwargs, Observer, Stream
from truecopy.tracing.verdict import judge


@dataclass(frozen=True, slots=True)
class Sample:
    """One way to call a form."""

    form: str
    function: Callable[..., Any]
    args: Args
    kwargs: Kwargs


@dataclass(frozen=True, slots=True)
class Seen:
    """What a sample did."""

    form: str
    layout: str
    origins: str
    effects: str
    copies_inside: str
    allocated_bytes: int
    result_bytes: int
    example: str


COPYING = frozenset(("clone", "copy_", "_to_copy", "_foreach_copy_", "_copy_from"))
"""Operations that do nothing but copy."""


class _Inside(Observer):
    """The operations inside of a call that copied, and what was allocated."""

    def __init__(self) -> None:
        self.operations: list[str] = []
        self.nbytes = 0

    def after(
        self,
        operation: Operation,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if error is not None:
            return
        self.operations.append(operation.base)
        known = set(map(_key, operation.tensors(args, kwargs)))
        for tensor in tensors_in(result):
            key = _key(tensor)
            if key not in known:
                known.add(key)
                self.nbytes += _storage_bytes(tensor)

    def copies(self) -> str:
        """Named only where they are not all that the call does."""
        found = [name for name in self.operations if name in COPYING]
        if set(self.operations) <= COPYING:
            return ""
        return ", ".join(dict.fromkeys(f"aten::{name}" for name in found))


def _key(tensor: Tensor) -> int:
    try:
        return _torch.storage_identity(tensor)
    except (NotImplementedError, RuntimeError):
        return id(tensor)


def _storage_bytes(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return 0


def watch(sample: Sample) -> Iterator[Seen]:
    """Run a sample on its first tensor as it is, and on others that lie in memory in other ways.

    What raises has shown nothing, and is left out.
    """
    first = next((place for place, arg in enumerate(sample.args) if isinstance(arg, Tensor)), None)
    if first is None:
        yield from _watch_one(sample, sample.args)
        return
    for tensor in laid_out(sample.args[first]):
        args = (*sample.args[:first], tensor, *sample.args[first + 1 :])
        yield from _watch_one(sample, _fresh(args))


def _fresh(args: Args) -> Args:
    """Arguments that no earlier sample has written; layouts are kept."""
    return tuple(_again(arg) if isinstance(arg, Tensor) else arg for arg in args)


def _again(tensor: Tensor) -> Tensor:
    if layout_of(tensor) == "other" or tensor.is_conj() or tensor.is_neg():
        return tensor  # these bits would be lost
    made = torch.empty(0, dtype=tensor.dtype).set_(
        tensor.detach().untyped_storage().clone(),
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
    )
    return made.requires_grad_(tensor.requires_grad and tensor.is_leaf)


def _watch_one(sample: Sample, args: Args) -> Iterator[Seen]:
    inside = _Inside()
    before = _strides(args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        with Stream(inside):
            judged = judge(sample.function, *args, **sample.kwargs)
    if judged.error is not None:
        return
    verdict = judged.verdict
    results = list(tensors_in(judged.result))
    origins = [
        *_confirmed(verdict.origins, results, args),
        *_of_arrays(judged.result, args),
    ]
    yield Seen(
        sample.form,
        before[0],
        ", ".join(_repeated(origins)),
        ", ".join(f"{name}: {effect}" for name, effect in verdict.effects),
        inside.copies(),
        inside.nbytes,
        sum(tensor.nbytes for tensor in results if tensor.layout is torch.strided),
        f"{before[1]}{_shown(args, sample.kwargs)}",
    )


def _repeated(origins: Sequence[str]) -> list[str]:
    """`view` for a hundred views: what matters is whether outputs differ."""
    return list(origins) if len(set(origins)) > 1 and len(origins) <= 3 else sorted(set(origins))


def _confirmed(origins: Args, results: Sequence[Tensor], args: Args) -> Iterator[str]:
    """Memory that torch does not own is adopted where it is an argument's; else somebody made it anew."""
    for origin, tensor in zip(origins, results, strict=True):
        if origin == "adopted" and not any(_share(tensor, arg) for arg in args):
            yield "new"
        else:
            yield origin


def _share(one: Any, other: Any) -> bool:
    is_memory = isinstance(other, (Tensor, np.ndarray, bytearray))
    return is_memory and relate(one, other).shares_memory is True


def _of_arrays(result: Any, args: Args) -> Iterator[str]:
    """Arrays of numpy that come out lie on a tensor's memory, or on their own."""
    if isinstance(result, np.ndarray):
        yield "view" if any(_share(result, arg) for arg in args) else "new"


def _strides(args: Args) -> tuple[str, str]:
    """Layout and description of the first tensor, taken before anything is written."""
    first = next((arg for arg in args if isinstance(arg, Tensor)), None)
    if first is None:
        return "none", ""
    word = layout_of(first)
    name = str(first.dtype).removeprefix("torch.")
    how = "" if word in ("contiguous", "other") else f" strides {tuple(first.stride())}"
    return word, f"x {name} {tuple(first.shape)}{how}"


_LONGEST = 90


def _shown(args: Args, kwargs: Kwargs) -> str:
    rest = [_short(arg) for arg in _but_first(args)]
    rest += [f"{key}={_short(value)}" for key, value in kwargs.items()]
    text = "; " + ", ".join(rest) if rest else ""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _but_first(args: Args) -> Iterator[Any]:
    found = False
    for arg in args:
        if not found and isinstance(arg, Tensor):
            found = True
        else:
            yield arg


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"numpy {value.dtype} {value.shape}"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(map(_short, value[:6]))
        more = ", ..." if len(value) > 6 else ""
        comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
        left, right = "()" if isinstance(value, tuple) else "[]"
        return f"{left}{inner}{more}{comma}{right}"
    text = repr(value)
    return text if len(text) <= 40 and " at 0x" not in text else type(value).__name__


# --- autograd -------------------------------------------------------------------------------------


def autograd_of(samples: Sequence[Sample]) -> Autograd:
    """What autograd does with the first sample through which gradient flows."""
    found = Autograd("", False, ())
    for sample in samples:
        first = next(tensors_in(sample.args), None)
        if first is None or layout_of(first) == "other" or not _can_require(first):
            continue
        seen = _autograd(sample)
        if seen is not None and (seen.node or not found.flows):
            found = seen
        if found.node:
            break
    return found


def _can_require(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _requiring(arg: Any) -> Any:
    """The argument again, and all its tensors that can require gradient do."""
    match arg:
        case Tensor() if _can_require(arg) and layout_of(arg) != "other":
            return _again(arg).detach().requires_grad_()
        case list():
            return list(map(_requiring, arg))
        case tuple() if type(arg) is tuple:
            return tuple(map(_requiring, arg))
    return arg


def _autograd(sample: Sample) -> Autograd | None:
    args = tuple(map(_requiring, sample.args))
    if is_in_place(sample.form):  # a leaf would refuse
        args = tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in args)
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    try:
        with warnings.catch_warnings(), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            result = sample.function(*args, **sample.kwargs)
    except Exception:  # noqa: BLE001 - a sample that does not run with gradient has shown nothing
        return None
    tensors = list(tensors_in(result))
    computed = next((tensor for tensor in tensors if tensor.grad_fn is not None), None)
    if computed is None or computed.grad_fn is None or _is_any(computed, args):
        return Autograd("", any(tensor.requires_grad for tensor in tensors), ())
    return Autograd(computed.grad_fn.name(), True, _keeps(kept, args, tensors))


def _is_any(tensor: Tensor, args: Args) -> bool:
    """Whether it is an argument with the node that it had: the operation has added none."""
    return any(tensor is arg for arg in args) and tensor.grad_fn.name() == "CloneBackward0"  # type: ignore[union-attr]


def _keeps(kept: Sequence[Tensor], args: Args, results: Sequence[Tensor]) -> tuple[str, ...]:
    """What is kept until backward, by whose memory it is."""
    inputs = set(map(_key, tensors_in(args)))
    outputs = {_key(one) for one in results} - inputs
    words: dict[str, None] = {}
    rest = 0
    for tensor in kept:
        key = _key(tensor)
        if key in inputs:
            words["its inputs"] = None
        elif key in outputs:
            words["its result"] = None
        else:
            rest += _storage_bytes(tensor)
    if rest:
        words["memory of its own"] = None
    return tuple(words)
