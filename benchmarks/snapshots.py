"""What a snapshot costs, beside what people use instead and beside the ceiling: `make bench`."""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from harness import GIB, Case, check, measure, ratio, save
from safetensors.torch import save_file
from tensordict import TensorDict

import truecopy as tc

MIB = 1 << 20
CEILING = "ceiling (copy_ between touched buffers)"
CLONES = "dict of clones"
DEEPCOPY = "copy.deepcopy(state_dict)"


def tensors(count: int, nbytes: int) -> dict[str, torch.Tensor]:
    """A state of equal float tensors, all touched."""
    return {f"t{i}": torch.full((nbytes // 4,), float(i)) for i in range(count)}


def state_case(name: str, count: int, nbytes: int, rounds: int) -> tuple[Case, tc.Snapshot]:
    """A state, kept and put back by every method."""
    state = tensors(count, nbytes)
    touched = {key: torch.ones_like(value) for key, value in state.items()}
    snap = tc.Snapshot(state=state)

    def ceiling() -> None:
        for key, value in state.items():
            touched[key].copy_(value)

    methods: dict[str, Callable[[], Any]] = {
        CEILING: ceiling,
        "update": snap.update,
        "restore": snap.restore,
        CLONES: lambda: {key: value.clone() for key, value in state.items()},
        DEEPCOPY: lambda: copy.deepcopy(state),
    }
    return Case(name, count * nbytes, methods, rounds), snap


def large(checks: list[Any], results: list[Any]) -> None:
    """1 GiB in 128 tensors. A deepcopy is kept, so it goes into memory that was never touched."""
    case, _ = state_case("1 GiB in 128", 128, 8 * MIB, rounds=5)
    ways = (CEILING, "update", "restore")
    result = measure(
        replace(case, methods={way: case.methods[way] for way in ways}, rounds=9), "recycled"
    )
    kept = {way: case.methods[way] for way in ("update", "restore", DEEPCOPY)}
    fresh = measure(replace(case, methods=kept), "fresh")
    results += [result, fresh]
    for verb, share in (("update", 1.0), ("restore", 0.9)):
        got = ratio(result, CEILING, verb)
        checks.append(check(f"1 GiB in 128, {verb}: of the ceiling", got, 0.9 * share))
        got = ratio(fresh, DEEPCOPY, verb)
        checks.append(check(f"1 GiB in 128, {verb}: times {DEEPCOPY}", got, 4 * share))


def small(checks: list[Any], results: list[Any]) -> None:
    """5,000 of 1 KiB: five in a row, and one alone, whose caches the collector has just emptied."""
    case, _ = state_case("5,000 x 1 KiB", 5000, 1024, rounds=15)
    source = tensors(5000, 1024)
    packed, kept = TensorDict(source, batch_size=[]), TensorDict(tensors(5000, 1024), batch_size=[])
    methods = {**case.methods, "TensorDict.update_": lambda: kept.update_(packed)}
    for calls, how in ((5, "five in a row"), (1, "one alone")):
        result = measure(replace(case, methods=methods, calls=calls), "recycled")
        results.append(result)
        for verb, share in (("update", 1.0), ("restore", 0.9)):
            for peer, must in ((CLONES, 4.0), (DEEPCOPY, 25.0), ("TensorDict.update_", 1.0)):
                got = ratio(result, peer, verb)
                what = f"5,000 x 1 KiB, {how}, {verb}: times {peer}"
                checks.append(check(what, got, must * share))


def allocations(checks: list[Any], _: list[Any]) -> None:
    """Counted, not timed: the largest thing that a second update and a restore allocate."""
    case, snap = state_case("counted", 64, MIB, rounds=1)
    del case
    with torch.profiler.profile(profile_memory=True) as profile:
        snap.update()
        snap.restore()
    most = max((event.self_cpu_memory_usage for event in profile.key_averages()), default=0)
    checks.append(
        check(f"64 KiB over the most that is allocated, {most}", (64 << 10) / max(most, 1), 1)
    )


def gpt2() -> tuple[Any, Any, torch.Generator]:
    """A small GPT-2 of transformers, dropout on, with AdamW."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=8192, n_positions=64)
    )
    return model, torch.optim.AdamW(model.parameters()), torch.Generator().manual_seed(1)


def training(checks: list[Any], results: list[Any]) -> None:
    """50 steps with a snapshot at each, beside 50 that copy the same tensors at the ceiling; and again."""
    losses: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for way in ("plain", "ceiling", "snapshot"):
        model, optimizer, order = gpt2()

        def steps(count: int, after: Callable[[], None]) -> tuple[list[float], list[float]]:
            found, times = [], []
            for _ in range(count):
                started = time.perf_counter()
                tokens = torch.randint(0, 8192, (4, 64), generator=order)  # noqa: B023
                optimizer.zero_grad()  # noqa: B023
                loss = model(input_ids=tokens, labels=tokens).loss  # noqa: B023
                loss.backward()
                optimizer.step()  # noqa: B023
                after()
                times.append(time.perf_counter() - started)
                found.append(loss.item())
            return found, times

        first, _ = steps(1, lambda: None)
        live = [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]
        kept = [torch.ones_like(t) for t in live]
        snap = tc.Snapshot(model=model, optimizer=optimizer, order=order, rng=True)
        after = {
            "plain": lambda: None,
            "ceiling": lambda: torch._foreach_copy_(kept, live),  # noqa: B023
            "snapshot": snap.update,
        }[way]
        copying = _without_gradient(after) if way == "ceiling" else after
        rest, seconds[way] = steps(50, copying)
        losses[way] = first + rest
        if way == "snapshot":
            following, _ = steps(50, lambda: None)
            snap.restore()
            again, _ = steps(50, lambda: None)
            checks.append(
                check("GPT-2: the next 50 steps repeat bit for bit", following == again, 1)
            )
    checks.append(
        check("GPT-2: the same losses bit for bit", losses["plain"] == losses["snapshot"], 1)
    )
    result = {"case": "GPT-2, 50 steps", "regime": "training", "seconds": seconds}
    result["median"] = {way: sorted(times)[25] for way, times in seconds.items()}
    results.append(result)
    median: Any = result["median"]
    checks.append(
        check(
            "GPT-2: 1.1 over step time of ceiling", 1.1 * median["ceiling"] / median["snapshot"], 1
        )
    )


def _without_gradient(work: Callable[[], Any]) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            work()

    return run


def saving(checks: list[Any], results: list[Any]) -> None:
    """512 MiB to disk: the same bytes, the same durability."""
    state = tensors(64, 8 * MIB)
    snap = tc.Snapshot(state=state)
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = Path(folder) / "theirs", Path(folder) / "ours"

        def save_and_sync() -> None:
            save_file(state, theirs)
            descriptor = os.open(theirs, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

        def background() -> None:
            snap.save(ours, background=True)

        methods = {"save_file + fsync": save_and_sync, "Snapshot.save": lambda: snap.save(ours)}
        result = measure(Case("512 MiB to disk", 512 * MIB, methods, rounds=5), "recycled")
        results.append(result)
        got = ratio(result, "save_file + fsync", "Snapshot.save")
        checks.append(check("save: times save_file + fsync", got, 0.9))
        held, updates = [], []
        for _ in range(5):
            started = time.perf_counter()
            snap.update()
            updates.append(time.perf_counter() - started)
            started = time.perf_counter()
            waiting = snap.save(ours, background=True)
            held.append(time.perf_counter() - started)
            waiting.wait()
        got = sorted(updates)[2] / sorted(held)[2]
        checks.append(check("update over the time a background save holds the thread", got, 1))


def lazily(checks: list[Any], results: list[Any]) -> None:
    """1,000 lazy duplicates of 1 GiB: one copy and 20 ms; from the live source, 20 ms."""
    x = torch.ones(GIB // 4)
    methods = {
        "tc.copy": lambda: tc.copy(x),
        "1,000 lazy": lambda: tc.duplicate(x, 1000, how="lazy"),
    }
    result = measure(Case("1,000 lazy duplicates of 1 GiB", GIB, methods, rounds=3), "recycled")
    results.append(result)
    pairs = zip(result["seconds"]["1,000 lazy"], result["seconds"]["tc.copy"], strict=True)
    over = sorted(a - b for a, b in pairs)[1]
    checks.append(
        check(
            f"1,000 lazy: 20 ms over {over * 1e3:.1f} ms more than a copy",
            0.02 / max(over, 1e-6),
            1,
        )
    )
    started = time.perf_counter()
    clones = tc.duplicate(x, 1000, how="lazy", live=True)
    live = time.perf_counter() - started
    checks.append(check(f"1,000 lazy, live: 20 ms over {live * 1e3:.1f} ms", 0.02 / live, 1))
    del clones


PARTS = (small, large, allocations, training, saving, lazily)


def main(names: list[str]) -> None:
    """Run everything and keep the figures; or run the parts that are named, and keep nothing."""
    checks: list[Any] = []
    results: list[Any] = []
    for part in PARTS:
        if not names or part.__name__ in names:
            part(checks, results)
    if not names:
        save("snapshots", results, checks)


if __name__ == "__main__":
    main(sys.argv[1:] if Path(sys.argv[0]).stem == "snapshots" else [])
