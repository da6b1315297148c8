"""Corner cases of tracing for the exact tier, which reads the profiler alone. Numbers as in the table."""

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import layer_norm
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import truecopy as tc
from truecopy.errors import UsageError
from truecopy.tracing.record import TraceRecord


def exactly(run: Callable[[], Any]) -> TraceRecord:
    """The exact record of one call. What it returns is dropped when the trace is over."""
    with tc.trace(exact=True) as t:
        kept = run()
    del kept
    return t.record


def unseen(record: TraceRecord) -> dict[str, int]:
    return {one.what: one.count for one in record.unseen}


def test_01_calls_that_do_nothing_are_no_events_and_cost_nothing() -> None:
    """The profiler knows nothing of `contiguous()` where it returns at once."""
    x = torch.ones(8, 8)
    record = exactly(lambda: (x.contiguous(), x.float()))

    assert record.totals.copied_bytes == record.totals.allocated_bytes == 0
    assert all(event.origins == ("unknown",) for event in record.events)


def test_02_a_reshape_that_copies_is_one_event_with_its_reason() -> None:
    """With the shape that was asked for, though the tree has no lists of numbers."""
    x = torch.ones(64, 96)
    record = exactly(lambda: x.t().reshape(-1))
    (copy,) = record.copies

    assert [event.call for event in record.events] == ["t", "reshape"]
    assert (copy.call, copy.operation, copy.inside) == ("reshape", "aten::clone", "")
    assert copy.reason == "strides (1, 96) cannot be viewed as (6144,)"
    assert (copy.nbytes, copy.read_bytes, copy.count) == (24576, 24576, 1)
    assert record.tier == "profiler"


def test_03_a_copy_inside_of_a_kernel_is_told_and_is_in_the_peak() -> None:
    """Input, hidden clone and outputs: 3 x 24,576 + 2 x 384. Modes see one operation and 49,920 B."""

    def run() -> torch.Tensor:
        x = torch.ones(64, 96)
        return layer_norm(x.t(), (64,))

    record = exactly(run)
    (copy,) = record.copies

    assert record.peak.nbytes == 74_496
    assert sum(owner.nbytes for owner in record.peak.owners) == 74_496
    assert (copy.call, copy.inside, copy.nbytes) == ("layer_norm", "native_layer_norm", 24576)
    assert copy.reason == "native_layer_norm makes strides (1, 96) dense on its own"
    assert copy.site.text == "return layer_norm(x.t(), (64,))"
    with tc.trace() as modes:
        run()
    assert modes.peak.nbytes == 49_920
    assert not modes.copies


def test_03_scratch_of_a_transposed_copy_is_allocated_and_freed_in_it() -> None:
    """`copy_` between transposed matrices goes through a block of 60 x 60 numbers."""
    x = torch.ones(96, 64)
    record = exactly(lambda: x.t().contiguous())

    assert record.totals.allocated_bytes == 24_576 + 14_400
    assert record.totals.copied_bytes == 24_576
    assert record.peak.nbytes == 24_576 + 14_400


def test_03_a_kernel_that_writes_its_own_result_by_copying_hides_nothing() -> None:
    """A linear layer copies its bias into what it returns: that is copied, and asked for."""
    layer, x = nn.Linear(64, 32), torch.ones(8, 64)
    record = exactly(lambda: layer(x))

    assert record.totals.copied_bytes == 8 * 32 * 4
    assert not record.copies


def test_04_expand_costs_nothing_until_it_is_materialized() -> None:
    """24 B become 24,000 B at the clone."""
    x = torch.ones(6)
    record = exactly(lambda: x.expand(1000, 6).contiguous())
    (copy,) = record.copies

    assert copy.reason == "expand of 24 B materialized, x1000"
    assert (copy.nbytes, copy.read_bytes, copy.amplification) == (24_000, 24, 1000)


def test_05_bytes_written_and_read_are_told_apart() -> None:
    """int8 to float32 reads a quarter of what it writes."""
    x = torch.ones(1000, dtype=torch.int8)
    (copy,) = exactly(x.float).copies

    assert (copy.nbytes, copy.read_bytes, copy.reason) == (4000, 1000, "int8 to float32")


def test_11_a_conversion_inside_of_an_operation_in_place_is_told() -> None:
    """And that of a single number is counted, and not told."""
    a, b = torch.ones(1000), torch.ones(1000, dtype=torch.float64)
    record = exactly(lambda: a.add_(b))
    (event,) = record.events
    one = exactly(lambda: a.add_(1))

    assert event.effects == (("self", "mutated"),)
    assert event.origins == ("same",)
    (copy,) = record.copies  # there and back: to write back is what it was called for
    assert (copy.inside, copy.reason, copy.nbytes) == ("add_", "float32 to float64", 8000)
    assert record.totals.copied_bytes == 12_000
    assert record.peak.nbytes == 16_000
    assert one.totals.copied_bytes == 4
    assert not one.copies


def test_12_out_that_is_too_small_is_allocated_anew() -> None:
    """The bytes stand at the call."""
    x, out = torch.ones(96, 64), torch.empty(0)
    record = exactly(lambda: torch.add(x, x, out=out))

    assert record.totals.allocated_bytes == 24_576


def test_13_lists_of_tensors_are_one_event() -> None:
    """With the operations that the slow path fans out into inside."""
    xs = [torch.ones(10) for _ in range(3)]
    record = exactly(lambda: torch._foreach_add_(xs, 1))
    (event,) = record.events

    assert event.call == "_foreach_add_"
    assert event.operations > 3


def test_16_a_storage_that_is_resized_by_itself_is_seen() -> None:
    """No operation is dispatched; the allocator gives and takes."""

    def run() -> None:
        x = torch.ones(2)
        x.untyped_storage().resize_(4000)

    record = exactly(run)
    assert record.totals.allocated_bytes == record.totals.freed_bytes == 4008
    assert record.peak.nbytes == 4008


def test_17_an_address_that_is_given_again_is_another_storage() -> None:
    """Each has its own life."""

    def run() -> None:
        for _ in range(5):
            torch.ones(100_000)

    record = exactly(run)
    assert record.peak.nbytes == 400_000
    assert len({storage.number for storage in record.storages}) == len(record.storages)
    assert record.totals.allocated_bytes == record.totals.freed_bytes == 2_000_000


def test_19_backward_names_the_forward_line() -> None:
    """Without anomaly mode, by the number of the node."""
    x = torch.ones(10, requires_grad=True)

    def run() -> None:
        y = x.exp()
        z = y * 2
        z.sum().backward()

    record = exactly(run)
    forward = {
        event.node: event.forward.text
        for event in record.events
        if event.phase == "backward" and event.forward
    }
    assert forward["MulBackward0"] == "z = y * 2"
    assert forward["ExpBackward0"] == "y = x.exp()"
    assert forward["SumBackward0"] == "z.sum().backward()"
    parents = {event.parent for event in record.events if event.node}
    (whole,) = [event for event in record.events if event.call == "backward"]
    assert parents == {whole.index}


def test_20_gradients_are_owned_as_gradients() -> None:
    """The first is taken over as it is, the next is added to it."""
    layer = nn.Linear(100, 100, bias=False)
    x = torch.ones(1, 100)

    def run() -> None:
        for _ in range(2):
            layer(x).sum().backward()

    record = exactly(run)
    owners = {owner.owner: owner.nbytes for owner in record.peak.owners}
    assert owners["gradient"] == 40_000
    assert owners["temporary"] == 40_400  # the second, and the gradient of what the layer returned


def test_21_recomputed_operations_are_told_apart() -> None:
    """They have the forward line, and are of no forward phase."""
    x = torch.ones(10, requires_grad=True)

    def block(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    record = exactly(lambda: checkpoint(block, x, use_reentrant=False).sum().backward())
    phases = [
        event.phase
        for event in record.events
        if event.site and event.site.text == "return x.exp()" and "exp" in event.call
    ]
    assert phases == ["forward", "recompute"]


def test_22_what_a_backward_pass_reads_was_saved_for_it() -> None:
    """With the node that reads it."""
    x = torch.ones(1000, requires_grad=True)

    def run() -> None:
        y = x.exp()
        z = y.sum()
        del y
        z.backward()

    record = exactly(run)
    assert ("saved for backward", "ExpBackward0", 4000) in {
        (owner.owner, owner.saved_by, owner.nbytes) for owner in record.peak.owners
    }


def test_23_both_halves_of_a_kept_loss_are_found() -> None:
    """Nodes of the graph, by who holds them."""
    w = torch.ones(1000, requires_grad=True)
    total: Any = 0
    with tc.trace(exact=True) as t:
        for _ in range(5):
            with t.step():
                loss = (w * 2).sum()
                loss.backward()
                total = total + loss
    assert len(t.record.iterations) == 5
    assert "nodes" in {survivor.what for survivor in t.survivors}


def test_23_tensors_that_are_kept_are_found_by_who_holds_them() -> None:
    """By the address of the tensor, when the run is over."""
    kept = []
    with tc.trace(exact=True) as t:
        for _ in range(4):
            with t.step():
                kept.append(torch.ones(1000))
    (survivor,) = [one for one in t.survivors if one.what == "bytes"]
    assert survivor.per_iteration == 4000
    assert any("kept" in holder for holder in survivor.holders)


def test_28_compiled_functions_stay_compiled() -> None:
    """The backend is called, and the report says what it could not see."""
    called = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        called.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: (x + 1).relu(), backend=backend)
    compiled(torch.ones(4))
    called.clear()
    record = exactly(lambda: compiled(torch.ones(4)))
    assert not called  # it was compiled before, and is used as it is
    assert unseen(record)["compiled regions"] == 1
    torch._dynamo.reset()
    exactly(lambda: compiled(torch.ones(4)))
    assert called


def test_29_operations_that_a_mode_hands_on_are_counted_once() -> None:
    """The profiler has each of them twice."""

    def run() -> Any:
        return torch.ones(64, 96).t().contiguous()

    def under_a_mode() -> None:
        with tc.trace():
            run()

    plain, twice = exactly(run), exactly(under_a_mode)
    assert twice.totals.copied_bytes == plain.totals.copied_bytes == 24_576
    assert [copy.nbytes for copy in twice.copies] == [24_576]
    assert twice.totals.operations == plain.totals.operations


def test_30_other_threads_are_counted() -> None:
    """What they do is not seen."""

    def run() -> None:
        thread = threading.Thread(target=torch.ones, args=(1000,))
        thread.start()
        thread.join()

    record = exactly(run)
    assert unseen(record)["other threads"] == 1
    assert record.totals.allocated_bytes == 0


def test_35_bytes_are_the_allocators_own() -> None:
    """Every allocation and every end of one that torch tells of, and no other."""

    def run() -> None:
        x = torch.ones(1000)
        y = (x + 1).double()
        del x
        y.sort()

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    sizes = [event.nbytes() for event in profiler.profiler.kineto_results.events()
             if event.name() == "[memory]"]  # fmt: skip
    record = exactly(run)
    assert record.totals.allocated_bytes == sum(size for size in sizes if size > 0)
    assert record.totals.freed_bytes == -sum(size for size in sizes if size < 0)
    assert record.peak.unattributed_bytes == 0


def test_36_what_existed_before_is_in_no_peak_and_is_told() -> None:
    """The profiler does not tell of its end: it counts as met, at least as far as it is reached."""
    x = torch.ones(1000)
    record = exactly(lambda: x + x)

    assert record.totals.start_bytes == 4000
    assert record.peak.nbytes == 4000
    assert unseen(record)["memory from before"] == 1


def test_38_an_exception_ends_a_run_and_nothing_else() -> None:
    """What was seen until then is there, and the next trace is a new one."""
    with pytest.raises(RuntimeError), tc.trace(exact=True) as t:
        torch.ones(4) @ torch.ones(5)

    assert t.record.ended == "raised RuntimeError"
    assert [event.call for event in t.events][:2] == ["ones", "ones"]
    assert [event.call for event in exactly(lambda: torch.ones(1)).events] == ["ones"]


def test_41_nothing_is_kept_alive() -> None:
    """Neither while it runs, with shapes recorded, nor after."""
    with tc.trace(exact=True) as t:
        x, module = torch.ones(1000), nn.Linear(3, 3)
        module(torch.ones(3))
        inside = weakref.ref(x), weakref.ref(module.weight)
        del x, module
        assert [one() for one in inside] == [None, None]
        y = torch.ones(1000)
    after = weakref.ref(y)
    del y
    assert after() is None
    assert t.record.totals.freed_bytes >= 4000
    written = [one for one in gc.get_objects() if type(one).__name__ == "_ProfilerEvent"]
    assert not written


def test_a_profiler_that_runs_already_is_an_error_with_a_way_out() -> None:
    """One for a thread, torch says. The one that runs goes on."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        with pytest.raises(UsageError, match="leave out exact="), tc.trace(exact=True):
            raise AssertionError
        torch.ones(3)
    assert "aten::ones" in {event.name for event in profiler.events()}
    with tc.trace(exact=True), pytest.raises(UsageError), tc.trace(exact=True):
        raise AssertionError
