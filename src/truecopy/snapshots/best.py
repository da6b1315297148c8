"""`Best`: the k best moments of a run, each in a snapshot whose buffers are used again."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from truecopy.errors import UsageError
from truecopy.snapshots.contents import Keeper
from truecopy.snapshots.disk.saving import Saving
from truecopy.snapshots.snapshot import Snapshot
from truecopy.snapshots.sources import named

Mode = Literal["min", "max"]
NaN = Literal["refuse", "last"]


@dataclass(frozen=True, slots=True)
class Ranked:
    """One moment that was kept: its metric, and the number of the offer that it came with."""

    metric: float
    offer: int


class Best(Keeper):
    """The best moments of a run by a metric, kept in memory of their own.

    Args:
        sources: a mapping of names to sources, for names that are no keywords or that are options here.
        mode: "min" if less is better, "max" if more is.
        keep: how many moments.
        nan: "refuse" raises for a metric that is not a number; "last" ranks it behind every number.
        **sources: what to keep, by name, as `Snapshot` takes it.

    Nothing is taken before the first offer. Of two equal metrics the earlier one ranks first. Allocates one
    copy of the sources for each moment that is kept, and none for those that take the place of another.
    Shares no memory with the sources. No gradient flows.

    >>> import torch, truecopy as tc
    >>> model = torch.nn.Linear(1, 1)
    >>> best = tc.Best(mode="min", model=model)
    >>> for loss, weight in ((0.5, 1.0), (0.2, 2.0), (0.9, 3.0)):
    ...     _ = torch.nn.init.constant_(model.weight, weight)
    ...     kept = best.offer(loss)
    >>> best.restore()
    >>> model.weight.item(), best.metrics
    (2.0, (0.2,))
    """

    def __init__(
        self,
        sources: Mapping[str, Any] | None = None,
        /,
        *,
        mode: Mode,
        keep: int = 1,
        nan: NaN = "refuse",
        **by_name: Any,
    ) -> None:
        for option, value, allowed in (("mode", mode, get_args(Mode)), ("nan", nan, get_args(NaN))):
            if not isinstance(value, str) or value not in allowed:
                raise UsageError(
                    f"{option}={value!r:.80} means nothing",
                    expected=" or ".join(map(repr, allowed)),
                    got=f"{value!r:.80}",
                    way_out="To keep a source of that name, pass it first, in a mapping",
                )
        if type(keep) is not int or keep < 1:
            raise UsageError(
                f"keep={keep!r:.80} is no number of moments",
                expected="a whole number, 1 or more",
                got=f"{keep!r:.80}",
            )
        self._sources = named(sources, by_name)
        self._mode, self._keep, self._nan = mode, keep, nan
        self._ranked: list[tuple[Ranked, Snapshot]] = []
        self._torn: list[Snapshot] = []  # cut off while they were written; good for their buffers
        self._offers = 0

    def offer(self, metric: float) -> bool:
        """Keep this moment if its metric is among the best; whether it was kept.

        Takes a number or a tensor of one element. A moment that is not kept costs nothing but the
        comparison. One that takes the place of another is written into that one's buffers.
        """
        value = self._checked(metric)
        new = Ranked(value, self._offers)
        if len(self._ranked) == self._keep and self._order(new) > self._order(self._ranked[-1][0]):
            self._offers += 1
            return False
        snapshot = self._write(self._ranked.pop() if len(self._ranked) == self._keep else None)
        self._offers += 1
        self._ranked.append((new, snapshot))
        self._ranked.sort(key=lambda pair: self._order(pair[0]))
        return True

    def _write(self, worst: tuple[Ranked, Snapshot] | None) -> Snapshot:
        """This moment, in the buffers of the worst, which left the ranking, or of one that was torn."""
        snapshot = worst[1] if worst is not None else self._torn.pop() if self._torn else None
        if snapshot is None:
            return Snapshot(self._sources)
        try:
            snapshot.update()
        except BaseException:
            if worst is not None and not snapshot.is_torn:
                self._ranked.append(worst)  # refused: what was there is there, whole
            else:
                self._torn.append(snapshot)
            raise
        return snapshot

    def restore(self, rank: int = 0) -> None:
        """Put back the best moment, or the one of another rank, in place, as `Snapshot.restore` does."""
        self._of_rank(rank).restore()

    def save(self, path: str | os.PathLike[str], rank: int = 0) -> Saving:
        """Write the best moment, or the one of another rank, to a file, as `Snapshot.save` does."""
        return self._of_rank(rank).save(path)

    def _of_rank(self, rank: int) -> Snapshot:
        if type(rank) is not int or not 0 <= rank < len(self._ranked):
            raise UsageError(
                f"there is no moment of rank {rank!r:.80}",
                expected=f"a whole number below {len(self._ranked)}"
                if self._ranked
                else "an offer before a restore",
                got=f"{rank!r:.80}",
            )
        return self._ranked[rank][1]

    @property
    def metrics(self) -> tuple[float, ...]:
        """The metrics of the moments that are kept, best first."""
        return tuple(ranked.metric for ranked, _ in self._ranked)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the kept moments have taken."""
        return sum(s.nbytes for s in (*(held for _, held in self._ranked), *self._torn))

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.metrics)) or "none yet"
        return f"<truecopy.Best of {', '.join(self._sources)}; {self._mode}: {shown}; {self.nbytes:,} bytes>"

    def _order(self, ranked: Ranked) -> tuple[bool, float, int]:
        """Where a moment ranks: numbers before NaN, then by metric, then the earlier one first."""
        if math.isnan(ranked.metric):
            return True, 0.0, ranked.offer
        return False, ranked.metric if self._mode == "min" else -ranked.metric, ranked.offer

    def _checked(self, metric: Any) -> float:
        try:
            value = float(metric)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise UsageError(
                "the metric is not one number", expected="a number, or a tensor of one element",
                got=f"a {type(metric).__name__}: {error}",
            ) from None  # fmt: skip
        if math.isnan(value) and self._nan == "refuse":
            raise UsageError(
                "the metric is NaN, which is neither better nor worse than any number",
                expected="a number",
                way_out='Best(..., nan="last") ranks it behind every number',
            )
        return value
