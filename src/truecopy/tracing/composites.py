"""Functions of torch that are written in Python, opened, so that the calls inside of them are seen.

`F.multi_head_attention_forward` hands itself to a function mode as a whole, and with the mode on again it
would hand itself over again. An opened function is the same code, whose question "does anybody want to
have me as a whole?" is answered with no; its calls of other functions are handed over one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import torch

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")

THIN = frozenset((
    "adaptive_max_pool1d", "alpha_dropout", "batch_norm", "celu", "dropout", "elu", "embedding",
    "glu", "group_norm", "hardsigmoid", "hardswish", "hardtanh", "instance_norm", "layer_norm", "leaky_relu",
    "log_softmax", "max_pool2d", "mish", "relu", "relu6", "rms_norm", "selu", "silu", "softmax", "split",
))  # fmt: skip
"""Functions that make one call of the same result, whatever they are given: opening them shows nothing."""


_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))


class Composites:
    """Opened functions, each made once."""

    def __init__(self) -> None:
        self._opened: dict[Any, Callable[..., Any] | None] = {}

    def opened(self, function: Any, types: Iterable[type]) -> Callable[..., Any] | None:
        """The function with its questions answered, or None where it cannot be opened.

        Nor where arguments of other classes (`types`, as a mode is told of them) may want the whole.
        """
        if type(function) is not FunctionType or not _PLAIN.issuperset(types):
            return None
        try:
            return self._opened[function]
        except KeyError:
            made = self._opened[function] = _open(function)
            return made


def _open(function: FunctionType) -> Callable[..., Any] | None:
    if function.__name__ in THIN or function.__closure__ is not None:
        return None
    names = function.__code__.co_names
    asked = [name for name in _QUESTIONS if name in names and name in function.__globals__]
    if not asked or "overrides" in names:  # it asks by another way, and would be handed over again
        return None
    known = {**function.__globals__, **dict.fromkeys(asked, _no)}
    made = FunctionType(function.__code__, known, function.__name__, function.__defaults__, None)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _no(*_: Any) -> bool:
    return False
