"""From what a run left behind to its record: names, sites, sentences and the order in which to read them.

What comes in: an `Observed` run, whoever observed it. What goes out: a `TraceRecord`. Nothing here
looks at the program again.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from truecopy.tracing import sites, storages
from truecopy.tracing.churn import FEWEST
from truecopy.tracing.facts import (
    OWNERS,
    PHASES,
    Churn,
    Copy,
    Event,
    Habit,
    Iteration,
    Line,
    Moment,
    Owner,
    Peak,
    Site,
    StorageLife,
    Survivor,
    Totals,
    Unseen,
)
from truecopy.tracing.habits import SAYS
from truecopy.tracing.instead import instead_of
from truecopy.tracing.ledger import Ledger
from truecopy.tracing.lines import LineOfCode, name_of
from truecopy.tracing.operations import Operation
from truecopy.tracing.record import MOST_EVENTS, MOST_MOMENTS, MOST_STORAGES, TraceRecord
from truecopy.tracing.rounds import Round, survived
from truecopy.tracing.storages import Block
from truecopy.tracing.survivors import Held


@dataclass(frozen=True, slots=True)
class Observed:
    """A run that is over, and what was found out at its very end."""

    name: str
    ended: str
    ledger: Ledger
    rounds: Sequence[Round]
    held: Sequence[Held]  # who holds what survived
    nodes: dict[int, int]  # event -> nodes that it made and that are alive
    unseen: tuple[Unseen, ...]
    tier: str = "modes"


def record_of(run: Observed) -> TraceRecord:
    """The record of a run."""
    return _Building(run).record()


class _Building:
    """One record, on its way."""

    def __init__(self, run: Observed) -> None:
        self.run = run
        self.ledger = run.ledger
        self.memory = run.ledger.memory
        self.sites: dict[int, Site] = {}
        self.at_peak = self.memory.at_peak()

    def record(self) -> TraceRecord:
        events = tuple(self._event(raw) for raw in self._raw_events())
        iterations = self._iterations()
        return TraceRecord(
            name=self.run.name,
            tier=self.run.tier,
            ended=self.run.ended,
            totals=self._totals(),
            peak=self._peak(events, iterations),
            lines=self._lines(),
            copies=self._copies(),
            churn=self._churn(len(iterations)),
            habits=self._habits(),
            iterations=iterations,
            survivors=self._survivors(),
            events=events,
            memory=self._moments(),
            storages=self._storages(),
            unseen=self.run.unseen,
        )

    def site(self, line: LineOfCode | None) -> Site | None:
        """The place of a line, or None for what has none."""
        if line is None:
            return None
        if line.code is None:
            return line.site
        found = self.sites.get(id(line))
        if found is None:
            found = self.sites[id(line)] = sites.resolve((line.code, line.offset))
        return found

    def known_site(self, line: LineOfCode | None) -> Site:
        """The same, for facts that must have one."""
        return self.site(line) or NOWHERE

    # --- numbers ----------------------------------------------------------------------------------

    def _totals(self) -> Totals:
        ledger, memory = self.ledger, self.memory
        return Totals(
            events=ledger.events,
            operations=ledger.operations,
            same=ledger.same,
            allocated_bytes=memory.allocated,
            freed_bytes=memory.freed,
            copied_bytes=ledger.copied,
            read_bytes=ledger.read,
            hidden_copies=ledger.copying.hidden_count,
            hidden_bytes=ledger.hidden_bytes,
            start_bytes=memory.existed,
            end_bytes=memory.live,
            would_be_bytes=memory.would_be,
            raised=ledger.raised,
            seconds=(ledger.stopped - ledger.started) / 1e9,
            own_bytes=own_bytes(ledger),
            copies=ledger.copying.count,
        )

    def _peak(self, events: tuple[Event, ...], iterations: tuple[Iteration, ...]) -> Peak:
        memory = self.memory
        at = next((event for event in events if event.index == memory.peak_event), None)
        where = max(
            (block for block in self.at_peak if block.birth == memory.peak_event),
            key=lambda block: block.birth_tick,
            default=None,
        )
        site = at.site if at else self.site(where.line) if where else None
        owners: dict[tuple[int, str, str, str], list[int]] = {}
        temporary = 0
        for block in self.at_peak:
            owner = OWNERS[block.owner]
            if block.owner == storages.TEMPORARY and block.death == block.birth:
                temporary += block.nbytes
            key = (id(block.line), block.path, owner, block.saved_by if owner == SAVED else "")
            row = owners.setdefault(key, [0, 0])
            row[0] += block.nbytes
            row[1] += 1
        lines = {id(block.line): block.line for block in self.at_peak}
        nowhere = sum(block.nbytes for block in self.at_peak if block.line is self.ledger.nowhere)
        merged: dict[Any, Owner] = {}
        for (line, path, owner, node), (nbytes, count) in owners.items():
            site_of = self.site(lines[line])
            whole = (site_of and (site_of.file, site_of.line), path, owner, node)
            known = merged.get(whole)
            merged[whole] = (
                Owner(site_of, path, owner, nbytes, count, node)
                if known is None
                else replace(known, nbytes=known.nbytes + nbytes, storages=known.storages + count)
            )
        iteration = next(
            (i.number for i in iterations if i.first_event <= memory.peak_event <= i.last_event),
            -1,
        )
        return Peak(
            nbytes=memory.peak,
            event=memory.peak_event,
            site=site,
            module=at.module if at else where.path if where else "",
            phase=at.phase if at else PHASES[0],
            iteration=iteration,
            temporary_bytes=temporary,
            unattributed_bytes=nowhere if self.run.tier == "profiler" else 0,
            owners=tuple(
                sorted(
                    (owner for owner in merged.values() if owner.nbytes),
                    key=lambda owner: -owner.nbytes,
                )
            ),
        )

    def _lines(self) -> tuple[Line, ...]:
        """Places of one source line are one line: it stands at the place that allocated most."""
        at_peak: Counter[int] = Counter()
        for block in self.at_peak:
            at_peak[id(block.line)] += block.nbytes
        groups: dict[tuple[str, int, str], list[LineOfCode]] = {}
        for line in [*self.ledger.lines.values(), self.ledger.nowhere]:
            if line.events:
                site = self.known_site(line)
                groups.setdefault((site.file, site.line, site.function), []).append(line)
        found = [self._line(lines, at_peak) for lines in groups.values()]
        return tuple(
            sorted(
                found,
                key=lambda line: (
                    -line.hidden_bytes, -line.copied_bytes, -line.allocated_bytes, -line.events,
                    line.site.file, line.site.line,
                ),
            )
        )  # fmt: skip

    def _line(self, lines: list[LineOfCode], at_peak: Counter[int]) -> Line:
        calls: Counter[str] = Counter()
        origins: Counter[str] = Counter()
        effects: Counter[str] = Counter()
        for line in lines:
            for function, count in line.calls.items():
                calls[_call(function)] += count
            origins.update(line.origins)
            effects.update(line.effects)
        phases = 0
        for line in lines:
            phases |= line.phases
        worst = max(lines, key=lambda line: (line.hidden_bytes, line.copied, line.allocated))
        return Line(
            site=self.known_site(worst),
            modules=tuple(dict.fromkeys(path for line in lines for path in line.paths)),
            phases=tuple(word for bit, word in enumerate(PHASES) if phases & 1 << bit),
            calls=tuple(calls.most_common()),
            origins=tuple(origins.most_common()),
            effects=tuple(effects.most_common()),
            events=sum(line.events for line in lines),
            operations=sum(line.operations for line in lines),
            allocated_bytes=sum(line.allocated for line in lines),
            copied_bytes=sum(line.copied for line in lines),
            read_bytes=sum(line.read for line in lines),
            hidden_copies=sum(line.hidden for line in lines),
            hidden_bytes=sum(line.hidden_bytes for line in lines),
            peak_bytes=sum(at_peak[id(line)] for line in lines),
            raised=sum(line.raised for line in lines),
            copies=sum(line.copies for line in lines),
        )

    # --- findings ---------------------------------------------------------------------------------

    def _copies(self) -> tuple[Copy, ...]:
        found = [
            Copy(
                site=self.known_site(one.line),
                module=one.path,
                phase=PHASES[one.phase],
                call=one.call,
                operation=one.operation,
                inside=one.inside,
                reason=one.reason,
                advice=one.advice,
                count=one.count,
                nbytes=one.nbytes,
                read_bytes=one.read,
                amplification=one.nbytes / one.read if one.read else 1.0,
                forward=self.site(one.forward),
                event=one.event,
            )
            for one in self.ledger.copying.hidden.values()
        ]
        return tuple(sorted(found, key=lambda copy: (-copy.nbytes, copy.event)))

    def _churn(self, iterations: int) -> tuple[Churn, ...]:
        found = []
        for line in self.ledger.lines.values():
            churn = line.churn
            if churn is None or churn.count < FEWEST or not churn.is_one or not churn.nbytes:
                continue
            site = self.known_site(line)
            how, why_not = churn.verdict
            found.append(
                Churn(
                    site=site,
                    module=next(iter(line.paths), ""),
                    call=name_of(churn.function),
                    nbytes=churn.nbytes,
                    count=churn.count,
                    per_iteration=round(churn.count / iterations, 3) if iterations else 0.0,
                    instead=instead_of(site, name_of(churn.function), how),
                    why_not=why_not,
                    saves_bytes=churn.nbytes * (churn.count - (how == "out")) if how else 0,
                )
            )
        return tuple(sorted(found, key=lambda one: -one.nbytes * one.count))

    def _habits(self) -> tuple[Habit, ...]:
        rows = [*self.ledger.habits.found.values()]
        rows += [["again", *row] for row in self.ledger.copying.again.values()]
        found = [
            Habit(self.known_site(line), path, *SAYS[what], count, nbytes)
            for what, line, path, count, nbytes in rows
        ]
        return tuple(sorted(found, key=lambda habit: -habit.nbytes))

    def _iterations(self) -> tuple[Iteration, ...]:
        blocks = [*self.memory.blocks.values(), *self.memory.long_lived]
        left = survived(list(self.run.rounds), blocks)
        nodes = [0] * len(self.run.rounds)
        for event, count in self.run.nodes.items():
            for number, one in enumerate(self.run.rounds[:-1]):
                if one.first_event <= event <= one.last_event:
                    nodes[number] += count
        return tuple(
            Iteration(
                number=number,
                first_event=one.first_event,
                last_event=one.last_event,
                allocated_bytes=one.allocated,
                copied_bytes=one.copied,
                peak_bytes=one.peak,
                end_bytes=one.end,
                survived_bytes=sum(block.nbytes for block in left[number]),
                nodes=nodes[number],
            )
            for number, one in enumerate(self.run.rounds)
        )

    def _survivors(self) -> tuple[Survivor, ...]:
        rounds = max(len(self.run.rounds) - 1, 1)
        found = [
            Survivor(
                site=self.known_site(held.line),
                module=held.path,
                what=held.what,
                amount=held.amount,
                per_iteration=round(held.amount / rounds, 3),
                iterations=held.iterations,
                holders=held.holders,
            )
            for held in self.run.held
        ]
        return tuple(sorted(found, key=lambda one: (one.what, -one.amount)))

    # --- what is kept of the run itself -----------------------------------------------------------

    def _raw_events(self) -> list[tuple[Any, ...]]:
        return sorted([*self.ledger.first, *self.ledger.last], key=lambda raw: int(raw[0]))[
            :MOST_EVENTS
        ]

    def _event(self, raw: tuple[Any, ...]) -> Event:
        (
            index, function, line, path, phase, parent, node, forward, origins, effects, raised,
            operations, allocated, copied, read, hidden, live, storage, start, stop,
        ) = raw  # fmt: skip
        begin = self.ledger.started
        return Event(
            index, _call(function), self.site(line), path, PHASES[phase], parent, node,
            self.site(forward), origins, effects, raised, operations, allocated, copied, read, hidden,
            live, storage, start - begin, stop - begin,
        )  # fmt: skip

    def _moments(self) -> tuple[Moment, ...]:
        timeline = self.ledger.timeline
        while len(timeline.moments) > MOST_MOMENTS:
            timeline.join()
        return tuple(timeline.moments)

    def _storages(self) -> tuple[StorageLife, ...]:
        peak = sorted(self.at_peak, key=lambda block: -block.most)
        there = {id(block) for block in peak}
        rest = [block for block in self.memory.blocks.values() if id(block) not in there]
        rest.sort(key=lambda block: -block.most)
        return tuple(
            StorageLife(
                block.number, block.most, block.device, OWNERS[block.owner], self.site(block.line),
                block.path, block.birth, block.death, block.saved_by,
            )
            for block in [*peak, *rest][:MOST_STORAGES]
        )  # fmt: skip


SAVED = OWNERS[storages.SAVED]
NOWHERE = Site("<unknown>", 0, 0, -1, -1, "", "")
"""Where no frame of the user was running."""


def _call(function: Any) -> str:
    """What an event is called: functions by their names, operations by theirs."""
    return function.name if isinstance(function, Operation) else name_of(function)


def own_bytes(ledger: Ledger) -> int:
    """About what a trace itself holds: its tables, and their rows by the size of one."""
    held: Iterable[Any] = (
        ledger.first, ledger.last, ledger.memory.blocks, ledger.memory.long_lived,
        ledger.timeline.moments, ledger.rounds.marks, ledger.lines, ledger.copying.hidden,
    )  # fmt: skip
    total = ledger.nodes.nbytes
    for table in held:
        rows = list(table.values() if isinstance(table, dict) else table)
        total += sys.getsizeof(table)
        if rows:
            total += len(rows) * _row_bytes(rows[0])
    return total


def _row_bytes(row: Any) -> int:
    if isinstance(row, (Block, LineOfCode)):
        return sys.getsizeof(row) + 200
    return sys.getsizeof(row) + 28 * (len(row) if isinstance(row, tuple) else 8)
