"""Samples of ours, for what the operator database leaves out: constructors, bridges, modules, storages."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from truecopy.explaining.listed import listed
from truecopy.explaining.samples import Subject
from truecopy.explaining.watching import Sample

Given = tuple[tuple[Any, ...], dict[str, Any]]


def ours() -> Iterator[Subject]:
    """One subject for each. Allocates the samples, all small."""
    for name in sorted(_OURS):
        spelling, function, given = _OURS[name]
        torch.manual_seed(0)
        samples = tuple(Sample(spelling, function, args, kwargs) for args, kwargs in given())
        yield Subject(name, (spelling,), samples)
    yield from listed()


def _x(*shape: int) -> Tensor:
    return torch.arange(24.0)[: int(np.prod(shape))].reshape(shape).clone()


def _calls(*args: Any, **kwargs: Any) -> Given:
    return args, kwargs


def _one() -> list[Given]:
    return [_calls(_x(2, 3))]


def _data_sources() -> list[Given]:
    return [
        _calls(_x(2, 3)),
        _calls([[1.0, 2.0], [3.0, 4.0]]),
        _calls(np.ones((2, 3))),
        _calls(_x(2, 3), dtype=torch.float64),
        _calls(np.ones((2, 3)), dtype=torch.float32),
    ]


def _state(*parameters: Tensor) -> Any:
    """A module's state dict; its parameters are the arguments, so that who shares can be told."""
    return _module_of(parameters).state_dict()


def _module_of(parameters: tuple[Tensor, ...]) -> nn.Module:
    module = nn.Module()
    for number, one in enumerate(parameters):
        module.register_buffer(f"b{number}", one)
    return module


def _load_state(new: Tensor, target: Tensor) -> Any:
    module = _module_of((target,))
    module.load_state_dict({"b0": new})
    return module.b0


def _assign_state(new: Tensor, target: Tensor) -> Any:
    module = _module_of((target,))
    module.load_state_dict({"b0": new}, assign=True)
    return module.b0


def _move_module(parameter: Tensor, dtype: torch.dtype) -> Any:
    module = nn.Module()
    module.weight = nn.Parameter(parameter)
    return module.to(dtype).weight


def _saved_and_loaded(x: Tensor) -> Any:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _replace_data(x: Tensor, other: Tensor) -> Tensor:
    x.data = other
    return x


def _set_item(x: Tensor, value: Any) -> Tensor:
    x[0] = value
    return x


_OURS: dict[str, tuple[str, Callable[..., Any], Callable[[], list[Given]]]] = {
    "tensor": ("torch.tensor", torch.tensor, _data_sources),
    "as_tensor": ("torch.as_tensor", torch.as_tensor, _data_sources),
    "asarray": (
        "torch.asarray",
        torch.asarray,
        lambda: [*_data_sources(), _calls(_x(2, 3), copy=True)],
    ),
    "from_numpy": ("torch.from_numpy", torch.from_numpy, lambda: [_calls(np.ones((2, 3)))]),
    "frombuffer": (
        "torch.frombuffer",
        torch.frombuffer,
        lambda: [_calls(bytearray(16), dtype=torch.float32)],
    ),
    "from_dlpack": ("torch.from_dlpack", torch.utils.dlpack.from_dlpack, _one),
    "numpy": ("torch.Tensor.numpy", Tensor.numpy, _one),
    "__array__": ("numpy.asarray(tensor)", np.asarray, _one),
    "tolist": ("torch.Tensor.tolist", Tensor.tolist, _one),
    "detach": ("torch.Tensor.detach", Tensor.detach, _one),
    "detach_": ("torch.Tensor.detach_", Tensor.detach_, _one),
    "requires_grad_": ("torch.Tensor.requires_grad_", Tensor.requires_grad_, _one),
    "type_as": (
        "torch.Tensor.type_as",
        Tensor.type_as,
        lambda: [_calls(_x(2, 3), _x(1)), _calls(_x(2, 3), _x(1).double())],
    ),
    "type": (
        "torch.Tensor.type",
        Tensor.type,
        lambda: [_calls(_x(2, 3), torch.float32), _calls(_x(2, 3), torch.float64)],
    ),
    "new_tensor": (
        "torch.Tensor.new_tensor",
        Tensor.new_tensor,
        lambda: [
            _calls(_x(1), _x(2, 3)),
            _calls(_x(1), [1.0, 2.0]),
            _calls(_x(1), np.ones(3, np.float32)),
        ],
    ),
    "cuda": ("torch.Tensor.cuda", Tensor.cuda, _one),
    "cpu": ("torch.Tensor.cpu", Tensor.cpu, _one),
    "to": (
        "torch.Tensor.to",
        Tensor.to,
        lambda: [
            _calls(_x(2, 3), torch.float32),
            _calls(_x(2, 3), torch.float64),
            _calls(_x(2, 3), "cpu"),
            _calls(_x(2, 3), torch.float32, copy=True),
            _calls(_x(2, 3), _x(1)),
            _calls(_x(2, 3), _x(1).double()),
            _calls(torch.ones(1, 2, 3, 3), memory_format=torch.channels_last),
        ],
    ),
    "pin_memory": ("torch.Tensor.pin_memory", Tensor.pin_memory, _one),
    "share_memory_": ("torch.Tensor.share_memory_", Tensor.share_memory_, _one),
    "set_": (
        "torch.Tensor.set_",
        Tensor.set_,
        lambda: [_calls(_x(2, 3), _x(2, 2)), _calls(_x(2, 3))],
    ),
    "data": ("torch.Tensor.data", lambda x: x.data, _one),
    "data (assigned)": (
        "torch.Tensor.data = ...",
        _replace_data,
        lambda: [_calls(_x(2, 3), _x(2, 2))],
    ),
    "copy_": (
        "torch.Tensor.copy_",
        Tensor.copy_,
        lambda: [
            _calls(_x(2, 3), _x(2, 3)),
            _calls(_x(2, 3), _x(2, 3).double()),
            _calls(_x(2, 3), _x(3)),
        ],
    ),
    "__setitem__": (
        "torch.Tensor.__setitem__",
        _set_item,
        lambda: [_calls(_x(2, 3), 1.0), _calls(_x(2, 3), _x(3))],
    ),
    "Parameter": ("torch.nn.Parameter", nn.Parameter, _one),
    "deepcopy": ("copy.deepcopy", copy.deepcopy, _one),
    "copy.copy": ("copy.copy", copy.copy, _one),
    "save and load": ("torch.load(torch.save)", _saved_and_loaded, _one),
    "nn.Module.state_dict": (
        "torch.nn.Module.state_dict",
        _state,
        lambda: [_calls(_x(2, 3), _x(3))],
    ),
    "nn.Module.load_state_dict": (
        "torch.nn.Module.load_state_dict",
        _load_state,
        lambda: [_calls(_x(2, 3), _x(2, 3))],
    ),
    "nn.Module.load_state_dict (assign)": (
        "torch.nn.Module.load_state_dict(assign=True)",
        _assign_state,
        lambda: [_calls(_x(2, 3), _x(2, 3))],
    ),
    "nn.Module.to": (
        "torch.nn.Module.to",
        _move_module,
        lambda: [_calls(_x(2, 3), torch.float32), _calls(_x(2, 3), torch.float64)],
    ),
    "nn.Flatten": (
        "torch.nn.Flatten",
        nn.Flatten(),
        lambda: [_calls(_x(2, 3, 4))],
    ),
    "nn.Identity": ("torch.nn.Identity", nn.Identity(), _one),
    "nn.utils.parameters_to_vector": (
        "torch.nn.utils.parameters_to_vector",
        lambda *xs: nn.utils.parameters_to_vector(xs),
        lambda: [_calls(_x(2, 3), _x(3))],
    ),
    "func.functional_call": (
        "torch.func.functional_call",
        lambda w, x: torch.func.functional_call(nn.Linear(3, 2, bias=False), {"weight": w}, (x,)),
        lambda: [_calls(_x(2, 3), _x(4, 3))],
    ),
    "func.stack_module_state": (
        "torch.func.stack_module_state",
        lambda *xs: torch.func.stack_module_state([_module_of((x,)) for x in xs])[1],
        lambda: [_calls(_x(2, 3), _x(2, 3))],
    ),
    "utils.data.default_collate": (
        "torch.utils.data.default_collate",
        lambda *xs: torch.utils.data.default_collate(list(xs)),
        lambda: [_calls(_x(2, 3), _x(2, 3))],
    ),
}  # fmt: skip
