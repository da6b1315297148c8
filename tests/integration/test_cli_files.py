"""`truecopy inspect`, `compact` and `compare` as a shell runs them."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from truecopy.cli import main
from truecopy.files.reading import read

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def truecopy(tmp_path: Path) -> Run:
    """The command, run in a directory of its own."""

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "truecopy", *argv],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def wasteful(tmp_path: Path) -> Path:
    """A checkpoint with a tie and a view that drags 4 MiB."""
    weight = torch.arange(1024.0)
    path = tmp_path / "model.pt"
    state = {"embed": weight, "head": weight, "sample": torch.zeros(1 << 20)[:3], "step": 3}
    torch.save(state, path)
    return path


def test_inspect(truecopy: Run, wasteful: Path) -> None:
    """Unreached bytes are findings; the tie beside them is information."""
    done = truecopy("inspect", wasteful.name)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(
        "model.pt (torch, 4.0 MiB): 2 tensors in 4.0 MiB, 4.0 MiB (more than 99.9 %) reached by "
        "nobody, 1 alias group.\n"
    )
    assert "  4.0 MiB of 4.0 MiB  kept by  checkpoint['sample']\n" in done.stdout
    assert "  4.0 KiB  checkpoint['embed'] = checkpoint['head']\n" in done.stdout


def test_inspect_as_json(truecopy: Run, wasteful: Path) -> None:
    """The record holds what the report shows."""
    done = truecopy("inspect", wasteful.name, "--json")
    assert done.returncode == 1
    record = json.loads(done.stdout)
    assert (record["kind"], record["clean"]) == ("inspection", False)
    assert record["unreached_bytes"] == (4 << 20) - 12


def test_compact(truecopy: Run, wasteful: Path, tmp_path: Path) -> None:
    """The small file holds the same, with its tie; it is clean, and equal to the large one."""
    done = truecopy("compact", wasteful.name, "small.pt")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 tensors and 1 alias group kept, verified bit for bit." in done.stdout
    small = tmp_path / "small.pt"
    assert small.stat().st_size < 10_000
    state = torch.load(small, weights_only=True)
    assert state["embed"] is state["head"]
    assert state["step"] == 3
    assert truecopy("inspect", "small.pt").returncode == 0
    equal = truecopy("compare", "model.pt", "small.pt")
    assert (equal.returncode, equal.stdout) == (
        0,
        "model.pt and small.pt: equal bit for bit, 4 compared.\n",
    )


def test_compact_replaces_only_when_told(truecopy: Run, wasteful: Path, tmp_path: Path) -> None:
    """OUT is not replaced unasked; with --force it may even be IN."""
    refused = truecopy("compact", wasteful.name, wasteful.name)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "truecopy compact: 'model.pt' exists, and would be replaced: pass --force\n"
    )
    assert wasteful.stat().st_size > 4 << 20
    done = truecopy("compact", wasteful.name, wasteful.name, "--force")
    assert done.returncode == 0
    assert wasteful.stat().st_size < 10_000
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_compact_keeps_the_format(truecopy: Run, wasteful: Path, tmp_path: Path) -> None:
    """A name that promises another format is refused, and nothing is written."""
    done = truecopy("compact", wasteful.name, "small.safetensors")
    assert done.returncode == 2
    assert done.stderr == (
        "truecopy compact: compact keeps the format, and 'small.safetensors' is not named for it. "
        "Expected .pt or .pth or .bin or .ckpt. Got .safetensors.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_compact_of_shards(truecopy: Run, tmp_path: Path) -> None:
    """A directory is compacted shard by shard, and the command says so."""
    (tmp_path / "shards").mkdir()
    save_file({"a": torch.ones(1)}, tmp_path / "shards" / "a.safetensors")
    done = truecopy("compact", "shards", "out.safetensors")
    assert done.returncode == 2
    assert done.stderr == (
        "truecopy compact: 'shards' is a directory of shards, and compact writes one file. "
        "Compact each shard by itself: nothing is shared between files.\n"
    )


def test_compact_of_a_tied_safetensors(truecopy: Run, tmp_path: Path) -> None:
    """Ties in the metadata come through, under the name that was kept."""
    save_file({"head": torch.ones(4)}, tmp_path / "in.safetensors", {"embed": "head"})
    assert truecopy("compact", "in.safetensors", "out.safetensors").returncode == 0
    assert read(tmp_path / "out.safetensors").metadata == {"embed": "head"}


def test_compare(truecopy: Run, wasteful: Path, tmp_path: Path) -> None:
    """What differs, by how much, and which ties; within a tolerance nothing may be left."""
    state = torch.load(wasteful, weights_only=True)
    other = {**state, "head": state["head"] + 0.5, "new": 1}
    torch.save(other, tmp_path / "other.pt")
    done = truecopy("compare", "model.pt", "other.pt")
    assert done.returncode == 1
    assert done.stdout == (
        "model.pt and other.pt: 1 difference in 4 compared, by 0.5 at most; 1 only in other.pt; "
        "1 alias group differs.\n"
        "\n"
        "Only in other.pt:\n"
        "  checkpoint['new']\n"
        "\n"
        "Differences, worst first:\n"
        "  values  1,024 of 1,024, by 0.5 (relative 1)  checkpoint['head']\n"
        "\n"
        "Share memory only in model.pt:\n"
        "  checkpoint['embed'] = checkpoint['head']  at bytes 0, 0\n"
    )
    within = truecopy("compare", "model.pt", "other.pt", "--atol", "1", "--json")
    assert within.returncode == 1
    assert json.loads(within.stdout)["differences"] == []


def test_compare_two_records(truecopy: Run, wasteful: Path, tmp_path: Path) -> None:
    """Two inspections are compared by names, shapes and ties; the kind is read from the files."""
    (tmp_path / "a.json").write_text(truecopy("inspect", "model.pt", "--json").stdout)
    state = torch.load(wasteful, weights_only=True)
    torch.save({**state, "sample": torch.zeros(5)}, tmp_path / "other.pt")
    (tmp_path / "b").write_text(truecopy("inspect", "other.pt", "--json").stdout)
    same = truecopy("compare", "a.json", "a.json")
    assert same.returncode == 0
    done = truecopy("compare", "a.json", "b")
    assert done.returncode == 1
    assert "  shape  [3] -> [5]  checkpoint['sample']\n" in done.stdout
    assert "Not looked at:\n  values: records of an inspection do not hold them\n" in done.stdout


@pytest.mark.parametrize(
    ("content", "code", "sentence"),
    [
        ('{"kind": "plan", "version": 1}', 3, ("is no record that can be compared. Expected "
         "kind bench or inspection or trace. Got 'plan'. Print records with --json, and compare "
         "two of one kind.")),
        ('{"kind": "trace", "version": 1}', 3, ("is a record of a trace that is damaged. Got "
         "KeyError: 'sites'. Make the record again.")),
        ('{"kind": "inspection", "version": 99}', 3, ("is a record of a version that this truecopy "
         "does not know. Expected version 1. Got 99. Make the record again with this version.")),
        ('{"kind": "inspection", "version": 1}', 3, ("is no whole record of an inspection: its "
         "entries are not as truecopy writes them. Make the record again with `truecopy inspect "
         "--json`.")),
        ('{"kind": ["inspection"], "version": 1}', 3, ("is no record that can be compared. Expected "
         "kind bench or inspection or trace. Got ['inspection']. Print records with --json, and compare "
         "two of one kind.")),
        ("{", 3, ("has JSON that cannot be read. Got JSONDecodeError: Expecting property name "
         "enclosed in double quotes: line 1 column 2 (char 1). Copy or download the file again; if "
         "it stays so, do not trust it.")),
    ],
)  # fmt: skip
def test_records_that_are_not_known(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: str,
    code: int,
    sentence: str,
) -> None:
    """A reader of records refuses what it does not know."""
    monkeypatch.chdir(tmp_path)
    Path("a.json").write_text(content)
    assert main(["compare", "a.json", "a.json"]) == code
    assert capsys.readouterr() == ("", f"truecopy compare: `a.json`: {sentence}\n")


def test_a_record_and_a_checkpoint(truecopy: Run, wasteful: Path, tmp_path: Path) -> None:
    """Two things of different kinds are not compared."""
    (tmp_path / "a.json").write_text("{}")
    done = truecopy("compare", "a.json", wasteful.name)
    assert done.returncode == 2
    assert done.stderr == (
        "truecopy compare: a record cannot be compared with a checkpoint. Expected two checkpoints, "
        "or two records of one kind. Run `truecopy inspect --json` on 'model.pt' first.\n"
    )


def test_hostile_files_are_sentences(truecopy: Run, tmp_path: Path) -> None:
    """Each command answers a damaged file with one line, code 3, and no file of its own."""
    (tmp_path / "bad\x1b[2J.pt").write_bytes(b"PK\x03\x04" + bytes(50))
    for argv in (
        ["inspect", "bad\x1b[2J.pt"],
        ["compact", "bad\x1b[2J.pt", "out.pt"],
        ["compare", "bad\x1b[2J.pt", "bad\x1b[2J.pt"],
    ):
        done = truecopy(*argv)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith(
            rf"truecopy {argv[0]}: `bad\x1b[2J.pt`: is no whole zip archive."
        )
    assert [path.name for path in tmp_path.iterdir()] == ["bad\x1b[2J.pt"]


def test_a_place_that_cannot_be_written(truecopy: Run, wasteful: Path, tmp_path: Path) -> None:
    """A missing directory for OUT is a sentence."""
    done = truecopy("compact", wasteful.name, "no/out.pt")
    assert done.returncode == 3
    assert done.stderr == (
        f"truecopy compact: `{tmp_path}/no/out.pt`: cannot be written: No such file or directory.\n"
    )


def test_a_full_disk(tmp_path: Path) -> None:
    """A write that fails half way leaves nothing: here a limit on the size of files stands for a disk."""
    torch.save({"a": torch.zeros(1 << 18)}, tmp_path / "in.pt")
    script = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))\n"
        "from truecopy.cli import main\n"
        "sys.exit(main(['compact', 'in.pt', 'out.pt']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.startswith(f"truecopy compact: `{tmp_path}/out.pt`: cannot be written")
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.pt"]


@pytest.mark.parametrize("force", [False, True])
def test_killed(tmp_path: Path, force: bool) -> None:
    """A kill -9 at any moment leaves no OUT, or the one that was there, or a whole new one."""
    torch.save({"a": torch.arange(1 << 22), "b": torch.zeros(1 << 22)[:5]}, tmp_path / "in.pt")
    old = {"old": torch.ones(3)}

    def kill_after(seconds: float) -> tuple[bool, set[str]]:
        folder = tmp_path / f"{seconds:.3f}"
        folder.mkdir()
        if force:
            torch.save(old, folder / "out.pt")
        before = {path.name for path in folder.iterdir()}
        argv = ["compact", "../in.pt", "out.pt", *(["--force"] if force else [])]
        process = subprocess.Popen(
            [sys.executable, "-m", "truecopy", *argv],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        finished = process.wait() == 0
        after = {path.name for path in folder.iterdir()}
        if "out.pt" in after:
            names = set(read(folder / "out.pt", check=True).obj)
            assert names == {"a", "b"} or (force and not finished and names == {"old"})
        assert after <= before | {"out.pt"}, "a draft was left behind"
        return finished, after

    moments = [1.0 + 0.4 * i for i in range(6)]
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(kill_after, moments))
    assert any(not finished for finished, _ in outcomes)


def test_a_terminal_gets_its_width_and_colors(wasteful: Path) -> None:
    """On a tty the first line is bold; NO_COLOR takes that away; a pipe never gets it."""
    for environment, bold in (({}, True), ({"NO_COLOR": "1"}, False)):
        reader, writer = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "truecopy", "inspect", str(wasteful)],
            stdout=writer,
            env={**os.environ, "COLUMNS": "80", **environment},
        )
        os.close(writer)
        text = b""
        while True:
            try:
                chunk = os.read(reader, 4096)
            except OSError:  # Linux says so when the other end is closed
                break
            if not chunk:
                break
            text += chunk
        os.close(reader)
        assert process.wait() == 1
        assert (b"\x1b[1m\x1b[31m" in text) is bold
        assert max(map(len, text.splitlines()[2:])) <= 80


def test_a_closed_pipe(wasteful: Path) -> None:
    """`truecopy inspect ... | head -1` ends quietly."""
    done = subprocess.run(
        f"{sys.executable} -m truecopy inspect {wasteful} --json | head -1",
        shell=True, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("{\n", "")
