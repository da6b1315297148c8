"""`BenchResult`: raw samples, and everything that is said of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from truecopy.encoding import decode, encode
from truecopy.measuring.cells import Cell
from truecopy.measuring.contract import Check
from truecopy.measuring.machine import Machine
from truecopy.measuring.rounds import Round
from truecopy.measuring.statistics import median
from truecopy.measuring.uses import CONTIGUOUS, MAKING, USES, BreakEven, break_even
from truecopy.measuring.verdict import Verdict, judge
from truecopy.records import Record, read_again

CEILING = "ceiling"
"""The entry of each cell that copies as many bytes between two blocks that were touched."""

TWIN = "the reference again"


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for: two runs of one request can be put together."""

    methods: tuple[str, ...]  # names, and FILE.py:FUNCTION
    seed: int
    budget: float | None  # seconds for all cells
    cells: tuple[Cell, ...]  # in the order in which they are measured
    left_out: tuple[str, ...]  # combinations that have no meaning, and why


@dataclass(frozen=True, slots=True)
class Opened:
    """A cell whose methods were checked and made ready."""

    cell: int  # its place in the request
    payload_bytes: int  # that one call writes: elements times item size, once
    source_bytes: int  # different bytes that the source reaches
    entries: tuple[str, ...]  # the reference, its twin, the others, the ceiling
    calls: tuple[int, ...]  # in one block of each entry
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """What is said of one method in one cell."""

    method: str
    check: Check | None  # None for what is no copy: uses, the ceiling
    seconds: float | None  # of one call, the median; None where it raised
    least: float | None
    verdict: Verdict | None  # None for the reference, the ceiling, and what broke its promise
    of_ceiling: float | None  # the ceiling's time over that of the method
    faults: float | None  # minor page faults of one call
    system: float | None  # share of the time that the kernel took


@dataclass(frozen=True)
class Measured:
    """One cell: its raw samples, and what they say."""

    cell: Cell
    opened: Opened
    rounds: tuple[Round, ...]
    ended: (
        str  # why it ended: "decided", "out of time", "enough rounds"; "cut short" where it did not
    )
    changed: tuple[str, ...]  # methods that wrote into the source during the rounds

    def seconds(self, entry: str) -> list[float]:
        """The samples of an entry, one for each round."""
        place = self.opened.entries.index(entry)
        return [one.seconds[place] for one in self.rounds]

    @property
    def reference(self) -> str:
        return self.opened.entries[0]

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row for each method, those that keep their promise first, the fastest first."""
        timed = {name: self._row(name) for name in self.opened.entries if name != TWIN}
        raised = [
            Row(one.method, one, None, None, None, None, None, None)
            for one in self.opened.checks if one.method not in timed
        ]  # fmt: skip
        rows = [row for name, row in timed.items() if name != CEILING]
        return tuple(sorted(rows, key=_rank)) + tuple(raised)

    @cached_property
    def ceiling(self) -> Row:
        """The row of the ceiling."""
        return self._row(CEILING)

    def row(self, method: str) -> Row:
        """The row of a method, by its name."""
        return next(row for row in self.rows if row.method == method)

    @cached_property
    def break_even(self) -> BreakEven | None:
        """After how many uses `contiguous()` has paid for itself, in a cell of a use."""
        if self.cell.task not in USES or not self.rounds:
            return None
        verdict = self.row(CONTIGUOUS).verdict
        assert verdict is not None
        return break_even(
            median(self.seconds(MAKING)), median(self.seconds(self.reference)), verdict
        )

    def verdict(self, entry: str, *, resamples: int = 2000) -> Verdict:
        """The verdict on an entry against the reference."""
        reference, twin = self.seconds(self.reference), self.seconds(TWIN)
        return judge(self.seconds(entry), reference, twin, resamples=resamples)

    def is_sound(self, entry: str) -> bool:
        """Whether a method kept its promises, before and during the rounds."""
        checks = {one.method: one.holds for one in self.opened.checks}
        return checks.get(entry, True) and entry not in self.changed

    def _row(self, name: str) -> Row:
        checks = {one.method: one for one in self.opened.checks}
        if not self.rounds:
            return Row(name, checks.get(name), None, None, None, None, None, None)
        place = self.opened.entries.index(name)
        seconds = self.seconds(name)
        system = [one.system[place] for one in self.rounds]
        judged = self.is_sound(name) and name not in (self.reference, CEILING)
        return Row(
            name, checks.get(name), median(seconds), min(seconds),
            self.verdict(name) if judged else None,
            median(self.seconds(CEILING)) / median(seconds),
            sum(one.faults[place] for one in self.rounds) / len(self.rounds),
            min(1.0, sum(system) / sum(seconds)),
        )  # fmt: skip


def _rank(row: Row) -> tuple[bool, float]:
    broken = row.check is not None and not row.check.holds
    return broken, row.seconds or 0.0


@dataclass(frozen=True)
class BenchResult(Record):
    """What each method cost and kept, cell by cell. `print(result)` is its table.

    Its JSON form is the envelope of every record with the machine, the request, and `log`: every cell
    opened, every round with raw samples, in the order in which they happened. `results` is what
    follows from these, for readers who do not want to count themselves; it is written, and never read.
    """

    machine: Machine
    request: Request
    cells: tuple[Measured, ...]
    cut: tuple[str, ...] = ()  # cells that were not measured, and why
    spent: float = 0.0  # seconds
    log: tuple[dict[str, Any], ...] = field(default=(), repr=False, compare=False)

    kind = "bench"

    @property
    def is_clean(self) -> bool:
        """Whether every cell of the request was measured."""
        return not self.cut

    def body(self) -> dict[str, Any]:
        return {
            "ratio": "time of the method over time of the reference: above 1 is slower",
            **head(self.machine, self.request),
            "log": list(self.log),
            "results": self.results(),
        }

    def results(self) -> list[dict[str, Any]]:
        """What the samples say, as plain data: one object for each cell."""
        return [
            {
                "cell": encode(one.cell, Cell),
                "rounds": len(one.rounds),
                "ended": one.ended,
                "reference": one.reference,
                "rows": [_plain(row) for row in (*one.rows, one.ceiling)],
                "break_even": None if one.break_even is None else one.break_even.why,
            }
            for one in self.cells
        ]

    @classmethod
    def from_json(cls, data: dict[str, Any], where: str | None = None) -> BenchResult:
        """The record that `to_json` wrote, or that a run was writing. Raises CannotRead for anything else."""
        return read_again(data, cls.kind, _read, where)


def _read(data: dict[str, Any]) -> BenchResult:
    machine = decode(data["machine"], Machine)
    return assembled(machine, decode(data["request"], Request), data["log"])


def head(machine: Machine, request: Request) -> dict[str, Any]:
    """What stands in a file before its log."""
    return {"machine": encode(machine, Machine), "request": encode(request, Request)}


def _plain(row: Row) -> dict[str, Any]:
    verdict = row.verdict
    return {
        "method": row.method,
        "broken": [] if row.check is None else list(row.check.broken),
        "raised": "" if row.check is None else row.check.raised,
        "seconds": row.seconds,
        "least_seconds": row.least,
        "verdict": None if verdict is None else verdict.word,
        "reason": "" if verdict is None else verdict.reason,
        "ratio": None if verdict is None else [verdict.ratio, verdict.low, verdict.high],
        "noise_floor": None if verdict is None else verdict.floor,
        "of_ceiling": row.of_ceiling,
        "faults": row.faults,
        "system_share": row.system,
    }


# --- the log --------------------------------------------------------------------------------------


def assembled(machine: Machine, request: Request, log: Any) -> BenchResult:
    """A result from its log, be it whole or as far as a killed run came."""
    opened: dict[int, Opened] = {}
    rounds: dict[int, list[Round]] = {}
    ended: dict[int, str] = {}
    changed: dict[int, list[str]] = {}
    cut: list[str] = []
    spent = 0.0
    for entry in log:
        match entry:
            case {"opened": data}:
                found: Opened = decode(data, Opened)
                _check_opened(found, request)
                opened[found.cell] = found
                rounds[found.cell], changed[found.cell] = [], []
            case {"cell": int(cell), "round": data}:
                one: Round = decode(data, Round)
                _check_round(one, opened[cell])
                rounds[cell].append(one)
                spent = max(spent, one.ended)
            case {"cell": int(cell), "changed": str(method)}:
                changed[cell].append(method)
            case {"cell": int(cell), "ended": str(why)} if cell in opened:
                ended[cell] = why
            case {"cut": str(why)}:
                cut.append(why)
            case {"spent": float(seconds)}:
                spent = seconds
            case _:
                raise ValueError(f"{entry!r:.80} is no entry of a log")
    cells = tuple(
        Measured(
            request.cells[i], one, tuple(rounds[i]), ended.get(i, "cut short"), tuple(changed[i])
        )
        for i, one in opened.items()
    )
    return BenchResult(machine, request, cells, tuple(cut), spent, tuple(log))


def _check_opened(found: Opened, request: Request) -> None:
    ends = found.entries[1:2], found.entries[-1:]
    if not 0 <= found.cell < len(request.cells) or ends != ((TWIN,), (CEILING,)):
        raise ValueError("a cell is not as it was asked for")
    if len(found.calls) != len(found.entries):
        raise ValueError("a cell has not one number of calls for each entry")


def _check_round(one: Round, opened: Opened) -> None:
    count = len(opened.entries)
    if {len(one.order), len(one.seconds), len(one.faults), len(one.system)} != {count}:
        raise ValueError("a round has not one sample for each entry")
    if not all(0 < seconds < float("inf") for seconds in one.seconds):
        raise ValueError("a sample is no time")
