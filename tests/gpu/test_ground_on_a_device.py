"""What the ground promises, where memory is an accelerator's: run by `make test-gpu`, skipped elsewhere."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

import truecopy as tc

pytestmark = pytest.mark.gpu

MIB = 1 << 20


def device() -> torch.device:
    found = torch.accelerator.current_accelerator()
    assert found is not None
    return torch.device(found.type, 0)


@contextmanager
def synchronizing_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def tied_model() -> nn.Module:
    """Two Parameters on one storage, a transposed tie, a buffer that is a view."""
    model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64, bias=False), nn.Linear(64, 32))
    model[1].weight.data = model[0].weight.data
    model[2].weight.data = model[0].weight.data.t()
    model.register_buffer("rows", model[0].weight.data[3:5])
    # `Module.to` would end every tie by memory.
    return tc.copy(model, device=device())


def test_relations_are_exact_on_a_device() -> None:
    """Views of device memory relate as their bytes do; a device and the host share nothing."""
    x = torch.zeros(4, 6, device=device())
    assert tc.relate(x, x[1:]).kind == "overlapping"
    assert tc.relate(x[:, 0], x[:, 1]).kind == "disjoint"
    assert tc.relate(x.t(), x).kind == "identical"
    assert tc.relate(x, x.contiguous()).kind == "same"
    assert tc.relate(x, x.cpu()).kind == "disjoint"
    assert tc.relate(x.view(torch.int16)[0, 3:4], x[0, 1]).kind == "overlapping"


def test_looking_does_not_synchronize() -> None:
    """`relate`, `aliases` and `plan` read descriptions, never values: the queue of a device runs on."""
    model = tied_model()
    with synchronizing_is_an_error():
        tc.relate(model[0].weight, model[2].weight)
        groups = tc.aliases(model).groups
        tc.plan(model)
    assert len(groups) == 1
    assert len(groups[0].paths) == 4


def test_ties_views_and_strides_survive_on_a_device() -> None:
    """Who shares with whom is the same in the copy, and the copy shares nothing with its source."""
    model = tied_model()
    copied = tc.copy(model)
    assert not tc.relate(copied, model).shares_memory
    assert tc.relate(copied[0].weight, copied[2].weight).kind == "identical"
    assert tc.relate(copied[0].weight, copied.rows).kind == "overlapping"
    assert copied[2].weight.stride() == model[2].weight.stride()
    assert all(map(torch.equal, copied.state_dict().values(), model.state_dict().values()))


def test_a_model_moves_there_and_back_with_its_optimizer() -> None:
    """Every byte, every tie, and an optimizer whose parameters are those of the copy."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model[1].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    there, its_optimizer = tc.copy((model, optimizer), device=device())
    assert {p.device.type for p in there.parameters()} == {device().type}
    assert its_optimizer.param_groups[0]["params"][0] is there[0].weight
    assert there[1].weight is there[0].weight
    back, _ = tc.copy((there, its_optimizer), device="cpu")
    assert all(map(torch.equal, back.parameters(), model.parameters()))
    there(torch.ones(1, 64, device=device())).sum().backward()
    its_optimizer.step()


@pytest.mark.parametrize("pinned", [False, True])
def test_the_source_may_change_as_soon_as_copy_returns(pinned: bool) -> None:
    """A copy to the device waits for its bytes: what the host writes next is not in it."""
    source = torch.ones(64 * MIB // 4)
    if pinned:
        source = source.pin_memory()
    for _ in range(5):
        source.fill_(1)
        there = tc.copy([source], device=device())[0]
        source.fill_(2)
        assert bool((there == 1).all())


def test_a_copy_back_can_be_read_as_soon_as_copy_returns() -> None:
    """A copy to the host is there when `copy` returns, whatever the device was still computing."""
    x = torch.ones(4096, 4096, device=device())
    for _ in range(5):
        y = x
        for _ in range(10):
            y = (y @ x) / 4096
        assert bool((tc.copy([y], device="cpu")[0] == 1).all())


def test_copies_follow_the_stream_that_is_current() -> None:
    """On a side stream a copy is ordered behind what that stream computes."""
    side = torch.cuda.Stream()
    x = torch.ones(4096, 4096, device=device())
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        y = x
        for _ in range(10):
            y = (y @ x) / 4096
        copied = tc.copy({"y": y, "row": y[0]})
    side.synchronize()
    assert bool((copied["y"] == 1).all())
    assert tc.relate(copied["y"], copied["row"]).shares_memory


def test_bits_are_kept_on_a_device() -> None:
    """-0.0, NaN payloads, fp8, bools other than 0 and 1, conj and neg bits: no arithmetic."""
    bits = torch.tensor([-0x7FFFFFFF - 1, 0x7FC12345, 0x7F812345, 1], dtype=torch.int32)
    source = {
        "f32": bits.to(device()).view(torch.float32),
        "f8": torch.arange(256, dtype=torch.uint8, device=device()).view(torch.float8_e4m3fn),
        "bool": torch.tensor([0, 1, 2, 255], dtype=torch.uint8, device=device()).view(torch.bool),
        "conj": torch.tensor([1 + 2j, -0j], device=device()).conj(),
        "neg": torch.tensor([1 + 2j], device=device()).conj().imag,
    }
    copied = tc.copy(source)
    for name in ("f32", "f8", "bool"):
        assert torch.equal(copied[name].view(torch.uint8), source[name].view(torch.uint8)), name
    assert copied["conj"].is_conj()
    assert copied["neg"].is_neg()
    assert torch.equal(copied["conj"].resolve_conj(), source["conj"].resolve_conj())


def test_into_writes_in_place_on_a_device() -> None:
    """Same addresses, moved version counters, and nothing allocated for the tensors."""
    source, target = (nn.Linear(512, 512).to(device()) for _ in range(2))
    places = [p.data_ptr() for p in target.parameters()]
    counters = [p._version for p in target.parameters()]
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    tc.copy(source, into=target)
    assert torch.cuda.max_memory_allocated() - before < MIB
    assert [p.data_ptr() for p in target.parameters()] == places
    assert all(p._version > old for p, old in zip(target.parameters(), counters, strict=True))
    assert all(map(torch.equal, target.parameters(), source.parameters()))


def test_a_copy_takes_its_spans_and_no_more() -> None:
    """Counted by the device's own allocator: the spans of the groups and two percent."""
    big = torch.zeros(64, MIB // 4, device=device())
    state = {"half": big[:32], "rows": [big[i] for i in range(8)], "small": big[40, :3]}
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    copied = tc.copy(state)
    spans = 32 * MIB + 12
    assert torch.cuda.max_memory_allocated() - before <= spans * 1.02
    assert tc.relate(copied["half"], copied["rows"][3]).shares_memory
    del copied
    assert torch.cuda.memory_allocated() == before


def test_lazy_clones_stay_lazy_on_a_device() -> None:
    """Looking and copying materialize no copy-on-write tensor; siblings are disjoint."""
    from truecopy import _torch

    x = torch.ones(1024, device=device())
    y = torch._lazy_clone(x)
    assert tc.relate(x, y).kind == "disjoint"
    tc.aliases([x, y])
    copied = tc.copy([x, y])
    assert _torch.is_copy_on_write(x)
    assert _torch.is_copy_on_write(y)
    assert not tc.relate(copied[0], copied[1]).shares_memory


def test_holders_of_device_memory_are_found() -> None:
    """`who_shares` finds a view of device memory by its variable."""
    x = torch.zeros(8, device=device())
    tail = x[4:]
    assert any("tail" in str(holder) for holder in tc.who_shares(x))
    assert tail.numel() == 4


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed")
def test_cupy_arrays_are_told_by_their_interface() -> None:
    """`__cuda_array_interface__` is exact to the byte, strides of either sign among them."""
    import cupy  # type: ignore[import-not-found, unused-ignore]

    array = cupy.zeros((4, 6), cupy.float32)
    tensor = torch.as_tensor(array, device=device())
    assert tc.relate(tensor, array).kind == "identical"
    assert tc.relate(tensor[1], array[1, ::-1]).kind == "identical"
    assert tc.relate(tensor[:, 0], array[:, 1]).kind == "disjoint"


def test_a_graph_capture_is_not_disturbed_by_looking() -> None:
    """Relations can be asked while a CUDA graph is captured; the graph replays."""
    x, y = (torch.zeros(1024, device=device()) for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(x)
        related = tc.relate(x, y)
    x.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert related.kind == "disjoint"
    assert bool((y == 3).all())


def test_host_and_device_in_one_structure() -> None:
    """Each value stays where it is; a bridge between numpy and the host stays a bridge."""
    array = np.arange(4.0)
    state = {
        "array": array,
        "host": torch.from_numpy(array),
        "there": torch.ones(4, device=device()),
    }
    copied = tc.copy(state)
    assert copied["there"].device.type == device().type
    assert tc.relate(copied["array"], copied["host"]).kind == "identical"
    assert not tc.relate(copied, state).shares_memory
