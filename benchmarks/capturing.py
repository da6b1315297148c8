"""What seeing inside a model costs, beside what people use instead: `make bench ARGS=capturing`."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import GIB, Case, check, measure, ratio, save
from models import resnet18, small_gpt2
from torch import nn
from torch.utils import _pytree
from torch.utils._debug_mode import DebugMode

import truecopy as tc

PLAIN, ALL, MODULES = "plain forward", "tc.capture", 'tc.capture(select="*")'
HERE = Path(__file__).parent


def hooks_with_clone(model: nn.Module, x: torch.Tensor) -> Any:
    """The usual way: every module's output, cloned at once."""
    kept: list[Any] = []

    def keep(_: Any, __: Any, out: Any) -> None:
        kept.append(_pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), out))

    handles = [one.register_forward_hook(keep) for one in model.modules()]
    out = model(x)
    for handle in handles:
        handle.remove()
    return kept, out


def debug_mode(model: nn.Module, x: torch.Tensor) -> Any:
    """Torch's own: a clone of what every operation returned."""
    with DebugMode() as mode, DebugMode.record_outputs():
        model(x)
    return mode


def everything(model: nn.Module, x: torch.Tensor) -> Any:
    """All modules and operations."""
    with tc.capture(model) as cap:
        model(x)
    return cap


def modules_only(model: nn.Module, x: torch.Tensor) -> Any:
    """All modules."""
    with tc.capture(model, select="*") as cap:
        model(x)
    return cap


def torchlens(model: nn.Module, x: torch.Tensor) -> Any:
    """Its full trace."""
    import torchlens

    return torchlens.trace(model, x)


def nnsight_saves(model: nn.Module, x: torch.Tensor) -> Callable[[nn.Module, torch.Tensor], Any]:
    """Every module's output, saved. It has to be asked in the order in which the modules run."""
    from nnsight import NNsight

    order = [name for name in modules_only(model, x).names() if name != "(model)"]
    wrapped = NNsight(model)

    def run(_: nn.Module, given: torch.Tensor) -> Any:
        kept: list[Any] = []
        with wrapped.trace(given):
            for name in order:
                kept.append(wrapped.get(name).output.save())  # noqa: PERF401 - of the trace
        return kept

    return run


def methods(model: nn.Module, x: torch.Tensor, *ways: Any) -> dict[str, Callable[[], Any]]:
    """The ways to run a model on its input, by name."""
    return {name: (lambda way=way: way(model, x)) for name, way in ways}


def speed(checks: list[Any], results: list[Any]) -> None:
    """All modules and operations, and modules only, against the plain forward and the peers."""
    for title, make, most in (("GPT-2", small_gpt2, (1.6, 1.15)), ("ResNet-18", resnet18, None)):
        model, x = make()
        ways = methods(
            model, x,
            (PLAIN, lambda m, given: m(given)), (ALL, everything), (MODULES, modules_only),
            ("hooks with clone", hooks_with_clone), ("DebugMode.record_outputs", debug_mode),
        )  # fmt: skip
        result = measure(Case(f"{title}, captured", 0, ways, rounds=15), "recycled")
        results.append(result)
        for name, bound in zip((ALL, MODULES), most or (0, 0), strict=True):
            times = 1 / ratio(result, PLAIN, name)
            what = f"{title}: {name} takes {times:.2f} of a plain forward"
            if bound:
                checks.append(check(f"{what}, at most {bound}", bound / times, 1))
            else:
                checks.append(check(what, times, 0, 0))
        for peer in ("hooks with clone", "DebugMode.record_outputs"):
            got = ratio(result, peer, ALL)
            checks.append(check(f"{title}: times as fast as {peer}", got, 0, 0))
        bytes_held(title, model, x, checks)


def bytes_held(title: str, model: nn.Module, x: torch.Tensor, checks: list[Any]) -> None:
    """What is held of all modules and operations, against a clone of each."""
    record = everything(model, x).record
    part = record.held_bytes / record.cloned_bytes
    what = f"{title}: holds {part:.2f} of what cloning everything holds, at most 0.55"
    checks.append(check(what, 0.55 / part, 1))


def tracers(checks: list[Any], results: list[Any]) -> None:
    """TorchLens and nnsight, which leave the process changed: after everything else.

    What they cost is bookkeeping for each operation, so it depends on the size of the model how many
    times a forward it is: here both sizes.
    """
    for size, must in (((256, (1, 64)), 10), ((512, (4, 128)), 0)):
        model, x = small_gpt2(*size)
        ways = methods(
            model, x, (PLAIN, lambda m, given: m(given)), (ALL, everything),
            ("TorchLens trace", torchlens), ("nnsight saves", nnsight_saves(*small_gpt2(*size))),
        )  # fmt: skip
        title = f"GPT-2 of {size[0]}, {size[1][0]} x {size[1][1]} tokens"
        result = measure(Case(f"{title}, traced", 0, ways, rounds=7), "recycled")
        results.append(result)
        times = 1 / ratio(result, PLAIN, ALL)
        checks.append(check(f"{title}: {ALL} takes {times:.2f} of a plain forward", times, 0, 0))
        for peer, bound in (("TorchLens trace", must), ("nnsight saves", 0)):
            got = ratio(result, peer, ALL)
            what = f"{title}: times as fast as {peer}"
            checks.append(check(what, got, bound, None if bound else 0))


def budget(checks: list[Any], _: list[Any]) -> None:
    """2 GiB kept on a model that makes 6 GiB, by the peak of a process."""
    told = json.loads(
        subprocess.run(
            [sys.executable, str(HERE / "peak.py"), "24", "256", "2 GiB"],
            capture_output=True, text=True, check=True,
        ).stdout
    )  # fmt: skip
    more = told["observed"] - told["plain"]
    what = (
        f"6 GiB of activations, budget 2 GiB: {more / GIB:.2f} GiB more than unobserved at the peak"
    )
    checks.append(check(what, 2 * GIB * 1.01 / more if told["right"] else 0, 1))


def main() -> None:
    """Run everything and keep the figures."""
    warnings.simplefilter("ignore")
    checks: list[Any] = []
    results: list[Any] = []
    parts = {"speed": speed, "tracers": tracers, "budget": budget}
    for name in sys.argv[1:] or parts:  # run.py passes names of benchmarks, of which none is a part
        for part in [parts[name]] if name in parts else parts.values():
            part(checks, results)
    save("capturing", results, checks)


if __name__ == "__main__":
    main()
