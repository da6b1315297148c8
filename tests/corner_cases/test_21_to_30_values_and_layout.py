"""Corner cases 21 to 30: bits, strides, layouts, kinds of tensors and of memory."""

import copy
import struct

import pytest
import torch
from torch import nn
from torch.masked import masked_tensor

import truecopy as tc
from oracles import apart, partition, payload, same_bits


def test_21_conj_and_neg_bits_keep_value_bytes_and_sharing() -> None:
    """Bytes are copied as they lie, and the bit is set on the copy."""
    z = torch.randn(4, dtype=torch.complex64)
    views = [z, z.conj(), z.conj().imag]
    assert views[1].is_conj()
    assert views[2].is_neg()

    copied = tc.copy(views)

    assert all(map(same_bits, copied, views))
    assert all(map(torch.equal, copied, views))
    assert partition(copied) == {frozenset((0, 1, 2))}
    copied[0].zero_()
    assert (copied[1] == 0).all()


def test_21_a_single_conjugate_is_copied_as_bytes() -> None:
    """Alone, and as the root."""
    z = torch.tensor([1 + 2j, complex(0.0, -0.0)]).conj()
    for copied in (tc.copy(z), tc.copy([z])[0]):
        assert same_bits(copied, z)
        assert copied[0] == 1 - 2j


BITS = {
    "-0.0": (torch.float32, struct.pack("<f", -0.0)),
    "quiet NaN with payload": (torch.float32, b"\x34\x12\xc0\x7f"),
    "signaling NaN": (torch.float32, b"\x01\x00\x80\x7f"),
    "signaling NaN, double": (torch.float64, b"\x01\0\0\0\0\0\xf0\xff"),
    "subnormal": (torch.float32, b"\x01\0\0\0"),
    "signaling NaN, bfloat16": (torch.bfloat16, b"\x81\x7f"),
    "signaling NaN, half": (torch.float16, b"\x01\xfc"),
    "fp8 NaN": (torch.float8_e4m3fn, b"\xff"),
    "fp8 -0.0": (torch.float8_e5m2, b"\x80"),
    "uint64 max": (torch.uint64, b"\xff" * 8),
    "uint16": (torch.uint16, b"\x00\x80"),
    "bool that is 2": (torch.bool, b"\x02"),
}


@pytest.mark.parametrize(("dtype", "data"), BITS.values(), ids=BITS)
def test_22_odd_bits_come_through(dtype: torch.dtype, data: bytes) -> None:
    """Nothing is copied by arithmetic; tests/integration/test_copy_bits.py goes through all patterns."""
    x = torch.frombuffer(bytearray(data * 12), dtype=dtype).clone()
    two = x.view(3, 4)
    for value in (x, two.t(), two[:, ::2], two[:1].expand(5, 4)):
        for copied in (tc.copy(value), tc.copy([value])[0], tc.copy([value, x])[0]):
            assert payload(copied) == payload(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        lambda: torch.randn(2, 3, 2, 4, 5).to(memory_format=torch.channels_last_3d),
        lambda: torch.randn(3, 4).t(),
        lambda: torch.randn(2, 3, 4).permute(1, 2, 0),
        lambda: torch.randn(1, 3, 1, 5).to(memory_format=torch.channels_last),
        lambda: torch.randn(4, 1).expand(4, 7),
    ],
)
@pytest.mark.parametrize("kind", [lambda t: t, nn.Parameter], ids=["Tensor", "Parameter"])
def test_23_strides_without_gaps_are_kept_exactly(make: object, kind: object) -> None:
    """channels_last, transposed, permuted, expanded."""
    x = kind(make())  # type: ignore[operator]
    for copied in (tc.copy(x), tc.copy([x])[0]):
        assert copied.stride() == x.stride()
        assert same_bits(copied, x)


def test_23_gaps_close_in_the_same_order_unless_something_needs_them() -> None:
    """DESIGN: alone, a tensor with gaps becomes dense, as clone makes it; in a group it keeps them."""
    base = torch.randn(6, 8)
    gappy = base.t()[::2, ::3]
    alone = tc.copy(gappy)
    assert alone.stride() == gappy.clone().stride()
    assert alone.untyped_storage().nbytes() == alone.nbytes

    together = tc.copy([gappy, base])[0]
    assert together.stride() == gappy.stride()
    whole = tc.copy(gappy, alias="whole")
    assert whole.stride() == gappy.stride()
    assert all(same_bits(copied, gappy) for copied in (alone, together, whole))


def test_24_empty_tensors_alias_nothing() -> None:
    """Zero elements: shape and strides kept, and no two are tied for lying at address 0."""
    a, b = torch.empty(0, 3), torch.empty(2, 0, 5)
    x = torch.randn(4)
    copied = tc.copy([a, b, x[:0], x, torch.empty_strided((0, 2), (7, 1))])

    assert [c.shape for c in copied[:2]] == [a.shape, b.shape]
    assert [c.stride() for c in copied[:2]] == [a.stride(), b.stride()]
    assert tc.aliases(copied).groups == ()
    copied[0].resize_(3)
    assert copied[1].numel() == 0


def test_24_zero_dimensional_tensors() -> None:
    """One element, no dimension; a view of one element is tied to what it is a view of."""
    x = torch.randn(3)
    scalar, element, whole = tc.copy([torch.tensor(5.0), x[1], x])
    assert (scalar.shape, scalar.item()) == ((), 5.0)
    whole.fill_(8.0)
    assert element.item() == 8.0


def test_25_freed_storages_are_copied_as_freed() -> None:
    """FSDP and offloaders free with `resize_(0)`; deepcopy returns uninitialized memory, clone crashes."""
    x = nn.Parameter(torch.randn(100))
    x.untyped_storage().resize_(0)
    for copied in (tc.copy(x), tc.copy({"x": x})["x"], tc.copy([x, x.data])[0]):
        assert type(copied) is nn.Parameter
        assert copied.shape == (100,)
        assert copied.untyped_storage().nbytes() == 0
        copied.untyped_storage().resize_(400)  # and can be given memory again
        with torch.no_grad():
            copied.fill_(1.0)
    assert x.untyped_storage().nbytes() == 0


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t(), lambda x: x[::2]])
def test_25_a_storage_that_is_too_small_is_refused(view: object) -> None:
    """Reading beyond its end would be reading somebody else's memory."""
    x = view(torch.randn(10, 10))  # type: ignore[operator]
    x.untyped_storage().resize_(40)
    state = {"x": x}
    for task in (lambda: tc.copy(state), lambda: tc.deepcopy(state)):
        with pytest.raises(
            tc.CannotCopy, match=r"`state\['x'\]`: reaches beyond the end of its storage"
        ):
            task()
    with pytest.raises(tc.CannotCopy, match="`x`: reaches beyond"):
        tc.copy(x)
    assert [note.path for note in tc.plan(state).fails] == ["state['x']"]


def test_26_into_a_target_that_was_resized_is_refused() -> None:
    """A target whose shape or memory changed is no target; nothing is written."""
    source = {"a": torch.ones(3), "b": torch.ones(4)}
    target = tc.copy(source)
    target["a"].zero_()
    target["b"].resize_(2)
    with pytest.raises(tc.StructureMismatch, match=r"`into\['b'\]`.*shape \(4,\).*shape \(2,\)"):
        tc.copy(source, into=target)
    assert target["a"].tolist() == [0, 0, 0]
    target = tc.copy(source)
    target["a"].zero_()
    target["b"].untyped_storage().resize_(0)
    with pytest.raises(tc.StructureMismatch, match=r"`into\['b'\]`.*memory"):
        tc.copy(source, into=target)
    assert target["a"].tolist() == [0, 0, 0]


def test_27_quantized_tensors_keep_their_quantizer() -> None:
    """Per tensor and per channel, bytes and scales, and views of them."""
    x = torch.randn(3, 4)
    per_tensor = torch.quantize_per_tensor(x, 0.1, 3, torch.qint8)
    scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2])
    per_channel = torch.quantize_per_channel(x, scales, zeros, 0, torch.quint8)

    a, b, view = tc.copy([per_tensor, per_channel, per_tensor[1:]])

    assert (a.q_scale(), a.q_zero_point(), a.dtype) == (0.1, 3, torch.qint8)
    assert torch.equal(a.int_repr(), per_tensor.int_repr())
    assert torch.equal(b.int_repr(), per_channel.int_repr())
    assert torch.equal(b.q_per_channel_scales(), per_channel.q_per_channel_scales())
    assert b.q_per_channel_axis() == 0
    assert not tc.relate(b.q_per_channel_scales(), per_channel.q_per_channel_scales()).shares_memory
    assert partition([a, view]) == {frozenset((0, 1))}
    assert apart([a, b, view], [per_tensor, per_channel])


@pytest.mark.parametrize("coalesced", [True, False])
def test_27_coo_tensors_keep_flag_and_sharing(coalesced: bool) -> None:
    """Indices and values are tensors like others, tied to whoever shares them."""
    indices, values = torch.tensor([[0, 2], [1, 0]]), torch.tensor([1.0, -0.0])
    x = torch.sparse_coo_tensor(
        indices, values, (3, 3), is_coalesced=coalesced, check_invariants=False
    )

    copied, tied = tc.copy([x, x._values()])

    assert copied.layout is torch.sparse_coo
    assert copied.is_coalesced() is coalesced
    assert payload(copied._values()) == payload(values)
    assert partition([copied._values(), tied]) == {frozenset((0, 1))}
    assert apart([copied._indices(), copied._values()], [x._indices(), x._values()])


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_27_compressed_sparse_tensors_copy(layout: str) -> None:
    """All four layouts, whose deepcopy is an error."""
    dense = torch.tensor([[1.0, 0, 0, -0.0], [0, 0, 2, 0], [0, 0, 0, 3], [4, 0, 0, 0]])
    block = ((2, 2),) if layout in ("bsr", "bsc") else ()
    x = getattr(dense, f"to_sparse_{layout}")(*block)
    with pytest.raises(Exception, match=r".*"):
        copy.deepcopy(x)  # today

    copied = tc.copy({"x": x})["x"]

    assert copied.layout is x.layout
    assert payload(copied.values()) == payload(x.values())
    assert torch.equal(copied.to_dense(), x.to_dense())
    assert apart([copied.values()], [x.values()])


@pytest.mark.parametrize("requires_grad", [True, False])
def test_27_strided_nested_tensors_copy(requires_grad: bool) -> None:
    """Whose deepcopy is an error."""
    parts = [torch.randn(2, 3), torch.randn(1, 3)]
    x = torch.nested.nested_tensor(parts, requires_grad=requires_grad)
    copied = tc.copy({"x": x})["x"]

    assert copied.is_nested
    assert copied.requires_grad is requires_grad
    assert all(map(torch.equal, copied.unbind(), x.unbind()))
    assert apart(copied.unbind(), x.unbind())


def test_27_jagged_nested_tensors_stay_compatible_with_their_siblings() -> None:
    """Two that could be added still can: one nested length, offsets shared."""
    x = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(1, 3)], layout=torch.jagged)
    state = {"x": x, "twice": x * 2}

    copied = tc.copy(state)

    assert copied["x"].offsets() is copied["twice"].offsets()
    assert torch.equal((copied["x"] + copied["twice"]).values(), (x + x * 2).values())
    assert apart([copied["x"].values()], [x.values()])
    assert copied["x"].shape == copied["twice"].shape


class Tagged(torch.Tensor):
    """A plain subclass with attributes, of which deepcopy makes an error."""


def test_28_plain_subclasses_keep_class_and_attributes() -> None:
    """And their sharing with others."""
    x = torch.randn(4).as_subclass(Tagged)
    x.tag = ["batch", torch.ones(2)]
    with pytest.raises(RuntimeError, match="type"):
        copy.deepcopy(x)  # today
    copied, view = tc.copy([x, x[1:]])

    assert type(copied) is type(view) is Tagged
    assert copied.tag[0] == "batch"
    assert copied.tag[1] is not x.tag[1]
    assert partition([copied, view]) == {frozenset((0, 1))}
    assert type(tc.copy(x)) is Tagged


def test_28_wrapper_subclasses_are_taken_apart() -> None:
    """By `__tensor_flatten__`: their inner tensors are tied to others as at the source."""
    from torch.testing._internal.two_tensor import TwoTensor

    a, b = torch.randn(3), torch.randn(3)
    state = {"both": TwoTensor(a, b), "a": a, "tail": b[1:]}

    copied = tc.copy(state)

    assert type(copied["both"]) is TwoTensor
    assert copied["both"].a is copied["a"]
    assert partition([copied["both"].b, copied["tail"]]) == {frozenset((0, 1))}
    assert apart([copied["both"].a, copied["both"].b], [a, b])
    parameter = tc.copy(nn.Parameter(TwoTensor(a, b)))
    assert isinstance(parameter, nn.Parameter)
    assert isinstance(parameter, TwoTensor)
    assert parameter.requires_grad


def test_28_masked_tensors_copy() -> None:
    """A wrapper that does not say what it is made of: by its own clone, and its attributes."""
    x = masked_tensor(torch.arange(4.0), torch.tensor([True, False, True, True]))
    copied = tc.copy({"x": x})["x"]

    assert type(copied) is type(x)
    assert torch.equal(copied.get_data(), x.get_data())
    assert torch.equal(copied.get_mask(), x.get_mask())
    assert apart([copied._masked_data], [x._masked_data])


def test_28_distributed_tensors_keep_their_mesh() -> None:
    """The local tensor is copied, mesh and process group stay what they are. In a process of its own."""
    from torch import distributed
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor, init_device_mesh

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        x = distribute_tensor(torch.randn(4, 4), mesh, [Shard(0)])
        state = {"x": x, "local": x.to_local(), "mesh": mesh, "group": distributed.group.WORLD}

        copied = tc.copy(state)

        assert type(copied["x"]) is DTensor
        assert copied["x"].device_mesh is copied["mesh"] is mesh
        assert copied["group"] is distributed.group.WORLD
        assert copied["x"].placements == x.placements
        assert partition([copied["x"].to_local(), copied["local"]]) == {frozenset((0, 1))}
        assert apart([copied["x"].to_local()], [x.to_local()])
        why = {note.why for note in tc.plan(state).kept}
        assert why == {"a handle on something outside the structure"}
    finally:
        distributed.destroy_process_group()


def test_29_copies_lie_in_ordinary_memory() -> None:
    """Sources in shared memory give copies in memory of this process; the source stays where it is."""
    x = torch.randn(4).share_memory_()
    address = x.data_ptr()
    for copied in (tc.copy(x), tc.copy([x, x[1:]])[0], tc.copy([x], alias="whole")[0]):
        assert not copied.is_shared()
        assert not copied.is_pinned()
    assert x.is_shared()
    assert x.data_ptr() == address


def test_29_file_backed_tensors_are_copied_into_memory(tmp_path: object) -> None:
    """A memory-mapped file is not written through its copy."""
    path = f"{tmp_path}/values"
    x = torch.from_file(path, shared=True, size=4)
    x.fill_(1.0)
    copied = tc.copy([x])[0]
    copied.fill_(2.0)
    assert x.tolist() == [1, 1, 1, 1]


def test_30_lazy_modules_copy_before_and_after() -> None:
    """Uninitialized parameters stay uninitialized, each copy then shapes its own."""
    model = nn.LazyLinear(3)
    copied = tc.copy(model)
    assert nn.parameter.is_lazy(copied.weight)

    copied(torch.randn(2, 5))
    model(torch.randn(2, 4))

    assert copied.weight.shape == (3, 5)
    assert model.weight.shape == (3, 4)
    assert tc.copy(model).weight.shape == (3, 4)


def test_30_lazy_into_materialized_and_back_is_refused_with_the_name() -> None:
    """The two have no values in common."""
    lazy, real = nn.LazyLinear(3), nn.LazyLinear(3)
    real(torch.randn(1, 2))
    before = payload(real.bias)
    for source, target in ((lazy, real), (real, lazy)):
        with pytest.raises(tc.StructureMismatch, match="into"):
            tc.copy(source, into=target)
    assert payload(real.bias) == before
