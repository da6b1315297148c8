"""`duplicate(how="stack")` and `how="view"`: one value with a new axis, with memory and without."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, stack_module_state, vmap

import truecopy as tc
from oracles import addresses, apart, partition, payload

BOTH = pytest.mark.parametrize("how", ["stack", "view"])


@BOTH
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_values_are_those_of_torch_stack(how: Any, dim: int) -> None:
    """Along any dim, negative ones too."""
    x = torch.arange(6.0).view(2, 3)
    made = tc.duplicate(x, 4, how=how, dim=dim)
    assert torch.equal(made, torch.stack([x] * 4, dim=dim))
    assert apart([x], [made]) == (how == "stack")


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_each_slice_lies_as_a_copy_would(dim: int) -> None:
    """The axis is outermost in memory: slices keep the strides of a copy, channels_last among them."""
    x = torch.arange(48.0).view(2, 3, 2, 4).contiguous(memory_format=torch.channels_last)
    made = tc.duplicate(x, 5, how="stack", dim=dim)
    for i in range(5):
        one = made.select(dim, i)
        assert one.stride() == tc.copy(x).stride()
        assert one.is_contiguous(memory_format=torch.channels_last)
    assert tc.duplicate(torch.zeros(2, 3), 4, how="stack").is_contiguous()


def test_no_two_slices_share_and_each_is_as_tied_as_the_source() -> None:
    """Views that share bytes go on sharing them, slice by slice, arrays among them."""
    x = torch.arange(8.0)
    source = {"x": x, "head": x[:5], "tail": x[3:], "rows": x.view(2, 4).t(), "array": x.numpy()}
    made = tc.duplicate(source, 3, how="stack")
    slices = [[value[i] for value in made.values()] for i in range(3)]

    assert all(apart(slices[i], slices[j]) for i in range(3) for j in range(i))
    assert all(partition(one) == partition(source.values()) for one in slices)
    assert all(apart(source.values(), one) for one in slices)
    made["head"][1].fill_(7)
    assert made["array"][1].tolist() == [7, 7, 7, 7, 7, 5, 6, 7]
    assert made["array"][0].tolist() == x.tolist()


def test_other_dtypes_on_the_same_bytes() -> None:
    """Items of different sizes in one block: each slice begins where all of them are aligned."""
    raw = torch.arange(12, dtype=torch.uint8)
    source = [raw, raw[:8].view(torch.float64), raw.view(torch.int16), raw[1:4]]
    made = tc.duplicate(source, 3, how="stack", dim=-1)
    for value, stacked in zip(source, made, strict=True):
        for i in range(3):
            assert payload(stacked[..., i]) == payload(value)
    assert partition([one[..., 2] for one in made]) == partition(source)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor([1 + 2j, -0j]).conj(),
        lambda: torch.tensor([1 + 2j, -0j]).conj().imag,
        lambda: torch.zeros(2, 3).expand(4, 2, 3),
        lambda: torch.arange(6.0).as_strided((4, 3), (1, 1)),
        lambda: torch.zeros(0, 3),
        lambda: torch.tensor(3.0),
        lambda: torch.tensor([True, False]),
        lambda: torch.tensor([1.0, -0.0, float("nan")]).to(torch.float8_e5m2),
        lambda: torch.ones(2, 3, device="meta"),
    ],
    ids=["conj", "neg", "expanded", "overlapping", "empty", "0-dim", "bool", "fp8", "meta"],
)
@BOTH
def test_every_layout(how: Any, make: Any) -> None:
    """Bits and flags as they are, in every slice."""
    x = make()
    made = tc.duplicate([x], 3, how=how)[0]
    assert made.shape == (3, *x.shape)
    assert (made.is_conj(), made.is_neg(), made.dtype) == (x.is_conj(), x.is_neg(), x.dtype)
    if not x.is_meta:
        assert all(payload(made[i]) == payload(x) for i in range(3))


@BOTH
def test_class_and_flags_are_kept(how: Any) -> None:
    """A Parameter is a Parameter, a leaf that requires gradient still does, .grad and tags come along."""
    weight = nn.Parameter(torch.ones(2, 3))
    weight.grad = torch.full((2, 3), 5.0)
    weight.is_head = True  # type: ignore[attr-defined]
    frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    made = tc.duplicate({"w": weight, "frozen": frozen, "y": weight * 2}, 4, how=how)

    assert type(made["w"]) is nn.Parameter
    assert made["w"].is_leaf
    assert made["w"].requires_grad
    assert made["w"].grad.shape == (4, 2, 3)
    assert made["w"].is_head
    assert not made["frozen"].requires_grad
    assert made["y"].is_leaf
    assert not made["y"].requires_grad


@BOTH
def test_gradient_adds_up_along_the_axis(how: Any) -> None:
    """grad="keep": the source gets the sum, as through torch.stack; forward mode flows too."""
    w = torch.ones(2, 3, requires_grad=True)
    weights = torch.arange(1.0, 5.0)
    for dim in (0, 2):
        w.grad = None
        made = tc.duplicate(w, 4, how=how, dim=dim, grad="keep")
        (made * weights.view([-1 if d == dim else 1 for d in range(3)])).sum().backward()
        assert w.grad is not None
        assert torch.equal(w.grad, torch.full((2, 3), 10.0))
    assert torch.autograd.gradcheck(
        lambda x: tc.duplicate([x, x[0]], 2, how=how, dim=-1, grad="keep")[1] * 2,
        torch.ones(2, 2, dtype=torch.float64, requires_grad=True),
    )


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, at first use
@BOTH
def test_tangents_go_along_with_their_values(how: Any) -> None:
    """Forward mode: the tangent of a stack is the stack of tangents."""
    x, tangent = torch.zeros(2), torch.tensor([1.0, 2.0])
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        made = tc.duplicate(dual, 3, how=how, dim=-1, grad="keep")
        got = forward_ad.unpack_dual(made).tangent
    assert got is not None
    assert torch.equal(got, torch.stack([tangent] * 3, dim=-1))


def test_a_stack_of_a_model_runs_under_vmap_with_its_ties() -> None:
    """Each slice computes what its own model computes; what is tied is stored once."""
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=False))
    model[2].weight = model[0].weight
    stacked = tc.duplicate(model, 3, how="stack")
    assert stacked[2].weight is stacked[0].weight
    parameters = dict(stacked.named_parameters())
    assert set(parameters) == {"0.weight", "1.weight", "1.bias"}
    assert all(p.is_leaf and p.requires_grad for p in parameters.values())
    models = tc.duplicate(model, 3)
    with torch.no_grad():
        for i, one in enumerate(models):
            for name, p in one.named_parameters():
                p.add_(i + 1)
                parameters[name][i].add_(i + 1)

    x = torch.tensor([1, 2, 3])
    for base in (model, stacked):
        out = vmap(lambda p, base=base: functional_call(base, p, (x,)))(parameters)
        want = torch.stack([one(x) for one in models])
        torch.testing.assert_close(out, want)
    out.sum().backward()
    for i, one in enumerate(models):
        one(x).sum().backward()
        for name, p in one.named_parameters():
            torch.testing.assert_close(parameters[name].grad[i], p.grad)  # type: ignore[index]


def test_two_parameters_on_one_storage_stay_tied_where_torch_unties_them() -> None:
    """torch.func.stack_module_state makes of each name a tensor of its own: the tie is gone."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = nn.Parameter(model[0].weight.data)
    theirs, _ = stack_module_state([model, model])
    ours = dict(tc.duplicate(model, 2, how="stack").named_parameters())

    assert not tc.relate(theirs["0.weight"], theirs["1.weight"]).shares_memory
    assert tc.relate(ours["0.weight"], ours["1.weight"]).kind == "identical"


def test_buffers_train_mode_and_other_attributes() -> None:
    """A stacked module is the module again: buffers stacked, the rest as it was."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    model.note = "kept"  # type: ignore[assignment]
    stacked = tc.duplicate(model, 4, how="stack")
    assert type(stacked) is nn.Sequential
    assert not stacked.training
    assert stacked.note == "kept"
    assert {name: tuple(b.shape) for name, b in stacked.named_buffers()} == {
        "1.running_mean": (4, 3),
        "1.running_var": (4, 3),
        "1.num_batches_tracked": (4,),
    }
    state = dict(stacked.named_parameters()) | dict(stacked.named_buffers())
    x = torch.randn(5, 3)
    out = vmap(lambda p: functional_call(model, p, (x,)))(state)
    torch.testing.assert_close(out, model(x).expand(4, 5, 3))


def test_recurrent_models_keep_their_flat_weights() -> None:
    """Weights that a module holds a second time, in a list of its own, are the stacked ones there too."""
    stacked = tc.duplicate(nn.GRU(2, 3), 4, how="stack")
    assert all(a is b for a, b in zip(stacked._flat_weights, stacked.parameters(), strict=True))


# --- views ----------------------------------------------------------------------------------------


def test_a_view_takes_no_memory_and_says_so() -> None:
    """Stride 0 along the new axis: all n are the source's own bytes, and relate tells."""
    x = torch.arange(6.0).view(2, 3)
    made = tc.duplicate(x, 1000, how="view", dim=1)
    assert made.stride() == (3, 0, 1)
    assert addresses(made) == addresses(x)
    assert tc.relate(made[:, 0], made[:, 999]).kind == "identical"
    assert tc.relate(made, x).kind == "identical"
    assert [g.paths for g in tc.aliases([made, x]).groups] == [("obj[0]", "obj[1]")]


def test_a_write_to_one_view_reaches_all_and_the_source() -> None:
    """Where torch lets it through; an operation on the whole is refused by torch itself."""
    x = torch.zeros(3)
    made = tc.duplicate(x, 4, how="view")
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        made.add_(1)
    made[2] = 5
    assert x.tolist() == [5.0, 5.0, 5.0]
    assert made.tolist() == [[5.0, 5.0, 5.0]] * 4


def test_autograd_sees_a_write_through_a_view() -> None:
    """The version counter is the source's own, so that a backward pass over the old values fails."""
    w = torch.ones(3, requires_grad=True)
    y = (w * w).sum()
    with torch.no_grad():
        tc.duplicate(w, 2, how="view")[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_views_of_arrays_cannot_be_written() -> None:
    """As numpy gives them out: broadcast, and read-only."""
    array = np.arange(6.0).reshape(2, 3)
    made = tc.duplicate({"a": array}, 4, how="view", dim=-1)["a"]
    assert made.shape == (2, 3, 4)
    assert not made.flags.writeable
    array[0, 0] = 9
    assert made[0, 0].tolist() == [9.0] * 4


def test_ties_inside_a_view_are_those_of_the_source() -> None:
    """A model's view: parameters by the same names, tied as they were, on the model's own memory."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = nn.Parameter(model[0].weight.data)
    made = tc.duplicate(model, 3, how="view")
    assert tc.relate(made[0].weight, made[1].weight).kind == "identical"
    assert tc.relate(made, model).kind == "identical"
    out = vmap(lambda p: functional_call(model, p, (torch.ones(2),)))(dict(made.named_parameters()))
    torch.testing.assert_close(out, model(torch.ones(2)).expand(3, 2))


# --- what has no axis -----------------------------------------------------------------------------


class ClonesItself:
    """Copies itself with tensors of its own making."""

    def __init__(self) -> None:
        self.x = torch.ones(2)

    def __deepcopy__(self, memo: Any) -> "ClonesItself":
        made = ClonesItself.__new__(ClonesItself)
        made.x = self.x.clone()
        return made


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: torch.eye(3).to_sparse(), "a tensor that keeps its bytes in indices and values"),
        (
            lambda: torch.eye(3).to_sparse_csr(),
            "a tensor that keeps its bytes in two index tensors and values",
        ),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2)]),
            "a tensor that keeps its bytes in one buffer",
        ),
        (
            lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8),
            "a tensor that keeps its bytes in one strided region, with a quantizer",
        ),
        (lambda: torch.ones(3).to_mkldnn(), "a tensor that keeps its bytes where torch does not show"),
        (
            lambda: nn.LazyLinear(3).weight,
            "a UninitializedParameter copies itself, without a new axis",
        ),
        (lambda: torch.ones(4).untyped_storage(), "a storage has no axes"),
        (
            lambda: np.ma.array([1.0, 2.0], mask=[0, 1]),
            "a MaskedArray may mean something else with one more axis",
        ),
        (ClonesItself, "ClonesItself.__deepcopy__ made held['it'].x anew"),
    ],
    ids=[
        "coo", "csr", "nested", "quantized", "mkldnn", "lazy layer", "storage", "masked", "own copy",
    ],
)  # fmt: skip
@BOTH
def test_what_cannot_be_stacked_is_refused_with_its_path(how: Any, make: Any, why: str) -> None:
    """Never a tensor left without the axis that all others have."""
    held = {"x": torch.zeros(2), "it": make()}
    with pytest.raises(tc.CannotCopy) as raised:
        tc.duplicate(held, 2, how=how)
    assert str(raised.value) == (
        f"`held['it']`: cannot be stacked: {why}. Expected tensors and arrays that are one strided "
        f'region. Got {why}. how="list" and how="lazy" take it.'
    )


def test_plain_bytes_of_python_have_no_axis_and_need_none() -> None:
    """A bytearray is copied once, like every value of Python."""
    made = tc.duplicate({"x": torch.zeros(2), "raw": bytearray(b"ab")}, 2, how="stack")
    assert made["raw"] == bytearray(b"ab")
    assert made["x"].shape == (2, 2)
