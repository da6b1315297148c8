"""What looking costs, beside what people use instead: microseconds for an operation, times of a step.

Small operations: an addition of two tensors of four numbers, so that what is measured is the looking
alone. A step: forward, backward and AdamW of a small GPT-2. A million operations: memory and time to
report, on disk, in the terminal and as a page, in a process of its own. Parts run alone by their names:
`python benchmarks/tracing.py small step million`.
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
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from harness import check, save
from models import GPT2Like
from torch.distributed._tools.mem_tracker import MemTracker
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode

import truecopy as tc
from truecopy.cli import main as main_of_the_command

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
    read = {name: [_until_read(way, block) for _ in range(3)] for name, way in READ.items()}
    return {
        "case": "an addition of four numbers, microseconds",
        "calls": CALLS,
        "samples": times,
        "until it can be read": read,
        "median": {name: statistics.median(values) for name, values in times.items()},
        "median until read": {name: statistics.median(values) for name, values in read.items()},
    }


READ: dict[str, tuple[Around, Callable[[Any], Any]]] = {
    "plain": (nullcontext, lambda run: run),
    "tc.trace": (tc.trace, lambda run: run.record),
    "torch.profiler": (profiler, lambda run: run.events()),
}
"""Ways that have something to tell at the end: recording is a part of the cost, and finding out the other."""


def _until_read(way: tuple[Around, Callable[[Any], Any]], block: Callable[[], float]) -> float:
    """Microseconds of one operation, from before the first to a result that can be read."""
    around, look = way
    started = time.perf_counter()
    with around() as run:
        for _ in range(5):
            block()
    look(run)
    return (time.perf_counter() - started) / (5 * CALLS) * 1e6


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
    took: dict[str, float] = {}
    if traced:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.json"
            for name, report in (
                ("record", lambda: run.record),
                ("json", lambda: run.save(file)),
                ("terminal", run.summary),
                ("html", lambda: main_of_the_command(["report", str(file), "--format", "html"])),
            ):
                started = time.perf_counter()
                with redirect_stdout(StringIO()):
                    report()
                took[name] = time.perf_counter() - started
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


def small(checks: list[Any], results: list[Any]) -> None:
    """What looking adds to an operation."""
    result = small_operations()
    micros = result["median"]
    added = {name: value - micros["plain"] for name, value in micros.items()}
    ours = added["tc.trace"]
    whole = result["median until read"]
    read = {name: value - whole["plain"] for name, value in whole.items()}
    checks += [
        check(
            f"added to an operation: 14 us over {ours:.1f} us "
            f"(empty modes {added['empty modes']:.1f})",
            14 / ours, 1,
        ),
        check(
            f"until it can be read: torch.profiler with all flags adds {read['torch.profiler']:.1f} us, "
            f"tc.trace {read['tc.trace']:.1f}",
            read["torch.profiler"] / read["tc.trace"], 5,
        ),
    ]  # fmt: skip
    for name, value in added.items():
        print(f"          {name}: {value:.1f} us added to an operation")
    results.append(result)


def step(checks: list[Any], results: list[Any]) -> None:
    """What looking adds to a step of training."""
    result = step_of_a_model()
    pairs = zip(result["samples"]["tc.trace"], result["samples"]["plain"], strict=True)
    times = statistics.median(a / b for a, b in pairs)
    checks.append(
        check(
            f"a step of GPT-2: 1.5 times plain over {times:.2f} times", 1.5 / times, 1, 1.5 / 1.35
        )
    )
    for name, value in result["median"].items():
        print(f"          {name}: {value * 1e3:.1f} ms for a step")
    results.append(result)


def million(checks: list[Any], results: list[Any]) -> None:
    """What a long run adds to memory, and how long its reports take."""
    result = million_operations()
    seconds = sum(result["report_seconds"].values())
    checks += [
        check(
            f"a million operations: 300 MiB over {result['added_bytes'] / MIB:.0f} MiB",
            300 * MIB / max(result["added_bytes"], 1), 1,
        ),
        check(f"their reports: 10 s over {seconds:.1f} s", 10 / max(seconds, 1e-3), 1),
    ]  # fmt: skip
    for name, value in result["report_seconds"].items():
        print(f"          {name}: {value:.2f} s for the report of a million operations")
    results.append(result)


def exact(checks: list[Any], results: list[Any]) -> None:
    """What the exact tier costs beside torch.profiler, and whether its peak is the allocator's."""
    found, many = exact_tier(), after_many()
    checks += exact_checks(found, many)
    results += [found, many]


PARTS = (small, step, million, exact)


def main(names: list[str]) -> None:
    """Measure everything and keep the figures; or the parts that are named, and keep nothing."""
    checks: list[Any] = []
    results: list[Any] = []
    for part in PARTS:
        if not names or part.__name__ in names:
            part(checks, results)
    if not names:
        save("tracing", results, checks)


if __name__ == "__main__":
    if sys.argv[1:2] == ["a million"]:
        a_million()
    else:
        main(sys.argv[1:] if Path(sys.argv[0]).stem == "tracing" else [])
