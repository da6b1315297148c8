"""Short ways to trace a few lines and look at what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import truecopy as tc
from truecopy.tracing.facts import Event
from truecopy.tracing.record import TraceRecord


def traced(run: Callable[[], Any]) -> TraceRecord:
    """The record of one call. What it returns is dropped when the trace is over."""
    with tc.trace() as t:
        kept = run()
    del kept
    return t.record


def events(record: TraceRecord, call: str) -> list[Event]:
    """The events of one name."""
    return [event for event in record.events if event.call == call]


def event(record: TraceRecord, call: str) -> Event:
    """The only event of one name."""
    (found,) = events(record, call)
    return found
