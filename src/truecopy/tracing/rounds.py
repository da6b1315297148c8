"""Iterations: marked by the program, or found where one place of it is passed again and again.

While the program runs, places that may be the head of a loop leave a mark with what is alive at that
moment. Which of them is the head is decided at the end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from truecopy.tracing.storages import Block, Storages

WEAK, STRONG, MARKED = range(3)
"""A line of whoever opened the trace; a backward pass, or a module that no other called; `t.step()`."""

MOST_MARKS = (4_096, 65_536, 1_000_000)
_FEWEST = (3, 2, 1)
"""How often a place is passed that is the head of a loop."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place was passed: what was so, just before."""

    strength: int
    place: Any
    event: int  # the first after it
    tick: int
    live: int
    allocated: int
    copied: int
    peak: int  # since the mark before

    @property
    def key(self) -> tuple[int, int]:
        """What marks of one place have in common: one line may call a module, and do more beside."""
        return self.strength, id(self.place)


@dataclass(frozen=True, slots=True)
class Round:
    """One iteration, from a mark to the next."""

    first_event: int
    last_event: int
    allocated: int
    copied: int
    peak: int
    end: int


class Rounds:
    """The marks of a run."""

    def __init__(self, memory: Storages) -> None:
        self._memory = memory
        self.marks: list[Mark] = []
        self._counts = [0, 0, 0]
        self._passed: set[int] = set()  # weak places, by identity, until one comes again
        self._turn: Any = None
        self.copied = 0  # kept up to date by whoever counts

    def pass_by(self, strength: int, place: Any, event: int) -> None:
        """A place that may be the head of a loop is passed."""
        if self._counts[strength] >= MOST_MARKS[strength]:
            return
        self._counts[strength] += 1
        memory = self._memory
        if strength or self._is_turn(place):
            memory.mark += 1
        self.marks.append(
            Mark(
                strength, place, event, memory.tick, memory.live, memory.allocated, self.copied,
                memory.interval_peak,
            )
        )  # fmt: skip
        memory.interval_peak = memory.live

    def _is_turn(self, place: Any) -> bool:
        """Whether a loop begins anew at a weak place: the first that came again, if none is stronger."""
        if any(self._counts[STRONG:]):
            return False
        if self._turn is None:
            if id(place) in self._passed:
                self._turn = place
            self._passed.add(id(place))
        return place is self._turn

    def iterations(self, events: int) -> list[Round]:
        """The rounds of the loop that was passed most often, the strongest kind of marks first."""
        memory = self._memory
        end = Mark(
            MARKED, None, events, memory.tick, memory.live, memory.allocated, self.copied,
            memory.interval_peak,
        )  # fmt: skip
        marked = [mark for mark in self.marks if mark.strength == MARKED]
        if marked:
            return self._rounds(*_pairs(marked, end), end)
        for strength in (STRONG, WEAK):
            heads = self._heads(strength)
            if heads:
                return self._rounds(heads, [*heads[1:], self._close(heads, end)], end)
        return []

    def _heads(self, strength: int) -> list[Mark]:
        places = Counter(mark.key for mark in self.marks)
        most = max((n for key, n in places.items() if key[0] == strength), default=0)
        if most < _FEWEST[strength]:
            return []
        # Of the places that are passed as often, the loop begins at the one that comes first.
        first = next(mark.key for mark in self.marks if places[mark.key] == most)
        return [mark for mark in self.marks if mark.key == first]

    def _close(self, heads: list[Mark], end: Mark) -> Mark:
        """Where the last round ends: behind the last place of the loop."""
        places = Counter(mark.key for mark in self.marks)
        inside = [i for i, mark in enumerate(self.marks) if places[mark.key] >= len(heads)]
        return self.marks[inside[-1] + 1] if inside[-1] + 1 < len(self.marks) else end

    def _rounds(self, begins: list[Mark], ends: list[Mark], end: Mark) -> list[Round]:
        """The rounds between pairs of marks, with the most that was alive in each."""
        place = {id(mark): index for index, mark in enumerate([*self.marks, end])}
        found = []
        for begin, stop in zip(begins, ends, strict=True):
            inside = [*self.marks, end][place[id(begin)] + 1 : place[id(stop)] + 1]
            found.append(
                Round(
                    begin.event,
                    stop.event - 1,
                    stop.allocated - begin.allocated,
                    stop.copied - begin.copied,
                    max((mark.peak for mark in inside), default=begin.live),
                    stop.live,
                )
            )
        return found


def _pairs(marked: list[Mark], end: Mark) -> tuple[list[Mark], list[Mark]]:
    """Begins and ends of steps; a step that is not over, and one inside of another, end with it."""
    begins = [i for i, mark in enumerate(marked) if mark.place == "begin"]
    stops = [next((mark for mark in marked[i + 1 :] if mark.place == "end"), end) for i in begins]
    return [marked[i] for i in begins], stops


def survived(rounds: list[Round], blocks: list[Block]) -> list[list[Block]]:
    """For each round what was born in it and was alive at the end of the next."""
    found: list[list[Block]] = [[] for _ in rounds]
    for block in blocks:
        for index, one in enumerate(rounds[:-1]):
            if one.first_event <= block.birth <= one.last_event:
                following = rounds[index + 1]
                if block.death < 0 or block.death > following.last_event:
                    found[index].append(block)
                break
    return found
