"""Directories of shards: joined where they are whole, refused where they lead elsewhere."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from truecopy.files.inspection import inspect
from truecopy.files.reading import read

INDEX = "model.safetensors.index.json"


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two shards of safetensors and their index."""
    folder = tmp_path / "shards"
    folder.mkdir()
    save_file({"a": torch.ones(2)}, folder / "one.safetensors")
    save_file({"b": torch.zeros(3)}, folder / "two.safetensors")
    write_index(folder, {"a": "one.safetensors", "b": "two.safetensors"})
    return folder


def write_index(folder: Path, weights: Any, name: str = INDEX) -> None:
    (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": weights}))


def test_with_an_index(shards: Path) -> None:
    """The shards are one checkpoint, in the order of the index."""
    write_index(shards, {"b": "two.safetensors", "a": "one.safetensors"})
    found = read(shards)
    assert found.kind == "shards"
    assert list(found.obj) == ["b", "a"]
    assert found.file_bytes == sum(p.stat().st_size for p in shards.glob("*.safetensors"))


def test_without_an_index(shards: Path) -> None:
    """Several safetensors files beside each other are one checkpoint too."""
    (shards / INDEX).unlink()
    assert list(read(shards).obj) == ["a", "b"]


def test_shards_of_pickles(tmp_path: Path) -> None:
    """The older index, of .bin files, is read with the same care; ties inside a shard stay."""
    weight = torch.ones(2)
    torch.save({"a": weight, "b": weight}, tmp_path / "one.bin")
    torch.save({"c": torch.ones(1000)[:1]}, tmp_path / "two.bin")
    weights = {"a": "one.bin", "b": "one.bin", "c": "two.bin"}
    write_index(tmp_path, weights, "pytorch_model.bin.index.json")
    found = inspect(read(tmp_path))
    assert [tie.paths for tie in found.ties] == [("checkpoint['a']", "checkpoint['b']")]
    assert found.unreached_bytes == 3996


def test_what_the_index_does_not_name(shards: Path) -> None:
    """A tensor in a shard that the index leaves out is told as bytes that nobody reaches."""
    save_file({"b": torch.zeros(3), "c": torch.zeros(1000)}, shards / "two.safetensors")
    found = inspect(read(shards))
    assert [(u.name, u.nbytes) for u in found.unreferenced] == [
        ("two.safetensors: c, which is not in the index", 4000)
    ]
    assert not found.is_clean


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("../../etc/passwd", "'../../etc/passwd'"),
        ("/etc/passwd", "'/etc/passwd'"),
        ("a\\b", r"'a\\b'"),
        ("..", "'..'"),
        ("", "''"),
        ("C:x", "'C:x'"),
        ("a\0b", r"'a\x00b'"),
        ("\x1b[2J", r"'\x1b[2J'"),
    ],
)
def test_path_tricks(shards: Path, refusal: Callable[..., str], name: str, got: str) -> None:
    """An index may name files of its directory, and nothing else."""
    write_index(shards, {"a": name})
    assert refusal(shards) == (
        f"`FILE/{INDEX}`: names a shard that is no plain file name. Expected a mapping from names of "
        f"tensors to files in the same directory. Got {got}. Download the directory again; if it "
        "stays so, do not trust it."
    )


def test_a_link_out_of_the_directory(
    shards: Path, tmp_path: Path, refusal: Callable[..., str]
) -> None:
    """A shard that is a link to somewhere else is not followed."""
    secret = tmp_path / "secret.safetensors"
    (shards / "one.safetensors").rename(secret)
    (shards / "one.safetensors").symlink_to(secret)
    assert refusal(shards) == (
        f"`FILE/one.safetensors`: is a link that leads out of its directory. Expected a file in "
        f"FILE. Got {secret}. Replace the link by the file that it means, if you trust it."
    )


def test_links_within_the_directory(shards: Path) -> None:
    """A link to another file of the directory is that file."""
    (shards / "one.safetensors").rename(shards / "real")
    (shards / "one.safetensors").symlink_to("real")
    assert list(read(shards).obj) == ["a", "b"]


def test_the_cache_of_the_hub(shards: Path, tmp_path: Path) -> None:
    """Hugging Face's cache keeps links in snapshots/ and files in blobs/: that is followed."""
    blobs = tmp_path / "models--x" / "blobs"
    snapshot = tmp_path / "models--x" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(shards.iterdir())):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    assert list(read(snapshot).obj) == ["a", "b"]


def test_a_missing_shard(shards: Path, refusal: Callable[..., str]) -> None:
    """A shard that was not downloaded is named."""
    (shards / "two.safetensors").unlink()
    assert refusal(shards) == (
        "`FILE/two.safetensors`: cannot be opened: No such file or directory."
    )


def test_a_tensor_that_is_not_in_its_shard(shards: Path, refusal: Callable[..., str]) -> None:
    """What the index promises must be there."""
    write_index(shards, {"a": "one.safetensors", "z": "two.safetensors"})
    assert refusal(shards) == (
        "`FILE/two.safetensors`: lacks 'z', which the index says is in it. "
        "Download the directory again."
    )


def test_a_name_in_two_shards(shards: Path, refusal: Callable[..., str]) -> None:
    """Without an index nobody can say which of two tensors is meant."""
    (shards / INDEX).unlink()
    save_file({"a": torch.ones(2)}, shards / "two.safetensors")
    assert refusal(shards) == (
        "`FILE/two.safetensors`: holds 'a', which another shard holds too. Expected every name in "
        "one shard. Add an index, or move the shard that does not belong here."
    )


@pytest.mark.parametrize("weights", [None, [], {"a": 1}, "text"])
def test_an_index_that_is_none(shards: Path, refusal: Callable[..., str], weights: Any) -> None:
    """An index that maps nothing to files is refused."""
    write_index(shards, weights)
    assert f"`FILE/{INDEX}`: is no index of shards." in refusal(shards)


def test_an_index_that_is_a_directory(shards: Path, refusal: Callable[..., str]) -> None:
    """A directory where a file should be is a sentence."""
    (shards / INDEX).unlink()
    (shards / INDEX).mkdir()
    assert "is no regular file" in refusal(shards)


def test_no_checkpoint_in_it(tmp_path: Path, refusal: Callable[..., str]) -> None:
    """Another directory is refused with what is in it."""
    (tmp_path / "notes\x1b.txt").touch()
    assert refusal(tmp_path) == (
        f"`FILE`: is a directory without a checkpoint. Expected {INDEX}, "
        r"pytorch_model.bin.index.json or *.safetensors in it. Got notes\x1b.txt. "
        "Name the file in it that you mean."
    )


def test_a_distributed_checkpoint(tmp_path: Path, refusal: Callable[..., str]) -> None:
    """The sharded format of torch keeps its index in a pickle that needs code: the way out is named."""
    (tmp_path / ".metadata").touch()
    assert "dcp_to_torch_save makes one file of it." in refusal(tmp_path)


def test_a_shard_behind_a_pipe(shards: Path, refusal: Callable[..., str]) -> None:
    """A pipe in the place of a shard is not waited for."""
    (shards / "one.safetensors").unlink()
    os.mkfifo(shards / "one.safetensors")
    assert "Got a pipe, socket or device." in refusal(shards)
