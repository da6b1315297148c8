"""Copies of random structures, compared byte by byte with oracles that list every byte."""

import contextlib
import copy
import dataclasses
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import truecopy as tc
from oracles import (
    addresses,
    apart,
    base_address,
    offsets_of,
    partition,
    payload,
    poke,
    portrait,
)
from strategies import mixed_views, structures, structures_with_modules, tensors


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None)


def distinct(values: list[Any]) -> list[Any]:
    return list({id(value): value for value in values}.values())


def pairs(values: list[Any], copies: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(values, copies, strict=True))


def is_dense(value: Any) -> bool:
    """Whether a value reaches each byte between its first and its last, each once."""
    reached = addresses(value)
    size = value.element_size() if isinstance(value, torch.Tensor) else value.itemsize
    count = offsets_of(value).size
    return bool(count) and len(reached) == max(reached) - min(reached) + 1 == count * size


@given(mixed_views())
@examples(60)
def test_copies_are_bit_exact_apart_and_as_tied_as_their_source(values: list[Any]) -> None:
    """The contract: bytes, type, shape, dtype, flags; no byte shared; the same groups inside."""
    before = [payload(value) for value in values]
    copies = tc.copy(values)

    for value, copied in pairs(values, copies):
        assert type(copied) is type(value)
        assert (copied.shape, copied.dtype) == (value.shape, value.dtype)
        assert payload(copied) == payload(value)
        if isinstance(value, torch.Tensor):
            assert copied.requires_grad == value.requires_grad
            assert (copied.is_conj(), copied.is_neg()) == (value.is_conj(), value.is_neg())
    assert apart(values, copies)
    assert tc.relate(values, copies).kind == "disjoint"
    assert partition(copies) == partition(values)
    assert [id(c) for c in copies].index(id(copies[-1])) == [id(v) for v in values].index(
        id(values[-1])
    )
    assert [payload(value) for value in values] == before


@given(mixed_views())
@examples(60)
def test_dense_values_keep_their_strides(values: list[Any]) -> None:
    """Any order of dimensions; and expanded dimensions stay expanded."""
    for value, copied in pairs(values, tc.copy(values)):
        strides = [
            v.stride() if isinstance(v, torch.Tensor) else v.strides for v in (value, copied)
        ]
        if is_dense(value):
            assert strides[0] == strides[1]
        repeated = [(n > 1 and s == 0) for n, s in zip(value.shape, strides[0], strict=True)]
        if offsets_of(value).size:
            assert repeated == [
                (n > 1 and s == 0) for n, s in zip(copied.shape, strides[1], strict=True)
            ]


@given(st.data(), mixed_views())
@examples(60)
def test_a_write_does_to_the_copy_what_it_does_to_the_source(
    data: st.DataObject, values: list[Any]
) -> None:
    """Mirror: one byte written on both sides, seen by the same values on both sides."""
    copies = tc.copy(values)
    place = data.draw(st.integers(0, len(values) - 1))
    count = offsets_of(values[place]).size
    if count:
        element = data.draw(st.integers(0, count - 1))
        poke(copies[place], element, 0x5A)
        poke(values[place], element, 0x5A)
    assert list(map(payload, copies)) == list(map(payload, values))


@given(mixed_views())
@examples(60)
def test_peak_memory_is_what_the_plan_says(values: list[Any]) -> None:
    """No more than the spans of the groups and 2 percent; small ones rounded up to an allocation."""
    plan = tc.plan(values)
    copies = distinct(tc.copy(values))
    held = {
        base: size
        for copied in copies
        for base, size in [
            (copied.untyped_storage().data_ptr(), copied.untyped_storage().nbytes())
            if isinstance(copied, torch.Tensor)
            else _owner(copied)
        ]
        if size
    }
    assert plan.nbytes == sum(held.values())


def _owner(array: np.ndarray) -> tuple[int, int]:
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    view = np.asarray(owner)
    return int(view.__array_interface__["data"][0]), view.nbytes


@given(mixed_views())
@examples(60)
def test_alias_break_ends_all_sharing(values: list[Any]) -> None:
    """Every value gets its own memory; an object met twice is still one."""
    copies = tc.copy(values, alias="break")
    assert partition(distinct(copies)) == set()
    assert list(map(payload, copies)) == list(map(payload, values))
    assert apart(values, copies)


@given(mixed_views())
@examples(60)
def test_alias_whole_keeps_storages_whole(values: list[Any]) -> None:
    """Distances between all values of one storage, strides and gaps are what they were."""
    copies = tc.copy(values, alias="whole")
    assert list(map(payload, copies)) == list(map(payload, values))
    assert apart(values, copies)
    assert partition(copies) == partition(values)
    for value, copied in pairs(values, copies):
        if isinstance(value, torch.Tensor):
            assert copied.stride() == value.stride()
            assert copied.untyped_storage().nbytes() >= value.untyped_storage().nbytes()


@given(mixed_views())
@examples(60)
def test_alias_error_raises_exactly_where_something_is_shared(values: list[Any]) -> None:
    """And names both paths."""
    if partition(distinct(values)):
        with pytest.raises(tc.NotIndependent, match=r"`values\[\d\]`: shares memory with values"):
            tc.copy(values, alias="error")
    else:
        assert list(map(payload, tc.copy(values, alias="error"))) == list(map(payload, values))


@given(st.data(), mixed_views(), st.integers(0, 99))
@examples(60)
def test_into_writes_in_place_what_a_copy_would_hold(
    data: st.DataObject, values: list[Any], seed: int
) -> None:
    """After a scramble of the target: the same bytes, at the addresses where they were."""
    target = tc.copy(values)
    where = [base_address(value) + offsets_of(value) for value in target]
    for value in target:
        if size := offsets_of(value).size:
            poke(value, data.draw(st.integers(0, size - 1)), seed)

    assert tc.copy(values, into=target) is target

    assert list(map(payload, target)) == list(map(payload, values))
    assert all(
        (base_address(value) + offsets_of(value) == place).all()
        for value, place in zip(target, where, strict=True)
    )


@given(structures(tensors()))
@examples(60)
def test_structures_copy_as_the_standard_library_copies_them(value: Any) -> None:
    """Containers of every kind: types, keys, order and identities as with `copy.deepcopy`."""
    before = portrait(value)
    copied = tc.copy(value)

    assert portrait(copied) == before == portrait(value)
    with contextlib.suppress(dataclasses.FrozenInstanceError):  # deepcopy's, of frozen slots
        assert portrait(copy.deepcopy(value)) == portrait(copied)
    assert tc.relate(value, copied).kind in ("disjoint", "same")


@given(structures_with_modules())
@examples(30)
def test_modules_and_optimizers_inside_of_structures(value: Any) -> None:
    """Ties, gradients and state of optimizers; and a second copy of the copy is alike."""
    copied = tc.copy(value)
    assert portrait(copied) == portrait(value)
    assert portrait(tc.copy(copied)) == portrait(value)
    assert tc.relate(value, copied).kind in ("disjoint", "same")
    mine, theirs = (
        sorted(len(group.paths) for group in tc.aliases(side).groups) for side in (value, copied)
    )
    assert mine == theirs


@given(mixed_views(most=3))
@examples(30)
def test_copies_pickle_like_tensors_that_were_made_apart(values: list[Any]) -> None:
    """What comes back has the bytes of the source."""
    back = []
    for copied in tc.copy(values):  # one by one: torch refuses two dtypes on one storage
        file = io.BytesIO()
        torch.save(copied, file)
        file.seek(0)
        back.append(torch.load(file, weights_only=False))
    assert [payload(b.detach() if isinstance(b, torch.Tensor) else b) for b in back] == [
        payload(value) for value in values
    ]


class Refuses(TorchFunctionMode):
    """Raises if anything of torch is called through it."""

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        raise AssertionError(f"{func} was seen by a mode of the user")


class Looks(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def default_dtype() -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize(
    "surroundings",
    [
        torch.no_grad,
        torch.enable_grad,
        torch.inference_mode,
        lambda: torch.device("meta"),
        default_dtype,
        lambda: torch.autocast("cpu"),
        lambda: torch.autograd.set_multithreading_enabled(False),
        Refuses,
        Looks,
    ],
    ids=[
        "no_grad", "enable_grad", "inference_mode", "meta by default", "float64 by default", "autocast",
        "one thread", "function mode", "dispatch mode",
    ],
)  # fmt: skip
@given(values=mixed_views())
@examples(15)
def test_nothing_around_a_copy_changes_it(
    surroundings: Callable[[], Any], values: list[Any]
) -> None:
    """Modes, defaults and contexts of the caller."""
    with surroundings():
        copies = tc.copy(values)
        alone = [tc.copy(value) for value in values]
        planned = tc.plan(values)
        target = tc.copy(values)
        tc.copy(values, into=target)
    for made in (copies, alone, target):
        assert list(map(payload, made)) == list(map(payload, values))
        assert apart(made, values)
        tensors_made = [tensor for tensor in made if isinstance(tensor, torch.Tensor)]
        assert not any(tensor.is_inference() for tensor in tensors_made)
        assert all(tensor.device.type == "cpu" for tensor in tensors_made)
    assert [getattr(c, "requires_grad", None) for c in copies] == [
        getattr(v, "requires_grad", None) for v in values
    ]
    assert partition(copies) == partition(values)
    assert planned.nbytes == tc.plan(values).nbytes


@given(st.data())
@examples(40)
def test_grad_keep_gives_the_gradient_of_a_clone(data: st.DataObject) -> None:
    """Of leaves, of what was computed from them, and of views: as if each had been cloned."""
    shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    maker = data.draw(
        st.sampled_from(
            [
                lambda: [x],
                lambda: [x * 3],
                lambda: [x, x * x],
                lambda: [x, x.t() if x.dim() == 2 else x.flatten()],
                lambda: [x.expand(4, *x.shape)],
                lambda: [x, x[:1]],
                lambda: [(y := x.exp()), y[..., :1], y.reshape(-1)],
                lambda: [x.detach(), x * 2],
            ]
        )
    )
    values = maker()
    copies = tc.copy(values, grad="keep")
    reference = [value.clone() for value in values]

    assert apart(copies, values)
    assert partition(copies) == partition(values)
    gradients = [
        torch.autograd.grad(
            sum((side[i] * (i + 1)).sum() for i in range(len(side)) if side[i].requires_grad),
            x,
            retain_graph=True,
        )[0]
        for side in (copies, reference)
    ]
    assert torch.equal(*gradients)
