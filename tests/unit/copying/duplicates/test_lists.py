"""`duplicate(how="list")`: n copies, each as `copy` makes it, none with memory of another."""

import copyreg
from typing import Any

import pytest
import torch
from torch import nn

import truecopy as tc
from oracles import apart, partition, same_bits


def test_each_is_a_copy_and_all_are_apart() -> None:
    """Ties inside each are kept; no byte is in two of them, nor in the source."""
    x = torch.arange(6.0)
    source = {"x": x, "head": x[:4], "tail": x[3:], "array": x.numpy(), "own": torch.ones(2)}
    made = tc.duplicate(source, 3)
    values = [list(source.values()), *(list(one.values()) for one in made)]

    assert all(partition(each) == partition(values[0]) for each in values)
    assert all(apart(a, b) for i, a in enumerate(values) for b in values[:i])
    made[1]["head"].fill_(7)
    assert made[1]["array"].tolist() == [7, 7, 7, 7, 4, 5]
    assert made[0]["array"].tolist() == made[2]["array"].tolist() == x.tolist()


def test_a_model_with_its_optimizer() -> None:
    """Each optimizer steps its own model."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    pairs = tc.duplicate((model, optimizer), 2)
    pairs[0][0](torch.ones(1, 2)).sum().backward()
    pairs[0][1].step()

    assert pairs[1][1].param_groups[0]["params"][0] is pairs[1][0].weight
    assert torch.equal(pairs[1][0].weight, model.weight)
    assert not torch.equal(pairs[0][0].weight, model.weight)


@pytest.mark.parametrize("how", ["list", "lazy"])
def test_gradient_of_all_of_them_adds_up(how: Any) -> None:
    """grad="keep": the source gets the sum; grad="detach" gives leaves of their own."""
    w = torch.ones(3, requires_grad=True)
    a, b = tc.duplicate(w, 2, how=how, grad="keep")
    (a.sum() + (2 * b).sum()).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [3.0, 3.0, 3.0]

    for one in tc.duplicate(w, 2, how=how):
        assert one.is_leaf
        assert one.requires_grad
        assert one.grad is not None  # copied with it
        assert one.grad.tolist() == [3.0, 3.0, 3.0]
        assert not tc.relate(one, w).connected


def test_small_tensors_take_the_short_way() -> None:
    """One plain tensor is cloned n times, its class and flag kept."""
    made = tc.duplicate(nn.Parameter(torch.tensor([-0.0, float("nan")])), 3)
    assert {type(one) for one in made} == {nn.Parameter}
    assert all(one.requires_grad for one in made)
    assert len({one.data_ptr() for one in made}) == 3
    assert all(same_bits(one, made[0]) for one in made)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8),
        lambda: torch.ones(3).to_mkldnn(),
        lambda: torch.ones(3, device="meta"),
        lambda: nn.LazyLinear(3),
        lambda: torch.ones(4).untyped_storage(),
    ],
    ids=["coo", "csr", "jagged", "nested", "quantized", "mkldnn", "meta", "lazy layer", "storage"],
)
@pytest.mark.parametrize("how", ["list", "lazy"])
def test_every_kind_of_tensor(how: Any, make: Any) -> None:
    """What `copy` takes, both ways of many take, memory apart wherever memory can be told."""
    source = make()
    made = tc.duplicate(source, 2, how=how)
    assert [type(one) for one in made] == [type(source)] * 2
    for a, b in ((made[0], made[1]), (made[0], source), (made[1], source)):
        assert tc.relate(a, b).kind in ("disjoint", "unknown")
    if isinstance(source, torch.Tensor) and source.device.type == "cpu" and not source.is_nested:
        dense = [t.dequantize() if t.is_quantized else t.to_dense() for t in (source, *made)]
        assert all(torch.equal(dense[0], one) for one in dense)


class KeepsOne:
    """Copies itself, and hands the same tensor to every copy."""

    def __init__(self) -> None:
        self.held = torch.zeros(2)
        self.spare = [torch.zeros(2)]

    def __deepcopy__(self, memo: Any) -> "KeepsOne":
        made = KeepsOne.__new__(KeepsOne)
        made.held = self.spare[0]
        made.spare = []
        return made


class SharesOne(KeepsOne):
    """As above, out of a place where no walk of the source comes by."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = []

    def __deepcopy__(self, memo: Any) -> "KeepsOne":
        made = KeepsOne.__new__(KeepsOne)
        made.held = _SPARE
        made.spare = []
        return made


_SPARE = torch.zeros(2)


def test_objects_that_hand_out_one_memory_twice_are_refused() -> None:
    """Whoever copies itself may keep memory of the source, or give two duplicates the same."""
    with pytest.raises(tc.CannotCopy, match="returned an object that still reaches memory"):
        tc.duplicate({"it": KeepsOne()}, 2)
    held = {"it": SharesOne()}
    assert len(tc.duplicate(held, 1)) == 1
    with pytest.raises(tc.CannotCopy) as raised:
        tc.duplicate(held, 2)
    assert str(raised.value) == (
        "`held['it']`: SharesOne.__deepcopy__ returned the same memory twice. "
        "Expected duplicates that share no byte with each other. "
        "Got objects that share memory. Mend SharesOne.__deepcopy__."
    )


def test_a_list_is_n_times_copy_with_one_walk() -> None:
    """Same results as the standard library n times; the source is taken apart once."""
    taken = []

    class Counted:
        def __init__(self) -> None:
            self.x = torch.ones(2)

        def __reduce_ex__(self, protocol: Any) -> Any:
            taken.append(protocol)
            return copyreg.__newobj__, (Counted,), {"x": self.x}

    source = Counted()
    made = tc.duplicate(source, 5)
    assert len(taken) == 1
    assert all(torch.equal(one.x, source.x) for one in made)
    assert tc.relate(made[0].x, made[1].x).kind == "disjoint"
