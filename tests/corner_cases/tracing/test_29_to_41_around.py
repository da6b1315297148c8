"""Tracing: other modes, threads, processes, devices, and the trace itself."""

import copy
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parent))
from runs import event, traced

import truecopy as tc


def test_29_traces_nest() -> None:
    """Two traces see the same, each once; one inside of the other changes nothing."""
    with tc.trace() as outer:
        torch.ones(10)
        with tc.trace() as inner:
            torch.ones(10).neg()

    assert [e.call for e in inner.events] == ["ones", "neg"]
    assert [e.call for e in outer.events] == ["ones", "ones", "neg"]
    assert outer.record.totals.operations == 3


def test_30_other_threads_are_counted() -> None:
    """What they do is unseen, and said to be."""

    def run() -> None:
        thread = threading.Thread(target=lambda: torch.ones(10))
        thread.start()
        thread.join()

    record = traced(run)
    assert record.events == ()
    (unseen,) = record.unseen
    assert (unseen.what, unseen.count) == ("other threads", 1)


class Ones(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, _: int) -> torch.Tensor:
        return torch.ones(1000)


def test_31_what_workers_send_is_adopted() -> None:
    """Memory from a worker is no allocation of the line that receives it."""

    def run() -> None:
        for _ in DataLoader(Ones(), batch_size=2, num_workers=1):
            pass

    record = traced(run)
    assert any(u.what == "other processes" and u.count == 1 for u in record.unseen)
    assert record.totals.allocated_bytes < 4000


def test_32_custom_operations() -> None:
    """One event each; what the schema says is written, is."""

    @torch.library.custom_op("truecopy_test::grow", mutates_args={"x"})
    def grow(x: torch.Tensor) -> None:
        x.add_(1)

    x = torch.ones(4)
    record = traced(lambda: grow(x))
    assert [e.effects for e in record.events] == [(("x", "mutated"),)]


def test_33_lazy_conjugation() -> None:
    """A conjugate is a view; where it is materialized, that is told as the reason."""
    x = torch.ones(100, dtype=torch.complex64)
    record = traced(lambda: x.conj())  # noqa: PLW0108 - a line of its own
    assert event(record, "conj").origins == ("view",)
    record = traced(lambda: torch.view_as_real(x.conj().resolve_conj()))
    assert [c.reason for c in record.copies] == ["lazy conjugation is materialized here"]


def test_34_pages_that_nobody_touched() -> None:
    """Bytes are those that were asked for, touched or not."""
    record = traced(lambda: torch.empty(1 << 20))
    assert record.totals.allocated_bytes == 4 << 20


def test_35_what_was_asked_for() -> None:
    """On the CPU nothing is rounded: bytes are those of the storage."""
    record = traced(lambda: torch.empty(3))
    assert record.totals.allocated_bytes == 12


def test_36_tensors_that_existed_before() -> None:
    """They count from when they are first met; parameters when their module is first called."""
    model = torch.nn.Linear(10, 10)
    x = torch.ones(2, 10)
    record = traced(lambda: model(x))

    assert record.totals.start_bytes == 440 + 80
    owners = {o.owner: o.nbytes for o in record.peak.owners if o.site is None}
    assert owners == {"parameter": 440, "input": 80}


def test_37_inference_tensors() -> None:
    """They have no version counter, and their writes are told all the same."""
    with torch.inference_mode():
        x = torch.ones(4)
        record = traced(lambda: x.add_(1))
    assert event(record, "add_").effects == (("self", "mutated"),)


def test_38_exceptions_in_the_middle() -> None:
    """The event says what was raised, the program gets its exception, the trace goes on."""
    x = torch.ones(2, 3)
    with tc.trace() as t:
        with pytest.raises(RuntimeError, match="shapes"):
            x @ x
        x.neg()
    assert [e.raised for e in t.events] == ["RuntimeError", ""]
    assert t.record.totals.raised == 1
    with pytest.raises(ZeroDivisionError), tc.trace() as t:
        1 / 0  # noqa: B018
    assert t.record.ended == "raised ZeroDivisionError"


@pytest.mark.gpu
def test_39_streams() -> None:
    """On a device work is queued: the trace tells bytes, and orders by when they were asked for."""
    stream = torch.cuda.Stream()

    def run() -> None:
        with torch.cuda.stream(stream):
            x = torch.ones(1000, device="cuda")
            x.record_stream(torch.cuda.current_stream())

    record = traced(run)
    assert record.totals.allocated_bytes == 4000


def test_40_deepcopy_is_told_by_its_line() -> None:
    """What it is made of is at one line, and its bytes are counted once."""
    x = torch.ones(1000)
    record = traced(lambda: copy.deepcopy(x))
    (line,) = record.lines
    assert "copy.deepcopy(x)" in line.site.text
    assert 4000 <= line.allocated_bytes < 4100
    assert line.copied_bytes == 4000
    assert record.copies == ()


def test_41_the_trace_keeps_nothing_alive() -> None:
    """Tensors die when they would; what the trace itself holds is told."""
    with tc.trace() as t:
        x = torch.ones(1000)
        dead = weakref.ref(x)
        del x
        assert dead() is None
    assert t.record.totals.end_bytes == 0
    assert 0 < t.record.totals.own_bytes < 1 << 20
