"""What keeps state is no state itself."""

import copy
import pickle
from typing import Any

import pytest
import torch

import truecopy as tc


class Trainer:
    """Holds what it trains, and what it keeps of it."""

    def __init__(self) -> None:
        self.x = torch.ones(1000)
        self.snap: Any = None
        self.best: Any = None
        self.saving: Any = None


def test_a_trainer_may_hold_its_own_snapshots(tmp_path: Any) -> None:
    """Neither kept nor put back, else each update would keep the one before."""
    trainer = Trainer()
    trainer.snap = tc.Snapshot(trainer=trainer)
    trainer.best = tc.Best(mode="min", trainer=trainer)
    for moment in range(3):
        trainer.x.fill_(moment)
        trainer.best.offer(-moment)
        trainer.snap.update()
        trainer.saving = trainer.snap.save(tmp_path / "run", background=True)
        trainer.saving.wait()
    assert trainer.snap.nbytes == trainer.best.nbytes == 4000
    snap, best = trainer.snap, trainer.best
    trainer.x.zero_()
    snap.restore()
    assert (trainer.snap, trainer.best, trainer.x[0].item()) == (snap, best, 2)
    trainer.x.zero_()
    tc.Snapshot.load(tmp_path / "run").restore(trainer=trainer)
    assert (trainer.snap, trainer.best, trainer.x[0].item()) == (snap, best, 2)


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps, tc.copy])
def test_a_copy_of_a_snapshot_is_refused(take: Any) -> None:
    """It would put back into objects that nobody has, or into the memory of the first one's."""
    held = {"x": torch.ones(3)}
    for keeper in (tc.Snapshot(held=held), tc.Best(mode="min", held=held)):
        with pytest.raises(tc.CannotCopy, match=r"Snapshot\.save"):
            take(keeper)
        with pytest.raises(tc.UsageError, match="nothing can be written back"):
            tc.Snapshot(held=keeper)


def test_metrics_beyond_floats_are_refused() -> None:
    """With the sentence that says what a metric is."""
    best = tc.Best(mode="min", held={"x": torch.ones(1)})
    with pytest.raises(tc.UsageError, match="not one number"):
        best.offer(10**400)
