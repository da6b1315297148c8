"""Tracing: what single calls do. Numbers are those of docs/tracing-corner-cases.md."""

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from runs import event, events, traced

from truecopy import _torch

SIZE = 64 * 96 * 4


def test_01_no_ops_return_their_argument() -> None:
    """Calls that do nothing dispatch nothing; they are counted, as the same, with no bytes."""
    x = torch.ones(4)
    record = traced(lambda: [x.contiguous(), x.to(torch.float32), x.float(), torch.as_tensor(x)])

    assert [e.origins for e in record.events] == [("same",)] * 4
    assert record.totals.same == 4
    assert record.totals.allocated_bytes == record.totals.copied_bytes == 0
    assert record.totals.operations == 0


def test_02_a_reshape_that_copies_is_one_row() -> None:
    """One event with its copy and the reason; the view inside of it is not the user's."""
    x = torch.ones(64, 96)
    record = traced(lambda: x.t().reshape(6144))

    assert [e.call for e in record.events] == ["t", "reshape"]
    assert event(record, "reshape").origins == ("new",)
    (copy,) = record.copies
    assert copy.reason == "strides (1, 96) cannot be viewed as (6144,)"
    assert (copy.call, copy.operation, copy.count, copy.nbytes) == (
        "reshape",
        "aten::clone",
        1,
        SIZE,
    )
    assert traced(lambda: x.flatten()).copies == ()  # noqa: PLW0108 - a line of its own


def test_03_copies_inside_of_kernels_are_said_to_be_unseen() -> None:
    """This tier sees no copy inside of a kernel, and says so."""
    x = torch.ones(96, 64)
    record = traced(lambda: torch.nn.functional.layer_norm(x.t(), (96,)))

    assert record.copies == ()
    assert any(u.what == "inside of operations" for u in record.unseen)


def test_04_an_expand_that_is_materialized() -> None:
    """The view costs nothing; the copy is told with what it repeats."""
    x = torch.ones(6, 1)
    record = traced(lambda: x.expand(6, 1000).contiguous())

    assert event(record, "expand").origins == ("view",)
    assert event(record, "expand").allocated_bytes == 0
    (copy,) = record.copies
    assert copy.reason == "expand of 24 B materialized, x1000"
    assert (copy.nbytes, copy.read_bytes, copy.amplification) == (24_000, 24, 1000.0)


def test_05_bytes_written_and_bytes_read() -> None:
    """Copying counts what is written; what is read is beside it."""
    x = torch.ones(100, dtype=torch.int8)
    record = traced(lambda: [x.to(torch.float32), x[:1].expand(50).clone()])

    assert (event(record, "to").copied_bytes, event(record, "to").read_bytes) == (400, 100)
    assert (event(record, "clone").copied_bytes, event(record, "clone").read_bytes) == (50, 1)


def test_06_new_memory_or_adopted_memory() -> None:
    """`torch.tensor` of a list makes memory, `from_numpy` adopts it, `torch.tensor` of an array copies."""
    array = np.ones(8, np.float32)
    record = traced(
        lambda: [torch.tensor([1.0, 2.0]), torch.from_numpy(array), torch.tensor(array)]
    )

    adopted = [e for e in record.events if e.origins == ("adopted",)]
    assert [e.allocated_bytes for e in adopted] == [0]
    assert [e.origins for e in events(record, "tensor")] == [("new",), ("new",)]
    assert sum(e.allocated_bytes for e in events(record, "tensor")) == 8 + 32


def test_07_memory_shared_with_others() -> None:
    """`numpy()` makes nothing new; memory through DLPack is nobody's allocation."""
    x = torch.ones(8)
    record = traced(lambda: [x.numpy(), torch.from_dlpack(np.ones(4, np.float32)).neg_()])

    assert event(record, "numpy").allocated_bytes == 0
    assert record.totals.allocated_bytes == 0
    assert event(record, "neg_").effects == (("self", "mutated"),)


def test_08_data_is_a_view_and_its_writes_are_seen() -> None:
    """`.data` shares memory; a write through it moves no version counter, and is told all the same."""
    x = torch.ones(8)
    record = traced(lambda: x.data.add_(1))

    assert x._version == 0
    assert [e.origins for e in record.events] == [("view",), ("same",)]
    assert event(record, "add_").effects == (("self", "mutated"),)


def test_09_copy_on_write_is_free_until_it_is_written() -> None:
    """A lazy clone has no bytes; looking does not make the copy, writing does, and is told."""
    x = torch.ones(8)
    lazy = []
    record = traced(lambda: lazy.append(torch._lazy_clone(x)))

    made = event(record, "_lazy_clone")
    assert (made.origins, made.copied_bytes) == (("lazy",), 0)
    assert _torch.is_copy_on_write(lazy[0])
    record = traced(lambda: torch._lazy_clone(x).add_(1))
    assert event(record, "add_").copied_bytes == 32


def test_10_a_write_through_a_view() -> None:
    """The argument is mutated, and the storage is that of the base."""
    x = torch.ones(4, 4)
    record = traced(lambda: x[0].add_(1))

    view, write = record.events
    assert (view.origins, write.effects) == (("view",), (("self", "mutated"),))
    assert view.storage == write.storage


def test_11_a_write_that_converts() -> None:
    """Writing doubles into floats converts inside; scalars are counted and not told."""
    a, b = torch.ones(100), torch.ones(100, dtype=torch.float64)
    record = traced(lambda: [a.add_(b), a.add_(1)])

    assert [e.effects for e in events(record, "add_")] == [(("self", "mutated"),)] * 2
    assert all("scalar" not in copy.reason for copy in record.copies)


def test_12_out_that_fits_and_out_that_grows() -> None:
    """A place of the right size is mutated; an empty one is resized, and the bytes are counted."""
    x = torch.ones(100)
    record = traced(
        lambda: [torch.add(x, x, out=torch.empty(100)), torch.add(x, x, out=torch.empty(0))]
    )

    fits, grows = events(record, "add")
    assert (fits.effects, fits.allocated_bytes) == ((("out", "mutated"),), 0)
    assert (grows.effects, grows.allocated_bytes) == ((("out", "resized"),), 400)


def test_13_foreach_is_one_row() -> None:
    """Many tensors in one call are one event, every one of them written."""
    many = [torch.ones(4) for _ in range(3)]
    record = traced(lambda: torch._foreach_add_(many, 1.0))

    assert event(record, "_foreach_add_").effects == (("self", "mutated"),)
    weights = [torch.nn.Parameter(torch.ones(4))]
    weights[0].grad = torch.ones(4)
    for options in ({"foreach": True}, {"fused": True}):
        optimizer = torch.optim.AdamW(weights, **options)
        record = traced(optimizer.step)
        assert {e.phase for e in record.events} == {"optimizer"}
        assert any(e.effects for e in record.events)


def test_14_resize_keeps_the_storage() -> None:
    """The same tensor on the same storage, which has grown."""
    x = torch.ones(2)
    record = traced(lambda: x.resize_(100))

    grown = event(record, "resize_")
    assert (grown.origins, grown.effects) == (("same",), (("self", "resized"),))
    assert grown.allocated_bytes == 392
