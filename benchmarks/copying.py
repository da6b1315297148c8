"""What copying costs, beside what people use instead and beside the ceiling: `make bench`."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from typing import Any

import torch
from harness import GIB, Case, check, measure, ratio, save
from models import gpt2_like
from tensordict import TensorDict
from torch.utils import _pytree

import truecopy as tc

MIB = 1 << 20
CEILING = "ceiling (copy_ between touched buffers)"
CLONES = "dict of clones"


def tensors(count: int, nbytes: int) -> dict[str, torch.Tensor]:
    """A state of equal float tensors, all touched."""
    return {f"t{i}": torch.full((nbytes // 4,), float(i)) for i in range(count)}


def save_and_load(state: Any) -> Any:
    """The way through a file in memory."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def state_case(name: str, count: int, nbytes: int, rounds: int, calls: int = 1) -> Case:
    """A dict of tensors, by every method."""
    state = tensors(count, nbytes)
    touched = {key: torch.ones_like(value) for key, value in state.items()}
    packed = TensorDict(state, batch_size=[])

    def ceiling() -> None:
        for key, value in state.items():
            touched[key].copy_(value)

    methods = {
        CEILING: ceiling,
        "tc.copy": lambda: tc.copy(state),
        "copy.deepcopy": lambda: copy.deepcopy(state),
        CLONES: lambda: {key: value.clone() for key, value in state.items()},
        "tree_map(clone)": lambda: _pytree.tree_map(torch.clone, state),
        "TensorDict.clone": packed.clone,
    }
    if count * nbytes <= 64 * MIB:
        methods["torch.save + load"] = lambda: save_and_load(state)
    return Case(name, count * nbytes, methods, rounds, calls)


def peers(result: dict[str, Any]) -> list[str]:
    """Everything but us and the ceiling."""
    return [name for name in result["median"] if name not in ("tc.copy", CEILING)]


def fastest_peer(result: dict[str, Any]) -> str:
    """The peer with the least median."""
    return min(peers(result), key=lambda name: result["median"][name])


def large(checks: list[Any], results: list[Any]) -> None:
    """One of 512 MiB, and 64 of 8 MiB."""
    for name, count, nbytes, must, stretch, of_ceiling in (
        ("1 x 512 MiB", 1, 512 * MIB, 2.5, 3.0, (0.75, 0.9)),
        ("64 x 8 MiB", 64, 8 * MIB, 1.5, 2.0, (0.0, 0.5)),
    ):
        case = state_case(name, count, nbytes, rounds=9)
        held = {key: case.methods[key] for key in (CEILING, "tc.copy", "copy.deepcopy", CLONES)}
        fresh = measure(replace(case, methods=held), "fresh")  # few, for all their outputs are held
        recycled = measure(case, "recycled")
        results += [fresh, recycled]
        checks += [
            check(f"{name}, fresh: times {peer}", ratio(fresh, peer, "tc.copy"), must, stretch)
            for peer in ("copy.deepcopy", CLONES)
        ]
        checks.append(
            check(f"{name}, fresh: of the ceiling", ratio(fresh, CEILING, "tc.copy"), *of_ceiling)
        )
        best = fastest_peer(recycled)
        checks.append(
            check(f"{name}, recycled: times {best}", ratio(recycled, best, "tc.copy"), 1 / 1.1)
        )


def small(checks: list[Any], results: list[Any]) -> None:
    """5,000 of 1 KiB, and one small tensor."""
    case = state_case("5,000 x 1 KiB", 5000, 1024, rounds=21)
    for regime, rounds in (("fresh", 7), ("recycled", 21)):
        result = measure(replace(case, rounds=rounds), regime)
        results.append(result)
        got = ratio(result, "copy.deepcopy", "tc.copy")
        checks.append(check(f"5,000 x 1 KiB, {regime}: times copy.deepcopy", got, 6, 8))
        checks.append(
            check(f"5,000 x 1 KiB, {regime}: times {CLONES}", ratio(result, CLONES, "tc.copy"), 1)
        )
        best = fastest_peer(result)
        checks.append(
            check(f"5,000 x 1 KiB, {regime}: times {best}", ratio(result, best, "tc.copy"), 0, 1)
        )
    one = torch.randn(16)
    methods = {
        "tc.copy": lambda: tc.copy(one),
        "detach().clone()": lambda: one.detach().clone(),
        "copy.deepcopy": lambda: copy.deepcopy(one),
    }
    result = measure(Case("one tensor of 64 bytes", 64, methods, rounds=21, calls=2000), "recycled")
    results.append(result)
    micros = result["median"]["tc.copy"] * 1e6
    checks.append(check(f"one small tensor: 12 us over {micros:.1f} us", 12 / micros, 1))


def model_and_optimizer(checks: list[Any], results: list[Any]) -> None:
    """A GPT-2-like model with tied weights together with its AdamW."""
    model, optimizer = gpt2_like()
    pair = {"model": model, "optimizer": optimizer}
    nbytes = tc.plan(pair).nbytes
    methods = {"tc.copy": lambda: tc.copy(pair), "copy.deepcopy": lambda: copy.deepcopy(pair)}
    result = measure(Case("GPT-2-like and AdamW", nbytes, methods, rounds=15), "fresh")
    results.append(result)
    got = ratio(result, "copy.deepcopy", "tc.copy")
    checks.append(
        check(f"GPT-2-like and AdamW ({nbytes / MIB:.0f} MiB), fresh: times deepcopy", got, 1.5, 2)
    )
    for name, method in methods.items():
        copied = method()["model"]
        tied = tc.relate(copied.head.weight, copied.embed.weight).shares_memory
        print(f"          {name} keeps the tie of storages: {tied}")


def into(checks: list[Any], results: list[Any]) -> None:
    """Copying 1 GiB into a structure that exists."""
    state = tensors(128, 8 * MIB)
    target = {key: torch.ones_like(value) for key, value in state.items()}
    touched = {key: torch.ones_like(value) for key, value in state.items()}

    def ceiling() -> None:
        for key, value in state.items():
            touched[key].copy_(value)

    methods = {CEILING: ceiling, "tc.copy(into=)": lambda: tc.copy(state, into=target)}
    result = measure(Case("1 GiB into", GIB, methods, rounds=11), "recycled")
    results.append(result)
    checks.append(
        check("1 GiB into=: of the ceiling", ratio(result, CEILING, "tc.copy(into=)"), 0.85, 0.95)
    )


def main() -> None:
    """Run everything and keep the figures."""
    checks: list[Any] = []
    results: list[Any] = []
    for part in (small, model_and_optimizer, into, large):
        part(checks, results)
    save("copying", results, checks)


if __name__ == "__main__":
    main()
