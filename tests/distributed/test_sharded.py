"""Models sharded over real processes, over gloo: what `sharded.py` checks in each of them."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("sharded.py")


def run(processes: int, what: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The program in so many processes; in one it is an ordinary program."""
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return subprocess.run(
        [sys.executable, *(start if processes > 1 else []), str(PROGRAM), what, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where four processes have saved, after their other checks; and a later save was cut off."""
    folder = tmp_path_factory.mktemp("sharded")
    done = run(4, "four", folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def test_in_four_processes(folder: Path) -> None:
    """Copies and relations of DTensors; snapshots of FSDP2's shards, put back in place; a save."""
    assert (folder / "run" / "truecopy.json").is_file()
    assert len(list(folder.glob("run/save-*/*.safetensors"))) == 4


def test_one_that_is_killed_leaves_the_old_save(folder: Path) -> None:
    """With a process killed in the middle of a save, the index and the parts of the one before are there."""
    before = (folder / "run" / "truecopy.json").read_bytes()
    done = run(2, "killed", folder)
    assert "SIGKILL" in done.stderr
    assert "saved without" not in done.stderr
    assert (folder / "run" / "truecopy.json").read_bytes() == before


@pytest.mark.parametrize("processes", [2, 1])
def test_loaded_by_fewer(folder: Path, processes: int) -> None:
    """What four have saved is loaded by two, and by one without torch.distributed: equal bit for bit."""
    done = run(processes, "loaded", folder)
    assert done.returncode == 0, done.stderr[-4000:]
