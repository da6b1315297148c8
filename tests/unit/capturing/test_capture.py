import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import truecopy as tc
from truecopy.cli import main
from truecopy.tracing.composites import THIN

ROOT = Path(__file__).parents[3]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))


def captured(seed: int = 0, **options) -> tc.Capture:
    torch.manual_seed(seed)
    with tc.capture(model(), **options) as cap:
        cap._model(torch.randn(3, 4, generator=torch.Generator().manual_seed(1)))
    return cap


def test_selection() -> None:
    """Names, patterns, classes, predicates, and several of them."""
    assert captured(select=nn.Linear).names() == ["0", "2"]
    assert captured(select="*/linear").names() == ["0/linear", "2/linear"]
    assert captured(select=lambda name: name.module == "1").names() == ["1/relu", "1"]
    assert captured(select=["0", nn.ReLU]).names() == ["0", "1"]
    with pytest.raises(tc.UsageError, match="select= takes"):
        captured(select=3)
    with pytest.raises(tc.NotCaptured, match="Conv2d"):
        captured(select=nn.Conv2d)


def test_until_ends_the_run_and_the_window() -> None:
    """What comes after is not run; a name that never comes is an error."""
    cap = captured(until="1")
    assert cap.names() == ["0/linear", "0", "1/relu", "1"]
    assert (cap.ended, cap.partial) == ("stopped at 1", True)
    assert captured(select="2", until="1/relu").names() == ["1/relu"]
    with pytest.raises(tc.NotCaptured, match="`7`"):
        captured(until="7")


def test_what_is_kept() -> None:
    """Statistics, shapes, and what a function makes of each tensor."""
    values = captured()
    stats = captured(keep="stats")["0"]
    assert stats.mean == pytest.approx(values["0"].mean().item(), abs=1e-6)
    assert captured(keep="shapes")["0"].shape == (3, 8)
    norms = captured(keep=lambda t: t.norm())
    assert torch.equal(norms["0"], values["0"].norm())
    assert captured(keep=lambda t: list(t.shape))["0"] == [3, 8]
    same = captured(keep=lambda t: t)
    assert torch.equal(same["0"], values["0"])


def test_inputs_saved_values_and_stashed_attributes() -> None:
    """With the node and the line of what autograd saved."""

    class Stash(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.scores = x.exp()
            self.many = [self.scores * 2, None]
            self.count = 3
            return self.scores

    with tc.capture(Stash(), inputs=True, saved=True) as cap:
        cap._model(torch.ones(2, requires_grad=True))

    assert cap["(model):attr.scores"].tolist() == pytest.approx([2.718281] * 2)
    assert cap["(model):attr.many"][0].shape == (2,)
    assert cap["(model):in"].args[0].tolist() == [1, 1]
    name = "/exp:saved.ExpBackward0.result"
    assert torch.equal(cap[name], cap["/exp"])
    (told,) = [value for value in cap.record.values if value.name == name]
    assert told.node == "ExpBackward0"
    assert told.line.startswith(__file__)
    assert (
        "self.scores = x.exp()"
        in Path(__file__).read_text().splitlines()[int(told.line.rpartition(":")[2]) - 1]
    )


def test_grad_keep_stays_in_the_graph() -> None:
    """Gradient flows from a value to the parameters, though the live tensor was overwritten."""
    net = model()
    with tc.capture(net, grad="keep") as cap:
        net(torch.randn(3, 4))
    (grad,) = torch.autograd.grad(cap["0"].sum(), net[0].bias)
    assert grad.tolist() == [3.0] * 8


def test_names_are_the_same_in_another_process() -> None:
    """They say nothing of ids, addresses or times."""
    code = (
        "import torch, truecopy as tc\n"
        "m = torch.nn.MultiheadAttention(4, 2)\n"
        "with tc.capture(m) as c: m(*[torch.ones(2, 1, 4)] * 3)\n"
        "print(*c.names())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here: dict = {}
    exec(code.rpartition("\n")[0], here)
    assert done.stdout.split() == here["c"].names()
    assert "/softmax" in here["c"]


def test_thin_functions_are_thin() -> None:
    """What is not opened makes one call of the same result; what is opened shows what is inside."""
    F = nn.functional  # noqa: N806 - as everybody calls it
    x = torch.randn(1, 4, 6)
    calls = {
        "relu": lambda: F.relu(x), "softmax": lambda: F.softmax(x, -1), "dropout": lambda: F.dropout(x, 0.5),
        "layer_norm": lambda: F.layer_norm(x, (6,)), "silu": lambda: F.silu(x), "elu": lambda: F.elu(x),
        "leaky_relu": lambda: F.leaky_relu(x), "log_softmax": lambda: F.log_softmax(x, -1),
        "embedding": lambda: F.embedding(x.long()[0, 0] * 0, x[0]), "glu": lambda: F.glu(x),
        "batch_norm": lambda: F.batch_norm(x, None, None, training=True), "mish": lambda: F.mish(x),
        "group_norm": lambda: F.group_norm(x, 2), "split": lambda: x.split(2), "selu": lambda: F.selu(x),
        "hardtanh": lambda: F.hardtanh(x), "hardswish": lambda: F.hardswish(x), "celu": lambda: F.celu(x),
        "hardsigmoid": lambda: F.hardsigmoid(x), "relu6": lambda: F.relu6(x),
        "rms_norm": lambda: F.rms_norm(x, (6,)), "alpha_dropout": lambda: F.alpha_dropout(x, 0.5, True),
        "instance_norm": lambda: F.instance_norm(x), "max_pool2d": lambda: F.max_pool2d(x, 2),
        "adaptive_max_pool1d": lambda: F.adaptive_max_pool1d(x, 2),
    }  # fmt: skip
    assert set(calls) == THIN

    class Run(nn.Module):
        def forward(self, call):
            return call()

    net = Run()
    for name, call in calls.items():
        with tc.capture(net, select="*/*") as cap:
            net(call)
        functions = [n for n in cap.names("/*") if not n.startswith(("/getitem", "/mul", "/long"))]
        assert len(functions) == 1, (name, functions)
    with tc.capture(net, select="*/*") as cap:
        net(lambda: F.normalize(x))
    assert cap.names()[-1] == "/normalize"
    assert "/div" in cap


def test_saved_and_read_again(tmp_path: Path) -> None:
    """Values, order, structures and ties; streaming, whole or not at all; nothing but plain data."""
    net = nn.MultiheadAttention(4, 2)
    with tc.capture(net) as cap:
        net(*[torch.randn(2, 1, 4)] * 3)
    path = tmp_path / "acts.safetensors"
    written = cap.save(path)
    assert path.stat().st_size == written < cap.record.cloned_bytes + 20_000
    back = tc.Capture.load(path)

    assert list(back) == list(cap)
    assert type(back["(model)"]) is tuple
    for (name, a), (other, b) in zip(cap.tensors(), back.tensors(), strict=True):
        assert name == other
        assert torch.equal(a, b)
    with pytest.raises(tc.CannotWrite, match="exists"):
        cap.save(path)
    cap.save(path, force=True)
    with pytest.raises(tc.NotCaptured, match="softmx"):
        back["/softmx"]
    from safetensors.torch import load_file, save_file

    assert torch.equal(load_file(path)["/softmax"], cap["/softmax"])
    save_file({"a": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(tc.CannotRead, match="holds no capture"):
        tc.Capture.load(tmp_path / "other.safetensors")


def test_what_a_file_cannot_hold_is_told(tmp_path: Path) -> None:
    """Statistics and shapes come back as such; sparse tensors as None."""
    captured(keep="stats").save(tmp_path / "s.safetensors")
    back = tc.Capture.load(tmp_path / "s.safetensors")
    assert back["0"].mean == captured(keep="stats")["0"].mean
    assert back["0"].dtype is torch.float32


def test_the_first_difference_in_the_order_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two runs of which the second layer differs; by the verb and by the command."""
    first, net = captured(), model()
    with torch.no_grad():
        net[2].weight[0, 0] += 1
    with tc.capture(net) as second:
        net(torch.randn(3, 4, generator=torch.Generator().manual_seed(1)))
    found = first.compare(second)
    assert found.first is not None
    assert (found.first.path, found.last_alike) == ("2/linear", "1")
    assert [d.path for d in found.differences] == ["2/linear", "2", "(model)"]
    assert first.compare(captured()).is_clean
    assert not first.compare(captured(select="0")).is_clean

    first.save(tmp_path / "a.safetensors")
    second.save(tmp_path / "b.safetensors")
    paths = [str(tmp_path / name) for name in ("a.safetensors", "b.safetensors")]
    assert main(["compare", *paths]) == 1
    assert "the first to differ is 2/linear" in capsys.readouterr().out
    assert main(["compare", "--json", *paths]) == 1
    assert json.loads(capsys.readouterr().out)["kind"] == "capture comparison"
    assert main(["compare", paths[0], paths[0]]) == 0


def test_a_budget_is_kept_by_the_process() -> None:
    """96 MiB of activations in a budget of 32: the peak of a process of its own."""
    told = json.loads(
        subprocess.run(
            [sys.executable, ROOT / "benchmarks" / "peak.py", "24", "4", "32 MiB"],
            capture_output=True, text=True, check=True,
        ).stdout
    )  # fmt: skip
    assert told["right"]
    assert told["held"] <= 32 << 20
    assert told["observed"] - told["plain"] < 60 << 20 < told["made"]


def test_wrong_options() -> None:
    """Each is refused before anything is observed."""
    for options in ({"keep": "all"}, {"grad": "yes"}, {"over": "burn"}, {"dtype": torch.int8},
                    {"budget": "much"}):  # fmt: skip
        with pytest.raises(tc.UsageError):
            tc.capture(model(), **options)
    with pytest.raises(tc.UsageError, match="observes a module"):
        tc.capture(torch.relu)  # type: ignore[arg-type]
    cap = captured()
    with pytest.raises(tc.UsageError, match="opened once"):
        cap.__enter__()


def test_the_record_and_the_tree() -> None:
    """One sentence with the numbers; JSON; names below their modules."""
    cap = captured()
    assert str(cap).startswith(
        "Sequential: 7 values captured in 216 bytes, where a clone of each takes"
    )
    assert json.loads(json.dumps(cap.record.to_json()))["kind"] == "capture"
    assert cap.tree().splitlines()[:3] == ["(model)", "  -> float32 3x2", "  0"]
    assert not cap.record.unseen
    assert repr(cap) == "<capture of Sequential: 7 values, completed>"
