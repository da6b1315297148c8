"""The exact tier on real runs: peaks to the byte, lines, and that a program does not notice."""

from __future__ import annotations

import json
import linecache
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd.profiler import profile

import truecopy as tc
from truecopy.cli import main
from truecopy.errors import UsageError
from truecopy.tracing.record import TraceRecord

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))
from models import GPT2Like

Step = Callable[[], None]

OPERATIONS = (
    "y = x + 1", "y = x.neg()", "y = torch.exp(x)", "y = x.t().reshape(-1)", "x[0] = 2", "x.mul_(2)",
    "y = torch.cat([x, x])", "y = torch.nn.functional.relu(x)", "y = x @ x.t()", "y = -x",
    "y = x.to(torch.float64)", "y = sum(x)", "x += 1", "y = x.clone()", "y = torch.zeros(3)",
    "y = x[0, 1:] * 2", "x[0] += 1", "y = 1 - x / 2", "a, b, c = x",
)  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=30), st.randoms())
def test_lines_are_right(operations: list[str], dice: random.Random) -> None:
    """In a program of one operation on each line, every event is at its line, or is said not to be."""
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
    with tc.trace(exact=True) as t:
        space["program"](x)

    seen = {(event.site.line, event.site.text) for event in t.events if event.site}
    assert seen == set(expected)
    assert not [one for one in t.record.unseen if one.what == "lines of operators"]


def language_model() -> Step:
    torch.manual_seed(0)
    model = GPT2Like(vocabulary=500, width=32, heads=2, layers=2, context=16)
    return steps(model, torch.randint(0, 500, (2, 16)), torch.optim.AdamW(model.parameters()))


def conv_net() -> Step:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return steps(model, torch.randn(4, 3, 16, 16), optimizer)


def steps(model: nn.Module, data: torch.Tensor, optimizer: torch.optim.Optimizer) -> Step:
    def step() -> None:
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    return step


def account_of(run: Step) -> tuple[int, int, int]:
    """Peak, bytes given and bytes taken back, as the profiler alone tells: another run, other options."""
    with profile(use_kineto=True, profile_memory=True) as profiler:
        run()
    assert profiler.kineto_results is not None
    sizes = [
        event.nbytes() for event in profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    live = peak = 0
    for size in sizes:
        live += size
        peak = max(peak, live)
    return peak, sum(size for size in sizes if size > 0), -sum(size for size in sizes if size < 0)


@pytest.mark.parametrize("make", [language_model, conv_net])
def test_the_peak_is_the_allocators_to_the_byte(make: Callable[[], Step]) -> None:
    """Over forward, backward and optimizer of the first steps; and owners add up to all of it."""
    run = make()
    with tc.trace(exact=True) as t:
        run()
        run()
    again = make()

    def both() -> None:
        again()
        again()

    peak, given_bytes, taken = account_of(both)
    totals = t.record.totals
    assert t.peak.nbytes == peak == sum(owner.nbytes for owner in t.peak.owners)
    assert (totals.allocated_bytes, totals.freed_bytes) == (given_bytes, taken)
    assert totals.end_bytes == given_bytes - taken
    assert sum(line.allocated_bytes for line in t.lines) == given_bytes
    assert sum(line.peak_bytes for line in t.lines) == peak
    assert t.peak.unattributed_bytes == 0
    assert max(moment.high_bytes for moment in t.record.memory) == peak


def test_a_peak_that_can_be_worked_out_by_hand() -> None:
    """1,000 floats and their squares, the scalars of a sum; backward: ones, and the gradient of x."""
    x = torch.ones(1000, requires_grad=True)
    with tc.trace(exact=True) as t:
        (x * x).sum().backward()
    # In backward x * x is gone: its sum (4), the one to begin with (4), which costs nothing expanded, and
    # for each factor its part of the gradient (4,000 twice), the second added to the first in place.
    assert t.peak.nbytes == 2 * 4000 + 8
    owners = {owner.owner: owner.nbytes for owner in t.peak.owners}
    assert owners == {"gradient": 4000, "temporary": 4000, "other": 8}
    assert t.record.totals.end_bytes == 4000  # x.grad


def test_classes_of_memory_come_from_modules_and_optimizers() -> None:
    """Parameters that were made in the run, their gradients, and what an optimizer keeps."""
    with tc.trace(exact=True) as t:
        run = language_model()
        for _ in range(3):
            run()
    by_owner: dict[str, int] = {}
    for storage in t.record.storages:
        if storage.death < 0:
            by_owner[storage.owner] = by_owner.get(storage.owner, 0) + storage.nbytes
    assert by_owner["gradient"] == by_owner["parameter"] + 500 * 32 * 4  # of tied weights, two
    assert by_owner["optimizer state"] > 2 * by_owner["gradient"]
    assert {"forward", "backward", "optimizer"} <= {event.phase for event in t.events}
    assert "blocks.1.mlp.0" in {event.module for event in t.events}
    assert len(t.record.iterations) == 3


def test_a_program_does_not_notice() -> None:
    """Results to the bit, random numbers, grad mode, hooks, Python's profile function, its environment."""

    def run() -> tuple[torch.Tensor, ...]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.TransformerEncoderLayer(8, 2, 16))
        out = model(torch.randn(2, 3, 8))
        out.sum().backward()
        return (out, torch.rand(3), *(p.grad for p in model.parameters() if p.grad is not None))

    before = torch.is_grad_enabled(), sys.getprofile(), nn.Module.__call__
    plain = run()
    with tc.trace(exact=True):
        traced = run()
    assert all(torch.equal(a, b) for a, b in zip(plain, traced, strict=True))
    assert (torch.is_grad_enabled(), sys.getprofile(), nn.Module.__call__) == before


def test_the_compiler_is_not_imported_and_nothing_is_printed() -> None:
    """As `torch.profiler.profile` would, and its log does."""
    program = (
        "import os, sys, torch, truecopy as tc\n"
        "x = torch.ones(3)\n"
        "with tc.trace(exact=True) as t: x + x\n"
        "t.record\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "assert 'KINETO_LOG_LEVEL' not in os.environ\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_what_has_the_place_of_the_profiler_is_an_error() -> None:
    """Another one, cProfile say, would be switched off without a word."""
    sys.setprofile(lambda *_: None)
    try:
        with pytest.raises(UsageError, match="End it before the block"), tc.trace(exact=True):
            raise AssertionError
    finally:
        sys.setprofile(None)


def test_a_program_that_profiles_itself_leaves_no_empty_record() -> None:
    """Its profiler takes the place of ours: that is said, and not that nothing was allocated."""
    t = tc.trace(exact=True)
    with pytest.raises(UsageError, match="a profiler of its own"), t, profile(use_kineto=True):
        torch.ones(3)
    with pytest.raises(UsageError, match="nothing was traced"):
        t.summary()
    with pytest.raises(KeyError), tc.trace(exact=True), profile(use_kineto=True):
        raise KeyError


def test_it_tells_when_the_block_is_over() -> None:
    """And not before; once more is another trace; a decorated function has one for each call."""
    with tc.trace(exact=True) as t, pytest.raises(UsageError, match="when the block is over"):
        t.summary()
    with pytest.raises(UsageError, match="used already"), t:
        raise AssertionError

    @tc.trace(exact=True)
    def function() -> torch.Tensor:
        return torch.ones(3)

    function()
    assert function.trace.record.tier == "profiler"
    assert "seen by torch's profiler" in t.summary()


def test_the_command_traces_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the program's own lines and exit code, and limits in the allocator's bytes."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, torch\nx = torch.ones(64, 96)\n"
        "y = torch.nn.functional.layer_norm(x.t(), (64,))\nz = y + 1\n"
    )
    assert main(["trace", "--exact", "--out", "run.json", str(script)]) == 0
    assert "inside native_layer_norm" in capsys.readouterr().out
    record = TraceRecord.from_json(json.loads(Path("run.json").read_text()))
    assert [line.site.line for line in record.lines if line.hidden_bytes] == [3]
    assert {line.site.file for line in record.lines} == {str(script)}
    assert {line.site.function for line in record.lines} == {"<module>"}
    for limit, code in (("peak=76KiB", 0), ("peak=70KiB", 1)):
        assert main(["trace", "--exact", "--quiet", "--fail-on", limit, str(script)]) == code


def test_a_record_is_bounded() -> None:
    """Of a long run it keeps as much as of any other."""
    x = torch.ones(3)
    with tc.trace(exact=True) as t:
        for _ in range(30_000):
            x.neg()
    assert t.record.totals.events == 30_000
    assert len(t.events) == 20_000
    assert len(t.record.memory) <= 1_000
    assert t.lines[0].events == 30_000
