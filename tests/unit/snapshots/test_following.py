"""An update looks at the sources again only where more than plain values has changed."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import truecopy as tc
from truecopy.snapshots import snapshot


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts how often sources are walked."""
    counted: list[int] = []
    look = snapshot.look
    monkeypatch.setattr(snapshot, "look", lambda *a: (counted.append(1), look(*a))[1])
    return counted


@pytest.mark.parametrize(
    "name", ["CosineAnnealingLR", "OneCycleLR", "ReduceLROnPlateau", "LambdaLR"]
)
def test_schedulers_are_followed_without_a_look(
    name: str, looks: list[int], tmp_path: Path
) -> None:
    """They put a new `_last_lr`, or new betas, in the place of the old at each step."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    arguments: dict[str, Any] = {
        "CosineAnnealingLR": {"T_max": 9}, "OneCycleLR": {"max_lr": 1.0, "total_steps": 30},
        "ReduceLROnPlateau": {"patience": 0}, "LambdaLR": {"lr_lambda": lambda epoch: 0.9**epoch},
    }  # fmt: skip
    scheduler = getattr(torch.optim.lr_scheduler, name)(optimizer, **arguments[name])

    def step() -> None:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))

    step()
    snap = tc.Snapshot(model=model, optimizer=optimizer, scheduler=scheduler)
    looks.clear()
    for _ in range(3):
        step()
        snap.update()
    assert looks == []
    last, betas = scheduler._last_lr, optimizer.param_groups[0]["betas"]
    values = [*last], (*betas,)
    step()
    snap.restore()
    assert scheduler._last_lr is last
    assert optimizer.param_groups[0]["betas"] is betas
    assert ([*last], (*betas,)) == values
    snap.save(tmp_path / "run")
    step()
    step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tc.Snapshot.load(tmp_path / "run").restore(
            model=model, optimizer=optimizer, scheduler=scheduler
        )
    assert ([*scheduler._last_lr], (*optimizer.param_groups[0]["betas"],)) == values


def test_histories_grow_without_a_look(looks: list[int]) -> None:
    """Lists and dicts of plain values may change in any way."""
    log: dict[str, Any] = {"losses": [], "best": {"a": 1}, "x": torch.ones(2)}
    snap = tc.Snapshot(log=log)
    looks.clear()
    log["losses"].append(0.5)
    log["best"] = {"b": 2, "c": 3}
    log["epoch"] = 1
    snap.update()
    best, losses = log["best"], log["losses"]
    log["losses"] = log["best"] = None
    best.clear()
    losses += [1, 2]
    log.pop("epoch")
    snap.restore()
    assert log["best"] is best
    assert log["losses"] is losses
    assert {**log, "x": 0} == {"losses": [0.5], "best": {"b": 2, "c": 3}, "x": 0, "epoch": 1}
    assert looks == []


def test_a_container_that_is_met_twice_is_looked_at_again(looks: list[int]) -> None:
    """Who holds it with whom is part of the state."""
    shared = [1]
    held: dict[str, Any] = {"a": shared, "b": shared, "c": [1]}
    snap = tc.Snapshot(held=held)
    looks.clear()
    held["a"] = [2]
    snap.update()
    assert len(looks) == 1
    held["c"] = held["b"]
    snap.update()
    assert len(looks) == 2
    held["a"], held["b"] = [3], [4]
    shared[0] = 9
    snap.restore()
    assert held == {"a": [2], "b": [1], "c": [1]}
    assert held["b"] is held["c"] is shared


def test_a_save_in_the_background_keeps_its_own_containers(tmp_path: Path) -> None:
    """Two sets, each with the list that stood there at its moment."""
    held: dict[str, Any] = {"rates": [1.0], "x": torch.ones(2)}
    snap = tc.Snapshot(held=held)
    for moment in range(4):
        held["rates"] = [float(moment)]
        snap.update()
        saving = snap.save(tmp_path / str(moment), background=True)
        held["rates"] = [-1.0]
        snap.update()
        saving.wait()
    for moment in range(4):
        tc.Snapshot.load(tmp_path / str(moment)).restore(held=held)
        assert held["rates"] == [float(moment)]
