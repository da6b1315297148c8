"""What each of several processes does in test_sharded.py: torchrun ... sharded.py WHAT DIRECTORY.

One program with many checks, since a process takes seconds to start.
"""

import os
import signal
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import truecopy as tc

FEATURES = 6


def plain_model() -> nn.Module:
    """The same weights in each process; a dimension of 5 that no number of processes divides."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Linear(8, 5), nn.Linear(5, 2, bias=False)
    )


def run_of(model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model, sharded where there are several processes, and its optimizer."""
    if distributed.is_initialized():
        mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
        fully_shard(model[2], mesh=mesh)  # type: ignore[index]
        fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """One step on data that is the same in each process."""
    optimizer.zero_grad()
    data = torch.arange(3.0 * FEATURES).reshape(3, FEATURES).sin()
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """All values of the whole, which each process has then."""
    named = {**model.state_dict()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            named[f"{name}.{key}"] = value
    return {name: full(value).detach().clone() for name, value in named.items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- in 4 processes ---------------------------------------------------------------------------------


def verbs_know_dtensors() -> None:
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    x = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(0)])
    copied = tc.copy(x)
    assert type(copied) is DTensor
    assert copied.device_mesh is x.device_mesh
    assert copied.placements == x.placements
    assert torch.equal(copied.full_tensor(), x.full_tensor())
    assert tc.relate(x, copied).kind == "disjoint"
    assert tc.relate(x, x.to_local()).kind == "identical"
    assert tc.relate(x, x.detach()).kind == "identical"
    assert tc.relate(x, x.redistribute(mesh, [Replicate()])).kind == "disjoint"
    (group,) = tc.aliases({"whole": x, "part": x.to_local()}).groups
    assert set(group.paths) == {"obj['whole']._local_tensor", "obj['part']"}


def a_snapshot_keeps_local_shards_and_restores_in_place() -> None:
    model, optimizer = run_of(plain_model())
    step(model, optimizer)
    then = state_of(model, optimizer)
    parts = [p.to_local().data_ptr() for p in model.parameters()]  # type: ignore[attr-defined]
    snap = tc.Snapshot(model=model, optimizer=optimizer)
    assert snap.left_out == ()
    whole = sum(value.nbytes for value in then.values())
    assert snap.nbytes < whole
    after = [step(model, optimizer) for _ in range(2)]
    snap.restore()
    assert equal(state_of(model, optimizer), then)
    assert [p.to_local().data_ptr() for p in model.parameters()] == parts  # type: ignore[attr-defined]
    assert [step(model, optimizer) for _ in range(2)] == after


def what_a_forward_left_unsharded_is_not_what_is_kept() -> None:
    model, optimizer = run_of(plain_model())
    step(model, optimizer)
    data = torch.ones(3, FEATURES)
    model.eval()
    with torch.no_grad():
        good = model(data)
    assert not all(isinstance(p, DTensor) for p in model.parameters()), (
        "FSDP2 reshards by itself now"
    )
    snap = tc.Snapshot(
        model=model, optimizer=optimizer
    )  # as `Best.offer` does, after an evaluation
    model.train()
    step(model, optimizer)
    model.eval()
    with torch.no_grad():
        bad = model(data)
    snap.restore()
    with torch.no_grad():
        assert torch.equal(model(data), good)
        assert not torch.equal(bad, good)


def a_snapshot_between_forward_and_backward() -> None:
    model, optimizer = run_of(plain_model())
    loss = model(torch.ones(3, FEATURES)).square().mean()
    tc.Snapshot(model=model, optimizer=optimizer)
    loss.backward()
    grads = [full(p.grad).clone() for p in model.parameters()]  # type: ignore[arg-type]
    other, _ = run_of(plain_model())
    other(torch.ones(3, FEATURES)).square().mean().backward()
    assert all(torch.equal(a, full(b.grad)) for a, b in zip(grads, other.parameters(), strict=True))  # type: ignore[arg-type]


def a_new_optimizer_is_new_again() -> None:
    model, optimizer = run_of(plain_model())
    frozen = next(model.parameters())
    frozen.requires_grad_(False)
    snap = tc.Snapshot(model=model, optimizer=optimizer)
    frozen.requires_grad_(True)
    step(model, optimizer)
    snap.restore()
    assert not optimizer.state
    assert not frozen.requires_grad


def saved(folder: Path) -> None:
    model, optimizer = run_of(plain_model())
    for _ in range(2):
        step(model, optimizer)
    snap = tc.Snapshot(model=model, optimizer=optimizer)
    then = state_of(model, optimizer)
    step(model, optimizer)
    snap.save(folder / "run")  # what was kept, not what is there now
    if distributed.get_rank() == 0:
        torch.save(then, folder / "then.pt")
    tc.Snapshot.load(folder / "run").restore(model=model, optimizer=optimizer)
    assert equal(state_of(model, optimizer), then)
    other = nn.Sequential(nn.Linear(FEATURES, 9), *plain_model()[1:])  # type: ignore[index]
    with pytest.raises(tc.StructureMismatch, match=r"\(8, 6\)"):
        tc.Snapshot.load(folder / "run").restore(model=run_of(other)[0], optimizer=optimizer)


def four(folder: Path) -> None:
    """All that takes four processes."""
    verbs_know_dtensors()
    a_snapshot_keeps_local_shards_and_restores_in_place()
    what_a_forward_left_unsharded_is_not_what_is_kept()
    a_snapshot_between_forward_and_backward()
    a_new_optimizer_is_new_again()
    saved(folder)


# --- loaded by others -------------------------------------------------------------------------------


def loaded(folder: Path) -> None:
    """By any number of processes, into a run that has stepped and into a new one."""
    then = torch.load(folder / "then.pt", weights_only=True)
    for steps in (0, 1):
        model, optimizer = run_of(plain_model())
        for _ in range(steps):
            step(model, optimizer)
        tc.Snapshot.load(folder / "run").restore(model=model, optimizer=optimizer)
        found = state_of(model, optimizer)
        assert equal(found, then), [
            n for n in then if n not in found or not torch.equal(found[n], then[n])
        ]
        step(model, optimizer)
        if not distributed.is_initialized():
            assert vars(model).keys() == vars(plain_model()).keys()


def killed(folder: Path) -> None:
    """A later save, in the middle of which rank 1 is killed: the others have written their parts."""
    model, optimizer = run_of(plain_model())
    snap = tc.Snapshot(model=model, optimizer=optimizer)
    if distributed.get_rank() == 1:
        HuggingFaceStorageWriter.write_data = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment, method-assign]
    try:
        snap.save(folder / "run")
    except tc.CannotWrite:
        return
    raise AssertionError("saved without rank 1")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
    {"four": four, "loaded": loaded, "killed": killed}[sys.argv[1]](Path(sys.argv[2]))
    if distributed.is_initialized() and sys.argv[1] != "killed":
        distributed.barrier()
        distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    # A process ended once by SIGABRT ("terminate called without an active exception"), without a traceback
    # of Python: a C++ thread that was not joined. Whose it is was not found; by here all is checked.
    os._exit(0)
