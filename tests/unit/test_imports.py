"""What is imported, and when: looked up in sys.modules of a fresh process, never on the clock."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "numpy", "rich", "safetensors"}

PRINT_MODULES = "import sys; print(*sys.modules, file=sys.stderr)"


def modules_after(code: str) -> set[str]:
    """Names in sys.modules after running the code in a process of its own."""
    script = f"import atexit\n@atexit.register\ndef _():\n    {PRINT_MODULES}\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def modules_after_command(*argv: str, expect: int) -> set[str]:
    """The same for the command, which must end with the exit code expected."""
    return modules_after(
        f"from truecopy.cli import main\ncode = main({argv!r})\nassert code == {expect}, code"
    )


def test_import_brings_nothing_heavy() -> None:
    """`import truecopy` imports nothing beyond what `import torch` does, nor torch itself."""
    ours = {name for name in modules_after("import truecopy") if not name.startswith("truecopy")}
    assert not ours & HEAVY
    assert ours <= modules_after("import torch")


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        ([], 2),
        (["--no-such-option"], 2),
        (["inspct", "model.pt"], 2),
        (["inspect", "--help"], 0),
        (["inspect", "--no-such-option", "model.pt"], 2),
        (["inspect", "no-such-file.pt"], 3),
        (["compact", "no-such-file.pt", "out.pt"], 3),
        (["compare", "no-such-file.pt", "nor-this.pt"], 3),
        (["report", "no-such-file.json"], 3),
        (["report", "--help"], 0),
        (["report", "x.json", "--format", "pdf"], 2),
        (["answers", "--help"], 0),
        (["answers", "duplicat"], 2),
    ],
)
def test_help_and_mistakes_are_answered_without_torch(argv: list[str], code: int) -> None:
    """`--help`, wrong options and missing files never wait for torch, numpy or rich."""
    assert not modules_after_command(*argv, expect=code) & HEAVY


@pytest.mark.parametrize("verb", ["copy", "relate"])
def test_these_tests_can_fail(verb: str) -> None:
    """Once a verb is used torch is imported, and the tests above would see it."""
    assert "torch" in modules_after(f"import truecopy; truecopy.{verb}")


def test_module_runs_as_the_command() -> None:
    """`python -m truecopy` is the command."""
    done = subprocess.run(
        [sys.executable, "-m", "truecopy", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("truecopy ")


def test_import_is_silent_when_warnings_are_errors(tmp_path: Path) -> None:
    """`import truecopy` warns of nothing, in Python's development mode either."""
    subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", "import truecopy"],
        check=True,
        cwd=tmp_path,
    )
