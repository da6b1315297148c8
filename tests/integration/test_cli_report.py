"""`truecopy report` and `truecopy compare` of traces, as a shell runs them."""

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from traces import example
from truecopy.cli import main
from truecopy.reports.forms import text_of
from truecopy.reports.json import dumps
from truecopy.reports.terminal import render
from truecopy.tracing.record import TraceRecord


def worse() -> TraceRecord:
    record = example()
    return replace(record, peak=replace(record.peak, nbytes=record.peak.nbytes * 2))


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a trace, a worse one, and a record of another kind, under odd names."""
    monkeypatch.chdir(tmp_path)
    Path("run.json").write_text(dumps(example()))
    Path("worse.pt").write_text(dumps(worse()))
    torch.save({"a": torch.zeros(4)}, "model.pt")
    return tmp_path


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


@pytest.mark.parametrize("form", ["terminal", "markdown", "html", "perfetto", "json"])
def test_each_form_is_printed_or_written(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same text goes to the output or, with --out, to a file; the exit code is 0 either way."""
    assert main(["report", "run.json", "--format", form]) == 0
    printed = capsys.readouterr().out
    assert main(["report", "run.json", "--format", form, "--out", "out"]) == 0

    assert capsys.readouterr() == ("", "")
    assert Path("out").read_text() == printed == text_of(example(), form) + "\n"


def test_the_kind_is_read_from_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    """A record under the name of a checkpoint is a record; a checkpoint is none, whatever its name."""
    assert main(["report", "worse.pt"]) == 0
    assert capsys.readouterr().out == render(worse()) + "\n"
    Path("model.pt").rename("model.json")
    assert main(["report", "model.json"]) == 3
    assert capsys.readouterr().err == (
        "truecopy report: `model.json`: is no record. Expected JSON that truecopy wrote. Got a checkpoint "
        "or an archive. Run `truecopy inspect` on a checkpoint.\n"
    )


def test_a_record_of_another_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """Records of every kind are shown again; a page has only a trace."""
    main(["inspect", "model.pt"])
    shown = capsys.readouterr().out
    main(["inspect", "model.pt", "--json"])
    Path("seen").write_text(capsys.readouterr().out)

    assert main(["report", "seen"]) == 0
    assert capsys.readouterr().out == shown
    assert main(["report", "seen", "--format", "html"]) == 2
    assert "a record of kind inspection has no report of form html" in capsys.readouterr().err


def test_nothing_is_overwritten_without_force(capsys: pytest.CaptureFixture[str]) -> None:
    """What stands at --out stays, unless --force; the record itself too."""
    Path("out.html").write_text("mine")

    assert main(["report", "run.json", "--format", "html", "--out", "out.html"]) == 2
    assert capsys.readouterr().err == (
        "truecopy report: 'out.html' exists, and would be replaced: pass --force\n"
    )
    assert Path("out.html").read_text() == "mine"
    assert main(["report", "run.json", "--format", "html", "--out", "out.html", "--force"]) == 0
    assert Path("out.html").read_text().startswith("<!DOCTYPE html>")
    assert names() == ["model.pt", "out.html", "run.json", "worse.pt"]


def test_a_place_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a file cannot be, it is said, and nothing is left behind."""
    assert main(["report", "run.json", "--out", "no/such/place"]) == 3
    assert capsys.readouterr().err.startswith("truecopy report: `")
    assert main(["report", "run.json", "--force"]) == 2
    assert names() == ["model.pt", "run.json", "worse.pt"]


def test_a_page_is_an_ordinary_file() -> None:
    """Others may read it as any file that a program writes."""
    main(["report", "run.json", "--format", "html", "--out", "out.html"])
    plain = Path("plain")
    plain.touch()

    assert stat.S_IMODE(Path("out.html").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_two_traces(capsys: pytest.CaptureFixture[str]) -> None:
    """0 where nothing is worse, 1 where something is; the record is of its own kind and shown again."""
    assert main(["compare", "run.json", "run.json"]) == 0
    assert capsys.readouterr().out.startswith("run.json and run.json: nothing changed in all")
    assert main(["compare", "worse.pt", "run.json"]) == 0
    capsys.readouterr()
    assert main(["compare", "run.json", "worse.pt"]) == 1
    printed = capsys.readouterr().out
    assert "peak 72.0 KiB -> 144.0 KiB" in printed.splitlines()[0]
    assert main(["compare", "run.json", "worse.pt", "--json"]) == 1
    Path("both").write_text(kept := capsys.readouterr().out)
    assert json.loads(kept)["kind"] == "trace comparison"
    assert main(["report", "both"]) == 0
    assert capsys.readouterr().out == printed


def test_two_traces_as_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    """The summary of a CI job gets tables, and the exit code is the same."""
    assert main(["compare", "run.json", "worse.pt", "--format", "markdown"]) == 1
    out = capsys.readouterr().out
    assert out.startswith(
        "### `run.json` and `worse.pt`: **worse**\n\n| in all | before | after | change |\n"
    )


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["run.json", "model.pt"], 2, "a record cannot be compared with a checkpoint."),
        (["run.json", "seen"], 2, ("records of two kinds cannot be compared. Expected two records of "
         "one kind. Got trace and inspection.\n")),
        (["run.json", "run.json", "--rtol", "1"], 2,
         ("records are compared without tolerances. Expected no rtol, no atol. Got two records of kind "
          "trace. Compare the checkpoints themselves.\n")),
        (["run.json", "run.json", "--json", "--format", "markdown"], 2,
         "--json and --format exclude each other\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared(
    argv: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each mistake is one sentence, and the code of a mistake."""
    main(["inspect", "model.pt", "--json"])
    Path("seen").write_text(capsys.readouterr().out)

    assert main(["compare", *argv]) == code
    assert f"truecopy compare: {said}" in capsys.readouterr().err


def test_a_page_is_not_for_a_terminal() -> None:
    """Where the output is a terminal, HTML needs a place to go."""
    import pty

    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "truecopy", "report", "run.json", "--format", "html"],
        stdout=theirs, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2
    assert done.stderr == (
        "truecopy report: html is not for a terminal: pass --out FILE, or send the output to one\n"
    )
