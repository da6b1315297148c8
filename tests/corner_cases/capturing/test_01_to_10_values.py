"""Corner cases 1 to 10: calls, names, writes that come later, views, structures."""

import collections
import ctypes
import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from transformers import DynamicCache, StaticCache
from transformers.modeling_outputs import BaseModelOutput

import truecopy as tc
from oracles import apart


class Calls(nn.Module):
    """A module made of a function."""

    def __init__(self, forward, **children) -> None:
        super().__init__()
        self.run = forward
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *args, **kwargs):
        return self.run(self, *args, **kwargs)


def test_01_a_module_called_often_has_a_name_for_each_call() -> None:
    """An RNN cell: nothing is overwritten, and the type of what is handed out never changes."""
    model = Calls(lambda m, x: m.cell(m.cell(m.cell(x))), cell=nn.Linear(2, 2))
    with tc.capture(model, select="cell") as cap:
        model(torch.ones(2))

    assert cap.names() == ["cell", "cell#1", "cell#2"]
    assert torch.equal(model.cell(cap["cell#1"]), cap["cell#2"])
    assert [type(one) for one in (cap["cell"], *cap.calls("cell"))] == [torch.Tensor] * 4
    with tc.capture(model, select="cell#2") as third:
        model(torch.ones(2))
    assert third.names() == ["cell#2"]


def test_01_functions_are_counted_anew_in_each_call_of_a_module() -> None:
    """A second forward has the names of the first, with the number of the call."""
    model = Calls(lambda m, x: m.inner(x), inner=Calls(lambda _, x: x.relu().relu()))
    with tc.capture(model, select="inner/*") as cap:
        model(torch.ones(2))
        model(torch.ones(2))

    assert cap.names() == ["inner/relu", "inner/relu#1", "inner#1/relu", "inner#1/relu#1"]


def test_02_a_shared_module_is_named_by_the_way_it_was_called() -> None:
    """One layer under two parents has two names; `named_modules()` shows one."""
    layer = nn.Linear(2, 2)
    a, b = (Calls(lambda m, x: m.layer(x), layer=layer) for _ in range(2))
    model = Calls(lambda m, x: m.b(m.a(x)), a=a, b=b)
    assert "b.layer" not in dict(model.named_modules())
    with tc.capture(model, select="*.layer") as cap:
        model(torch.ones(2))

    assert cap.names() == ["a.layer", "b.layer"]
    assert torch.equal(layer(cap["a.layer"]), cap["b.layer"])


def test_02_an_alias_that_was_not_called_by_is_told_of() -> None:
    """The same module under a second name of one parent."""
    layer = nn.Linear(2, 2)
    model = Calls(lambda m, x: m.first(x), first=layer, second=layer)
    cap = tc.capture(model, select="second")
    with pytest.raises(tc.NotCaptured, match="second is the same module as first"), cap:
        model(torch.ones(2))


@pytest.mark.parametrize("later", ["relu_", "add_", "optimizer", "data", "fused"])
def test_03_a_value_stays_what_it_was(later: str) -> None:
    """Whatever writes into it afterwards, counted by `_version` or not."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Identity())
    with tc.capture(model) as cap:
        out = model(torch.randn(4, 3))
        expected = out.detach().clone()
        with torch.no_grad():
            match later:
                case "relu_":
                    out.relu_()
                case "add_":
                    out.add_(1)
                case "data":
                    out.data.mul_(3)
                case _:
                    out = nn.Parameter(out.detach())
                    out.grad = torch.ones_like(out)
                    torch.optim.AdamW([out], lr=1.0, fused=later == "fused").step()

    assert not torch.equal(out, expected)
    assert torch.equal(cap["1"], expected)
    assert torch.equal(cap["0"], expected)


def test_04_an_in_place_module_has_values_before_and_after() -> None:
    """ReLU(inplace=True): forward hooks see its input overwritten already (pytorch#95617)."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True))
    with tc.capture(model, inputs=True) as cap:
        model(torch.randn(3, 4))

    before, after = cap["0"], cap["1"]
    assert (before < 0).any()
    assert torch.equal(cap["1:in"].args[0], before)
    assert torch.equal(before.relu(), after)
    assert apart([before], [after])


def test_04_out_is_written_and_seen() -> None:
    """`x += y` and `out=` are values of their own; a lazy one may grow as out= makes it."""

    def forward(_, x):
        y = x * 2
        y += 1
        torch.mul(x, 3, out=y)
        big = torch.ones(100)
        torch.add(big, big, out=y.data.resize_(100))
        return y

    model = Calls(forward)
    x = torch.ones(3)
    with tc.capture(model) as cap:
        out = model(x)

    assert cap["/mul"].tolist() == [2.0] * 3
    assert cap["/add_"].tolist() == [3.0] * 3
    assert cap["/mul#1"].tolist() == [3.0] * 3
    assert out.tolist() == [2.0] * 3


def test_05_writes_under_other_names_are_seen() -> None:
    """`x.data.mul_` and `x[0] = ...`, which returns nothing."""

    def forward(_, x):
        y = x + 0
        y.data.mul_(2)
        y[0] = 5
        return y

    with tc.capture(Calls(forward)) as cap:
        cap._model(torch.ones(2))

    assert cap["/add"].tolist() == [1.0, 1.0]
    assert cap["/mul_"].tolist() == [2.0, 2.0]
    assert cap["/setitem"].tolist() == [5.0, 2.0]


def test_05_whoever_has_the_address_is_no_danger() -> None:
    """Numpy and DLPack write around torch: what hands out an address is copied from then on."""

    def forward(_, x):
        y = x + 0
        array = y.detach().numpy()
        array[0] = 7
        z = x + 0
        other = np.from_dlpack(z.detach())
        a = z * 1
        z.relu()
        view = z.view(-1)
        kept = view.clone()
        ctypes_write(other)
        return y, z, a, kept

    def ctypes_write(array):
        ctypes.memset(array.__array_interface__["data"][0], 0, 4)

    with tc.capture(Calls(forward)) as cap:
        y, z, *_ = cap._model(torch.ones(2))

    assert y.tolist() == [7.0, 1.0]
    assert cap["/add"].tolist() == [1.0, 1.0]
    assert z.tolist() == [0.0, 1.0]
    assert cap["/add#1"].tolist() == [1.0, 1.0]
    assert cap["/view"].tolist() == [1.0, 1.0]


def test_06_values_with_one_memory_are_kept_once_and_handed_out_apart() -> None:
    """A tensor, its transpose and its rows: one block, and a write to one reaches no other."""
    model = Calls(lambda _, x: (x + 0).t()[0])
    with tc.capture(model) as cap:
        model(torch.ones(100, 100))

    assert cap.nbytes == 40_000
    first, second = cap["/add"], cap["/t"]
    first.zero_()
    assert second.sum() == 10_000
    assert apart([first], [second])
    assert cap["/add"] is first  # and the same object every time


def test_06_a_row_does_not_keep_the_whole() -> None:
    """4 kB of a 4 MB tensor take 4 kB."""
    model = Calls(lambda _, x: (x + 0)[3])
    with tc.capture(model, select="/getitem") as cap:
        model(torch.ones(1000, 1000))

    assert cap.nbytes == 4000
    assert cap["/getitem"].shape == (1000,)


def test_07_an_expanded_value_takes_what_it_has() -> None:
    """Four bytes stay four bytes: `clone()` would make 4 MB."""
    model = Calls(lambda _, x: x.expand(1000, 1000))
    with tc.capture(model, select="/expand") as cap:
        model(torch.ones(1))

    assert cap.nbytes == 4
    assert cap["/expand"].stride() == (0, 0)
    assert cap["/expand"].sum() == 1_000_000


def test_08_layouts_and_bits_come_through() -> None:
    """Strides, channels_last, conjugate and negative bits."""

    def forward(_, x, c):
        return x.contiguous(memory_format=torch.channels_last), c.conj(), c.conj().imag

    model = Calls(forward)
    x, c = torch.randn(2, 3, 4, 5), torch.randn(3, dtype=torch.cfloat)
    with tc.capture(model) as cap:
        out = model(x, c)

    for kept, live in zip(cap["(model)"], out, strict=True):
        assert torch.equal(kept, live)
        assert kept.stride() == live.stride() or kept.dim() == 1  # a part of a pair lies dense
        assert (kept.is_conj(), kept.is_neg()) == (live.is_conj(), live.is_neg())


@dataclasses.dataclass
class Result:
    value: torch.Tensor
    note: str


Pair = collections.namedtuple("Pair", "left right")


class Odd:
    def __init__(self, value) -> None:
        self.value = value


@pytest.mark.parametrize(
    "make",
    [
        lambda y: (y, None, 3),
        lambda y: [y, "text"],
        lambda y: {"y": y, "n": None},
        lambda y: collections.OrderedDict(a=y),
        lambda y: Pair(y, y.t()),
        lambda y: Result(y, "note"),
        lambda y: BaseModelOutput(last_hidden_state=y, hidden_states=(y, y + 1)),
        lambda y: nn.utils.rnn.pack_padded_sequence(y, torch.tensor([3, 2, 1])),
        lambda y: (Result(y, "x"), [{"deep": (y,)}]),
        Odd,
        lambda y: None,  # noqa: ARG005
        lambda y: 5,  # noqa: ARG005
    ],
    ids=["tuple", "list", "dict", "ordered", "namedtuple", "dataclass", "ModelOutput", "packed", "nested",
         "object", "None", "int"],
)  # fmt: skip
def test_09_structures_keep_their_type(make) -> None:
    """Whatever a module returns; None stays None, and nothing is an error."""
    model = Calls(lambda m, x: make(m.linear(x)), linear=nn.Linear(3, 3))
    with tc.capture(model, select="(model)") as cap, torch.no_grad():
        out = model(torch.randn(3, 3))

    kept = cap["(model)"]
    assert type(kept) is type(out)
    assert kept is out or not tc.relate(kept, out).shares_memory
    assert _values(kept) == _values(out)


def _values(value):
    """A structure as plain data."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _values(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_values(one) for one in value]
    return {k: _values(v) for k, v in vars(value).items()} if hasattr(value, "__dict__") else value


def test_09_later_changes_of_the_structure_do_not_matter() -> None:
    """The dict that was returned is filled further by the caller."""
    model = Calls(lambda m, x: {"y": m.linear(x)}, linear=nn.Linear(3, 3))
    with tc.capture(model, select="(model)") as cap:
        out = model(torch.ones(3))
        out["more"] = 1
        out["y"] = None

    assert list(cap["(model)"]) == ["y"]
    assert cap["(model)"]["y"].shape == (3,)


def test_10_a_cache_is_kept_as_it_was_and_once() -> None:
    """The issue asks for the type; what was not written between two layers takes no memory twice."""

    def forward(_, x, cache):
        for layer in range(2):
            cache.update(x * (layer + 1), x * (layer + 1), layer)
        return cache

    model = Calls(forward)
    cache = DynamicCache()
    with tc.capture(model, select="(model)") as cap:
        model(torch.ones(1, 1, 2, 4), cache)
        model(torch.ones(1, 1, 2, 4), cache)

    first, second = cap["(model)"], cap["(model)#1"]
    assert type(first) is DynamicCache
    assert first.layers[1].keys.shape == (1, 1, 2, 4)
    assert second.layers[1].keys.shape == (1, 1, 4, 4)
    assert not tc.relate(first, second).shares_memory
    assert not tc.relate(second, cache).shares_memory


def test_10_a_class_may_be_left_alone() -> None:
    """`opaque=`: what stands there says so."""
    model = Calls(lambda _, cache: (cache, 1))
    with tc.capture(model, opaque=(StaticCache, DynamicCache)) as cap:
        model(DynamicCache())

    assert any("by reference" in note for v in cap.record.values for note in v.notes)


def test_the_helpers_can_fail() -> None:
    """The comparison of structures tells two apart."""
    assert _values((torch.ones(1), None)) != _values((torch.zeros(1), None))
