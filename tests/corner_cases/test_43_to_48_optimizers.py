"""Corner cases 43 to 48: optimizers and training state (docs/corner-cases.md)."""

from typing import Any

import pytest
import torch
from torch import nn

import truecopy as tc


def trained(optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW, **options: Any) -> Any:
    """A model with an optimizer that has stepped once."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    made: Any = optimizer(model.parameters(), **options)
    step(model, made)
    return model, made


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(1, 3, dtype=next(model.parameters()).dtype)).square().sum().backward()
    optimizer.step()


def test_43_an_optimizer_alone_keeps_the_parameters_that_somebody_owns() -> None:
    """A snapshot of an optimizer alone is put back into it and its parameters; no orphan is made."""
    model, optimizer = trained()
    before = model.weight.detach().clone()
    snap = tc.Snapshot(optimizer=optimizer)
    step(model, optimizer)
    snap.restore()
    assert optimizer.param_groups[0]["params"][0] is model.weight
    assert torch.equal(model.weight, before)


def test_43_jointly_model_and_optimizer_stay_linked() -> None:
    """Copied together, the optimizer's parameters are the model's."""
    model, optimizer = tc.copy(trained())
    assert optimizer.param_groups[0]["params"][0] is model.weight


def test_44_restore_never_aliases_and_never_casts() -> None:
    """float32 moments of bfloat16 parameters stay float32, bit for bit; a step leaves the snapshot alone."""
    model = nn.Linear(3, 2).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer)
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].float() / 3
    moment = optimizer.state[model.weight]["exp_avg"].clone()
    snap = tc.Snapshot(model=model, optimizer=optimizer)
    for _ in range(2):
        optimizer.state[model.weight]["exp_avg"].mul_(5)
        optimizer.state[model.weight]["step"].add_(1)
        snap.restore()
        now = optimizer.state[model.weight]
        assert now["exp_avg"].dtype is torch.float32
        assert torch.equal(now["exp_avg"], moment)
        assert now["step"] == 1


def test_44_the_same_state_tensors_after_restore() -> None:
    """Where torch replaces state tensors at a load, they are the same objects here."""
    model, optimizer = trained()
    tensors = [id(t) for s in optimizer.state.values() for t in s.values()]
    snap = tc.Snapshot(model=model, optimizer=optimizer)
    optimizer.load_state_dict(tc.copy(optimizer.state_dict()))
    step(model, optimizer)
    snap.restore()
    assert [id(t) for s in optimizer.state.values() for t in s.values()] == tensors


def test_45_state_that_was_not_born_is_cleared() -> None:
    """Empty at the snapshot is empty after restore; groups that came later are gone."""
    model = nn.Linear(3, 2)
    extra = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    snap = tc.Snapshot(model=model, optimizer=optimizer)
    step(model, optimizer)
    optimizer.add_param_group({"params": [extra], "lr": 3.0})
    snap.restore()
    assert not optimizer.state
    assert len(optimizer.param_groups) == 1


def test_45_a_tensor_lr_is_kept_by_value() -> None:
    """A learning rate that is a tensor goes on being the same tensor, and has its value back."""
    rate = torch.tensor(0.5)
    model, optimizer = trained(lr=rate)
    snap = tc.Snapshot(model=model, optimizer=optimizer)
    rate.fill_(9)
    snap.restore()
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == 0.5


def test_46_schedulers_scalers_and_counters_are_part_of_the_unit() -> None:
    """`_last_lr`, the scale, and a counter of one's own."""

    class Average:
        def __init__(self) -> None:
            self.updates, self.shadow = 3, torch.ones(2)

    model, optimizer = trained()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.ones(1))
    average = Average()
    snap = tc.Snapshot(
        model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, average=average
    )
    rate = scheduler.get_last_lr()
    step(model, optimizer)
    scheduler.step()
    scaler.update(new_scale=2.0)
    average.updates, average.shadow[0] = 9, 5.0
    snap.restore()
    assert scheduler.get_last_lr() == rate
    assert scaler.get_scale() == 8.0
    assert (average.updates, average.shadow.tolist()) == (3, [1, 1])


def test_46_what_cannot_be_put_back_is_declared() -> None:
    """The position of an iterator is named as left out."""
    loop = {"batches": iter([1, 2])}
    assert tc.Snapshot(loop=loop).left_out == (
        "loop['batches'] is a list_iterator: it shows nothing of itself",
    )


@pytest.mark.parametrize("other", [torch.ones(1), torch.ones(3, dtype=torch.float64)])
def test_47_no_broadcast_and_no_cast_in_place(other: torch.Tensor) -> None:
    """Another shape or dtype is refused by name, not broadcast and not rounded."""
    x = torch.zeros(3)
    snap = tc.Snapshot(held={"x": x})
    x.data = other
    with pytest.raises(tc.StructureMismatch, match=r"held\['x'\]"):
        snap.restore()
    assert x.tolist() == other.tolist()
    with pytest.raises(tc.StructureMismatch):
        tc.copy({"x": torch.zeros(3)}, into={"x": other})


def test_48_averages_keep_their_integers_and_their_ties() -> None:
    """AveragedModel comes back whole: counts as integers, ties as ties, with nothing averaged twice."""
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2), "n": nn.BatchNorm1d(2)})
    model["b"].weight = model["a"].weight
    average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    average.n_averaged.fill_(10)
    average.module["n"].num_batches_tracked.fill_(100)
    snap = tc.Snapshot(average=average)
    average.update_parameters(model)
    snap.restore()
    assert average.n_averaged.item() == 10
    assert average.module["n"].num_batches_tracked.item() == 100
    assert average.module["b"].weight is average.module["a"].weight
    copied = tc.copy(average)
    assert copied.module["b"].weight is copied.module["a"].weight
