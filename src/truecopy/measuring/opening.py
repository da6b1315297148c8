"""Making a cell ready: its input, the checks of its methods, and what takes part in its rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truecopy.copying.api import copy
from truecopy.measuring.cells import DUPLICATES, Cell
from truecopy.measuring.clock import Clock
from truecopy.measuring.contract import Check, Watch, check
from truecopy.measuring.libraries import converted
from truecopy.measuring.methods import Method
from truecopy.measuring.record import CEILING, TWIN, Opened
from truecopy.measuring.rounds import Blocks, Entry, calibrate
from truecopy.measuring.uses import AS_IT_IS, CONTIGUOUS, MAKING, USES
from truecopy.measuring.works import SHAPES, leaves
from truecopy.memory.aliases import aliases


class OutOfTime(Exception):
    """The budget ended while a cell was made ready."""


@dataclass(slots=True, eq=False)
class Ready:
    """A cell that can be measured. `changed` grows where a method writes into the source after all."""

    opened: Opened
    entries: list[Entry]
    how: Blocks
    changed: list[str]
    is_unchanged: Callable[[], bool]


def make_source(cell: Cell) -> Any:
    """The input of a cell, of its library, and requiring gradient where its mode asks for it."""
    source = SHAPES[cell.shape](cell.elements, getattr(torch, cell.dtype), cell.device)
    if cell.mode in ("requires_grad", "no_grad"):
        for leaf in leaves(source):
            leaf.requires_grad_()
    return converted(source, cell.library)


def open_cell(
    cell: Cell, place: int, methods: tuple[Method, ...], clock: Clock, tick: Callable[[], None]
) -> Ready:
    """Check every method of a cell on its input, and make ready what can be timed.

    `tick` is called before each method, and may raise OutOfTime.
    """
    source = make_source(cell)
    watch = Watch(source)
    payload = sum(_nbytes(leaf) for leaf in leaves(source))
    payload *= DUPLICATES if cell.task == "duplicate" else 1
    if cell.task in USES:
        checks: tuple[Check, ...] = ()
        entries = _entries_of_use(cell, source)
    else:
        checks = _checked(methods, source, watch, tick)
        entries = _entries(methods, source, checks)
    entries.append(Entry(CEILING, _ceiling(payload, cell.device)))
    changed: list[str] = []

    def after(at: int) -> None:
        if not watch.seems_unchanged():
            changed.append(entries[at].name)
            watch.restore()

    how = Blocks(clock, cell.regime, payload, after)  # type: ignore[arg-type]
    tick()
    calls = calibrate(entries, how)
    names = tuple(entry.name for entry in entries)
    reached = aliases(source).reached_bytes if cell.library in ("torch", "numpy") else payload
    opened = Opened(place, payload, reached, names, calls, checks)
    return Ready(opened, entries, how, changed, watch.is_unchanged)


def _nbytes(leaf: Any) -> int:
    if isinstance(leaf, Tensor):
        return leaf.numel() * leaf.itemsize
    return int(np.asarray(leaf).nbytes)


def _checked(
    methods: tuple[Method, ...], source: Any, watch: Watch, tick: Callable[[], None]
) -> tuple[Check, ...]:
    found = []
    for method in methods:
        tick()
        one = check(method, source, watch.is_unchanged)
        if not one.source_unchanged:
            watch.restore()
        found.append(one)
    return tuple(found)


def _entries(methods: tuple[Method, ...], source: Any, checks: tuple[Check, ...]) -> list[Entry]:
    """What is timed: what did not raise. Who writes into the source gets one of its own."""
    entries = []
    for method, found in zip(methods, checks, strict=True):
        if found.raised:
            continue
        own = source if found.source_unchanged else copy(source)
        entries.append(Entry(method.name, method.bound(own)))
    entries.insert(1, Entry(TWIN, methods[0].bound(source)))
    return entries


def _entries_of_use(cell: Cell, source: Tensor) -> list[Entry]:
    use = USES[cell.task](source)
    dense = source.contiguous()
    return [
        Entry(AS_IT_IS, lambda: use(source)),
        Entry(TWIN, lambda: use(source)),
        Entry(CONTIGUOUS, lambda: use(dense)),
        Entry(MAKING, source.contiguous),
    ]


def _ceiling(nbytes: int, device: str) -> Callable[[], Tensor]:
    """As many bytes, copied between two blocks that were touched: what the machine can do."""
    source, target = (torch.ones(nbytes, dtype=torch.uint8, device=device) for _ in range(2))
    return lambda: target.copy_(source)
