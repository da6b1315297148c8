"""The first thing that a stranger runs."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_demo() -> str:
    finished = subprocess.run(
        [sys.executable, "-W", "error", "examples/demo.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert finished.stderr == ""
    return finished.stdout


def test_readme_shows_what_the_demo_prints() -> None:
    """Every line of output in the README is one that `make demo` prints, in the same order."""
    printed = iter(run_demo().splitlines())
    block = (ROOT / "README.md").read_text().split("```text\n")[1].split("```")[0]
    shown = [line for line in block.splitlines() if line.strip() not in ("", "...")]

    assert len(shown) > 5
    for line in shown:
        assert line in printed, f"the demo does not print {line!r} there"


def test_every_bug_of_the_demo_is_found_and_mended() -> None:
    """Each of the five parts shows the bug, the line that finds it, and the line that mends it."""
    output = run_demo()

    for part in ("the bug", "found by", "mended by"):
        assert output.count(part) == 5
    assert output.count("unchanged: False") == output.count("unchanged: True") == 1
