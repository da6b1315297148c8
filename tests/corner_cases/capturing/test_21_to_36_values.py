"""Corner cases 21 to 36: transforms, generators, threads, wrappers, gradients, odd tensors, reentrancy."""

import copy
import pickle
import random
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import truecopy as tc
from oracles import apart
from truecopy import _torch


class Calls(nn.Module):
    """A module made of a function."""

    def __init__(self, forward, **children) -> None:
        super().__init__()
        self.run = forward
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *args, **kwargs):
        return self.run(self, *args, **kwargs)


def test_21_under_vmap_and_grad_the_true_values_come_out() -> None:
    """Stand-ins die with their transform: what is behind them is kept, batch axes first."""
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    expected = model(x)
    with tc.capture(model) as cap:
        torch.vmap(model)(x)
        torch.vmap(torch.vmap(model))(x.expand(5, 4, 3))
        torch.vmap(model, in_dims=1, out_dims=1)(x.t())
        torch.func.grad(lambda y: model(y).sum())(x)

    assert torch.allclose(cap["(model)"], expected)
    assert cap["(model)#1"].shape == (5, 4, 2)
    assert torch.allclose(cap["(model)#1"], expected.expand(5, 4, 2))
    assert torch.allclose(cap["(model)#2"], expected)
    assert torch.allclose(cap["(model)#3"], expected)
    assert not any(map(_torch.is_functorch_wrapper, cap.values()))


def streaming(m, x):
    for _ in range(3):
        x = m.layer(x)
        yield x


def test_22_a_generator_is_captured_while_it_is_read() -> None:
    """Its items are labelled, what its body calls is named, and nothing leaks between items."""
    model = Calls(streaming, layer=nn.Linear(2, 2))
    outer = Calls(lambda m, x: [y.neg() for y in m.gen(x)], gen=model)
    with tc.capture(outer) as cap:
        outer(torch.ones(2))

    assert cap.names("gen:item.*") == ["gen:item.0", "gen:item.1", "gen:item.2"]
    assert cap.names("gen.layer") == ["gen.layer", "gen.layer#1", "gen.layer#2"]
    assert cap.names("/neg") == ["/neg", "/neg#1", "/neg#2"]
    assert torch.equal(model.layer(cap["gen:item.0"]), cap["gen:item.1"])


def test_22_a_generator_left_half_way_leaves_nothing() -> None:
    """Neither a module on the stack nor a value of what came after the window."""
    model = Calls(streaming, layer=nn.Linear(2, 2))
    with tc.capture(model) as cap:
        items = model(torch.ones(2))
        next(items)
        model.layer(torch.ones(2))
    later = list(items)

    assert len(later) == 2
    assert cap.names(":item.*") == ["(model):item.0"]
    assert cap.names("layer") == ["layer", "layer#1"]
    with tc.capture(model) as again:
        next(model(torch.ones(2)))
    assert again.names(":item.*") == ["(model):item.0"]


def test_23_a_direct_call_of_forward_is_the_parents_work() -> None:
    """No module call happens; its functions are seen all the same, also of the model's own methods."""
    model = Calls(lambda m, x: m.layer.forward(x).relu(), layer=nn.Linear(2, 2))
    with tc.capture(model) as cap:
        model(torch.ones(2))
        model.forward(torch.ones(2))
        functional.gelu(torch.ones(2))  # nobody's

    assert cap.names() == ["/linear", "/relu", "(model)", "layer/linear", "/relu#1"]


def test_24_each_thread_sees_its_own() -> None:
    """Two captures of one model at once, on two threads."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    found, barrier = {}, threading.Barrier(2)

    def run(value):
        with tc.capture(model) as cap:
            barrier.wait()
            for _ in range(20):
                model(torch.full((2,), float(value)))
            barrier.wait()
        found[value] = cap

    threads = [threading.Thread(target=run, args=(v,)) for v in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for value, cap in found.items():
        assert len(cap.names("(model)")) == 20
        expected = model(torch.full((2,), float(value)))
        assert all(torch.equal(one, expected) for one in cap.calls("(model)"))
    assert nn.Module.__call__.__qualname__ == "Module._wrapped_call_impl"


def test_24_replicas_are_not_the_model() -> None:
    """A forward on another thread is not of this capture."""
    model = nn.Linear(2, 2)
    with tc.capture(model) as cap:
        other = threading.Thread(target=model, args=(torch.ones(2),))
        other.start()
        other.join()
        model(torch.ones(2))

    assert cap.names() == ["/linear", "(model)"]


@pytest.fixture
def process_group(tmp_path):
    """A group of this process alone."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("process_group")
def test_25_wrappers_of_distributed_training_are_in_no_name() -> None:
    """DDP: `module.` is stripped; FSDP2: local shards, with their placement told, never gathered."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    ddp = nn.parallel.DistributedDataParallel(copy.deepcopy(model))
    with tc.capture(ddp) as cap:
        ddp(torch.ones(1, 2)).sum().backward()
    assert {"0", "1", "(model)"} <= set(cap)
    assert not any("module" in name for name in cap)

    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1,))
    fully_shard(model, mesh=mesh)
    with tc.capture(model) as cap:
        out = model(torch.ones(1, 2))
        out.sum().backward()
    assert torch.equal(cap["(model)"], out)
    assert {"0", "1"} <= set(cap)

    sharded = Calls(lambda _, x: x * 2)
    given = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
    with tc.capture(sharded) as cap:
        out = sharded(given)
    kept = cap["(model)"]
    assert type(kept) is DTensor
    assert kept.placements == out.placements
    assert torch.equal(kept.to_local(), out.to_local())
    assert apart([kept.to_local()], [out.to_local()])


def test_26_gradients_are_those_of_the_value_even_if_it_was_changed() -> None:
    """`retain_grad` would tell of the changed tensor, and full backward hooks raise."""
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 1))
    x = torch.randn(5, 3)
    with tc.capture(model, gradients=True) as cap:
        model(x).sum().backward()

    with torch.no_grad():
        after = torch.ones(5, 1) @ model[2].weight
        before = after * (cap["0"] > 0)
    assert torch.allclose(cap.gradients["1"], after)
    assert torch.allclose(cap.gradients["0"], before)
    assert torch.equal(cap.gradients["0/linear"], cap.gradients["0"])
    assert not any(t._backward_hooks for t in model.parameters())


def test_26_gradients_add_up_and_missing_ones_say_why() -> None:
    """Two passes through a kept graph; a branch that nobody used; values that require none."""
    model = Calls(lambda m, x: (m.a(x), m.b(x)), a=nn.Linear(2, 2), b=nn.Linear(2, 2))
    with tc.capture(model, gradients=True) as cap:
        used, _ = model(torch.ones(2))
        used.sum().backward(retain_graph=True)
        used.sum().backward()

    assert cap.gradients["a"].tolist() == [2.0, 2.0]
    assert cap.gradients["b"] is None
    assert "no backward pass reached it" in cap.why_no_gradient("b")
    assert cap.gradients["(model)"][0].tolist() == [2.0, 2.0]
    assert cap.gradients["(model)"][1] is None
    with torch.no_grad(), tc.capture(model, gradients=True) as without:
        model(torch.ones(2))
    assert without.why_no_gradient("a") == "the value requires no gradient"
    with pytest.raises(tc.UsageError):
        tc.capture(model).gradients  # noqa: B018


def test_26_gradients_of_a_higher_order() -> None:
    """With create_graph the gradient of the gradient flows."""
    model = Calls(lambda _, x: x.pow(3))
    x = torch.tensor([2.0], requires_grad=True)
    with tc.capture(model, gradients=True, grad="keep") as cap:
        (g,) = torch.autograd.grad(model(x), x, create_graph=True)
        g.backward()

    assert g.item() == 12
    assert x.grad.item() == 12
    assert cap.gradients["/pow"].item() == 1


def test_27_parameters_and_inputs_that_come_out_are_copied() -> None:
    """Identity of an input, a tied weight as output: copied, and marked as no activation."""
    model = Calls(lambda m, x: (m.identity(x), m.weight), identity=nn.Identity())
    model.weight = nn.Parameter(torch.ones(3))
    x = torch.zeros(2)
    with tc.capture(model) as cap:
        model(x)
    x.add_(1)
    model.weight.data.add_(1)

    assert cap["identity"].tolist() == [0, 0]
    assert cap["(model)"][1].tolist() == [1, 1, 1]
    assert all(leaf.older for value in cap.record.values for leaf in value.leaves)
    assert not _torch.is_copy_on_write(model.weight)
    assert not _torch.is_copy_on_write(x)


def test_28_one_value_under_many_names_is_kept_once() -> None:
    """The model, its last child and the function in it; and a parameter that comes out twice."""
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 8)))
    with tc.capture(model) as cap:
        model(torch.ones(2, 4))

    assert cap.names() == ["0.0/linear", "0.0", "0", "(model)"]
    assert cap.nbytes == 64
    assert [leaf.same_as for v in cap.record.values for leaf in v.leaves][1:] == ["0.0/linear"] * 3


def test_29_capture_draws_no_random_number() -> None:
    """Dropout is what it would have been, and all generators are where they would be."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    x = torch.ones(4, 8)
    states = []
    for keep in (None, "tensors", "stats", "shapes"):
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        if keep is None:
            out = model(x)
        else:
            with tc.capture(model, keep=keep, gradients=keep == "tensors"):
                out = model(x)
        states.append(
            (out.tolist(), torch.get_rng_state().tolist(), random.getstate(),
             np.random.get_state()[1].tolist())
        )  # fmt: skip
    assert all(state == states[0] for state in states)


@pytest.mark.filterwarnings("ignore")
def test_30_modules_that_change_while_they_run() -> None:
    """Lazy layers, parametrizations, batch norm: as they would be without us."""

    def make():
        torch.manual_seed(0)
        linear = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
        return nn.Sequential(nn.LazyLinear(4), linear, nn.BatchNorm1d(4))

    plain, watched = make(), make()
    x = torch.randn(5, 3)
    torch.manual_seed(1)
    expected = plain(x)
    torch.manual_seed(1)
    with tc.capture(watched) as cap:
        out = watched(x)

    assert torch.equal(out, expected)
    assert {"0", "1", "2"} <= set(cap)
    assert type(watched[0]) is nn.Linear
    for (name, a), b in zip(plain.state_dict().items(), watched.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.quantize_per_tensor(torch.ones(2, 2), 0.5, 1, torch.qint8),
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(4).to_sparse_csr(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        lambda: torch.ones(2, dtype=torch.cfloat),
        lambda: torch.ones(2).to(torch.float8_e4m3fn),
        lambda: torch.ones(2, 2).to_mkldnn(),
        lambda: torch.ones(2, dtype=torch.bool),
        lambda: torch.ones(2, device="meta"),
    ],
    ids=["quantized", "coo", "csr", "jagged", "complex", "fp8", "mkldnn", "bool", "meta"],
)
def test_31_every_kind_of_tensor_is_kept_by_its_kind(make) -> None:
    """Type, layout and dtype stay; meta has a shape alone."""
    model = Calls(lambda _: make())
    with tc.capture(model) as cap:
        out = model()

    kept = cap["(model)"]
    assert type(kept) is type(out)
    assert (kept.layout, kept.dtype, kept.device) == (out.layout, out.dtype, out.device)
    assert kept.is_quantized == out.is_quantized
    if out.device.type != "meta":
        same = kept.to_dense() if kept.is_mkldnn else kept
        assert str(same) == str(out.to_dense() if out.is_mkldnn else out)
    with tc.capture(model, keep="stats") as stats:
        model()
    assert stats["(model)"] is not None


def test_31_fake_tensors_stay_fake() -> None:
    """Under a fake mode nothing is allocated."""
    from torch._subclasses import FakeTensorMode

    model = nn.Linear(2, 2)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(torch.ones(3, 2))
        with tc.capture(model) as cap:
            model(fake)
    assert cap["(model)"].shape == (3, 2)
    assert cap["(model)"].device.type == "meta"
    assert cap.nbytes == 0


def test_32_empty_scalar_huge_and_boolean_values() -> None:
    """As tensors and as statistics; what is larger than memory may still have a shape."""

    def forward(_, x):
        return x[:0], x.sum(), x > 0, x.long(), x.expand(2**16, 2**16)

    model = Calls(forward)
    with tc.capture(model) as cap:
        model(torch.ones(1))
    with tc.capture(model, keep="stats", select=["/sum", "/gt", "/long", "/getitem"]) as stats:
        model(torch.tensor([0.0, 2.0]).sum(0, keepdim=True))

    empty, scalar, boolean, integer, huge = cap["(model)"]
    assert (empty.shape, scalar.item(), boolean.item(), integer.item()) == ((0,), 1.0, True, 1)
    assert huge.numel() == 2**32
    assert cap.nbytes < 1000
    assert stats["/gt"].mean == 1
    assert stats["/long"].max == 2
    assert np.isnan(stats["/getitem"].mean)


def test_33_a_model_copied_while_it_is_observed_takes_nothing_along() -> None:
    """There are no hooks of ours to be copied: deepcopy and pickle see the model alone."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with tc.capture(model) as cap:
        model(torch.ones(2))
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), tc.copy(model)]
        copies[0](torch.ones(2))

    assert cap.names("(model)") == ["(model)"]
    for one in copies:
        assert not any(m._forward_hooks or "forward" in vars(m) for m in one.modules())


def test_34_modules_whose_forward_was_replaced() -> None:
    """Accelerate puts a `forward` on the instance: the call around it is captured, what it returns last."""
    model = nn.Sequential(nn.Linear(2, 2))
    old = model[0].forward
    model[0]._old_forward = old
    model[0].forward = lambda x: old(x).double()
    before = dict(vars(model[0]))
    with tc.capture(model) as cap:
        model(torch.ones(2))

    assert cap["0"].dtype == torch.float64
    assert vars(model[0]) == before


def test_35_values_do_not_wait_for_anything() -> None:
    """On the CPU bytes are there when the call returns; statistics are read when somebody asks."""
    model = nn.Linear(2, 2)
    with tc.capture(model, keep="stats") as cap:
        model(torch.ones(2))
        held = cap._recorder.entries.get("(model)").kept.leaves[0]
    assert isinstance(held.summary.numbers, torch.Tensor)
    assert cap["(model)"].max >= cap["(model)"].min


def test_36_captures_inside_of_each_other() -> None:
    """Each sees the model's calls and nothing of the other's work; nor does a mode of the user."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with tc.capture(model) as outer:
        model(torch.ones(2))
        with tc.capture(model, keep="stats", gradients=True) as inner:
            model(torch.ones(2))
        inner["0"]
    expected = ["0/linear", "0", "1/relu", "1", "(model)"]
    assert inner.names() == expected
    assert outer.names()[:5] == expected
    assert outer.names()[5:] == ["0#1/linear", "0#1", "1#1/relu", "1#1", "(model)#1"]

    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(getattr(function, "__name__", ""))
            return function(*args, **(kwargs or {}))

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    lists = []
    for observed in (False, True):
        seen.clear()
        with Functions(), Operations():
            if observed:
                with tc.capture(model, keep="stats") as cap:
                    model(torch.ones(2))
            else:
                model(torch.ones(2))
        lists.append([name for name in seen if "aten" in name or name in ("linear", "relu")])
    assert lists[0] == lists[1]
    assert cap["(model)"].nan == 0
