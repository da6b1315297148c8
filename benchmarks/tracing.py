"""What looking costs, beside what people use instead: microseconds for an operation, times of a step.

Small operations: an addition of two tensors of four numbers, so that what is measured is the looking
alone. A step: forward, backward and AdamW of a small GPT-2. A million operations: memory and time to
report, in a process of its own.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from harness import check, save
from torch.distributed._tools.mem_tracker import MemTracker
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode

import truecopy as tc
from models import GPT2Like

Around = Callable[[], AbstractContextManager[Any]]
BLOCKS, CALLS = 100, 1000
STEP_ROUNDS = 15
EXACT_ROUNDS = 7
MANY = 100_000
MIB = 1 << 20
MILLION = 1_000_000


class _Calls(TorchFunctionMode):
    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


@contextmanager
def empty_modes() -> Iterator[None]:
    """Both modes, doing nothing: what looking costs before it sees anything."""
    with _Calls(), _Operations():
        yield


def profiler() -> AbstractContextManager[Any]:
    """torch.profiler with all that it can tell."""
    return profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True, record_shapes=True
    )


WAYS: dict[str, Around] = {
    "plain": nullcontext,
    "tc.trace": tc.trace,
    "empty modes": empty_modes,
    "torch.profiler": profiler,
    "MemTracker": MemTracker,
    "DebugMode": DebugMode,
}


def small_operations() -> dict[str, Any]:
    """Microseconds of one addition, by every way: medians of many blocks, ways taken in turn."""
    a, b = torch.ones(4), torch.ones(4)
    times: dict[str, list[float]] = {name: [] for name in WAYS}

    def block() -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            a + b
        return (time.perf_counter() - started) / CALLS * 1e6

    for turn in range(BLOCKS // 5):
        for name, around in WAYS.items():
            if name == "torch.profiler" and turn % 4:
                continue  # its own preparation and end take long, outside of what is measured
            with around():
                times[name] += [block() for _ in range(5)]
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

    def step() -> float:
        started = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        return time.perf_counter() - started

    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(3):
        step()
    for _ in range(STEP_ROUNDS):
        for name, around in WAYS.items():
            with around():
                times[name].append(step())
    times["TorchLens, forward alone"], times["plain, forward alone"] = _lens(model, tokens)
    return {
        "case": "a step of GPT-2-like, 6 layers of 256, batch 4 x 64, seconds",
        "samples": times,
        "median": {name: statistics.median(values) for name, values in times.items()},
    }


def exact_tier() -> dict[str, Any]:
    """A step under the profiler alone and under the exact tier, in turn; then what the tier does after.

    The peak of a step is held against what torch's own events of memory add up to, in another run.
    """
    torch.manual_seed(0)
    model = GPT2Like(vocabulary=1024, width=256, heads=4, layers=6, context=64)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 1024, (4, 64))

    def step() -> float:
        started = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        return time.perf_counter() - started

    ways: dict[str, Around] = {"torch.profiler": profiler, "exact": lambda: tc.trace(exact=True)}
    inside: dict[str, list[float]] = {name: [] for name in ways}
    after: dict[str, list[float]] = {name: [] for name in ways}
    peaks = set()
    step()
    for _ in range(EXACT_ROUNDS):
        for name, around in ways.items():
            optimizer.zero_grad()
            with around() as run:
                inside[name].append(step())
                ended = time.perf_counter()
            if name == "exact":
                peaks.add(run.peak.nbytes)
                events = run.record.totals.operations
            after[name].append(time.perf_counter() - ended)
    optimizer.zero_grad()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as account:
        step()
    live = allocator = 0
    for event in account.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            allocator = max(allocator, live)
    return {
        "case": "a step of GPT-2-like under the profiler, seconds, and what follows it",
        "samples": inside,
        "after": after,
        "operations": events,
        "peaks": sorted(peaks),
        "allocator": allocator,
    }


def after_many() -> dict[str, Any]:
    """Seconds from the end of a hundred thousand operations to their record."""
    a = torch.ones(4)
    with tc.trace(exact=True) as run:
        for _ in range(MANY // 2):
            (a + a).reshape(2, 2)
        started = time.perf_counter()
    events = run.record.totals.events
    return {
        "case": "a hundred thousand operations, from the end of the run to its record",
        "events": events,
        "seconds": time.perf_counter() - started,
    }


def exact_checks(exact: dict[str, Any], many: dict[str, Any]) -> list[dict[str, Any]]:
    """The targets of the exact tier."""
    pairs = zip(exact["samples"]["exact"], exact["samples"]["torch.profiler"], strict=True)
    times = statistics.median(a / b for a, b in pairs)
    after = {name: statistics.median(values) for name, values in exact["after"].items()}
    print(
        f"          after a step of {exact['operations']:,} operations: exact "
        f"{after['exact']:.2f} s, torch.profiler alone {after['torch.profiler']:.2f} s"
    )
    return [
        check(f"exact tier: 1.1 times torch.profiler over {times:.2f} times", 1.1 / times, 1),
        check(
            f"peaks of the exact tier {exact['peaks']} are the allocator's {exact['allocator']}",
            float(exact["peaks"] == [exact["allocator"]]), 1,
        ),
        check(
            f"exact tier: 10 s over {many['seconds']:.1f} s after {many['events']:,} operations",
            10 / many["seconds"], 1,
        ),
    ]  # fmt: skip


def _lens(model: torch.nn.Module, tokens: torch.Tensor) -> tuple[list[float], list[float]]:
    import torchlens

    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        for samples, run in (
            (found[0], lambda: torchlens.trace(model, tokens)),
            (found[1], lambda: model(tokens)),
        ):
            started = time.perf_counter()
            run()
            samples.append(time.perf_counter() - started)
    return found


def a_million() -> None:
    """In a process of its own: a million operations, traced or not; prints what it took."""
    traced = sys.argv[2] == "traced"
    a = torch.ones(4)
    for _ in range(1000):
        a + a
    with tc.trace() if traced else nullcontext() as run:
        if traced:
            a + a
        before = _memory()
        for _ in range(MILLION):
            a + a
        added = _memory() - before
    took = 0.0
    if traced:
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            run.save(Path(folder) / "run.json")
            run.summary()
            took = time.perf_counter() - started
        added = max(added, _memory() - before)
    print(json.dumps({"added": added, "report": took}))


def _memory() -> int:
    """The most that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def million_operations() -> dict[str, Any]:
    """Memory that a trace adds over a million operations, and seconds until it has reported."""
    found = {
        kind: json.loads(
            subprocess.run(
                [sys.executable, __file__, "a million", kind],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for kind in ("plain", "traced")
    }
    return {
        "case": "a million additions",
        "added_bytes": found["traced"]["added"] - found["plain"]["added"],
        "report_seconds": found["traced"]["report"],
    }


def main() -> None:
    """Measure all three, and keep the figures."""
    small = small_operations()
    micros = small["median"]
    added = {name: value - micros["plain"] for name, value in micros.items()}
    step = step_of_a_model()
    pairs = zip(step["samples"]["tc.trace"], step["samples"]["plain"], strict=True)
    times = statistics.median(a / b for a, b in pairs)
    million = million_operations()
    exact, many = exact_tier(), after_many()
    checks = [
        check(
            f"added to an operation: 14 us over {added['tc.trace']:.1f} us "
            f"(empty modes {added['empty modes']:.1f})",
            14 / added["tc.trace"], 1,
        ),
        check(
            f"torch.profiler with all flags adds {added['torch.profiler']:.1f} us: times ours",
            added["torch.profiler"] / added["tc.trace"], 5,
        ),
        check(f"a step of GPT-2: 1.5 times plain over {times:.2f} times", 1.5 / times, 1, 1.5 / 1.35),
        check(
            f"a million operations: 300 MiB over {million['added_bytes'] / MIB:.0f} MiB",
            300 * MIB / max(million["added_bytes"], 1), 1,
        ),
        check(
            f"their report: 10 s over {million['report_seconds']:.1f} s",
            10 / max(million["report_seconds"], 1e-3), 1,
        ),
        *exact_checks(exact, many),
    ]  # fmt: skip
    for name, value in added.items():
        print(f"          {name}: {value:.1f} us added to an operation")
    for name, value in step["median"].items():
        print(f"          {name}: {value * 1e3:.1f} ms for a step")
    save("tracing", [small, step, million, exact, many], checks)


if __name__ == "__main__":
    if sys.argv[1:2] == ["a million"]:
        a_million()
    else:
        main()
