"""Alias groups of structures: who is in them, under which paths, and the bytes that are counted."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import truecopy as tc
from strategies import (
    Hashed,
    byte_addresses,
    fresh_buffer,
    structures,
    structures_with_modules,
    views,
)
from truecopy import _torch
from truecopy.structure.walk import walk


def paths(found: tc.Aliases) -> list[tuple[str, ...]]:
    return [group.paths for group in found.groups]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_groups_of_structures_are_those_of_the_bytes(data: st.DataObject) -> None:
    """In any structure of views, members of a group touch, directly or through others, and only they."""
    buffer = fresh_buffer()
    obj = data.draw(structures(views(buffer)))
    found = tc.aliases(obj)
    reached = set()
    for group in found.groups:
        members = [eval(path, {"obj": obj}) for path in group.paths]
        together: set[int] = set().union(*map(byte_addresses, members))
        assert group.reached_bytes == len(together)
        assert group.decided
        assert not reached & together
        reached |= together


@settings(max_examples=200, deadline=None)
@given(structures_with_modules())
def test_every_path_is_python_for_the_very_object(obj: Any) -> None:
    """What is printed can be pasted: `eval` gives the very tensor or array that was met."""
    walked = walk(obj, "obj")
    for row, leaf in enumerate(walked.leaves):
        for path in walked.paths(row):
            assert path.follow(obj) is leaf
            assert eval(str(path), {"obj": obj}) is leaf


ODD_KEYS = [
    {Hashed(1): torch.zeros(1), Hashed(2): torch.zeros(1)},
    {torch.zeros(1): torch.zeros(1)},
    {float("nan"): torch.zeros(1)},
    {frozenset({1}): torch.zeros(1), (1, Hashed(0)): torch.zeros(1)},
    {float("inf"): torch.zeros(1)},
    {-0.0: torch.zeros(1), 1 + 2j: torch.zeros(1)},
    {True: torch.zeros(1), 2**70: torch.zeros(1), "quo'te\"\\\n": torch.zeros(1)},
    {torch.float32: torch.zeros(1), int: torch.zeros(1), ...: torch.zeros(1)},
    {torch.zeros(1)},
    [{torch.zeros(1), torch.zeros(2)}],
]


@pytest.mark.parametrize("obj", ODD_KEYS, ids=lambda obj: ",".join(type(k).__name__ for k in obj))
def test_paths_through_keys_that_python_cannot_write(obj: Any) -> None:
    """Keys without a literal are counted instead; the path still leads to the very object."""
    walked = walk(obj, "obj")
    assert walked.leaves
    for row, leaf in enumerate(walked.leaves):
        assert eval(str(walked.path(row)), {"obj": obj}) is leaf


def test_across_parameters_buffers_gradients_and_numpy() -> None:
    """Groups go by address: over Parameters, buffers, `.grad`, optimizer state and numpy arrays."""
    model = torch.nn.Linear(2, 2)
    model.register_buffer("row", model.weight.detach()[0])
    model.weight.grad = torch.zeros(2, 2)
    everything = {
        "model": model,
        "weights": model.weight.detach().numpy(),
        "bucket": model.weight.grad.view(-1),
    }
    assert paths(tc.aliases(everything)) == [
        ("everything['model'].weight", "everything['model'].row", "everything['weights']"),
        ("everything['model'].weight.grad", "everything['bucket']"),
    ]


def test_a_value_met_twice_is_a_group() -> None:
    """One object under two paths is shared as much as two views are."""
    shared = torch.zeros(3)
    both = [shared, {"again": shared}]
    assert paths(tc.aliases(both)) == [("both[0]", "both[1]['again']")]


def test_bytes_of_a_group() -> None:
    """Reached, span and storage are three numbers; a storage seen by torch and numpy counts once."""
    base = np.zeros(100, np.uint8)
    x = torch.from_numpy(base)
    views = {"even": x[10:50:2], "head": base[10:20]}
    (group,) = tc.aliases(views).groups
    assert (group.reached_bytes, group.span_bytes, group.storage_bytes) == (10 + 15, 39, 100)
    found = tc.aliases({"x": x[2:], "base": base})
    assert (found.reached_bytes, found.storage_bytes, found.unreached_bytes) == (100, 100, 0)


def test_bytes_that_nobody_reaches() -> None:
    """A small view drags its storage along."""
    dragging = {"small": torch.zeros(1 << 10)[:3], "own": torch.zeros(5)}
    found = tc.aliases(dragging)
    assert found.unreached_bytes == 4096 - 12
    assert found.storages[0].paths == ("dragging['small']",)
    assert [group.paths for group in found.alone] == [("dragging['small']",), ("dragging['own']",)]


def test_a_group_that_is_not_decided_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limit of exact tests the group holds what is near, and says that it is no more."""
    monkeypatch.setattr("truecopy.memory.joining._MOST_TESTS", 0)
    flat = torch.zeros(64, dtype=torch.uint8)
    near = [flat[start::step] for start, step in ((0, 6), (1, 10), (2, 15))]
    (group,) = tc.aliases(near).groups
    assert group.paths == ("near[0]", "near[1]", "near[2]")
    assert not group.decided
    assert tc.relate(near[0], near[1]).kind == "disjoint"  # a single pair is always tested


def test_unknown_is_told() -> None:
    """What cannot be told is listed with its path and the reason."""
    held = [torch.ones(2, 2).to_mkldnn()]
    assert tc.aliases(held).unknown == (
        ("held[0]", "torch does not show the memory of a mkldnn tensor"),
    )


def test_empty_tensors_alias_nothing() -> None:
    """Addresses of empty tensors, and null addresses, mean nothing."""
    x = torch.zeros(4)
    assert paths(tc.aliases([x, x[:0], x[4:], torch.zeros(0), torch.zeros(0)])) == []


def test_copy_on_write_siblings_are_apart() -> None:
    """Lazy clones share pages until one writes; views of one lazy clone share its memory."""
    a = torch.ones(4)
    b = torch._lazy_clone(a)  # type: ignore[attr-defined]
    three = [a, b, b[1:]]
    assert paths(tc.aliases(three)) == [("three[1]", "three[2]")]


def test_a_record_is_plain_data() -> None:
    """JSON-able, in its envelope."""
    x = torch.zeros(4)
    record = json.loads(json.dumps(tc.aliases([x, x[1:]]).to_json()))
    assert record["kind"] == "aliases"
    assert record["groups"][0]["reached_bytes"] == 16


class TestColumns:
    """Tensors that are alike are told apart by their addresses alone, with the same answers."""

    @settings(max_examples=150, deadline=None)
    @given(data=st.data())
    def test_columns_of_views_agree_with_pairs(self, data: st.DataObject) -> None:
        """Groups of many views with one layout are what exact tests of all pairs say."""
        shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
        strides = data.draw(st.lists(st.integers(0, 9), min_size=len(shape), max_size=len(shape)))
        offsets = data.draw(st.lists(st.integers(0, 60), min_size=16, max_size=24, unique=True))
        buffer = torch.zeros(60 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1)
        views = [buffer.as_strided(shape, strides, offset) for offset in offsets]
        found = tc.aliases(views)

        expected: list[set[int]] = []
        reached = [set(places_of(view).ravel().tolist()) for view in views]
        for row, own in enumerate(reached):
            joined = [g for g in expected if any(reached[other] & own for other in g)]
            expected = [g for g in expected if g not in joined] + [{row}.union(*joined)]
        groups = {frozenset(group._rows) for group in found.groups}
        assert groups == {frozenset(g) for g in expected if len(g) > 1}

    def test_lazy_clones_among_tensors_that_are_alike(self) -> None:
        """Copy-on-write siblings share nothing, their views do, and looking leaves them lazy."""
        source = torch.zeros(8)
        clones = [torch._lazy_clone(source) for _ in range(20)]
        values = [source, *clones, clones[3].view(8)]

        assert [group._rows for group in tc.aliases(values).groups] == [[4, 21]]
        assert all(map(_torch.is_copy_on_write, values))

    def test_alike_beyond_their_storage(self) -> None:
        """What lies beyond a storage that was made smaller shares with nobody."""
        buffer = torch.zeros(64)
        rows = [*buffer.view(32, 2).unbind(0), *buffer.view(32, 2).unbind(0)]
        buffer.untyped_storage().resize_(128)

        assert [group._rows for group in tc.aliases(rows).groups] == [
            [i, i + 32] for i in range(16)
        ]


def places_of(view: torch.Tensor) -> np.ndarray:
    """Which elements of its buffer a view reaches, counted out."""
    places = np.array(view.storage_offset())
    for length, stride in zip(view.shape, view.stride(), strict=True):
        places = places[..., None] + np.arange(length) * stride
    return places
