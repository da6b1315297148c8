"""Paths: written as Python, read back without evaluating anything, followed to what they name."""

import copy
import gc
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truecopy as tc
from strategies import structures, structures_with_modules, tensors
from truecopy.structure.paths import Attribute, Call, Item, Nth, Path, Reduced
from truecopy.structure.walk import walk


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (Path("model"), "model"),
        (Path("model", (Attribute("weight"),)), "model.weight"),
        (Path("m", (Attribute("class"),)), "getattr(m, 'class')"),
        (Path("m", (Attribute("a b"), Item(3))), "getattr(m, 'a b')[3]"),
        (Path("d", (Item("k'\n"),)), 'd["k\'\\n"]'),
        (Path("d", (Item(-1), Item(None), Item((1, "a")))), "d[-1][None][(1, 'a')]"),
        (Path("s", (Nth(2),)), "[*s][2]"),
        (Path("t", (Call("_values"),)), "t._values()"),
        (Path("r", (Reduced((2, "key")),)), "r.__reduce_ex__(4)[2]['key']"),
    ],
)
def test_paths_print_as_python(path: Path, text: str) -> None:
    """What is printed is what would be typed."""
    assert str(path) == text


@pytest.mark.parametrize(
    "text",
    ["model", "model.layers[3].weight", "d['a']['b'][-1]", "getattr(m, 'a b').x", "[*s][2]",
     "t._values()", "d[(1, 'a')]", "d[None][True][b'x'][1.5]"],
)  # fmt: skip
def test_paths_are_read_as_they_are_printed(text: str) -> None:
    """There and back."""
    assert str(Path.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "model[", "1", "a + b", "f(x)", "a.b(c)", "a[b]", "a[f()]", "getattr(a, b)", "lambda: 0",
     "__import__('os').system('x')", "[x for x in y][0]", "a; b", "a[1:2]"],
)  # fmt: skip
def test_what_is_no_path_is_refused(text: str) -> None:
    """Nothing is ever evaluated: only names, attributes, literal subscripts, calls without arguments."""
    with pytest.raises(tc.UsageError, match="is not a path"):
        Path.parse(text)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_every_path_leads_to_its_value_when_pasted(data: st.DataObject) -> None:
    """For every leaf of any structure, all paths by which it was met: followed, and evaluated."""
    value = data.draw(structures_with_modules())
    found = walk(value, "value")
    for row, leaf in enumerate(found.leaves):
        for path in found.paths(row):
            assert path.follow(value) is leaf
            assert eval(str(path), {"value": value, "gc": gc}) is leaf


@given(structures(tensors()))
@settings(max_examples=60, deadline=None)
def test_paths_of_a_plan_lead_to_values_too(value: Any) -> None:
    """Also where objects are taken apart by the copy protocol."""
    for group in tc.plan(value).groups:
        for path in group.paths:
            name = path.partition("[")[0] if path.startswith("value") else None
            if name is not None:
                assert isinstance(eval(path, {"value": value, "gc": gc}), torch.Tensor)


def test_modules_are_written_as_people_write_them() -> None:
    """Not `_modules['layers']._parameters['weight']`."""
    model = nn.ModuleDict(
        {
            "layers": nn.Sequential(nn.Linear(2, 2), nn.ModuleList([nn.BatchNorm1d(2)])),
            "a b": nn.ParameterDict({"p": nn.Parameter(torch.ones(2))}),
        }
    )
    model.extra = nn.ParameterList([nn.Parameter(torch.ones(1))])
    found = walk(model, "model")
    assert [str(found.path(row)) for row in range(len(found.leaves))] == [
        "model['layers'][0].weight",
        "model['layers'][0].bias",
        "model['layers'][1][0].weight",
        "model['layers'][1][0].bias",
        "model['layers'][1][0].running_mean",
        "model['layers'][1][0].running_var",
        "model['layers'][1][0].num_batches_tracked",
        "model['a b']['p']",
        "model['extra'][0]",
    ]


def test_state_of_an_optimizer_is_named_by_its_parameter() -> None:
    """A key that is an object of the structure is written by its own path."""
    model = nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    run = {"model": model, "optimizer": optimizer}
    found = walk(run, "run")
    paths = [str(found.path(row)) for row in range(len(found.leaves))]
    assert "run['optimizer'].state[run['model'].weight]['momentum_buffer']" in paths


def test_steps_compare_by_what_they_are() -> None:
    """`into=` compares the steps of two structures."""
    assert Item("a") == Item("a") != Item("b")
    assert Attribute("a") != Item("a")
    assert copy.copy(Path("a", (Item(1),))) == Path("a", (Item(1),))
