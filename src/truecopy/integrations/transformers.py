"""Keep the best weights of a run of transformers' Trainer in memory: `BestWeights`, a callback."""

# ruff: noqa: ARG002 - signatures are those that the Trainer calls

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from accelerate.optimizer import AcceleratedOptimizer  # type: ignore[import-untyped]
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from truecopy.errors import TruecopyWarning, UsageError
from truecopy.integrations.best_of_run import BestOfRun
from truecopy.snapshots.best import Mode

FILE = "truecopy-best.safetensors"
"""What a checkpoint of the run holds beside the Trainer's own files."""


class BestWeights(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Keeps the weights of the best evaluation in memory, and puts them back when training ends.

    Args:
        metric: as `evaluate` returns it: "eval_loss".
        mode: "min" if less is better, "max" if more is.
        optimizer: keep and put back the optimizer too.
        in_checkpoints: write what is kept beside each checkpoint, so that a run that goes on from one knows
            its best. They grow by as much.

    Needs no `load_best_model_at_end`, and so no checkpoint at each evaluation. A run that ends with an
    exception or with Ctrl-C is left as it was: `restore()` puts back the best. Allocates one copy of the
    weights at the first evaluation. No gradient flows. Synchronizes as `tc.Snapshot` does.

    >>> from truecopy.integrations.transformers import BestWeights
    >>> keep = BestWeights("eval_loss", mode="min")  # Trainer(..., callbacks=[keep])
    >>> keep.metric is None
    True
    """

    def __init__(
        self, metric: str = "eval_loss", *, mode: Mode, optimizer: bool = False,
        in_checkpoints: bool = True,
    ) -> None:  # fmt: skip
        self.name, self._with_optimizer, self._in_checkpoints = metric, optimizer, in_checkpoints
        self._best = BestOfRun(mode)
        self._running = False

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

    # --- what the Trainer calls

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        optimizers = [_torch_optimizer(kwargs["optimizer"])] if self._with_optimizer else None
        self._best.begin(kwargs["model"], optimizers)
        self._running = True
        if state.global_step and self._in_checkpoints:
            self._go_on(args, state)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        if not self._running:
            return
        metrics = kwargs["metrics"]
        if self.name not in metrics:
            raise UsageError(
                f"an evaluation has no {self.name!r}",
                expected=f"one of {', '.join(sorted(metrics))}",
                got=repr(self.name),
            )
        self._best.offer(float(metrics[self.name]))

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        if self._in_checkpoints and state.is_world_process_zero and not self._best.is_sharded:
            folder = _checkpoint(args, state)
            if folder.is_dir():
                self._best.save(folder / FILE)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        self._running = False
        self._best.restore()

    def _go_on(self, args: TrainingArguments, state: TrainerState) -> None:
        """Take the best so far from the checkpoint that the run goes on from."""
        named = args.resume_from_checkpoint
        folder = Path(named) if isinstance(named, str) else _checkpoint(args, state)
        if (folder / FILE).is_file():
            self._best.load(folder / FILE)
        else:
            warnings.warn(
                f"{folder / FILE} is not there: the best weights from before step {state.global_step} are not"
                " known, and what is kept is the best from here on",
                TruecopyWarning,
                stacklevel=2,
            )


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(args.output_dir or ".", f"checkpoint-{state.global_step}")


def _torch_optimizer(optimizer: Any) -> Any:
    """What the Trainer wraps: a wrapper holds devices and processes too."""
    return optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer
