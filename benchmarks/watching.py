"""What watching and expecting cost, beside a trace and modes that do nothing: microseconds for an operation.

An addition of two tensors of four numbers, so that what is measured is the looking alone; and a step of
training with all parameters watched, with and without the copy that finds writes from outside.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from harness import check, save
from models import GPT2Like
from torch.utils._python_dispatch import TorchDispatchMode

import truecopy as tc

Around = Callable[[], AbstractContextManager[Any]]
TURNS, BLOCKS, CALLS = 12, 5, 1000
STEP_ROUNDS = 9


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


def small_operations() -> dict[str, Any]:
    """Microseconds of one addition, by every way: medians of many blocks, ways taken in turn."""
    a, b, other = torch.ones(4), torch.ones(4), torch.ones(4)
    ways: dict[str, Around] = {
        "plain": nullcontext,
        "empty dispatch mode": _Operations,
        "tc.watch, other memory": lambda: tc.watch(other),
        "tc.watch, other memory, outside=0": lambda: tc.watch(other, outside=0),
        "tc.watch, its operand": lambda: tc.watch(a),
        "tc.watch, its operand, outside=0": lambda: tc.watch(a, outside=0),
        "tc.trace": tc.trace,
        "tc.expect": lambda: tc.expect(hidden_copies=0),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}

    def block() -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            a + b
        return (time.perf_counter() - started) / CALLS * 1e6

    for _ in range(TURNS):
        for name, around in ways.items():
            with around():
                times[name] += [block() for _ in range(BLOCKS)]
    return {
        "case": "an addition of four numbers, microseconds",
        "calls": CALLS,
        "samples": times,
        "median": {name: statistics.median(values) for name, values in times.items()},
    }


def step_of_a_model() -> dict[str, Any]:
    """Seconds of one step of training, by every way, ways taken in turn."""
    torch.manual_seed(0)
    model = GPT2Like(vocabulary=1024, width=256, heads=4, layers=6, context=64)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 1024, (4, 64))
    ways: dict[str, Around] = {
        "plain": nullcontext,
        "tc.watch(model)": lambda: tc.watch(model, on_write="report"),
        "tc.watch(model, outside=0)": lambda: tc.watch(model, on_write="report", outside=0),
        "tc.watch(tokens)": lambda: tc.watch(tokens),
    }

    def step() -> float:
        started = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        return time.perf_counter() - started

    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(3):
        step()
    for _ in range(STEP_ROUNDS):
        for name, around in ways.items():
            with around():
                times[name].append(step())
    return {
        "case": "a step of GPT-2-like, 6 layers of 256, batch 4 x 64, seconds",
        "samples": times,
        "median": {name: statistics.median(values) for name, values in times.items()},
    }


def main() -> None:
    """Measure both, and keep the figures."""
    small = small_operations()
    micros = small["median"]
    added = {name: value - micros["plain"] for name, value in micros.items()}
    watched = added["tc.watch, other memory"]
    step = step_of_a_model()
    checks = [
        check(
            f"tc.trace adds {added['tc.trace']:.1f} us to an operation, tc.watch {watched:.1f}: times",
            added["tc.trace"] / watched, 1.5,
        ),
        check(
            f"tc.expect adds {added['tc.expect']:.1f} us, a trace and no more: 1.15 times its cost, over",
            1.15 * added["tc.trace"] / added["tc.expect"], 1,
        ),
    ]  # fmt: skip
    for name, value in added.items():
        print(f"          {name}: {value:.1f} us added to an operation")
    for name, value in step["median"].items():
        print(f"          {name}: {value * 1e3:.1f} ms for a step")
    save("watching", [small, step], checks)


if __name__ == "__main__":
    main()
