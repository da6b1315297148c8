"""Why a name has no value, and which names are nearest."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch import nn

from truecopy.capturing.names import ROOT, Pattern
from truecopy.errors import NotCaptured


@dataclass(frozen=True, slots=True)
class Seen:
    """Paths of modules that were called, and of those that went a fused path."""

    called: Collection[str] = ()
    fast: Collection[str] = ()


def not_captured(
    asked: str, names: Sequence[str], model: nn.Module | None, seen: Seen = Seen()
) -> NotCaptured:
    """The error for a name that was asked for and never seen."""
    nearest = difflib.get_close_matches(asked, names, n=3, cutoff=0.4)
    nearest = nearest or [name for name in names if asked.rpartition(".")[2] in name][:3]
    return NotCaptured(
        "was asked for, and never seen",
        where=asked,
        expected="a value that was made while the capture was open",
        got=why_absent(asked, names, model, seen),
        way_out=f"The nearest: {', '.join(nearest)}" if nearest else "names() lists what was seen",
    )


def why_absent(
    asked: str, names: Sequence[str], model: nn.Module | None, seen: Seen = Seen()
) -> str:
    """One sentence about a name that was not seen."""
    try:
        pattern = Pattern.parse(asked)
    except ValueError:
        return "this is no name"
    path = pattern.module
    taken = [one for one in seen.fast if path == one or path.startswith(f"{one}.") or not one]
    if taken:
        return f"{taken[0] or ROOT} took its fused fast path, which calls nothing inside"
    if not names and not seen.called:
        return "nothing was captured: the model was not called"
    module = _module_at(model, path)
    if module is None:
        return f"the model has no module {path!r}" if "*" not in path else "no name matches"
    if pattern.function is not None:
        return f"no call of {pattern.function} was seen in {path or ROOT}"
    return _why_not_called(asked, path, module, model, seen)


def _why_not_called(
    asked: str, path: str, module: nn.Module, model: nn.Module | None, seen: Seen
) -> str:
    twins = [
        other
        for other, one in (model.named_modules(remove_duplicate=False) if model else ())
        if one is module and other != path and other in seen.called
    ]
    if path in seen.called:
        return f"{path or ROOT} was called, but {asked} was not"
    if twins:
        return f"{path} is the same module as {twins[0]}, by which it was called"
    parent_path = path.rpartition(".")[0]
    parent = _module_at(model, parent_path)
    if isinstance(parent, nn.MultiheadAttention):
        return (
            f"{parent_path or ROOT} is a MultiheadAttention, which takes the weights of {path} and does "
            "not call it (fused path)"
        )
    if isinstance(module, nn.ModuleList | nn.ModuleDict | nn.ParameterList):
        return f"{path} is a {type(module).__name__}, which is never called itself"
    if isinstance(parent, torch_script()):
        return f"{parent_path or ROOT} is compiled by TorchScript, inside of which nothing is seen"
    return f"{path or ROOT} is a {type(module).__name__}, and was not called"


def torch_script() -> type:
    """The class of scripted modules."""
    import torch

    return torch.jit.ScriptModule


def _module_at(model: nn.Module | None, path: str) -> nn.Module | None:
    try:
        return None if model is None else model.get_submodule(path)
    except AttributeError:
        return None
