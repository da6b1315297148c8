"""`truecopy bench` as a command: what it prints, writes and refuses. No figure is looked at."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from truecopy.cli import main
from truecopy.measuring import api
from truecopy.measuring.journal import read_journal

FEW = ["--method", "clone", "--method", "contiguous", "--sizes", "64", "--threads", "1"]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells end when they have the least number of rounds, however busy the machine is."""
    monkeypatch.setattr(api, "CELL_SECONDS", 0.0)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["bench", *argv])
    return code, *capsys.readouterr()


def test_table_record_page_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run prints the table and advice, and writes each file that was asked for."""
    pytest.importorskip("matplotlib")
    files = {name: tmp_path / name for name in ("a.json", "a.html", "a.svg", "t.png")}
    code, out, err = run(
        capsys, *FEW, "--advise", "--save", str(files["a.json"]), "--html", str(files["a.html"]),
        "--plot", str(files["a.svg"]), "--time-plot", str(files["t.png"]),
    )  # fmt: skip
    assert code == 0
    assert err == ""  # no terminal, no bar
    assert "returns the same tensor: contiguous" in out
    assert out.splitlines()[-1].startswith("On this machine (")
    assert all(file.stat().st_size for file in files.values())
    assert json.loads(files["a.json"].read_text())["kind"] == "bench"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints the record alone."""
    code, out, _ = run(capsys, *FEW, "--json")
    assert code == 0
    assert json.loads(out)["results"][0]["rows"][0]["method"] == "clone"


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """`--list` names every method and measures nothing."""
    code, out, _ = run(capsys, "--list")
    assert code == 0
    assert "  tc.copy(into=) " in out
    assert out.startswith("torch:\n")


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["--budget", "0s"], 2, "is no time: write 30s"),
        (["--budget", "soon"], 2, "is no time: write 30s"),
        (["--threads", "x"], 2, "--threads takes whole numbers"),
        (["--plot", "a.gif"], 2, "a plot is a .png or a .svg"),
        (["--html", "nowhere/a.html"], 2, "no such directory"),
        (["--method", "clnoe"], 2, "Did you mean 'clone'"),
        (["--sizes", "0"], 2, "is no size"),
        (["--sizes", "2^45"], 3, "nothing was allocated"),
    ],
)
def test_mistakes(
    argv: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mistakes are one sentence, before anything is measured."""
    got, out, err = run(capsys, *argv)
    assert (got, out) == (code, "")
    assert text in err


def test_files_are_not_replaced_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page or a plot that exists is refused before measuring."""
    page = tmp_path / "a.html"
    page.write_text("mine")
    code, _, err = run(capsys, *FEW, "--html", str(page))
    assert code == 2
    assert "--force" in err
    assert page.read_text() == "mine"


def test_compare_ends_with_1_on_a_regression(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A method that takes three times as long is a regression, and the exit code says so."""
    argv = [*FEW, "--save", str(tmp_path / "a.json")]
    argv[argv.index("contiguous")] = "tc.copy"
    assert run(capsys, *argv)[0] == 0
    data = json.loads((tmp_path / "a.json").read_text())
    place = next(e["opened"]["entries"].index("tc.copy") for e in data["log"] if "opened" in e)
    for entry in data["log"]:
        if "round" in entry:
            entry["round"]["seconds"][place] *= 3
    (tmp_path / "b.json").write_text(json.dumps(data))
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 1
    assert "Regressions, worst first:" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 0


KILLED = """
import os, signal, sys, truecopy as tc

def kill(now):
    if now.rounds == 3:
        os.kill(os.getpid(), signal.SIGKILL)

tc.bench("clone", sizes=64, threads=1, budget=3, save=sys.argv[1], progress=kill)
"""


def test_a_process_that_is_killed_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After kill -9 the file is read, and the command that asks for the same goes on from its rounds."""
    path = tmp_path / "a.json"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    left = read_journal(path)
    assert len(left.cells[0].rounds) == 3
    assert left.cells[0].ended == "cut short"

    argv = ["--method", "clone", "--sizes", "64", "--threads", "1", "--budget", "3s"]
    code, _, err = run(capsys, *argv, "--save", str(path))
    found = read_journal(path)
    assert (code, err) == (0, "")
    assert found.cells[0].rounds[:3] == left.cells[0].rounds
    assert len(found.cells[0].rounds) > 3
    assert found.cells[0].ended != "cut short"
