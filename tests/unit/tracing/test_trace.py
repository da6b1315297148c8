"""`tc.trace`: lines, loops, findings, and that a program does not notice."""

import gc
import json
import linecache
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truecopy as tc
from truecopy.tracing.record import MOST_EVENTS, MOST_MOMENTS, TraceRecord

OPERATIONS = (
    "y = x + 1", "y = x.neg()", "y = torch.exp(x)", "y = x.t().reshape(-1)", "x[0] = 2", "x.mul_(2)",
    "y = torch.cat([x, x])", "y = torch.nn.functional.relu(x)", "y = x @ x.t()", "y = -x",
    "y = x.to(torch.float64)", "y = sum(x)", "x += 1", "y = x.clone()", "y = torch.zeros(3)",
)  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=30), st.randoms())
def test_lines_are_right(operations: list[str], dice: random.Random) -> None:
    """In a program of one operation on each line, every event is at its line, with its text."""
    lines = ["def program(x):"]
    expected = []
    for operation in operations:
        depth = dice.randrange(3)
        lines += [f"{'    ' * (level + 1)}if True:" for level in range(depth)]
        lines.append("    " * (depth + 1) + operation)
        expected.append((len(lines), operation))
    source = "\n".join(lines) + "\n"
    name = f"<program {dice.random()}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space: dict[str, Any] = {"torch": torch}
    exec(compile(source, name, "exec"), space)
    x = torch.ones(3, 3)
    with tc.trace() as t:
        space["program"](x)

    seen = {(event.site.line, event.site.text) for event in t.events}
    assert seen == set(expected)
    assert {(line.site.line, line.site.text) for line in t.lines} == set(expected)


def test_columns_tell_calls_of_one_line_apart() -> None:
    """A place is as exact as Python keeps it."""
    x = torch.ones(3, 4)
    with tc.trace() as t:
        x.t().reshape(12).neg()

    spans = [e.site.text[e.site.column - 8 : e.site.end_column - 8] for e in t.events]
    assert spans == ["x.t()", "x.t().reshape(12)", "x.t().reshape(12).neg()"]
    assert len(t.lines) == 1


def train(watch: bool) -> dict[str, Any]:
    """Some steps of training with dropout, and all that they leave behind."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 8), nn.Dropout(0.5), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    attributes = [sorted(vars(module)) for module in model.modules()]
    run = tc.trace()
    if watch:
        run.__enter__()
    for _ in range(3):
        loss = model(torch.randn(2, 3, 8)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        out = model(torch.ones(2, 3, 8))
    if watch:
        run.__exit__(None, None, None)
    return {
        "weights": [p.detach() for p in model.parameters()],
        "out": [out],
        "rng": [torch.get_rng_state()],
        "same": attributes == [sorted(vars(module)) for module in model.modules()],
        "hooks": sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()),
        "grad": torch.is_grad_enabled(),
    }


def test_looking_changes_nothing() -> None:
    """Results, random numbers, hooks, attributes and grad mode are as without a trace, to the bit."""
    plain, watched = train(watch=False), train(watch=True)
    for name in ("weights", "out", "rng"):
        assert all(torch.equal(a, b) for a, b in zip(plain[name], watched[name], strict=True))
    assert {k: watched[k] for k in ("same", "hooks", "grad")} == {
        "same": True, "hooks": 0, "grad": True,
    }  # fmt: skip


def test_iterations_are_found_and_marked() -> None:
    """A loop is found by itself; steps that are marked count instead."""
    x = torch.ones(10)
    with tc.trace() as t:
        x.neg()
        for _ in range(4):
            y = x * 2
            z = y + 1
        x.neg()
    del y, z
    assert [i.allocated_bytes for i in t.record.iterations] == [80] * 4

    with tc.trace() as t:
        for _ in range(2):
            for _ in range(3):
                x.neg()
            with t.step():
                x.exp()
    assert [i.allocated_bytes for i in t.record.iterations] == [40, 40]


def test_churn_says_what_could_be_in_place() -> None:
    """`a = a + 1` could be in place; not so what backward needs, nor what somebody else still has."""
    a = torch.ones(1000)
    w = torch.ones(1000, requires_grad=True)
    kept = torch.ones(1000)
    with tc.trace() as t:
        for _ in range(5):
            a = a + 1
            w.exp()
            kept.mul(2)
    found = {c.site.text: (c.instead, c.why_not) for c in t.record.churn}

    assert found["a = a + 1"] == ("a.add_(1)", "")
    assert found["w.exp()"] == ("", "needed for backward")
    assert found["kept.mul(2)"] == ("torch.mul(..., out=...)", "another alias is alive")


def test_habits() -> None:
    """Ways of copying that are better avoided, where they are met."""
    x = torch.ones(1000)
    kept = {}
    with tc.trace() as t:
        with pytest.warns(UserWarning, match="copy construct"):
            torch.tensor(x)
        with pytest.warns(UserWarning, match="copy construct"):
            x.new_tensor(x)
        x.double().clone()
        kept["x"] = x.detach().cpu()
        x.add_(1)
    assert {h.what for h in t.record.habits} == {
        "torch.tensor(t)", "t.new_tensor(t)", "a copy of a copy", ".cpu() kept as a snapshot",
    }  # fmt: skip


def test_owners_at_the_peak() -> None:
    """Together all of the peak, by class."""
    model = nn.Sequential(nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 100))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.ones(10, 100)
    with tc.trace() as t:
        for _ in range(2):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    owners = {o.owner for o in t.peak.owners}

    assert sum(o.nbytes for o in t.peak.owners) == t.peak.nbytes
    assert {"parameter", "gradient", "optimizer state", "input"} <= owners
    assert max(m.high_bytes for m in t.record.memory) == t.peak.nbytes


def test_long_runs_stay_bounded(tmp_path: Path) -> None:
    """Events and moments of a record are bounded; totals and lines are of all."""
    x = torch.ones(4)
    with tc.trace() as t:
        for _ in range(MOST_EVENTS + 5_000):
            x + 1
    record = t.record

    assert len(record.events) == MOST_EVENTS
    assert len(record.memory) <= MOST_MOMENTS
    assert record.totals.events == record.lines[0].events == MOST_EVENTS + 5_000
    assert record.memory[-1].last_event >= MOST_EVENTS
    t.save(tmp_path / "run.json")
    read = TraceRecord.from_json(json.loads((tmp_path / "run.json").read_text()))
    assert read == record


def test_decorator() -> None:
    """Each call is a run of its own; the last is at hand."""

    @tc.trace()
    def work(x: torch.Tensor) -> torch.Tensor:
        return x.t().reshape(6)

    assert work(torch.ones(2, 3)).shape == (6,)
    assert work.trace.copies[0].count == 1
    assert work.trace.record.name.endswith("work")


def test_a_trace_is_used_once() -> None:
    """What was traced can be asked, inside too; a second time is an error that says so."""
    with tc.trace() as t:
        torch.ones(2)
        assert t.record.totals.events == 1
        assert t.record.ended == "is running"
    assert t.record.ended == "completed"
    with pytest.raises(tc.UsageError, match="used already"):
        t.__enter__()
    with pytest.raises(tc.UsageError, match="nothing was traced"):
        tc.trace().copies  # noqa: B018
    gc.collect()


def test_what_a_graph_alone_keeps_is_held_by_who_has_the_graph() -> None:
    """Leaves and saved tensors without a name are told by the tensor whose graph they are in."""
    total: object = 0
    with tc.trace() as t:
        for _ in range(5):
            x = torch.ones(1000, requires_grad=True)
            total = total + x.exp().sum()
    held = {(s.site.text, s.what): s.holders for s in t.survivors}

    assert held["x = torch.ones(1000, requires_grad=True)", "bytes"] == ("total.grad_fn",)
    (holder,) = held["total = total + x.exp().sum()", "bytes"]
    assert holder.startswith("saved by ExpBackward0")
    assert holder.endswith("total")


def test_churn_gives_the_reason_that_is_true() -> None:
    """Another dtype is not another shape, and a call that is given no tensor has none to write to."""
    x = torch.ones(1000)
    with tc.trace() as t:
        for _ in range(5):
            x.double()
            torch.randn(1000)
            x.clone()
    found = {c.call: (c.instead, c.why_not) for c in t.record.churn}

    assert found["double"] == ("", "it has another dtype than its argument")
    assert found["randn"] == ("torch.randn(..., out=...)", "it is given no tensor to write to")
    assert found["clone"] == ("", "clone has no form that works in place")


def test_a_trace_shows_itself_in_a_notebook() -> None:
    """As its record does."""
    with tc.trace() as t:
        torch.ones(4) + 1
    assert t._repr_html_() == t.record._repr_html_()
