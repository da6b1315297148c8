"""The second article: which way to copy a tensor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import truecopy as tc
from truecopy.answers.claims import Answer, Claim, Part, Race
from truecopy.answers.proving import allocated, nbytes, operations, refusal
from truecopy.answers.topics import TOPICS

METHODS: dict[str, Callable[[Tensor], Tensor]] = {
    "new_tensor()": lambda x: x.new_tensor(x),
    "clone().detach()": lambda x: x.clone().detach(),
    "empty_like().copy_()": lambda x: torch.empty_like(x).copy_(x),
    "tensor()": torch.tensor,
    "detach().clone()": lambda x: x.detach().clone(),
}
"""The five of the article, under its own names."""


def between(x: Tensor, first: str, second: str, **verdict: Any) -> Race:
    """A race of two of the five."""
    return Race(first, METHODS[first], second, METHODS[second], on=x, **verdict)


def all_five_copy() -> None:
    """Each of the five returns the values in memory of its own."""
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for method in METHODS.values():
        copied = method(x)
        assert torch.equal(copied, x)
        assert not tc.relate(copied, x).shares_memory


def four_of_five_leave_the_graph() -> None:
    """Four return a tensor outside of the graph; `empty_like().copy_()` is connected as `clone()` is."""
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    connected = [name for name, method in METHODS.items() if tc.relate(method(x), x).connected]
    assert connected == ["empty_like().copy_()"]


def copying_into_empty_keeps_the_gradient() -> None:
    """`copy_` is recorded: the gradient of the copy reaches the original."""
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    copied = torch.empty_like(x).copy_(x)
    assert copied.requires_grad
    copied.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1, 1]


def both_constructors_warn() -> None:
    """`new_tensor` and `tensor` give a UserWarning when they are handed a tensor."""
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for method in "new_tensor()", "tensor()":
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            METHODS[method](x)
        assert [one.category for one in caught] == [UserWarning]


def what_the_warning_says() -> None:
    """The warning names `detach().clone()`, and no longer `clone().detach()`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.tensor(torch.zeros(3))
    message = str(caught[0].message)
    assert "recommended to use sourceTensor.detach().clone()" in message
    assert "clone().detach()" not in message


def a_clone_stays_in_the_graph() -> None:
    """A clone is a step of the computation: its gradient goes on to the original."""
    x = torch.tensor([1.0], requires_grad=True)
    y = x * 2
    z = y.clone()
    assert z.requires_grad
    z.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2]


def a_detached_tensor_is_outside() -> None:
    """`detach()` gives a tensor outside of the graph, through which no gradient goes."""
    x = torch.tensor([1.0], requires_grad=True)
    z = (x * 2).detach()
    assert not z.requires_grad
    assert "does not require grad" in refusal(RuntimeError, z.backward)


def a_detached_tensor_is_no_copy() -> None:
    """What `detach()` returns is no copy: it has the memory of the original."""
    x = torch.tensor([1.0], requires_grad=True)
    assert tc.relate(x.detach(), x).kind == "identical"


def the_example_of_the_graph() -> None:
    """The example prints what the article says."""
    x = torch.tensor([1.0], requires_grad=True)
    y = x * 2
    made = y.clone(), y.detach(), y.clone().detach(), y.detach().clone()
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2]
    assert [z.requires_grad for z in made] == [True, False, False, False]


def a_clone_adds_one_node() -> None:
    """`clone()` duplicates no graph: it adds one node, which points to the node that was there."""
    x = torch.tensor([1.0], requires_grad=True)
    y = x * 2
    z = y.clone()
    assert z.grad_fn is not None
    assert z.grad_fn.name() == "CloneBackward0"
    assert z.grad_fn.next_functions[0][0] is y.grad_fn
    assert y.detach().clone().grad_fn is None


def the_order_with_gradient() -> Race:
    """Where gradient is required, `detach()` first saves a node of the graph, and time."""
    x = torch.randn(1 << 10, requires_grad=True)
    return between(x, "detach().clone()", "clone().detach()", expected="faster")


def the_order_without_gradient() -> Race:
    """Where none is required, the order makes less than a tenth of a difference."""
    x = torch.randn(1 << 10)
    return between(x, "detach().clone()", "clone().detach()", denied=(0, 0.9))


def the_order_of_a_large_one() -> Race:
    """At four million numbers the order makes less than a tenth of a difference."""
    x = torch.randn(1 << 22, requires_grad=True)
    return between(x, "detach().clone()", "clone().detach()", denied=(0, 0.9))


def tensor_of_one() -> Race:
    """`tensor()` of one number takes longer than `clone().detach()`."""
    x = torch.randn(1)
    return between(x, "tensor()", "clone().detach()", expected="slower")


def new_tensor_of_one() -> Race:
    """`new_tensor()` of one number takes longer than `clone().detach()`."""
    x = torch.randn(1)
    return between(x, "new_tensor()", "clone().detach()", expected="slower")


def tensor_of_the_largest() -> Race:
    """`tensor()` of 2^14 numbers, the article's largest, takes longer too."""
    x = torch.randn(1 << 14)
    return between(x, "tensor()", "clone().detach()", expected="slower")


def tensor_of_a_large_one() -> Race:
    """At four million numbers the bytes decide: `tensor()` takes less than a tenth longer."""
    x = torch.randn(1 << 22)
    return between(x, "tensor()", "clone().detach()", denied=(1.1, None))


def the_factor_at_its_largest() -> Race:
    """`tensor()` of one number, where overhead weighs most, takes less than twice as long."""
    x = torch.randn(1)
    return between(x, "tensor()", "clone().detach()", denied=(2, None))


def the_factor_of_the_largest() -> Race:
    """`tensor()` of 2^14 numbers, the article's largest, takes less than twice as long."""
    x = torch.randn(1 << 14)
    return between(x, "tensor()", "clone().detach()", denied=(2, None))


def the_family_without_gradient() -> Race:
    """Without gradient, `empty_like().copy_()` takes less than a fifth longer than `detach().clone()`."""
    x = torch.randn(1 << 10)
    return between(x, "empty_like().copy_()", "detach().clone()", denied=(1.2, None))


def the_family_with_gradient() -> Race:
    """With gradient, `empty_like().copy_()` records a copy in place, and takes longer."""
    x = torch.randn(1 << 10, requires_grad=True)
    return between(x, "empty_like().copy_()", "detach().clone()", expected="slower")


def what_tensor_does() -> None:
    """Beside the copy, `tensor()` runs `detach`, `detach_`, and a conversion `to` with nothing to convert."""
    x = torch.randn(100)
    assert operations(lambda: torch.tensor(x)) == [
        "aten::detach", "aten::to", "aten::_to_copy", "aten::empty_strided", "aten::copy_",
        "aten::detach_",
    ]  # fmt: skip
    assert len(operations(lambda: x.detach().clone())) == 4


def addresses_differ() -> None:
    """The copies of the example begin at three different addresses, and share no byte."""
    x = torch.randn(1000, 1000)
    y1, y2 = torch.empty_like(x).copy_(x), x.clone()
    assert len({x.data_ptr(), y1.data_ptr(), y2.data_ptr()}) == 3
    assert not tc.relate(x, [y1, y2]).shares_memory


def different_addresses_and_one_memory() -> None:
    """Tensors that begin at different addresses can share all the same."""
    x = torch.randn(1000, 1000)
    rest = x[1:]
    assert rest.data_ptr() != x.data_ptr()
    assert tc.relate(rest, x).kind == "overlapping"


def two_steps() -> None:
    """`empty_like().copy_()` allocates and then copies."""
    x = torch.randn(1000, 1000)
    steps = operations(lambda: torch.empty_like(x).copy_(x))
    assert steps == ["aten::empty_like", "aten::empty_strided", "aten::copy_"]


def the_same_two_steps_in_a_clone() -> None:
    """`clone()` takes the same two steps: it allocates, then copies, and as many bytes."""
    x = torch.randn(1000, 1000)
    assert operations(x.clone) == ["aten::clone", "aten::empty_strided", "aten::copy_"]
    assert allocated(x.clone) == allocated(lambda: torch.empty_like(x).copy_(x)) == nbytes(x)


def all_five_allocate_the_same() -> None:
    """Each of the five allocates the bytes of the copy, once, and nothing else."""
    x = torch.randn(1000, 1000)
    for method in METHODS.values():
        assert allocated(partial(method, x)) == nbytes(x)


def control_is_a_kept_destination() -> None:
    """In one line it allocates each time, as `clone()` does; control is a destination that is kept."""
    x = torch.randn(1000, 1000)
    assert allocated(lambda: torch.empty_like(x).copy_(x)) == nbytes(x)
    kept = torch.empty_like(x)
    assert allocated(lambda: kept.copy_(x)) == 0


def the_value_of_a_loss() -> None:
    """`item()` is a number: it touches no graph, and no step changes it. Nothing needs to be copied."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(torch.ones(1, 3)).pow(2).sum()
    logged = loss.item()
    copied = loss.detach().clone()
    loss.backward()
    optimizer.step()
    assert loss.item() == logged == copied.item()
    assert isinstance(logged, float)


ANSWER = Answer(
    topic="methods",
    question=TOPICS["methods"],
    article="Ways to copy a tensor in PyTorch, with their speed and their graph (the article has no title)",
    answer=(
        "`x.detach().clone()` is the copy of one tensor: outside of the graph, in memory of its own, and "
        "as fast as any. "
        "`x.clone()` and `torch.empty_like(x).copy_(x)` are in the graph, so that gradient flows back to "
        "`x`; `torch.tensor(x)` and `x.new_tensor(x)` copy as well, warn, and lose a constant part of a "
        "microsecond, not a factor that grows with the tensor. "
        "For anything larger than one tensor `tc.copy(obj)` copies every tensor in it and keeps what "
        "was tied."
    ),
    parts=(
        Part(
            "The methods",
            (
                Claim("All methods create copies.", "holds", (all_five_copy,)),
                Claim(
                    "They differ in how they leave the graph.",
                    "holds",
                    (four_of_five_leave_the_graph,),
                ),
                Claim(
                    "`empty_like(x).copy_(x)` is among the ways to a copy without gradient.",
                    "does not hold",
                    (copying_into_empty_keeps_the_gradient,),
                ),
                Claim(
                    "They differ in how they use memory.",
                    "does not hold",
                    (all_five_allocate_the_same,),
                ),
                Claim(
                    "`new_tensor(x)` and `tensor(x)` give a UserWarning.",
                    "holds",
                    (both_constructors_warn,),
                ),
                Claim(
                    "The warning recommends `clone().detach()` or `detach().clone()`.",
                    "does not hold",
                    (what_the_warning_says,),
                ),
                Claim(
                    "PyTorch officially recommends `detach().clone()`.",
                    "holds",
                    (what_the_warning_says,),
                ),
            ),
        ),
        Part(
            "The graph",
            (
                Claim(
                    "`clone()` keeps its place in the graph and the history of gradients.",
                    "holds",
                    (a_clone_stays_in_the_graph,),
                ),
                Claim(
                    "`detach()` gives a new tensor apart from the graph.",
                    "depends",
                    (a_detached_tensor_is_outside, a_detached_tensor_is_no_copy),
                    why="on what is new: the tensor is, its memory is not",
                ),
                Claim(
                    "A detached tensor has no part in gradients.",
                    "holds",
                    (a_detached_tensor_is_outside,),
                ),
                Claim(
                    "The example prints 2, True, False, False, False.",
                    "holds",
                    (the_example_of_the_graph,),
                ),
                Claim(
                    "Both orders give copies without gradient, by different steps.",
                    "holds",
                    (the_example_of_the_graph, a_clone_adds_one_node),
                ),
                Claim(
                    "`clone()` first duplicates the graph, needlessly.",
                    "does not hold",
                    (a_clone_adds_one_node,),
                ),
                Claim(
                    "`detach().clone()` is slightly faster than `clone().detach()`.",
                    "depends",
                    (the_order_with_gradient, the_order_without_gradient, the_order_of_a_large_one),
                    why="on whether gradient is required, and on the size",
                ),
            ),
        ),
        Part(
            "The figures",
            (
                Claim(
                    "`new_tensor()` and `tensor()` are consistently slower.",
                    "depends",
                    (
                        tensor_of_one,
                        new_tensor_of_one,
                        tensor_of_the_largest,
                        tensor_of_a_large_one,
                        the_family_with_gradient,
                    ),
                    why="on the size, and on gradient, which the article's figures leave out",
                ),
                Claim(
                    "Particularly with large tensors.",
                    "does not hold",
                    (tensor_of_one, tensor_of_the_largest, tensor_of_a_large_one),
                ),
                Claim(
                    "The other three are alike.",
                    "depends",
                    (the_family_without_gradient, the_family_with_gradient),
                    why="on whether gradient is required",
                ),
                Claim(
                    "They are two to three times faster than the first two.",
                    "does not hold",
                    (the_factor_at_its_largest, the_factor_of_the_largest),
                ),
                Claim(
                    "In several runs `detach().clone()` is slightly ahead, perhaps by chance.",
                    "depends",
                    (the_order_without_gradient, the_order_with_gradient),
                    why="on gradient: the article ran without, where the work is the same",
                ),
                Claim(
                    "The first two lose time with checks and conversions that the others have not.",
                    "holds",
                    (what_tensor_does,),
                ),
            ),
        ),
        Part(
            "Memory",
            (
                Claim("The addresses of the example differ.", "holds", (addresses_differ,)),
                Claim(
                    "That they differ confirms that memory is independent.",
                    "does not hold",
                    (different_addresses_and_one_memory,),
                ),
                Claim(
                    "`empty_like().copy_()` takes two steps: it allocates, then copies.",
                    "holds",
                    (two_steps,),
                ),
                Claim(
                    "`clone()` may allocate by a more efficient strategy.",
                    "does not hold",
                    (the_same_two_steps_in_a_clone,),
                ),
                Claim(
                    "`empty_like().copy_()` gives the most explicit control over memory.",
                    "depends",
                    (control_is_a_kept_destination,),
                    why="on whether the destination is kept",
                ),
            ),
        ),
        Part(
            "The recommendations",
            (
                Claim(
                    "`detach().clone()` is fast and leaves the graph.",
                    "holds",
                    (four_of_five_leave_the_graph, the_order_with_gradient),
                ),
                Claim(
                    "For a copy with gradient take `clone()` alone.",
                    "holds",
                    (a_clone_stays_in_the_graph,),
                ),
                Claim(
                    "Where speed is everything, consider `empty_like().copy_()`.",
                    "does not hold",
                    (the_family_with_gradient, copying_into_empty_keeps_the_gradient),
                ),
                Claim(
                    "Avoid `new_tensor()` and `tensor()` for copies: they warn and are slower.",
                    "holds",
                    (both_constructors_warn, tensor_of_one, new_tensor_of_one),
                ),
                Claim(
                    "A logged loss is to be copied, lest the graph be affected.",
                    "does not hold",
                    (the_value_of_a_loss,),
                ),
                Claim(
                    "With other versions of PyTorch the figures may change.",
                    "not testable here",
                    why="one version is installed; run `truecopy answers methods` with another",
                ),
            ),
        ),
    ),
    not_counted=(
        "What developers need copies for, what is the best choice in most cases, what is "
        "easier to read, that more lines are more complex, and "
        "that one should measure."
    ),
)
