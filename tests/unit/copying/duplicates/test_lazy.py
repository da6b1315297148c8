"""`duplicate(how="lazy")`: clones that share their bytes until one of them is written."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import truecopy as tc
from oracles import partition
from truecopy import _torch


def address(tensor: torch.Tensor) -> int:
    """Where the bytes lie, without a look that would make a copy."""
    return _torch.storage_address(tensor)


def bits(model: nn.Module) -> dict[str, bytes]:
    """The bytes of a model's state, read without a look at its address, which leaves a mark."""
    return {name: value.clone().numpy().tobytes() for name, value in model.state_dict().items()}


def lazies(value: Any, n: int, **options: Any) -> Any:
    return tc.duplicate(value, n, how="lazy", **options)


def test_all_share_one_private_copy_until_one_is_written() -> None:
    """One copy for all n; a write makes one more, and the others stay where they were."""
    x = torch.arange(8.0)
    made = lazies(x, 4)
    (shared,) = set(map(address, made))
    assert shared != x.data_ptr()
    assert all(map(_torch.is_copy_on_write, made))
    assert not _torch.is_copy_on_write(x)
    assert tc.relate(made[0], made[1]).kind == "disjoint"
    assert "copy-on-write" in tc.relate(made[0], made[1]).why
    made[2].fill_(7)
    assert address(made[2]) != shared
    assert {address(made[i]) for i in (0, 1, 3)} == {shared}
    assert [m.tolist() for m in made] == [x.tolist(), x.tolist(), [7.0] * 8, x.tolist()]


def test_the_last_one_takes_the_memory_over() -> None:
    """Whoever is left alone with the private copy writes into it: no copy is made for nobody."""
    (made,) = lazies(torch.zeros(8), 1)
    before = address(made)
    made.fill_(1)
    assert address(made) == before


def test_nothing_that_reached_the_source_writes_into_them() -> None:
    """A numpy view taken before, a write through .data, a foreign pointer: the duplicates are apart."""
    x = torch.zeros(4)
    seen, foreign = x.numpy(), torch.from_dlpack(np.from_dlpack(x))
    made = lazies(x, 2)
    seen[0] = 1
    foreign[1] = 2
    x.data[2] = 3
    assert x.tolist() == [1.0, 2.0, 3.0, 0.0]
    assert [m.tolist() for m in made] == [[0.0] * 4] * 2


def test_a_tensor_from_numpy_can_be_lazy_too() -> None:
    """Torch itself refuses to clone it lazily; the private copy is torch's own."""
    made = lazies(torch.from_numpy(np.arange(3.0)), 2)
    made[0].zero_()
    assert made[1].tolist() == [0.0, 1.0, 2.0]


def test_what_is_tied_stays_tied_in_each_duplicate() -> None:
    """One lazy clone for each storage: a write through one view is seen by the other views alone."""
    x = torch.arange(6.0)
    source = {"x": x, "head": x[:4], "tail": x[3:], "bits": x.view(torch.int32)}
    made = lazies(source, 3)
    made[1]["tail"].fill_(9)
    assert made[1]["x"].tolist() == [0, 1, 2, 9, 9, 9]
    assert made[1]["head"].tolist() == [0, 1, 2, 9]
    assert made[1]["bits"].view(torch.float32).tolist() == [0, 1, 2, 9, 9, 9]
    assert made[0]["x"].tolist() == made[2]["x"].tolist() == x.tolist()
    assert all(partition(one.values()) == partition(source.values()) for one in made)


def test_views_of_one_block_share_a_version_counter() -> None:
    """So that autograd catches an in-place write through any of them, as at the source."""
    x = torch.arange(6.0)
    first, _ = lazies([x, x[:4]], 2)
    before = first[0]._version
    first[1].zero_()
    assert first[0]._version == before + 1


def test_tied_parameters_are_one_parameter() -> None:
    """Model by model: the same object twice, and two Parameters on one storage."""
    model = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(3)))
    model[1].weight = model[0].weight
    model[2].weight = nn.Parameter(model[0].weight.data)
    a, b = lazies(model, 2)
    assert a[1].weight is a[0].weight
    assert tc.relate(a[2].weight, a[0].weight).kind == "identical"
    with torch.no_grad():
        a[2].weight.fill_(3)
    assert torch.equal(a[0].weight, torch.full((2, 2), 3.0))
    assert torch.equal(b[0].weight, model[0].weight)


def test_arrays_are_copied_for_each_duplicate() -> None:
    """Numpy writes without asking: an array's memory, and that of whoever is tied to it, is its own."""
    x = torch.arange(4.0)
    made = lazies({"x": x, "array": x.numpy(), "alone": torch.ones(2)}, 2)
    made[0]["array"][0] = 9
    assert made[0]["x"].tolist() == [9, 1, 2, 3]
    assert made[1]["x"].tolist() == made[1]["array"].tolist() == [0, 1, 2, 3]
    assert address(made[0]["alone"]) == address(made[1]["alone"])


@pytest.mark.parametrize(
    "reach",
    [
        lambda t: t.numpy(),
        np.asarray,
        np.from_dlpack,
        torch.from_dlpack,
        lambda t: np.frombuffer(memoryview(t.numpy()), np.float32),
    ],
    ids=["numpy", "asarray", "np.from_dlpack", "torch.from_dlpack", "memoryview"],
)
def test_who_hands_out_an_address_gets_a_copy_first(reach: Any) -> None:
    """Another library's view of one duplicate never reaches the others."""
    made = lazies(torch.zeros(4), 2)
    view = reach(made[0])
    view[0] = 7
    assert made[0].tolist() == [7, 0, 0, 0]
    assert made[1].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.untyped_storage().fill_(1),
        lambda t: t.untyped_storage().copy_(torch.ones(4).untyped_storage()),
        lambda t: t.untyped_storage().__setitem__(0, 1),
        lambda t: t.data.fill_(1),
        lambda t: t.detach().view(2, 2).t()[0].fill_(1),
        lambda t: t.set_(torch.ones(4)),
        lambda t: t.share_memory_().fill_(1),
        lambda t: t.resize_(2).fill_(1),
        lambda t: torch._foreach_add_([t], 1),
        lambda t: torch.add(torch.ones(4), 1, out=t),
        torch.nn.init.ones_,
    ],
)
def test_every_way_of_writing_is_seen(write: Any) -> None:
    """Storages, .data, views, out=, foreach: one duplicate changes, its sibling does not."""
    made = lazies(torch.zeros(4), 2)
    write(made[0])
    assert made[0].count_nonzero()
    assert made[1].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("how", ["foreach", "fused", None])
@pytest.mark.parametrize("live", [False, True])
def test_optimizers_write_one_model_alone(how: str | None, live: bool) -> None:
    """One step of AdamW, batch norm's running statistics: no other duplicate, and not the source."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    before = bits(model)
    models = lazies(model, 3, live=live)
    options: dict[str, Any] = {} if how is None else {how: True}
    optimizer = torch.optim.AdamW(models[0].parameters(), lr=0.1, **options)
    models[0](torch.randn(8, 3)).sum().backward()
    optimizer.step()

    for one in (model, models[1], models[2]):
        assert bits(one) == before
    assert {name for name, one in bits(models[0]).items() if one == before[name]} == set()


def test_growing_one_that_is_still_lazy_is_an_error_of_torchs_own() -> None:
    """What the page says of `resize_`: the next write raises, the others are as they were."""
    first, second = lazies(torch.zeros(4), 2)
    first.resize_(8)
    with pytest.raises(RuntimeError, match="INTERNAL ASSERT FAILED"):
        first.fill_(1)
    assert second.tolist() == [0, 0, 0, 0]
    second.add_(0).resize_(8).fill_(1)  # the way out: it has memory of its own once it was written
    assert second.tolist() == [1] * 8


def test_reading_costs_nothing_and_exporting_one_copy() -> None:
    """Forward and backward leave a duplicate lazy; torch.save and data_ptr take its address."""
    first, second = lazies(nn.Linear(4, 4), 2)
    first(torch.ones(2, 4)).sum().backward()
    assert _torch.is_copy_on_write(first.weight)
    torch.save(second.weight, io.BytesIO())
    assert not _torch.is_copy_on_write(second.weight)


def test_flags_and_bits() -> None:
    """Class, requires_grad, attributes, conj and neg bits: as `copy` keeps them."""
    z = torch.tensor([1 + 2j, -0j])
    weight = nn.Parameter(torch.ones(2))
    weight.tag = "kept"  # type: ignore[attr-defined]
    weight.grad = torch.ones(2)
    first, second = lazies({"conj": z.conj(), "neg": z.conj().imag, "w": weight}, 2)
    assert first["conj"].is_conj()
    assert first["neg"].is_neg()
    assert torch.equal(first["conj"], z.conj())
    assert torch.equal(first["neg"], z.conj().imag)
    assert type(first["w"]) is nn.Parameter
    assert first["w"].requires_grad
    assert first["w"].tag == "kept"
    first["w"].grad.zero_()
    assert second["w"].grad.tolist() == [1.0, 1.0]


def test_without_lazy_clones_they_are_clones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch has none, or they do not do what they did: real clones, and the same promise."""
    monkeypatch.setattr(_torch, "lazy_clones_hold", lambda: False)
    x = torch.zeros(4)
    for live in (False, True):
        first, second = lazies([x, x[:2]], 2, live=live)
        assert not _torch.is_copy_on_write(first[0])
        first[1].fill_(1)
        assert first[0].tolist() == [1, 1, 0, 0]
        assert second[0].tolist() == x.tolist() == [0, 0, 0, 0]


# --- live -----------------------------------------------------------------------------------------


def test_live_starts_without_a_copy() -> None:
    """The duplicates lie where the source lies; writing any of them, or the source, changes it alone."""
    x = torch.arange(6.0)
    first, second = lazies([x, x[4:]], 2, live=True)
    assert address(first[0]) == address(second[0]) == address(x)
    first[1].fill_(7)
    x[0] = 9
    assert first[0].tolist() == [0, 1, 2, 3, 7, 7]
    assert second[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert x.tolist() == [9, 1, 2, 3, 4, 5]


def test_the_live_source_moves_when_it_is_written() -> None:
    """The source is copy-on-write itself from then on: its next write, or who asks its address, moves it."""
    weight = nn.Parameter(torch.zeros(4))
    before = weight.data_ptr()
    (kept,) = lazies(weight, 1, live=True)
    assert _torch.is_copy_on_write(weight)
    with torch.no_grad():
        weight.add_(1)
    assert weight.data_ptr() != before
    assert address(kept) == before
    assert kept.tolist() == [0.0] * 4


def test_a_live_source_whose_duplicates_are_gone_stays_where_it_is() -> None:
    """Nobody shares with it: no copy, and the same address."""
    x = torch.zeros(4)
    before = x.data_ptr()
    made = lazies(x, 3, live=True)
    del made
    x.add_(1)
    assert x.data_ptr() == before


def test_live_keeps_strides_gaps_and_whole_storages() -> None:
    """The storages are the source's own, so everything lies in them as it lies there."""
    big = torch.arange(100.0)
    view = big[10:90:3]
    (made,) = lazies([view], 1, live=True)
    assert made[0].stride() == view.stride()
    assert made[0].storage_offset() == 10
    assert made[0].untyped_storage().nbytes() == 400
    assert torch.equal(made[0], view)


def test_live_takes_what_has_no_bytes() -> None:
    """Empty tensors, meta tensors, freed storages and numbers have nothing to share."""
    freed = torch.zeros(4)
    freed.untyped_storage().resize_(0)
    source = {
        "empty": torch.zeros(0, 3),
        "meta": torch.ones(2, device="meta"),
        "n": 3,
        "freed": freed,
    }
    (made,) = lazies(source, 1, live=True)
    assert made["empty"].shape == (0, 3)
    assert made["meta"].is_meta
    assert made["freed"].untyped_storage().nbytes() == 0


def _pinned() -> torch.Tensor:
    """Memory that torch's allocator for ordinary memory did not make, as pinned memory is not."""
    return torch.zeros(4).share_memory_()


NOT_TORCHS_OWN = "its memory is not torch's own: numpy, another library or a file owns it"


def _exported() -> torch.Tensor:
    x = torch.zeros(4)
    x.numpy()
    return x


def _mapped(directory: Any) -> torch.Tensor:
    path = directory / "x.pt"
    torch.save({"x": torch.zeros(4)}, path)
    found: torch.Tensor = torch.load(path, mmap=True, weights_only=True)["x"]
    return found


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda _: torch.from_numpy(np.zeros(4)), NOT_TORCHS_OWN),
        (lambda _: torch.from_dlpack(np.zeros(4)), NOT_TORCHS_OWN),
        (lambda _: torch.frombuffer(bytearray(16), dtype=torch.float32), NOT_TORCHS_OWN),
        (lambda _: _exported(), NOT_TORCHS_OWN),
        (_mapped, NOT_TORCHS_OWN),
        (
            lambda _: torch.zeros(4).share_memory_(),
            "its memory is shared with other processes, or is a file",
        ),
        (lambda _: np.zeros(4), "numpy writes to its memory without asking torch"),
        (lambda _: torch.ones(3).to_mkldnn(), "torch does not show its memory"),
    ],
    ids=[
        "from_numpy",
        "dlpack",
        "frombuffer",
        "numpy() before",
        "mapped",
        "shared",
        "array",
        "mkldnn",
    ],
)
def test_unsafe_sources_are_refused_live(tmp_path: Any, make: Any, why: str) -> None:
    """With path and reason, before any other tensor of the structure was touched."""
    source = {"ok": torch.zeros(4), "it": make(tmp_path)}
    with pytest.raises(tc.CannotCopy) as raised:
        tc.duplicate(source, 2, how="lazy", live=True)
    assert str(raised.value) == (
        f"`source['it']`: cannot be duplicated live: {why}. Expected memory that torch has allocated "
        f"on the CPU, and that nobody else can write. Got {why}. "
        "Without live=True the duplicates are clones of one private copy."
    )
    assert not _torch.is_copy_on_write(source["ok"])
    assert len(lazies(source, 2)) == 2


def test_memory_of_another_allocator_is_refused_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinned memory and the like look like torch's own, but torch will not clone them lazily."""

    def refuse(_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("Expected storage != nullptr to be true, but got false.")

    monkeypatch.setattr(_torch, "lazy_clone", refuse)
    x = torch.zeros(4)
    with pytest.raises(tc.CannotCopy, match="torch's own allocator does not own its memory"):
        lazies(x, 2, live=True)


def test_what_live_cannot_see() -> None:
    """An address that went out through DLPack, or as a number, leaves no mark: it writes into all.

    This is torch's, told of on the page of the verb. A numpy view leaves one, and is refused above.
    """
    x = torch.zeros(4)
    seen = np.from_dlpack(x)
    (made,) = lazies(x, 1, live=True)
    seen[0] = 9
    assert made[0].item() == 9
