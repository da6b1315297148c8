"""`BestOfRun`: the best weights of a run in memory, through interruptions; what both callbacks are made of.

In: a model, its optimizers if they are asked for, and metrics. Out: the weights, put back in place. It keeps
weights and buffers, and not what else a module holds: a trainer's modes and counters are its own.
"""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from truecopy import _torch
from truecopy.errors import UsageError
from truecopy.snapshots.best import Best, Mode
from truecopy.snapshots.snapshot import Snapshot


class BestOfRun:
    """The best moment of a run, and of the runs that it goes on from."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._sources: dict[str, Any] = {
            "weights": {},
            "metric": torch.zeros(1, dtype=torch.float64),
        }
        self._model: torch.nn.Module | None = None
        self._best = Best(self._sources, mode=mode)
        self._earlier: tuple[float, bytes] | None = (
            None  # the best so far of the runs before, as a file
        )

    def begin(self, model: torch.nn.Module, optimizers: list[Any] | None) -> None:
        """Start with this model; what was kept of an earlier run by `load` stays."""
        self._model = model
        self._sources = {"weights": {}, "metric": torch.zeros(1, dtype=torch.float64)}
        if optimizers is not None:
            self._sources["optimizers"] = optimizers
        self._best = Best(self._sources, mode=self._mode)

    def offer(self, metric: float) -> bool:
        """Keep the weights as they are now if the metric is the best so far. NaN never is."""
        if math.isnan(metric):
            return False
        if self._earlier is not None and not self._is_better(metric, self._earlier[0]):
            return False
        self._sources["metric"].fill_(metric)
        self._find_weights()
        kept = self._best.offer(metric)
        if kept:
            self._earlier = None
        return kept

    def restore(self) -> bool:
        """Put the best weights back in place; False where nothing was kept, and nothing is changed."""
        if self._model is None or self.metric is None:
            return False
        if self._earlier is None:
            self._best.restore()
        else:
            self._find_weights()
            with TemporaryDirectory() as folder:
                file = Path(folder, "best.safetensors")
                file.write_bytes(self._earlier[1])
                Snapshot.load(file).restore(self._sources)
        return True

    @property
    def metric(self) -> float | None:
        """The metric of what is kept; None where nothing is."""
        if self._earlier is not None:
            return self._earlier[0]
        return self._best.metrics[0] if self._best.metrics else None

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it has taken."""
        return self._best.nbytes + (0 if self._earlier is None else len(self._earlier[1]))

    @property
    def is_sharded(self) -> bool:
        """Whether this process has a part of the weights alone."""
        return self._model is not None and any(map(_torch.is_sharded, self._model.parameters()))

    def save(self, path: Path) -> bool:
        """Write what is kept to a file, whole or not at all; False where there is nothing to write."""
        if self.metric is None:
            return False
        if self._earlier is None:
            self._best.save(path)
        else:
            draft = path.with_name(f".{path.name}.draft")
            draft.write_bytes(self._earlier[1])
            draft.replace(path)
        return True

    def load(self, path: Path) -> None:
        """Take what `save` wrote for the best so far; a run of the same model goes on from it."""
        from safetensors import safe_open

        Snapshot.load(path)  # whole, and one of ours
        with safe_open(path, framework="pt") as file:
            metric = float(file.get_tensor("metric"))
        self._earlier = metric, path.read_bytes()

    def _find_weights(self) -> None:
        """Name the weights as they are now: layers can be added, and lazy ones get theirs late."""
        if self._model is None:
            raise UsageError("nothing was trained yet", expected="an offer during a run")
        for module in self._model.modules():
            _torch.reshard(module)
        weights = self._sources["weights"]
        weights.clear()
        weights.update(self._model.named_parameters())
        weights.update(self._model.named_buffers())

    def _is_better(self, metric: float, than: float) -> bool:
        return metric < than if self._mode == "min" else metric > than
