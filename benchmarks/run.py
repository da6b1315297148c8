"""Run all benchmarks, or those that are named."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
BENCHMARKS = (
    "copying", "aliases", "snapshots", "tracing", "watching", "capturing", "measuring", "answers", "pages",
)  # fmt: skip

if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    for name in sys.argv[1:] or BENCHMARKS:
        runpy.run_path(str(HERE / f"{name}.py"), run_name="__main__")
