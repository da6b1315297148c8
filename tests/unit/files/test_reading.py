"""What `read` accepts, by content, and the one sentence with which it refuses everything else."""

import argparse
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from truecopy.errors import CannotRead
from truecopy.files.inspection import inspect
from truecopy.files.reading import read

KINDS = {
    "new.pt": "torch",
    "old.pt": "torch-legacy",
    "a.safetensors": "safetensors",
    "a.npz": "npz",
    "packed.npz": "npz",
    "a.npy": "npy",
}
KNOWN = ".pt, .pth or .bin from torch.save, .safetensors, .npz, .npy, or a directory of shards"


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("suffix", [".pt", ".safetensors", ".npz", ""])
def test_the_content_decides(
    files: dict[str, Path], tmp_path: Path, name: str, suffix: str
) -> None:
    """A file is read as what it is, whatever it is called."""
    path = tmp_path / f"misnamed{suffix}"
    shutil.copy(files[name], path)
    assert read(path).kind == KINDS[name]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("check", [False, True])
def test_what_was_saved_is_read(files: dict[str, Path], name: str, check: bool) -> None:
    """The object has the names, dtypes and values that were saved."""
    found = read(files[name], check=check)
    assert found.file_bytes == files[name].stat().st_size
    match found.kind:
        case "torch" | "torch-legacy":
            plain = [1, 2.5, "three", None, True, b"six", bytearray(b"seven"), {8}, 9j, (10, 11)]
            assert found.obj["plain"] == plain
            assert found.obj["tied"]["a"] is found.obj["tied"]["b"]
            assert found.obj["view"].tolist() == [4, 5, 6, 7]
            assert found.obj["parameter"].tag == "kept"
            assert found.obj["model"]._metadata[""] == {"version": 1}
        case "safetensors":
            assert found.names == ("checkpoint['a']", "checkpoint['b']")
            assert found.obj["tied"] is found.obj["a"]
            assert found.obj["b"].dtype is torch.bfloat16
        case "npz":
            assert found.obj["a"].tolist() == [[0, 2, 4], [1, 3, 5]]
            assert found.obj["b"].shape == ()
        case "npy":
            assert found.obj.tolist() == [[0, 2, 4], [1, 3, 5]]


def test_looking_takes_no_memory(tmp_path: Path) -> None:
    """A file of 1 GiB is inspected in a process that may not take 400 MiB more than it has."""
    path = tmp_path / "large.pt"
    with torch.serialization.skip_data():
        torch.save({"large": torch.empty(1 << 28), "head": torch.empty(8)[:2]}, path)
    script = (
        "import resource, sys, torch\n"
        "from truecopy.files.reading import read\n"
        "from truecopy.files.inspection import inspect\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"found = inspect(read({str(path)!r}))\n"
        "assert found.entries[0].nbytes == 1 << 30\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 100 * 1024  # KiB


def test_the_file_is_never_written(files: dict[str, Path], tmp_path: Path) -> None:
    """Tensors are mapped privately: writing into one leaves the file as it was."""
    for name in KINDS:
        path = tmp_path / name
        shutil.copy(files[name], path)
        before = path.read_bytes()
        found = read(path)
        for leaf in found.walked.leaves:
            if isinstance(leaf, torch.Tensor) and leaf.device.type != "meta":
                torch.empty(0, dtype=torch.uint8).set_(leaf.untyped_storage()).fill_(7)
            elif isinstance(leaf, np.ndarray):
                leaf[...] = 7
        assert path.read_bytes() == before


def test_inspecting_is_quiet(files: dict[str, Path], recwarn: pytest.WarningsRecorder) -> None:
    """No warning of torch, numpy or safetensors comes through: there is nothing to act upon."""
    for path in files.values():
        inspect(read(path))
    assert not recwarn.list


# --- what is no checkpoint -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", f"`FILE`: is empty. Expected {KNOWN}. Got 0 bytes."),
        (
            b"hello, world",
            (
                f"`FILE`: is of no kind that is known here. Expected {KNOWN}. "
                "Got a file that begins with b'hello, w'."
            ),
        ),
        (
            b"\x1b[2J\x07 evil",
            (
                f"`FILE`: is of no kind that is known here. Expected {KNOWN}. "
                r"Got a file that begins with b'\x1b[2J\x07 ev'."
            ),
        ),
        (
            bytes(100),
            (
                f"`FILE`: is of no kind that is known here. Expected {KNOWN}. "
                "Got a file that begins with zeros, as one that was never fully written does."
            ),
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            (
                f"`FILE`: is a Git LFS pointer, not the file itself. Expected {KNOWN}. "
                "Run `git lfs pull`."
            ),
        ),
        (b"\x89HDF\r\n\x1a\n....", f"`FILE`: is an HDF5 file. Expected {KNOWN}."),
        (
            b'{"weight_map": {}}',
            (
                f"`FILE`: is JSON, not a checkpoint. Expected {KNOWN}. "
                "For the index of a directory of shards, name the directory."
            ),
        ),
        (
            bytes(257) + b"ustar" + bytes(300),
            (
                "`FILE`: is a .tar checkpoint of torch before 0.1.10, or another tar archive. "
                f"Expected {KNOWN}. torch reads such files only with code enabled: load it where you "
                "trust it, and save it again."
            ),
        ),
        (
            pickle.dumps({"a": 1}, 2),
            (
                "`FILE`: is a pickle that torch.save did not write. "
                "Load it where you trust it, and torch.save it."
            ),
        ),
        (
            pickle.dumps(argparse.Namespace(a=1)),
            (
                "`FILE`: needs code to be read: it asks for argparse.Namespace. Load it where you trust "
                "it with torch.load(..., weights_only=False), and save only tensors, numbers, strings "
                "and containers of them."
            ),
        ),
    ],
)
def test_what_is_no_checkpoint(
    tmp_path: Path, refusal: Callable[..., str], content: bytes, sentence: str
) -> None:
    """Whatever is not a checkpoint is named, with what was expected and the way out."""
    path = tmp_path / "file"
    path.write_bytes(content)
    assert refusal(path) == sentence


def test_a_missing_file(tmp_path: Path, refusal: Callable[..., str]) -> None:
    """A path where nothing is says so."""
    assert refusal(tmp_path / "no") == "`FILE`: cannot be opened: No such file or directory."


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_an_unreadable_file(tmp_path: Path, refusal: Callable[..., str]) -> None:
    """A file without permission says so."""
    path = tmp_path / "secret.pt"
    path.write_bytes(b"PK\x03\x04")
    path.chmod(0)
    assert refusal(path) == "`FILE`: cannot be opened: Permission denied."


def test_a_pipe_is_not_waited_for(tmp_path: Path, refusal: Callable[..., str]) -> None:
    """A named pipe that nobody writes to is refused at once."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert refusal(path) == (
        f"`FILE`: is no regular file. Expected {KNOWN}. Got a pipe, socket or device."
    )


# --- code ----------------------------------------------------------------------------------------


class RunsCode:
    """What an attacker puts into a pickle."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("protocol", [2, 4])
def test_code_is_never_run(
    tmp_path: Path, refusal: Callable[..., str], new: bool, protocol: int
) -> None:
    """A pickle that asks for code is refused with its name, in both formats and all protocols."""
    path, marker = tmp_path / "evil.pt", tmp_path / "was-run"
    torch.save(
        {"a": RunsCode(marker)},
        path,
        _use_new_zipfile_serialization=new,
        pickle_protocol=protocol,
    )
    text = refusal(path)
    assert "it asks for posix.mkdir." in text
    assert not marker.exists()


def test_a_global_that_the_user_allowed_elsewhere(
    tmp_path: Path, refusal: Callable[..., str]
) -> None:
    """What a program has allowed torch.load to do does not reach files that we look at."""
    path = tmp_path / "namespace.pt"
    torch.save(argparse.Namespace(a=1), path)
    with torch.serialization.safe_globals([argparse.Namespace]):
        assert torch.load(path) == argparse.Namespace(a=1)
        assert "it asks for argparse.Namespace." in refusal(path)


def test_torchscript(zipped: Callable[..., Path], refusal: Callable[..., str]) -> None:
    """A TorchScript archive is named as the program that it is."""
    assert refusal(zipped({"a/data.pkl": b"", "a/constants.pkl": b""})) == (
        "`FILE`: is a TorchScript archive, which is a program. Load it where you trust it with "
        "torch.jit.load, and torch.save its state_dict()."
    )


# --- archives that lie ---------------------------------------------------------------------------


def test_an_archive_of_neither(zipped: Callable[..., Path], refusal: Callable[..., str]) -> None:
    """Another zip archive is not guessed at; names in it cannot reach the terminal."""
    assert refusal(zipped({"a.txt": b"", "b\x1b[2J": b""})) == (
        "`FILE`: is a zip archive, but neither of torch.save nor of numpy.savez. Expected a member "
        r"<name>/data.pkl, or nothing but members .npy. Got a.txt, b\x1b[2J."
    )


def test_members_twice(tmp_path: Path, refusal: Callable[..., str]) -> None:
    """Two members of one name could be one to us and the other to torch."""
    path = tmp_path / "twice.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a/data.pkl", b"other")
    assert refusal(path) == (
        "`FILE`: is no sound archive: its member 'a/data.pkl' is there twice. Expected every name "
        "once. Copy or download the file again; if it stays so, do not trust it."
    )


def test_members_that_overlap(
    files: dict[str, Path], tmp_path: Path, refusal: Callable[..., str]
) -> None:
    """A directory that points two members at the same bytes is refused."""
    data = bytearray(files["a.npz"].read_bytes())
    first = data.find(b"PK\x01\x02")
    second = data.find(b"PK\x01\x02", first + 4)
    data[second + 42 : second + 46] = data[
        first + 42 : first + 46
    ]  # the offset of the local header
    path = tmp_path / "overlap.npz"
    path.write_bytes(data)
    assert "is no sound archive" in refusal(path) or "is no whole zip archive" in refusal(path)


def test_a_bomb(
    zipped: Callable[..., Path], refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that unpacks to more than the machine's memory is refused before it is unpacked."""
    path = zipped({"a.npy": bytes(2_000_000)}, zipfile.ZIP_DEFLATED)
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PHYS_PAGES": 100}.get(name, 4096))
    size = path.stat().st_size
    assert refusal(path) == (
        "`FILE`: unpacks to more than fits into memory. Expected at most the 409,600 bytes of this "
        f"machine. Got 2,000,000 bytes from a file of {size:,}."
    )


def test_a_size_that_deflate_cannot_make(
    zipped: Callable[..., Path], tmp_path: Path, refusal: Callable[..., str]
) -> None:
    """A member that says it unpacks to more than its bytes can is a lie, seen before it is unpacked."""
    data = bytearray(zipped({"a.npy": bytes(1000)}, zipfile.ZIP_DEFLATED).read_bytes())
    entry = data.find(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (0xF0000000).to_bytes(4, "little")
    path = tmp_path / "lie.npz"
    path.write_bytes(data)
    assert "its member 'a.npy' cannot be as large as it says. Expected at most" in refusal(path)


def test_a_packed_checkpoint(
    files: dict[str, Path], zipped: Callable[..., Path], refusal: Callable[..., str]
) -> None:
    """A checkpoint that was compressed afterwards cannot be mapped, and says how to mend it."""
    with zipfile.ZipFile(files["new.pt"]) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert refusal(zipped(members, zipfile.ZIP_DEFLATED)) == (
        "`FILE`: was compressed after torch.save wrote it, so that it cannot be mapped. Load it "
        "with torch.load(..., weights_only=True), and torch.save it again."
    )


def test_a_flipped_bit_in_a_tensor(tmp_path: Path, refusal: Callable[..., str]) -> None:
    """With `check`, damage in a tensor's bytes is found by its checksum."""
    path = tmp_path / "flipped.pt"
    torch.save({"a": torch.zeros(1000)}, path)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        data[archive.getinfo("flipped/data/0").header_offset + 500] ^= 1
    path.write_bytes(data)
    read(path)
    assert "is damaged: the bytes of its member 'flipped/data/0' are not those that" in refusal(
        path, check=True
    )


def test_a_file_without_checksums(tmp_path: Path) -> None:
    """A writer can tell torch to sum nothing; then there is nothing to compare, and nothing to refuse."""
    path = tmp_path / "unsummed.pt"
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.ones(1000)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    assert read(path, check=True).obj["a"].sum() == 1000


def test_a_storage_that_nothing_refers_to(tmp_path: Path) -> None:
    """Bytes of an archive that no tensor uses are told as bytes that nobody reaches."""
    path = tmp_path / "extra.pt"
    torch.save({"a": torch.ones(3)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("extra/data/99", bytes(5000))
    found = inspect(read(path))
    assert [(u.name, u.nbytes) for u in found.unreferenced] == [("extra/data/99", 5000)]
    assert found.unreached_bytes == 5000
    assert not found.is_clean


def test_a_dtype_that_the_old_format_has_not(tmp_path: Path, refusal: Callable[..., str]) -> None:
    """Such a file torch writes and cannot read: that is not damage, and is not called so."""
    path = tmp_path / "old.pt"
    fp8 = torch.ones(3).to(torch.float8_e4m3fn)
    torch.save(fp8, path, _use_new_zipfile_serialization=False)
    assert refusal(path) == (
        "`FILE`: holds a dtype newer than its format, which torch cannot read back either."
    )


def test_bytes_behind_an_old_file(tmp_path: Path) -> None:
    """What follows an old file's last storage is nobody's."""
    path = tmp_path / "old.pt"
    torch.save({"a": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes() + bytes(77))
    assert read(path).unreferenced[0].nbytes == 77


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_an_old_file_that_is_cut_off(
    files: dict[str, Path], tmp_path: Path, refusal: Callable[..., str], cut: int
) -> None:
    """An old file says how many bytes are missing where."""
    path = tmp_path / "cut.pt"
    path.write_bytes(files["old.pt"].read_bytes()[:-cut])
    text = refusal(path)
    assert text.startswith("`FILE`: is cut off. Expected ")
    assert text.endswith("Copy or download the file again.")


def test_errors_cross_processes(files: dict[str, Path], tmp_path: Path) -> None:
    """A refusal can be pickled, with all its parts."""
    path = tmp_path / "cut.pt"
    path.write_bytes(files["old.pt"].read_bytes()[:-1])
    with pytest.raises(CannotRead) as caught:
        read(path)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.where == str(path)


def test_a_limit_on_memory_is_a_sentence(tmp_path: Path) -> None:
    """Where an old file, which is read whole, does not fit, that is what is said."""
    path = tmp_path / "large.pt"
    torch.save(torch.zeros(1 << 25), path, _use_new_zipfile_serialization=False)
    script = (
        "import resource\n"
        "from truecopy.files.reading import read\n"
        "import torch\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "limit = pages * resource.getpagesize() + (1 << 26)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try:\n"
        f"    read({str(path)!r})\n"
        "except ValueError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("CannotRead `"), done.stderr
