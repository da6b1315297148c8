"""The fifth article: how copy.deepcopy and contiguous() differ."""

from __future__ import annotations

import copy

import torch

import truecopy as tc
from truecopy.answers.claims import Answer, Claim, Part, Race
from truecopy.answers.proving import allocated, nbytes, refusal
from truecopy.answers.topics import TOPICS


def where_the_method_is() -> None:
    """The method is `torch.Tensor.contiguous`; `torch.tensor` is a function and has none."""
    assert "no attribute 'contiguous'" in refusal(
        AttributeError,
        lambda: getattr(torch.tensor, "contiguous"),  # noqa: B009 - as written there
    )
    assert callable(torch.Tensor.contiguous)


def contiguous_of_contiguous() -> None:
    """Of a contiguous tensor, `contiguous()` returns the tensor itself: no copy, no new object."""
    x = torch.tensor([[1, 2], [3, 4]])
    assert x.contiguous() is x
    assert allocated(x.contiguous) == 0


def contiguous_of_others() -> None:
    """Of a tensor that is not contiguous, `contiguous()` returns a copy in memory of its own."""
    x = torch.tensor([[1, 2], [3, 4]]).t()
    dense = x.contiguous()
    assert tc.relate(dense, x).kind == "disjoint"
    assert allocated(x.contiguous) == nbytes(dense) == nbytes(x)
    dense[0, 0] = 10
    assert x[0, 0] == 1


def the_original_keeps_its_layout() -> None:
    """`contiguous()` leaves the tensor that it is called on as it lies."""
    x = torch.tensor([[1, 2], [3, 4]]).t()
    before = x.stride(), x.data_ptr()
    x.contiguous()
    assert (x.stride(), x.data_ptr()) == before
    assert not x.is_contiguous()


def deepcopy_of_a_leaf() -> None:
    """A deepcopy of a leaf shares no byte with it, and keeps strides, flags and `.grad`."""
    x = torch.ones(2, 3).t().requires_grad_()
    x.grad = torch.ones(2, 3).t()
    copied = copy.deepcopy(x)
    assert tc.relate(copied, x).kind == "disjoint"
    assert copied.grad is not None
    assert not tc.relate(copied.grad, x.grad).shares_memory
    assert (copied.stride(), copied.requires_grad) == (x.stride(), True)


def deepcopy_of_a_result() -> None:
    """A deepcopy of what autograd computed raises."""
    x = torch.ones(3, requires_grad=True) * 2
    assert "graph leaves" in refusal(RuntimeError, lambda: copy.deepcopy(x))


def deepcopy_of_attributes() -> None:
    """A tensor's attributes are copied deeply; those of a Parameter are lost, and its `.grad`."""
    x = torch.zeros(3)
    x.notes = ["one"]  # type: ignore[attr-defined]
    copied = copy.deepcopy(x)
    assert copied.notes == ["one"]  # type: ignore[attr-defined]
    assert copied.notes is not x.notes  # type: ignore[attr-defined]
    weight = torch.nn.Parameter(torch.zeros(3))
    weight.notes = ["one"]  # type: ignore[attr-defined]
    weight.grad = torch.ones(3)
    assert not hasattr(copy.deepcopy(weight), "notes")
    assert copy.deepcopy(weight).grad is None


def deepcopy_is_independent() -> None:
    """A write to the copy does not reach the original, nor the other way round."""
    original = torch.tensor([[1, 2], [3, 4]])
    copied = copy.deepcopy(original)
    copied[0, 0] = 10
    original[1, 1] = 20
    assert (original[0, 0].item(), copied[0, 0].item()) == (1, 10)
    assert copied[1, 1] == 4


def deepcopy_of_a_piece() -> None:
    """A deepcopy copies the whole storage: of three numbers out of a million, four megabytes."""
    piece = torch.zeros(1_000_000)[:3]
    assert nbytes(copy.deepcopy(piece)) == 4_000_000
    assert nbytes(piece.clone()) == 12


def deepcopy_against_clone() -> Race:
    """Of a million numbers a deepcopy takes less than twice as long as a clone."""
    x = torch.randn(1000, 1000)
    return Race("copy.deepcopy(x)", copy.deepcopy, "x.clone()", torch.clone, on=x, denied=(2, None))


def deepcopy_of_a_small_one() -> Race:
    """Of four numbers a deepcopy takes longer than a clone, and by more: Python is what takes the time."""
    x = torch.randn(2, 2)
    return Race(
        "copy.deepcopy(x)", copy.deepcopy, "x.clone()", torch.clone, on=x, expected="slower"
    )


def what_is_not_contiguous() -> None:
    """A column, every second row and a transposition are not contiguous."""
    x = torch.zeros(4, 4)
    assert not x[:, 0:1].is_contiguous()
    assert not x[::2].is_contiguous()
    assert not x.t().is_contiguous()


def what_is_contiguous_all_the_same() -> None:
    """Rows in one piece, a transposed row and a reshape are contiguous."""
    x = torch.zeros(4, 4)
    assert x[1:3].is_contiguous()
    assert x[0:1].t().is_contiguous()
    assert x.view(2, 8).is_contiguous()


def the_sum_of_a_transposition() -> Race:
    """The sum of a transposed tensor takes less than half as long again as that of a contiguous one."""
    x = torch.randn(1000, 1000)
    return Race(
        "sum of x.t()", lambda both: both[0].sum(),
        "sum of x", lambda both: both[1].sum(),
        on=(x.t(), x), denied=(1.5, None),
    )  # fmt: skip


def the_sum_of_columns() -> Race:
    """The sum of every 16th column takes longer than that of as many numbers in one piece."""
    columns = torch.randn(1000, 16_000)[:, ::16]
    return Race(
        "sum of every 16th column", lambda both: both[0].sum(),
        "sum of them made contiguous", lambda both: both[1].sum(),
        on=(columns, columns.contiguous()), expected="slower",
    )  # fmt: skip


def the_slice_of_the_example() -> None:
    """The slice of the example is one row, and contiguous: `is_contiguous()` prints True twice."""
    original = torch.tensor([[1, 2], [3, 4]])
    sliced = original[0:1, :]
    assert sliced.is_contiguous()
    assert sliced.contiguous().is_contiguous()


def the_result_of_the_example() -> None:
    """`contiguous()` returns the slice itself, so the write reaches the original through the slice."""
    original = torch.tensor([[1, 2], [3, 4]])
    sliced = original[0:1, :]
    dense = sliced.contiguous()
    assert dense is sliced
    dense[0, 0] = 10
    assert original[0, 0] == 10


def the_same_with_a_column() -> None:
    """With a slice that is not contiguous the write of the example does not reach the original."""
    original = torch.tensor([[1, 2], [3, 4]])
    dense = original[:, 0:1].contiguous()
    dense[0, 0] = 10
    assert original[0, 0] == 1


def of_a_contiguous_million() -> Race:
    """Of a contiguous tensor a deepcopy is slower: it copies, and `contiguous()` does nothing."""
    x = torch.randn(1000, 1000)
    return Race(
        "copy.deepcopy(x)", copy.deepcopy,
        "x.contiguous()", torch.Tensor.contiguous,
        on=x, expected="slower",
    )  # fmt: skip


def of_a_transposed_million() -> Race:
    """Of a transposed tensor a deepcopy is faster: it copies bytes as they lie, and gathers none."""
    x = torch.randn(1000, 1000).t()
    return Race(
        "copy.deepcopy(x.t())", copy.deepcopy,
        "x.t().contiguous()", torch.Tensor.contiguous,
        on=x, expected="faster",
    )  # fmt: skip


def deepcopy_grows() -> Race:
    """The time of a deepcopy grows with the tensor."""
    return Race(
        "deepcopy of 10 x 10", lambda both: copy.deepcopy(both[0]),
        "deepcopy of 1000 x 1000", lambda both: copy.deepcopy(both[1]),
        on=(torch.randn(10, 10), torch.randn(1000, 1000)), expected="faster",
    )  # fmt: skip


def contiguous_does_not_grow() -> Race:
    """The time of `contiguous()` of a contiguous tensor does not grow with it."""
    return Race(
        "contiguous of 10 x 10", lambda both: both[0].contiguous(),
        "contiguous of 1000 x 1000", lambda both: both[1].contiguous(),
        on=(torch.randn(10, 10), torch.randn(1000, 1000)), denied=(0, 0.5),
    )  # fmt: skip


def the_example_as_printed() -> None:
    """As printed the third example ends with a NameError: it imports time and torch, and not copy."""
    example = "import time\nimport torch\ncopied_tensor = copy.deepcopy(torch.randn(10, 10))"
    assert "'copy' is not defined" in refusal(NameError, lambda: exec(example, {}))


ANSWER = Answer(
    topic="contiguous",
    question=TOPICS["contiguous"],
    article="How do `copy.deepcopy` and `torch.tensor.contiguous()` differ for PyTorch tensors?",
    answer=(
        "`copy.deepcopy(x)` always makes a copy, of the whole storage, or raises where autograd computed "
        "`x`. "
        "`x.contiguous()` returns `x` itself where `x` is contiguous, and a copy where it is not: so it "
        "shares all or nothing, and to write into its result is right in one case and wrong in the "
        "other. "
        "For a copy write `x.clone()` (in the graph) or `x.detach().clone()` (outside of it), with "
        "`memory_format=torch.contiguous_format` where the layout matters."
    ),
    parts=(
        Part(
            "The difference",
            (
                Claim(
                    "The method is called `torch.tensor.contiguous()`.",
                    "does not hold",
                    (where_the_method_is,),
                ),
                Claim(
                    "deepcopy makes an entirely independent copy, with data and metadata.",
                    "depends",
                    (deepcopy_of_a_leaf, deepcopy_of_a_result, deepcopy_of_attributes),
                    why="on the tensor: a leaf, a result of autograd, or a Parameter",
                ),
                Claim(
                    "`contiguous()` reorganizes the tensor's data in memory.",
                    "does not hold",
                    (the_original_keeps_its_layout, contiguous_of_contiguous),
                ),
                Claim(
                    "The difference matters most on GPUs.",
                    "not testable here",
                    why="it takes a GPU, and truecopy is tested on CPUs",
                ),
            ),
        ),
        Part(
            "deepcopy",
            (
                Claim(
                    "It duplicates the data and, recursively, what the attributes hold.",
                    "depends",
                    (deepcopy_of_attributes,),
                    why="on the class: a Parameter loses its attributes",
                ),
                Claim(
                    "A write to the copy never reaches the original, nor the other way round.",
                    "holds",
                    (deepcopy_is_independent,),
                ),
                Claim(
                    "Its cost is proportional to the size of the tensor.",
                    "does not hold",
                    (deepcopy_of_a_piece,),
                ),
                Claim(
                    "It is relatively expensive for large tensors.",
                    "depends",
                    (deepcopy_against_clone, deepcopy_of_a_small_one, of_a_contiguous_million),
                    why="on what it is compared with: beside a clone it is dear for small ones",
                ),
            ),
        ),
        Part(
            "contiguous",
            (
                Claim(
                    "It only concerns the layout in memory.",
                    "does not hold",
                    (contiguous_of_others,),
                ),
                Claim(
                    "Tensors do not always store their elements in one piece.",
                    "holds",
                    (what_is_not_contiguous,),
                ),
                Claim(
                    "Slicing, transposing or viewing a part makes them so.",
                    "depends",
                    (what_is_not_contiguous, what_is_contiguous_all_the_same),
                    why="on the slice and on the shape",
                ),
                Claim(
                    "Tensors that are not contiguous are slower to use.",
                    "depends",
                    (the_sum_of_a_transposition, the_sum_of_columns),
                    why="on the layout and on the operation",
                ),
                Claim(
                    "Particularly on GPUs.",
                    "not testable here",
                    why="it takes a GPU, and truecopy is tested on CPUs",
                ),
                Claim(
                    "It creates a new tensor with the same data in one piece.",
                    "depends",
                    (contiguous_of_others, contiguous_of_contiguous),
                    why="on the tensor: a contiguous one is returned as it is",
                ),
                Claim(
                    "The new tensor shares its data with the original.",
                    "does not hold",
                    (contiguous_of_others,),
                ),
                Claim(
                    "A write to either reaches the other.",
                    "depends",
                    (the_result_of_the_example, the_same_with_a_column),
                    why="on the tensor: yes where it was contiguous, no where it was not",
                ),
                Claim(
                    "It gives efficient access without duplicating data.",
                    "does not hold",
                    (contiguous_of_others,),
                ),
            ),
        ),
        Part(
            "Example 1: deepcopy",
            (
                Claim(
                    "The write to the copy does not affect the original.",
                    "holds",
                    (deepcopy_is_independent,),
                ),
            ),
        ),
        Part(
            "Example 2: contiguous",
            (
                Claim(
                    "`original[0:1, :]` is not contiguous.",
                    "does not hold",
                    (the_slice_of_the_example,),
                ),
                Claim(
                    "`is_contiguous()` shows that.", "does not hold", (the_slice_of_the_example,)
                ),
                Claim(
                    "`contiguous()` of it is a new tensor.",
                    "does not hold",
                    (the_result_of_the_example,),
                ),
                Claim("A write to it changes the original.", "holds", (the_result_of_the_example,)),
                Claim(
                    "Because `contiguous()` shares data with what it was called on.",
                    "does not hold",
                    (the_result_of_the_example, the_same_with_a_column),
                ),
            ),
        ),
        Part(
            "Example 3: speed",
            (
                Claim("The example runs as printed.", "does not hold", (the_example_as_printed,)),
                Claim(
                    "deepcopy consistently takes much longer than `contiguous()`.",
                    "depends",
                    (of_a_contiguous_million, of_a_transposed_million),
                    why="on whether `contiguous()` has anything to do; in the example it has not",
                ),
                Claim(
                    "Especially for large tensors.",
                    "depends",
                    (deepcopy_grows, contiguous_does_not_grow, of_a_transposed_million),
                    why="on the layout: only of a contiguous tensor is `contiguous()` free",
                ),
                Claim(
                    "On a GPU a tensor that is not contiguous slows things down significantly.",
                    "not testable here",
                    why="it takes a GPU, and truecopy is tested on CPUs",
                ),
            ),
        ),
    ),
    not_counted=(
        "What the author has seen in networks, searches and pipelines, that the choice depends on the "
        "need, and what to read."
    ),
)
