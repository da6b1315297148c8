"""Corner cases 11 to 20: what ends early, hooks, fast paths, checkpointing, compilers, modes."""

import gc
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import truecopy as tc


class Calls(nn.Module):
    """A module made of a function."""

    def __init__(self, forward, **children) -> None:
        super().__init__()
        self.run = forward
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *args, **kwargs):
        return self.run(self, *args, **kwargs)


def raising(error):
    def forward(_, x):
        x.neg()
        raise error

    return forward


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(1)])
def test_11_an_exception_leaves_what_was_captured_and_nothing_else(error) -> None:
    """The failing module is named; hooks, modes and the way modules are called are as before."""
    call = nn.Module.__call__
    model = nn.Sequential(nn.Linear(2, 2), Calls(raising(error)), nn.Linear(2, 2))
    cap = tc.capture(model)
    with pytest.raises(type(error)), cap:
        model(torch.ones(2))

    assert cap.names() == ["0/linear", "0", "1/neg"]
    assert cap.partial
    assert cap.ended == f"raised {type(error).__name__} in 1"
    assert nn.Module.__call__ is call
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    with tc.capture(model[0]) as again:  # and nothing is on any more
        model[0](torch.ones(2))
    assert again.names() == ["/linear", "(model)"]


def test_11_an_interrupt_that_was_caught_inside_leaves_the_stack_right() -> None:
    """The next forward of the same capture has its names."""
    fails = [True]

    def forward(_, x):
        if fails:
            fails.clear()
            raise KeyboardInterrupt
        return x.neg()

    model = nn.Sequential(nn.Sequential(Calls(forward)))
    with tc.capture(model) as cap:
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(2))
        model(torch.ones(2))

    assert cap.names() == ["0.0#1/neg", "0.0#1", "0#1", "(model)#1"]


def test_12_hooks_of_the_user_stay_in_place_and_in_order() -> None:
    """Ours see what the caller gets, after theirs; they are as they were, and no `forward` is put on."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    order = []
    handle = model[0].register_forward_hook(lambda *_: order.append("first"))
    model[0].register_forward_hook(lambda _, __, out: order.append("second") or out * 0 + 5)
    model[0].register_forward_pre_hook(lambda *_: order.append("pre"))
    hooks = [list(m._forward_hooks.items()) for m in model]
    names = [set(vars(m)) for m in model.modules()]
    with tc.capture(model) as cap:
        model(torch.ones(2))
        handle.remove()

    assert order == ["pre", "first", "second"]
    assert cap["0"].tolist() == [5.0, 5.0]
    assert list(model[0]._forward_hooks.items()) == hooks[0][1:]
    assert [set(vars(m)) for m in model.modules()] == names


def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2).eval()


def test_13_a_fast_path_is_taken_as_it_would_have_been() -> None:
    """Bit for bit, and the report says what is not seen inside."""
    model, x = encoder(), torch.randn(2, 3, 8)
    with torch.no_grad():
        plain = model(x)
        with tc.capture(model) as cap:
            observed = model(x)

    assert torch.equal(plain, observed)
    assert "layers.0" in cap
    assert any("fast path" in what for what, _ in cap.record.unseen)
    with pytest.raises(tc.NotCaptured, match="fused fast path"):
        cap["layers.0.linear1"]


def test_13_names_inside_switch_it_off_and_the_report_says_so() -> None:
    """Then the result differs in the last bits."""
    model, x = encoder(), torch.randn(2, 3, 8)
    with torch.no_grad():
        plain = model(x)
        with tc.capture(model, select="layers.*.linear1") as cap:
            observed = model(x)

    assert cap.names() == ["layers.0.linear1", "layers.1.linear1"]
    assert torch.allclose(plain, observed, atol=1e-5)
    assert any("may differ in the last bits" in what for what, _ in cap.record.unseen)


def test_13_in_training_everything_is_seen() -> None:
    """Where there is no fast path, nothing is left out."""
    model = encoder().train()
    with tc.capture(model) as cap:
        model(torch.randn(2, 3, 8))

    assert "layers.1.linear2" in cap
    assert not cap.record.unseen


def test_14_a_name_that_never_came_is_an_error_that_says_why() -> None:
    """MHA.out_proj, LSTM, a layer that is not called, a name that is not there, with the nearest."""
    mha = nn.MultiheadAttention(4, 2)
    x = torch.ones(2, 1, 4)
    cap = tc.capture(mha, select="out_proj")
    with (
        pytest.raises(tc.NotCaptured, match="takes the weights of out_proj and does not call"),
        cap,
    ):
        mha(x, x, x)
    model = nn.Sequential(nn.Linear(4, 4), nn.ModuleList([nn.Linear(2, 2)]))
    cap = tc.capture(model, select=["0", "1.0"])
    with pytest.raises(tc.NotCaptured, match=r"1\.0 is a Linear, and was not called"), cap:
        model[0](x)
    with tc.capture(mha) as cap:
        mha(x, x, x)
    with pytest.raises(KeyError, match="The nearest: /softmax"):
        cap["/softmx"]
    with pytest.raises(tc.NotCaptured, match="the model has no module 'nothere'"):
        cap["nothere"]


def test_15_scores_of_fused_attention_are_derived() -> None:
    """softmax(q k^T scale + mask), equal to the math that the kernel is documented by."""

    def forward(_, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)

    model = Calls(forward)
    q, k, v = torch.randn(3, 2, 4, 5, 8)
    with tc.capture(model, inputs=True) as cap:
        out = model(q, k, v)

    name = "/scaled_dot_product_attention"
    scores = cap.scores(name)
    assert scores.shape == (2, 4, 5, 5)
    assert torch.allclose(scores @ v, out, atol=1e-6)
    with tc.capture(model) as bare:
        model(q, k, v)
    with pytest.raises(tc.UsageError, match="inputs=True"):
        bare.scores(name)


@pytest.mark.parametrize("reentrant", [False, True])
def test_16_what_is_recomputed_is_not_captured_twice(reentrant: bool) -> None:
    """Checkpointing calls the modules again in backward: dropped, counted, and the stack stays right."""
    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model = Calls(
        lambda m, x: m.last(checkpoint(m.block, x, use_reentrant=reentrant)),
        block=block,
        last=nn.Linear(4, 4),
    )
    x = torch.randn(2, 4, requires_grad=True)
    with tc.capture(model) as cap:
        model(x).sum().backward()
        model(x)

    names = cap.names("*")
    first = ["block.0", "block.1", "block.2", "block", "last", "(model)"]
    assert names[:6] == first
    assert names[6:] == [f"{name}#1" for name in first]
    assert any("recomputed" in what for what, _ in cap.record.unseen)


@pytest.mark.filterwarnings("ignore")
def test_17_compiled_parts_run_eagerly_and_are_seen() -> None:
    """After their first call too; `_orig_mod` is in no name; and afterwards they are compiled again."""
    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    ran = []

    def backend(graph, _):
        ran.append("compiled")
        return graph.forward

    model = Calls(lambda m, x: m.inner(x) + 1, inner=torch.compile(inner, backend=backend))
    x = torch.randn(2, 4)
    before = model(x)
    assert ran == ["compiled"]
    with tc.capture(model) as cap:
        during = model(x)
    after = model(x)

    assert "inner.0" in cap
    assert not any("_orig_mod" in name for name in cap)
    assert torch.equal(before, during)
    assert torch.equal(before, after)
    assert ran == ["compiled"]  # not once more
    assert any("ran eagerly" in what for what, _ in cap.record.unseen)


@pytest.mark.filterwarnings("ignore")
def test_17_captures_that_overlap_share_the_stance() -> None:
    """Whichever ends first, the last one puts back what was there."""
    ran = []
    model = nn.Linear(2, 2)
    compiled = torch.compile(model, backend=lambda graph, _: ran.append(1) or graph.forward)
    first, second = tc.capture(compiled), tc.capture(compiled)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    compiled(torch.ones(2))
    second.__exit__(None, None, None)
    assert not ran
    compiled(torch.ones(3, 2))
    assert ran


def test_18_scripted_modules_show_their_boundary() -> None:
    """What is inside is not seen, and asked for it is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
        traced = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    model = Calls(lambda m, x: m.traced(m.scripted(x)), scripted=scripted, traced=traced)
    with tc.capture(model) as cap:
        out = model(torch.ones(1, 2))

    assert {"scripted", "traced", "(model)"} <= set(cap)
    assert torch.equal(cap["traced"], out)
    with pytest.raises(tc.NotCaptured, match="TorchScript"):
        cap["scripted.0"]


def test_19_inference_mode_gives_ordinary_tensors() -> None:
    """Usable in autograd afterwards; values stay what they were though nothing counts versions."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
    with torch.inference_mode(), tc.capture(model) as cap:
        model(torch.randn(3, 2))

    assert not any(value.is_inference() for value in cap.values())
    assert (cap["0"] * nn.Parameter(torch.ones(2))).requires_grad
    assert torch.equal(cap["0"].relu(), cap["1"])


def test_20_autocast_keeps_what_was_computed() -> None:
    """bf16 stays bf16, and statistics are in fp32."""
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([0.11, 0.73, 1.37]))
    with torch.autocast("cpu", torch.bfloat16):
        with tc.capture(model) as cap:
            out = model(torch.randn(2, 4))
        with tc.capture(model, keep="stats") as stats:
            model(torch.zeros(2, 4))

    assert cap["(model)"].dtype == torch.bfloat16
    assert torch.equal(cap["(model)"], out)
    assert stats["(model)"].dtype == torch.bfloat16
    mean = stats["(model)"].mean
    assert mean == model.bias.bfloat16().float().mean().item()
    assert mean != torch.tensor(mean).bfloat16().item(), "in bf16 it would be another number"
    gc.collect()
