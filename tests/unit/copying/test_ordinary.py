"""Copies stay ordinary tensors: resizable, picklable, trainable, each freed by itself."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

import truecopy as tc
from oracles import payload


def copies() -> dict[str, torch.Tensor]:
    x = torch.randn(6, 4)
    return {
        "alone": tc.copy(x),
        "one of many": tc.copy([x, torch.zeros(2)])[0],
        "of a group": tc.copy([x, x[1:]])[0],
        "of gaps": tc.copy([x[:, ::2]])[0],
        "large": tc.copy([torch.randn(1 << 19)])[0],
        "Parameter": tc.copy([nn.Parameter(x)])[0],
    }


@pytest.mark.parametrize("name", copies())
def test_copies_do_what_tensors_do(name: str) -> None:
    """No flag, no base, no counter tells that they were not made by hand."""
    copied = copies()[name]
    assert not copied._is_view()
    assert copied.is_leaf
    assert not copied.is_shared()
    assert not copied.is_pinned()
    assert copied.untyped_storage().resizable()
    assert payload(pickle.loads(pickle.dumps(copied)).detach()) == payload(copied)
    assert payload(copy.deepcopy(copied)) == payload(copied)


@pytest.mark.parametrize("name", copies())
def test_copies_can_be_resized_and_given_other_memory(name: str) -> None:
    """Their storage is theirs to grow."""
    plain = copies()[name].detach()
    plain.add_(1.0)
    plain.resize_(2_000_000).zero_()
    assert plain.numel() == 2_000_000
    plain.set_(torch.ones(3))
    assert plain.tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", copies())
def test_copies_can_be_trained(name: str) -> None:
    """A step of an optimizer moves them."""
    copied = copies()[name].requires_grad_()
    before = payload(copied)
    copied.square().sum().backward()
    torch.optim.SGD([copied], lr=0.1).step()
    assert payload(copied) != before


def size_on_disk(value: Any) -> int:
    file = io.BytesIO()
    torch.save(value, file)
    return len(file.getvalue())


def test_a_copied_view_does_not_drag_its_storage_to_disk() -> None:
    """Some kilobytes of envelope, where the view of the source writes 4 MB."""
    view = torch.zeros(1_000_000)[:3]
    assert size_on_disk(view) > 4_000_000
    assert size_on_disk(tc.copy(view)) < 4_000
    assert size_on_disk(tc.copy({"view": view})) < 4_000


def test_ties_are_saved_once() -> None:
    """A group is one storage on disk as in memory."""
    x = torch.randn(100_000)
    assert size_on_disk(tc.copy([x, x[1:], x.view(100, 1000).t()])) < 405_000


def test_each_copy_is_freed_by_itself() -> None:
    """Nothing is packed: dropping one of many gives its memory back, dropping all gives all."""
    source = [torch.randn(1000) for _ in range(10)] + [nn.Linear(30, 30)]
    copied = tc.copy(source)
    storages = {value.untyped_storage().data_ptr() for value in copied[:10]}
    assert len(storages) == 10
    assert all(value.untyped_storage().nbytes() == 4000 for value in copied[:10])
    dead = [weakref.ref(value) for value in copied]
    layer = copied[10].weight
    del copied[3]
    assert dead[3]() is None
    del copied
    gc.collect()
    assert [reference() for reference in dead] == [None] * 11
    assert layer.sum().isfinite()


def test_a_copy_holds_nothing_of_its_source() -> None:
    """The source dies when its owner lets go of it."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight.data = model[0].weight.data.t()
    gone = [weakref.ref(model), weakref.ref(model[0].weight)]
    copied = tc.copy(model)
    del model
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    assert copied(torch.ones(1, 3)).shape == (1, 3)


def test_a_source_holds_nothing_of_its_copy() -> None:
    """Nor do caches of ours."""
    source = {"x": torch.ones(3), "layer": nn.Linear(2, 2)}
    copied = tc.copy(source)
    gone = [weakref.ref(copied["x"]), weakref.ref(copied["layer"])]
    del copied
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_copies_of_groups_write_nothing_uninitialized_to_disk() -> None:
    """What lies between members and belongs to nobody is zero, not whatever the heap held."""
    for _ in range(20):
        junk = [torch.full((200,), 7, dtype=torch.uint8) for _ in range(50)]
        del junk
        x = torch.full((200,), 9, dtype=torch.uint8)
        first, _ = tc.copy([x[0:100:3], x[99:200:2]])
        held = bytes(first.untyped_storage())
        assert set(held) == {0, 9}


def test_several_threads_may_copy_at_once() -> None:
    """Copies of one source from many threads are all right."""
    from concurrent.futures import ThreadPoolExecutor

    model = nn.Sequential(*(nn.Linear(10, 10) for _ in range(20)))
    model[1].weight = model[0].weight
    expected = [payload(p) for p in model.parameters()]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: tc.copy(model), range(40)))
    assert all([payload(p) for p in result.parameters()] == expected for result in results)
    assert len({id(result[0].weight) for result in results}) == 40


def test_empty_containers_are_new_and_the_same_where_they_were_the_same() -> None:
    """Each empty container is copied once, with its attributes, under whatever names it is met."""
    table: Any = OrderedDict()
    noted: Any = OrderedDict()
    noted.note = [1]
    held = {"list": [], "set": set(), "dict": {}, "table": table, "again": [table], "noted": noted}
    copied = tc.copy(held)

    assert copied == held
    assert all(copied[name] is not held[name] for name in held)
    assert all(type(copied[name]) is type(held[name]) for name in held)
    assert copied["again"][0] is copied["table"]
    assert copied["noted"].note == [1]
    assert copied["noted"].note is not noted.note


class WithOwnCopy:
    """Copies itself, and knows a container that others know."""

    def __init__(self, known: list[Any]) -> None:
        self.known = known

    def __deepcopy__(self, memo: dict[int, Any]) -> WithOwnCopy:
        return WithOwnCopy(copy.deepcopy(self.known, memo))


@pytest.mark.parametrize("order", [1, -1])
def test_empty_containers_are_one_for_objects_that_copy_themselves(order: int) -> None:
    """An object's own __deepcopy__ finds the copy of an empty list that others hold too."""
    known: list[Any] = []
    names = dict([("own", WithOwnCopy(known)), ("known", known)][::order])
    copied = tc.copy(names)

    assert copied["own"].known is copied["known"]
    assert copied["known"] is not known


def test_empty_containers_can_be_shared_by_path() -> None:
    """share= names an empty container like any other object."""
    held: dict[str, Any] = {"kept": [], "new": []}
    copied = tc.copy(held, share=["held['kept']"])

    assert copied["kept"] is held["kept"]
    assert copied["new"] is not held["new"]
