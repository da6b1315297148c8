"""Corner cases 1 to 11: who shares with whom, inside a copy and with its source."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import truecopy as tc
from oracles import addresses, apart, partition, payload, same_bits


def test_01_overlapping_views_share_one_new_allocation() -> None:
    """Views that overlap still do in the copy, at the same distances, with the same strides."""
    x = torch.arange(24.0).view(4, 6)
    views = [x, x[1:], x.t(), x[:, ::2], x[3, 5]]

    copied = tc.copy(views)

    assert len({view.untyped_storage().data_ptr() for view in copied}) == 1
    assert partition(copied) == partition(views) == {frozenset(range(5))}
    assert [v.data_ptr() - copied[0].data_ptr() for v in copied] == [
        v.data_ptr() - x.data_ptr() for v in views
    ]
    assert [v.stride() for v in copied] == [v.stride() for v in views]
    assert all(map(same_bits, copied, views))
    assert apart(copied, views)


def test_01_views_joined_by_a_third_stay_joined() -> None:
    """Two views that touch nowhere are one group when a third overlaps both."""
    x = torch.arange(10.0)
    head, tail, middle = tc.copy([x[:4], x[6:], x[3:7]])

    middle.zero_()

    assert head.tolist() == [0, 1, 2, 0]
    assert tail.tolist() == [0, 7, 8, 9]


def test_01_disjoint_views_become_independent() -> None:
    """DESIGN: views of one storage that share no byte become independent, so each can be freed."""
    x = torch.arange(10.0)
    head, tail = tc.copy([x[:5], x[5:]])

    assert head.untyped_storage().data_ptr() != tail.untyped_storage().data_ptr()
    assert head.untyped_storage().nbytes() == tail.untyped_storage().nbytes() == 20
    assert head.tolist() + tail.tolist() == x.tolist()


def test_01_interleaved_views_that_share_no_byte_are_independent() -> None:
    """Even and odd places of one tensor lie within each other's span, and share nothing."""
    x = torch.arange(10.0)
    even, odd = tc.copy([x[::2], x[1::2]])

    assert partition([even, odd]) == set()
    assert even.stride() == odd.stride() == (1,)
    odd.zero_()

    assert even.tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    "tie",
    [
        lambda p: nn.Parameter(p.data),
        lambda p: p.detach(),
        lambda p: p.detach()[1:],
        lambda p: nn.Parameter(p.detach().t()),
    ],
    ids=["two Parameters", "Parameter and view", "Parameter and part", "transposed Parameter"],
)
def test_02_parameters_on_one_storage_stay_tied(tie: object) -> None:
    """Training depends on it, and deepcopy loses it."""
    p = nn.Parameter(torch.randn(3, 3))
    pair = [p, tie(p)]  # type: ignore[operator]

    copied = tc.copy(pair)

    assert partition(copied) == {frozenset((0, 1))}
    assert partition(copy.deepcopy(pair)) == set()  # today
    assert [type(t) for t in copied] == [type(t) for t in pair]
    assert [t.requires_grad for t in copied] == [t.requires_grad for t in pair]
    assert apart(copied, pair)
    with torch.no_grad():
        copied[0].fill_(7.0)

    assert (copied[1] == 7.0).all()
    assert not (p == 7.0).any()


def test_02_data_ties_between_layers_stay() -> None:
    """`b.weight.data = a.weight.data`, and its transposed form, tie what deepcopy unties."""
    a, b, c = nn.Linear(3, 4, bias=False), nn.Linear(3, 4, bias=False), nn.Linear(4, 3, bias=False)
    b.weight.data = a.weight.data
    c.weight.data = a.weight.data.t()

    copied = tc.copy(nn.ModuleList([a, b, c]))

    assert partition(copied.parameters()) == {frozenset((0, 1, 2))}
    assert copied[2].weight.stride() == (1, 3)
    assert [type(p) for p in copied.parameters()] == [nn.Parameter] * 3


def test_02_alias_break_unties_distinct_parameters() -> None:
    """`alias="break"` gives every tensor its own memory."""
    p = nn.Parameter(torch.randn(3))
    copied = tc.copy([p, nn.Parameter(p.data)], alias="break")

    assert partition(copied) == set()
    assert same_bits(copied[0], p)


def test_03_one_parameter_under_two_names_is_one_object() -> None:
    """Ties by identity stay ties by identity, also where `alias="break"` unties memory."""
    model = nn.ModuleDict({"embed": nn.Embedding(5, 3), "head": nn.Linear(3, 5, bias=False)})
    model["head"].weight = model["embed"].weight

    copied = tc.copy(model)

    assert copied["head"].weight is copied["embed"].weight
    assert copied["head"].weight is not model["head"].weight
    assert len(list(copied.parameters())) == 1
    broken = tc.copy(model, alias="break")
    assert broken["head"].weight is broken["embed"].weight


def test_04_a_small_view_takes_its_own_bytes_alone() -> None:
    """A 12-byte view of 4 MB: 12 bytes, where deepcopy copies all."""
    big = torch.arange(1_000_000.0)
    view = big[500:503]

    copied = tc.copy({"view": view})["view"]

    assert copied.untyped_storage().nbytes() <= 64
    assert copied.storage_offset() == 0
    assert copied.tolist() == [500, 501, 502]
    assert copy.deepcopy(view).untyped_storage().nbytes() == 4_000_000  # today
    assert tc.copy(view).untyped_storage().nbytes() <= 64


def test_04_the_union_of_overlapping_views_is_copied() -> None:
    """Of a group, the span that its members reach; bytes before and behind are left out."""
    big = torch.arange(1_000.0)
    a, b = tc.copy([big[100:110], big[105:120]])

    assert a.untyped_storage().nbytes() == 20 * 4
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def test_04_a_storage_in_the_structure_keeps_itself_whole() -> None:
    """Whoever holds the storage itself reaches all of it."""
    big = torch.arange(100.0)
    copied = tc.copy({"view": big[10:13], "storage": big.untyped_storage()})

    assert type(copied["storage"]) is torch.UntypedStorage
    assert copied["storage"].nbytes() == 400
    assert copied["view"].untyped_storage().data_ptr() == copied["storage"].data_ptr()
    assert copied["view"].storage_offset() == 10
    assert bytes(copied["storage"]) == bytes(big.untyped_storage())


def test_04_alias_whole_keeps_storages_whole() -> None:
    """`alias="whole"` keeps offsets, gaps and what nobody reaches."""
    big = torch.arange(100.0)
    copied = tc.copy({"view": big[10:20:2]}, alias="whole")["view"]

    assert copied.untyped_storage().nbytes() == 400
    assert (copied.storage_offset(), copied.stride()) == (10, (2,))
    assert bytes(copied.untyped_storage()) == bytes(big.untyped_storage())


def test_05_a_view_that_overlaps_itself_keeps_doing_so() -> None:
    """`as_strided` with strides (1, 1), which clone makes dense."""
    x = torch.arange(6.0).as_strided((3, 3), (1, 1))
    for copied in (tc.copy(x), tc.copy({"x": x})["x"]):
        assert copied.stride() == (1, 1)
        assert copied.untyped_storage().nbytes() == 5 * 4
        copied[0, 1] = -1.0
        assert copied[1, 0] == -1.0
    assert x[1, 0] == 1.0


@pytest.mark.parametrize("shape", [(1000, 4), (3, 1000, 4), (1000, 1)])
def test_06_expanded_dimensions_stay_expanded(shape: tuple[int, ...]) -> None:
    """The unique elements are copied once, and expanded again; Parameters too."""
    x = torch.arange(float(shape[-1])).expand(shape)
    for value in (x, nn.Parameter(x)):
        copied = tc.copy([value])[0]
        assert type(copied) is type(value)
        assert copied.stride() == x.stride()
        assert copied.untyped_storage().nbytes() == shape[-1] * 4
        assert torch.equal(copied, x)


def test_06_into_an_expanded_target_writes_its_base() -> None:
    """`copy_` into an expanded tensor raises; a restore writes what is behind it."""
    source, target = torch.arange(4.0).expand(10, 4), torch.zeros(4).expand(10, 4)
    address = target.data_ptr()

    tc.copy({"x": source}, into={"x": target})

    assert torch.equal(target, source)
    assert target.data_ptr() == address


def test_07_numpy_bridges_stay() -> None:
    """An array and tensors on its bytes are three storages to torch, and one memory to everyone."""
    array = np.arange(6.0)
    first, second = torch.from_numpy(array), torch.from_numpy(array[2:])

    copied = tc.copy([array, first, second])

    assert type(copied[0]) is np.ndarray
    assert partition(copied) == {frozenset((0, 1, 2))}
    assert apart(copied, [array])
    copied[0][3] = -1.0
    assert copied[1][3] == copied[2][1] == -1.0
    assert array[3] == 3.0


def test_07_the_bridge_holds_whoever_comes_first() -> None:
    """The order in which array and tensor are met does not matter, nor numpy's negative strides."""
    array = np.arange(6.0)
    tensor, backwards, whole = tc.copy([torch.from_numpy(array), array[::-1], array])

    tensor[0] = 9.0

    assert backwards[-1] == whole[0] == 9.0
    assert backwards.strides == (-8,)


def test_07_dlpack_and_frombuffer_are_seen() -> None:
    """Whatever two storages lie on the same bytes, by whichever way they came there."""
    x = torch.arange(4.0)
    other = torch.from_dlpack(np.from_dlpack(x))
    assert partition(tc.copy([x, other])) == {frozenset((0, 1))}
    memory = bytearray(16)
    pair = [torch.frombuffer(memory, dtype=torch.float32) for _ in range(2)]
    assert partition(tc.copy(pair)) == {frozenset((0, 1))}


class Measured(np.ndarray):
    """An array with a unit, written as numpy's manual has it."""

    def __array_finalize__(self, source: Any) -> None:
        if source is not None:
            self.unit = source.unit

    unit: Any


def _measured() -> Measured:
    array = np.ndarray.__new__(Measured, (4,))
    array.unit = {"scale": torch.ones(2)}
    array[:] = 1.0
    return array


@pytest.mark.parametrize(
    "make",
    [
        lambda _: np.asmatrix(np.ones((2, 2))),
        lambda _: np.ma.array([1.0, 2.0], mask=[0, 1], fill_value=7.0),
        lambda folder: np.memmap(folder / "numbers", np.float32, "w+", shape=(4,)),
        lambda _: np.ones(3).view(np.recarray),
        lambda _: _measured(),
    ],
    ids=["matrix", "masked", "memmap", "recarray", "own class"],
)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_07_subclasses_of_arrays_stay_tied(make: Any, tmp_path: Path) -> None:
    """A class of its own, attributes and all, on the bytes of a tensor: as any other array."""
    array = make(tmp_path)
    both = {"array": array, "tensor": torch.from_numpy(np.asarray(array))}

    copied = tc.copy(both)

    assert type(copied["array"]) is type(array)
    assert tc.relate(copied["array"], copied["tensor"]).shares_memory
    assert not tc.relate(copied, both).shares_memory
    np.testing.assert_array_equal(copied["array"], array)


def test_07_attributes_of_arrays_are_copied_with_them() -> None:
    """The deepcopy of numpy leaves them shared, or drops them."""
    array = _measured()
    array.me = array
    copied, scale = tc.copy([array, array.unit["scale"]])
    assert copied.unit["scale"] is scale is not array.unit["scale"]
    assert copied.me is copied
    assert copy.deepcopy(array).unit is array.unit  # today


def test_07_masks_are_copied_and_stay_shared() -> None:
    """A view of a masked array shares data and mask with it; `masked` itself is one for all."""
    whole = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[0, 1], [0, 0]])
    copied = tc.copy([whole, whole[0], np.ma.masked])
    copied[0].mask[0, 0] = True
    copied[0].data[0, 1] = 5.0
    assert copied[1].mask.tolist() == [True, True]
    assert copied[1].data.tolist() == [1.0, 5.0]
    assert copied[2] is np.ma.masked
    assert whole.tolist() == [[1.0, None], [3.0, 4.0]]


def test_08_dtypes_on_one_storage_stay_together() -> None:
    """Groups are groups of bytes, whatever they are read as."""
    x = torch.randn(4, dtype=torch.complex64)
    views = [
        x,
        torch.view_as_real(x),
        x.view(torch.float64),
        torch.view_as_real(x).view(torch.uint8),
    ]

    copied = tc.copy(views)

    assert partition(copied) == {frozenset(range(4))}
    assert [c.dtype for c in copied] == [v.dtype for v in views]
    assert all(map(same_bits, copied, views))
    copied[3].zero_()
    assert (copied[0] == 0).all()


def test_08_a_view_that_is_not_aligned_to_its_group() -> None:
    """Bytes 2 to 10 as int64 beside all bytes as uint8: the copy keeps both where they were."""
    memory = bytearray(range(16))
    flat = torch.frombuffer(memory, dtype=torch.uint8)
    shifted = np.ndarray((2,), np.int32, memory, 2)

    copied = tc.copy([flat, shifted])

    assert copied[1].tobytes() == bytes(memory[2:10])
    copied[0][2:6] = 0
    assert copied[1][0] == 0


def test_09_a_copy_is_never_lazy() -> None:
    """Copying reads a copy-on-write tensor without materializing it, and copies its bytes at once."""
    x = torch.arange(4.0)
    lazy = torch._lazy_clone(x)

    copied = tc.copy({"x": x, "lazy": lazy})

    assert torch._C._is_cow_tensor(lazy)
    assert torch._C._is_cow_tensor(x)
    assert not torch._C._is_cow_tensor(copied["lazy"])
    assert partition(copied.values()) == set()  # siblings are disjoint
    copied["x"].zero_()
    assert copied["lazy"].tolist() == lazy.tolist() == [0, 1, 2, 3]


def test_09_a_numpy_view_taken_before_the_lazy_clone_is_not_copied_into() -> None:
    """Where somebody holds the address already, laziness lies; a copy has bytes of its own."""
    x = torch.zeros(3)
    array = x.numpy()
    copied = tc.copy(x)

    array[:] = 9.0

    assert copied.tolist() == [0, 0, 0]


def test_10_meta_tensors_keep_their_sharing() -> None:
    """No address, but a storage object: views of it stay views of one."""
    x = torch.empty(3, 4, device="meta")
    copied = tc.copy({"x": x, "row": x[1], "t": x.t(), "other": torch.empty(2, device="meta")})

    groups = tc.aliases(copied).groups
    assert [group.paths for group in groups] == [("copied['x']", "copied['row']", "copied['t']")]
    assert copied["t"].stride() == (1, 4)
    assert not tc.relate(x, copied["x"]).shares_memory
    assert copied["x"].device.type == "meta"


def test_10_meta_modules_copy_without_memory() -> None:
    """A model on the meta device copies, ties kept, and materializes later."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(1000, 1000), nn.Linear(1000, 1000))
        model[1].weight = model[0].weight
    copied = tc.copy(model)

    assert copied[1].weight is copied[0].weight
    assert all(p.device.type == "meta" and isinstance(p, nn.Parameter) for p in copied.parameters())
    assert copied.to_empty(device="cpu")[0].weight.device.type == "cpu"


def test_11_a_write_through_a_copied_view_is_caught_by_autograd() -> None:
    """Views of one group share a version counter, as they do at the source; deepcopy's do not."""
    w = torch.randn(4)
    pair = {"w": w, "view": w[:2]}
    for value in (pair, tc.copy(pair)):
        x = torch.randn(4, requires_grad=True)
        product = (x * value["w"]).sum()
        value["view"].add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
    today = copy.deepcopy(pair)
    x = torch.randn(4, requires_grad=True)
    product = (x * today["w"]).sum()
    today["view"].add_(1.0)
    product.backward()  # today: silent, and wrong


def test_11_parameters_and_their_views_share_a_counter_too() -> None:
    """Also across Parameters, which are made apart and tied afterwards."""
    p = nn.Parameter(torch.randn(4))
    copied, view = tc.copy([p, p.detach()[1:]])
    product = (copied * copied).sum()

    view.add_(1.0)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_11_the_bytes_between_members_are_not_read() -> None:
    """What nobody reaches is not copied, even inside a span."""
    x = torch.full((8,), 7.0)
    a, b = tc.copy([x[0:6:3], x[3:8:4]])  # 0, 3 and 3, 7: joined by one element

    assert partition([a, b]) == {frozenset((0, 1))}
    assert payload(a) == payload(x[0:6:3])
    assert len(addresses(a) | addresses(b)) == 12
