"""`truecopy bench` as a command: what it prints, writes and refuses. No figure is looked at."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from truecopy.cli import main

FEW = ["--method", "clone", "--method", "contiguous", "--sizes", "64", "--threads", "1"]


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


def test_a_process_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """After kill -9 the file is read, and the same command goes on from its rounds."""
    path = tmp_path / "a.json"
    command = [
        sys.executable, "-m", "truecopy", "bench", "--method", "clone", "--sizes", "2^20", "--threads", "1",
        "--budget", "20s", "--save", str(path),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
        ends = time.monotonic() + 200
        while time.monotonic() < ends and (
            not path.exists() or path.read_text().count('"round"') < 3
        ):
            time.sleep(0.01)
        os.kill(running.pid, signal.SIGKILL)
    from truecopy.measuring.journal import read_journal

    left = read_journal(path)
    assert len(left.cells[0].rounds) >= 3
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found = read_journal(path)
    assert found.cells[0].rounds[: len(left.cells[0].rounds)] == left.cells[0].rounds
    assert found.cells[0].ended != "cut short"
