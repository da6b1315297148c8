"""`aliases(...).groups` of many tensors, against reading what it needs of each of them once.

The ceiling is a plain loop that reads address, size, strides and dtype of every tensor and does
nothing with them. Interleaved rounds, so that both meet the same machine; medians; a ratio.
"""

from __future__ import annotations

from typing import Any

import torch
from harness import Case, check, measure, ratio, save

import truecopy as tc

COUNT = 100_000
ROUNDS = 7
MOST = 3.0  # times the loop: what the issue asks for


def read_all(tensors: list[torch.Tensor]) -> None:
    """The least that anybody must do who wants to know where tensors lie."""
    for tensor in tensors:
        tensor.data_ptr()
        tensor.shape  # noqa: B018 - the reading is what is measured
        tensor.stride()
        tensor.dtype  # noqa: B018


def material() -> dict[str, list[torch.Tensor]]:
    """Structures that differ in what is shared."""
    flat = torch.zeros(COUNT)
    own = [torch.zeros(16) for _ in range(COUNT)]
    return {
        "each its own": own,
        "one storage, dense pieces": list(flat.split(1)),
        "all in pairs": [t for x in own[: COUNT // 2] for t in (x, x[:8])],
        "columns of one matrix": list(torch.zeros(4, COUNT).unbind(1)),
    }


def compare(name: str, tensors: list[torch.Tensor]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both ways in each round; the ratio is the median of the ratios of the rounds."""
    methods = {
        "reading": lambda: read_all(tensors),
        "aliases": lambda: tc.aliases(tensors).groups,
    }
    result = measure(Case(name, 0, methods, rounds=ROUNDS), "recycled")
    times = ratio(result, "aliases", "reading")
    what = f"aliases of {COUNT:,} tensors, {name}: at most {MOST:g} times reading each once"
    return result, check(f"{what} ({times:.1f} times)", MOST / times, 1)


def main() -> None:
    """Measure every structure and keep all samples."""
    measured = [compare(name, tensors) for name, tensors in material().items()]
    save("aliases", [result for result, _ in measured], [verdict for _, verdict in measured])


if __name__ == "__main__":
    main()
