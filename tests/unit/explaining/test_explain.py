"""What is said of operations: looked up by every name, and true of the installed torch."""

from __future__ import annotations

import re
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
import torch

import truecopy as tc
from truecopy.cli import main
from truecopy.explaining.advice import by_hand
from truecopy.explaining.building import build
from truecopy.explaining.facts import Explanation
from truecopy.explaining.layouts import laid_out, layout_of
from truecopy.explaining.lookup import all_explanations
from truecopy.explaining.watching import Sample, watch
from truecopy.reports.operations import html

LEFT_OUT_BY_THE_DATABASE = (
    "tensor", "as_tensor", "asarray", "from_numpy", "numpy", "detach", "type_as", "new_tensor", "cpu", "to",
    "pin_memory", "set_", "data", "share_memory_", "deepcopy", "state_dict", "load_state_dict",
)  # fmt: skip

AGAIN = (
    "reshape", "contiguous", "flatten", "to", "expand", "add", "squeeze", "nn.functional.dropout",
    "__getitem__", "narrow", "cat", "linalg.inv", "tensor", "from_numpy", "detach", "data",
    "nn.Module.state_dict", "item", "resize_", "half", "conj", "stack", "zero_", "relu_", "requires_grad_",
)  # fmt: skip
"""Operations that are watched again here; `make operations` watches all of them."""


def without_samples(explanation: Explanation) -> Explanation:
    """All that does not depend on the version of torch or on the numbers in samples."""
    outcomes = tuple(replace(one, example="") for one in explanation.outcomes)
    return replace(explanation, seen_with="", outcomes=outcomes)


def test_at_least_six_hundred_operations_are_known() -> None:
    """The page covers torch: functions, methods and in-place forms, and each has all its parts."""
    known = all_explanations()
    assert len(known) >= 600
    assert len({one.name for one in known}) == len(known)
    for one in known:
        assert one.sentence, one.name
        assert one.trap, one.name
        assert one.instead, one.name


def test_what_is_said_is_what_the_installed_torch_does() -> None:
    """Watched again, operations do what the data says: no line of it is from memory."""
    known = {one.name: one for one in all_explanations()}
    again = {one.name: one for one in build(AGAIN.__contains__)}
    assert set(again) == set(AGAIN)
    for name, one in again.items():
        assert without_samples(one) == without_samples(known[name])


def test_a_change_of_torch_would_be_seen() -> None:
    """The comparison above can fail."""
    one = tc.explain("reshape")
    changed = replace(one.outcomes[0], origins="unknown")
    assert without_samples(replace(one, outcomes=(changed, *one.outcomes[1:]))) != one


@pytest.mark.parametrize("name", LEFT_OUT_BY_THE_DATABASE)
def test_what_the_database_leaves_out_is_known(name: str) -> None:
    """Constructors, bridges to numpy, storages, modules: by samples of ours."""
    assert tc.explain(name).name.rpartition(".")[2].startswith(name)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("reshape", "reshape"),
        ("torch.reshape", "reshape"),
        ("torch.Tensor.contiguous", "contiguous"),
        ("Tensor.add_", "add"),
        ("add_", "add"),
        ("F.relu", "nn.functional.relu"),
        ("relu", "nn.functional.relu"),
        ("torch.nn.functional.relu", "nn.functional.relu"),
        ("linalg.inv", "linalg.inv"),
        ("arccos", "acos"),
        ("reshape()", "reshape"),
    ],
)
def test_an_operation_is_found_by_every_way_to_write_it(spelling: str, name: str) -> None:
    """Functions, methods, in-place forms, aliases, with what stands before them and without."""
    assert tc.explain(spelling).name == name


def test_every_spelling_is_one_that_torch_has() -> None:
    """Whatever is said to be a way to write an operation can be written so."""
    for one in all_explanations():
        for spelling in one.spellings:
            name = re.sub(r"\((inplace|assign)=True\)$| = \.\.\.$", "", spelling)
            if name.startswith("torch.") and "(" not in name:
                attrgetter(name.removeprefix("torch."))(torch)
                assert not isinstance(attrgetter(name.removeprefix("torch."))(torch), torch.dtype)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("torch.Tensor.half", "new memory or its input itself"),
        ("clamp_", "`clamp_` works in place"),
        ("zero_", "works in place, and returns its input itself"),
        ("resize_", "works in place, and returns its input itself"),
        ("F.dropout", "`inplace=True` works in place"),
        ("torch.Tensor.arccos_", "`acos_` works in place"),
        ("conj", "a view or its input itself"),
        ("cuda", "not seen here: no sample ran"),
    ],
)
def test_what_a_stranger_would_take_amiss(name: str, said: str) -> None:
    """Forms in place say so, and what depends on the dtype is seen with more than one."""
    assert said in tc.explain(name).sentence


@pytest.mark.parametrize(
    "name", ["stack", "cat", "vstack", "__getitem__", "relu_", "nn.functional.linear"]
)
def test_gradient_that_flows_is_seen(name: str) -> None:
    """Through lists of tensors, through indices, and in place."""
    assert tc.explain(name).autograd.flows


def test_a_name_that_is_not_known_gets_the_nearest() -> None:
    """The text of the error, whole."""
    with pytest.raises(tc.UsageError) as raised:
        tc.explain("reshap")
    assert str(raised.value) == (
        "no operation is called 'reshap'. Expected a function of torch, a method of Tensor, or an in-place "
        "form. Did you mean reshape or reshape_as?"
    )


def test_advice_by_hand_is_about_operations_that_are_known() -> None:
    """No advice is left for an operation that was renamed."""
    assert not by_hand().keys() - {one.name for one in all_explanations()}


@pytest.mark.parametrize(
    ("name", "layout", "origins"),
    [
        ("contiguous", "contiguous", {"same"}),
        ("contiguous", "transposed", {"new"}),
        ("detach", "contiguous", {"view"}),
        ("clone", "contiguous", {"new"}),
        ("from_numpy", "none", {"adopted"}),
        ("from_dlpack", "contiguous", {"adopted"}),
        ("nn.Module.state_dict", "contiguous", {"view"}),
        ("expand", "contiguous", {"view"}),
        ("numpy", "strided", {"view"}),
    ],
)
def test_facts_that_everybody_should_know(name: str, layout: str, origins: set[str]) -> None:
    """The best known ones, by hand: an oracle that was not watched."""
    seen = {o.origins for o in tc.explain(name).outcomes if o.layout == layout}
    assert seen == origins


def test_layouts_are_what_they_are_called() -> None:
    """Each way of lying in memory is made, with the values where it can be, and told apart."""
    made = {layout_of(x): x for x in laid_out(torch.arange(12.0).reshape(3, 4))}
    assert set(made) == {"contiguous", "transposed", "strided", "expanded"}
    assert torch.equal(made["transposed"], made["contiguous"])
    assert torch.equal(made["strided"], made["contiguous"])
    assert made["expanded"].stride() == (0, 1)


def test_watching_leaves_the_arguments_of_other_samples_alone() -> None:
    """An operation in place is seen on memory of its own each time: samples are shared by forms."""
    x = torch.zeros(2, 2)
    seen = list(watch(Sample("torch.Tensor.add_", torch.Tensor.add_, (x, 1), {})))
    assert {one.effects for one in seen} == {"args[0]: mutated"}
    assert not x.any()


def test_explanations_survive_json() -> None:
    """What `--json` prints makes the same explanation again."""
    one = tc.explain("reshape")
    assert Explanation.from_body(one.body()) == one


def test_the_command_explains(capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence first, then the trap, then what was seen."""
    assert main(["explain", "contiguous"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("contiguous: its input itself for contiguous input; new memory for ")
    assert "no way to make a copy" in out


def test_the_command_offers_what_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelled name is an error of usage."""
    assert main(["explain", "contigous"]) == 2
    assert "Did you mean contiguous" in capsys.readouterr().err


def test_the_page_in_the_docs_is_of_this_data() -> None:
    """What `truecopy explain --page docs/operations.html --force` would write stands there."""
    page = Path(__file__).parents[3] / "docs" / "operations.html"
    assert page.read_text("utf-8").rstrip() == html(all_explanations()).rstrip()
