"""The second article's plot, by its own protocol and by ours; and every race of the five answers."""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import perfplot
import torch
from harness import RESULTS, machine

from truecopy.answers.claims import is_race
from truecopy.answers.methods import METHODS
from truecopy.answers.running import run_proof
from truecopy.answers.topics import TOPICS, load
from truecopy.measuring.clock import HostClock
from truecopy.measuring.faster import verdict_on
from truecopy.measuring.rounds import Blocks, Entry, calibrate, objects_set_aside, run_round

SIZES = [2**k for k in range(15)]
"""The article's."""
REFERENCE = "clone().detach()"
ROUNDS = 60
RACE_SECONDS = 3.0


def by_perfplot() -> dict[str, list[float]]:
    """Seconds of each method at each size, by the article's own call, but for the window that it opens."""
    data = perfplot.bench(
        setup=torch.randn,
        kernels=list(METHODS.values()),
        labels=list(METHODS),
        n_range=SIZES,
        xlabel="len(a)",
        title="Timing comparison for copying a pytorch tensor",
    )
    return {
        label: [float(seconds) for seconds in row]
        for label, row in zip(data.labels, data.timings_s, strict=True)
    }


def what_perfplot_checks() -> str:
    """What perfplot says of inputs that require gradient, the case for which the article recommends."""
    try:
        perfplot.bench(
            setup=lambda n: torch.randn(n, requires_grad=True),
            kernels=list(METHODS.values()),
            labels=list(METHODS),
            n_range=[4],
            target_time_per_measurement=0.001,
            show_progress=False,
        )
    except Exception as error:  # noqa: BLE001 - the message is the finding
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


def by_us(requires_grad: bool) -> dict[str, list[dict[str, Any]]]:
    """Each method against the reference at each size: the ratio, its interval, the median time."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in METHODS}
    for size in SIZES:
        source = torch.randn(size, requires_grad=requires_grad)
        for name, row in at_one_size(source).items():
            found[name].append(row)
    return found


def at_one_size(source: torch.Tensor) -> dict[str, dict[str, Any]]:
    """All methods and the reference's twin, once in each round, in an order shuffled anew."""

    def entry(name: str, method: Callable[[torch.Tensor], Any]) -> Entry:
        return Entry(name, lambda: method(source))

    names = [REFERENCE, "its twin", *(name for name in METHODS if name != REFERENCE)]
    entries = [entry(name, METHODS.get(name, METHODS[REFERENCE])) for name in names]
    how = Blocks(HostClock(), "recycled", source.nbytes)
    order = random.Random(source.numel())
    with objects_set_aside():
        calls = calibrate(entries, how)
        rounds = [run_round(entries, calls, how, order) for _ in range(ROUNDS)]
    rows = {}
    for place, name in enumerate(names):
        if name == "its twin":
            continue
        # The reference against itself is its twin against it: the noise floor.
        found = verdict_on(rounds, max(place, 1))
        rows[name] = {
            **{key: getattr(found, key) for key in ("word", "ratio", "low", "high", "floor")},
            "median": statistics.median(one.seconds[place] for one in rounds),
        }
    return rows


def races() -> dict[str, dict[str, dict[str, Any]]]:
    """Topic -> proof -> what its race came to."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for topic in TOPICS:
        found[topic] = {}
        for proof in load(topic).proofs:
            if not is_race(proof):
                continue
            ran = run_proof(proof, RACE_SECONDS)
            assert ran.figure is not None, ran
            found[topic][ran.proof] = asdict(ran.figure)
            print(f"{ran.outcome:>14}  {topic}: {ran.figure}", flush=True)
    return found


PARTS: dict[str, Callable[[], Any]] = {
    "perfplot": by_perfplot,
    "perfplot_with_gradient": what_perfplot_checks,
    "ours": lambda: by_us(requires_grad=False),
    "ours_with_gradient": lambda: by_us(requires_grad=True),
    "races": races,
}


def main() -> None:
    """Measure and keep every part, or those that are named: the others stay as they were."""
    file = RESULTS / "answers.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    kept |= {"machine": machine(), "checks": [], "results": [], "sizes": SIZES, "rounds": ROUNDS}
    named = [part for part in sys.argv[1:] if part in PARTS]
    for part in named or PARTS:
        kept[part] = PARTS[part]()
        file.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
