"""What an observer is told, and that looking changes nothing."""

import copy
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from truecopy import _torch
from truecopy.tracing.operations import Operation
from truecopy.tracing.stream import Observer, Stream


class Log(Observer):
    """Writes down names, as `tests` read them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, function: Any, *_: Any) -> None:
        self.lines.append(f"{self.stream.modules.path}/{function.__name__}")

    def end(self, *told: Any) -> None:
        error = told[-1]
        self.lines.append("." if error is None else type(error).__name__)

    def after(self, operation: Operation, *_: Any) -> None:
        self.lines.append(operation.base)


def told(run: Any) -> list[str]:
    log = Log()
    with Stream(log):
        run()
    return log.lines


def test_calls_and_what_they_dispatch() -> None:
    """A call, the operations inside of it, its end; calls that dispatch nothing too."""
    x = torch.ones(2, 3)

    assert told(lambda: x.t().reshape(6)) == [
        "/t", "t", ".", "/reshape", "clone", "_unsafe_view", ".",
    ]  # fmt: skip
    assert told(x.contiguous) == ["/contiguous", "."]
    assert told(lambda: (x.shape, x.dim(), x.dtype)) == []


def test_exceptions_are_told_and_raised() -> None:
    """A call that raises has an end, and the stream goes on."""
    x = torch.ones(2, 3)
    log = Log()
    with Stream(log):
        with pytest.raises(RuntimeError):
            torch.mm(x, x)
        x.neg()

    assert log.lines == ["/mm", "mm", "RuntimeError", "/neg", "neg", "."]
    assert not _torch.function_modes()


def test_backward_has_operations_and_no_calls() -> None:
    """Operations of a backward pass are inside of the call that began it."""
    x = torch.ones(2, requires_grad=True)
    lines = told(lambda: (x * 2).sum().backward())

    assert lines.count("/backward") == 1
    assert {"expand", "mul"} <= set(lines[lines.index("/backward") :])


def test_inner_calls_for_those_who_ask() -> None:
    """Calls inside of calls are told where an observer wants them."""

    class Inner(Log):
        inner_calls = True

    attention = nn.MultiheadAttention(4, 2)
    x = torch.ones(3, 1, 4)
    for kind, expected in ((Log, False), (Inner, True)):
        log = kind()
        with Stream(log):
            nn.functional.multi_head_attention_forward(
                x, x, x, 4, 2, attention.in_proj_weight, attention.in_proj_bias, None, None, False,
                0.0, attention.out_proj.weight, attention.out_proj.bias,
            )  # fmt: skip
        assert ("/softmax" in log.lines) is expected


def test_modules_by_path() -> None:
    """The path of the innermost module; the outermost by its class; lists and late ones too."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Sequential(nn.ReLU())])
            self.hidden = [nn.Tanh()]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.layers[0](x.neg())
            self.late = nn.Sigmoid()
            return self.late(self.hidden[0](x))

    model, x = Model(), torch.ones(2)
    assert [line for line in told(lambda: model(x)) if "/" in line] == [
        "Model/neg", "layers.0.0/relu", "Tanh/tanh", "late/sigmoid",
    ]  # fmt: skip


def test_streams_nest() -> None:
    """Two streams see the same, each once."""
    outer, inner = Log(), Log()
    with Stream(outer), Stream(inner):
        torch.ones(2).neg()

    assert outer.lines == inner.lines == ["/ones", "ones", ".", "/neg", "neg", "."]


def test_other_threads_are_not_seen() -> None:
    """Modes are of one thread; modules that another runs leave no path here."""

    def work() -> None:
        nn.ReLU()(torch.ones(2))

    def run() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    assert told(run) == []


def test_nothing_is_left_behind() -> None:
    """Modes, the method that calls modules, RNG and grad mode are as they were."""
    before = nn.Module.__call__
    model = nn.Linear(2, 2)
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="shapes"), Stream(Log()):
        model(torch.ones(3))

    assert nn.Module.__call__ is before
    assert not _torch.function_modes()
    assert torch.equal(state, torch.get_rng_state())
    assert torch.is_grad_enabled()


def test_fast_paths_are_taken() -> None:
    """The encoder layer runs as its fused kernel, to the same bits, though it is looked at."""
    layer = nn.TransformerEncoderLayer(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        plain = layer(x)
        log = Log()
        with Stream(log):
            watched = layer(x)

    assert torch.equal(plain, watched)
    assert "_transformer_encoder_layer_fwd" in log.lines


def test_compiled_functions_stay_compiled() -> None:
    """A backend is called as often as without us, with the same graph, before, in and after."""
    graphs: list[list[str]] = []

    def backend(module: Any, _: Any) -> Any:
        graphs.append([str(node.target) for node in module.graph.nodes])
        return module.forward

    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    x = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for inside in (model, lambda x: model(x) + 1):
            torch._dynamo.reset()
            graphs.clear()
            compiled = torch.compile(inside, backend=backend)
            compiled(x)
            expected = copy.copy(graphs)
            lines = told(lambda compiled=compiled: compiled(x))
            assert graphs == expected
            assert "/relu" not in lines
            assert "relu" in lines  # what this backend runs in Python is seen as operations

            torch._dynamo.reset()
            graphs.clear()
            compiled = torch.compile(inside, backend=backend)
            told(lambda compiled=compiled: compiled(x))
            compiled(x)
            assert graphs == expected


def test_nested_streams_leave_compiled_functions_alone() -> None:
    """Every one of them steps aside."""
    graphs: list[Any] = []

    def backend(module: Any, _: Any) -> Any:
        graphs.append(module)
        return module.forward

    compiled = torch.compile(lambda x: x.sin() + 1, backend=backend)
    x = torch.ones(3)
    with Stream(Log()) as outer, Stream(Log()) as inner:
        compiled(x)
        x.neg()
    compiled(x)
    assert len(graphs) == 1
    assert (outer.regions.count, inner.regions.count) == (1, 1)
    assert outer.observer.lines[-3:] == inner.observer.lines[-3:] == ["/neg", "neg", "."]


def test_the_compiler_is_met_where_it_is_imported() -> None:
    """Looking does not import torch's compiler; where the program does, regions are left alone."""
    script = """
import sys, torch
from truecopy.tracing.stream import Observer, Stream
count = []
def backend(module, _):
    count.append(1)
    return module.forward
x = torch.ones(3)
stream = Stream(Observer())
with stream:
    x + 1
    assert "torch._dynamo" not in sys.modules
    compiled = torch.compile(lambda x: x.sin() + 1, backend=backend)
    compiled(x)
    compiled(x)
compiled(x)
assert len(count) == 1, count
assert stream.regions.count == 2
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_wrappers_are_seen_by_what_is_inside() -> None:
    """A subclass that answers operations itself is looked through; a fake tensor is not."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.two_tensor import TwoTensor

    two = TwoTensor(torch.ones(2), torch.ones(2))
    assert told(two.neg) == ["/neg", "neg", "neg", "."]
    with FakeTensorMode():
        fake = torch.ones(2)
    assert told(fake.neg)[:2] == ["/neg", "neg"]
