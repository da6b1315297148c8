"""A trace for Perfetto: accepted by torch's own validator, nested, with counters and arrows."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler._trace_validator import validate_trace

from trace_examples import empty, hostile, large
from traces import event, example
from truecopy.reports.traces.perfetto import nested, perfetto


def parsed(record) -> list[dict]:
    return json.loads(perfetto(record))["traceEvents"]


def crossing(events: list[dict]) -> list[tuple[dict, dict]]:
    """Pairs of slices of one track of which neither holds the other, by whole nanoseconds."""
    found = []
    for track in {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}:
        open_: list[tuple[int, dict]] = []
        slices = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == track]
        for one in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
            start, stop = (
                round(one["ts"] * 1000),
                round(one["ts"] * 1000) + round(one["dur"] * 1000),
            )
            while open_ and open_[-1][0] <= start:
                open_.pop()
            if open_ and open_[-1][0] < stop:
                found.append((open_[-1][1], one))
            open_.append((stop, one))
    return found


@pytest.mark.parametrize("make", [example, empty, hostile, large])
def test_torch_accepts_it(make, tmp_path: Path) -> None:
    """Torch's validator of traces finds nothing, no slice crosses another, and all text is ASCII."""
    path = tmp_path / "run.pt.trace.json"
    path.write_text(perfetto(make()), encoding="ascii")

    assert validate_trace(str(path)) == (True, [])
    assert not crossing(parsed(make()))


def test_the_check_of_crossing_can_fail() -> None:
    """Two slices that overlap in part are seen."""
    common = {"ph": "X", "pid": 1, "tid": 1}

    assert crossing([{**common, "ts": 0, "dur": 2}, {**common, "ts": 1, "dur": 2}])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=30))
def test_slices_never_cross(times: list[tuple[int, int]]) -> None:
    """Whatever the clock said, each event is there once, begins when it began, and nests."""
    events = [event(i, "add", None, start_ns=a, stop_ns=a + b) for i, (a, b) in enumerate(times)]
    record = replace(example(), events=tuple(events), iterations=())

    assert not crossing(parsed(record))
    slices = nested(events)
    assert sorted(s.event.index for s in slices) == list(range(len(times)))
    assert all(s.start_ns == s.event.start_ns <= s.stop_ns <= s.event.stop_ns for s in slices)


def test_an_event_says_what_it_did() -> None:
    """A slice has the line, its text, and the bytes; a hidden copy can be searched for."""
    (one,) = [e for e in parsed(example()) if e["ph"] == "X" and e["name"] == "reshape"]

    assert one["cat"] == "forward,hidden copy"
    assert (one["ts"], one["dur"]) == (2.0, 0.8)
    assert one["args"] == {
        "event": 2, "line": "train.py:9", "source": "return x.t().reshape(6144)", "module": "flatten",
        "results": "new", "allocated bytes": 24576, "copied bytes": 24576, "hidden bytes": 24576,
        "alive bytes": 49152,
    }  # fmt: skip


def test_counters_end_where_the_record_does() -> None:
    """Live, peak and copied bytes are counted at the end of each stretch; the peak never falls."""
    record = large()
    counted: dict[str, list[int]] = {}
    for one in parsed(record):
        if one["ph"] == "C":
            counted.setdefault(one["name"], []).append(one["args"]["bytes"])

    assert counted["live bytes"] == [moment.high_bytes for moment in record.memory]
    assert counted["copied bytes"] == [moment.copied_bytes for moment in record.memory]
    assert counted["peak bytes"] == sorted(counted["peak bytes"])
    assert counted["peak bytes"][-1] == record.peak.nbytes


def test_arrows_lead_from_forward_to_backward() -> None:
    """Each arrow begins in the last forward call of the line, and ends in the backward event."""
    events = parsed(example())
    (start,) = [e for e in events if e["ph"] == "s"]
    (end,) = [e for e in events if e["ph"] == "f"]

    assert start["id"] == end["id"]
    assert (start["ts"], end["ts"], end["bp"]) == (3.0, 4.0, "e")
    starts = {e["ts"]: e["name"] for e in events if e["ph"] == "X" and e["tid"] == 1}
    assert (starts[3.0], starts[4.0]) == ("sum", "aten::expand")


def test_iterations_are_a_track_of_their_own() -> None:
    """Iterations stand beside the calls, one after the other."""
    names = [e["name"] for e in parsed(example()) if e["ph"] == "X" and e["tid"] == 2]

    assert names == ["iteration 0", "iteration 1"]
