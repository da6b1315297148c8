"""`bench`: what each way of copying costs here, and what it keeps."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truecopy.encoding import encode
from truecopy.errors import CannotWrite
from truecopy.measuring.asking import Asked, ask
from truecopy.measuring.cells import OWN_THREADS, Cell, in_mode
from truecopy.measuring.clock import Clock, clock_of
from truecopy.measuring.faster import torch_threads
from truecopy.measuring.finding import MethodLike
from truecopy.measuring.journal import Journal, read_journal
from truecopy.measuring.machine import this_machine
from truecopy.measuring.opening import OutOfTime, Ready, open_cell
from truecopy.measuring.record import CEILING, TWIN, BenchResult, Measured, Opened
from truecopy.measuring.regimes import Regime
from truecopy.measuring.rounds import Round, objects_set_aside, run_round
from truecopy.measuring.sizes import Size
from truecopy.measuring.verdict import LEAST_ROUNDS, is_decided

CELL_SECONDS = 5.0
"""What a cell may take where no budget is given, unless it needs more for the least number of rounds."""

MOST_ROUNDS = 1000
_LOOK_EVERY = 1.5  # rounds grow by this factor between two looks at whether they suffice
_RESERVED = 0.02  # of a budget, for what is said at the end


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    cell: int  # the one that is being measured, from 1
    cells: int
    title: str
    rounds: int
    part: float  # of the whole, from 0 to 1
    seconds_left: float  # at most


def bench(
    methods: MethodLike | Iterable[MethodLike] | None = None,
    *,
    sizes: Size | Iterable[Size] | None = None,
    shapes: str | Iterable[str] | None = None,
    regimes: Regime | Iterable[Regime] | None = None,
    threads: int | Iterable[int] | None = None,
    budget: float | None = None,
    dtypes: Any = None,
    modes: str | Iterable[str] | None = None,
    device: str = "cpu",
    seed: int = 0,
    save: str | Path | None = None,
    force: bool = False,
    progress: Callable[[Progress], None] | None = None,
    spent: float = 0.0,
    clock: Clock | None = None,
) -> BenchResult:
    """What each way of copying costs on this machine, and which of them make copies.

    Args:
        methods: names ("clone"), groups ("copies", which is the default, "duplicates", "uses", "numpy",
            "jax", "tensorflow", "all"), functions of a tensor, or "FILE.py:FUNCTION".
        sizes: elements (1024), bytes ("16MiB"), ranges of powers of two ("2^0..2^20", "2^0.." to what fits).
        shapes: "contiguous", "transposed", "strided", "expanded", "channels_last", "one_big", "many_small".
        regimes: "recycled", "fresh", "into".
        threads: of torch; by default 1 and `torch.get_num_threads()`.
        budget: seconds for everything. Without one, each combination takes some seconds.
        dtypes: names or dtypes of torch.
        modes: "plain", "requires_grad", "no_grad", "inference".
        device: where the tensors are. Other devices than the CPU are untested.
        seed: of the order in the rounds.
        save: a file that is written after every round. If it holds a part of this very request, the
            run goes on where it stopped.
        force: replace a file that holds something else.
        progress: called after every round.
        spent: seconds of the budget that are gone already.
        clock: in place of the machine's, for tests.

    Allocates what the methods allocate, and says beforehand if that is too much. Returns no view; waits
    for the device after every block. Results of the methods are dropped.

    >>> import truecopy as tc
    >>> found = tc.bench(["clone", "contiguous"], sizes=64, threads=1, budget=1)
    >>> found.cells[0].row("contiguous").check.broken
    ('returns the same tensor',)
    """
    clock = clock or clock_of(device)
    began = clock.now() - spent
    asked = ask(
        methods, sizes=sizes, shapes=shapes, dtypes=dtypes, regimes=regimes, threads=threads,
        modes=modes, device=device, budget=budget, seed=seed,
    )  # fmt: skip
    path = None if save is None else Path(save)
    earlier = _earlier(asked, path, device, force=force)
    with Journal(earlier, path) as journal, objects_set_aside(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of methods: the checks have taken them down
        run = _Run(asked, earlier, journal, clock, began - earlier.spent, progress)
        run.all()
        result = BenchResult.from_json({**earlier.to_json(), "log": journal.entries})
        journal.finish(result.results())
    return result


def _earlier(asked: Asked, path: Path | None, device: str, *, force: bool) -> BenchResult:
    """What a killed run of the same request left, or a result without a sample."""
    machine = this_machine(device)
    nothing = BenchResult(machine, asked.request, ())
    if path is None or not path.exists() or force:
        return nothing
    found = read_journal(path)
    if found.request != asked.request:
        what = "holds the result of another request"
    elif found.machine.differs(machine) or found.machine.ran_otherwise(machine):
        what = "was begun on another machine, or with other versions"
    else:
        return found
    raise CannotWrite(
        what, where=str(path), expected="no file, or a part of this very request",
        way_out="Pass another name, or --force (force=True) to replace it",
    )  # fmt: skip


class _Run:
    """One request, carried out cell by cell."""

    def __init__(
        self,
        asked: Asked,
        earlier: BenchResult,
        journal: Journal,
        clock: Clock,
        began: float,  # as if the earlier run had just ended
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._asked, self._journal, self._clock, self._began = asked, journal, clock, began
        self._progress = progress
        self._earlier = {one.opened.cell: one for one in earlier.cells}
        budget = asked.request.budget
        self._ends = float("inf") if budget is None else began + budget * (1 - _RESERVED)
        self._told = set(earlier.cut)
        self._opening = _Pace()

    def all(self) -> None:
        """Every cell that was not measured to its end."""
        cells = self._asked.request.cells
        for place, cell in enumerate(cells):
            before = self._earlier.get(place)
            if before is not None and before.ended != "cut short":
                continue
            with (
                torch_threads(None if cell.threads == OWN_THREADS else cell.threads),
                in_mode(cell.mode),
            ):
                self._cell(place, cell, before)
        self._journal.append({"spent": self._clock.now() - self._began})

    def _cell(self, place: int, cell: Cell, before: Measured | None) -> None:
        began = self._clock.now()
        if began + self._opening.expected(cell) > self._ends:
            self._cut(cell)
            return
        try:
            methods = self._asked.methods_in(cell)
            ready = open_cell(cell, place, methods, self._clock, self._tick)
        except OutOfTime:
            self._cut(cell)
            return
        took = self._clock.now() - began
        self._opening.took(cell, took)
        ready, rounds = self._resumed(ready, before)
        # Each method was called four times at least; a round calls it twice.
        ended = self._rounds(place, cell, ready, rounds, took / 2)
        if not ready.is_unchanged() and not ready.changed:
            self._note_changed(place, "a method that was not caught in the act")
        self._journal.append({"cell": place, "ended": ended})

    def _tick(self) -> None:
        if self._clock.now() > self._ends:
            raise OutOfTime

    def _cut(self, cell: Cell) -> None:
        why = f"no time left in the budget: {cell.title}"
        if why not in self._told:
            self._told.add(why)
            self._journal.append({"cut": why})

    def _resumed(self, ready: Ready, before: Measured | None) -> tuple[Ready, list[Round]]:
        """What an earlier run measured, where the same entries take part; its block sizes stay."""
        if before is not None and before.opened.entries == ready.opened.entries:
            ready.opened = before.opened
            return ready, list(before.rounds)
        self._journal.append({"opened": encode(ready.opened, Opened)})
        return ready, []

    def _rounds(
        self, place: int, cell: Cell, ready: Ready, rounds: list[Round], longest: float
    ) -> str:
        """Rounds until enough is known, or the time of the cell is over; why it ended."""
        share = self._share(place)
        look = LEAST_ROUNDS
        while len(rounds) < MOST_ROUNDS:
            now = self._clock.now()
            if now + longest > self._ends or (now >= share and len(rounds) >= LEAST_ROUNDS):
                return "out of time"
            order = random.Random(f"{self._asked.request.seed}:{place}:{len(rounds)}")
            one = run_round(ready.entries, ready.opened.calls, ready.how, order, self._began)
            longest = self._clock.now() - now
            rounds.append(one)
            self._journal.append({"cell": place, "round": encode(one, Round)})
            for method in ready.changed:
                self._note_changed(place, method)
            self._tell(place, cell, len(rounds), share)
            if len(rounds) >= look:
                look = int(look * _LOOK_EVERY)
                if self._decided(cell, ready, rounds):
                    return "decided"
        return "enough rounds"

    def _share(self, place: int) -> float:
        """When the time of a cell is over: what is left, in equal parts.

        A cell goes on to the least number of rounds all the same, until the budget ends: some cells of
        which one can tell, and a list of the others, say more than many of which nobody can.
        """
        now, left = self._clock.now(), len(self._asked.request.cells) - place
        return (
            now + min(CELL_SECONDS, self._ends - now)
            if self._endless
            else now + (self._ends - now) / left
        )

    @property
    def _endless(self) -> bool:
        return self._asked.request.budget is None

    def _decided(self, cell: Cell, ready: Ready, rounds: list[Round]) -> bool:
        measured = Measured(cell, ready.opened, tuple(rounds), "", tuple(ready.changed))
        judged = [
            n for n in ready.opened.entries[1:] if n not in (TWIN, CEILING) and measured.is_sound(n)
        ]
        return all(is_decided(measured.verdict(name, resamples=300)) for name in judged)

    def _note_changed(self, place: int, method: str) -> None:
        entry = {"cell": place, "changed": method}
        if entry not in self._journal.entries[-MOST_ROUNDS:]:
            self._journal.append(entry)

    def _tell(self, place: int, cell: Cell, rounds: int, share: float) -> None:
        if self._progress is None:
            return
        cells, now = len(self._asked.request.cells), self._clock.now()
        left = (
            self._ends - now
            if not self._endless
            else max(0.0, share - now) + CELL_SECONDS * (cells - place - 1)
        )
        within = min(1.0, rounds / MOST_ROUNDS)
        part = (now - self._began) / (now - self._began + left) if left >= 0 else within
        self._progress(
            Progress(place + 1, cells, cell.title, rounds, min(part, 1.0), max(left, 0.0))
        )


class _Pace:
    """How long it takes to make cells ready, told from those before: larger ones take longer."""

    _ALIKE = 1 << 20  # elements: below, what is done for each method outweighs their bytes

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], tuple[int, float]] = {}

    def took(self, cell: Cell, seconds: float) -> None:
        """Note what one took."""
        self._known[self._key(cell)] = (cell.elements, seconds)

    def expected(self, cell: Cell) -> float:
        """What one will take, 0 where nothing is known."""
        elements, seconds = self._known.get(self._key(cell), (1, 0.0))
        return seconds * max(1.0, cell.elements / max(elements, self._ALIKE))

    def _key(self, cell: Cell) -> tuple[str, str, str]:
        return cell.library, cell.task, cell.shape
