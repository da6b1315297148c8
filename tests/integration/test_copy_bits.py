"""Every dtype and every byte pattern, through every way that a copy can take."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import truecopy as tc
from oracles import apart, payload
from strategies import EVERY_DTYPE

LARGE = 3 << 20  # bytes: large tensors are moved by other calls than small ones


def patterns(dtype: torch.dtype, nbytes: int) -> torch.Tensor:
    """All patterns of one byte, or of two for dtypes of two; random ones for wider dtypes."""
    if dtype.itemsize == 1:
        data = np.arange(256, dtype=np.uint8)
    elif dtype.itemsize == 2:
        data = np.arange(65536, dtype=np.uint16).view(np.uint8)
    else:
        data = np.random.default_rng(0).integers(0, 256, 4096, np.uint8)
        edges = np.array([0, 0x80, 0x7F, 0xFF, 0x01], np.uint8)
        data[:1024] = edges[np.random.default_rng(1).integers(0, 5, 1024)]
    repeated = np.resize(data, max(len(data), nbytes) // 256 * 256)
    return torch.from_numpy(repeated.copy()).view(dtype)


def parameter(x: torch.Tensor) -> torch.Tensor:
    return nn.Parameter(x, requires_grad=False)


def _bytes(x: torch.Tensor) -> torch.dtype:
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}[
        x.itemsize
    ]


def _into(x: torch.Tensor) -> torch.Tensor:
    return tc.copy([x], into=_emptied(tc.copy([x])))[0]


def _emptied(values: list[torch.Tensor]) -> list[torch.Tensor]:
    values[0].untyped_storage().fill_(0x11)
    return values


def _attached_to(x: torch.Tensor) -> torch.Tensor:
    holder = torch.zeros(1)
    holder.attached = x
    return tc.copy([holder])[0].attached


def _from_storage(x: torch.Tensor) -> torch.Tensor:
    storage = tc.copy({"s": x.untyped_storage()})["s"]
    return torch.empty(0, dtype=torch.uint8).set_(storage).view(x.dtype)


def _beside_numpy(x: torch.Tensor) -> torch.Tensor:
    return tc.copy([x.view(torch.uint8).numpy(), x])[1]


ROUTES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "alone": tc.copy,
    "deepcopy": tc.deepcopy,
    "one of many": lambda x: tc.copy([x, torch.zeros(3), x.clone()])[0],
    "Parameter": lambda x: tc.copy([parameter(x)])[0].data,
    "group": lambda x: tc.copy([x, x[1:]])[0],
    "member of a group": lambda x: tc.copy([x.view(2, -1)[1:], torch.zeros(1), x])[2],
    "whole": lambda x: tc.copy([x], alias="whole")[0],
    "break": lambda x: tc.copy([x, x[1:]], alias="break")[0],
    "differentiable": lambda x: tc.copy([x], grad="keep")[0],
    "into": _into,
    "into a group": lambda x: tc.copy([x, x[1:]], into=_emptied(tc.copy([x, x[1:]])))[0],
    "attribute of a tensor": _attached_to,
    "one element": lambda x: torch.stack([tc.copy(e).view(_bytes(x)) for e in x[:300]]).view(
        x.dtype
    ),
    "storage": _from_storage,
    "read-only numpy beside": _beside_numpy,
}


@pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=str)
@pytest.mark.parametrize("route", ROUTES)
def test_every_pattern_survives_every_route(route: str, dtype: torch.dtype) -> None:
    """All 256 patterns of a byte, all 65536 of two, thousands of wider ones."""
    x = patterns(dtype, 0)
    copied = ROUTES[route](x)
    assert payload(copied) == payload(x)[: copied.numel() * x.itemsize]
    assert copied.dtype is x.dtype
    assert apart([copied[:64]], [x])


@pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=str)
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(16, -1).t(),
        lambda x: x.view(16, -1)[::3, 1::2],
        lambda x: x.view(4, 4, -1).permute(2, 0, 1)[1:],
        lambda x: x.view(16, -1)[:, :1].expand(16, 5),
        lambda x: x.as_strided((7, 5), (2, 1), 3),
    ],
    ids=["transposed", "gaps", "permuted", "expanded", "overlapping itself"],
)
def test_every_pattern_survives_odd_strides(
    view: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    """Of views, alone, in a group, with all of their storage, and written into another."""
    x = patterns(dtype, 0)
    value = view(x)
    target = tc.copy([value, x])
    target[1].untyped_storage().fill_(0)
    tc.copy([value, x], into=target)
    for copied in (
        tc.copy(value),
        tc.copy([value])[0],
        tc.copy([value, x])[0],
        tc.copy(value, alias="whole"),
        tc.copy([value, x], alias="break")[0],
        target[0],
    ):
        assert payload(copied) == payload(value)


@pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=str)
def test_every_pattern_survives_in_large_tensors(dtype: torch.dtype) -> None:
    """Which are moved one by one, in pieces, into memory that nobody touched before."""
    x = patterns(dtype, LARGE)
    turned = x.view(16, -1).t()
    target = torch.empty_like(x)
    tc.copy([x], into=[target])
    for copied in (tc.copy(x), tc.copy([x, x[5:]])[0], target):
        assert torch.equal(copied.view(torch.uint8), x.view(torch.uint8))
    copied = tc.copy(turned)
    assert copied.stride() == turned.stride()
    assert torch.equal(copied.t().reshape(-1).view(torch.uint8), x.view(torch.uint8))


NUMPY = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", ">f4",
         ">i8", "g", "G", "M8[s]", "m8[D]", "S3", "U2", "V5", "f4,i8"]  # fmt: skip


@pytest.mark.parametrize("dtype", NUMPY)
def test_every_numpy_dtype_survives(dtype: str) -> None:
    """Byte order, records, text, dates; alone and in a group with its parts."""
    kind = np.dtype(dtype)
    rng = np.random.default_rng(2)
    x = np.frombuffer(rng.integers(0, 100, kind.itemsize * 60, np.uint8).tobytes(), kind).copy()
    for value in (x, x.reshape(6, 10).T, x[::-2], x[3:4], x[:0]):
        for copied in (tc.copy(value), tc.copy([value, x])[0], tc.copy([value], alias="break")[0]):
            assert type(copied) is np.ndarray
            assert copied.dtype == kind
            assert copied.shape == value.shape
            assert copied.tobytes() == value.tobytes()
            assert not np.shares_memory(copied, x)


QUANTIZED = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}
ONLY_BYTES = {
    dtype
    for name in dir(torch)
    if isinstance(dtype := getattr(torch, name), torch.dtype)
    and dtype not in QUANTIZED.union(EVERY_DTYPE)
}
"""Whatever else this torch has: bits and parts of bytes, with which it computes nothing."""


@pytest.mark.parametrize("dtype", sorted(ONLY_BYTES, key=str), ids=str)
def test_dtypes_that_are_only_bytes(dtype: torch.dtype) -> None:
    """A dtype that torch gains is tested from then on."""
    x = torch.arange(256, dtype=torch.int16).to(torch.uint8)
    x = x.view(dtype) if dtype.itemsize == 1 else x.view(torch.uint16).view(dtype)
    for copied in (tc.copy(x), tc.copy([x])[0], tc.copy([x, x[1:]])[0], _into(x)):
        assert copied.dtype is dtype
        assert payload(copied) == payload(x)
