"""Who writes into watched memory: by which alias, at which line, and before it is done."""

import contextlib
import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from strategies import byte_addresses, fresh_buffer, tensor_views
from truecopy import _torch, duplicate, watch
from truecopy.errors import MemoryWritten, UsageError, WrittenTo
from truecopy.tracing.watching import Write


def filled(*shape: int) -> torch.Tensor:
    return torch.full(shape, 7.0)


WRITERS: dict[str, Callable[[torch.Tensor], object]] = {
    "in place": lambda x: x.add_(1),
    "operator": lambda x: x.__iadd__(1),
    "view": lambda x: x.view(-1)[1:3].zero_(),
    "item": lambda x: x.__setitem__((0, 0), 1.0),
    "mask": lambda x: x.__setitem__(x > 0, 1.0),
    "index": lambda x: x.__setitem__(torch.tensor([0]), 1.0),
    "data": lambda x: x.data.mul_(2),
    "detach": lambda x: x.detach().zero_(),
    "transposed": lambda x: x.t().fill_(1),
    "as_strided": lambda x: x.as_strided((2,), (2,)).fill_(1),
    "other dtype": lambda x: x.view(torch.int32).fill_(1),
    "copy_": lambda x: x.copy_(torch.zeros(2, 3)),
    "out": lambda x: torch.add(torch.ones(2, 3), 1, out=x),
    "out of a view": lambda x: torch.mm(torch.ones(3, 1), torch.ones(1, 2), out=x.t()),
    "foreach": lambda x: torch._foreach_add_([torch.ones(2), x], 1),
    "set_": lambda x: torch.empty(0).set_(x.untyped_storage(), 2, (2,)).fill_(1),
    "storage": lambda x: x.untyped_storage().fill_(0),
    "storage item": lambda x: x.untyped_storage().__setitem__(3, 1),
    "numpy and back": lambda x: torch.from_numpy(x.numpy()[1:]).fill_(1),
    "dlpack": lambda x: torch.from_dlpack(x).fill_(1),
    "buffer": lambda x: torch.frombuffer(x.numpy(), dtype=torch.uint8).fill_(1),
    "random": lambda x: x.uniform_(),
    "functional": lambda x: nn.functional.relu(x, inplace=True),
    "init": nn.init.zeros_,
    "inference": lambda x: torch.inference_mode()(lambda: x.add_(1))(),
    "vmap": torch.func.vmap(lambda row: row.add_(1)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_writes_through_any_alias_are_refused(name: str) -> None:
    """The operation raises, and not one byte was written."""
    x = filled(2, 3)
    where = r"`x`: is about to be written at .*test_watching\.py:"
    with pytest.raises(WrittenTo, match=where), watch(x):
        WRITERS[name](x)

    assert x.tolist() == [[7.0] * 3] * 2
    x.add_(1)  # and nothing is in the way afterwards
    assert not _torch.function_modes()


READERS: dict[str, Callable[[torch.Tensor], object]] = {
    "compute": lambda x: (x + 1).sum(),
    "view": lambda x: x.view(-1)[1:3],
    "copy": lambda x: x.clone().add_(1),
    "nothing": lambda x: x[:0].add_(1),
    "shape": lambda x: x.view(2, 3).t_(),
    "foreach": lambda x: torch._foreach_add([x, x], 1),
    "lazy clone": lambda x: torch._lazy_clone(x).add_(1),
    "its storage grows": lambda x: x.untyped_storage().resize_(1 << 20),
    "points elsewhere": lambda x: setattr(x, "data", torch.zeros(2, 3)),
}


@pytest.mark.parametrize("name", READERS)
def test_reading_is_no_write(name: str) -> None:
    """What leaves the bytes as they are goes through, silent, with its result."""
    x = filled(2, 3)
    with watch(x) as seen:
        READERS[name](x)

    assert not seen.writes


def test_out_of_another_size_is_told_behind() -> None:
    """`out=` of an empty view is given bytes beyond it, which nobody knows before."""
    base = filled(10)
    with pytest.raises(WrittenTo) as caught, watch(base[4:6]):
        torch.add(torch.ones(8), 1, out=base[:0])

    assert "by aten::add through its argument out" in str(caught.value)
    assert "it could not be told before" in str(caught.value)


def test_one_write_reaches_many_stretches() -> None:
    """Memory of numpy has a storage for each way that it came: all that are reached are found."""
    array = np.zeros(12, np.float32)
    stretches = [torch.from_numpy(array[i : i + 2]) for i in (0, 4, 8)]
    with watch(stretches, on_write="report") as seen:
        torch.from_numpy(array[1:9]).fill_(1)
        torch.from_numpy(array[10:]).fill_(1)

    assert sorted((write.path, write.nbytes) for write in seen.writes) == [
        ("stretches[0]", 4), ("stretches[1]", 8), ("stretches[2]", 4),
    ]  # fmt: skip


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_bytes_decide(data: st.DataObject) -> None:
    """Against brute force: told where a byte is in common, and only there, with how many."""
    buffer = fresh_buffer()
    watched, written = data.draw(tensor_views(buffer)), data.draw(tensor_views(buffer))
    common = byte_addresses(watched) & byte_addresses(written)
    told: list[int | None] = []
    # Torch writes no tensor that overlaps itself.
    with (
        watch(watched, on_write=lambda write: told.append(write.nbytes)),
        contextlib.suppress(RuntimeError),
    ):
        written.fill_(1)

    assert told == ([len(common)] if common else [])


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_optimizers(optimizer: Any, fused: bool) -> None:
    """A step is refused at the line of the user, whole: the state moved, the weights did not."""
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    step = optimizer(model.parameters(), lr=0.1, fused=fused)
    model(torch.ones(3)).sum().backward()
    with pytest.raises(WrittenTo, match=r"`model\.(weight|bias)`.*\(`step\.step\(\)"), watch(model):
        step.step()

    assert torch.equal(model.weight, before)


def test_gradients_that_are_accumulated() -> None:
    """Autograd adds to a gradient in the backward pass: the line of the user, and the node."""
    p = torch.ones(3, requires_grad=True)
    p.sum().backward()
    gradient = p.grad
    with pytest.raises(WrittenTo) as caught, watch(gradient):
        (p * 2).sum().backward()

    assert "in the backward pass, by AccumulateGrad" in str(caught.value)
    assert gradient is not None
    assert gradient.tolist() == [1.0] * 3


def test_running_statistics() -> None:
    """Batch norm writes what its schema does not say."""
    norm = nn.BatchNorm1d(3)
    mean = norm.running_mean
    with pytest.raises(WrittenTo) as caught, watch(mean):
        norm(torch.ones(4, 3))

    assert "by aten::native_batch_norm through its argument running_mean" in str(caught.value)


@pytest.mark.parametrize(
    ("make", "write", "path"),
    [
        (lambda: torch.eye(3).to_sparse(), lambda t: t._values().mul_(2), "_values"),
        (lambda: torch.eye(3).to_sparse(), lambda t: t.mul_(2), "_indices|_values"),
        (lambda: torch.eye(3).to_sparse_csr(), lambda t: t.values().mul_(2), "values"),
        (
            lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
            lambda t: t.fill_(2.0),
            "made",
        ),
        (lambda: TwoTensor(filled(3), filled(3)), lambda t: t.mul_(2), "a"),
        (lambda: TwoTensor(filled(3), filled(3)), lambda t: t.b.mul_(2), "b"),
        (lambda: {"w": [filled(3)]}, lambda t: t["w"][0].mul_(2), r"\['w'\]\[0\]"),
        (lambda: np.zeros(3), lambda t: torch.from_numpy(t).add_(1), "made"),
        (lambda: filled(3).untyped_storage(), lambda t: t.fill_(1), "made"),
        (
            lambda: torch._lazy_clone(filled(3)),
            lambda t: t.add_(1),
            "made",
        ),
    ],
)
def test_what_is_made_of_parts(make: Any, write: Any, path: str) -> None:
    """The tensors that hold the bytes are watched, each by its path."""
    made = make()
    with pytest.raises(WrittenTo, match=path), watch(made):
        write(made)


def test_memory_that_moves_is_followed() -> None:
    """A storage that is resized has another address, and the same watched bytes."""
    x = filled(3)
    with pytest.raises(WrittenTo) as caught, watch(x):
        x.resize_(1 << 20)[2].zero_()

    assert "by aten::zero_" in str(caught.value)
    x = filled(3)
    with watch(x[:2]):
        x[2:].zero_()
        x.resize_(0)


def from_numpy(x: torch.Tensor) -> None:
    x.numpy()[0, 1] = 3


def from_an_address(x: torch.Tensor) -> None:
    ctypes.memset(x.data_ptr(), 1, 4)


def from_a_thread(x: torch.Tensor) -> None:
    thread = threading.Thread(target=lambda: x.fill_(1))
    thread.start()
    thread.join()


@pytest.mark.parametrize("outside", [from_numpy, from_an_address, from_a_thread])
@pytest.mark.parametrize("how", ["operation", "look", "end"])
def test_writes_that_torch_does_not_see(outside: Any, how: str) -> None:
    """They are found at the next look, with the lines between which they happened."""
    x = filled(2, 3)
    with watch(x, on_write="report") as seen:
        y = x + 1
        outside(x)
        if how == "operation":
            y = x * 2
        elif how == "look":
            seen.look()
        assert len(seen.writes) == (how != "end")
    [write] = seen.writes

    assert y.shape == x.shape
    assert write.is_from_outside
    assert write.since is not None
    assert write.since.text == "y = x + 1"
    assert write.site is not None
    if how == "operation":
        assert write.site.text == "y = x * 2"
    assert "changed from outside between" in str(write)


def test_writes_from_outside_raise() -> None:
    """At the next operation on the memory, and at the end; not over what the block raises."""
    x = filled(3)
    seen_by_numpy = x.numpy()
    with pytest.raises(WrittenTo) as caught, watch(x):
        seen_by_numpy[0] = 1

    assert "was changed from outside between" in str(caught.value)
    with pytest.raises(ZeroDivisionError), watch(x):
        seen_by_numpy[0] = 1 // int(seen_by_numpy.fill(2) or 0)


def test_a_nan_is_a_value_like_any() -> None:
    """Bytes are compared, not numbers: nothing changed, and 0.0 to -0.0 is a change."""
    x = torch.tensor([float("nan"), 0.0])
    with watch(x):
        _ = x + 1
    with pytest.raises(WrittenTo, match="1 byte of it"), watch(x):
        x.numpy()[1] = -0.0


def test_the_copy_is_bounded() -> None:
    """What does not fit is not compared, and said to be so."""
    small, large = filled(4), filled(1000)
    with watch(large, small, outside="1 KiB") as seen:
        large.numpy()[0] = 1
        _ = large + 1
    assert seen.not_compared_bytes == 4000
    with watch(large, small, outside=0) as seen:
        small.numpy()[0] = 1
        _ = small + 1
    assert seen.not_compared_bytes == 4016
    with pytest.raises(WrittenTo), watch(large, outside=0):
        large.add_(1)


def test_reports_are_by_line() -> None:
    """A line once, with how often; each write goes through, and what it wrote is no surprise later."""
    x = filled(3)
    with watch(x, on_write="report") as seen:
        for _ in range(5):
            x.add_(1)
        x.mul_(2)

    assert [(write.operation, write.count) for write in seen.writes] == [
        ("aten::add_", 5), ("aten::mul_", 1),
    ]  # fmt: skip
    assert x.tolist() == [24.0] * 3
    assert "x is written 5 times at " in str(seen)


def test_warnings_point_at_the_line() -> None:
    """A MemoryWritten at the line of the user, in their file."""
    x = filled(3)
    with pytest.warns(MemoryWritten, match="x is written at") as caught, watch(x, on_write="warn"):
        x.data.add_(1)

    assert caught[0].filename == __file__
    assert x[0] == 8


def test_a_callable_decides() -> None:
    """It is given each write, and refuses by raising."""
    x = filled(3)
    seen: list[Write] = []
    with watch(x, on_write=seen.append):
        x.add_(1)
    assert [write.argument for write in seen] == ["self"]

    def refuse(write: Write) -> None:
        raise PermissionError(write.path)

    with pytest.raises(PermissionError, match="x"), watch(x, on_write=refuse):
        x.add_(1)
    assert x[0] == 8


def test_one_operation_writes_many() -> None:
    """Each watched tensor is told of once."""
    x, y = filled(3), filled(3)
    with watch(x, y, x[1:], on_write="report") as seen:
        torch._foreach_add_([x, y], 1)

    assert [write.path for write in seen.writes] == ["x", "tensors[2]", "y"]


def test_watches_nest() -> None:
    """Each tells of its own; the inner sees first."""
    x, y = filled(3), filled(3)
    with watch(x, on_write="report") as outer, watch(y, on_write="report") as inner:
        x.add_(1)
        y.add_(1)

    assert [write.path for write in (*outer.writes, *inner.writes)] == ["x", "y"]


def test_a_view_can_be_read_only_for_a_while() -> None:
    """`duplicate(how="view")` reaches its source: a write to either is refused."""
    x = filled(3)
    view = duplicate(x, 4, how="view")
    for target in (view[2], x):
        with pytest.raises(WrittenTo, match="view"), watch(view):
            target.add_(1)
    assert view.sum() == 84


def test_compiled_functions_stay_compiled() -> None:
    """What the compiler made of them runs; what it writes is told, at the latest behind."""
    calls = []

    def backend(graph: Any, inputs: Any) -> Any:  # noqa: ARG001 - as the compiler calls it
        calls.append(graph)
        return graph.forward

    x = filled(3)
    function = torch.compile(lambda t: t.mul_(2), backend=backend)
    with watch(x, on_write="report") as seen:
        function(x)
    torch._dynamo.reset()

    assert len(calls) == 1
    assert len(seen.writes) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ((), {}),
        ((3,), {}),
        (("text",), {}),
        ((torch.zeros(2),), {"on_write": "shout"}),
        ((torch.zeros(2),), {"outside": "much"}),
        ((torch.zeros(2).to_mkldnn(),), {}),
    ],
)
def test_what_cannot_be_watched(arguments: Any) -> None:
    """It is refused at once: a watch that sees nothing would be worse than none."""
    positional, named = arguments
    with pytest.raises(UsageError):
        watch(*positional, **named)


def test_a_watch_is_for_one_block() -> None:
    """Used again it says so."""
    seen = watch(filled(3))
    with seen:
        pass
    with pytest.raises(UsageError, match="used already"), seen:
        pass


def trained(watching: bool) -> tuple[list[float], torch.Tensor]:
    """Losses and the state of the random numbers of a short training."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    optimizer = torch.optim.AdamW(layer.parameters())
    losses = []
    with watch(layer, on_write="report") if watching else contextlib.nullcontext():
        for _ in range(3):
            optimizer.zero_grad()
            loss = layer(torch.rand(2, 4, 8)).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.inference_mode():  # the fast path of the layer
            losses += layer.eval()(torch.rand(2, 4, 8)).flatten().tolist()
    return losses, torch.get_rng_state()


def test_looking_changes_nothing() -> None:
    """A training that is watched gives the same numbers to the bit; modules are called as ever."""
    call = nn.Module.__call__
    with watch(filled(3)):
        assert nn.Module.__call__ is call
        assert not _torch.function_modes()
    (plain, state), (watched, state_watched) = trained(False), trained(True)

    assert plain == watched
    assert torch.equal(state, state_watched)
