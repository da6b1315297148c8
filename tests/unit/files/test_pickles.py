"""Pickles that torch's own reader would follow at any price, refused before it sees them."""

import io
import pickle
import pickletools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from truecopy.errors import CannotRead
from truecopy.files import pickles
from truecopy.files.comparison import compare
from truecopy.files.plain_data import Refused
from truecopy.files.reading import read

# A storage's reference up to its length, as torch.save writes it.
STORAGE = b"((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
END = b"."


def integer(value: int) -> bytes:
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def tensor(*, count: int, offset: int, size: list[int], stride: list[int]) -> bytes:
    """The pickle of one tensor over storage '0' of `count` floats."""
    return b"".join((
        b"\x80\x02", b"ctorch._utils\n_rebuild_tensor_v2\n", STORAGE, integer(count), b"tQ",
        integer(offset), b"(", *map(integer, size), b"t", b"(", *map(integer, stride), b"t",
        b"\x89", b"ccollections\nOrderedDict\n)R", b"t", b"R", END,
    ))  # fmt: skip


def test_the_pieces_make_a_tensor(repacked: Callable[..., Path]) -> None:
    """The material of these tests is read where it is sound."""
    path = repacked(tensor(count=4, offset=1, size=[3], stride=[1]), _0=bytes(16))
    assert read(path).obj.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("offset", "size", "stride", "sentence"),
    [
        (
            0, [10**9], [1],
            ("has a tensor that reaches beyond its storage '0'. Got a tensor of shape (1000000000,) "
            "and stride (1,) that needs 4,000,000,000 bytes of 16."),
        ),
        (
            0, [2, 2], [3, 1],
            ("has a tensor that reaches beyond its storage '0'. Got a tensor of shape (2, 2) and "
            "stride (3, 1) that needs 20 bytes of 16."),
        ),
        (
            4, [1], [1],
            ("has a tensor that reaches beyond its storage '0'. Got a tensor of shape (1,) and "
            "stride (1,) that needs 20 bytes of 16."),
        ),
        (-1, [1], [1], "has a tensor of negative size, stride or offset."),
        (0, [-1], [1], "has a tensor of negative size, stride or offset."),
        (3, [2], [-1], "has a tensor of negative size, stride or offset."),
    ],
)  # fmt: skip
def test_a_tensor_beyond_its_storage(
    repacked: Callable[..., Path],
    refusal: Callable[..., str],
    offset: int,
    size: list[int],
    stride: list[int],
    sentence: str,
) -> None:
    """Strides that claim more than the storage has are refused before anything reads them."""
    path = repacked(tensor(count=4, offset=offset, size=size, stride=stride), _0=bytes(16))
    assert refusal(path) == f"`FILE`: {sentence}"


def test_an_old_file_whose_storage_is_too_small(
    tmp_path: Path, refusal: Callable[..., str]
) -> None:
    """The old format makes its storages resizable: torch would take the memory that is asked for."""
    path = tmp_path / "old.pt"
    torch.save(torch.zeros(4), path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    was = b"K\x00K\x04\x85"  # offset 0, shape (4,)
    assert data.count(was) == 1
    path.write_bytes(data.replace(was, b"K\x00" + integer(2**40) + b"\x85"))
    assert refusal(path).startswith("`FILE`: has a tensor that reaches beyond its storage ")


@pytest.mark.parametrize("size", [0, 4, 12, 20])
def test_a_storage_of_another_size(
    repacked: Callable[..., Path], refusal: Callable[..., str], size: int
) -> None:
    """Each storage must be in the archive, as large as the pickle says."""
    path = repacked(tensor(count=4, offset=0, size=[1], stride=[1]), _0=bytes(size))
    assert refusal(path) == (
        f"`FILE`: lacks the bytes of storage '0'. Got {size} bytes, where its pickle says 16. "
        "Copy or download the file again."
    )


def test_a_storage_with_a_path_for_a_name(
    repacked: Callable[..., Path], refusal: Callable[..., str]
) -> None:
    """A storage is only ever looked up in the archive's own list."""
    evil = tensor(count=4, offset=0, size=[1], stride=[1]).replace(
        b"X\x01\x00\x00\x000", b"X\x0f\x00\x00\x00../../../\x1b[2J/x"
    )
    assert refusal(repacked(evil, _0=bytes(16))) == (
        r"`FILE`: lacks the bytes of storage '../../../\x1b[2J/x'. Got none, where its pickle says "
        "16. Copy or download the file again."
    )


def bomb(*parts: bytes) -> bytes:
    return b"".join((b"\x80\x02", *parts, END))


def doubled(times: int) -> bytes:
    """A tuple of twice the same tuple of twice the same tuple ..."""
    return b")" + b"".join(b"q%bh%b\x86" % (bytes([i]), bytes([i])) for i in range(times))


@pytest.mark.parametrize(
    ("pickle_", "sentence"),
    [
        (
            bomb(b"c__builtin__\nbytearray\n", integer(10**12), b"\x85R"),
            "asks for a bytearray that is not in the file.",
        ),
        (
            bomb(b"ctorch\nTensor\n", integer(10**12), b"\x85R"),
            "asks for memory that is not in the file.",
        ),
        (
            bomb(b"}", doubled(100), b"Ns"),
            "has keys that would take too long to hash. Got tuples of tuples of tuples.",
        ),
        (
            bomb(b"c__builtin__\nset\n]", doubled(100), b"a\x85R"),
            "has keys that would take too long to hash. Got tuples of tuples of tuples.",
        ),
        (
            bomb(b"]" * 300, b"a" * 299),
            "is nested too deeply. Got more than 200 containers inside each other.",
        ),
        (
            bomb(b"}X", (1001).to_bytes(4, "little"), b"\x1b" + b"k" * 1000, b"Ns"),
            ("has a key too long for a name. "
            r"Got 1,001 characters, beginning '\x1bkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk'."),
        ),
        (
            bomb(b"}", b"\x8a\x10" + (2**100).to_bytes(16, "little"), b"Ns"),
            "has an integer key beyond 64 bits.",
        ),
        (
            bomb(b"ctorch._tensor\n_rebuild_from_type_v2\n(c__builtin__\nbytearray\n",
                 b"ctorch\nTensor\n", integer(10**12), b"\x85NtR"),
            "asks for a bytearray that is not in the file.",
        ),
        (bomb(b"0"), ("holds a pickle in a form that plain checkpoints do not have (opcode POP). "
         "Load it where you trust it, and save it with torch.save and its default protocol.")),
        (bomb(b"a"), "holds a damaged pickle. Got pop from empty list."),
        (b"\x80\x02", "holds a damaged pickle. Got pickle exhausted before seeing STOP."),
    ],
)  # fmt: skip
def test_bombs(
    repacked: Callable[..., Path], refusal: Callable[..., str], pickle_: bytes, sentence: str
) -> None:
    """A few bytes that ask for terabytes or for years are refused at once."""
    start = time.monotonic()
    assert refusal(repacked(pickle_)) == f"`FILE`: {sentence}"
    assert time.monotonic() - start < 30  # not a measurement: without the check it never ends


def test_nesting_from_the_outside_in(
    repacked: Callable[..., Path], refusal: Callable[..., str]
) -> None:
    """A list that is filled after it was put away is as deep as it becomes."""
    stream = b"\x80\x02]r\x00\x00\x00\x00"
    for i in range(1, 5000):  # a new list, put into the one before, and fetched again
        key = i.to_bytes(4, "little")
        stream += b"]r%baj%b" % (key, key)
    assert refusal(repacked(stream + b"j\x00\x00\x00\x00.")) == (
        "`FILE`: is nested too deeply. Expected at most 250 containers inside each other. "
        "Got 5,000."
    )


def test_shared_lists_do_not_multiply(repacked: Callable[..., Path]) -> None:
    """A list of twice the same list, sixty times over, is looked at once each."""
    stream = b"\x80\x02]q\x00"
    for i in range(60):
        stream += b"](h%bh%beq%b" % (bytes([i]), bytes([i]), bytes([i + 1]))
    found = read(repacked(stream + END))
    assert found.names == ()
    assert compare(found, found).is_clean


def test_a_string_longer_than_the_file(tmp_path: Path, refusal: Callable[..., str]) -> None:
    """A length that somebody wrote is not taken in memory: Python would, before it reads."""
    path = tmp_path / "long.pt"
    path.write_bytes(b"\x80\x04\x8e" + (2**60).to_bytes(8, "little") + b"abc")
    assert refusal(path) == (
        "`FILE`: is a pickle that torch.save did not write. "
        "Load it where you trust it, and torch.save it."
    )


def test_names_that_are_not_utf8(
    repacked: Callable[..., Path], refusal: Callable[..., str]
) -> None:
    """A name that is no text is a sentence, not an exception of a codec."""
    text = refusal(repacked(b"\x80\x02}X\x02\x00\x00\x00\xff\xfeNs."))
    assert text.startswith("`FILE`: holds a damaged pickle. Got 'utf-8' codec can't decode")


def test_lone_surrogates_are_shown(repacked: Callable[..., Path]) -> None:
    """A name that Python can hold and no terminal can print is read, and escaped where it is shown."""
    body = tensor(count=1, offset=0, size=[1], stride=[1])[2:-1]
    path = repacked(b"\x80\x02}X\x03\x00\x00\x00\xed\xa0\x80" + body + b"s.", _0=bytes(4))
    assert read(path).names == ("checkpoint['\\ud800']",)


def test_what_torch_writes_is_allowed(files: dict[str, Path]) -> None:
    """Every global that a plain checkpoint of today's torch asks for is known."""
    for name in ("new.pt", "old.pt"):
        read(files[name])


def test_the_scan_makes_nothing(tmp_path: Path) -> None:
    """Following a pickle calls none of its functions, and ends exactly behind it."""

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.mkdir, (tmp_path / "made",)

    file = io.BytesIO(pickle.dumps(Evil(), 2))
    with pytest.raises(Refused, match="needs code to be read"):
        pickles.scan(file)
    assert not (tmp_path / "made").exists()
    two = io.BytesIO(pickle.dumps([1], 2) + b"rest")
    pickles.scan(two)
    assert two.read() == b"rest"


@pytest.mark.parametrize("name", ["new.pt", "old.pt"])
def test_every_opcode_that_torch_writes_is_followed(files: dict[str, Path], name: str) -> None:
    """The table of opcodes covers torch's own reader, so that nothing sound is refused for its form."""
    written = set()
    data = files[name].read_bytes()
    start = data.find(b"\x80\x02")
    for opcode, _, _ in pickletools.genops(data[start:]):
        written.add(opcode.name)
    assert written <= set(pickles._HANDLERS)


def test_a_quantized_tensor_larger_than_its_storage(
    tmp_path: Path, refusal: Callable[..., str]
) -> None:
    """A quantized tensor's whole shape is allocated before torch looks at its storage."""
    path = tmp_path / "q.pt"
    small = torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.qint8)
    torch.save(small.expand(10_000_000), path)
    assert refusal(path) == "`FILE`: has a quantized tensor larger than its storage."


def test_refusals_are_cannot_read(repacked: Callable[..., Path]) -> None:
    """Callers catch CannotRead, or ValueError, and nothing else."""
    with pytest.raises(CannotRead):
        read(repacked(b"\x80\x02"))
    with pytest.raises(ValueError, match="damaged"):
        read(repacked(b"\x80\x02"))
