"""A trace in Chrome's trace format, for ui.perfetto.dev and chrome://tracing.

Slices are complete events (`X`) that nest and never cross: Perfetto drops those that cross. Counters
(`C`) say what was alive, the most so far, and what had been copied; arrows (`s`, `f`) lead from the
forward line to its backward. All text is ASCII, so that no viewer meets a character it cannot read.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from truecopy.files.text import printable, shorten
from truecopy.reports.traces.words import Names, names_of
from truecopy.tracing.facts import Event, Iteration, Moment, Site
from truecopy.tracing.record import TraceRecord

_PROCESS = 1
_CALLS, _ITERATIONS = 1, 2  # tracks
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Slice:
    """One event as it is drawn: within whatever was running when it began."""

    event: Event
    start_ns: int
    stop_ns: int


def perfetto(record: TraceRecord) -> str:
    """The text of the file. A pure function; some 400 bytes for each event that the record keeps."""
    slices = nested(record.events)
    names = names_of(record)
    events = [
        *_titles(record),
        *(_slice(one, names) for one in slices),
        *_iterations(record.iterations, slices),
        *_counters(record.memory),
        *_arrows(slices),
    ]
    return json.dumps(
        {"displayTimeUnit": "ns", "traceEvents": events}, ensure_ascii=True, allow_nan=False
    )


def nested(events: Sequence[Event]) -> list[Slice]:
    """Events as slices in order of time, each cut where the one around it ends."""
    found: list[Slice] = []
    around: list[Slice] = []
    for event in sorted(events, key=lambda event: (event.start_ns, -event.stop_ns, event.index)):
        while around and around[-1].stop_ns <= event.start_ns:
            around.pop()
        stop = max(event.stop_ns, event.start_ns)
        if around:
            stop = min(stop, around[-1].stop_ns)
        one = Slice(event, event.start_ns, stop)
        found.append(one)
        around.append(one)
    return found


def _titles(record: TraceRecord) -> Iterator[dict[str, Any]]:
    titles = [
        ("process_name", 0, f"truecopy trace of {_text(record.name)}"),
        ("thread_name", _CALLS, "calls"),
        ("thread_name", _ITERATIONS, "iterations"),
    ]
    for name, track, title in titles:
        yield {"ph": "M", "name": name, "pid": _PROCESS, "tid": track, "args": {"name": title}}


def _slice(one: Slice, names: Names) -> dict[str, Any]:
    event = one.event
    args: dict[str, Any] = {"event": event.index}
    if event.site is not None:
        args["line"] = names.place(event.site)
        args["source"] = _text(event.site.text)
    if event.forward is not None:
        args["forward line"] = names.place(event.forward)
    effects = ", ".join(f"{effect} {argument}" for argument, effect in event.effects)
    told = {
        "module": event.module, "node": event.node, "results": ", ".join(event.origins),
        "effects": effects, "raised": event.raised, "allocated bytes": event.allocated_bytes,
        "copied bytes": event.copied_bytes, "hidden bytes": event.hidden_bytes,
        "alive bytes": event.live_bytes,
    }  # fmt: skip
    args |= {name: _text(v) if isinstance(v, str) else v for name, v in told.items() if v}
    category = f"{event.phase},hidden copy" if event.hidden_bytes else event.phase
    return {
        "ph": "X", "name": _text(event.call) or "call", "cat": _text(category), "pid": _PROCESS,
        "tid": _CALLS, "ts": _us(one.start_ns), "dur": _us(one.stop_ns - one.start_ns), "args": args,
    }  # fmt: skip


def _iterations(
    iterations: Sequence[Iteration], slices: Sequence[Slice]
) -> Iterator[dict[str, Any]]:
    """Iterations on a track of their own, from their first event that was kept to their last."""
    times = {one.event.index: one for one in slices}
    indices = sorted(times)
    begun = 0
    for iteration in iterations:
        inside = _between(indices, iteration.first_event, iteration.last_event)
        if not inside:
            continue
        start = max(begun, min(times[inside[0]].start_ns, times[inside[-1]].start_ns))
        begun = max(start, *(times[i].stop_ns for i in (inside[0], inside[-1])))
        yield {
            "ph": "X", "name": f"iteration {iteration.number}", "cat": "iteration",
            "pid": _PROCESS, "tid": _ITERATIONS, "ts": _us(start), "dur": _us(begun - start),
            "args": {
                "allocated bytes": iteration.allocated_bytes,
                "copied bytes": iteration.copied_bytes,
                "survived bytes": iteration.survived_bytes, "autograd nodes": iteration.nodes,
            },
        }  # fmt: skip


def _between(indices: list[int], first: int, last: int) -> list[int]:
    return indices[bisect_left(indices, first) : bisect_right(indices, last)]


def _counters(memory: Sequence[Moment]) -> Iterator[dict[str, Any]]:
    """What is alive, the most so far and what was copied, when each stretch of events ends."""
    most = 0
    for moment in memory:
        most = max(most, moment.high_bytes)
        values = (("live", moment.high_bytes), ("peak", most), ("copied", moment.copied_bytes))
        for name, value in values:
            yield {
                "ph": "C", "name": f"{name} bytes", "pid": _PROCESS, "ts": _us(moment.stop_ns),
                "args": {"bytes": value},
            }  # fmt: skip


def _arrows(slices: Sequence[Slice]) -> Iterator[dict[str, Any]]:
    """From the last forward call at a line to each backward event that says it came from there."""
    latest: dict[Site, Slice] = {}
    number = 0
    for one in slices:
        event = one.event
        if event.phase == "backward":
            source = latest.get(event.forward) if event.forward is not None else None
            if source is None:
                continue
            number += 1
            common = {
                "name": "backward",
                "cat": "backward",
                "id": number,
                "pid": _PROCESS,
                "tid": _CALLS,
            }
            yield {**common, "ph": "s", "ts": _us(source.start_ns)}
            yield {**common, "ph": "f", "bp": "e", "ts": _us(one.start_ns)}
        elif event.site is not None:
            latest[event.site] = one


def _us(ns: int) -> float:
    """Microseconds, the unit of the format, exact to the nanosecond."""
    return ns / 1000


def _text(text: str) -> str:
    return shorten(printable(text), _LONGEST)
