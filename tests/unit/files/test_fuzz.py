"""Damaged files of every kind: read, or refused with CannotRead, and nothing else ever."""

import io
import itertools
import pickletools
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from truecopy.errors import CannotRead
from truecopy.files.comparison import compare
from truecopy.files.inspection import inspect
from truecopy.files.reading import read
from truecopy.reports.json import dumps
from truecopy.reports.terminal import render

NAMES = ["new.pt", "old.pt", "a.safetensors", "a.npz", "packed.npz", "a.npy"]
ROUNDS = 120

GLOBALS = [
    b"ctorch\nfloat32\n", b"ctorch\nFloatStorage\n", b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch._utils\n_rebuild_tensor_v3\n", b"ccollections\nOrderedDict\n", b"ctorch\nSize\n",
    b"c__builtin__\nset\n", b"ctorch.nn.parameter\nParameter\n", b"ctorch\nTensor\n",
    b"ctorch._utils\n_rebuild_qtensor\n", b"ctorch._utils\n_rebuild_sparse_tensor\n",
    b"ctorch._tensor\n_rebuild_from_type_v2\n", b"ctorch.storage\nUntypedStorage\n",
    b"ctorch._utils\n_rebuild_nested_tensor\n", b"c_codecs\nencode\n", b"ctorch\ndevice\n",
]  # fmt: skip
NUMBERS = [
    b"K\x00", b"K\xff", b"J\xff\xff\xff\x7f", b"J\xff\xff\xff\xff", b"N", b"\x88",
    b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", b"G@\x00\x00\x00\x00\x00\x00\x00",
]  # fmt: skip


def look(path: Path, *, check: bool) -> bool:
    """Everything that the commands do with a file; whether it could be read."""
    try:
        found = read(path, check=check)
    except CannotRead as error:
        if "\n" in str(error):
            pytest.fail(f"more than one line: {error}")
        return False
    record = inspect(found)
    render(record)
    dumps(record)
    render(compare(found, found))
    return True


def damaged(data: bytes, rng: random.Random) -> bytes:
    """A file with some of its bytes gone, changed, or pushed aside."""
    found = bytearray(data)
    place = rng.randrange(len(found))
    match rng.randrange(4):
        case 0:
            del found[place:]
        case 1:
            for _ in range(rng.choice([1, 1, 2, 8, 50])):
                found[rng.randrange(len(found))] = rng.randrange(256)
        case 2:
            found[place] ^= 1 << rng.randrange(8)
        case 3:
            length = rng.randrange(1, 64)
            found[place : place + length * rng.randrange(2)] = rng.randbytes(length)
    return bytes(found)


@pytest.mark.parametrize("name", NAMES)
def test_flipped_and_cut_bytes(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Hundreds of places of every kind of file, each damaged in one of four ways."""
    rng = random.Random(name)
    data = files[name].read_bytes()
    path = tmp_path / "damaged"
    outcomes = set()
    for _ in range(ROUNDS):
        path.write_bytes(damaged(data, rng))
        outcomes.add(look(path, check=rng.random() < 0.5))
    assert False in outcomes


@pytest.mark.parametrize("name", NAMES)
def test_every_length(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    """A file that was cut anywhere is refused; only .npy's own padding could be missing unseen."""
    data = files[name].read_bytes()
    path = tmp_path / "cut"
    for length in range(0, len(data), max(1, len(data) // 100)):
        path.write_bytes(data[:length])
        assert not look(path, check=False), f"a file cut at {length} of {len(data)} was read"


def mutants(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Pickles of sound opcodes in an unsound order, with other numbers and other globals."""
    ends = [place for _, _, place in pickletools.genops(data)] + [len(data)]
    opcodes = [data[a:b] for a, b in itertools.pairwise(ends)]
    while True:
        found = list(opcodes)
        for _ in range(rng.choice([1, 1, 2, 3])):
            place = rng.randrange(1, len(found) - 1)
            match rng.randrange(5):
                case 0:
                    del found[place]
                case 1:
                    found.insert(place, rng.choice(opcodes[1:-1]))
                case 2:
                    found[place] = rng.choice(opcodes[1:-1])
                case 3 if found[place][:1] in b"KJM":
                    found[place] = rng.choice(NUMBERS)
                case 4:
                    found[place] = rng.choice(GLOBALS)
        yield b"".join(found)


def test_pickles_of_sound_opcodes(files: dict[str, Path], tmp_path: Path) -> None:
    """What random bytes seldom reach: archives whose checksums are right, around wrong pickles."""
    rng = random.Random(3)
    with zipfile.ZipFile(files["new.pt"]) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    path = tmp_path / "mutant.pt"
    outcomes = set()
    pickles = mutants(members["new/data.pkl"], rng)
    for _, pickle in zip(range(6 * ROUNDS), pickles, strict=False):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, pickle if name == "new/data.pkl" else data)
        path.write_bytes(buffer.getvalue())
        outcomes.add(look(path, check=False))
    assert outcomes == {True, False}


@given(st.binary(max_size=200))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    """Random bytes, with and without the marks of the kinds that are known."""
    path = tmp_path / "any"
    marks = (b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"\x80\x02", b"\x10\0\0\0\0\0\0\0{")
    for mark in marks:
        path.write_bytes(mark + data)
        look(path, check=True)


@given(st.binary(max_size=120))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_pickle(repacked: Callable[..., Path], data: bytes) -> None:
    """Random opcodes in a sound archive."""
    look(repacked(b"\x80\x02" + data + b"."), check=False)
