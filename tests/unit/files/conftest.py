"""Real files of every kind, made once, and a way to rebuild an archive with another pickle."""

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from truecopy.errors import CannotRead
from truecopy.files.reading import read


def _everything() -> dict[str, Any]:
    base = torch.arange(64, dtype=torch.float32)
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(3)).sum().backward()
    optimizer.step()
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.tag = "kept"  # type: ignore[attr-defined]
    return {
        "view": base[4:8],
        "tied": {"a": base, "b": base},
        "model": layer.state_dict(),
        "optimizer": optimizer.state_dict(),
        "parameter": parameter,
        "sparse": torch.eye(3).to_sparse(),
        "fp8": torch.ones(3).to(torch.float8_e4m3fn),
        "conj": torch.ones(2, dtype=torch.complex64).conj(),
        "empty": torch.empty(0, 3),
        "meta": torch.empty(3, device="meta"),
        "plain": [1, 2.5, "three", None, True, b"six", bytearray(b"seven"), {8}, 9j, (10, 11)],
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
    }


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One sound file of every kind, by name."""
    folder = tmp_path_factory.mktemp("sound")
    everything = _everything()
    found = {
        name: folder / name
        for name in ("new.pt", "old.pt", "a.safetensors", "a.npz", "packed.npz", "a.npy")
    }
    torch.save(everything, found["new.pt"])
    old = {k: v for k, v in everything.items() if k not in ("meta", "fp8")}
    torch.save(old, found["old.pt"], _use_new_zipfile_serialization=False)
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)}
    save_file(tensors, found["a.safetensors"], {"tied": "a", "format": "pt"})
    arrays = {"a": np.arange(6.0).reshape(2, 3, order="F"), "b": np.zeros((), np.int8)}
    np.savez(found["a.npz"], **arrays)
    np.savez_compressed(found["packed.npz"], **arrays)
    np.save(found["a.npy"], arrays["a"])
    return found


@pytest.fixture
def repacked(tmp_path: Path) -> Callable[..., Path]:
    """An archive as torch.save makes it, around any pickle and any storages."""

    def repack(pickle: bytes, **storages: bytes) -> Path:
        path = tmp_path / "hostile.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("hostile/data.pkl", pickle)
            archive.writestr("hostile/version", b"3\n")
            for key, data in storages.items():
                archive.writestr(f"hostile/data/{key.removeprefix('_')}", data)
        return path

    return repack


@pytest.fixture
def header(tmp_path: Path) -> Callable[..., Path]:
    """A safetensors file with any header, as JSON text or as an object."""

    def make(fields: Any, data: bytes = b"", length: int | None = None) -> Path:
        path = tmp_path / "hostile.safetensors"
        text = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
        size = len(text) if length is None else length
        path.write_bytes(struct.pack("<Q", size) + text + data)
        return path

    return make


@pytest.fixture
def refusal() -> Callable[..., str]:
    """The sentence with which a path is refused, its own path written as FILE."""

    def text_of(path: Path, **options: Any) -> str:
        with pytest.raises(CannotRead) as caught:
            read(path, **options)
        text = str(caught.value)
        assert "\n" not in text
        assert text.isprintable()
        return text.replace(str(path), "FILE")

    return text_of


@pytest.fixture
def zipped(tmp_path: Path) -> Callable[..., Path]:
    """A zip archive of any members."""

    def make(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
        path = tmp_path / "archive"
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", method) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        path.write_bytes(buffer.getvalue())
        return path

    return make
