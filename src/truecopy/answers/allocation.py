"""The third article: why repeating an operation moves a tensor to new memory."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import truecopy as tc
from truecopy import _torch
from truecopy.answers.claims import Answer, Claim, Part, Race
from truecopy.answers.proving import refusal
from truecopy.answers.topics import TOPICS


def arithmetic_makes_new_tensors() -> None:
    """Sums and products are new tensors in memory of their own."""
    a = torch.tensor([1, 2, 3])
    for made in (a + 1, a * 2, torch.relu(a)):
        assert tc.relate(made, a).kind == "disjoint"


def shapes_make_views() -> None:
    """What changes the shape alone allocates nothing, while the strides can express it."""
    b = torch.arange(6).reshape(2, 3)
    for made in (b.reshape(3, 2), b.view(6), b.t(), b.unsqueeze(0), b.flatten()):
        assert tc.relate(made, b).kind == "identical"


def reshaping_a_transposed_tensor() -> None:
    """`reshape` copies where no strides can express the new shape, as after a transposition."""
    b = torch.arange(6).reshape(2, 3)
    assert tc.relate(b.t().reshape(6), b).kind == "disjoint"
    assert refusal(RuntimeError, lambda: b.t().view(6))  # `view` never copies: it raises


def in_place_is_the_faster_way() -> Race:
    """New memory is what costs: adding to 40 MB in place is faster than into new memory."""
    a = torch.zeros(10_000_000)
    return Race("a.add_(1)", lambda a: a.add_(1), "a + 1", lambda a: a + 1, on=a, expected="faster")


def the_input_stays() -> None:
    """An operation that makes a new tensor leaves its input as it was."""
    a = torch.tensor([1, 2, 3])
    _ = a + 1, a * 2, a.reshape(3, 1)
    assert a.tolist() == [1, 2, 3]


def tensors_are_mutable() -> None:
    """PyTorch tensors and NumPy arrays are mutable, by an assignment or by a method."""
    a = torch.tensor([1, 2, 3])
    a[0] = 9
    a.mul_(2)
    assert a.tolist() == [18, 4, 6]
    n = np.array([1, 2, 3])
    n[0] = 9
    assert n.tolist() == [9, 2, 3]


def jax_arrays_are_immutable() -> None:
    """JAX arrays are immutable."""
    import jax.numpy as jnp

    x = jnp.zeros(3)
    assert "immutable" in refusal(TypeError, lambda: x.__setitem__(0, 1))


def tensorflow_tensors_are_immutable() -> None:
    """TensorFlow tensors are immutable; its variables are not."""
    import tensorflow as tf  # type: ignore[import-untyped]

    x = tf.constant([1, 2, 3])
    assert not hasattr(x, "__setitem__")
    assert tf.Variable([1, 2]).assign_add([1, 1]).numpy().tolist() == [2, 3]


def in_place_reaches_every_user() -> None:
    """A write in place is seen by everyone who holds the tensor or a view of it."""
    a = torch.zeros(3)
    kept_elsewhere = {"mean": a, "first": a[:1]}
    a.add_(1)
    assert kept_elsewhere["mean"].tolist() == [1, 1, 1]
    assert kept_elsewhere["first"].tolist() == [1]


def the_same_call_gives_another_result() -> None:
    """A call that makes a new tensor may depend on more than its input: here on the generator."""
    a = torch.ones(1000)
    assert not torch.equal(functional.dropout(a), functional.dropout(a))


def a_function_that_writes_to_its_arguments() -> None:
    """Batch norm returns a new tensor, and writes running statistics into two of its arguments."""
    mean, var = torch.zeros(2), torch.ones(2)
    functional.batch_norm(torch.randn(8, 2) + 5, mean, var, training=True)
    assert mean.abs().sum() > 0


def autograd_refuses_what_it_cannot_follow() -> None:
    """Autograd notices that a value it needs was overwritten, and raises: no wrong gradient."""
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    y.add_(1)
    message = refusal(RuntimeError, lambda: y.sum().backward())
    assert "modified by an inplace operation" in message


def a_write_that_autograd_does_not_see() -> None:
    """Through `.data` or NumPy autograd does not see the write: the gradient is wrong, and nothing raises."""
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    y.data.zero_()
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 0, 0]  # and not e


def in_place_has_a_gradient() -> None:
    """Autograd follows operations in place, and gradients through them are right."""
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.mul_(3).add_(1)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6, 6, 6]


def a_graph_where_gradient_is_required() -> None:
    """A graph is recorded for what requires gradient, and for nothing else."""
    assert (torch.ones(3, requires_grad=True) + 1).grad_fn is not None
    assert (torch.ones(3) + 1).grad_fn is None
    with torch.no_grad():
        assert (torch.ones(3, requires_grad=True) + 1).grad_fn is None


def numpy_records_nothing() -> None:
    """NumPy has no graph."""
    assert not hasattr(np.ones(3) + 1, "grad_fn")


def the_graph_keeps_results() -> None:
    """The graph keeps the values that its gradients need, by reference: `exp` keeps its result."""
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = torch.ones(3, requires_grad=True).exp()
    assert tc.relate(kept[0], y).shares_memory


def views_are_in_the_graph_without_memory() -> None:
    """The graph records operations, not memory: a view has a node and allocates nothing."""
    x = torch.ones(2, 3, requires_grad=True)
    y = x.reshape(6)
    assert y.grad_fn is not None
    assert tc.relate(x, y).kind == "identical"
    assert tc.relate(x, y).connected


def no_public_operation_copies_on_write() -> None:
    """`a + 1` and `clone` take memory of their own at once, whether it is written or not."""
    a = torch.zeros(1000)
    for made in (a + 1, a.clone()):
        assert "share pages" not in tc.relate(made, a).why
        assert made.data_ptr() != a.data_ptr()


def torch_can_copy_on_write() -> None:
    """PyTorch has copy-on-write clones, which only its internals and `tc.duplicate` hand out."""
    first, second = tc.duplicate(torch.zeros(1000), 2, how="lazy")
    assert "share pages" in tc.relate(first, second).why
    first.fill_(1)
    assert second.sum() == 0
    assert "share pages" not in tc.relate(first, second).why


def a_lazy_copy_that_was_not_one() -> None:
    """Who took the address before the clone was made writes into both: here a NumPy array does."""
    a = torch.zeros(3)
    array = a.numpy()
    lazy = _torch.lazy_clone(a)
    array[0] = 1
    if _torch.lazy_clones_hold():  # else it is an ordinary clone
        assert lazy.tolist() == [1, 0, 0]


def names_with_an_underscore() -> None:
    """A method whose name ends in an underscore writes to its own tensor and returns it."""
    c = torch.tensor([4, 5, 6])
    address = c.data_ptr()
    assert c.add_(1) is c
    assert c.data_ptr() == address


def in_place_without_an_underscore() -> None:
    """`+=`, an assignment to an index and `out=` write in place too, and no underscore says so."""
    c = torch.tensor([4, 5, 6])
    address = c.data_ptr()
    c += 1
    c[0] = 0
    torch.add(c, 1, out=c)
    assert c.tolist() == [1, 7, 8]
    assert c.data_ptr() == address


def adding_one_moves() -> None:
    """`a = a + 1` binds the name to another tensor elsewhere; the first stays as it was."""
    a = before = torch.tensor([1, 2, 3])
    a = a + 1
    assert a is not before
    assert a.data_ptr() != before.data_ptr()
    assert before.tolist() == [1, 2, 3]


def addresses_come_back() -> None:
    """Each round allocates, but from memory that an earlier round freed: addresses come back."""
    a = torch.tensor([1, 2, 3])
    addresses = set()
    for _ in range(10_000):
        a = a + 1
        addresses.add(a.data_ptr())
    assert len(addresses) < 10_000


def the_same_sum_in_place() -> None:
    """The same sum can be written into memory that is there: the formula decides nothing."""
    a = torch.tensor([1, 2, 3])
    address = a.data_ptr()
    torch.add(a, 1, out=a)
    assert a.tolist() == [2, 3, 4]
    assert a.data_ptr() == address


def reshaping_stays() -> None:
    """Each `reshape` of the example is another tensor object over the same memory."""
    b = torch.arange(6).reshape(2, 3)
    address = b.data_ptr()
    for _ in range(2):
        before, b = b, b.reshape(3, 2)
        assert b is not before
        assert b.data_ptr() == address


def numpy_reshapes_in_place_too() -> None:
    """NumPy's `reshape` gives a view as well."""
    b = np.arange(6)
    assert np.shares_memory(b, b.reshape(2, 3))


ANSWER = Answer(
    topic="allocation",
    question=TOPICS["allocation"],
    article="Why does repeating an operation cause a tensor to be allocated to a new memory location?",
    answer=(
        "`a = a + 1` computes a result into new memory and gives its name to it; nothing moves, the old "
        "tensor stays until nobody holds it, and its memory is handed out again. "
        "It is no law: `reshape`, `view`, `t` and slices return views and allocate nothing where strides "
        "can express the result, and `a += 1`, `a.add_(1)` and `out=a` write where the tensor is. "
        "Autograd follows all three, and raises where a write destroyed what a gradient needs, unless "
        "the write was made behind its back."
    ),
    parts=(
        Part(
            "The reasons",
            (
                Claim(
                    "Operations that modify or reshape often allocate rather than work in place.",
                    "depends",
                    (arithmetic_makes_new_tensors, shapes_make_views, names_with_an_underscore),
                    why="on the operation",
                ),
                Claim(
                    "New memory is allocated as an optimization of computing.",
                    "does not hold",
                    (in_place_is_the_faster_way,),
                ),
                Claim("It keeps data intact.", "holds", (the_input_stays,)),
                Claim(
                    "The driving force is that tensors are immutable, at least logically.",
                    "depends",
                    (
                        tensors_are_mutable,
                        jax_arrays_are_immutable,
                        tensorflow_tensors_are_immutable,
                    ),
                    why="on the framework",
                ),
                Claim(
                    "Additions and multiplications construct new tensors.",
                    "holds",
                    (arithmetic_makes_new_tensors,),
                ),
                Claim(
                    "So do reshapes.",
                    "depends",
                    (shapes_make_views, reshaping_a_transposed_tensor),
                    why="on the strides: a view where they can express the shape, a copy where not",
                ),
                Claim("Such operations do not alter their input.", "holds", (the_input_stays,)),
                Claim(
                    "A write in place is error-prone where a tensor is used in several places.",
                    "holds",
                    (in_place_reaches_every_user,),
                ),
                Claim(
                    "New results make concurrency safe and simple.",
                    "not testable here",
                    why="a race of threads that does not show in a test proves nothing",
                ),
                Claim(
                    "The result is determined by the input alone; repeated calls give the same.",
                    "does not hold",
                    (the_same_call_gives_another_result, a_function_that_writes_to_its_arguments),
                ),
                Claim(
                    "Writes in place to parts of a graph cause problems that are hard to track down.",
                    "depends",
                    (autograd_refuses_what_it_cannot_follow, a_write_that_autograd_does_not_see),
                    why="on whether autograd sees the write",
                ),
            ),
        ),
        Part(
            "Automatic differentiation",
            (
                Claim(
                    "These frameworks record a graph of operations automatically.",
                    "depends",
                    (a_graph_where_gradient_is_required, numpy_records_nothing),
                    why="on the framework, and on whether gradient is required",
                ),
                Claim("The graph stores what gradients need.", "holds", (the_graph_keeps_results,)),
                Claim(
                    "Through a tensor modified in place gradients can hardly be propagated.",
                    "does not hold",
                    (in_place_has_a_gradient, autograd_refuses_what_it_cannot_follow),
                ),
                Claim(
                    "New memory for each result is what keeps the record of operations.",
                    "does not hold",
                    (views_are_in_the_graph_without_memory, in_place_has_a_gradient),
                ),
            ),
        ),
        Part(
            "Optimizations",
            (
                Claim(
                    "Frameworks copy on write: a reference until somebody modifies it.",
                    "depends",
                    (no_public_operation_copies_on_write, torch_can_copy_on_write),
                    why="on who asks: no public operation does",
                ),
                Claim(
                    "That keeps the meaning of a new result.",
                    "depends",
                    (torch_can_copy_on_write, a_lazy_copy_that_was_not_one),
                    why="on whether somebody holds the address already",
                ),
                Claim(
                    "Some operations modify in place, and signal it explicitly.",
                    "depends",
                    (
                        names_with_an_underscore,
                        in_place_without_an_underscore,
                        a_function_that_writes_to_its_arguments,
                    ),
                    why="on the operation: several give no sign",
                ),
            ),
        ),
        Part(
            "Example 1: a + 1",
            (
                Claim("`a + 1` leaves the memory of `a` as it is.", "holds", (adding_one_moves,)),
                Claim("The result lies at another address.", "holds", (adding_one_moves,)),
                Claim("The name is bound to the new tensor.", "holds", (adding_one_moves,)),
                Claim(
                    "The loop allocates new memory again and again.",
                    "depends",
                    (adding_one_moves, addresses_come_back),
                    why="on what is meant: it allocates each time, and gets freed memory back",
                ),
                Claim(
                    "It must, for in mathematics a + 1 does not modify a.",
                    "does not hold",
                    (the_same_sum_in_place,),
                ),
            ),
        ),
        Part(
            "Example 2: reshape",
            (
                Claim(
                    "Each `reshape` of the example generates a tensor at a different address.",
                    "does not hold",
                    (reshaping_stays,),
                ),
                Claim(
                    "`reshape` only seems to change the view; it creates new tensors.",
                    "depends",
                    (reshaping_stays, reshaping_a_transposed_tensor),
                    why="on what is new: the object always, the memory only where strides forbid a view",
                ),
                Claim(
                    "Frameworks keep to this consistently.",
                    "does not hold",
                    (shapes_make_views, numpy_reshapes_in_place_too),
                ),
            ),
        ),
        Part(
            "Example 3: add_",
            (
                Claim(
                    "`add_()` works in place, as its underscore says.",
                    "holds",
                    (names_with_an_underscore,),
                ),
                Claim("The memory location stays the same.", "holds", (names_with_an_underscore,)),
                Claim("`c + 1` then makes a new tensor elsewhere.", "holds", (adding_one_moves,)),
            ),
        ),
        Part(
            "Conclusion",
            (
                Claim(
                    "A new tensor at each operation only seems inefficient.",
                    "does not hold",
                    (in_place_is_the_faster_way,),
                ),
                Claim(
                    "New tensors show clearly how gradients are propagated.",
                    "does not hold",
                    (views_are_in_the_graph_without_memory, in_place_has_a_gradient),
                ),
            ),
        ),
    ),
    not_counted=(
        "What the author has seen in a pipeline, what is simpler or safer to design, and what to read "
        "and to profile."
    ),
)
