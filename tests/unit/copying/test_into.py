"""`into=`: a structure written in place, exactly, or not at all."""

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim

import truecopy as tc
from oracles import base_address, partition, payload, same_bits


def trained() -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model[2].bias.data = model[0].bias.data[:3]
    optimizer = optim.AdamW(model.parameters())
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer, "step": 1, "name": "run", "best": 0.5}


def all_tensors(state: dict[str, Any]) -> list[torch.Tensor]:
    moments = [t for s in state["optimizer"].state.values() for t in s.values()]
    parameters = list(state["model"].parameters())
    return [*parameters, *state["model"].buffers(), *moments, *(p.grad for p in parameters)]


def test_an_array_is_written_as_it_is() -> None:
    """One array into another; whether arrays are equal has no single answer, and is not asked."""
    target = np.zeros(3)
    assert tc.copy(np.ones(3), into=target) is target
    assert target.tolist() == [1.0, 1.0, 1.0]


def test_a_training_state_goes_back_in_place() -> None:
    """Tensors, moments, gradients, numbers: the values of the source, the objects of the target."""
    live = trained()
    saved = tc.copy(live)
    objects = all_tensors(live)
    addresses = list(map(base_address, objects))
    live["model"](torch.randn(5, 3)).sum().backward()
    live["optimizer"].step()
    live["step"], live["name"], live["best"] = 2, "other", float("nan")
    live["optimizer"].param_groups[0]["lr"] = 3.0
    live["model"].eval()

    restored = tc.copy(saved, into=live)

    assert restored is live
    assert all(a is b for a, b in zip(all_tensors(live), objects, strict=True))
    assert list(map(base_address, objects)) == addresses
    assert all(map(same_bits, all_tensors(live), all_tensors(saved)))
    assert (live["step"], live["name"], live["best"]) == (1, "run", 0.5)
    assert live["optimizer"].param_groups[0]["lr"] == saved["optimizer"].param_groups[0]["lr"]
    assert live["model"].training
    assert partition(live["model"].parameters()) == partition(saved["model"].parameters()) != set()
    tc.assert_independent(live, saved)


def test_the_same_source_can_be_written_any_number_of_times() -> None:
    """Writing takes nothing from the source, and ties nothing to it."""
    saved = trained()
    live = tc.copy(saved)
    before = list(map(payload, all_tensors(saved)))
    for _ in range(3):
        live["model"](torch.randn(5, 3)).sum().backward()
        live["optimizer"].step()
        tc.copy(saved, into=live)
        assert list(map(payload, all_tensors(live))) == before
    assert list(map(payload, all_tensors(saved))) == before


def test_gradients_appear_and_disappear() -> None:
    """A gradient that the source has and the target has not is made; None stays None."""
    with_grad, without = nn.Linear(2, 2), nn.Linear(2, 2)
    with_grad(torch.randn(1, 2)).sum().backward()
    bare, full = tc.copy(without), tc.copy(with_grad)
    tc.copy(with_grad, into=bare)
    tc.copy(without, into=full)

    assert same_bits(bare.weight.grad, with_grad.weight.grad)
    assert bare.weight.grad.data_ptr() != with_grad.weight.grad.data_ptr()
    assert full.weight.grad is None


def test_every_kind_of_tensor_is_written() -> None:
    """Conjugate, sparse, quantized, nested, strided with gaps, of any dtype; numpy too."""
    base = torch.arange(12.0).view(3, 4)
    source = {
        "conj": torch.randn(3, dtype=torch.complex64).conj(),
        "coo": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(base, 0.5, 1, torch.qint8),
        "nested": torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(1, 3)]),
        "gaps": base[:, ::2],
        "fp8": base.to(torch.float8_e4m3fn),
        "numpy": np.arange(4)[::-1],
        "empty": torch.empty(0, 3),
    }
    target = tc.copy(source)
    for value in (target["conj"], target["gaps"], target["coo"]._values(), target["csr"].values()):
        value.zero_()
    target["quantized"].copy_(torch.zeros(3, 4))
    target["nested"].unbind()[0].zero_()
    target["fp8"].view(torch.uint8).zero_()
    target["numpy"][:] = 0

    tc.copy(source, into=target)

    for name in ("conj", "gaps", "fp8"):
        assert same_bits(target[name], source[name])
    assert torch.equal(target["coo"].to_dense(), torch.eye(3))
    assert torch.equal(target["csr"].to_dense(), torch.eye(3))
    assert torch.equal(target["quantized"].int_repr(), source["quantized"].int_repr())
    assert torch.equal(target["nested"].unbind()[0], source["nested"].unbind()[0])
    assert target["numpy"].tolist() == [3, 2, 1, 0]


def test_strides_of_the_target_stay() -> None:
    """A target of another layout keeps it: the values go over, element by element."""
    source, target = torch.randn(3, 4), torch.zeros(4, 3).t()
    tc.copy([source], into=[target])
    assert torch.equal(target, source)
    assert target.stride() == (1, 3)


X = torch.ones(3)
DIFFERENT: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "shape, broadcastable": (
        lambda: torch.ones(1),
        lambda: torch.zeros(3),
        (
            "`into['b']`: differs from the source; nothing was written. Expected Tensor of torch.float32 "
            "and shape (1,). Got Tensor of torch.float32 and shape (3,). Without into=, tc.copy makes a "
            "new structure."
        ),
    ),
    "dtype": (
        lambda: torch.ones(3),
        lambda: torch.zeros(3, dtype=torch.float64),
        (
            "`into['b']`: differs from the source; nothing was written. Expected Tensor of torch.float32 "
            "and shape (3,). Got Tensor of torch.float64 and shape (3,). Without into=, tc.copy makes a "
            "new structure."
        ),
    ),
    "class": (lambda: X, lambda: nn.Parameter(X.clone()), "Expected Tensor of .* Got Parameter of"),
    "tensor for array": (lambda: X, lambda: np.ones(3, np.float32), "Got ndarray of float32"),
    "kind of container": (lambda: [X], lambda: (X.clone(),), "Expected list. Got tuple"),
    "length": (lambda: [X, 1], lambda: [X.clone()], r"Expected a member \[1\]. Got none"),
    "key": (
        lambda: {"x": X},
        lambda: {"y": X.clone()},
        r"Expected a member \['x'\]. Got none",
    ),
    "number in a tuple": (lambda: (1, 2), lambda: (1, 3), "into.'b'..1.`.*Expected 2. Got 3"),
    "member of a set": (lambda: {1}, lambda: {2}, "Expected 1. Got 2"),
    "value for object": (lambda: 1, lambda: [1], "Expected int. Got list"),
    "date": (
        lambda: dt.date(2026, 1, 1),
        lambda: dt.date(2026, 1, 2),
        r"Expected datetime.date\(2026, 1, 1\). Got datetime.date\(2026, 1, 2\)",
    ),
    "read-only array": (
        lambda: np.ones(3),
        lambda: np.frombuffer(np.zeros(3).tobytes()),
        "Expected an array that can be written. Got a read-only array",
    ),
    "quantizer": (
        lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
        lambda: torch.quantize_per_tensor(X, 0.2, 0, torch.qint8),
        "scale 0.1, zero point 0. Got .* scale 0.2",
    ),
    "coalesced": (
        lambda: torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,), check_invariants=False),
        lambda: torch.sparse_coo_tensor(
            [[0, 1]], [1.0, 2.0], (3,), is_coalesced=True, check_invariants=False
        ),
        r"not coalesced. Got Tensor of torch.float32 and shape \(3,\), coalesced",
    ),
    "number of entries": (
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.zeros(3, 3).to_sparse(),
        r"shape \(2, 3\). Got .* shape \(2, 0\)",
    ),
    "expanded target": (
        lambda: torch.randn(4, 3),
        lambda: torch.zeros(3).expand(4, 3),
        "Expected memory of its own along dimension 0. Got an expanded dimension",
    ),
    "tie that the source has not": (
        lambda: [torch.ones(3), torch.ones(3)],
        lambda: [x := torch.zeros(3), x[:]],
        (
            r"`into\['b'\]\[1\]`.*Expected memory apart, as in the source. "
            r"Got memory shared with into\['b'\]\[0\]"
        ),
    ),
    "another object met twice": (
        lambda: [x := torch.ones(3), x, torch.ones(3)],
        lambda: [torch.zeros(3), x := torch.zeros(3), x],
        r"`into\['b'\]\[1\]`.*Expected an object that is met where it is in the source",
    ),
    "storage": (
        X.untyped_storage,
        lambda: X.clone().untyped_storage(),
        "Got UntypedStorage",
    ),
}


@pytest.mark.parametrize(("source", "target", "text"), DIFFERENT.values(), ids=DIFFERENT)
def test_whatever_differs_is_refused_and_nothing_is_written(
    source: Callable[[], Any], target: Callable[[], Any], text: str
) -> None:
    """No broadcasting, no casting: the message names the path, and every byte is what it was."""
    first, last = torch.zeros(2), torch.zeros(2)
    into = {"a": first, "n": 1, "b": target(), "z": last}
    before = repr(into)

    with pytest.raises(tc.StructureMismatch) as caught:
        tc.copy({"a": torch.ones(2), "n": 2, "b": source(), "z": torch.ones(2)}, into=into)

    assert str(caught.value) == text or re.search(text, str(caught.value))
    assert repr(into) == before
    assert "into['b']" in str(caught.value.where)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (lambda x: [x[:6]], lambda x: [x[2:]]),
        (lambda x: [x[:4], x[4:]], lambda x: [x[4:], x[:4]]),
        (lambda x: [x], lambda x: [x[:]]),
    ],
    ids=["shifted", "swapped", "itself, seen again"],
)
def test_source_and_target_that_share_memory(
    source: Callable[[torch.Tensor], list], target: Callable[[torch.Tensor], list]
) -> None:
    """Refused, for what is written would change what is still to be read; the same bytes are fine."""
    x = torch.arange(8.0)
    values, into = source(x), target(x)
    if partition([*values, *into]) and values[0].data_ptr() == into[0].data_ptr():
        tc.copy(values, into=into)
    else:
        with pytest.raises(
            tc.StructureMismatch, match=r"memory apart from the source\. Got memory shared"
        ):
            tc.copy(values, into=into)
    assert x.tolist() == list(range(8))


def test_share_leaves_parts_of_the_target_alone() -> None:
    """What is named stays as it is, on both sides; the rest is written."""
    source, target = (nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(3, 3)}) for _ in range(2))
    before = payload(target["a"].weight)

    tc.copy(source, into=target, share="source.a")

    assert payload(target["a"].weight) == before
    assert torch.equal(target["b"].weight, source["b"].weight)


def test_what_has_no_state_to_hand_over_stays() -> None:
    """Locks and files of the target are its own affair."""
    import threading

    source = {"lock": threading.Lock(), "x": torch.ones(2)}
    target = {"lock": threading.Lock(), "x": torch.zeros(2)}
    lock = target["lock"]
    tc.copy(source, into=target)
    assert target["lock"] is lock
    assert target["x"].tolist() == [1, 1]


def test_options_that_mean_nothing_with_into() -> None:
    """The memory exists, so how it is to be made cannot be asked for."""
    x = torch.ones(2)
    with pytest.raises(tc.UsageError) as caught:
        tc.copy(x, into=torch.zeros(2), alias="break")
    assert str(caught.value) == (
        "into= writes into memory that exists; alias=, grad= and device= mean nothing with it. "
        "Expected into= alone, or with share=. Got alias='break', grad='detach', device=None."
    )


def test_a_root_that_cannot_be_written() -> None:
    """A number is no place."""
    with pytest.raises(tc.StructureMismatch, match=r"written in place, or 1\. Got 2"):
        tc.copy(1, into=2)
    assert tc.copy(1, into=1) == 1


def test_a_tensor_as_root() -> None:
    """One tensor into another, large and small."""
    for size in (3, 1 << 20):
        source, target = torch.randn(size), torch.zeros(size)
        assert tc.copy(source, into=target) is target
        assert torch.equal(source, target)


def test_parameters_are_written_without_gradient() -> None:
    """A leaf that requires gradient may be written, and stays one."""
    source, target = nn.Linear(2, 2), nn.Linear(2, 2)
    tc.copy(source, into=target)
    assert target.weight.is_leaf
    assert target.weight.grad_fn is None
    assert same_bits(source.weight, target.weight)


# --- members by name, and what shares memory ------------------------------------------------------


def _with_scheduler() -> tuple[Any, ...]:
    model = nn.Linear(2, 2)
    optimizer = optim.SGD(model.parameters(), 0.1)
    return model, optimizer, optim.lr_scheduler.StepLR(optimizer, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LSTM(3, 4),
        lambda: nn.GRU(3, 4),
        lambda: nn.MultiheadAttention(4, 2),
        lambda: nn.BatchNorm1d(3),
        _with_scheduler,
    ],
    ids=["LSTM", "GRU", "MultiheadAttention", "BatchNorm1d", "scheduler"],
)
def test_what_copy_made_can_be_written_back(make: Callable[[], Any]) -> None:
    """A copy fits into its source, whatever order a class gives its attributes when it is copied."""
    value = make()

    assert tc.copy(tc.copy(value), into=value) is value


def test_members_are_matched_by_name() -> None:
    """Dicts are written key by key and sets compared as sets, in whatever order they were filled."""
    target = {"b": torch.zeros(1), "a": 2, "s": {8, 0}}
    tc.copy({"a": 1, "s": {0, 8}, "b": torch.ones(1)}, into=target)

    assert target == {"b": torch.ones(1), "a": 1, "s": {0, 8}}


def test_numbers_are_written_bit_for_bit() -> None:
    """-0.0 is another number than 0.0."""
    target = {"x": 0.0}
    tc.copy({"x": -0.0}, into=target)

    assert str(target["x"]) == "-0.0"


def _transposed_tie() -> list[torch.Tensor]:
    x = torch.zeros(2, 2)
    return [x, x.t()]


def _overlapping_gradients() -> nn.Module:
    layer, flat = nn.Linear(2, 2), torch.zeros(4)
    layer.weight.grad, layer.bias.grad = flat.view(2, 2), flat[2:]
    return layer


def _gradients_apart() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.weight.grad, layer.bias.grad = torch.ones(2, 2), torch.zeros(2)
    return layer


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (
            lambda: [torch.ones(2, 2), torch.ones(2, 2)],
            _transposed_tie,
        ),
        (lambda: [torch.ones(3, 3)], lambda: [torch.zeros(5).unfold(0, 3, 1)]),
        (
            lambda: [np.ones((3, 3))],
            lambda: [np.lib.stride_tricks.as_strided(np.zeros(5), (3, 3), (8, 8))],
        ),
        (_gradients_apart, _overlapping_gradients),
    ],
    ids=["transposed", "windows", "numpy windows", "gradients"],
)
def test_targets_that_would_hold_something_else_are_refused(
    source: Callable[[], Any], target: Callable[[], Any]
) -> None:
    """Where elements of the target lie in the same bytes and those of the source do not, no write."""
    into = target()
    with pytest.raises(tc.StructureMismatch, match="nothing was written"):
        tc.copy(source(), into=into)


def test_a_holder_that_refuses_is_written_past() -> None:
    """Numbers go past an overridden `__setitem__`, so that a write is never half done."""

    class ReadOnly(dict[str, int]):
        def __setitem__(self, key: str, value: int) -> None:
            raise TypeError("read-only")

    target = [torch.zeros(1), ReadOnly(k=1)]
    tc.copy([torch.ones(1), ReadOnly(k=2)], into=target)

    assert target == [torch.ones(1), {"k": 2}]


def test_into_itself_changes_nothing() -> None:
    """A value is what it holds, ties and all."""
    x = torch.ones(3)
    value = [x, x[:2]]

    assert tc.copy(value, into=value) is value
