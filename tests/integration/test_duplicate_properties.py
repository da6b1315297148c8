"""Duplicates of random structures, compared byte by byte with oracles that list every byte."""

import contextlib
import itertools
import sys
import types
import unittest
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import truecopy as tc
from oracles import apart, offsets_of, partition, payload, poke, portrait
from strategies import mixed_views, structures, structures_with_modules, tensors


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None)


def touch(value: Any, element: int, byte: int) -> None:
    """Write one byte of one element through torch or numpy, as a program would."""
    if isinstance(value, torch.Tensor):
        storage = value.detach().untyped_storage()
        storage[int(offsets_of(value).reshape(-1)[element])] = byte
    else:
        poke(value, element, byte)


@given(st.data(), mixed_views(), st.integers(0, 3), st.sampled_from(["list", "lazy"]))
@examples(80)
def test_each_of_many_is_bit_exact_apart_and_as_tied_as_the_source(
    data: st.DataObject, values: list[Any], n: int, how: Any
) -> None:
    """N copies: bytes, types, flags and groups of the source; no byte of one is a byte of another."""
    before = [payload(value) for value in values]
    made = tc.duplicate(values, n, how=how)

    assert len(made) == n
    for copies in made:
        for value, copied in zip(values, copies, strict=True):
            assert type(copied) is type(value)
            assert (copied.shape, copied.dtype) == (value.shape, value.dtype)
            if isinstance(value, torch.Tensor):
                assert copied.requires_grad == value.requires_grad
                assert (copied.is_conj(), copied.is_neg()) == (value.is_conj(), value.is_neg())
        assert tc.relate(copies, values).kind == "disjoint"
    if n > 1:
        assert tc.relate(made[0], made[1]).kind == "disjoint"
    # One byte of one duplicate is written: it alone changes, as the source would.
    if n:
        place = data.draw(st.integers(0, len(values) - 1))
        if count := offsets_of(values[place]).size:
            element = data.draw(st.integers(0, count - 1))
            touch(made[0][place], element, 0x5A)
            mirror = tc.copy(values)
            poke(mirror[place], element, 0x5A)
            assert list(map(payload, made[0])) == list(map(payload, mirror))
    for copies in made[1:]:
        assert list(map(payload, copies)) == before
    for copies in made:
        assert partition(copies) == partition(values)
        assert apart(values, copies)
    assert [payload(value) for value in values] == before


@given(mixed_views(), st.integers(0, 3), st.data())
@examples(80)
def test_every_slice_of_a_stack_is_a_copy(values: list[Any], n: int, data: st.DataObject) -> None:
    """Bit-exact, apart from the source and from every other slice, tied inside as the source is."""
    dim = data.draw(st.sampled_from([0, -1]))
    made = tc.duplicate(values, n, how="stack", dim=dim)
    slices = [
        [value[i, ...] if dim == 0 else value[..., i] for value in map(as_torch, made)]
        for i in range(n)
    ]
    for copies in slices:
        assert [payload(copied) for copied in copies] == [payload(value) for value in values]
        assert partition(copies) == partition(values)
        assert apart(values, copies)
    assert all(apart(slices[i], slices[j]) for i in range(n) for j in range(i))
    for value, stacked in zip(values, made, strict=True):
        assert type(stacked) is type(value)
        assert stacked.dtype == value.dtype
        if isinstance(value, torch.Tensor):
            assert stacked.requires_grad == value.requires_grad


def as_torch(value: Any) -> Any:
    """What can be sliced into tensors without a copy, whatever gradient it requires."""
    return value.detach() if isinstance(value, torch.Tensor) else value


@given(mixed_views(), st.integers(1, 3))
@examples(60)
def test_every_slice_of_a_view_is_the_source(values: list[Any], n: int) -> None:
    """The same bytes at the same addresses, and not one more allocated."""
    made = tc.duplicate(values, n, how="view")
    for value, seen in zip(values, made, strict=True):
        for i in range(n):
            one = as_torch(seen)[i, ...]
            assert payload(one) == payload(value)
            if offsets_of(value).size:
                assert tc.relate(one, value).kind in ("identical", "same")


@given(structures(tensors()), st.sampled_from(["list", "lazy"]))
@examples(60)
def test_structures_are_what_copies_of_them_are(value: Any, how: Any) -> None:
    """Containers of every kind: types, keys, order and identities, in each of the duplicates."""
    made = tc.duplicate(value, 2, how=how)
    assert [portrait(one) for one in made] == [portrait(value)] * 2
    assert tc.relate(made[0], made[1]).kind in ("disjoint", "same" if made[0] is made[1] else "")


@given(structures_with_modules(), st.sampled_from(["list", "lazy", "stack"]))
@examples(40)
def test_models_and_optimizers(value: Any, how: Any) -> None:
    """Apart from the source and from each other; a stack has the groups of its source."""
    if how == "stack":
        made = tc.duplicate(value, 3, how="stack")
        assert groups(made) == groups(value)
        assert tc.relate(made, value).kind == "disjoint" or made is value
        return
    first, second = tc.duplicate(value, 2, how=how)
    assert groups(first) == groups(second) == groups(value)
    for a, b in ((first, second), (first, value), (second, value)):
        assert tc.relate(a, b).kind == "disjoint" or a is b


def groups(value: Any) -> list[int]:
    return sorted(len(group.paths) for group in tc.aliases(value).groups)


# --- torch's own database of operations -----------------------------------------------------------


@pytest.fixture(scope="module")
def operations() -> list[Any]:
    """Every operation that torch tests itself with. Its module asks for a test library, for one class."""
    with pytest.MonkeyPatch.context() as patched:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        patched.setitem(sys.modules, "expecttest", stand_in)
        from torch.testing._internal.common_methods_invocations import op_db
    return list(op_db)


def samples(operation: Any) -> Iterator[Any]:
    found = operation.sample_inputs("cpu", torch.float32, requires_grad=False)
    for sample in itertools.islice(found, 2):
        if isinstance(sample.input, torch.Tensor) and sample.input.layout is torch.strided:
            yield sample


@pytest.mark.filterwarnings("ignore")
def test_every_operation_that_writes_writes_one_lazy_duplicate_alone(operations: list[Any]) -> None:
    """In place and through out=, each operation of torch: the sibling's bytes are what they were."""
    written, leaked = 0, []
    for operation in operations:
        writes = operation.supports_out or operation.get_inplace() is not None
        if not writes or torch.float32 not in operation.dtypes:
            continue
        for sample in samples(operation):
            for name, write, material in writers(operation, sample):
                first, second = tc.duplicate(material, 2, how="lazy")
                before = material.clone().numpy().tobytes()
                with contextlib.suppress(Exception):  # refused by torch, for reasons of its own
                    write(first)
                    written += 1
                if second.numpy().tobytes() != before:
                    leaked.append((operation.name, name))
    assert not leaked
    assert written > 700  # 278 in place and 547 through out= on torch 2.13


def writers(operation: Any, sample: Any) -> Iterator[tuple[str, Any, torch.Tensor]]:
    """The ways in which an operation writes into a tensor, and a tensor to write into."""
    args, options = sample.args, sample.kwargs
    in_place = operation.get_inplace()
    if in_place is not None:
        yield "in place", lambda t: in_place(t, *args, **options), sample.input
    if operation.supports_out:
        with contextlib.suppress(Exception):
            result = operation.op(sample.input, *args, **options)
            if isinstance(result, torch.Tensor) and result.layout is torch.strided:
                filled = torch.full_like(result, 7)
                yield "out", lambda t: operation.op(sample.input, *args, out=t, **options), filled


def test_numpy_is_what_the_oracle_above_reads_with() -> None:
    """A leak would be seen: where memory is shared for good, the bytes of a sibling do change."""
    x = torch.zeros(2)
    sibling = x.view(2)
    x.add_(1)
    assert sibling.numpy().tobytes() == np.ones(2, np.float32).tobytes()
