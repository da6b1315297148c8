"""Training that is put back repeats itself bit for bit, whatever trains."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import truecopy as tc
from training import OPTIMIZERS, SCHEDULERS, Tied, train


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("warm", [0, 3], ids=["before the first step", "after three"])
def test_every_optimizer_repeats(name: str, warm: int) -> None:
    """With state and before it is born; restored twice, and from an update; addresses stay."""
    torch.manual_seed(0)
    model = Tied()
    optimizer = OPTIMIZERS[name](model.parameters())
    train(model, optimizer, warm)
    snap = tc.Snapshot(model=model, optimizer=optimizer, rng=True)
    state = {
        (path, t.data_ptr()) for p, s in optimizer.state.items() for path, t in s.items()
        if isinstance(t, torch.Tensor)
    }  # fmt: skip
    first = train(model, optimizer, 4)
    for _ in range(2):
        snap.restore()
        assert snap.diff() == ()
        assert state == {
            (path, t.data_ptr()) for p, s in optimizer.state.items() for path, t in s.items()
            if isinstance(t, torch.Tensor)
        }  # fmt: skip
        assert train(model, optimizer, 4) == first
    snap.update()
    later = train(model, optimizer, 4)
    snap.restore()
    assert train(model, optimizer, 4) == later
    assert model.head.weight is model.embed.weight


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_repeats(name: str) -> None:
    """Counters, rates and `_last_lr` are part of the unit."""
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = SCHEDULERS[name](optimizer)

    def rates(steps: int) -> list[float]:
        found = []
        for _ in range(steps):
            train(model, optimizer, 1)
            scheduler.step()
            found += scheduler.get_last_lr()
        return found

    rates(2)
    snap = tc.Snapshot(model=model, optimizer=optimizer, scheduler=scheduler, rng=True)
    first = rates(6)
    snap.restore()
    assert snap.diff() == ()
    assert rates(6) == first


def test_plateau_keeps_its_patience() -> None:
    """A scheduler that counts bad epochs goes on counting where it was."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
    for loss in (1.0, 1.1, 1.1):
        scheduler.step(loss)
    snap = tc.Snapshot(optimizer=optimizer, scheduler=scheduler)
    scheduler.step(1.1)
    assert scheduler.get_last_lr() == [0.1]
    snap.restore()
    assert (scheduler.num_bad_epochs, optimizer.param_groups[0]["lr"]) == (2, 1.0)


def test_grad_scaler() -> None:
    """The scale, its growth, and what it found."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)

    def step(value: float) -> float:
        optimizer.zero_grad()
        scaler.scale(model(torch.full((1, 2), value)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return float(scaler.get_scale())

    step(1.0)
    snap = tc.Snapshot(model=model, optimizer=optimizer, scaler=scaler)
    assert [step(1.0), step(float("inf"))] == [16.0, 8.0]
    snap.restore()
    assert scaler.get_scale() == 8.0
    assert [step(1.0), step(float("inf"))] == [16.0, 8.0]


def test_shuffling_repeats() -> None:
    """A loader's generator is put back, and with it the order of the next epoch."""
    data = TensorDataset(torch.arange(20))
    loader = DataLoader(
        data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1)
    )
    snap = tc.Snapshot(loader=loader, rng=True)
    order = [batch[0].tolist() for batch in loader]
    snap.restore()
    assert [batch[0].tolist() for batch in loader] == order


def test_a_loader_in_the_middle_is_declared_left_out() -> None:
    """An iterator cannot be rewound, so it is named."""
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=2)
    iterator = iter(loader)
    next(iterator)
    snap = tc.Snapshot(position={"iterator": iterator})
    assert any("_sampler_iter" in line for line in snap.left_out)


def test_the_bug_of_load_state_dict_does_not_happen_here() -> None:
    """pytorch#196083: torch's own restore lets the next step corrupt what was restored from."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    step()
    theirs = tc.copy(optimizer.state_dict())
    ours = tc.Snapshot(model=model, optimizer=optimizer)
    moment = theirs["state"][0]["exp_avg"].clone()
    optimizer.load_state_dict(theirs)
    step()
    assert not torch.equal(theirs["state"][0]["exp_avg"], moment)  # the bug, in torch 2.13
    for _ in range(2):
        ours.restore()
        assert torch.equal(optimizer.state[model.weight]["exp_avg"], moment)
        step()


def test_restore_between_forward_and_backward_fails_loudly() -> None:
    """A backward pass over weights that were put back would be wrong; it raises."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    snap = tc.Snapshot(model=model)
    loss = model(torch.ones(1, 3)).sum()
    snap.restore()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_gpt2_with_a_snapshot_each_step() -> None:
    """Transformers' GPT-2, dropout included: the same losses with snapshots as without, and again."""
    from transformers import GPT2Config, GPT2LMHeadModel

    def run(*, snapshots: bool) -> list[float]:
        torch.manual_seed(0), random.seed(0), np.random.seed(0)
        model = GPT2LMHeadModel(
            GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=64, n_positions=32)
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        loader = torch.Generator().manual_seed(5)
        snap = (
            tc.Snapshot(model=model, optimizer=optimizer, loader=loader, rng=True)
            if snapshots
            else None
        )

        def steps(count: int) -> list[float]:
            losses = []
            for _ in range(count):
                tokens = torch.randint(0, 64, (2, 16), generator=loader)
                optimizer.zero_grad()
                loss = model(input_ids=tokens, labels=tokens).loss
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                if snap is not None and count == 12:
                    snap.update()
            return losses

        first = steps(12)
        rest = steps(8)
        if snap is not None:
            snap.restore()
            assert steps(8) == rest
        return first + rest

    assert run(snapshots=True) == run(snapshots=False)


def test_best_keeps_the_best_and_its_buffers() -> None:
    """The k best by metric, ties to the earlier, NaN as told; buffers are used again."""
    model = nn.Linear(300, 300)
    best = tc.Best(mode="max", keep=2, nan="last", model=model)
    addresses = set()
    for metric, value in (
        (0.1, 1.0),
        (float("nan"), 2.0),
        (0.3, 3.0),
        (0.3, 4.0),
        (0.2, 5.0),
        (0.9, 6.0),
    ):
        nn.init.constant_(model.weight, value)
        best.offer(metric)
        addresses |= {
            b.data_ptr()
            for _, s in best._ranked
            for b in s._kept.arrangement.buffers
            if b.nbytes > 9999
        }
    assert best.metrics == (0.9, 0.3)
    assert len(addresses) == 2
    for rank, value in ((0, 6.0), (1, 3.0)):
        best.restore(rank)
        assert (model.weight == value).all()


def test_best_refuses() -> None:
    """NaN unless told, metrics that are no number, ranks that are not there, options as sources."""
    model = nn.Linear(1, 1)
    best = tc.Best(mode="min", model=model)
    for wrong in (float("nan"), "a", torch.ones(2), None):
        with pytest.raises(tc.UsageError):
            best.offer(wrong)  # type: ignore[arg-type]
    with pytest.raises(tc.UsageError, match="an offer before a restore"):
        best.restore()
    assert best.offer(torch.tensor(0.5))
    with pytest.raises(tc.UsageError, match="no moment of rank 1"):
        best.restore(1)
    for options in ({"mode": "least"}, {"mode": "min", "keep": 0}, {"mode": "min", "keep": True},
                    {"mode": "min", "rng": True}, {"mode": "min", "nan": "first"}):  # fmt: skip
        with pytest.raises(tc.UsageError):
            tc.Best(**{"model": model, **options})


def test_best_survives_a_refused_offer() -> None:
    """What cannot be taken over leaves the ranking as it was."""
    model = nn.Linear(1, 1)
    best = tc.Best(mode="min", model=model)
    best.offer(1.0)
    weight = model.weight.item()
    model.bad = torch.ones(4)
    model.bad.untyped_storage().resize_(4)
    with pytest.raises(tc.CannotCopy):
        best.offer(0.5)
    del model.bad
    nn.init.zeros_(model.weight)
    best.restore()
    assert (best.metrics, model.weight.item()) == ((1.0,), weight)
