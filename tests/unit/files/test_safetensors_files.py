"""Headers of safetensors files: each way to lie is one sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from truecopy.files.inspection import inspect
from truecopy.files.reading import read

AGAIN = "Copy or download the file again; if it stays so, do not trust it."


def entry(start: int, end: int, dtype: str = "U8", shape: list[Any] | None = None) -> Any:
    shape = [end - start] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_a_sound_header(header: Callable[..., Path]) -> None:
    """The material of these tests is read where it is sound."""
    found = read(header({"a": entry(0, 2), "b": entry(2, 3)}, b"abc"))
    assert {name: bytes(tensor.tolist()) for name, tensor in found.obj.items()} == {
        "a": b"ab",
        "b": b"c",
    }


@pytest.mark.parametrize(
    ("fields", "data", "sentence"),
    [
        ({"a": entry(0, 4)}, b"abc", "is cut off. Got 3 bytes of data, where its header says 4."),
        (
            {"a": entry(0, 2)}, b"abc",
            "has bytes that belong to no tensor. Got 3 bytes of data, where its header says 2.",
        ),
        (
            {"a": entry(0, 2), "b": entry(1, 3)}, b"abc",
            "has a tensor 'b' that overlaps the tensor before it. Got bytes 1 to 3 after byte 2.",
        ),
        (
            {"a": entry(0, 1), "b": entry(2, 3)}, b"abc",
            "has a tensor 'b' that leaves a gap before it. Got bytes 2 to 3 after byte 1.",
        ),
        (
            {"a": entry(0, 3, shape=[2**62, 2**62])}, b"abc",
            ("gives 'a' bytes that do not fit its shape. "
            "Got U8 [4611686018427387904, 4611686018427387904] in bytes 0 to 3."),
        ),
        (
            {"a": entry(3, 0)}, b"abc",
            "gives 'a' a shape or offsets that are no counts.",
        ),
        ({"a": entry(0, 3, shape=[3.0])}, b"abc", "gives 'a' a shape or offsets that are no counts."),
        ({"a": entry(0, 3, shape=[True])}, b"abc", "gives 'a' a shape or offsets that are no counts."),
        ({"a": entry(0, 3, "\x1b[2J")}, b"abc", r"gives 'a' an unknown dtype. Got \x1b[2J."),
        ({"\x1b[2J\u202e": 3}, b"",
         r"does not say dtype, shape and data_offsets of '\x1b[2J\u202e'."),
        ({"__metadata__": {"a": 1}}, b"",
         "has metadata that is not text. Got a __metadata__ of another form."),
        ([1], b"", None),
        (b'{"a":' * 100_000, b"", "has JSON that is nested too deeply."),
        (
            b'{"a": 1, "a": 2}', b"",
            "has JSON that cannot be read. Got ValueError: the key 'a' is there twice.",
        ),
        (b'{"a": NaN}', b"", "has JSON that cannot be read. Got ValueError: NaN is no JSON."),
        (b'{"a"', b"", ("has JSON that cannot be read. "
         "Got JSONDecodeError: Expecting ':' delimiter: line 1 column 5 (char 4).")),
        (b'{"\xff": 1}', b"", "has JSON that is not UTF-8. Got invalid start byte at 2."),
        ({"k" * 1001: entry(0, 3)}, b"abc",
         ("has a name too long. Got 1,001 characters, beginning "
         f"'{'k' * 38}...{'k' * 39}'.")),
    ],
)  # fmt: skip
def test_headers_that_lie(
    header: Callable[..., Path],
    refusal: Callable[..., str],
    fields: Any,
    data: bytes,
    sentence: str | None,
) -> None:
    """Offsets, shapes, dtypes, names and JSON itself are checked before anything is loaded."""
    text = refusal(header(fields, data))
    if sentence is None:  # not even the first character of a header
        assert "is of no kind that is known here" in text
    else:
        assert text == f"`FILE`: {sentence} {AGAIN}"


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 200, 100_000_001])
def test_absurd_header_lengths(
    header: Callable[..., Path], refusal: Callable[..., str], length: int
) -> None:
    """A header longer than the file is refused without taking its length in memory."""
    text = refusal(header({"a": entry(0, 1)}, b"a", length=length))
    assert text.startswith("`FILE`: has a header longer than the file or the format allows. Got ")


def test_ties_in_the_metadata(tmp_path: Path) -> None:
    """What `save_model` writes for tied weights is tied again, and told as sharing."""
    from safetensors.torch import save_model

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight = model[0].weight
    path = tmp_path / "tied.safetensors"
    save_model(model, str(path))
    found = read(path)
    assert found.obj["0.weight"] is found.obj["1.weight"]
    (tie,) = inspect(found).ties
    assert set(tie.paths) == {"checkpoint['0.weight']", "checkpoint['1.weight']"}


def test_metadata_that_is_only_text(header: Callable[..., Path]) -> None:
    """Free text in the metadata is no tie, and neither is a name that has bytes of its own."""
    metadata = {"format": "pt", "a": "b", "b": "b", "c": "no-such-tensor"}
    found = read(header({"__metadata__": metadata, "a": entry(0, 1), "b": entry(1, 2)}, b"ab"))
    assert list(found.obj) == ["a", "b"]
    assert not inspect(found).ties


DTYPES = [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.bool, torch.int64, torch.uint16]


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(
            lambda name: name != "__metadata__"
        ),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3)),
        max_size=4,
    )
)
@settings(deadline=None)
def test_whatever_safetensors_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, spec: dict[str, Any]
) -> None:
    """Any names, dtypes and shapes come back, as safetensors' own reader gives them."""
    data = save({name: torch.ones(shape).to(dtype) for name, (dtype, shape) in spec.items()})
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_bytes(data)
    found, expected = read(path).obj, load(data)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype is tensor.dtype
        assert found[name].shape == tensor.shape
        assert bool((found[name].float() == tensor.float()).all())


def test_json_integers_of_any_length(
    header: Callable[..., Path], refusal: Callable[..., str]
) -> None:
    """A number of a million digits is refused, not computed."""
    text = refusal(header(b'{"a": ' + b"9" * 1_000_000 + b"}"))
    assert text.startswith(
        "`FILE`: has JSON that cannot be read. Got ValueError: Exceeds the limit"
    )


def test_headers_are_plain_json(header: Callable[..., Path]) -> None:
    """The helper of these tests writes what the format says."""
    path = header({"a": entry(0, 1)}, b"a")
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert json.loads(data[8 : 8 + length]) == {"a": entry(0, 1)}
