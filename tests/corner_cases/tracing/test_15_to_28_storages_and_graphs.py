"""Tracing: storages that change, graphs, and tensors that are more than bytes."""

import gc
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))
from runs import event, events, traced

import truecopy as tc


def test_15_another_storage_under_a_tensor() -> None:
    """`set_` and assignment to `.data` put another storage under the same tensor."""
    x, y = torch.ones(2), torch.ones(3)
    record = traced(lambda: x.set_(y))

    assert event(record, "aten::set_").effects == (("self", "replaced"),)

    def assign() -> None:
        x.data = y

    assert traced(assign).events[0].effects == (("self", "replaced"),)


def test_16_storages_that_change_by_themselves() -> None:
    """Resizing a storage dispatches nothing: its size is read again at the next operation."""
    x = torch.ones(1000)

    def run() -> None:
        x.neg()
        x.untyped_storage().resize_(8000)
        x.neg()

    record = traced(run)
    assert record.totals.end_bytes == 8000
    assert record.totals.allocated_bytes == 2 * 4000 + 4000


def test_17_addresses_that_are_given_out_again() -> None:
    """A storage that takes the place of a freed one is another storage."""

    def run() -> None:
        for _ in range(5):
            torch.ones(1000)

    record = traced(run)
    assert len({e.storage for e in record.events}) == 5
    assert record.totals.allocated_bytes == record.totals.freed_bytes == 20_000
    assert record.peak.nbytes == 4000


def test_18_tensors_without_elements() -> None:
    """Empty tensors all have address 0, and share nothing."""
    record = traced(lambda: [torch.empty(0), torch.empty(0), torch.ones(2)])

    assert [e.origins for e in record.events] == [("new",)] * 3


def test_19_backward_knows_the_line_of_the_forward_pass() -> None:
    """Operations of a backward pass are at its line, and name the line that made the node."""
    x = torch.ones(4, requires_grad=True)

    def run() -> None:
        y = x.exp()
        z = y.sum()
        z.backward()

    record = traced(run)
    back = [e for e in record.events if e.node == "ExpBackward0"]
    assert back
    assert all(e.forward.text == "y = x.exp()" for e in back)
    assert all(e.site.text == "z.backward()" for e in back)
    assert all(e.phase == "backward" for e in back)


def test_20_gradients_are_adopted_then_added_to() -> None:
    """The first gradient is taken as it is; the next is added to it."""
    x = torch.ones(100, requires_grad=True)

    def run() -> None:
        for _ in range(2):
            (x * 2).sum().backward()

    record = traced(run)
    stolen, added = (
        [e for e in record.events if "AccumulateGrad" in e.node and e.call == call]
        for call in ("aten::detach", "aten::add_")
    )
    assert [e.allocated_bytes for e in stolen] == [0]
    assert [e.effects for e in added] == [(("self", "mutated"),)]
    assert any(s.owner == "gradient" for s in record.storages)


def test_21_recomputation_is_told_apart() -> None:
    """A checkpoint runs its lines again in the backward pass: a phase of its own."""
    layer = nn.Linear(4, 4)
    x = torch.ones(2, 4, requires_grad=True)

    def part(x: torch.Tensor) -> torch.Tensor:
        return layer(x).exp()

    for reentrant in (False, True):
        record = traced(lambda r=reentrant: checkpoint(part, x, use_reentrant=r).sum().backward())
        again = [e for e in record.events if e.phase == "recompute"]
        assert "aten::exp" in [e.call for e in again]
        assert {e.site.text for e in again} == {"return layer(x).exp()"}


def test_22_saved_for_backward() -> None:
    """What a node keeps is owned by it until the backward pass."""
    x = torch.ones(1000, requires_grad=True)

    def run() -> torch.Tensor:
        return x.exp().sum()

    record = traced(run)
    (saved,) = [o for o in record.peak.owners if o.owner == "saved for backward"]
    assert (saved.nbytes, saved.saved_by) == (4000, "ExpBackward0")
    assert saved.site.text == "return x.exp().sum()"


def test_22_saved_by_the_nodes_of_every_result() -> None:
    """A call with several results: what each of their nodes keeps."""
    x = torch.ones(1000, requires_grad=True)

    def run() -> object:
        values = torch.unbind(torch.stack([x.exp(), x.exp()]))
        return torch.linalg.qr(values[0].reshape(20, 50))

    record = traced(run)
    saved = {o.saved_by for o in record.peak.owners if o.owner == "saved for backward"}
    assert {"ExpBackward0", "LinalgQrBackward0"} <= saved


def test_23_both_halves_of_a_leak() -> None:
    """`total = total + loss` keeps bytes without a backward pass, and nodes with one."""
    x = torch.ones(1000, requires_grad=True)
    for backward in (False, True):
        total = 0
        with tc.trace() as t:
            for _ in range(5):
                loss = x.exp().sum()
                if backward:
                    loss.backward()
                total = total + loss
        what = {s.what for s in t.survivors}
        assert "nodes" in what
        assert ("bytes" in what) is not backward
        assert any("total" in holder for s in t.survivors for holder in s.holders)
        del total, loss
        gc.collect()


def test_24_wrappers_are_counted_by_what_is_inside() -> None:
    """A subclass that wraps two tensors is two storages, and its wrapper none."""
    from torch.testing._internal.two_tensor import TwoTensor

    two = TwoTensor(torch.ones(100), torch.ones(100))
    record = traced(lambda: two.neg())  # noqa: PLW0108 - a line of its own

    assert record.totals.allocated_bytes == 800
    assert record.totals.operations == 2


def test_25_tensors_without_a_storage() -> None:
    """Sparse tensors show no storage: unknown, and counted as unseen, never called new."""
    sparse = torch.eye(4).to_sparse()
    record = traced(lambda: sparse * 2)

    assert event(record, "mul").origins == ("unknown",)
    assert any(u.what == "tensors without a storage" for u in record.unseen)


def test_26_fake_and_meta_tensors_take_no_memory() -> None:
    """What they would take is in a total of its own."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    record = traced(lambda: torch.empty(1_000_000, device="meta").neg())
    assert (record.totals.would_be_bytes, record.totals.allocated_bytes) == (8_000_000, 0)
    with FakeTensorMode():
        fake = torch.ones(1000)
    record = traced(lambda: fake.neg())  # noqa: PLW0108 - a line of its own
    assert (record.peak.nbytes, record.totals.allocated_bytes) == (0, 0)
    assert record.totals.would_be_bytes >= 4000


def test_27_transforms() -> None:
    """Inside of vmap and grad, operations are at the line in the function."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin().sum()

    x = torch.ones(4, 3)
    record = traced(lambda: torch.func.vmap(torch.func.grad(function))(x))

    assert any(e.call == "sin" and e.site.text == "return x.sin().sum()" for e in record.events)


def test_28_compiled_functions_stay_compiled() -> None:
    """The backend is called once, and compiled regions are counted as unseen."""
    graphs = []

    def backend(module, _):
        graphs.append(module)
        return module.forward

    compiled = torch.compile(lambda x: x.sin() + 1, backend=backend)
    x = torch.ones(3)
    compiled(x)
    record = traced(lambda: compiled(x))
    compiled(x)

    assert len(graphs) == 1
    assert not events(record, "sin")
    (region,) = [u for u in record.unseen if u.what == "compiled regions"]
    assert region.count == 1
