"""`who_shares`: who is found, under which name, and what the look leaves behind."""

import gc
import json
import sys
import threading
import types
import weakref
from collections import deque
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import truecopy as tc

CACHE: dict[str, Any] = {}
OWN = __name__


@pytest.fixture(autouse=True)
def empty_cache() -> Any:
    CACHE.clear()
    yield
    CACHE.clear()


def found(holders: list[tc.Holder]) -> dict[str, str]:
    """Path -> relation, with this file's line numbers left out."""
    return {_without_line(h.path): h.relation for h in holders}


def _without_line(path: str) -> str:
    before, colon, after = path.partition("test_holders.py:")
    return before + colon + after.lstrip("0123456789") if colon else path


def here(name: str) -> str:
    """How a variable of the test that runs is written."""
    return f"test_holders.py: in {sys._getframe(1).f_code.co_name}(): {name}"


def module(path: str) -> str:
    return f"{OWN}.{path}"


@pytest.fixture(autouse=True)
def this_module_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test files may be imported under no name at all."""
    this = types.ModuleType(OWN)
    if OWN not in sys.modules:
        monkeypatch.setitem(sys.modules, OWN, this)


def test_variables_containers_and_attributes() -> None:
    """Local variables, items, attributes, slots and module globals, each as Python writes it."""
    x = torch.zeros(4)
    alias = x
    head = x[:2]
    held = [{"deep": (x.numpy(),)}, deque([x[3:]])]
    CACHE["tail"] = x[1:]
    assert found(tc.who_shares(x)) == {
        here("alias"): "same",
        here("head"): "overlapping",
        here("held[0]['deep'][0]"): "identical",
        here("held[1][0]"): "overlapping",
        module("CACHE['tail']"): "overlapping",
    }
    del alias, head, held


def test_no_one_else() -> None:
    """Nobody shares with a tensor of its own, and the caller's own variable is not told."""
    x = torch.zeros(4)
    assert tc.who_shares(x) == []
    assert tc.who_shares(torch.zeros(3)) == []
    assert tc.who_shares(torch.zeros(0)) == []


class Slots:
    __slots__ = ("held",)


class Holding:
    shared: Any = None

    def __init__(self, held: Any) -> None:
        self.held = held

    def method(self) -> None: ...


def test_objects_closures_and_methods() -> None:
    """Slots, attributes, class attributes, closures, defaults, bound methods, partials, generators."""
    x = torch.zeros(8)
    slots = Slots()
    slots.held = x[0]
    bound = Holding(x[1]).method
    Holding.shared = x[2]
    part = partial(print, x[3], sep=x[4])

    def closing(over: Any) -> Any:
        return lambda: over

    def default(value: Any = x[6]) -> Any:
        return value

    def generating(inside: Any) -> Any:
        yield inside

    closure, generator = closing(x[5]), generating(x[7])
    next(generator)
    try:
        names = found(tc.who_shares(x))
    finally:
        Holding.shared = None
    assert set(names) == {
        here("slots.held"),
        here("bound.__self__.held"),
        module("Holding.shared"),
        here("part.args[0]"),
        here("part.keywords['sep']"),
        here("closure.__closure__[0].cell_contents"),
        here("default.__defaults__[0]"),
        "test_holders.py: in generating(): inside",
    }
    del bound, part, closure, default, generator


def test_modules_and_optimizers() -> None:
    """Parameters are written as people write them; gradients and optimizer state are found."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model[0].register_buffer("row", model[0].weight.detach()[0])
    optimizer = torch.optim.SGD(model.parameters())
    weight = model[0].weight
    weight.grad = torch.zeros(2, 2)
    gradient = weight.grad.view(-1)
    assert found(tc.who_shares(weight)) == {
        here("model[0].weight"): "same",
        here("optimizer.param_groups[0]['params'][0]"): "same",
        here("model[0].row"): "overlapping",
    }
    assert found(tc.who_shares(gradient)) == {here("weight.grad"): "identical"}
    del optimizer


def test_a_structure_is_asked_for_all_its_tensors() -> None:
    """Holders of any of a model's tensors, and not the model itself."""
    model = torch.nn.Linear(2, 2)
    outside = [model.bias.detach()]
    holders = tc.who_shares(model)
    assert [(_without_line(h.path), h.of) for h in holders] == [(here("outside[0]"), "model.bias")]
    del outside


def test_what_autograd_saved() -> None:
    """Tensors that a graph saved are told with the node and the tensor whose graph it is."""
    x = torch.ones(3)
    w = torch.ones(3, requires_grad=True)
    y = w * x
    assert found(tc.who_shares(x)) == {f"saved by MulBackward0 of {here('y')}": "same"}
    y.sum().backward()
    assert found(tc.who_shares(x)) == {}


def test_unpack_hooks_are_not_run() -> None:
    """What is packed stays packed."""
    x = torch.ones(3)
    w = torch.ones(3, requires_grad=True)

    def unpack(_: Any) -> Any:
        raise AssertionError("looking ran an unpack hook")

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), unpack):
        y = w * x
    assert found(tc.who_shares(x)) == {}
    del y


def test_arrays_that_the_collector_does_not_track() -> None:
    """NumPy arrays in dicts and tuples of arrays alone, and in arrays of objects."""
    x = torch.zeros(4)
    n = x.numpy()
    held = {"inner": {"deep": (n[1:],)}}
    objects = np.array([n[2:], None], dtype=object)
    gc.collect()
    assert found(tc.who_shares(x)) == {
        here("n"): "identical",
        here("held['inner']['deep'][0]"): "overlapping",
        here("objects[0]"): "overlapping",
    }
    del held, objects


def test_sparse_storages_and_subclasses() -> None:
    """A sparse tensor's values, a storage object, an array of a subclass."""
    x = torch.ones(2)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), x, (2,), check_invariants=True)
    storage = x.untyped_storage()
    masked = np.ma.array(x.numpy()[1:])
    names = found(tc.who_shares(x))
    assert names.keys() >= {here("sparse"), here("storage"), here("masked")}
    del sparse, storage, masked


def test_other_threads() -> None:
    """The variables of every running thread."""
    x, ready, done = torch.zeros(4), threading.Event(), threading.Event()

    def work(view: torch.Tensor) -> None:
        ready.set()
        done.wait()
        del view

    thread = threading.Thread(target=work, args=(x[1:],))
    thread.start()
    ready.wait()
    try:
        assert "test_holders.py: in work(): view" in found(tc.who_shares(x))
    finally:
        done.set()
        thread.join()


def test_who_called_us_with_it() -> None:
    """The caller's variable is left out, and that of its caller is told."""

    def inner(given: torch.Tensor) -> dict[str, str]:
        return found(tc.who_shares(given))

    mine = torch.zeros(2)
    assert inner(mine) == {here("mine"): "same"}


class Tripwire:
    """Fails when any of its code is run."""

    __slots__ = ("__dict__", "held")

    def __init__(self, held: Any) -> None:
        object.__setattr__(self, "held", held)

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"looking asked for {name}")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("looking compared")

    def __hash__(self) -> int:
        return 1

    def __len__(self) -> int:
        raise AssertionError("looking asked for the length")

    def __iter__(self) -> Any:
        raise AssertionError("looking iterated")


class Sly(list[Any]):
    def __iter__(self) -> Any:
        raise AssertionError("looking iterated")


class Lying(dict[Any, Any]):
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise AssertionError("looking asked for the class")

    def items(self) -> Any:
        raise AssertionError("looking asked for items")


def test_no_code_of_others_is_run() -> None:
    """Attributes, items, equality, iteration, properties: nothing of an object's class is called."""
    x = torch.zeros(4)
    trip = [Tripwire(x[1:])]
    sly, lying = Sly([x[2:]]), [Lying(k=x[3:])]
    names = found(tc.who_shares(x))
    assert names.keys() == {here("trip[0].held"), here("sly[0]"), here("lying[0]['k']")}
    del trip, sly, lying


class Functional(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("looking ran __torch_function__")


def test_no_torch_function_is_run() -> None:
    """Tensors of subclasses are read as plain memory."""
    x = torch.zeros(4)
    with torch._C.DisableTorchFunctionSubclass():
        other = x[1:].as_subclass(Functional)
    assert here("other") in found(tc.who_shares(x))
    del other


def test_nothing_is_kept_alive() -> None:
    """After the look, everything dies when its last name does; the collector is as it was."""
    x = torch.zeros(4)
    holding = Holding(x[1:])
    gone = weakref.ref(holding)
    enabled = gc.isenabled()
    gc.disable()
    try:
        holders = tc.who_shares(x)
        del holding
        assert gone() is None
        assert not gc.isenabled()
    finally:
        if enabled:
            gc.enable()
    assert holders


def test_nothing_is_kept_alive_in_frames() -> None:
    """No snapshot of local variables is left in a caller's frame."""

    def outer() -> bool:
        x = torch.zeros(4)
        local = Holding(x)
        gone = weakref.ref(local)
        tc.who_shares(x)
        del local
        return gone() is None

    assert outer()


def test_copy_on_write_stays() -> None:
    """Looking through the whole process writes nothing."""
    a = torch.ones(4)
    b = torch._lazy_clone(a)  # type: ignore[attr-defined]
    assert found(tc.who_shares(a)) == {}
    assert torch._C._is_cow_tensor(a)  # type: ignore[attr-defined]
    assert torch._C._is_cow_tensor(b)  # type: ignore[attr-defined]


def test_a_holder_is_one_sentence_and_plain_data() -> None:
    """`str` is the sentence; the record is JSON-able."""
    x = torch.zeros(4)
    CACHE["head"], CACHE["x"], CACHE["flat"] = x[:2], x, x.view(2, 2)
    same, identical, overlapping = tc.who_shares(x)
    assert str(same) == f"{OWN}.CACHE['x'] (Tensor of shape (4,)) is x"
    assert str(identical) == f"{OWN}.CACHE['flat'] (Tensor of shape (2, 2)) shares all bytes with x"
    assert str(overlapping) == f"{OWN}.CACHE['head'] (Tensor of shape (2,)) shares 8 bytes with x"
    assert json.loads(json.dumps(overlapping.to_json()))["common_bytes"] == 8
