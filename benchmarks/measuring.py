"""Does the bench tell truth from noise? A/A runs, a planted 5 %, and the peers on the same methods.

    python benchmarks/measuring.py [aa] [planted] [peers] [--seconds 150]

Every run is a process of its own, since where memory lies differs from process to process, and is kept in
results/measuring/runs.json at once: a program that was stopped goes on where it was. With `--seconds` no
run is begun after so long. The checks are written when every run is there. `--afresh` begins anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import RESULTS, check, save

MIB = 1 << 20
ELEMENTS = 16 * MIB // 4
AGAIN = ELEMENTS // 40
"""Elements that the planted method copies twice: with the second call, 4 to 5 % more time on one thread."""

RUNS = RESULTS / "measuring" / "runs.json"
COUNTS = {"aa": 40, "planted": 10, "peers": 10}
AA_CASES = (("1 KiB", 1 << 10), ("1 MiB", MIB), ("16 MiB", 16 * MIB), ("16 MiB, fresh", 16 * MIB))
CLEAR = 1.025
"""Peers give no verdict: theirs is read as `slower` where the ratio of their figures is beyond this."""

Method = Callable[[torch.Tensor], torch.Tensor]


def reference(x: torch.Tensor) -> torch.Tensor:
    """A copy."""
    return x.clone()


def twin(x: torch.Tensor) -> torch.Tensor:
    """The same under another name: who calls it slower is wrong."""
    return x.clone()


def planted(x: torch.Tensor) -> torch.Tensor:
    """The same copy, a part of it made twice."""
    made = x.clone()
    made[:AGAIN].copy_(x[:AGAIN])
    return made


def view(x: torch.Tensor) -> torch.Tensor:
    """No copy: of a contiguous tensor, the tensor itself."""
    return x.contiguous()


def writer(x: torch.Tensor) -> torch.Tensor:
    """A copy that is right, and leaves a mark in the input that all methods share."""
    made = x.clone()
    x[7] += 1
    return made


METHODS: dict[str, Method] = {f.__name__: f for f in (reference, twin, planted, view, writer)}


# --- one run, in a process of its own -------------------------------------------------------------


def run_aa(number: int) -> dict[str, Any]:
    """The reference against itself, at four sizes and regimes in turn."""
    from truecopy.measuring.faster import faster

    name, nbytes = AA_CASES[number % len(AA_CASES)]
    regime: Any = "fresh" if "fresh" in name else "recycled"
    source = torch.rand(nbytes // 4)
    found = faster(torch.clone, torch.clone, source, seconds=8, regime=regime, seed=number)
    return {"case": name, **verdict(found)}


def run_planted(number: int) -> dict[str, Any]:
    """5 % more bytes, which must be found within a minute."""
    from truecopy.measuring.faster import faster

    began = time.perf_counter()
    found = faster(planted, reference, torch.rand(ELEMENTS), seconds=58, seed=number)
    return {"seconds": time.perf_counter() - began, **verdict(found)}


def verdict(found: Any) -> dict[str, Any]:
    """A verdict as plain data."""
    return {
        name: getattr(found, name)
        for name in ("word", "ratio", "low", "high", "floor", "rounds", "reason")
    }


def run_peers(number: int) -> dict[str, Any]:
    """The same five methods by three tools, in one process."""
    return {"perfplot": by_perfplot(), "torch": by_torch(), "truecopy": by_truecopy(number)}


def by_perfplot() -> dict[str, Any]:
    """Its minima, and what its equality check said with the writer in the middle and at the end."""
    import perfplot

    def figures(names: list[str]) -> dict[str, float]:
        data = perfplot.bench(
            setup=torch.rand, kernels=[METHODS[name] for name in names], n_range=[ELEMENTS],
            labels=names, show_progress=False,
        )  # fmt: skip
        return dict(zip(names, (float(row[0]) for row in data.timings_s), strict=True))

    seconds = figures(["reference", "twin", "planted", "view"])
    notices = []
    for names in (["reference", "writer", "twin"], ["reference", "twin", "writer"]):
        try:
            figures(names)
        except Exception as error:  # noqa: BLE001 - what it says is what is asked for
            notices.append(
                next((name for name in names[1:] if f"\n{name}:" in str(error)), "something")
            )
        else:
            notices.append(None)
    return {
        "seconds": seconds,
        **readings(seconds),
        "blames": notices,
        "names_writer": notices == ["writer"] * 2,
    }


def by_torch() -> dict[str, Any]:
    """Its medians, on one thread, which is its default."""
    from torch.utils.benchmark import Timer

    source = torch.rand(ELEMENTS)
    seconds = {
        name: float(
            Timer("f(x)", globals={"f": method, "x": source})
            .blocked_autorange(min_run_time=1)
            .median
        )
        for name, method in METHODS.items()
    }
    return {"seconds": seconds, **readings(seconds), "names_writer": False}


def readings(seconds: dict[str, float]) -> dict[str, Any]:
    """What a reader of the figures would conclude."""
    of = seconds["reference"]
    return {
        "planted": word(seconds["planted"] / of),
        "twin": word(seconds["twin"] / of),
        "fastest": min(seconds, key=lambda name: seconds[name]),
    }


def word(ratio: float) -> str:
    """The verdict that the figures of a tool without verdicts come to."""
    return "slower" if ratio > CLEAR else "faster" if ratio < 1 / CLEAR else "same"


def by_truecopy(number: int) -> dict[str, Any]:
    """Its verdicts, in a few seconds."""
    import truecopy as tc

    began = time.perf_counter()
    methods = [twin, planted, view, writer]
    found = tc.bench(["clone", *methods], sizes=ELEMENTS, threads=1, budget=20, seed=number)
    (cell,) = found.cells
    verdicts = {row.method: row.verdict for row in cell.rows if row.verdict is not None}
    return {
        "took": time.perf_counter() - began,
        "planted": verdicts["planted"].word,
        "twin": verdicts["twin"].word,
        "ratio": verdicts["planted"].ratio,
        "fastest": cell.rows[0].method,
        "names_writer": cell.row("writer").check.broken == ("writes into the source",),
        "names_view": cell.row("view").check.broken == ("returns the same tensor",),
    }


PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "aa": run_aa, "planted": run_planted, "peers": run_peers,
}  # fmt: skip


# --- all runs -------------------------------------------------------------------------------------


def load() -> dict[str, list[Any]]:
    """The runs that are there."""
    if not RUNS.exists():
        return {part: [] for part in PARTS}
    kept: dict[str, list[Any]] = json.loads(RUNS.read_text())
    return kept


def keep(runs: dict[str, list[Any]]) -> None:
    """Write all runs, whole or not at all."""
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    draft = RUNS.with_suffix(".tmp")
    draft.write_text(json.dumps(runs, indent=1) + "\n")
    draft.replace(RUNS)


def one_run(part: str, number: int) -> dict[str, Any]:
    """A run in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", part, str(number)],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def make_missing(parts: list[str], seconds: float) -> dict[str, list[Any]]:
    """Make the runs that are missing, as far as the time goes."""
    runs, ends = load(), time.monotonic() + seconds
    for part in parts:
        while len(runs[part]) < COUNTS[part] and time.monotonic() < ends:
            number = len(runs[part])
            runs[part].append(one_run(part, number))
            keep(runs)
            print(f"{part} {number + 1} of {COUNTS[part]}: {told(runs[part][-1])}", flush=True)
    return runs


def told(run: dict[str, Any]) -> str:
    """A run in one line."""
    if "word" in run:
        band = f"({run['low']:.3f} to {run['high']:.3f}), {run['rounds']} rounds"
        return f"{run['word']} {run['ratio']:.3f} {band}"
    return "; ".join(
        f"{tool}: planted {one['planted']}, twin {one['twin']}" for tool, one in run.items()
    )


def report(runs: dict[str, list[Any]]) -> None:
    """The checks, from every run; and what each tool said."""
    quiet = sum(run["word"] in ("same", "cannot tell") for run in runs["aa"])
    found = sum(run["word"] == "slower" and run["seconds"] <= 60 for run in runs["planted"])
    checks = [
        check("A/A: no difference named, of 40 runs", quiet, 38),
        check("5 % planted on 16 MiB: found within 60 s, of 10 runs", found, 9),
    ]
    for tool in ("perfplot", "torch", "truecopy"):
        ours = [run[tool] for run in runs["peers"]]
        counts = {
            "finds the planted 5 %": sum(one["planted"] == "slower" for one in ours),
            "calls the twin different": sum(one["twin"] in ("slower", "faster") for one in ours),
            "ranks the view as the fastest copy": sum(one["fastest"] == "view" for one in ours),
            "names the method that wrote into the input": sum(one["names_writer"] for one in ours),
        }
        for what, count in counts.items():
            bad = "twin" in what or "view" in what
            good = len(ours) - count if bad else count
            # Ours must hold; what the peers do is told, and is no target.
            must = 9 if tool == "truecopy" else 0
            told = f"{tool}: {'never ' if bad else ''}{what}, of {len(ours)} runs"
            checks.append(check(told, good, must))
    save("measuring", [], checks)


def main() -> None:
    """Make the runs that are missing, and check the targets once none is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", default=[])
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--afresh", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("PART", "NUMBER"))
    args = parser.parse_args(sys.argv[1:] if Path(sys.argv[0]).stem == "measuring" else [])
    if args.one:
        torch.set_num_threads(1)
        print(json.dumps(PARTS[args.one[0]](int(args.one[1]))))
        return
    if args.afresh:
        RUNS.unlink(missing_ok=True)
    runs = make_missing(args.parts or list(PARTS), args.seconds)
    missing = {
        part: COUNTS[part] - len(made) for part, made in runs.items() if len(made) < COUNTS[part]
    }
    if missing:
        print("not yet: " + ", ".join(f"{count} runs of {part}" for part, count in missing.items()))
        return
    report(runs)


if __name__ == "__main__":
    main()
