"""The walk: every object once, each after what it is made of, none of users' code run."""

import collections
import functools
import types
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn
from torch.overrides import TorchFunctionMode

import truecopy as tc
from strategies import structures, structures_with_modules, tensors
from truecopy.structure.kinds import Kind, kind_of
from truecopy.structure.naming import name_of, warn_caller
from truecopy.structure.walk import Op, walk
from truecopy.structure.weak import can_rebind, rebound, target_of


@given(structures_with_modules())
@settings(max_examples=60, deadline=None)
def test_objects_are_made_after_what_they_are_made_of(value: Any) -> None:
    """The program of a walk can be carried out from first to last, but for cycles."""
    found = walk(value, "value", protocol=True)
    made = set(found.leaf_of)
    for op, node in found.program:
        if op is Op.MAKE:
            missing = [
                part
                for part in node.parts.made_from
                if id(part) in found.nodes and id(part) not in made
            ]
            assert not missing
            made.add(id(node.value))
        else:
            assert id(node.value) in made
    assert found.nodes.keys() <= made


@given(structures(tensors()))
@settings(max_examples=40, deadline=None)
def test_every_object_is_met_once(value: Any) -> None:
    """However many ways lead to it."""
    found = walk(value, "value")
    assert len({id(leaf) for leaf in found.leaves}) == len(found.leaves)
    assert len(found.parents) == len(found.indices) == len(found.leaves)


class Watchful:
    """Raises wherever a class can be asked something."""

    def __init__(self) -> None:
        self.__dict__["x"] = torch.ones(1)

    def _refuse(self, *_: Any) -> Any:
        raise AssertionError("users' code was run")

    __getattr__ = __iter__ = __len__ = __bool__ = __hash__ = __eq__ = __getitem__ = _refuse  # type: ignore[assignment]
    __reduce_ex__ = __getstate__ = __deepcopy__ = __copy__ = __repr__ = _refuse  # type: ignore[assignment]

    @property
    def computed(self) -> Any:
        return self._refuse()


class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        raise AssertionError(f"{func} went through the user's mode")


def test_looking_runs_no_code_of_users() -> None:
    """No property, no protocol, no truth value, no function mode."""
    held = Watchful()
    model = nn.Linear(2, 2)
    with Mode():
        found = walk({"held": held, "model": model}, "value")
    assert any(leaf is held.__dict__["x"] for leaf in found.leaves)


class List(list):
    def __iter__(self) -> Any:
        raise AssertionError("users' code was run")


def test_members_of_subclasses_are_read_as_their_base_has_them() -> None:
    """A class that shows other members than it holds still holds them."""
    x = torch.ones(1)
    assert walk(List([x]), "value").leaves[0] is x


KINDS: list[tuple[Any, Kind]] = [
    (1, Kind.ATOM),
    ("text", Kind.ATOM),
    (torch.float32, Kind.ATOM),
    (torch.Size([1]), Kind.ATOM),
    (np.float32(1), Kind.ATOM),
    (int, Kind.ATOM),
    (len, Kind.FUNCTION),
    (lambda: 0, Kind.FUNCTION),
    (weakref.ref(Kind), Kind.WEAKREF),
    (weakref.proxy(Kind), Kind.WEAKREF),
    (np, Kind.HANDLE),
    (torch.Stream(), Kind.HANDLE),
    (torch.ones(1), Kind.TENSOR),
    (nn.Parameter(torch.ones(1)), Kind.TENSOR),
    (np.ones(1), Kind.ARRAY),
    (torch.ones(1).untyped_storage(), Kind.STORAGE),
    (bytearray(b"x"), Kind.FOREIGN),
    (np.ma.ones(1), Kind.SUBARRAY),
    ([], Kind.LIST),
    ((), Kind.TUPLE),
    ({}, Kind.DICT),
    (set(), Kind.SET),
    (frozenset(), Kind.FROZENSET),
    ([].append, Kind.FUNCTION),
    (nn.Linear(1, 1).float, Kind.METHOD),
    (types.MappingProxyType({}), Kind.READ_ONLY),
    (nn.Linear(1, 1), Kind.REDUCED),
    (collections.OrderedDict(), Kind.ORDERED),
    (collections.defaultdict(), Kind.REDUCED),
    (functools.partial(len), Kind.REDUCED),
    (Watchful(), Kind.OPAQUE),
]  # fmt: skip


@pytest.mark.parametrize(("value", "kind"), KINDS, ids=lambda v: type(v).__name__)
def test_kinds(value: Any, kind: Kind) -> None:
    """One kind for each type."""
    assert kind_of[type(value)] is kind


def test_a_class_may_get_a_protocol_later() -> None:
    """As with the standard library, what counts is what the class has when it is copied."""

    class Late:
        pass

    value = Late()
    assert tc.copy(value) is not value
    Late.__deepcopy__ = lambda self, _: self  # type: ignore[attr-defined]
    assert tc.copy(value) is value
    del Late.__deepcopy__
    assert tc.copy(value) is not value


def test_the_order_of_an_ordered_dict_is_its_own() -> None:
    """`move_to_end` does not move what the dict inside has."""
    table = collections.OrderedDict(a=torch.ones(1), b=torch.zeros(1))
    table.move_to_end("a")
    assert list(tc.copy(table)) == list(tc.copy([table])[0]) == ["b", "a"]
    assert [str(path) for row in range(2) for path in walk(table, "t").paths(row)] == [
        "t['b']",
        "t['a']",
    ]


def test_weak_references() -> None:
    """Of each sort: what they refer to, and whether one like it can be made for another target."""
    first, second = nn.Linear(1, 1), nn.Linear(1, 1)
    plain, proxy = weakref.ref(first), weakref.proxy(first)
    watched, method = weakref.ref(first, print), weakref.WeakMethod(first.float)
    for reference, free in ((plain, True), (proxy, True), (watched, False), (method, False)):
        assert target_of(reference) is first
        assert can_rebind(reference) is free
    assert not can_rebind(weakref.proxy(first, print))
    assert rebound(plain, second)() is second
    assert rebound(proxy, second).weight is second.weight
    del first
    assert target_of(plain) is None
    assert target_of(proxy) is None


def test_a_value_is_called_what_its_holder_calls_it() -> None:
    """The variable of the caller, a global, or a default."""
    some_value = [torch.ones(1)]
    assert name_of(some_value) == "some_value"
    assert name_of(KINDS) == "KINDS"
    assert name_of([1]) == "obj"


def test_warnings_point_to_the_caller() -> None:
    """To the line outside of this package."""
    with pytest.warns(UserWarning, match="here") as caught:
        warn_caller(UserWarning("here"))
    assert caught[0].filename == __file__
