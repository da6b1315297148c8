"""Corner cases 12 to 20: gradients, graphs, hooks, version counters."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import truecopy as tc
from oracles import apart, partition, same_bits


def non_leaf() -> torch.Tensor:
    return torch.randn(3, requires_grad=True) * 2


def test_12_a_tensor_that_autograd_computed_just_copies() -> None:
    """DESIGN: by default it becomes a leaf that requires no gradient; deepcopy raises."""
    y = non_leaf()
    model = nn.Linear(2, 2)
    model.cache = y
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly"):
        copy.deepcopy(model)  # today

    for copied in (tc.copy(y), tc.copy(model).cache, tc.deepcopy(model).cache):
        assert copied.is_leaf
        assert not copied.requires_grad
        assert same_bits(copied, y)
        assert apart([copied], [y])


def test_12_a_leaf_keeps_its_requires_grad() -> None:
    """`grad="detach"` copies values; leaves go on as leaves that want gradient."""
    for wants in (True, False):
        x = torch.randn(3, requires_grad=wants)
        assert tc.copy(x).requires_grad is tc.copy([x, x[1:]])[0].requires_grad is wants
        assert tc.copy(nn.Parameter(torch.randn(2), wants)).requires_grad is wants


def test_12_grad_error_names_the_path() -> None:
    """The stack trace that users paste most, with the attribute that causes it."""
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].cache = non_leaf()
    with pytest.raises(RuntimeError) as caught:
        tc.copy(model, grad="error")
    assert caught.value.where == "model[0].cache"
    assert str(caught.value) == (
        "`model[0].cache`: was computed by autograd (MulBackward0). Expected graph leaves, as "
        'grad="error" asks. Got a tensor with a grad_fn. grad="detach" copies its values, '
        'grad="keep" keeps it in the graph.'
    )


def test_12_grad_keep_is_a_differentiable_copy() -> None:
    """Gradient flows from the copy to the source, as through `clone()`."""
    x = torch.randn(3, requires_grad=True)
    y = x * 2
    copied = tc.copy({"x": x, "y": y}, grad="keep")

    (copied["x"] + copied["y"]).sum().backward()

    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0, 3.0]
    assert apart(copied.values(), [x, y])


def test_13_a_view_of_a_leaf_made_under_no_grad_is_tied_to_the_copied_leaf() -> None:
    """It says that it is a leaf that requires gradient; deepcopy makes it an independent one."""
    p = nn.Parameter(torch.randn(4))
    with torch.no_grad():
        view = p[:2]
    assert view.is_leaf
    assert view.requires_grad
    copied, tied = tc.copy([p, view])

    with torch.no_grad():
        copied.fill_(5.0)

    assert tied.tolist() == [5.0, 5.0]
    assert tied.requires_grad == view.requires_grad


def test_14_grad_is_copied_with_its_tensor() -> None:
    """DESIGN: `.grad` goes along, for Parameters too, with memory of its own."""
    model = nn.Linear(2, 3)
    model(torch.randn(4, 2)).sum().backward()
    x = torch.randn(3, requires_grad=True)
    (x * x).sum().backward()
    assert copy.deepcopy(model).weight.grad is None  # today

    copied, y = tc.copy((model, x))

    for mine, theirs in [*zip(model.parameters(), copied.parameters(), strict=True), (x, y)]:
        assert same_bits(mine.grad, theirs.grad)
        assert apart([mine.grad], [theirs.grad])


def test_14_a_grad_that_is_none_stays_none() -> None:
    """Not zeros: optimizers treat the two differently."""
    assert all(p.grad is None for p in tc.copy(nn.Linear(2, 2)).parameters())


def test_14_bucket_views_share_their_bucket() -> None:
    """DDP's gradients are views of a bucket; in a structure with the bucket they still are."""
    bucket = torch.zeros(6)
    a, b = nn.Parameter(torch.randn(2)), nn.Parameter(torch.randn(4))
    a.grad, b.grad = bucket[:2], bucket[2:]

    one, two, flat = tc.copy([a, b, bucket])

    flat.fill_(3.0)
    assert one.grad.tolist() == [3.0] * 2
    assert two.grad.tolist() == [3.0] * 4


def test_14_a_gradient_that_is_also_elsewhere_is_one_object() -> None:
    """`x.grad` held under another name too."""
    x = torch.randn(2, requires_grad=True)
    x.sum().backward()
    copied, grad = tc.copy((x, x.grad))
    assert copied.grad is grad


def test_14_sparse_gradients_are_copied() -> None:
    """Those of a sparse embedding."""
    model = nn.Embedding(5, 3, sparse=True)
    model(torch.tensor([1, 1, 3])).sum().backward()
    copied = tc.copy(model)

    grad = copied.weight.grad
    assert grad.layout is torch.sparse_coo
    assert grad.is_coalesced() == model.weight.grad.is_coalesced()
    assert torch.equal(grad.to_dense(), model.weight.grad.to_dense())


def test_14_a_retained_gradient_of_a_non_leaf_is_copied() -> None:
    """`retain_grad()` makes it part of the tensor."""
    y = non_leaf()
    y.retain_grad()
    y.sum().backward()
    assert tc.copy([y])[0].grad.tolist() == [1, 1, 1]


def test_15_tensor_hooks_are_dropped_and_the_plan_says_so() -> None:
    """They belong to a graph that the copy is not part of."""
    x = torch.randn(2, requires_grad=True)
    x.register_hook(lambda grad: grad)
    x.register_post_accumulate_grad_hook(lambda _: None)
    state = {"x": x}

    assert [note.path for note in tc.plan(state).dropped] == ["state['x']", "state['x']"]
    assert [note.why.split()[0] for note in tc.plan(state).dropped] == [
        "backward",
        "post-accumulate-grad",
    ]
    assert tc.copy(state)["x"]._backward_hooks is None


def test_15_hooks_of_modules_are_copied() -> None:
    """Of every kind: forward, pre-forward, backward, state dict."""
    model = nn.Linear(2, 2)
    seen = []

    def note(*_: object) -> None:
        seen.append(1)

    model.register_forward_hook(note)
    model.register_forward_pre_hook(note)
    model.register_full_backward_hook(note)
    model.register_state_dict_post_hook(note)
    copied = tc.copy(model)
    copied(torch.randn(1, 2, requires_grad=True)).sum().backward()
    copied.state_dict()

    assert len(seen) == 4


def test_15_hooks_that_mean_the_original_are_flagged() -> None:
    """A hook whose closure holds the model cannot be rebound: a warning, or an error if strict."""
    model = nn.Linear(2, 2)
    model.register_forward_hook(lambda *_: model.bias)
    with pytest.warns(UserWarning, match="still means the original.*through model"):
        tc.copy(model)
    with pytest.raises(tc.CannotCopy, match="refers to the original through model"):
        tc.copy(model, strict=True)
    assert len(tc.plan(model).points_back) == 1


def test_15_hooks_that_are_bound_methods_are_rebound() -> None:
    """A method of a module in the structure becomes that of the copied module."""

    class Counted(nn.Linear):
        calls = 0

        def count(self, *_: object) -> None:
            self.calls += 1

    model = Counted(2, 2)
    model.register_forward_hook(model.count)
    copied = tc.copy(model, strict=True)
    copied(torch.randn(1, 2))

    assert (model.calls, copied.calls) == (0, 1)


def test_15_optimizer_hooks_are_copied() -> None:
    """As module hooks are; deepcopy drops them."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append(1))

    copied = tc.copy((model, optimizer))[1]
    copied.step()

    assert calls == [1]
    assert len(copy.deepcopy((model, optimizer))[1]._optimizer_step_pre_hooks) == 0  # today


def test_16_attributes_of_parameters_are_copied() -> None:
    """Tags of parallelism and weight decay live there; deepcopy drops them."""
    p = nn.Parameter(torch.randn(2))
    p.no_weight_decay = True
    p.main = torch.randn(2)
    assert not hasattr(copy.deepcopy(p), "no_weight_decay")  # today

    copied, main = tc.copy((p, p.main))

    assert copied.no_weight_decay is True
    assert copied.main is main
    assert apart([main], [p.main])
    assert tc.copy(p).no_weight_decay is True


def test_17_new_tensors_start_their_own_counter() -> None:
    """Writing to a copy does not disturb a backward pass of the source."""
    w = torch.randn(3)
    x = torch.randn(3, requires_grad=True)
    product = (x * w).sum()
    tc.copy(w).zero_()
    product.backward()
    assert torch.equal(x.grad, w)


@pytest.mark.parametrize("size", [3, 500_000])
def test_17_into_moves_the_counter_of_what_it_writes(size: int) -> None:
    """A backward pass that waits for the old values fails, rather than return a wrong gradient."""
    target = {"w": torch.randn(size)}
    x = torch.randn(size, requires_grad=True)
    product = (x * target["w"]).sum()

    tc.copy({"w": torch.randn(size)}, into=target)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_18_inference_tensors_become_ordinary_ones() -> None:
    """A copy can be trained, wherever it was made and whatever it was made of."""
    with torch.inference_mode():
        model = nn.Linear(2, 2)
    for copied in (
        tc.copy(model),
        tc.copy(model.weight),
        tc.copy([model.weight, model.weight.t()])[0],
    ):
        tensors = list(copied.parameters()) if isinstance(copied, nn.Module) else [copied]
        assert not any(tensor.is_inference() for tensor in tensors)
    trained = tc.copy(model)
    trained(torch.randn(1, 2)).sum().backward()
    assert trained.weight.grad is not None


def test_18_copies_made_inside_inference_mode_are_ordinary() -> None:
    """Deepcopy in inference mode never trains again."""
    model = nn.Linear(2, 2)
    tied = [model.weight, model.weight.detach()[0]]
    with torch.inference_mode():
        assert copy.deepcopy(model).weight.is_inference()  # today
        copies = [tc.copy(model).weight, tc.copy(model.weight), *tc.copy(tied)]
    assert not any(copied.is_inference() for copied in copies)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, at first use
def test_19_tangents_are_never_dropped_silently() -> None:
    """Forward-mode differentiation: copied with `grad="keep"`, an error otherwise."""
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.randn(2), torch.ones(2))
        state = {"dual": dual}
        with pytest.raises(
            tc.CannotCopy, match=r"`state\['dual'\]`: carries a forward-mode tangent"
        ):
            tc.copy(state)
        with pytest.raises(tc.CannotCopy, match="tangent"):
            tc.copy(dual)
        kept = tc.copy(state, grad="keep")["dual"]
        assert forward_ad.unpack_dual(kept).tangent.tolist() == [1, 1]
        plain = torch.randn(2)
        assert torch.equal(tc.copy(plain), plain)


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.grad])
def test_19_transforms_of_functorch_are_refused_with_the_path(transform: object) -> None:
    """Their tensors are stand-ins that die with the transform."""

    def function(x: torch.Tensor) -> torch.Tensor:
        state = {"x": x}
        return tc.copy(state)["x"].sum()

    with pytest.raises(
        tc.CannotCopy, match=r"`state\['x'\]`: is a stand-in that lives only inside"
    ):
        transform(function)(torch.randn(3))  # type: ignore[operator]


def test_19_fake_tensors_copy_as_fake_tensors() -> None:
    """With their sharing, inside of their mode and outside of it."""
    from torch._subclasses import FakeTensor, FakeTensorMode

    with FakeTensorMode():
        x = torch.randn(3, 4)
        state = {"x": x, "row": x[1], "layer": nn.Linear(2, 2)}
        inside = tc.copy(state)
    outside = tc.copy(state)
    for copied in (inside, outside):
        assert type(copied["x"]) is type(copied["row"]) is FakeTensor
        assert isinstance(copied["layer"].weight, FakeTensor)
        assert copied["layer"].weight.requires_grad
        assert [len(group.paths) for group in tc.aliases(copied).groups] == [2]
        assert not tc.relate(copied["x"], x).shares_memory


def test_19_compiled_functions_may_copy() -> None:
    """Under torch.compile a copy is a graph break, and right."""

    def function(x: torch.Tensor) -> torch.Tensor:
        copied = tc.copy([x, x[1:]])
        copied[0].mul_(2)
        return copied[1]

    x = torch.arange(3.0)
    assert torch.compile(function, backend="eager")(x).tolist() == [2, 4]
    assert x.tolist() == [0, 1, 2]


def test_19_dispatch_modes_see_a_copy_as_operations() -> None:
    """A mode that only looks changes nothing of the result."""

    class Count(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.calls += 1
            return func(*args, **(kwargs or {}))

    x = torch.randn(3, 4)
    with Count() as mode:
        copied = tc.copy([x, x.detach()[1]])
    assert mode.calls
    assert partition(copied) == {frozenset((0, 1))}
    assert same_bits(copied[0], x)


def test_20_a_copy_between_forward_and_backward_disturbs_nothing() -> None:
    """The graph of the source goes on; the gradient is what it would have been."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(5, 3)
    model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    loss = model(x).sum()

    copied = tc.copy(model)
    with torch.no_grad():
        for p in copied.parameters():
            p.fill_(9.0)
    loss.backward()

    assert all(torch.equal(p.grad, e) for p, e in zip(model.parameters(), expected, strict=True))


def test_20_a_restore_over_a_living_graph_fails_loudly() -> None:
    """`into=` between forward and backward: an error of autograd, not a wrong gradient."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    saved = tc.copy(model)
    loss = model(torch.randn(5, 3)).sum()
    tc.copy(saved, into=model)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
