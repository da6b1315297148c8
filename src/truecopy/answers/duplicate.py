"""The first article: how a tensor is duplicated N times."""

from __future__ import annotations

import torch

import truecopy as tc
from truecopy.answers.claims import Answer, Claim, Part, Race
from truecopy.answers.proving import allocated, nbytes, operations, refusal
from truecopy.answers.topics import TOPICS


def two_families() -> None:
    """Clones have bytes of their own; views reach the bytes of the original."""
    x = torch.randn(3, 4)
    clones = [x.clone() for _ in range(5)]
    assert all(tc.relate(clone, x).kind == "disjoint" for clone in clones)
    views = x.expand(5, 3, 4)
    assert all(tc.relate(view, x).kind == "identical" for view in views)


def views_take_less_memory() -> None:
    """Five views take the memory of one tensor, a stack of five takes five times as much."""
    x = torch.randn(3, 4)
    assert nbytes(x.expand(5, 3, 4)) == nbytes(x)
    assert nbytes(torch.stack([x] * 5)) == 5 * nbytes(x)


def views_take_less_time() -> Race:
    """What takes less memory takes less time too: nothing is traded for it but independence."""
    x = torch.randn(300, 400)
    return Race(
        "x.expand(50, 300, 400)", lambda x: x.expand(50, 300, 400),
        "torch.stack([x] * 50)", lambda x: torch.stack([x] * 50),
        on=x, expected="faster",
    )  # fmt: skip


def clones_of_dense_tensors() -> None:
    """N clones of a dense tensor take N times its memory."""
    x = torch.randn(3, 4)
    assert sum(nbytes(x.clone()) for _ in range(5)) == 5 * nbytes(x)


def clones_of_others() -> None:
    """A clone takes what the tensor shows: less than a slice keeps, more than an expansion keeps."""
    piece = torch.randn(1_000_000)[:3]
    assert (nbytes(piece), nbytes(piece.clone())) == (4_000_000, 12)
    wide = torch.randn(4).expand(1000, 4)
    assert (nbytes(wide), nbytes(wide.clone())) == (16, 16_000)


def one_copy_for_each_clone() -> None:
    """A list of clones copies once for each; a stack fills the same memory in one operation."""
    x = torch.randn(3, 4)
    assert operations(lambda: [x.clone() for _ in range(5)]).count("aten::copy_") == 5
    assert operations(lambda: torch.stack([x] * 5)).count("aten::cat") == 1


def larger_takes_longer() -> Race:
    """A clone of four million numbers takes longer than one of four thousand."""
    small, large = torch.randn(1 << 12), torch.randn(1 << 22)
    return Race(
        "clone of 2^12", lambda both: both[0].clone(),
        "clone of 2^22", lambda both: both[1].clone(),
        on=(small, large), expected="faster",
    )  # fmt: skip


def a_write_through_a_view() -> None:
    """A write through one view shows in all, and in the original: it cannot fail to."""
    x = torch.zeros(3, 4)
    views = x.expand(5, 3, 4)
    views[0][0, 0] = 100
    assert all(view[0, 0] == 100 for view in views)
    assert x[0, 0] == 100


def other_frameworks_jax() -> None:
    """JAX: arrays cannot be written to, so nobody can see whether two of them share memory."""
    import jax.numpy as jnp

    x = jnp.zeros(4)
    assert "immutable" in refusal(TypeError, lambda: x[:2].__setitem__(0, 1))


def other_frameworks_tensorflow() -> None:
    """TensorFlow: tensors cannot be written to either; variables can."""
    import tensorflow as tf  # type: ignore[import-untyped]

    assert not hasattr(tf.constant([1, 2]), "assign")
    assert tf.Variable([1, 2]).assign([3, 4]).numpy().tolist() == [3, 4]


def slices_are_views() -> None:
    """An index made of numbers and slices gives a view."""
    x = torch.zeros(4, 4)
    assert tc.relate(x[1:3], x).shares_memory
    assert tc.relate(x[0], x).shares_memory


def lists_and_masks_copy() -> None:
    """An index made of a list or a mask gives a copy."""
    x = torch.zeros(4, 4)
    assert not tc.relate(x[[1, 2]], x).shares_memory
    assert not tc.relate(x[x == 0], x).shares_memory


def kept_memory() -> Race:
    """For 40 MB it matters where the copy goes: into memory that is kept, or into new memory."""
    x = torch.randn(10_000_000)
    kept = torch.zeros_like(x)
    return Race("kept.copy_(x)", kept.copy_, "x.clone()", torch.clone, on=x, expected="faster")


def clones_are_independent() -> None:
    """A write to one clone reaches neither the others nor the original, and the other way round."""
    x = torch.zeros(3, 4)
    clones = [x.clone() for _ in range(5)]
    clones[0][0, 0] = 100
    x[1, 1] = 7
    assert [clone[0, 0].item() for clone in clones] == [100, 0, 0, 0, 0]
    assert x[0, 0] == 0
    assert all(clone[1, 1] == 0 for clone in clones)


def clones_of_a_weight() -> None:
    """Clones of what requires gradient are no leaves: a loss of one sends its gradient to the original."""
    weight = torch.ones(3, requires_grad=True)
    clones = [weight.clone() for _ in range(5)]
    assert not clones[0].is_leaf
    clones[0].sum().backward()
    assert weight.grad is not None
    assert [own.is_leaf for own in tc.duplicate(weight, 5)] == [True] * 5


def a_stack_has_a_duplicate_in_each_slice() -> None:
    """The stack has one new dimension, and each slice along it equals the original."""
    x = torch.randn(3, 4)
    stack = torch.stack([x] * 5, dim=0)
    assert stack.shape == (5, 3, 4)
    assert all(torch.equal(part, x) for part in stack)


def a_stack_takes_as_much() -> None:
    """A stack takes as many bytes as that many clones, be they 5 or 500."""
    x = torch.randn(3, 4)
    for n in 5, 500:
        assert nbytes(torch.stack([x] * n)) == sum(nbytes(x.clone()) for _ in range(n))
    assert allocated(lambda: torch.stack([x] * 5)) == allocated(
        lambda: [x.clone() for _ in range(5)]
    )


def slices_of_a_stack_are_apart() -> None:
    """`stack` copies: no slice shares a byte with another or with the original."""
    x = torch.zeros(3, 4)
    stack = torch.stack([x] * 5, dim=0)
    stack[0][0, 0] = 100
    assert [part[0, 0].item() for part in stack] == [100, 0, 0, 0, 0]
    assert x[0, 0] == 0
    assert tc.relate(stack[0], stack[1]).kind == "disjoint"


def a_stack_of_small_ones() -> Race:
    """One stack of 50 small duplicates against a list of 50 clones: one operation against 50."""
    x = torch.randn(3, 4)
    return Race(
        "torch.stack([x] * 50)", lambda x: torch.stack([x] * 50),
        "[x.clone() for _ in range(50)]", lambda x: [x.clone() for _ in range(50)],
        on=x, expected="faster",
    )  # fmt: skip


def a_stack_of_large_ones() -> Race:
    """One stack of 5 large duplicates against a list of 5 clones: the same bytes have to be written."""
    x = torch.randn(1 << 20)
    return Race(
        "torch.stack([x] * 5)", lambda x: torch.stack([x] * 5),
        "[x.clone() for _ in range(5)]", lambda x: [x.clone() for _ in range(5)],
        on=x,
    )  # fmt: skip


def one_object_in_a_list() -> None:
    """The list holds one object five times: no view is made, and no other tensor."""
    x = torch.randn(3, 4)
    names = [x for _ in range(5)]
    assert all(name is x for name in names)
    assert tc.relate(names[0], x[:]).kind == "identical"  # that is what a view would be


def references_take_no_memory() -> None:
    """Five references take no byte of tensor memory."""
    x = torch.randn(3, 4)
    assert allocated(lambda: [x for _ in range(5)]) == 0


def a_write_through_a_reference() -> None:
    """A write through any of the names is a write to the one tensor that all of them mean."""
    x = torch.zeros(3, 4)
    names = [x for _ in range(5)]
    names[0][0, 0] = 100
    assert x[0, 0] == 100
    assert names[1][0, 0] == 100


ANSWER = Answer(
    topic="duplicate",
    question=TOPICS["duplicate"],
    article="How can a tensor be duplicated N times?",
    answer=(
        "`[x.clone() for _ in range(n)]` makes n independent copies; `torch.stack([x] * n)` makes the "
        "same n copies in one block, and its slices share nothing either. "
        "`x.expand(n, *x.shape)` makes n views, which take no memory, and of which a write to one is a "
        "write to all. "
        "`tc.duplicate(x, n, how=...)` makes each of these of whole models, with gradients of their own, "
        "or copies that take memory only when they are written."
    ),
    parts=(
        Part(
            "Copies and views",
            (
                Claim(
                    "Either one makes N independent copies, or views that share the data.",
                    "holds",
                    (two_families,),
                ),
                Claim(
                    "It is a trade between memory and speed.",
                    "does not hold",
                    (views_take_less_memory, views_take_less_time),
                ),
                Claim(
                    "N independent copies allocate N times the memory of the original.",
                    "depends",
                    (clones_of_dense_tensors, clones_of_others),
                    why="on whether the tensor is dense and has its storage for itself",
                ),
                Claim(
                    "N copies may be N separate copy operations.",
                    "holds",
                    (one_copy_for_each_clone,),
                ),
                Claim("That is expensive for large tensors.", "holds", (larger_takes_longer,)),
                Claim(
                    "A view gives access to the same data from N places and saves memory.",
                    "holds",
                    (two_families, views_take_less_memory),
                ),
                Claim(
                    "The trap of views: a write through one may not show in the others.",
                    "does not hold",
                    (a_write_through_a_view,),
                ),
                Claim(
                    "This differs between PyTorch, TensorFlow and JAX.",
                    "holds",
                    (a_write_through_a_view, other_frameworks_jax, other_frameworks_tensorflow),
                ),
            ),
        ),
        Part(
            "Methods",
            (
                Claim(
                    "Views are made implicitly, by indexing or slicing.",
                    "depends",
                    (slices_are_views, lists_and_masks_copy),
                    why="on the index",
                ),
                Claim(
                    "How efficient a method is depends on the management of memory below it.",
                    "holds",
                    (kept_memory,),
                ),
                Claim(
                    "How efficient a method is depends on hardware acceleration.",
                    "not testable here",
                    why="it takes a GPU, and truecopy is tested on CPUs",
                ),
            ),
        ),
        Part(
            "Example 1: a list of clones",
            (
                Claim(
                    "`clone()` makes independent copies; a write to one does not reach the others.",
                    "holds",
                    (clones_are_independent,),
                ),
                Claim(
                    "That guarantees the integrity of the data.", "holds", (clones_are_independent,)
                ),
                Claim("It takes more memory.", "holds", (clones_of_dense_tensors,)),
                Claim(
                    "It suits whoever wants to modify the duplicates independently.",
                    "depends",
                    (clones_are_independent, clones_of_a_weight),
                    why="on whether the tensor requires gradient",
                ),
            ),
        ),
        Part(
            "Example 2: a stack",
            (
                Claim(
                    "`stack` makes a new tensor, each slice of which is a duplicate.",
                    "holds",
                    (a_stack_has_a_duplicate_in_each_slice,),
                ),
                Claim(
                    "A stack takes less memory than N clones, for it stores nothing twice.",
                    "does not hold",
                    (a_stack_takes_as_much,),
                ),
                Claim("Especially where N is large.", "does not hold", (a_stack_takes_as_much,)),
                Claim(
                    "A write to one slice affects all slices, since they share data.",
                    "does not hold",
                    (slices_of_a_stack_are_apart,),
                ),
                Claim(
                    "So it suits duplicates that are not modified, or only all together.",
                    "does not hold",
                    (slices_of_a_stack_are_apart,),
                ),
                Claim(
                    "It is the efficient way to duplicate.",
                    "depends",
                    (a_stack_of_small_ones, a_stack_of_large_ones),
                    why="on the size: it saves operations, not bytes",
                ),
            ),
        ),
        Part(
            'Example 3: "views"',
            (
                Claim(
                    "`[x for _ in range(N)]` makes views.", "does not hold", (one_object_in_a_list,)
                ),
                Claim(
                    "It makes N references to the same tensor.", "holds", (one_object_in_a_list,)
                ),
                Claim("It takes no further memory.", "holds", (references_take_no_memory,)),
                Claim("A write to one affects all.", "holds", (a_write_through_a_reference,)),
            ),
        ),
    ),
    not_counted=(
        "What the author has seen in projects, what is recommended for read-only use, what to read, and "
        "that one should measure."
    ),
)
