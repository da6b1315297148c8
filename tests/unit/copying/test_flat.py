"""The short way for many small tensors that are alike: taken only where nothing is lost by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import truecopy as tc
from truecopy import _torch
from truecopy.copying.flat import copy_flat


def many(count: int = 100) -> list[torch.Tensor]:
    """Tensors that are alike, each with memory of its own."""
    return [torch.full((8,), float(i)) for i in range(count)]


def with_gradient() -> torch.Tensor:
    tensor = torch.ones(8)
    tensor.grad = torch.ones(8)
    return tensor


def with_attribute() -> torch.Tensor:
    tensor = torch.ones(8)
    tensor.note = "kept"
    return tensor


def beyond_its_storage() -> torch.Tensor:
    tensor = torch.ones(8)
    tensor.untyped_storage().resize_(16)
    return tensor


ODD: dict[str, Callable[[list[torch.Tensor]], Any]] = {
    "the same object again": lambda known: known[3],
    "a view of another": lambda known: known[3].view(8),
    "one that begins inside of another": lambda known: (
        known[3].untyped_storage() and torch.zeros(12).set_(known[3].untyped_storage(), 0, (8,))
    ),
    "a lazy clone of another": lambda known: torch._lazy_clone(known[3]),
    "a gradient": lambda _: with_gradient(),
    "an attribute": lambda _: with_attribute(),
    "another shape": lambda _: torch.ones(9),
    "gaps": lambda _: torch.ones(16)[::2],
    "another dtype": lambda _: torch.ones(8, dtype=torch.int32),
    "requires gradient": lambda _: torch.ones(8, requires_grad=True),
    "a Parameter": lambda _: torch.nn.Parameter(torch.ones(8)),
    "the negative bit": lambda _: torch.ones(8, dtype=torch.cfloat).conj().imag,
    "no memory": lambda _: torch.ones(8, device="meta"),
    "sparse": lambda _: torch.ones(8).to_sparse(),
    "not a tensor": lambda _: "text",
    "beyond its storage": lambda _: beyond_its_storage(),
}


@pytest.mark.parametrize("place", [0, 50, 100])
@pytest.mark.parametrize("odd", ODD)
def test_one_odd_member_takes_the_ordinary_way(odd: str, place: int) -> None:
    """Whatever is shared, or more than its bytes, is left to the way that knows how to treat it."""
    known = many()
    known.insert(place, ODD[odd](known))

    assert copy_flat(known) is None
    assert copy_flat(dict(enumerate(known))) is None


@pytest.mark.parametrize(
    "make", [list, tuple, lambda some: {f"t{i}": t for i, t in enumerate(some)}]
)
@pytest.mark.parametrize(
    "member",
    [
        torch.ones,
        lambda n: torch.nn.Parameter(torch.ones(n)),
        lambda n: torch.ones(n).half(),
        lambda n: torch.ones(n) > 0,
        lambda n: torch.ones(1, n).expand(1, n)[:, :],
    ],
)
@pytest.mark.parametrize("count", [1, 2, 2000])
def test_alike_and_apart_are_copied_as_ever(make: Any, member: Any, count: int) -> None:
    """Type, values, flags and order are kept, and no byte is shared, with the source or inside."""
    source = make([member(8) for _ in range(count)])
    copied = copy_flat(source)
    pairs = list(zip(values_of(source), values_of(copied), strict=True))

    assert type(copied) is type(source)
    assert not isinstance(source, dict) or list(copied) == list(source)
    for old, new in pairs:
        assert type(new) is type(old)
        assert (new.dtype, new.requires_grad, new.is_leaf) == (old.dtype, old.requires_grad, True)
        assert new.stride() == old.stride()
        assert torch.equal(new, old)
    assert not tc.relate(copied, source).shares_memory
    assert not tc.aliases(copied).groups


def values_of(structure: Any) -> list[torch.Tensor]:
    """The tensors of a dict, list or tuple."""
    return list(structure.values() if isinstance(structure, dict) else structure)


def test_what_dicts_are_keyed_with_is_copied_too() -> None:
    """A dict with tensors for keys is not taken by the short way."""
    assert copy_flat({torch.ones(1): t for t in many()}) is None


def test_lazy_tensors_stay_lazy() -> None:
    """A copy-on-write member is copied without making its own copy first."""
    source, outside = many(), torch.ones(8)
    source[0] = torch._lazy_clone(outside)
    copied = tc.copy(source)

    assert _torch.is_copy_on_write(source[0])
    assert _torch.is_copy_on_write(outside)
    assert not tc.relate(copied[0], outside).shares_memory


def test_large_ones_are_copied_as_ever() -> None:
    """Tensors of megabytes, one by one and together, have memory of their own, and the same bytes."""
    source = [torch.arange(700_000) + i for i in range(3)]
    copied = copy_flat(source)

    assert all(map(torch.equal, copied, source))
    assert all(map(torch.equal, map(tc.copy, source), source))
    assert not tc.relate(copied, source).shares_memory
    assert not tc.aliases(copied).groups


def test_many_are_written_into_what_exists() -> None:
    """With into=, the short way is not taken: the target is written."""
    source, target = many(), [torch.zeros(8) for _ in range(100)]

    assert tc.copy(source, into=target) is target
    assert all(map(torch.equal, target, source))


@pytest.mark.parametrize("inference", [False, True])
def test_copies_made_in_inference_mode_are_ordinary(inference: bool) -> None:
    """Whatever mode the caller is in, copies are ordinary tensors, and the mode is as it was."""
    with torch.inference_mode(inference):
        copied = [tc.copy(torch.ones(8)), *tc.copy(many())]
        assert torch.is_inference_mode_enabled() is inference
    assert torch.is_grad_enabled()
    assert not any(map(torch.is_inference, copied))


def test_large_lazy_tensors_stay_lazy() -> None:
    """A copy-on-write tensor of megabytes is read as it is, alone and among others like it."""
    source = torch.arange(700_000)
    lazy = torch._lazy_clone(source)
    copied = [tc.copy(lazy), *tc.copy([lazy, torch.ones_like(lazy)])]

    assert _torch.is_copy_on_write(lazy)
    assert torch.equal(copied[0], source)
    assert torch.equal(copied[1], source)
    assert not any(map(_torch.is_copy_on_write, copied))
