"""The ways to copy, of torch and of ours: what people write, each as one function.

A new method is a new line. The first of each task and form is the reference of its tables.
"""

from __future__ import annotations

import copy
import functools
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from truecopy.copying.api import copy as tc_copy
from truecopy.copying.duplicates.api import duplicate
from truecopy.measuring.cells import DUPLICATES
from truecopy.measuring.kept import KeptSnapshot
from truecopy.measuring.works import leaves


def touched_like(source: Any) -> Any:
    """A destination as the source, whose memory was touched."""
    if isinstance(source, dict):
        return {name: touched_like(value) for name, value in source.items()}
    if isinstance(source, np.ndarray):
        return np.ones_like(source)
    return torch.empty_like(source, requires_grad=False).fill_(1)


@dataclass(frozen=True, slots=True)
class Method:
    """One way to copy, or to duplicate.

    `call` takes the source, or a kept destination and the source where it `fills`; `prepare` makes
    that destination, and `read` gets the copy out of it. A method that is not `whole` is called for
    each tensor of a structure.
    """

    name: str
    call: Callable[..., Any]
    task: str = "copy"
    library: str = "torch"
    fills: bool = False
    whole: bool = False
    prepare: Callable[[Any], Any] = touched_like
    read: Callable[[Any], Any] = lambda destination: destination

    def bound(self, source: Any) -> Callable[[], Any]:
        """The call that copies this source once, and returns what holds the copy."""
        if self.fills:
            destination = self.prepare(source)
            return functools.partial(self._fill, destination, source)
        if isinstance(source, dict) and not self.whole:
            return lambda: {name: self.call(value) for name, value in source.items()}
        return functools.partial(self.call, source)

    def _fill(self, destination: Any, source: Any) -> Any:
        if isinstance(source, dict) and not self.whole:
            for name, value in source.items():
                self.call(destination[name], value)
        else:
            self.call(destination, source)
        return destination


def through_a_file(source: Any) -> Any:
    """Saved into memory and loaded again."""
    file = io.BytesIO()
    torch.save(source, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _new_axis(source: Tensor) -> Tensor:
    return source.unsqueeze(0)


COPIES = (
    Method("clone", lambda x: x.clone()),
    Method("detach().clone()", lambda x: x.detach().clone()),
    Method("clone().detach()", lambda x: x.clone().detach()),
    Method("empty_like().copy_()", lambda x: torch.empty_like(x).copy_(x)),
    Method("to(copy=True)", lambda x: x.to(x.device, copy=True)),
    Method("contiguous", lambda x: x.contiguous()),
    Method("new_tensor", lambda x: x.new_tensor(x)),
    Method("torch.tensor", torch.tensor),
    Method("copy.copy", copy.copy, whole=True),
    Method("copy.deepcopy", copy.deepcopy, whole=True),
    Method("from_numpy(numpy())", lambda x: torch.from_numpy(x.detach().numpy())),
    Method("from_numpy(numpy().copy())", lambda x: torch.from_numpy(x.detach().numpy().copy())),
    Method("from_dlpack", lambda x: from_dlpack(x.detach())),
    Method("from_dlpack(copy=True)", lambda x: from_dlpack(x.detach(), copy=True)),
    Method("save and load", through_a_file, whole=True),
    Method("tc.copy", tc_copy, whole=True),
)

FILLS = (
    Method("copy_()", lambda kept, x: kept.copy_(x), fills=True),
    Method("kept[...] = x", lambda kept, x: kept.__setitem__(..., x), fills=True),
    Method("add(x, 0, out=)", lambda kept, x: torch.add(x, 0, out=kept), fills=True),
    Method("numpy.copyto", lambda kept, x: np.copyto(kept.numpy(), x.detach().numpy()), fills=True),
    Method("tc.copy(into=)", lambda kept, x: tc_copy(x, into=kept), fills=True, whole=True),
    Method(
        "Snapshot.update",
        lambda kept, _: kept.update(),
        fills=True,
        whole=True,
        prepare=KeptSnapshot,
        read=KeptSnapshot.read,
    ),
)

DUPLICATIONS = tuple(
    Method(name, call, "duplicate", whole=name.startswith("tc."))
    for name, call in {
        "list of clones": lambda x: [x.clone() for _ in range(DUPLICATES)],
        "list of deepcopies": lambda x: [copy.deepcopy(x) for _ in range(DUPLICATES)],
        "[x] * n": lambda x: [x] * DUPLICATES,
        "stack": lambda x: torch.stack([x] * DUPLICATES),
        "repeat": lambda x: _new_axis(x).repeat(DUPLICATES, *[1] * x.ndim),
        "repeat_interleave": lambda x: _new_axis(x).repeat_interleave(DUPLICATES, 0),
        "expand": lambda x: x.expand(DUPLICATES, *x.shape),
        "expand().clone()": lambda x: x.expand(DUPLICATES, *x.shape).clone(
            memory_format=torch.contiguous_format
        ),
        'tc.duplicate(how="list")': lambda x: duplicate(x, DUPLICATES),
        'tc.duplicate(how="stack")': lambda x: duplicate(x, DUPLICATES, how="stack"),
        'tc.duplicate(how="view")': lambda x: duplicate(x, DUPLICATES, how="view"),
        'tc.duplicate(how="lazy")': lambda x: duplicate(x, DUPLICATES, how="lazy"),
    }.items()
)


def pieces(method: Method, output: Any) -> list[Any]:
    """The copies in what a method returned: one, or as many as duplicates were asked for."""
    value = method.read(output)
    if method.task != "duplicate":
        return [value]
    return [_piece(value, index) for index in range(DUPLICATES)]


def _piece(value: Any, index: int) -> Any:
    if isinstance(value, dict):
        return {name: _piece(inner, index) for name, inner in value.items()}
    return value[index]


def is_torch(value: Any) -> bool:
    """Whether a work, or a copy of it, is of torch."""
    return all(isinstance(leaf, Tensor) for leaf in leaves(value))
