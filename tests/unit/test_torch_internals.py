"""What `_torch.py` relies on, by behavior: the first thing to run with another torch."""

import pytest
import torch

from truecopy import _torch


@pytest.mark.parametrize("inference", [False, True])
def test_plain_tensors_have_plain_keys(inference: bool) -> None:
    """Ordinary dense CPU tensors, of every class and dtype that is plain, are known by one number."""
    with torch.inference_mode(inference):
        plain = [torch.ones(2), torch.ones(2, dtype=torch.bool), torch.ones(2, 2).t()]

    assert _torch.dispatch_keys_of_all(plain) <= _torch.PLAIN_KEYS
    assert _torch.dispatch_keys(torch.nn.Parameter(torch.ones(2))) in _torch.PLAIN_KEYS


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, dtype=torch.cfloat).conj(),
        lambda: torch.ones(2, dtype=torch.cfloat).conj().imag,
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.ones(2, device="meta"),
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        lambda: torch.ones(2).to_mkldnn(),
    ],
    ids=["conj", "neg", "sparse", "meta", "quantized", "mkldnn"],
)
def test_other_tensors_have_other_keys(make) -> None:
    """Whatever is more than its bytes in one strided CPU region is told apart."""
    assert _torch.dispatch_keys(make()) not in _torch.PLAIN_KEYS


def test_looking_at_lazy_tensors_leaves_them_lazy() -> None:
    """Address and identity of a copy-on-write tensor are read without making the copy."""
    source = torch.ones(4)
    lazy = torch._lazy_clone(source)

    assert _torch.storage_address(lazy) == _torch.storage_address(source)
    assert _torch.storage_identity(lazy) != _torch.storage_identity(source)
    assert _torch.is_copy_on_write(lazy)
    assert _torch.is_copy_on_write(source)


def test_many_are_cloned_and_written_as_one_by_one() -> None:
    """The batched calls give what loops of the public ones give, and move version counters."""
    sources = [torch.tensor([-0.0, float("nan")]), torch.ones(2, 3).t()]
    clones = _torch.clone_all(sources)
    alike = _torch.clone_all(sources[1:] * 2, alike=True)
    targets = [torch.empty_like(source) for source in sources]
    before = [target._version for target in targets]
    _torch.copy_all(targets, sources)

    for made, of in ((clones, sources), (targets, sources), (alike, sources[1:] * 2)):
        for new, old in zip(made, of, strict=True):
            assert new.stride() == old.stride()
            assert torch.equal(new.view(torch.int32), old.view(torch.int32))
    assert all(t._version > b for t, b in zip(targets, before, strict=True))
    assert len({new.untyped_storage().data_ptr() for new in (*clones, *alike)}) == 4


def test_nothing_is_recorded_and_modes_come_back() -> None:
    """What is made while nothing is recorded is ordinary, in inference mode too; then all is as before."""
    source = torch.ones(2, requires_grad=True)
    for inference, grad in ((False, True), (False, False), (True, False)):
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            with _torch.Unrecorded():
                made = source * 2
            assert torch.is_inference_mode_enabled() is inference
            assert torch.is_grad_enabled() is grad
        assert not made.is_inference()
        assert not made.requires_grad


def test_addresses_are_read_without_materializing() -> None:
    """The address of a first element, of lazy tensors too, which stay lazy."""
    source = torch.arange(8.0)
    lazy = torch._lazy_clone(source)

    assert _torch.address_as_is(lazy[2:]) == _torch.storage_address(source) + 8
    assert _torch.is_copy_on_write(lazy)


def test_subclasses_are_made_on_given_memory() -> None:
    """A Parameter on existing memory shares its bytes and its version counter."""
    data = torch.ones(2)
    parameter = _torch.make_subclass(torch.nn.Parameter, data, requires_grad=True)

    assert type(parameter) is torch.nn.Parameter
    assert parameter.data_ptr() == data.data_ptr()
    data.add_(1)
    assert parameter._version == data._version


def test_lazy_clones_share_until_one_is_written() -> None:
    """The whole storage, whatever is asked for it; the source is copy-on-write from then on."""
    source = torch.arange(4.0)
    lazy = _torch.lazy_clone(source[:2])

    assert _torch.is_copy_on_write(source)
    assert _torch.storage_address(lazy) == _torch.storage_address(source)
    assert lazy.untyped_storage().nbytes() == 16
    lazy.fill_(7)
    assert source.tolist() == [0, 1, 2, 3]
    assert _torch.storage_address(lazy) != _torch.storage_address(source)
    with pytest.raises(RuntimeError):
        _torch.lazy_clone(torch.frombuffer(bytearray(4), dtype=torch.uint8))


def test_the_self_test_of_lazy_clones_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lazy clone that shares for good, one that copies at once, or none at all: all are found."""
    assert _torch.lazy_clones_hold()
    for fake in (lambda t: t.detach(), torch.clone, None):
        _torch.lazy_clones_hold.cache_clear()
        with monkeypatch.context() as patched:
            if fake is None:
                patched.delattr(torch, "_lazy_clone")
            else:
                patched.setattr(torch, "_lazy_clone", fake)
            assert not _torch.lazy_clones_hold()
        _torch.lazy_clones_hold.cache_clear()


def test_the_node_of_a_backward_pass_is_known_by_its_number() -> None:
    """Numbers are given out in the order in which nodes are made, and the engine tells where it is."""
    x = torch.ones(2, requires_grad=True)
    before = _torch.next_node_number()
    y = x * 2
    seen = []
    y.register_hook(lambda _: None)
    z = y.exp()
    assert _torch.node_number(y.grad_fn) == before
    assert _torch.node_number(z.grad_fn) == before + 1
    assert _torch.current_node() is None

    class Look(_torch.DispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            node = _torch.current_node()
            seen.append(None if node is None else node.name())
            return function(*args, **(kwargs or {}))

    with Look():
        z.sum().backward()
    assert "ExpBackward0" in seen


def test_versions_move_with_writes() -> None:
    """The counter that autograd keeps; inference tensors have none."""
    x = torch.ones(2)
    before = _torch.version_of(x)
    x[0].add_(1)
    assert _torch.version_of(x) == before + 1
    with torch.inference_mode():
        assert _torch.version_of(torch.ones(2)) is None


def test_function_modes_can_be_set_aside() -> None:
    """A mode that is taken off the stack sees nothing, and is put back where it was."""
    seen = []

    class Look(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    with Look():
        modes = _torch.function_modes()
        _torch.set_function_modes([])
        torch.ones(2)
        assert not seen
        _torch.set_function_modes(modes)
        torch.ones(2)
    assert len(seen) == 1


def test_classes_that_answer_operations_are_told_apart() -> None:
    """Wrappers answer with what they are made of; fake tensors and plain subclasses do not."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.testing._internal.two_tensor import TwoTensor

    assert _torch.answers_operations(TwoTensor)
    for plain in (torch.Tensor, torch.nn.Parameter, FakeTensor):
        assert not _torch.answers_operations(plain)


_OF_OTHER_SHAPE = [lambda: torch.ones(5), lambda: torch.ones(8)[::2]]


@pytest.mark.parametrize("place", [0, 70, 199])
@pytest.mark.parametrize(
    "make",
    [
        *_OF_OTHER_SHAPE,
        lambda: torch.ones(4, dtype=torch.int32),
        lambda: torch.ones(4, requires_grad=True),
        lambda: torch.nn.Parameter(torch.ones(4)),
        lambda: torch.ones(4, dtype=torch.cfloat).conj().imag,
        lambda: torch.ones(4, device="meta"),
        lambda: torch.ones(4).to_sparse(),
        lambda: None,
    ],
    ids=["shape", "strides", "dtype", "requires_grad", "class", "neg", "device", "layout", "none"],
)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_one_that_is_not_alike_is_noticed(make, place, mode) -> None:
    """Tensors are alike in all that is compared, wherever the odd one is and whatever mode is on."""
    tensors = [torch.ones(4) for _ in range(200)]
    assert _torch.all_alike(tensors)

    tensors[place] = make()
    with mode():
        assert tensors[0] is None or not _torch.all_alike(tensors)
        assert tensors[0] is None or (make in _OF_OTHER_SHAPE) == _torch.all_alike(
            tensors, of_one_shape=False
        )


def test_addresses_and_sizes_of_storages_come_from_c() -> None:
    """What loops in C ask is what their public counterparts say."""
    tensor = torch.ones(8)[2:]

    assert _torch.storage_address_as_is(tensor) == tensor.untyped_storage().data_ptr()
    assert _torch.storage_bytes(tensor.untyped_storage()) == 32


def test_description_sees_everything_but_values_and_addresses() -> None:
    """Shape, strides, dtype and requires_grad are told apart; another tensor that is alike is not."""
    tensor = torch.zeros(2, 2)
    same = _torch.description_of([tensor])
    assert same([tensor])
    assert same([torch.ones(2, 2)])
    for other in (
        torch.zeros(4), torch.zeros(2, 2).t(), tensor.double(), torch.zeros(2, 2, requires_grad=True),
        torch.nn.Parameter(tensor, requires_grad=False),
    ):  # fmt: skip
        assert not same([other])
    assert not same([])
    assert not same([tensor, tensor])
    assert _torch.description_of([])([])


def test_versions_move() -> None:
    """A version that is moved makes a pending backward pass fail."""
    weight = torch.ones(2, requires_grad=True)
    loss = (weight * weight).sum()
    _torch.move_versions([weight])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_parts_of_the_compiler_are_known() -> None:
    """By the module of their class; a module of users is none."""
    assert _torch.is_compiler_part(torch.fx.GraphModule)
    assert not _torch.is_compiler_part(torch.nn.Linear)


def test_below_autograd_nothing_is_recorded() -> None:
    """A lazy clone made there is outside of the graph, of a tensor that is in it."""
    inside = torch.ones(2, requires_grad=True) * 2
    with _torch.below_autograd():
        assert not _torch.lazy_clone(inside).requires_grad
    assert _torch.lazy_clone(inside).requires_grad


def test_what_is_behind_transforms() -> None:
    """Batch axes come first, the outermost the first; nothing dies with the transform."""
    found = []

    def look(x: torch.Tensor) -> torch.Tensor:
        assert _torch.is_functorch_wrapper(x)
        found.append(_torch.unwrapped(x))
        return x.sum()

    x = torch.arange(24.0).view(2, 3, 4)
    torch.vmap(torch.vmap(look, in_dims=1), in_dims=2)(x)
    torch.func.grad(look)(x)
    assert torch.equal(found[0], x.permute(2, 1, 0))
    assert torch.equal(found[1], x)
    assert not any(map(_torch.is_functorch_wrapper, found))


def test_a_storages_number_is_not_given_out_again_while_its_life_is_held() -> None:
    """Its memory is freed all the same."""
    tensor = torch.ones(1000)
    life = _torch.StorageLife(tensor.untyped_storage())
    key = _torch.storage_identity(tensor)
    assert not life.is_over
    del tensor
    assert life.is_over
    assert all(_torch.storage_identity(torch.ones(1000)) != key for _ in range(50))


def test_backward_passes_and_modes_are_known() -> None:
    """Inside of a hook a pass is running; a dispatch mode is on while it is."""
    seen = []
    x = torch.ones(1, requires_grad=True)
    x.register_hook(lambda _: seen.append(_torch.in_backward()))
    x.sum().backward()
    assert (seen, _torch.in_backward()) == ([True], False)
    assert not _torch.dispatch_modes_are_on()
    with _torch.DispatchMode():
        assert _torch.dispatch_modes_are_on()


def test_saved_tensors_have_names() -> None:
    """One for each that a node saved, as it was saved."""
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    ((name, saved),) = _torch.saved_by_name(y.grad_fn)
    assert name == "result"
    assert torch.equal(saved, y)


def test_modules_that_compile_themselves() -> None:
    """`module.compile()` is known; nothing is compiled by asking."""
    module = torch.nn.Linear(2, 2)
    assert not _torch.compiles_itself(module)
    module._compiled_call_impl = print
    assert _torch.compiles_itself(module)


def test_a_profile_is_a_tree_of_all_that_the_exact_tier_reads() -> None:
    """Callers' lines, arguments, numbers of allocations, modules; sizes by number; one at a time."""
    layer = torch.nn.Linear(3, 3)
    assert not _torch.profiler_is_on()
    with torch.autograd.profiler.profile(
        use_kineto=True, record_shapes=True, profile_memory=True, with_stack=True
    ) as profile:
        assert _torch.profiler_is_on()
        torch.ones(2, 3).reshape(3, 2)
        layer(torch.ones(2, 3))
    assert not _torch.profiler_is_on()

    waiting, events = _torch.profiled_tree(profile), []
    while waiting:
        event = waiting.pop()
        events.append(event)
        waiting += event.children
    by_kind = {
        kind: [event for event in events if event.tag == kind]
        for kind in _torch.EventKind.__members__.values()
    }
    operations = {event.name: event for event in by_kind[_torch.EventKind.TorchOp]}
    (tensor, *_) = operations["aten::reshape"].extra_fields.inputs
    given = {
        event.extra_fields.allocation_id: event.extra_fields
        for event in by_kind[_torch.EventKind.Allocation]
        if event.extra_fields.alloc_size > 0
    }
    assert (tensor.sizes, tensor.strides) == ([2, 3], [3, 1])
    assert given[tensor.allocation_id].alloc_size == 24
    assert operations["aten::linear"].extra_fields.scope == _torch.EventScope.FUNCTION
    calls = [event.extra_fields for event in by_kind[_torch.EventKind.PyCall]]
    assert id(layer) in {call.module.self_ptr for call in calls if call.module is not None}
    lines = {event.extra_fields.caller.line_number for event in by_kind[_torch.EventKind.PyCCall]}
    assert len(lines) > 1
    sizes = _torch.profiled_sizes(profile, frozenset(("aten::reshape",)))
    assert sizes[operations["aten::reshape"].correlation_id][1] == [3, 2]
    assert _torch.profiled_prefixes()


def test_a_profile_without_results_is_an_error() -> None:
    """And no empty tree."""
    with pytest.raises(RuntimeError, match="no results"):
        _torch.profiled_tree(torch.autograd.profiler.profile(enabled=False))


def test_what_fully_shard_hides() -> None:
    """The local part of a DTensor, the class that a module had, the names of its state, its way back."""
    from torch import distributed
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        module = fully_shard(torch.nn.Linear(2, 2))
        assert _torch.is_fully_sharded(module)
        assert not _torch.is_fully_sharded(torch.nn.Linear(2, 2))
        assert _torch.class_before_sharding(type(module)) is torch.nn.Linear
        assert _torch.class_before_sharding(torch.nn.Linear) is torch.nn.Linear
        added = set(vars(module)) - set(vars(torch.nn.Linear(2, 2)))
        assert added
        assert all(name.startswith(_torch.COMPOSED) for name in added)
        weight = module.weight
        assert _torch.is_sharded(weight)
        assert not _torch.is_sharded(torch.ones(1))
        part = _torch.local_part(weight)
        assert part is _torch.local_part(weight)
        assert part.data_ptr() == weight.to_local().data_ptr()  # type: ignore[operator]
        with torch.no_grad():
            module(torch.ones(1, 2))
        assert not _torch.is_sharded(module.weight), "a root holds full parameters after a forward"
        _torch.reshard(module)
        assert module.weight is weight
    finally:
        distributed.destroy_process_group()
