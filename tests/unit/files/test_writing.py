"""Writing: whole or not at all, and as the kind that was read."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from truecopy.errors import CannotWrite
from truecopy.files import writing
from truecopy.files.checkpoint import Checkpoint
from truecopy.files.comparison import compare
from truecopy.files.reading import read
from truecopy.files.writing import write

NAMES = ["new.pt", "old.pt", "a.safetensors", "a.npz", "packed.npz", "a.npy"]


@pytest.fixture(params=["nameless", "hidden"])
def drafts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways in which a file system may let a draft exist."""
    if request.param == "hidden":
        monkeypatch.delattr(os, "O_TMPFILE")
    return str(request.param)


def checkpoint(obj: Any, kind: Any = "safetensors", **more: Any) -> Checkpoint:
    return Checkpoint(Path("memory"), kind, obj, 0, **more)


def refusal(checkpoint: Checkpoint, path: Path, **options: Any) -> str:
    before = sorted(path.parent.iterdir())
    with pytest.raises(CannotWrite) as caught:
        write(checkpoint, path, **options)
    assert sorted(path.parent.iterdir()) == before
    return str(caught.value).replace(str(path), "FILE")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_what_was_read(
    files: dict[str, Path], tmp_path: Path, drafts: str, name: str
) -> None:
    """A round trip is equal bit for bit, ties and all, and leaves nothing else behind."""
    del drafts
    before = read(files[name])
    size = write(before, tmp_path / "out")
    assert size == (tmp_path / "out").stat().st_size
    after = read(tmp_path / "out", check=True)
    assert compare(before, after).is_clean
    assert not compare(before, after).layouts
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_permissions_are_the_users(tmp_path: Path, drafts: str) -> None:
    """A new file has the permissions that the umask gives, as any file that a program writes."""
    del drafts
    (tmp_path / "plain").touch()
    write(checkpoint({"a": torch.ones(1)}), tmp_path / "out")
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_nothing_is_replaced_unasked(tmp_path: Path, drafts: str) -> None:
    """What stands there stays, unless force is given."""
    del drafts
    path = tmp_path / "out"
    path.write_bytes(b"precious")
    sound = checkpoint({"a": torch.ones(1)})
    assert refusal(sound, path) == (
        "`FILE`: exists, and would be replaced. Pass --force (force=True)."
    )
    assert path.read_bytes() == b"precious"
    write(sound, path, force=True)
    assert read(path).obj["a"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_file_that_appears_meanwhile(tmp_path: Path, drafts: str) -> None:
    """Who came first while we wrote keeps the name."""
    del drafts
    path = tmp_path / "out"
    with pytest.raises(CannotWrite, match="exists, and would be replaced"):
        write(
            checkpoint({"a": torch.ones(1)}),
            path,
            check=lambda _: path.write_bytes(b"first") and None,
        )
    assert path.read_bytes() == b"first"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_link_stays_a_link(tmp_path: Path, drafts: str) -> None:
    """With force, the file that a link means is replaced, not the link."""
    del drafts
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write(checkpoint({"a": torch.ones(1)}), tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink()
    assert read(tmp_path / "real").obj["a"] == 1


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("fails", ["_serialize", "check", "fsync", "full"])
def test_no_failure_leaves_anything(
    tmp_path: Path, drafts: str, monkeypatch: pytest.MonkeyPatch, fails: str, force: bool
) -> None:
    """Whatever fails, the target is what it was, and no draft remains."""
    del drafts
    path = tmp_path / "out"
    if force:
        path.write_bytes(b"precious")

    def fail(*_: object) -> None:
        if fails == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        raise RuntimeError("no luck")

    if fails == "_serialize":
        monkeypatch.setattr(writing, "_serialize", fail)
    elif fails != "check":
        monkeypatch.setattr(os, "fsync", fail)
    check = fail if fails == "check" else None
    text = refusal(checkpoint({"a": torch.ones(1)}), path, check=check, force=force)
    assert text == (
        "`FILE`: cannot be written: No space left on device."
        if fails == "full"
        else "`FILE`: cannot be written as safetensors. Got RuntimeError: no luck."
    )
    assert not force or path.read_bytes() == b"precious"


def test_an_interrupt_leaves_nothing(tmp_path: Path, drafts: str) -> None:
    """Ctrl-C is not swallowed, and leaves no draft."""
    del drafts

    def interrupt(_: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(checkpoint({"a": torch.ones(1)}), tmp_path / "out", check=interrupt)
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be(tmp_path: Path) -> None:
    """A missing directory, and a directory in the file's place, are sentences."""
    sound = checkpoint({"a": torch.ones(1)})
    with pytest.raises(CannotWrite) as caught:
        write(sound, tmp_path / "no" / "out")
    assert str(caught.value) == (
        f"`{tmp_path}/no/out`: cannot be written: No such file or directory."
    )
    assert refusal(sound, tmp_path, force=True) == (
        "`FILE`: is a directory. Expected a name for one file."
    )


# --- ties in safetensors --------------------------------------------------------------------------


def test_ties_go_into_the_metadata(tmp_path: Path) -> None:
    """One name of each tensor is written, the others stand in the metadata as save_model writes them."""
    weight = torch.arange(4.0)
    tied = {"head": weight, "embed": weight, "view": weight[:], "own": weight.clone()}
    write(checkpoint(tied), tmp_path / "out")
    after = read(tmp_path / "out")
    assert after.metadata == {"head": "embed", "view": "embed"}
    assert compare(checkpoint(tied), after).is_clean


def test_the_name_that_was_kept_is_kept_again(tmp_path: Path) -> None:
    """Programs look for the name that the file had: a round trip does not choose another."""
    weight = torch.ones(2)
    tied = checkpoint({"embed": weight, "head": weight}, metadata={"embed": "head"})
    write(tied, tmp_path / "out")
    assert read(tmp_path / "out").metadata == {"embed": "head"}


BASE = torch.arange(6.0)
WAY_OUT = (
    "Expected tensors by name, ties between whole tensors only. "
    "Write a .pt file, which keeps views and nested data."
)


@pytest.mark.parametrize(
    ("obj", "what"),
    [
        ({"a": BASE, "b": BASE[1:]}, "'a' and 'b' share memory without being one tensor"),
        ({"a": BASE, "b": BASE.view(2, 3)}, "'a' and 'b' share memory without being one tensor"),
        (
            {"a": BASE, "b": BASE.view(torch.int32)},
            "'a' and 'b' share memory without being one tensor",
        ),
        ({"a": {"b": BASE}}, "'a' is a dict, which the format cannot hold"),
        ({"a\x1b": 1}, r"'a\x1b' is a int, which the format cannot hold"),
        ([BASE], "a list is not a mapping of names to tensors"),
    ],
)
def test_what_safetensors_cannot_say(tmp_path: Path, obj: Any, what: str) -> None:
    """Sharing that metadata cannot express, and data that is no tensor, are refused by name."""
    text = refusal(checkpoint(obj), tmp_path / "out")
    assert text == f"`FILE`: cannot be written as safetensors: {what}. {WAY_OUT}"


def test_metadata_in_the_way_of_a_tie(tmp_path: Path) -> None:
    """What the user wrote under a name is not overwritten by a tie."""
    tied = checkpoint({"a": BASE, "b": BASE}, metadata={"b": "by hand"})
    assert "the tie of 'b' cannot be recorded" in refusal(tied, tmp_path / "out")


def test_strides_are_made_dense(tmp_path: Path) -> None:
    """The format has no strides: values are written in the order of their indices."""
    before = checkpoint({"a": torch.arange(6.0).view(2, 3).t()})
    write(before, tmp_path / "out")
    assert torch.equal(read(tmp_path / "out").obj["a"], before.obj["a"])


def test_shards_are_not_one_file(tmp_path: Path) -> None:
    """A directory of shards is not written as a file by accident."""
    assert refusal(checkpoint({}, "shards"), tmp_path / "out") == (
        "`FILE`: cannot be written as shards. Expected one file."
    )


def test_what_torch_cannot_pickle(tmp_path: Path) -> None:
    """A serializer that refuses is a sentence."""
    text = refusal(checkpoint({"a": (i for i in ())}, "torch"), tmp_path / "out")
    assert text.startswith("`FILE`: cannot be written as torch. Got TypeError: cannot pickle")


def test_arrays_with_reserved_names(tmp_path: Path) -> None:
    """numpy.savez has names of its own; archives written here have not."""
    arrays = {"file": np.ones(1), "allow_pickle": np.zeros(2)}
    write(checkpoint(arrays, "npz"), tmp_path / "out")
    assert list(read(tmp_path / "out").obj) == list(arrays)


def test_a_checkpoint_can_be_replaced_in_place(tmp_path: Path) -> None:
    """Writing over the file that the tensors are mapped from keeps them whole."""
    path = tmp_path / "a.pt"
    torch.save({"a": torch.arange(100_000)}, path)
    before = read(path)
    write(replace(before, obj={"a": before.obj["a"][:10]}), path, force=True)
    assert before.obj["a"].sum() == sum(range(100_000))
    assert read(path).obj["a"].tolist() == list(range(10))


def test_the_check_sees_the_whole_file(tmp_path: Path, drafts: str) -> None:
    """What the check is given is the finished file, and nothing has its name yet."""
    del drafts
    seen: list[float] = []

    def check(draft: Path) -> None:
        seen.append(float(read(draft).obj["a"]))
        assert not (tmp_path / "out").exists()

    write(checkpoint({"a": torch.tensor(3.0)}), tmp_path / "out", check=check)
    assert seen == [3.0]
