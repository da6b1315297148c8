"""Side by side in one run: shuffled rounds, medians, ratios to a reference and to a ceiling.

Two regimes, because they measure different things:
* fresh: every output is held, so each copy goes into memory that was never touched. Where that would be
  too much, all are dropped between two rounds, and the heap gives its free pages back to the kernel.
  A gigabyte is touched and freed before each sample, in small pages and in huge ones: a virtual
  machine's host takes back free memory, and giving it again would be charged to whoever comes first.
* recycled: outputs are dropped, so each copy goes into memory that the allocator just got back.
"""

from __future__ import annotations

import ctypes
import gc
import json
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from truecopy.copying.pages import advise

Regime = Literal["fresh", "recycled"]
RESULTS = Path(__file__).parent / "results"
GIB = 1 << 30


@dataclass(frozen=True)
class Case:
    """One task, the ways to do it, and what the way of truecopy is measured against."""

    name: str
    nbytes: int
    methods: Mapping[str, Callable[[], Any]]
    rounds: int = 11
    calls: int = 1  # in one sample; more than one where a call is short


MOST_HELD = 7 * GIB
"""Beyond, the host of a virtual machine took touched buffers too, and the ceiling fell to a tenth."""


def trim() -> None:
    """Give the free pages of the heap back to the kernel: what comes from them again is fresh."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def settle() -> None:
    """Touch and free a gigabyte of either page size, so that the host has given the guest its memory.

    The kernel keeps free small and huge pages apart: touching one kind leaves the other cold.
    """
    for huge in (False, True):
        block = torch.empty(GIB, dtype=torch.uint8)
        if huge:
            advise([block])
        block.fill_(1)
        del block


def sample(method: Callable[[], Any], calls: int, held: list[Any] | None) -> float:
    """Seconds of one call, over `calls` of them. With `held`, outputs stay alive."""
    outputs: list[Any] = []
    started = time.perf_counter()
    for _ in range(calls):
        output = method()
        if held is not None:
            outputs.append(output)
    elapsed = time.perf_counter() - started
    if held is not None:
        held.append(outputs)
    return elapsed / calls


def measure(case: Case, regime: Regime, seed: int = 0) -> dict[str, Any]:
    """All methods of a case, each once in each round, in an order shuffled anew."""
    trim()
    order = random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in case.methods}
    most_held = max(MOST_HELD // max(case.nbytes * case.calls, 1), len(case.methods))
    held = [method() for method in case.methods.values()]  # a warm-up
    for _ in range(case.rounds):
        if regime == "recycled" or len(held) + len(case.methods) > most_held:
            held.clear()
            if regime == "fresh":
                trim()
        names = list(case.methods)
        order.shuffle(names)
        for name in names:
            if regime == "fresh":
                settle()
            gc.collect()
            gc.disable()
            times[name].append(
                sample(case.methods[name], case.calls, held if regime == "fresh" else None)
            )
            gc.enable()
    return {
        "case": case.name,
        "regime": regime,
        "nbytes": case.nbytes,
        "rounds": case.rounds,
        "calls": case.calls,
        "seconds": times,
        "median": {name: statistics.median(values) for name, values in times.items()},
    }


def ratio(result: Mapping[str, Any], slower: str, faster: str) -> float:
    """How many times as fast `faster` is: the median of the ratios of each round."""
    pairs = zip(result["seconds"][slower], result["seconds"][faster], strict=True)
    return statistics.median(a / b for a, b in pairs)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
        "huge_pages": huge.read_text().strip() if huge.exists() else "unknown",
    }


def save(name: str, results: list[dict[str, Any]], checks: list[dict[str, Any]]) -> None:
    """Write raw samples and the verdicts on the targets."""
    RESULTS.mkdir(exist_ok=True)
    record = {"machine": machine(), "checks": checks, "results": results}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def check(what: str, got: float, must: float, stretch: float | None = None) -> dict[str, Any]:
    """One target: the figure that must hold (0 where there is but a headline), and what was measured."""
    if stretch is not None and got >= stretch:
        verdict = "stretch"
    else:
        verdict = "holds" if got >= must > 0 else "missed"
    headline = "" if stretch is None else f" [{stretch:g}]"
    print(f"{verdict:>8}  {got:6.2f}  (must {must:g}{headline})  {what}", flush=True)
    return {"what": what, "got": got, "must": must, "stretch": stretch, "verdict": verdict}
