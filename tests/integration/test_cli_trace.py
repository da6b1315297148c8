"""`truecopy trace`: programs run as themselves, and end with their own codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from truecopy.cli import main
from truecopy.tracing.record import TraceRecord

PROGRAM = """
import sys, torch
print(__name__, sys.argv[1:], sys.path[0] == {folder!r}, sys.modules["__main__"].__file__)
x = torch.ones(64, 96)
for _ in range(3):
    y = x.t().reshape(6144)
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(folder=str(tmp_path)))
    return path


def test_a_program_runs_as_itself(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its arguments, its name, its path, its exit code; what was found is in the record."""
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    assert main(["trace", "--quiet", "--out", "run.json", str(script), "3", "--json"]) == 3
    assert capsys.readouterr().out == f"__main__ ['3', '--json'] True {script}\n"
    record = TraceRecord.from_json(json.loads(Path("run.json").read_text()))
    assert record.name == "program.py"
    assert record.copies[0].count == 3
    assert record.copies[0].site.text == "y = x.t().reshape(6144)"
    assert len(record.iterations) == 3
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


def test_modules_run_too(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `python -m` runs them."""
    assert main(["trace", "--quiet", "-m", "program", "0"]) == 0
    assert capsys.readouterr().out.startswith("__main__ ['0'] True")
    assert script.exists()
    assert main(["trace", "-m", "no_such_module"]) == 3
    assert "no such module" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ("hidden-copies=3", 0),
        ("hidden-copies=0", 1),
        ("peak=1.2GiB,hidden-bytes=1MiB", 0),
        ("peak=10KiB", 1),
        ("no-such=3", 2),
        ("peak=much", 2),
    ],
)
def test_limits(script: Path, limits: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """1 where a limit is passed, told on stderr; 2 for what is no limit."""
    assert main(["trace", "--quiet", "--fail-on", limits, str(script)]) == code
    assert bool(capsys.readouterr().err) is (code > 0)


def test_exceptions_end_as_python_ends_them(tmp_path: Path) -> None:
    """The traceback of the program alone, and code 1."""
    path = tmp_path / "bad.py"
    path.write_text("def f():\n    raise ValueError('on purpose')\nf()\n")
    plain, traced = (
        subprocess.run(
            [sys.executable, *words, str(path)], capture_output=True, text=True, check=False
        )
        for words in ([], ["-m", "truecopy", "trace", "--quiet"])
    )
    assert (traced.returncode, traced.stderr) == (plain.returncode, plain.stderr)


def test_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    """No program, or one that is not there."""
    assert main(["trace"]) == 2
    assert main(["trace", "no-such-file.py"]) == 3
    capsys.readouterr()
