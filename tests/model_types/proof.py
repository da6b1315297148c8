"""What is proven of a capture of one model, by oracles that are not ours.

The forward is bit-equal before, during and after; every captured tensor is one that torch's own DebugMode
recorded in another run; every module's output is what a plain hook with `clone` saw; no value shares memory
with the model, its inputs, its outputs or another value; nothing of the capture is left behind.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree
from torch.utils._debug_mode import DebugMode

import truecopy as tc
from truecopy import _torch
from truecopy.tracing.operations import tensors_in


@dataclass
class Proof:
    """What was found of one model."""

    values: int
    tensors: int
    held_bytes: int
    cloned_bytes: int
    oracle_outputs: int


def run(model: nn.Module, inputs: dict[str, Any]) -> list[Tensor]:
    """The tensors that a forward returns, from one seed."""
    torch.manual_seed(7)
    random.seed(7)
    with torch.no_grad():
        out = model(**inputs)
    return [leaf for leaf in _pytree.tree_leaves(dict(out)) if isinstance(leaf, Tensor)]


def mark(tensor: Tensor) -> tuple[Any, ...]:
    """A tensor's dtype, shape and bytes, as something that can be looked up."""
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    raw = dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)
    return tensor.dtype, tuple(tensor.shape), hashlib.sha256(raw.numpy().tobytes()).digest()


NOT_TOLD = ("empty", "new_empty", "setitem")
"""Of these DebugMode cannot tell: memory that nobody wrote, and `x[i] = y`, which returns nothing."""


def oracle(model: nn.Module, inputs: dict[str, Any]) -> set[tuple[Any, ...]]:
    """What every operation returned, as DebugMode records it, and what there was before."""
    with DebugMode() as mode, DebugMode.record_outputs():
        run(model, inputs)
    found = set()
    for call in mode.operators:
        for tensor in tensors_in((call.record or {}).get("output")):
            found.add(mark(tensor))
    before = [*model.parameters(), *model.buffers(), *tensors_in(inputs)]
    return found | set(map(mark, before))


def by_hooks(model: nn.Module, inputs: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What every module returned, by a plain hook with a clone."""
    found: list[tuple[Any, ...]] = []
    handles = [
        one.register_forward_hook(lambda _, __, out: found.append(tuple(map(mark, _own(out)))))
        for one in model.modules()
    ]
    run(model, inputs)
    for handle in handles:
        handle.remove()
    return found


def _own(out: Any) -> list[Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(out) if isinstance(leaf, Tensor)]


def traces(model: nn.Module) -> Any:
    """Everything on a model and in the process that a capture might leave changed."""
    return (
        [
            (set(vars(one)), len(one._forward_hooks), len(one._forward_pre_hooks), one.training)
            for one in model.modules()
        ],
        {name: mark(value) for name, value in model.state_dict().items()},
        nn.Module.__call__,
        torch.relu,
        Tensor.add,
        torch.is_grad_enabled(),
        _torch.function_modes(),
        _torch.dispatch_modes_are_on(),
        len(nn.modules.module._global_forward_hooks),
    )


def prove(model: nn.Module, inputs: dict[str, Any]) -> Proof:
    """Raise AssertionError where something does not hold."""
    before = run(model, inputs)
    state = traces(model)
    with tc.capture(model) as cap:
        during = run(model, inputs)
    states = torch.get_rng_state(), random.getstate()
    after = run(model, inputs)
    for name, found in (("during", during), ("after", after)):
        assert list(map(mark, before)) == list(map(mark, found)), f"the forward differs {name}"
    assert torch.equal(states[0], torch.get_rng_state()), "it drew from torch's generator"
    assert states[1] == random.getstate(), "it drew from Python's generator"
    assert traces(model) == state, "something was left behind"

    known = oracle(model, inputs)
    tensors = dict(cap.tensors())
    unknown = [
        name
        for name, value in tensors.items()
        if mark(value) not in known and not name.partition("/")[2].startswith(NOT_TOLD)
    ]
    assert not unknown, f"{unknown[:3]} of {len(tensors)} are in no operation's output"
    modules = [tuple(map(mark, _own(cap[name]))) for name in cap.names("*")]
    assert modules == by_hooks(model, inputs), "module outputs differ from those of plain hooks"

    distinct = list({id(value): value for value in tensors.values()}.values())
    apart = tc.relate(distinct, {"model": model, "inputs": inputs, "out": [before, during, after]})
    assert not apart.shares_memory, apart.why
    assert not tc.aliases(distinct).groups, "two values share memory"
    record = cap.record
    return Proof(len(cap), len(tensors), record.held_bytes, record.cloned_bytes, len(known))
