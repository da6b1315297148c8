"""`torchrun ... -m truecopy trace`: one record with a row for each rank."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import truecopy as tc
from truecopy.cli import main
from truecopy.reports.saved import load
from truecopy.tracing.ranks import Rank, TracesRecord

PROGRAM = Path(__file__).with_name("traced.py")


def traced(rows: int) -> tc.Trace:
    with tc.trace() as run:
        torch.zeros(rows, 8).t().reshape(-1)
    return run


def test_two_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two real processes leave one record, and one of them prints it; each rank can be shown alone."""
    out = tmp_path / "run.json"
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
            "-m", "truecopy", "trace", "--out", str(out), str(PROGRAM),
        ],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert done.stdout.count("traced.py on 2 ranks: peak 144.0 KiB on rank 1, least 72.0 KiB") == 1
    rows = json.loads(out.read_text())["rows"]
    assert [row["hidden_bytes"] for row in rows] == [3 * 24576, 6 * 24576]
    assert [row["ended"] for row in rows] == ["completed", "completed"]
    assert main(["report", str(out), "--rank", "1"]) == 0
    assert "144.0 KiB copied in 3 hidden copies" in capsys.readouterr().out
    assert main(["report", str(out), "--rank", "2"]) == 2
    assert main(["report", str(out), "--rank", "0", "--format", "html"]) == 0


def test_the_last_one_joins(tmp_path: Path) -> None:
    """No rank waits: the common record is there when the last has ended, and the parts are gone."""
    out = tmp_path / "run.json"
    first, second = Rank(0, 2, "a"), Rank(1, 2, "a")
    second.begin(out)
    assert second.join(traced(64).record, out) is None
    assert not out.exists()
    joined = first.join(traced(32).record, out)
    assert joined is not None
    assert [record.totals.hidden_bytes for record in joined.records] == [32 * 32, 64 * 32]
    assert list(tmp_path.iterdir()) == [out]
    assert load(out) == joined
    assert not joined.is_clean


def test_another_run_is_not_joined(tmp_path: Path) -> None:
    """What a run that was cut off left behind is no part of the next."""
    out = tmp_path / "run.json"
    assert Rank(1, 2, "old").join(traced(8).record, out) is None
    assert Rank(0, 2, "new").join(traced(8).record, out) is None
    again = Rank(1, 2, "old")
    again.begin(out)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json.new.rank0"]


@pytest.mark.parametrize(
    "environment",
    [{}, {"RANK": "0"}, {"RANK": "0", "WORLD_SIZE": "1"}, {"RANK": "x", "WORLD_SIZE": "2"}],
)
def test_a_process_alone(environment: dict[str, str]) -> None:
    """A program that nobody runs several times has an ordinary record."""
    assert Rank.of(environment) is None


def test_a_damaged_record() -> None:
    """What is no record of traces is refused by what it is."""
    with pytest.raises(tc.CannotRead, match="no record of traces"):
        TracesRecord.from_json({"kind": "traces", "version": 1, "name": "x", "records": []})
