"""numpy's files: arrays whose headers are as long as their bytes, and no pickles."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from truecopy.files.reading import read


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    width = 2 if version == b"\x01\x00" else 4
    text = header.encode("utf-8" if version == b"\x03\x00" else "latin1") + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(width, "little") + text + data


def described(shape: str, descr: str = "'<f8'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"


def saved(array: np.ndarray) -> bytes:  # type: ignore[type-arg]
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3).T,
        np.array("text"),
        np.zeros((0, 5)),
        np.array([(1, 2.0)], dtype=[("a", "i1"), ("b", "f8")]),
        np.array([(1,)], dtype=[("ü", "i1")]),
        np.array([(1,)], dtype=[("日", "i1")]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
    ],
)
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0:UserWarning")
def test_whatever_numpy_writes(tmp_path: Path, array: np.ndarray) -> None:  # type: ignore[type-arg]
    """Any plain array is read as it was saved, alone and in an archive, packed or not."""
    path = tmp_path / "file"
    path.write_bytes(saved(array))
    assert read(path).obj.tobytes() == array.tobytes()
    for save in (np.savez, np.savez_compressed):
        with path.open("wb") as file:
            save(file, name=array)
        found = read(path).obj["name"]
        assert (found.tobytes(), found.shape) == (array.tobytes(), array.shape)
        assert found.dtype == array.dtype


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            npy(described("(1000000000000,)"), bytes(8)),
            (
                "has an array 'file' that does not fit its bytes. Expected 8,000,000,000,078 bytes for "
                "float64 of shape (1000000000000,). Got 86. Copy or download the file again."
            ),
        ),
        (
            npy(described("(-1, -1)"), bytes(8)),
            None,
        ),
        (
            npy(described("(1,)", "'|O'"), bytes(8)),
            (
                "needs code to be read: its array 'file' holds pickled Python objects. Load it where "
                "you trust it with numpy.load(..., allow_pickle=True), and save plain arrays."
            ),
        ),
        (npy("__import__('os').mkdir('was-run')"), None),
        (npy("(" * 500), None),
        (npy(described("(1,)"), bytes(8), b"\x07\x00"), None),
        (npy(described("(2,)"), bytes(8)), None),
        (b"\x93NUMPY", None),
        (b"\x93NUMPY\x01\x00\xff\xff", None),
    ],
)
def test_headers_that_lie(
    tmp_path: Path,
    refusal: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    sentence: str | None,
) -> None:
    """Alone and in an archive, a header that does not fit is a sentence, and no code runs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "file"
    path.write_bytes(content)
    text = refusal(path)
    if sentence:
        assert text == f"`FILE`: {sentence}"
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("file.npy", content)
        refusal(path)
    assert not (tmp_path / "was-run").exists()


def test_names_of_arrays(tmp_path: Path) -> None:
    """A name with escape codes is kept as data, and escaped in its path."""
    path = tmp_path / "file.npz"
    np.savez(path, **{"\x1b[2J": np.zeros(1), "a/b": np.ones(1)})
    found = read(path)
    assert list(found.obj) == ["\x1b[2J", "a/b"]
    assert found.names[0] == r"checkpoint['\x1b[2J']"
