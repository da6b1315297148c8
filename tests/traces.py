"""A small trace made by hand, for the tests of everything that reads a record."""

from __future__ import annotations

from truecopy.tracing.facts import (
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
from truecopy.tracing.record import TraceRecord

LOAD = Site("train.py", 4, 4, 0, 21, "<module>", "w = torch.ones(96, 64)")
FLAT = Site("train.py", 9, 9, 8, 29, "Model.forward", "return x.t().reshape(6144)")
LOSS = Site("train.py", 14, 14, 0, 22, "<module>", "loss = model(w).sum()")
BACK = Site("train.py", 15, 15, 0, 15, "<module>", "loss.backward()")
LOG = Site("train.py", 16, 16, 0, 13, "<module>", "total += loss")

SIZE = 96 * 64 * 4


def event(index: int, call: str, site: Site | None, **facts: object) -> Event:
    """An event of the forward pass that returned something new and did nothing else."""
    values: dict[str, object] = {
        "module": "", "phase": "forward", "parent": -1, "node": "", "forward": None,
        "origins": ("new",), "effects": (), "raised": "", "operations": 1, "allocated_bytes": 0,
        "copied_bytes": 0, "read_bytes": 0, "hidden_bytes": 0, "live_bytes": SIZE, "storage": 0,
        "start_ns": index * 1000, "stop_ns": index * 1000 + 800,
    }  # fmt: skip
    return Event(index, call, site, **{**values, **facts})  # type: ignore[arg-type]


def example() -> TraceRecord:
    """One step of a model that flattens a transposed weight, and keeps its loss."""
    line = {
        "modules": ("",), "phases": ("forward",), "origins": (("new", 1),), "effects": (),
        "events": 1, "operations": 1, "allocated_bytes": 4, "copied_bytes": 0, "read_bytes": 0,
        "hidden_copies": 0, "hidden_bytes": 0, "peak_bytes": 4, "raised": 0,
    }  # fmt: skip
    return TraceRecord(
        name="train.py",
        tier="modes",
        ended="completed",
        totals=Totals(6, 9, 0, 3 * SIZE + 8, SIZE, SIZE, SIZE, 1, SIZE, 0, 2 * SIZE + 8, 0, 0, 0.25, 4096),
        peak=Peak(
            3 * SIZE + 8, 4, BACK, "", "backward", 0, SIZE,
            (
                Owner(LOAD, "", "parameter", SIZE, 1),
                Owner(FLAT, "flatten", "saved for backward", SIZE, 1, "SumBackward0"),
                Owner(BACK, "", "gradient", SIZE, 1),
                Owner(LOSS, "", "activation", 8, 2),
            ),
        ),
        lines=(
            Line(FLAT, **{
                **line, "modules": ("flatten",), "calls": (("reshape", 1), ("t", 1)),
                "origins": (("new", 1), ("view", 1)), "events": 2, "operations": 3,
                "allocated_bytes": SIZE, "copied_bytes": SIZE, "read_bytes": SIZE,
                "hidden_copies": 1, "hidden_bytes": SIZE, "peak_bytes": SIZE,
            }),
            Line(LOAD, calls=(("ones", 1),), **{**line, "allocated_bytes": SIZE, "peak_bytes": SIZE}),
            Line(LOSS, calls=(("sum", 1),), **line),
            Line(LOG, calls=(("add_", 1),), **{
                **line, "origins": (("same", 1),), "effects": (("mutated", 1),),
                "allocated_bytes": 0, "peak_bytes": 0,
            }),
        ),
        copies=(
            Copy(
                FLAT, "flatten", "forward", "reshape", "aten::clone", "",
                "strides (1, 64) cannot be viewed as (6144,)",
                "keep the order of dimensions until here, or flatten before transposing",
                1, SIZE, SIZE, 1.0, None, 2,
            ),
        ),
        churn=(
            Churn(LOSS, "", "sum", 4, 12, 1.0, "torch.sum(..., out=...)", "needed for backward", 44),
        ),
        habits=(
            Habit(LOAD, "", "torch.tensor(t)", "copies through the host", "t.detach().clone()", 1, SIZE),
        ),
        iterations=(
            Iteration(0, 0, 2, SIZE, SIZE, 2 * SIZE, 2 * SIZE, 4, 1),
            Iteration(1, 3, 5, SIZE, 0, 3 * SIZE + 8, 2 * SIZE + 8, 4, 1),
        ),
        survivors=(
            Survivor(LOG, "", "bytes", 8, 4.0, 2, ("total",)),
            Survivor(LOG, "", "nodes", 2, 1.0, 2, ("total.grad_fn",)),
        ),
        events=(
            event(0, "ones", LOAD, allocated_bytes=SIZE),
            event(1, "t", FLAT, module="flatten", origins=("view",)),
            event(
                2, "reshape", FLAT, module="flatten", operations=2, allocated_bytes=SIZE,
                copied_bytes=SIZE, read_bytes=SIZE, hidden_bytes=SIZE, live_bytes=2 * SIZE, storage=1,
            ),
            event(3, "sum", LOSS, allocated_bytes=4, live_bytes=2 * SIZE + 4, storage=2),
            event(
                4, "aten::expand", BACK, phase="backward", node="SumBackward0", forward=LOSS,
                origins=("view",), live_bytes=3 * SIZE + 8, storage=3,
            ),
            event(5, "add_", LOG, origins=("same",), effects=(("self", "mutated"),), storage=2),
        ),
        memory=(
            Moment(0, 2, 0, 2 * SIZE, SIZE, 2800, (SIZE, 0, 0, 0, SIZE, 0, 0, 0, 0)),
            Moment(3, 5, 2 * SIZE, 3 * SIZE + 8, SIZE, 5800, (SIZE, 0, SIZE, 0, SIZE, 8, 0, 0, 0)),
        ),
        storages=(
            StorageLife(0, SIZE, "cpu", "parameter", LOAD, "", 0, -1),
            StorageLife(1, SIZE, "cpu", "saved for backward", FLAT, "flatten", 2, 4, "SumBackward0"),
            StorageLife(2, 4, "cpu", "activation", LOSS, "", 3, -1),
        ),
        unseen=(Unseen("other threads", 1, "modes are of one thread"),),
    )  # fmt: skip
