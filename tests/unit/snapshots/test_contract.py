"""What a snapshot promises: all of it, in place, never aliasing, whole or refused."""

import copy
import gc
import logging
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import truecopy as tc
from truecopy.snapshots import keeping


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 1))


def scramble(*tensors: torch.Tensor) -> None:
    with torch.no_grad():
        for tensor in tensors:
            tensor.add_(1)


# --- in place -----------------------------------------------------------------------------------------


def test_restore_writes_in_place_and_moves_versions() -> None:
    """Same Parameter objects, same addresses, the bytes that were there, and counters that moved."""
    model = small_model()
    params = list(model.parameters())
    before = [(id(p), p.data_ptr(), bits(p)) for p in params]
    snap = tc.Snapshot(model=model)
    scramble(*params)
    versions = [p._version for p in params]
    snap.restore()
    assert [(id(p), p.data_ptr(), bits(p)) for p in model.parameters()] == before
    assert all(p._version > v for p, v in zip(params, versions, strict=True))


@pytest.mark.parametrize("size", [3, 100_000])
def test_never_aliases_in_either_direction(size: int) -> None:
    """Restored any number of times, a snapshot is changed by nothing, and changes nothing by itself."""
    x = torch.arange(float(size))
    source = {"x": x}
    snap = tc.Snapshot(source=source)
    for _ in range(3):
        x.mul_(7)
        source["x"].add_(1)
        snap.restore()
        assert torch.equal(x, torch.arange(float(size)))
    held = [home.base for home in snap._kept.arrangement.homes]
    held += snap._kept.arrangement.buffers
    assert not any(tc.relate(x, buffer).shares_memory for buffer in held)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.uint16, torch.complex64],
)
def test_bits_are_kept(dtype: torch.dtype) -> None:
    """Every pattern comes back: -0.0, NaN payloads, bytes of a bool that are neither 0 nor 1."""
    torch.manual_seed(0)
    raw = torch.randint(0, 256, (64,), dtype=torch.uint8)
    x = raw.clone().view(dtype)
    snap = tc.Snapshot(x={"x": x})
    x.view(torch.uint8).zero_()
    snap.restore()
    assert torch.equal(x.view(torch.uint8), raw)


def test_takes_what_state_dict_leaves_out() -> None:
    """Non-persistent buffers, requires_grad, train and eval mode, attributes of modules and Parameters."""
    model = small_model()
    model.register_buffer("cache", torch.ones(3), persistent=False)
    model.calls = 7
    model[0].weight.tag = "decay"
    model[3].weight.requires_grad_(False)
    snap = tc.Snapshot(model=model)
    model.cache.zero_()
    model.calls = 8
    model[0].weight.tag = "none"
    model.eval()
    model[3].weight.requires_grad_(True)
    model[0].weight.requires_grad_(False)
    snap.restore()
    assert model.cache.tolist() == [1, 1, 1]
    assert model.calls == 7
    assert model[0].weight.tag == "decay"
    assert all(m.training for m in model.modules())
    assert [p.requires_grad for p in model.parameters()] == [True] * 4 + [False, True]


def test_gradients_and_hooks_stay_as_they_are() -> None:
    """`.grad` is not part of a snapshot, and neither is code that somebody hung on a module since."""
    model = nn.Linear(2, 1)
    snap = tc.Snapshot(model=model)
    model(torch.ones(1, 2)).sum().backward()
    grad = model.weight.grad
    handle = model.register_forward_hook(lambda *_: None)
    snap.restore()
    assert model.weight.grad is grad
    assert len(model._forward_hooks) == 1
    handle.remove()


def test_what_modules_do_not_own_is_told_and_left() -> None:
    """A trainer that hangs on a module is not rolled back with it, and the snapshot says so."""

    class Trainer:
        def __init__(self) -> None:
            self.step = 0

    model = nn.Linear(1, 1)
    model.trainer = Trainer()
    snap = tc.Snapshot(model=model)
    assert snap.left_out == ("model.trainer is a Trainer: modules do not own it",)
    model.trainer.step = 5
    snap.restore()
    assert model.trainer.step == 5
    named = tc.Snapshot(model=model, trainer=model.trainer)
    model.trainer.step = 6
    named.restore()
    assert model.trainer.step == 5


def test_loggers_locks_and_generators_are_not_rolled_back() -> None:
    """What is found by name again keeps no state; what cannot be rewound is named."""

    class Loop:
        def __init__(self) -> None:
            self.log = logging.getLogger("truecopy.test")
            self.batches = iter([1, 2, 3])
            self.n = 0

    loop = Loop()
    snap = tc.Snapshot(loop=loop)
    assert snap.left_out == ("loop.batches is a list_iterator: it shows nothing of itself",)
    next(loop.batches)
    loop.n = 1
    logging.getLogger("truecopy.test.born.later")
    snap.restore()
    assert loop.n == 0
    assert "truecopy.test.born.later" in logging.Logger.manager.loggerDict


@dataclass
class State:
    step: int = 0
    losses: list[float] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    window: deque[float] = field(default_factory=lambda: deque(maxlen=3))
    counts: Counter[str] = field(default_factory=Counter)
    order: OrderedDict[str, int] = field(default_factory=OrderedDict)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a = 1


def test_python_containers_come_back_as_they_were() -> None:
    """Lists, sets, deques, Counters, ordered dicts and slots: the same objects, the same contents."""
    state, slotted = State(), Slotted()
    state.order.update(a=1, b=2, c=3)
    state.losses += [1.0, 2.0]
    objects = {name: id(value) for name, value in vars(state).items() if name != "step"}
    before = copy.deepcopy(state)
    snap = tc.Snapshot(state=state, slotted=slotted)
    state.step = 9
    state.losses.append(3.0)
    state.seen.add(4)
    state.window.extend([1, 2, 3, 4])
    state.counts["a"] += 1
    state.order.move_to_end("a")
    slotted.a, slotted.b = 2, 3
    snap.restore()
    assert state == before
    assert list(state.order) == ["a", "b", "c"]
    assert {name: id(value) for name, value in vars(state).items() if name != "step"} == objects
    assert slotted.a == 1
    assert not hasattr(slotted, "b")


def test_arrays_and_generators() -> None:
    """Arrays of numpy come back in place; generators are put back to where they were."""
    array = np.arange(6.0).reshape(2, 3)
    sources: dict[str, Any] = {
        "array": array,
        "torch": torch.Generator().manual_seed(3),
        "numpy": np.random.default_rng(3),
    }
    snap = tc.Snapshot({"all of it": sources})
    drawn = torch.rand(2, generator=sources["torch"]), sources["numpy"].random(2)
    array[:] = -1
    snap.restore()
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert torch.equal(torch.rand(2, generator=sources["torch"]), drawn[0])
    assert (sources["numpy"].random(2) == drawn[1]).all()


def test_random_state_of_the_process() -> None:
    """With rng=True, python, numpy and torch draw the same numbers again."""
    import random

    def draw() -> tuple[Any, ...]:
        return random.random(), float(np.random.rand()), torch.rand(1).item(), random.gauss()

    x = torch.zeros(1)
    snap = tc.Snapshot(x={"x": x}, rng=True)
    first = draw()
    snap.restore()
    assert draw() == first
    without = tc.Snapshot(x={"x": x})
    first = draw()
    without.restore()
    assert draw() != first


# --- memory ---------------------------------------------------------------------------------------------


def test_ties_and_views_are_kept_once() -> None:
    """Two Parameters on one storage, views, and an expanded tensor cost their bytes once."""
    base = torch.arange(1000.0)
    tied = nn.Parameter(base.view(10, 100))
    held = {
        "base": base,
        "tied": tied,
        "part": base[5:50],
        "wide": torch.ones(1, 500).expand(300, 500),
    }
    snap = tc.Snapshot(held=held)
    assert snap.nbytes == 4000 + 2000
    scramble(base)
    held["wide"][0].add_(5)
    snap.restore()
    assert torch.equal(base, torch.arange(1000.0))
    assert (held["wide"] == 1).all()
    assert tc.relate(base, tied).kind == "identical"


def test_neighbors_in_one_storage_are_one_transfer() -> None:
    """Parameters cut from one flat buffer move in one piece."""
    flat = torch.arange(1024.0)
    parts = list(flat.split(8))
    snap = tc.Snapshot(parts=parts)
    arrangement = snap._kept.arrangement
    assert len(arrangement.pairs) + len(arrangement.kept_bytes) == 1
    flat.zero_()
    snap.restore()
    assert torch.equal(flat, torch.arange(1024.0))


def test_update_allocates_nothing_the_second_time() -> None:
    """The same buffers, and no tensor of 64 KiB is made, however often it is called."""
    model = nn.Sequential(*(nn.Linear(300, 300) for _ in range(3)), nn.Linear(5, 5))
    optimizer = torch.optim.AdamW(model.parameters())
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    snap = tc.Snapshot(model=model, optimizer=optimizer, rng=True)
    buffers = [b.data_ptr() for b in snap._kept.arrangement.buffers]
    for _ in range(2):
        optimizer.step()
        with torch.profiler.profile(profile_memory=True) as profile:
            snap.update()
        made = [event.self_cpu_memory_usage for event in profile.key_averages()]
        assert max(made, default=0) < 64 << 10
        assert [b.data_ptr() for b in snap._kept.arrangement.buffers] == buffers
    with torch.profiler.profile(profile_memory=True) as profile:
        snap.restore()
    assert max((e.self_cpu_memory_usage for e in profile.key_averages()), default=0) < 64 << 10


def test_state_that_grew_allocates_what_it_grew_by() -> None:
    """Large buffers that are there are used again; new state gets new ones."""
    held = {"a": torch.zeros(100_000)}
    snap = tc.Snapshot(held=held)
    first = snap._kept.arrangement.buffers[0].data_ptr()
    held["b"] = torch.ones(200_000)
    snap.update()
    assert snap.nbytes == 1_200_000
    assert first in [b.data_ptr() for b in snap._kept.arrangement.buffers]
    held["a"].add_(1), held.pop("b")
    snap.restore()
    assert held["a"].sum() == 0
    assert held["b"].sum() == 200_000


def test_lossy_is_said() -> None:
    """dtype= keeps floating tensors in fewer bits, comes back rounded, and says so."""
    x, n = torch.tensor([1.0, 1.0 + 2**-20]), torch.tensor([2**31 - 1])
    snap = tc.Snapshot(held={"x": x, "n": n}, dtype=torch.bfloat16)
    assert "lossy: floating tensors kept as torch.bfloat16" in repr(snap)
    assert snap.diff() == ()
    x.zero_(), n.zero_()
    assert [c.path for c in snap.diff()] == ["held['x']", "held['n']"]
    snap.restore()
    assert x.tolist() == [1, 1]
    assert x.dtype is torch.float32
    assert n.tolist() == [2**31 - 1]


def test_large_lossy_ties() -> None:
    """A tied table that is kept in bfloat16 takes half its bytes, once, and comes back through both names."""
    table = nn.Parameter(torch.ones(300, 300))
    model = nn.ModuleDict({"a": nn.Linear(300, 300), "b": nn.Linear(300, 300)})
    model["a"].weight = table
    model["b"].weight = nn.Parameter(table.detach())
    snap = tc.Snapshot(
        model=model, only=["model['a'].weight", "model['b'].weight"], dtype=torch.bfloat16
    )
    assert snap.nbytes == 300 * 300 * 2
    scramble(table)
    snap.restore()
    assert (model["b"].weight == 1).all()


def test_only_trainable_and_paths() -> None:
    """Frozen Parameters are left out with only="trainable"; a path chooses what lies under it."""
    model = small_model()
    model[0].requires_grad_(False)
    snap = tc.Snapshot(model=model, only="trainable")
    scramble(*model.parameters())
    frozen, trained = bits(model[0].weight), bits(model[3].weight)
    snap.restore()
    assert bits(model[0].weight) == frozen
    assert bits(model[3].weight) != trained
    head = tc.Snapshot(model=model, only="model[3]")
    assert head.nbytes < snap.nbytes
    scramble(*model.parameters())
    assert {c.path for c in head.diff()} == {"model[3].weight", "model[3].bias"}
    by_function = tc.Snapshot(model=model, only=lambda path: path.endswith("bias"))
    assert by_function.nbytes <= head.nbytes + 256


# --- changed between ------------------------------------------------------------------------------------


def test_updates_follow_what_changed() -> None:
    """A parameter added, a buffer of another size, a group added: the next update has them all."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.register_buffer("cache", torch.zeros(2))
    snap = tc.Snapshot(model=model, optimizer=optimizer)
    model.extra = nn.Parameter(torch.ones(5))
    model.cache = torch.ones(7)
    optimizer.add_param_group({"params": [model.extra], "lr": 0.5})
    snap.update()
    scramble(model.extra)
    model.cache = torch.zeros(3)
    optimizer.param_groups[1]["lr"] = 9
    snap.restore()
    assert model.cache.tolist() == [1] * 7
    assert model.extra.tolist() == [1] * 5
    assert optimizer.param_groups[1]["lr"] == 0.5


def test_what_is_born_after_a_snapshot_is_gone_after_restore() -> None:
    """Optimizer state, groups and parameters that are new are cleared; the objects of before are back."""
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters())
    snap = tc.Snapshot(model=model, optimizer=optimizer)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    model.extra = nn.Parameter(torch.ones(5))
    optimizer.add_param_group({"params": [model.extra]})
    snap.restore()
    assert not optimizer.state
    assert len(optimizer.param_groups) == 1
    assert not hasattr(model, "extra")
    assert snap.diff() == ()


def test_data_that_moved_is_restored_where_it_is_now() -> None:
    """`p.data = other` and another memory format move the memory; the values come back into it."""
    model = nn.Conv2d(4, 4, 3)
    before = model.weight.detach().clone()
    snap = tc.Snapshot(model=model)
    model.weight.data = torch.zeros(4, 4, 3, 3)
    address = model.weight.data_ptr()
    snap.restore()
    assert torch.equal(model.weight, before)
    assert model.weight.data_ptr() == address
    model.to(memory_format=torch.channels_last)
    scramble(model.weight)
    snap.restore()
    assert torch.equal(model.weight, before)
    snap.update()
    scramble(model.weight)
    snap.restore()
    assert torch.equal(model.weight, before)


def test_what_does_not_fit_is_refused_by_name_and_nothing_is_written() -> None:
    """Another shape or dtype, and sharing that was not there: all named in one error."""
    model = nn.Linear(3, 2)
    model.register_buffer("state", torch.zeros(4))
    snap = tc.Snapshot(model=model)
    scramble(model.bias)
    now = bits(model.bias)
    model.state.resize_(9)
    model.weight.data = model.weight.data.double()
    with pytest.raises(tc.StructureMismatch) as caught:
        snap.restore()
    assert "model.weight" in str(caught.value)
    assert "model.state" in str(caught.value)
    assert "nothing was written" in str(caught.value)
    assert bits(model.bias) == now
    snap.update()
    snap.restore()


def test_ties_that_were_made_or_broken_since_are_refused() -> None:
    """Two values cannot be written into one memory, and a tie that ended is not restored by its bytes."""
    held = {"a": torch.zeros(4), "b": torch.ones(4)}
    snap = tc.Snapshot(held=held)
    held["a"].data = held["b"]
    with pytest.raises(tc.StructureMismatch, match="memory apart from held"):
        snap.restore()
    held = {"a": torch.zeros(4)}
    held["b"] = held["a"].view(2, 2)
    snap = tc.Snapshot(held=held)
    held["b"].data = torch.ones(2, 2)
    with pytest.raises(tc.StructureMismatch, match="memory shared with held"):
        snap.restore()


def test_lazy_into_materialized_is_refused_with_the_name() -> None:
    """A lazy layer that has its shape since cannot be made lazy again in place; an update follows it."""
    model = nn.Sequential(nn.LazyLinear(3))
    snap = tc.Snapshot(model=model)
    model(torch.ones(1, 2))
    with pytest.raises(tc.StructureMismatch, match=r"model\[0\]\.weight.*UninitializedParameter"):
        snap.restore()
    snap.update()
    scramble(model[0].weight)
    snap.restore()
    assert snap.diff() == ()


def test_freed_storage_is_refused_by_name() -> None:
    """Memory that somebody freed between two calls is never read or written."""
    x = torch.ones(10)
    snap = tc.Snapshot(held=[x])
    x.untyped_storage().resize_(0)
    with pytest.raises(tc.StructureMismatch, match=r"held\[0\].*memory freed"):
        snap.restore()


def test_copy_on_write_sources_are_never_written_through() -> None:
    """A source that became lazy since is materialized by its own write alone."""
    x = torch.zeros(1000)
    snap = tc.Snapshot(held=[x])
    lazy = tc.duplicate(x, 2, how="lazy", live=True)
    snap.update()
    scramble(x)
    snap.restore()
    assert not any(one.any() for one in (x, *lazy))
    lazy2 = tc.duplicate(x, 1, how="lazy", live=True)[0]
    x.data.add_(3)
    lazy3 = tc.duplicate(x, 1, how="lazy", live=True)[0]
    snap.restore()
    assert not x.any()
    assert not lazy2.any()
    assert (lazy3 == 3).all()


# --- torn -----------------------------------------------------------------------------------------------


def test_refused_updates_leave_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update that cannot be made leaves the snapshot whole."""
    model = nn.Linear(2, 2)
    before = bits(model.weight)
    snap = tc.Snapshot(model=model)
    scramble(model.weight)
    model.bad = torch.ones(4)
    model.bad.untyped_storage().resize_(4)
    with pytest.raises(tc.CannotCopy, match=r"model\.bad"):
        snap.update()
    del model.bad
    monkeypatch.setattr(keeping, "integers_of", None)
    model.big = nn.Parameter(torch.ones(1 << 20))
    with pytest.raises(TypeError):
        snap.update()
    monkeypatch.undo()
    snap.restore()
    assert bits(model.weight) == before


@pytest.mark.parametrize("where", ["transfer", "move_bytes"])
def test_an_interrupt_leaves_a_snapshot_that_knows(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off in the middle, it refuses to be restored, and says why; the next update heals."""
    held = [torch.zeros(10), torch.zeros(1 << 20)]
    snap = tc.Snapshot(held=held)
    real = getattr(keeping, where)

    def cut(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(keeping, where, cut)
    with pytest.raises(KeyboardInterrupt):
        snap.update()
    monkeypatch.undo()
    for verb in (snap.restore, snap.diff):
        with pytest.raises(tc.TornSnapshot, match="cut off while it wrote"):
            verb()
    assert "TORN" in repr(snap)
    snap.update()
    snap.restore()


def test_an_interrupted_restore_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot itself is only read: whatever ended a restore, the next one is whole."""
    held = {"a": torch.zeros(10), "n": 1}
    snap = tc.Snapshot(held=held)
    held["a"].add_(1)
    held["n"] = 2
    monkeypatch.setattr(keeping, "move_bytes", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        snap.restore()
    monkeypatch.undo()
    snap.restore()
    assert held["n"] == 1
    assert not held["a"].any()


# --- asked for wrongly ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "nothing to keep"),
        ({"only": nn.Linear(1, 1), "x": []}, "only= is an option"),
        ({"rng": nn.Linear(1, 1), "x": []}, "rng= is an option"),
        ({"device": nn.Linear(1, 1), "x": []}, "device= is an option"),
        ({"device": "meta", "x": []}, "keeps no values"),
        ({"dtype": torch.int8, "x": []}, "dtype= is an option"),
        ({"keep": [], "x": []}, "keep= is an option"),
        ({"x": 3.5}, "x is a float"),
        ({"x": len}, "x is a builtin_function"),
    ],
)
def test_mistakes(wrong: dict[str, Any], said: str) -> None:
    """Options are refused as names of sources, and so is what cannot be written into."""
    with pytest.raises(tc.UsageError, match=said):
        tc.Snapshot(**wrong)


def test_a_mapping_takes_any_name() -> None:
    """Names that are options by keyword are names of sources in a mapping."""
    x = torch.zeros(2)
    snap = tc.Snapshot({"rng": [x], "a b": [x.clone()]}, only=["rng"])
    scramble(x)
    assert [str(change) for change in snap.diff()] == ["rng[0] has other values"]
    with pytest.raises(tc.UsageError, match="have no names"):
        tc.Snapshot(nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(tc.UsageError, match="named twice"):
        tc.Snapshot({"x": [x]}, x=[x])


def test_what_cannot_be_kept_is_refused_with_the_path() -> None:
    """Memory that torch does not show, and script modules."""
    with pytest.raises(tc.CannotCopy, match=r"held\[0\].*cannot be kept"):
        tc.Snapshot(held=[torch.ones(3).to_mkldnn()])


def test_device_and_nbytes() -> None:
    """The kept copy may be elsewhere; nbytes is what it takes."""
    snap = tc.Snapshot(held=[torch.zeros(100_000)], device="cpu")
    assert snap.nbytes == 400_000


def test_diff_names_what_changed() -> None:
    """Bytes bit by bit, plain values as Python writes them, what is new and what is gone."""
    held: dict[str, Any] = {
        "zero": torch.zeros(2),
        "n": 1,
        "old": torch.ones(1),
        "same": torch.ones(2),
    }
    snap = tc.Snapshot(held=held)
    assert snap.diff() == ()
    held["zero"].neg_()  # -0.0 equals 0.0, and has other bits
    held["n"] = 2
    del held["old"]
    held["new"] = torch.ones(3)
    assert sorted(map(str, snap.diff())) == [
        "held['n'] was 1, is 2",
        "held['new'] is new",
        "held['old'] is gone",
        "held['zero'] has other values",
    ]


def test_a_snapshot_of_a_module_that_is_gone_is_collected() -> None:
    """Nothing global holds on to a snapshot."""
    import weakref

    snap = tc.Snapshot(held=[torch.zeros(10)])
    gone = weakref.ref(snap)
    del snap
    gc.collect()
    assert gone() is None


def test_a_kept_moment_can_be_saved(tmp_path: Path) -> None:
    """`Best.save` writes the moment of a rank, and not what the sources hold now."""
    weight = torch.zeros(2)
    best = tc.Best(mode="max", keep=2, w={"weight": weight})
    for value in (1.0, 3.0, 2.0):
        weight.fill_(value)
        best.offer(value)
    for rank, value in enumerate((3.0, 2.0)):
        best.save(tmp_path / "best.safetensors", rank)
        weight.zero_()
        tc.Snapshot.load(tmp_path / "best.safetensors").restore(w={"weight": weight})
        assert weight.tolist() == [value, value]
    with pytest.raises(tc.UsageError, match="no moment of rank 2"):
        best.save(tmp_path / "best.safetensors", 2)
