"""`truecopy.integrations.lightning` against the real package."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lightning.pytorch as pl

import truecopy as tc
from truecopy.integrations.lightning import BestWeights

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)  # Lightning's own

METRICS = [0.5, 0.2, 0.9, 0.4]


class Tiny(pl.LightningModule):
    """One weight that moves in each epoch, and metrics that are given."""

    def __init__(self, metrics: list[float], stop: BaseException | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1))
        self.metrics, self.stop = metrics, stop
        self.seen: list[dict[str, torch.Tensor]] = []

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:  # noqa: ARG002
        if self.stop is not None and self.current_epoch == len(self.metrics) - 1:
            raise self.stop
        loss = self.layer(batch).sum() + self.layer[0].weight.square().sum()
        self.log(
            "train_loss", float(self.metrics[self.current_epoch]), on_epoch=True, on_step=False
        )
        return loss

    def validation_step(self, batch: torch.Tensor, index: int) -> None:  # noqa: ARG002
        self.log("val_loss", self.metrics[self.current_epoch])

    def on_validation_epoch_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.seen.append({name: kept.clone() for name, kept in self.state_dict().items()})

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.1)


def loader() -> Any:
    return torch.utils.data.DataLoader(torch.randn(4, 2), batch_size=2)


def trainer(
    folder: Path, *callbacks: pl.Callback, epochs: int = len(METRICS), **more: Any
) -> pl.Trainer:
    return pl.Trainer(
        max_epochs=epochs, callbacks=list(callbacks), logger=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        enable_checkpointing=any(isinstance(c, pl.callbacks.ModelCheckpoint) for c in callbacks), **more,
    )  # fmt: skip


def same(model: torch.nn.Module, then: dict[str, torch.Tensor]) -> bool:
    now = model.state_dict()
    return all(torch.equal(now[name], kept) for name, kept in then.items())


def test_the_best_weights_are_there_at_the_end(tmp_path: Path) -> None:
    """After fit the model has the weights and buffers of its best validation, and not those of its last."""
    model, keep = Tiny(METRICS), BestWeights("val_loss", mode="min")
    trainer(tmp_path, keep).fit(model, loader(), loader())
    assert keep.metric == pytest.approx(0.2)
    assert same(model, model.seen[1])
    assert not same(model, model.seen[3])
    assert model.training  # as Lightning leaves it: modes are not weights


def test_a_metric_of_training_is_that_of_its_own_epoch(tmp_path: Path) -> None:
    """With a validation beside it, a training metric of the epoch before is not taken for this one's."""
    model, keep = Tiny(METRICS), BestWeights("train_loss", mode="max")
    trainer(tmp_path, keep).fit(model, loader(), loader())
    assert keep.metric == pytest.approx(0.9)
    assert same(model, model.seen[2])


def test_the_optimizer_if_asked(tmp_path: Path) -> None:
    """With optimizer=True its moments and steps come back with the weights."""
    model, keep = Tiny(METRICS), BestWeights("val_loss", mode="min", optimizer=True)
    run = trainer(tmp_path, keep)
    run.fit(model, loader(), loader())
    (optimizer,) = run.optimizers
    assert {float(state["step"]) for state in optimizer.state.values()} == {
        4.0
    }  # two epochs of two


def test_a_name_that_is_not_logged(tmp_path: Path) -> None:
    """A wrong monitor ends the first epoch, and names what is logged."""
    with pytest.raises(tc.UsageError, match=r"'val_los'.*val_loss"):
        trainer(tmp_path, BestWeights("val_los", mode="min")).fit(Tiny(METRICS), loader(), loader())


@pytest.mark.parametrize(
    "stop", [ValueError("stopped"), KeyboardInterrupt()], ids=["raised", "ctrl-c"]
)
def test_interrupted(tmp_path: Path, stop: BaseException) -> None:
    """An interrupted run is left at its last moment, and the best can be put back."""
    model, keep = Tiny(METRICS, stop), BestWeights("val_loss", mode="min")
    with pytest.raises((ValueError, SystemExit)):
        trainer(tmp_path, keep).fit(model, loader(), loader())
    assert same(model, model.seen[2])
    assert keep.restore()
    assert same(model, model.seen[1])


@pytest.mark.parametrize("optimizer", [False, True])
def test_resumed(tmp_path: Path, optimizer: bool) -> None:
    """A run that goes on from a checkpoint, in a new process's objects, knows the best from before it."""
    saves = pl.callbacks.ModelCheckpoint(
        tmp_path, filename="last", save_on_exception=True, every_n_epochs=1
    )
    first = Tiny(METRICS, ValueError("stopped"))
    with pytest.raises(ValueError, match="stopped"):
        trainer(tmp_path, BestWeights("val_loss", mode="min", optimizer=optimizer), saves).fit(
            first, loader(), loader()
        )
    second, keep = Tiny([*METRICS, 0.7]), BestWeights("val_loss", mode="min", optimizer=optimizer)
    again = pl.callbacks.ModelCheckpoint(tmp_path / "again", filename="last", every_n_epochs=1)
    trainer(tmp_path, keep, again, epochs=5).fit(
        second, loader(), loader(), ckpt_path=str(tmp_path / "last.ckpt"), weights_only=True
    )
    assert keep.metric == pytest.approx(0.2)
    assert same(second, first.seen[1])
    third, keep = (
        Tiny([*METRICS, 0.7, 0.8]),
        BestWeights("val_loss", mode="min", optimizer=optimizer),
    )
    trainer(tmp_path, keep, epochs=6).fit(
        third,
        loader(),
        loader(),
        ckpt_path=str(tmp_path / "again" / "last.ckpt"),
        weights_only=True,
    )
    assert same(third, first.seen[1])


def test_nan_is_never_the_best(tmp_path: Path) -> None:
    """A metric that is not a number is passed over, and ends nothing."""
    model, keep = Tiny([float("nan"), 0.5]), BestWeights("val_loss", mode="min")
    trainer(tmp_path, keep, epochs=2).fit(model, loader(), loader())
    assert keep.metric == 0.5
