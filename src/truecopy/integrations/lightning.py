"""Keep the best weights of a Lightning run in memory: `BestWeights`, a callback."""

# ruff: noqa: ARG002 - signatures are those that Lightning calls

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from truecopy.errors import UsageError
from truecopy.integrations.best_of_run import BestOfRun
from truecopy.snapshots.best import Mode


class BestWeights(Callback):
    """Keeps the weights of the best moment in memory, and puts them back when fit ends.

    Args:
        monitor: the metric, as the module logs it: "val_loss".
        mode: "min" if less is better, "max" if more is.
        optimizer: keep and put back the optimizers too.
        in_checkpoints: let checkpoints of the run hold what is kept, so that a run that goes on from one
            knows its best. They grow by as much.

    Looks each time the metric is logged anew, at the end of a validation or of an epoch. A run that ends with
    an exception or with Ctrl-C is left as it was, since checkpoints made then must hold its last moment:
    `restore()` puts back the best. Allocates one copy of the weights at the first look. No gradient flows.
    Synchronizes as `tc.Snapshot` does.

    >>> from truecopy.integrations.lightning import BestWeights
    >>> keep = BestWeights("val_loss", mode="min")  # Trainer(callbacks=[keep])
    >>> keep.metric is None
    True
    """

    def __init__(
        self, monitor: str, *, mode: Mode, optimizer: bool = False, in_checkpoints: bool = True
    ) -> None:
        self.monitor, self._with_optimizer, self._in_checkpoints = (
            monitor,
            optimizer,
            in_checkpoints,
        )
        self._best = BestOfRun(mode)
        self._mode = mode
        self._looked_at: Any = None  # the very tensor: an equal one is another one
        self._validated = False

    @property
    def metric(self) -> float | None:
        """The metric of what is kept; None where nothing is."""
        return self._best.metric

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it has taken."""
        return self._best.nbytes

    def restore(self) -> bool:
        """Put the best weights back in place, now; whether there were any."""
        return self._best.restore()

    # --- what Lightning calls

    @property
    def state_key(self) -> str:
        """What tells two of them apart in a checkpoint."""
        return self._generate_state_key(monitor=self.monitor, mode=self._mode)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._looked_at, self._validated = None, False
        self._best.begin(pl_module, trainer.optimizers if self._with_optimizer else None)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._validated = True
            self._look(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._look(trainer)
        if self._looked_at is None and (self._validated or not trainer.enable_validation):
            raise UsageError(
                f"nothing was logged as {self.monitor!r}",
                expected=f"one of {', '.join(sorted(trainer.callback_metrics)) or 'self.log(...)'}",
                got=repr(self.monitor),
            )

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._best.restore()

    def state_dict(self) -> dict[str, Any]:
        """What is kept, as the bytes of one file; nothing of a sharded model, whose parts are elsewhere."""
        if not self._in_checkpoints or self._best.is_sharded:
            return {}
        with TemporaryDirectory() as folder:
            file = Path(folder, "best.safetensors")
            if not self._best.save(file):
                return {}
            return {"best": torch.from_numpy(np.fromfile(file, np.uint8))}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if "best" not in state_dict:
            return
        with TemporaryDirectory() as folder:
            file = Path(folder, "best.safetensors")
            state_dict["best"].cpu().numpy().tofile(file)
            self._best.load(file)

    def _look(self, trainer: Trainer) -> None:
        metric = trainer.callback_metrics.get(self.monitor)
        if metric is not None and metric is not self._looked_at:
            self._looked_at = metric
            self._best.offer(trainer.strategy.broadcast(float(metric)))
