"""`share=`, `strict=`, `device=`, `register`, and the exact text of every refusal."""

import functools
import threading
import types
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import truecopy as tc
from oracles import partition
from truecopy.errors import PointsBack, StillShared
from truecopy.structure.paths import Path


class Backbone(nn.Linear):
    pass


def network() -> nn.Module:
    return nn.ModuleDict(
        {"backbone": Backbone(2, 2), "layers": nn.ModuleList([nn.Linear(2, 2)] * 2)}
    )


# --- share ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "share",
    [
        "model['backbone']",
        "['backbone']",
        ["model['backbone']", "model['layers']"],
        Backbone,
        (Backbone, np.ndarray),
        lambda value: isinstance(value, Backbone),
        Path.parse("model['backbone']"),
    ],
)
def test_what_share_names_is_kept_by_reference(share: Any) -> None:
    """A path as printed, a path relative to the root, a type, a predicate, several of them."""
    model = network()
    copied = tc.copy(model, share=share)
    assert copied is not model
    assert copied["backbone"] is model["backbone"]
    assert next(note.path for note in tc.plan(model, share=share).kept) == "model['backbone']"


def test_paths_to_attributes_items_and_tensors() -> None:
    """Anything that a path leads to: a weight, an entry, an element of a list."""
    model = network()
    model.data = {"train": [torch.ones(2), torch.ones(2)]}
    copied = tc.copy(model, share=["model['layers'][0].weight", ".data['train'][1]"])
    assert copied["layers"][0].weight is model["layers"][0].weight
    assert copied["layers"][0].bias is not model["layers"][0].bias
    assert copied.data["train"][1] is model.data["train"][1]
    assert copied.data["train"][0] is not model.data["train"][0]


def test_names_with_dots_as_named_parameters_gives_them() -> None:
    """The first thing that one pastes from `named_parameters()` names what it names there."""
    model = nn.Sequential(nn.Linear(2, 2))

    assert tc.copy(model, share="0.weight")[0].weight is model[0].weight


def test_reading_a_path_runs_no_method() -> None:
    """Only the readers of sparse tensors may be called by a path; nothing that changes anything."""
    state = {"x": torch.ones(2)}

    with pytest.raises(tc.UsageError, match="is not a path"):
        tc.copy(state, share="state['x'].zero_()")

    assert state["x"].tolist() == [1.0, 1.0]


def test_what_is_shared_is_shared_wherever_it_is_met() -> None:
    """By identity, not by place: the second name of a shared object is shared too."""
    x = torch.ones(3)
    copied = tc.copy({"x": x, "again": [x], "view": x[1:]}, share="['x']")
    assert copied["again"][0] is x
    assert partition([copied["view"], x]) == set()  # a view that nobody named is copied


def test_types_include_subclasses() -> None:
    """As isinstance does."""
    model = nn.Sequential(Backbone(2, 2))
    assert tc.copy(model, share=nn.Linear)[0] is model[0]


def test_the_root_itself_can_be_shared() -> None:
    """Then there is nothing to copy."""
    model = network()
    assert tc.copy(model, share=nn.ModuleDict) is model


def test_shared_parts_inside_of_objects_that_copy_themselves() -> None:
    """The memo has them before the object's own `__deepcopy__` asks."""
    import copy

    class Own:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

        def __deepcopy__(self, memo: dict) -> "Own":
            return Own(copy.deepcopy(self.x, memo))

    x = torch.ones(2)
    state = {"own": Own(x), "x": x}
    assert tc.copy(state, share="state['x']")["own"].x is x


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (
            "model.nothing",
            (
                "share='model.nothing' leads nowhere. Expected a path into the value, such as "
                "model.backbone or .backbone. Got a ModuleDict without it."
            ),
        ),
        (
            "model[",
            (
                "'model[' is not a path. Expected Python as truecopy prints it, such as "
                "model.layers[3].weight. Got '[' was never closed (<unknown>, line 1)."
            ),
        ),
        (
            "__import__('os').system('true')",
            (
                "\"__import__('os').system('true')\" is not a path. Expected Python as truecopy "
                "prints it, such as model.layers[3].weight. Got cannot read "
                "\"__import__('os').system('true')\"."
            ),
        ),
        (
            "modl",
            (
                "share='modl' leads nowhere. Expected a path into the value, such as "
                "model.backbone or .backbone. Got a ModuleDict without it."
            ),
        ),
        (3, "share=3 names nothing. Expected a path, a type or a predicate. Got int."),
        ([3], "share=3 names nothing. Expected a path, a type or a predicate. Got int."),
    ],
)
def test_wrong_names_are_refused(share: Any, text: str) -> None:
    """Before anything is copied, and without evaluating anything."""
    model = network()
    with pytest.raises(tc.UsageError) as caught:
        tc.copy(model, share=share)
    assert str(caught.value) == text


# --- register -------------------------------------------------------------------------------------


class Handle:
    def __init__(self, x: torch.Tensor, name: str) -> None:
        self.x, self.name, self.lock = x, name, threading.Lock()


@pytest.fixture
def _registered() -> Any:
    from truecopy.structure import kinds

    tc.register(
        Handle,
        children=lambda value: {"x": value.x},
        rebuild=lambda value, copies: Handle(copies["x"], value.name),
    )
    yield
    del kinds.registered[Handle], kinds.kind_of[Handle]


@pytest.mark.usefixtures("_registered")
def test_registered_classes_are_made_by_their_rebuild() -> None:
    """With copies of what `children` shows, tied to the rest; plan and aliases look there too."""
    x = torch.ones(3)
    state = {"handle": Handle(x, "h"), "view": x[1:]}
    copied = tc.copy(state)

    assert (copied["handle"].name, copied["handle"].lock) != ("h", state["handle"].lock)
    assert partition([copied["handle"].x, copied["view"]]) == {frozenset((0, 1))}
    assert tc.plan(state).groups[0].paths == ("state['handle'].x", "state['view']")
    assert tc.aliases(state).groups[0].paths == ("state['handle'].x", "state['view']")


@pytest.mark.usefixtures("_registered")
def test_registration_is_for_the_exact_class() -> None:
    """A subclass holds more than its base knows of."""

    class More(Handle):
        pass

    with pytest.raises(tc.CannotCopy, match="lock"):
        tc.copy([More(torch.ones(1), "m")])


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (3, "register needs a class. Expected a type. Got 3."),
        (dict, "dict has a fixed meaning and cannot be registered."),
        (nn.Parameter, "Parameter has a fixed meaning and cannot be registered."),
    ],
)
def test_what_cannot_be_registered(cls: Any, text: str) -> None:
    """Containers and tensors mean what they mean."""
    with pytest.raises(tc.UsageError) as caught:
        tc.register(cls, dict, lambda value, _: value)
    assert str(caught.value) == text


# --- strict, and what points back -----------------------------------------------------------------


def _closing_over(model: nn.Module) -> Any:
    def hook(*_: Any) -> Any:
        return model

    return hook


def _returning(value: Any) -> Any:
    return lambda: value


def _through_default(model: nn.Module) -> Any:
    def hook(*_: Any, held: Any = model) -> Any:
        return held

    return hook


GLOBAL: Any = None


def _naming_a_global(model: nn.Module) -> Any:
    global GLOBAL  # noqa: PLW0603 - as in a script or a notebook
    GLOBAL = model
    return lambda: [GLOBAL.weight for _ in range(2)]


POINTING_BACK = {
    "closure": (
        _closing_over,
        "function _closing_over.<locals>.hook refers to the original through model",
    ),
    "default": (
        _through_default,
        "function _through_default.<locals>.hook refers to the original through held",
    ),
    "closure over a list": (
        lambda model: lambda held=[model]: held,
        "function <lambda>.<locals>.<lambda> refers to the original through a default",
    ),
    "closure over a weight": (
        lambda model: _returning(model.weight),
        "function _returning.<locals>.<lambda> refers to the original through value",
    ),
    "closure over a view": (
        lambda model: _returning(model.weight.detach()[0]),
        "function _returning.<locals>.<lambda> refers to the original through value",
    ),
    "closure over a bound method": (
        lambda model: _returning(model.extra_repr),
        "function _returning.<locals>.<lambda> refers to the original through value",
    ),
    "closure over a partial": (
        lambda model: _returning(functools.partial(print, model)),
        "function _returning.<locals>.<lambda> refers to the original through value",
    ),
    "closure over a closure": (
        lambda model: _returning(_closing_over(model)),
        "function _returning.<locals>.<lambda> refers to the original through model",
    ),
    "closure over a weak reference": (
        lambda model: _returning(weakref.ref(model)),
        "function _returning.<locals>.<lambda> refers to the original through value",
    ),
    "global": (
        _naming_a_global,
        "function _naming_a_global.<locals>.<lambda> refers to the original through GLOBAL",
    ),
    "weak reference with callback": (
        lambda model: weakref.ref(model, print),
        "a weak reference with a callback still means the original",
    ),
    "weak method": (
        lambda model: weakref.WeakMethod(model.forward),
        "a weak reference with a callback still means the original",
    ),
}


@pytest.mark.parametrize(("make", "why"), POINTING_BACK.values(), ids=POINTING_BACK)
def test_what_still_means_the_original_is_told(make: Any, why: str) -> None:
    """With the path, at the caller's line; an error with `strict`, a row in the plan."""
    model = nn.Linear(2, 2)
    model.back = make(model)
    with pytest.warns(PointsBack, match="still means") as caught:
        tc.copy(model)
    assert [str(w.message) for w in caught] == [
        f"model.back of the copy still means the original: {why}"
    ]
    assert caught[0].filename == __file__
    with pytest.warns(PointsBack, match="still means") as caught:
        tc.deepcopy(model)
    assert caught[0].filename == __file__
    with pytest.raises(tc.CannotCopy) as refused:
        tc.copy(model, strict=True)
    assert str(refused.value) == (
        f"`model.back`: {why}. Expected a copy that refers to nothing of the original, as strict=True "
        "asks. Got a function that copying cannot rebind. Make it a method, or name it in share=."
    )
    assert [(note.path, note.why) for note in tc.plan(model).points_back] == [("model.back", why)]


def test_what_can_be_rebound_is_not_told() -> None:
    """Bound methods, partials of them, weak references, functions of modules, closures over numbers."""
    model = nn.Linear(2, 2)
    model.method = model.extra_repr
    model.partial = functools.partial(model.extra_repr)
    model.reference = weakref.ref(model)
    model.function = network
    model.closure = _returning(2)
    model.bound_here = types.MethodType(lambda self: self, model)

    copied = tc.copy(model, strict=True)

    assert copied.method.__self__ is copied.partial.func.__self__ is copied.reference() is copied
    assert copied.bound_here() is copied


def test_shared_parts_may_be_pointed_to() -> None:
    """A closure over what the copy keeps by reference means what it should."""
    model = nn.Sequential(Backbone(2, 2))
    backbone = model[0]
    model.hook = lambda: backbone
    tc.copy(model, share=Backbone, strict=True)


# --- objects that copy themselves -----------------------------------------------------------------


class Keeps:
    """Returns itself, with a tensor in it."""

    def __init__(self) -> None:
        self.x = torch.ones(2)

    def __deepcopy__(self, memo: dict) -> "Keeps":
        return self


class KeepsSome(Keeps):
    """Makes a new object on the old tensor."""

    def __deepcopy__(self, memo: dict) -> "KeepsSome":
        return KeepsSome.__new__(KeepsSome)._with(self.x[1:])

    def _with(self, x: torch.Tensor) -> "KeepsSome":
        self.y = x
        return self


class SaysItsName:
    """Reduces to a string: pickle's word for an object that is found again by its name."""

    def __init__(self) -> None:
        self.x = torch.ones(2)

    def __reduce__(self) -> str:
        return "NAME"


@pytest.mark.parametrize(
    ("value", "how", "to"),
    [
        (Keeps(), "Keeps.__deepcopy__", ".x"),
        (KeepsSome(), "KeepsSome.__deepcopy__", ".y"),
        (SaysItsName(), "SaysItsName.__reduce_ex__", ".x"),
    ],
)
def test_memory_that_an_object_keeps_is_found(value: Any, how: str, to: str) -> None:
    """An error of `copy`, with both paths; honored by `deepcopy`, with a warning."""
    state = {"held": [value]}
    path = "state['held'][0]"
    with pytest.raises(tc.CannotCopy) as caught:
        tc.copy(state)
    assert str(caught.value) == (
        f"`{path}`: {how} returned an object that still reaches memory of the original. Expected a "
        f"copy that shares no byte with its source. Got {path}.x shares memory with {path}{to} of the "
        f"copy. Name it in share= to keep it by reference, or mend {how}."
    )
    with pytest.warns(StillShared, match="keeps memory") as warned:
        tc.deepcopy(state)
    assert str(warned[0].message) == f"{path}: {how} keeps memory of the original at {path}.x"
    assert warned[0].filename == __file__
    assert tc.copy(state, share=path)["held"][0] is value


def test_singletons_without_memory_may_return_themselves() -> None:
    """What shares nothing is nobody's alias."""

    class Singleton:
        def __deepcopy__(self, memo: dict) -> "Singleton":
            return self

    one = Singleton()
    assert tc.copy([one])[0] is one


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"alias": "maybe"},
            (
                "alias='maybe' means nothing. Expected one of 'preserve', 'whole', 'break', 'error'. "
                "Got 'maybe'."
            ),
        ),
        (
            {"grad": True},
            "grad=True means nothing. Expected one of 'detach', 'keep', 'error'. Got True.",
        ),
        (
            {"device": 1.5},
            None,
        ),
    ],
)
def test_options_that_mean_nothing(options: dict, text: str | None) -> None:
    """Copy and plan refuse alike, and say what there is."""
    for verb in (tc.copy, tc.plan):
        with pytest.raises(tc.UsageError) as caught:
            verb([torch.ones(2)], **options)
        if text is not None:
            assert str(caught.value) == text
        else:
            assert "device=1.5 names no device of this machine" in str(caught.value)


def test_device_moves_tensors_and_keeps_ties() -> None:
    """Only the meta device is always there beside the CPU; a GPU is tested by `make test-gpu`."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    model[1].bias.data = model[0].bias.data
    copied = tc.copy(model, device="meta")
    assert all(p.device.type == "meta" and isinstance(p, nn.Parameter) for p in copied.parameters())
    assert copied[1].weight is copied[0].weight
    assert len(tc.aliases(copied).groups) == 2
    assert all(p.device.type == "cpu" for p in tc.copy(model, device="cpu").parameters())


def test_values_that_are_not_there_cannot_be_moved() -> None:
    """A meta tensor has none."""
    state = {"x": torch.empty(3, device="meta")}
    with pytest.raises(tc.CannotCopy) as caught:
        tc.copy(state, device="cpu")
    assert str(caught.value) == (
        "`state['x']`: has no values that could be moved to cpu. Expected a tensor with memory behind "
        "it. Got a Tensor on meta. Copy without device=, and give the copy memory with to_empty()."
    )


def test_a_bridge_to_numpy_ends_at_another_device() -> None:
    """The array stays an array of this process, with its bytes."""
    array = np.arange(3.0)
    copied = tc.copy({"array": array, "tensor": torch.from_numpy(array)}, device="meta")
    assert copied["array"].tolist() == [0, 1, 2]
    assert copied["tensor"].device.type == "meta"


@pytest.mark.gpu
def test_device_moves_values_there_and_back() -> None:
    """To an accelerator and back: every byte, every tie; gradient flows home with `grad="keep"`."""
    device = torch.accelerator.current_accelerator()
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model[1].weight.data = model[0].weight.data
    there = tc.copy(model, device=device)
    back = tc.copy(there, device="cpu")
    assert all(map(torch.equal, back.parameters(), model.parameters()))
    assert partition(back.parameters()) == partition(model.parameters())
    x = torch.ones(3, requires_grad=True)
    tc.copy([x], device=device, grad="keep")[0].sum().backward()
    assert x.grad.tolist() == [1, 1, 1]
    pinned = torch.randn(1 << 20).pin_memory()
    assert torch.equal(tc.copy([pinned], device=device)[0].cpu(), pinned)


def test_alias_error_names_both_paths() -> None:
    """The exact text."""
    x = torch.ones(4)
    state = {"x": x, "head": x[:2]}
    with pytest.raises(tc.NotIndependent) as caught:
        tc.copy(state, alias="error")
    assert str(caught.value) == (
        "`state['x']`: shares memory with state['head']. Expected values that share no byte, as "
        'alias="error" asks. Got 1 alias group. alias="preserve" keeps the sharing inside the copy, '
        'alias="break" ends it.'
    )


def test_what_cannot_be_copied_says_so() -> None:
    """The exact text; it can be caught as TypeError and as `copy.Error` too."""
    import copy

    model = nn.Linear(2, 2)
    model.lock = threading.Lock()
    for caught_as in (tc.CannotCopy, TypeError, copy.Error):
        with pytest.raises(caught_as) as caught:
            tc.copy(model)
    assert str(caught.value) == (
        "`model.lock`: a lock cannot be copied: cannot pickle '_thread.lock' object. Expected an object "
        "that its class knows how to copy. Got _thread.lock. Name it in share= to keep it by "
        "reference, or register its class."
    )
    assert caught.value.where == "model.lock"


def test_an_optimizer_without_its_model_is_told() -> None:
    """Its copy trains parameters that nobody has; with its model, or on the same parameters, all is well."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    why = (
        "the copy has parameters of its own, that no module of the copy holds. "
        "Copy the two together, or keep the parameters with share=torch.nn.Parameter"
    )
    with pytest.warns(tc.Orphaned) as told:
        tc.copy(optimizer)
    (one,) = told
    assert str(one.message) == f"optimizer is copied without its model: {why}"
    assert one.filename == __file__
    with pytest.warns(tc.Orphaned, match=r"^scheduler\.optimizer is copied without its model"):
        tc.deepcopy(scheduler)
    notes = [(note.path, note.why) for note in tc.plan(optimizer).dropped]
    assert ("optimizer", why) in notes

    same = tc.copy(optimizer, share=nn.Parameter)
    assert same.param_groups[0]["params"][0] is model.weight
    for together in ([model, optimizer], [scheduler, model], {"w": model.weight, "o": optimizer}):
        tc.copy(together)  # and a warning would be an error here


def test_copied_schedulers_step_without_a_warning() -> None:
    """A scheduler notices whether its optimizer steps; so does its copy, and of its own optimizer alone."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    before = model.weight.detach().clone()

    other, other_optimizer, other_scheduler = tc.copy([model, optimizer, scheduler], strict=True)
    other(torch.ones(1, 2)).sum().backward()
    other_optimizer.step()
    other_scheduler.step()  # warnings are errors here

    assert other_scheduler.get_last_lr() == [0.1]
    assert not torch.equal(other.weight, before)
    assert torch.equal(model.weight, before)
    assert not hasattr(optimizer, "_opt_called")
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()
    again = tc.copy([other, other_optimizer, other_scheduler])
    again[1].step()
    again[2].step()
