"""Comparing: bits where nothing else is asked for, numbers where a tolerance is."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from truecopy.errors import UsageError
from truecopy.files import elements
from truecopy.files.checkpoint import Checkpoint
from truecopy.files.comparison import Comparison, compare
from truecopy.files.elements import Tolerance, measure

NAN = math.nan
INF = math.inf


def checkpoint(obj: Any, kind: Any = "torch") -> Checkpoint:
    return Checkpoint(Path("memory"), kind, obj, 0)


def compared(a: Any, b: Any, **options: Any) -> Comparison:
    return compare(checkpoint(a), checkpoint(b), **options)


def only(comparison: Comparison) -> tuple[str, str, str, str]:
    (difference,) = comparison.differences
    return difference.path, difference.what, difference.a, difference.b


# --- elements -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "differing", "max_abs", "max_rel", "nan"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0, None, None, 0),
        ([1.0, 2.0], [1.0, 2.5], 1, 0.5, 0.2, 0),
        ([0.0], [-0.0], 1, 0.0, 0.0, 0),
        ([NAN], [NAN], 0, None, None, 0),
        ([NAN, 1.0], [1.0, NAN], 2, None, None, 2),
        ([NAN, 1.0], [1.0, 3.0], 2, 2.0, 2 / 3, 1),
        ([INF], [INF], 0, None, None, 0),
        ([INF], [-INF], 1, INF, INF, 0),
        ([INF], [1.0], 1, INF, INF, 0),
        ([1.0], [0.0], 1, 1.0, INF, 0),
    ],
)
def test_floats(
    a: list[float], b: list[float], differing: int, max_abs: Any, max_rel: Any, nan: int
) -> None:
    """Equal bits are equal, whatever they mean: -0.0 is not 0.0, a NaN is itself."""
    found = measure(torch.tensor(a), torch.tensor(b), Tolerance())
    assert (found.differing, found.nan_in_one) == (differing, nan)
    assert found.max_abs == max_abs
    assert found.max_rel == (None if max_rel is None else pytest.approx(max_rel))


def test_payloads_of_nan() -> None:
    """Two NaNs of other bits differ exactly, and are equal within any tolerance."""
    a = torch.tensor([0x7FC00000], dtype=torch.int32).view(torch.float32)
    b = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert measure(a, b, Tolerance()).differing == 1
    assert measure(a, b, Tolerance()).max_abs is None
    assert measure(a, b, Tolerance(atol=1e-9)).differing == 0


@pytest.mark.parametrize(
    ("a", "b", "rtol", "atol", "differing"),
    [
        (1.0, 1.1, 0.0, 0.2, 0),
        (1.0, 1.1, 0.0, 0.05, 1),
        (100.0, 110.0, 0.1, 0.0, 0),
        (0.0, -0.0, 1e-9, 0.0, 0),
        (NAN, NAN, 1e-9, 0.0, 0),
        (NAN, 1.0, 1e9, 1e9, 1),
        (INF, INF, 1e-9, 0.0, 0),
        (INF, 1.0, 1e9, 1e9, 1),
        (INF, -INF, 1e9, 1e9, 1),
    ],
)
def test_tolerances(a: float, b: float, rtol: float, atol: float, differing: int) -> None:
    """`|a - b| <= atol + rtol * |b|`, with NaN equal to NaN and no infinity near anything."""
    found = measure(torch.tensor([a]), torch.tensor([b]), Tolerance(rtol, atol))
    assert found.differing == differing


@pytest.mark.parametrize(
    ("dtype", "a", "b", "gap"),
    [
        (torch.int64, 2**63 - 1, -(2**63), 2**64 - 1),
        (torch.int64, 2**60, 2**60 + 1, 1),
        (torch.int64, 3, 5, 2),
        (torch.uint64, 0, 2**64 - 1, 2**64 - 1),
        (torch.uint8, 0, 255, 255),
        (torch.bool, True, False, 1),
    ],
)
def test_integers(dtype: torch.dtype, a: int, b: int, gap: int) -> None:
    """Differences of integers are exact, beyond what doubles hold."""
    found = measure(torch.tensor([a], dtype=dtype), torch.tensor([b], dtype=dtype), Tolerance())
    assert (found.differing, found.max_abs) == (1, gap)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64,
        torch.complex128, torch.float64, torch.uint16, torch.uint32, torch.int8,
    ],
)  # fmt: skip
def test_every_dtype(dtype: torch.dtype) -> None:
    """One of three elements differs by one, in every dtype."""
    a = torch.tensor([1, 2, 3]).to(dtype)
    b = torch.tensor([1, 2, 4]).to(dtype)
    found = measure(a, b, Tolerance())
    assert (found.elements, found.differing, found.max_abs) == (3, 1, 1)


def test_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large and strided tensors are compared piece by piece, with the same numbers."""
    monkeypatch.setattr(elements, "_PIECE", 7)
    a = torch.arange(120.0).view(4, 5, 6)
    b = a.transpose(0, 2).contiguous().transpose(0, 2).clone()
    b[3, 4, 5] += 2
    b[0, 1, 2] = NAN
    found = measure(a, b, Tolerance())
    assert (found.elements, found.differing, found.max_abs, found.nan_in_one) == (120, 2, 2, 1)


def test_expanded_tensors_take_no_time() -> None:
    """A scalar expanded to 2**60 elements is compared once."""
    a, b = torch.tensor(1.0).expand(2**30, 2**30), torch.tensor(2.0).expand(2**30, 2**30)
    found = measure(a, b, Tolerance())
    assert (found.elements, found.differing, found.max_abs) == (2**60, 2**60, 1)


def test_windows_take_no_time() -> None:
    """A million overlapping windows reach few bytes: these are compared, and elements not counted."""
    base, other = torch.zeros(2_000_000), torch.zeros(2_000_000)
    size, stride = (1_000_000, 1_000_000), (1, 1)
    assert (
        measure(
            base.as_strided(size, stride), other.as_strided(size, stride), Tolerance()
        ).differing
        == 0
    )
    other[-2] = 1
    found = measure(base.as_strided(size, stride), other.as_strided(size, stride), Tolerance())
    assert found.differing
    assert not found.counted


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20), st.data())
@settings(deadline=None)
def test_any_bits_equal_themselves(bits: list[int], data: st.DataObject) -> None:
    """Any pattern of bits equals itself as any dtype, and one flipped bit is one difference."""
    ints = torch.tensor(bits, dtype=torch.int64).to(torch.uint32).view(torch.int32)
    dtype = data.draw(
        st.sampled_from([torch.float32, torch.int32, torch.float8_e5m2, torch.bfloat16])
    )
    assert measure(ints.view(dtype), ints.clone().view(dtype), Tolerance()).differing == 0
    other = ints.clone()
    other[data.draw(st.integers(0, len(bits) - 1))] ^= 1 << data.draw(st.integers(0, 30))
    assert measure(ints.view(dtype), other.view(dtype), Tolerance()).differing == 1


# --- structures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ({"x": 1}, {"x": 2}, ("checkpoint['x']", "value", "1", "2")),
        ({"x": 1}, {"x": True}, ("checkpoint['x']", "type", "int", "bool")),
        ([0.0], [-0.0], ("checkpoint[0]", "value", "0.0", "-0.0")),
        ({1}, {2}, ("checkpoint", "value", "a set of 1", "a set of 1")),
        ({"x": [1, 2]}, {"x": [1]}, ("checkpoint['x']", "length", "2", "1")),
        ({"x": [1]}, {"x": (1,)}, ("checkpoint['x']", "type", "list", "tuple")),
        ("\x1b[2J", "b", ("checkpoint", "value", r"'\x1b[2J'", "'b'")),
        (
            torch.ones(2), torch.ones(3),
            ("checkpoint", "shape", "(2,)", "(3,)"),
        ),
        (
            torch.ones(2), torch.ones(2, dtype=torch.float64),
            ("checkpoint", "dtype", "float32", "float64"),
        ),
        (
            torch.ones(2), torch.nn.Parameter(torch.ones(2), requires_grad=False),
            ("checkpoint", "type", "Tensor", "Parameter"),
        ),
        (
            torch.ones(2), torch.ones(2, requires_grad=True),
            ("checkpoint", "flags", "requires_grad=False", "requires_grad=True"),
        ),
        (
            torch.eye(2).to_sparse(), torch.eye(2).to_sparse_csr(),
            ("checkpoint", "type", "sparse_coo", "sparse_csr"),
        ),
        (
            torch.quantize_per_tensor(torch.ones(1), 1.0, 0, torch.qint8),
            torch.quantize_per_tensor(torch.ones(1) * 2, 2.0, 0, torch.qint8),
            ("checkpoint", "flags", "scale 1.0, zero point 0", "scale 2.0, zero point 0"),
        ),
    ],
)  # fmt: skip
def test_one_difference(a: Any, b: Any, expected: tuple[str, str, str, str]) -> None:
    """Each kind of difference is told once, with its path and both sides."""
    found = compared(a, b)
    assert only(found) == expected
    assert not found.is_clean


@pytest.mark.parametrize(
    "value",
    [
        NAN, {"a": [1, (2, {"b": None})]}, torch.tensor(NAN), torch.empty(0, 3), {1, "a"},
        torch.eye(3).to_sparse(), torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        torch.ones(3).untyped_storage(), bytearray(b"abc"), np.ones(3), torch.ones(2, device="meta"),
        torch.ones(2, dtype=torch.complex64).conj(),
    ],
)  # fmt: skip
def test_everything_equals_itself(value: Any) -> None:
    """A value set beside itself has no difference."""
    assert compared(value, value).is_clean


def test_missing_and_extra() -> None:
    """Names that stand in one only are listed by side."""
    found = compared({"a": 1, "b": 2}, {"b": 2, "c": 3})
    assert (found.only_a, found.only_b) == (("checkpoint['a']",), ("checkpoint['c']",))


def test_attributes_are_compared() -> None:
    """The `_metadata` of a state_dict and the attributes of a Parameter are data too."""
    a, b = torch.nn.Linear(1, 1).state_dict(), torch.nn.Linear(1, 1).state_dict()
    b.update(a)
    b._metadata[""]["version"] = 2  # type: ignore[attr-defined]
    assert only(compared(a, b)) == ("checkpoint._metadata['']['version']", "value", "1", "2")


def test_ties() -> None:
    """Values equal, sharing not: that is a difference, and it is told as such."""
    x = torch.ones(4)
    found = compared({"a": x, "b": x}, {"a": x, "b": x.clone()})
    assert not found.differences
    assert [tie.paths for tie in found.ties_only_a] == [("checkpoint['a']", "checkpoint['b']")]
    assert not found.ties_only_b
    assert not found.is_clean


def test_ties_in_other_places() -> None:
    """Two views that overlap elsewhere are another tie, though the names and values are the same."""
    x = torch.zeros(8)
    found = compared({"a": x[:4], "b": x[2:6]}, {"a": x[:4], "b": x[3:7]})
    assert [tie.offsets for tie in (*found.ties_only_a, *found.ties_only_b)] == [(0, 8), (0, 12)]


def test_strides_are_information() -> None:
    """Another order in memory is listed, and is no finding."""
    x = torch.arange(6.0).view(2, 3)
    found = compared(x, x.t().contiguous().t())
    assert found.is_clean
    assert [(d.a, d.b) for d in found.layouts] == [("(3, 1)", "(1, 2)")]


def test_between_formats() -> None:
    """Arrays and tensors of the same names and dtypes are equal: the format is not the content."""
    a = Checkpoint(Path("a"), "npz", {"x": np.arange(3.0)}, 0)
    b = Checkpoint(Path("b"), "safetensors", {"x": torch.arange(3, dtype=torch.float64)}, 0)
    assert compare(a, b).is_clean


def test_dtypes_with_the_same_values() -> None:
    """Another dtype is a difference; by how much the values moved is told with it."""
    (found,) = compared(torch.tensor([1.0, 0.1]), torch.tensor([1.0, 0.1]).bfloat16()).differences
    assert (found.what, found.differing) == ("dtype", 1)
    assert found.max_abs == pytest.approx(0.10009765625 - 0.1, abs=1e-8)


def test_arrays_that_torch_has_not() -> None:
    """Strings, dates and structures are compared by their bytes."""
    a, b = np.array(["x", "y"]), np.array(["x", "z"])
    (found,) = compare(checkpoint(a, "npz"), checkpoint(b, "npz")).differences
    assert (found.what, found.differing) == ("values", None)
    assert compare(checkpoint(a, "npz"), checkpoint(a.copy(), "npz")).is_clean


def test_worst_first() -> None:
    """Among values the largest difference comes first, NaN before any number."""
    a = {"small": torch.ones(1), "nan": torch.ones(1), "large": torch.ones(1)}
    b = {"small": a["small"] + 1, "nan": a["nan"] * NAN, "large": a["large"] + 9}
    paths = [d.path for d in compared(a, b).differences]
    assert paths == [f"checkpoint['{name}']" for name in ("nan", "large", "small")]


def test_cycles_end() -> None:
    """A list that holds itself is compared once."""
    a: list[Any] = [1]
    b: list[Any] = [1]
    a.append(a)
    b.append(b)
    assert compared(a, b).is_clean


@pytest.mark.parametrize("value", [-1.0, NAN, INF])
def test_tolerances_that_mean_nothing(value: float) -> None:
    """A tolerance is a number of 0 or more."""
    with pytest.raises(UsageError) as caught:
        compared(1, 1, rtol=value)
    assert str(caught.value) == f"rtol={value} means nothing. Expected a number of 0 or more."


def test_records_survive_json() -> None:
    """Infinities are text, and the keys stand in one order."""
    body = compared(torch.tensor([INF]), torch.tensor([1.0])).to_json()
    assert body["differences"][0]["max_abs"] == "inf"
    assert list(body)[:3] == ["kind", "version", "made_with"]
