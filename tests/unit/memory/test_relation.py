"""What `relate` and `assert_independent` say of every kind of value, and in which words."""

import array
import ctypes
import json
import mmap
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode

import truecopy as tc
from strategies import byte_addresses, fresh_buffer, views


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_relation_is_that_of_the_bytes(data: st.DataObject) -> None:
    """The kind, and the bytes in common, are those of the bytes counted out one by one."""
    buffer = fresh_buffer()
    a, b = data.draw(views(buffer)), data.draw(views(buffer))
    mine, yours = byte_addresses(a), byte_addresses(b)
    relation = tc.relate(a, b)
    assert relation.shares_memory is bool(mine & yours)
    if mine & yours:
        assert relation.kind == ("identical" if mine == yours else "overlapping")
        assert relation.pairs[0].common_bytes == len(mine & yours)
    else:
        assert relation.kind == "disjoint"
    assert tc.relate(b, a).kind == relation.kind


# --- words ----------------------------------------------------------------------------------------


def test_same_object() -> None:
    """One object under two names."""
    x = torch.zeros(2)
    y = x
    assert str(tc.relate(x, y)) == "same: x and x are one object."


def test_words_for_two_tensors() -> None:
    """Each kind of answer is one plain sentence, with bytes and whose they are."""
    a = torch.zeros(3, 4)
    b = a[1]
    assert tc.relate(a, b).why == "b is a view of a: both reach bytes 16 to 32 of the storage of a"
    assert tc.relate(b, a).why == "b is a view of a: both reach bytes 16 to 32 of the storage of b"
    t = a.t()
    assert tc.relate(a, t).why == "t and a reach the same bytes 0 to 48 of the storage of a"
    column = a[:, 1]
    assert (
        tc.relate(a, column).why
        == "column is a view of a: both reach 12 of the bytes 4 to 40 of the storage of a"
    )
    left, right = a[:, :3], a[:, 2:]
    assert (
        tc.relate(left, right).why
        == "left and right meet in 12 of the bytes 8 to 44 of the storage of left"
    )
    first, second = a[:, 0], a[:, 1]
    assert (
        tc.relate(first, second).why
        == "first and second are views of one storage that reach no common byte"
    )
    other = torch.zeros(2)
    assert tc.relate(a, other).why == "no byte of other is a byte of a"
    empty = a[:0]
    assert tc.relate(a, empty).why == "empty is empty and reaches no byte"
    three = 3
    assert tc.relate(three, a).why == "three holds no tensor and no array"


def test_words_for_structures() -> None:
    """The first pair is named by both its paths, and how many more there are is told."""
    model = torch.nn.Linear(2, 2)
    state = model.state_dict()
    relation = tc.relate(model, state)
    assert relation.why == (
        "model.weight and state['weight'] have 16 bytes in common, and so have 1 more pair of values"
    )
    assert relation.kind == "identical"
    assert [(p.a, p.b) for p in relation.pairs] == [
        ("model.weight", "state['weight']"),
        ("model.bias", "state['bias']"),
    ]
    bias = [model.bias]
    assert tc.relate(model, bias).why == "model.bias and bias[0] have 8 bytes in common"
    assert tc.relate(model, bias).kind == "overlapping"
    assert tc.relate(model, bias).pairs[0].kind == "same"
    copied = tc.copy(model)
    assert tc.relate(model, copied).why == "no byte of copied is a byte of model"


def test_a_record_is_plain_data() -> None:
    """A relation is JSON-able, and can be pickled."""
    a = torch.zeros(4)
    relation = tc.relate(a, a[1:])
    assert json.loads(json.dumps(relation.to_json()))["pairs"][0]["common_bytes"] == 12
    assert pickle.loads(pickle.dumps(relation)) == relation


def test_too_hard_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where numpy gives up there is no answer, and the sentence says why."""
    x = np.zeros((4, 5, 6), np.int8)
    a, b = x[:, ::2, ::3], x[:, ::3, ::2]
    monkeypatch.setattr("truecopy.memory.overlap._MOST_WORK", 1)
    relation = tc.relate(a, b)
    assert (relation.kind, relation.shares_memory) == ("unknown", None)
    assert relation.why == (
        "whether a and b meet cannot be told: their strides interleave in a way that takes too long"
        " to decide"
    )


def test_assert_independent_names_both_paths_and_the_bytes() -> None:
    """The message has what, where, expected, got and the way out."""
    model, cache = torch.nn.Linear(2, 2), {}
    cache["w"] = model.weight.detach()[0]
    with pytest.raises(tc.NotIndependent) as caught:
        tc.assert_independent(model, cache)
    assert str(caught.value) == (
        "`model.weight and cache['w']`: model.weight and cache['w'] have 8 bytes in common. "
        "Expected no byte in common. Got 8 bytes in common. "
        "Make one of them a copy: tc.copy(...)."
    )


def test_assert_independent_of_one_object() -> None:
    """An object is not independent of itself."""
    x = torch.zeros(2)
    with pytest.raises(tc.NotIndependent, match=r"^`x and x`: x and x are one object\."):
        tc.assert_independent(x, x)


def test_assert_independent_promises_only_what_is_known() -> None:
    """Unknown raises: what is not known is not promised."""
    x = torch.ones(2, 2).to_mkldnn()
    with pytest.raises(tc.NotIndependent, match=r"Got no answer\."):
        tc.assert_independent(x, torch.ones(2))
    assert tc.assert_independent(torch.ones(2), torch.ones(2)) is None  # type: ignore[func-returns-value]


# --- gradient -------------------------------------------------------------------------------------


def test_gradient_flows_from_the_later_to_the_earlier() -> None:
    """Direction and nodes, the shortest way; memory is another question."""
    w = torch.ones(3, requires_grad=True)
    y = (w * 2).sum()
    relation = tc.relate(w, y)
    assert (relation.kind, relation.connected) == ("disjoint", True)
    assert relation.route == ("SumBackward0", "MulBackward0")
    assert str(relation) == (
        "disjoint: no byte of y is a byte of w. Gradient flows from y to w (SumBackward0 -> MulBackward0)."
    )
    assert tc.relate(y, w).flows == "from y to w"
    assert not tc.relate(w, y.detach()).connected


def test_gradient_through_structures_and_sparse_tensors() -> None:
    """The outer tensor counts, not the parts that its bytes are in."""
    w = torch.ones(3, requires_grad=True)
    s = (w * 2).to_sparse()
    assert tc.relate(w, s).connected
    assert tc.relate({"w": w}, [s]).flows is not None


def test_a_deep_graph_is_no_matter() -> None:
    """A route of thousands of nodes is found without recursion, and without a list for each node."""
    w = torch.ones(1, requires_grad=True)
    y = w
    for _ in range(5000):
        y = y + 1
    assert len(tc.relate(w, y).route) == 5000


# --- every kind of tensor -------------------------------------------------------------------------


def kinds(relations: list[Any]) -> list[str]:
    return [relation.kind for relation in relations]


COMPRESSED = {
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((2, 2)),
    "bsc": lambda x: x.to_sparse_bsc((2, 2)),
}


@pytest.mark.parametrize("layout", COMPRESSED)
def test_compressed_sparse(layout: str) -> None:
    """A compressed tensor is its two index tensors and its values."""
    s = COMPRESSED[layout](torch.eye(4))
    values = s.values()
    assert tc.relate(s, values).why.startswith("s.values() and values have ")
    assert kinds([tc.relate(s, s.detach()), tc.relate(s, s.clone())]) == ["identical", "disjoint"]


def test_coo_sparse() -> None:
    """A COO tensor is its indices and values, coalesced or not."""
    values = torch.ones(2)
    s = torch.sparse_coo_tensor(
        torch.tensor([[0, 0], [1, 1]]), values, (2, 2), check_invariants=True
    )
    assert not s.is_coalesced()
    assert tc.relate(s, values).why == "s._values() and values have 8 bytes in common"
    assert tc.relate(s, s.coalesce()).kind == "disjoint"


def test_quantized() -> None:
    """A quantized tensor is its integers; scales lie elsewhere."""
    q = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)
    assert kinds([tc.relate(q, q[1:]), tc.relate(q, q.int_repr())]) == ["overlapping", "disjoint"]


def test_nested_strided() -> None:
    """A strided nested tensor is the tensors in it, exact to the byte, not its whole buffer."""
    n = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(1, 4)])
    part = n.unbind()[1]
    assert tc.relate(n, part).why == "n.unbind()[1] and part have 16 bytes in common"
    left, right = n.chunk(2, -1)
    assert kinds([tc.relate(left, right), tc.relate(n, left), tc.relate(n, n.clone())]) == [
        "disjoint",
        "overlapping",
        "disjoint",
    ]
    assert kinds([tc.relate([left], {"r": right}), tc.relate([n], [left])]) == [
        "disjoint",
        "overlapping",
    ]
    assert tc.relate([n], [part]).pairs[0].a == "a[0].unbind()[1]"


def test_nested_jagged() -> None:
    """A jagged tensor is its values and offsets; its clone shares the offsets."""
    n = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
    copied = n.clone()
    assert tc.relate(n, n.values()).kind == "overlapping"
    assert tc.relate(n, copied).why == "n._offsets and copied._offsets have 24 bytes in common"


class Wrapper(torch.Tensor):
    """A wrapper subclass: its bytes are in two other tensors."""

    a: torch.Tensor
    b: torch.Tensor

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> "Wrapper":
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)  # type: ignore[return-value]

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a, self.b = a, b

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["a", "b"], None

    @classmethod
    def __torch_dispatch__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("looking ran an operation")

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("looking ran __torch_function__")


class Closed(Wrapper):
    """One whose class does not say what it is made of."""

    __tensor_flatten__ = None  # type: ignore[assignment]


def test_wrapper_subclass() -> None:
    """What `__tensor_flatten__` names, and no operation is run to find out."""
    a, b = torch.ones(2), torch.ones(2)
    w = Wrapper(a, b)
    assert tc.relate(w, b).why == "w.b and b have 8 bytes in common"
    assert tc.relate(w, torch.ones(2)).kind == "disjoint"


def test_dtensor(tmp_path: Path) -> None:
    """A distributed tensor is its local part."""
    from torch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        mesh = init_device_mesh("cpu", (1,))
        d = distribute_tensor(torch.ones(4), mesh, [Replicate()])
        local = d.to_local()
        assert tc.relate(d, local).why == (
            "local and d._local_tensor reach the same bytes 0 to 16 of the storage of d._local_tensor"
        )
        assert tc.relate(d, torch.ones(4)).kind == "disjoint"
    finally:
        torch.distributed.destroy_process_group()


def test_meta() -> None:
    """Tensors without memory share by storage and offset."""
    m = torch.empty(4, device="meta")
    assert kinds([tc.relate(m, m[2:]), tc.relate(m[:2], m[2:])]) == ["overlapping", "disjoint"]
    other, real = torch.empty(4, device="meta"), torch.ones(4)
    assert tc.relate(m, other).why == "m and other are on different storages"
    assert tc.relate(m, real).why == "m and real are on different devices (meta and cpu)"


def test_fake() -> None:
    """Fake tensors answer like those they stand for, inside of their mode and outside."""
    with FakeTensorMode():
        f = torch.empty(4)
        inside = kinds([tc.relate(f, f[1:]), tc.relate(f, torch.empty(4))])
    assert inside == ["overlapping", "disjoint"]
    assert tc.relate(f, f.detach()).kind == "identical"


def test_symbolic_shapes_are_unknown_and_no_guard_is_written() -> None:
    """Comparing a symbolic shape would decide something for the compiler."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=False)
    f = mode.from_tensor(torch.ones(4, 5))
    relation = tc.relate(f, f[1:])
    assert relation.why == "the memory of f cannot be told: its shape is symbolic"
    assert mode.shape_env is not None
    assert mode.shape_env.guards == []


def test_real_tensors_under_a_fake_mode() -> None:
    """A mode of somebody else sees nothing of our looking, and changes nothing in it."""
    x = torch.zeros(4)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])
    with FakeTensorMode():
        assert tc.relate(x.untyped_storage(), x).kind == "identical"
        assert tc.relate(nested, nested).kind == "same"


class Log(TorchDispatchMode):
    """Notes every operation."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_looking_runs_no_operation() -> None:
    """A dispatch mode sees nothing, for dense tensors, storages and strided nested ones."""
    x = torch.zeros(4)
    n = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])
    with Log() as log:
        tc.relate(x, x.untyped_storage())
        tc.relate(n, x)
    assert log.seen == []


def test_copy_on_write_siblings() -> None:
    """They share pages until one writes, so they are disjoint; looking writes nothing."""
    a = torch.ones(4)
    b = torch._lazy_clone(a)  # type: ignore[attr-defined]
    relation = tc.relate(a, b)
    assert relation.kind == "disjoint"
    assert relation.why == (
        "a and b are copy-on-write siblings: they share pages until one of them is written"
    )
    assert tc.relate(b, b[1:]).kind == "overlapping"
    assert tc.relate([a, b[:2]], [b]).pair_count == 1
    tc.aliases([a, b]), tc.who_shares(a)
    assert torch._C._is_cow_tensor(a)  # type: ignore[attr-defined]
    assert torch._C._is_cow_tensor(b)  # type: ignore[attr-defined]


def test_numpy_over_copy_on_write() -> None:
    """An array taken before the lazy clone writes through to both: it shares with both."""
    a = torch.ones(4)
    n = a.numpy()
    b = torch._lazy_clone(a) if _can_clone_lazily(a) else a[:]  # type: ignore[attr-defined]
    assert kinds([tc.relate(n, a), tc.relate(n, b)]) == ["identical", "identical"]


def _can_clone_lazily(tensor: torch.Tensor) -> bool:
    try:
        torch._lazy_clone(tensor)  # type: ignore[attr-defined]
    except RuntimeError:
        return False
    return True


def test_freed_storage() -> None:
    """What was freed has no bytes; whether its views share is not decided by a null address."""
    a = torch.ones(4)
    b = a[1:]
    a.untyped_storage().resize_(0)
    assert tc.relate(a, b).why == (
        "whether a and b meet cannot be told: views of a storage whose memory was freed"
    )
    other = torch.ones(4)
    other_freed = torch.ones(4)
    other_freed.untyped_storage().resize_(0)
    assert tc.relate(a, other).why == "a has no memory: its storage was freed"
    assert tc.relate(a, other_freed).kind == "disjoint"
    assert tc.relate([a], [b]).kind == "unknown"


def test_shrunk_storage() -> None:
    """A tensor beyond its storage reaches memory that may be anybody's: unknown, never a guess."""
    a = torch.ones(10)
    b = a[5:]
    a.untyped_storage().resize_(8)
    assert tc.relate(a, b).why == (
        "the memory of a cannot be told: its storage was resized to 8 bytes, of the 40 that it needs"
    )
    assert tc.aliases([a, b]).groups == ()
    assert len(tc.aliases([a, b]).unknown) == 2


def test_conj_and_neg_views() -> None:
    """Bits that say how to read bytes change nothing about which they are."""
    z = torch.ones(4, dtype=torch.complex64)
    imag = z.conj().imag
    assert imag.is_neg()
    assert kinds([tc.relate(z, z.conj()), tc.relate(z, z.conj().resolve_conj())]) == [
        "identical",
        "disjoint",
    ]
    assert tc.relate(z, imag).why == (
        "imag is a view of z: both reach 16 of the bytes 4 to 32 of the storage of z"
    )


def test_inference_tensors() -> None:
    """They have no version, and memory like any other."""
    with torch.inference_mode():
        a = torch.ones(4)
        b = a[1:]
    assert tc.relate(a, b).kind == "overlapping"


def test_inside_transforms() -> None:
    """Stand-ins of vmap and grad are unknown, with the reason, and no error."""
    seen = []

    def look(t: torch.Tensor) -> torch.Tensor:
        u = t[1:]
        seen.append(tc.relate(t, u))
        return t.sum()

    torch.vmap(look)(torch.ones(2, 3))
    torch.func.grad(look)(torch.ones(3))
    assert {relation.why for relation in seen} == {
        "the memory of t cannot be told: it is a stand-in inside a running torch.func transform"
    }


def test_what_torch_does_not_show() -> None:
    """mkldnn, and wrappers that say nothing of themselves: unknown."""
    m = torch.ones(2, 2).to_mkldnn()
    assert tc.relate(m, m.detach()).why == (
        "the memory of m cannot be told: torch does not show the memory of a mkldnn tensor"
    )
    w = torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]))
    assert tc.relate(w, torch.ones(2)).kind == "unknown"


def test_zero_dimensions_and_expansion() -> None:
    """Scalars reach one element, expanded tensors each byte once, overlapping windows what they cover."""
    x = torch.arange(8.0)
    assert kinds(
        [
            tc.relate(x[0], x),
            tc.relate(x[:1].expand(5), x[0]),
            tc.relate(x.as_strided((3, 2), (1, 1)), x[:4]),
            tc.relate(x.as_strided((3, 2), (1, 1)), x[4:]),
        ]
    ) == ["overlapping", "identical", "identical", "disjoint"]


def test_storages() -> None:
    """A storage is all its bytes, typed or not."""
    x = torch.zeros(3)
    assert kinds([tc.relate(x.untyped_storage(), x[1:]), tc.relate(x, x.untyped_storage())]) == [
        "overlapping",
        "identical",
    ]


# --- numpy ----------------------------------------------------------------------------------------


def test_numpy_views() -> None:
    """Negative strides, other types, and the bridge to torch."""
    n = np.arange(8.0)
    assert kinds(
        [
            tc.relate(n, n[::-1]),
            tc.relate(n[::2][::-1], n[1::2]),
            tc.relate(n, n.view(np.int16)),
            tc.relate(n, torch.from_numpy(n)[2:]),
            tc.relate(n, n.copy()),
        ]
    ) == ["identical", "disjoint", "identical", "overlapping", "disjoint"]


def test_structured_arrays() -> None:
    """Fields of one array share no byte with each other; a record is a view of its array."""
    s = np.zeros(4, dtype=[("a", "f4"), ("b", "i8")])
    assert kinds([tc.relate(s["a"], s["b"]), tc.relate(s, s["b"]), tc.relate(s[0], s)]) == [
        "disjoint",
        "overlapping",
        "overlapping",
    ]


def test_object_arrays() -> None:
    """An array of objects is its pointers, and what they point to."""
    n = np.zeros(2)
    o = np.array([n, None], dtype=object)
    assert tc.relate(o, n).why == "o[0] and n have 16 bytes in common"
    first = o[:1]
    assert tc.relate(o, first).pairs[0].common_bytes == 8
    assert tc.relate(np.array([1, None]), np.array([1, None])).kind == "disjoint"


def test_read_only_arrays() -> None:
    """Who may write makes no difference to who shares."""
    n = np.zeros(4)
    n.flags.writeable = False
    assert tc.relate(n, n[1:]).kind == "overlapping"


def test_memmaps(tmp_path: Path) -> None:
    """Views of one mapping share by address; two mappings of one file by their place in the file."""
    path = tmp_path / "data"
    a = np.memmap(path, np.float32, "w+", shape=(8,))
    assert tc.relate(a, a[2:]).kind == "overlapping"
    b = np.memmap(path, np.float32, "r+", shape=(8,))
    assert tc.relate(a, b).why == "b and a reach the same bytes 0 to 32 of a file that both map"
    b[0] = 5
    assert a[0] == 5
    head, tail = a[:4], b[4:]
    assert tc.relate(head, tail).kind == "disjoint"
    private = np.memmap(path, np.float32, "c", shape=(8,))
    assert tc.relate(a, private).kind == "disjoint"
    shared = torch.from_file(str(path), shared=True, size=8)
    assert tc.relate(shared, a).kind == "identical"


def test_masked_arrays() -> None:
    """A masked array is its data and its mask."""
    m = np.ma.array(np.arange(4.0), mask=[0, 1, 0, 0])
    mask = m.mask
    assert tc.relate(m, m.data).kind == "overlapping"
    assert tc.relate(m, mask).why == "m.mask and mask have 4 bytes in common"
    assert tc.relate(m, m.copy()).kind == "disjoint"


# --- buffers and protocols ------------------------------------------------------------------------


def test_buffers() -> None:
    """bytearray, memoryview, array.array, mmap, ctypes and bytes are memory like any other."""
    held = bytearray(16)
    anonymous = mmap.mmap(-1, 64)
    values, constant = array.array("d", [1, 2, 3]), b"abcd"
    characters = array.array("u" if "u" in array.typecodes else "w", "abc")
    numbers = (ctypes.c_int * 4)()
    assert kinds(
        [
            tc.relate(held, torch.frombuffer(held, dtype=torch.float32)),
            tc.relate(memoryview(held)[4:], held),
            tc.relate(memoryview(held)[::-2], np.frombuffer(held, np.uint8)[::2]),
            tc.relate(values, np.frombuffer(values)),
            tc.relate(characters, np.frombuffer(characters, np.uint8)),
            tc.relate(anonymous, memoryview(anonymous)[3:9]),
            tc.relate(numbers, np.frombuffer(numbers, np.int32)[1:]),
            tc.relate(constant, np.frombuffer(constant, np.uint8)),
        ]
    ) == [
        "identical", "overlapping", "disjoint", "identical", "identical", "overlapping",
        "overlapping", "identical",
    ]  # fmt: skip


def test_closed_and_empty_buffers() -> None:
    """What shows no memory shares none."""
    closed = memoryview(bytearray(4))
    closed.release()
    x = torch.ones(1)
    assert tc.relate(closed, x).kind == "disjoint"
    assert tc.relate(bytearray(), bytearray()).kind == "disjoint"


class Interface:
    """Speaks `__array_interface__` for another array."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __array_interface__(self) -> Any:
        return self.array.__array_interface__


class Image:
    """Makes new bytes for everyone who asks, as PIL's images do."""

    def __init__(self) -> None:
        self.pixels = np.zeros((2, 2), np.uint8)

    @property
    def __array_interface__(self) -> Any:
        data = self.pixels.tobytes()
        return {"shape": (2, 2), "typestr": "|u1", "version": 3, "data": data}


class Buffered:
    """Names a buffer and an offset in it, as the protocol allows."""

    def __init__(self, held: bytearray) -> None:
        self.__array_interface__ = {
            "shape": (2,), "typestr": "|u1", "version": 3, "data": held, "offset": 3
        }  # fmt: skip


class Copying:
    """Exports a new array by DLPack each time."""

    def __init__(self) -> None:
        self.held = np.zeros(1000)

    def __dlpack__(self, **options: Any) -> Any:
        return self.held.copy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Broken:
    """Fails when asked."""

    @property
    def __array_interface__(self) -> Any:
        raise OSError("gone")


def test_array_interfaces() -> None:
    """Addresses are believed, buffers are followed, copies are found out, failures are told."""
    n, held, image = np.arange(6), bytearray(8), Image()
    shown = Interface(n[1::3])
    assert kinds([tc.relate(shown, n[::2]), tc.relate(Interface(n[::2]), n[1::2])]) == [
        "overlapping",
        "disjoint",
    ]
    assert tc.relate(Buffered(held), np.frombuffer(held, np.uint8)[4:5]).kind == "overlapping"
    assert tc.relate(Buffered(held), np.frombuffer(held, np.uint8)[:3]).kind == "disjoint"
    assert tc.relate(image, image.pixels).why == (
        "image shares with nobody: Image makes a new array for everyone who asks"
    )
    broken = Broken()
    assert tc.relate(broken, n).why == (
        "the memory of broken cannot be told: Broken.__array_interface__ failed: gone"
    )


def test_dlpack_that_copies() -> None:
    """Both exports are held while they are compared: freed memory given out again looks like sharing."""
    copying = Copying()
    assert tc.relate(copying, copying.held).kind == "disjoint"
    assert tc.relate(torch.ones(2), np.ones(2)).kind == "disjoint"


class Eager:
    """Answers for every attribute there may be."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"looking asked for {name}")


def test_looking_runs_no_code_beyond_protocols() -> None:
    """No `__getattr__` and no property is asked."""
    assert tc.relate(Eager(), torch.ones(2)).kind == "disjoint"
    assert tc.relate([Eager()], torch.ones(2)).kind == "disjoint"


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ({"strides": "x"}, "'str' object cannot be interpreted as an integer"),
        ({"shape": (2**62,)}, "no memory is of shape (4611686018427387904,) and strides (4,)"),
        ({"shape": (-2,)}, "no memory is of shape (-2,) and strides (4,)"),
    ],
)
def test_an_interface_that_makes_no_sense_is_unknown(numbers: dict, problem: str) -> None:
    """Other libraries' numbers are checked before anything is worked out from them."""
    x = torch.zeros(4)
    sound = {"version": 3, "data": (x.data_ptr(), False), "shape": (4,), "typestr": "<f4"}

    class Odd:
        __array_interface__ = sound | numbers

    relation = tc.relate(Odd(), x)
    assert relation.kind == "unknown"
    assert problem in relation.why


def test_a_dlpack_capsule_is_unknown() -> None:
    """To look into a capsule is to use it up; it is not said to be disjoint from its own tensor."""
    x = torch.zeros(4)
    capsule = torch.utils.dlpack.to_dlpack(x)
    assert tc.relate(capsule, x).kind == "unknown"
    assert tc.relate([capsule], x).kind == "unknown"
    assert tc.relate(torch.utils.dlpack.from_dlpack(capsule), x).kind == "identical"
    assert tc.relate(capsule, x).kind == "disjoint"  # used, and empty now
