"""The fourth article: how to deepcopy tensors that a model creates on its way."""

from __future__ import annotations

import copy
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import truecopy as tc
from truecopy.answers.claims import Answer, Claim, Part
from truecopy.answers.proving import nbytes, refusal
from truecopy.answers.topics import TOPICS


def simple_model() -> nn.Linear:
    """The first model of the article."""
    return nn.Linear(10, 5)


def complex_model() -> nn.Sequential:
    """The second: two layers with an activation between them."""
    return nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 2))


def deep_detach_copy(tensor: Any) -> Any:
    """The article's function."""
    if isinstance(tensor, torch.Tensor):
        return copy.deepcopy(tensor.detach())
    if isinstance(tensor, (list, tuple)):
        return [deep_detach_copy(item) for item in tensor]
    if isinstance(tensor, dict):
        return {k: deep_detach_copy(v) for k, v in tensor.items()}
    return copy.deepcopy(tensor)


Point = namedtuple("Point", "x y")


@dataclass
class Output:
    """What many models return: an object with tensors in it."""

    logits: Tensor


def deepcopy_of_an_output_raises() -> None:
    """A deepcopy of an output fails at once, with an error: an output is no leaf of the graph."""
    for model in simple_model(), complex_model():
        output = model(torch.randn(1, 10))
        assert "graph leaves" in refusal(RuntimeError, partial(copy.deepcopy, output))


def deepcopy_without_gradient() -> None:
    """Where no graph is recorded, the output of the same model is a leaf, and is copied."""
    with torch.no_grad():
        output = complex_model()(torch.randn(1, 10))
    assert tc.relate(copy.deepcopy(output), output).kind == "disjoint"


def no_method_copy() -> None:
    """Tensors have no method `copy`."""
    assert not hasattr(torch.Tensor, "copy")


def intermediate_results() -> None:
    """Each layer makes a tensor that no name in the model's code means; forward hooks are shown them."""
    model = complex_model()
    seen: list[Tensor] = []
    for layer in model:
        layer.register_forward_hook(lambda _layer, _inputs, output: seen.append(output))
    output = model(torch.randn(1, 10))
    assert len(seen) == 3
    assert seen[-1] is output
    assert not tc.relate(seen[0], seen[1]).shares_memory


def an_activation_in_place() -> None:
    """An activation in place makes no new tensor: it writes over the result of the layer before it."""
    hidden = simple_model()(torch.randn(1, 10))
    assert tc.relate(nn.ReLU(inplace=True)(hidden), hidden).shares_memory


def relu_makes_a_tensor() -> None:
    """`torch.relu` returns a tensor in memory of its own."""
    x = torch.randn(1, 5)
    assert tc.relate(torch.relu(x), x).kind == "disjoint"


def the_graph_refers_to_tensors() -> None:
    """The graph keeps tensors that the backward pass needs: here the output of the activation."""
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = torch.relu(simple_model()(torch.randn(1, 10)))
    assert any(tc.relate(hidden, one).shares_memory for one in kept)


def a_shallow_copy() -> None:
    """`copy.copy` gives another tensor object over the same memory; a write to it reaches the output."""
    output = simple_model()(torch.randn(1, 10))
    shallow = copy.copy(output)
    assert shallow is not output
    assert tc.relate(shallow, output).kind == "identical"


def a_deep_copy_has_no_graph() -> None:
    """What deepcopy returns is a leaf, and refers to no graph."""
    weight = simple_model().weight
    copied = copy.deepcopy(weight)
    assert copied.grad_fn is None
    assert not tc.relate(copied, weight).connected


def a_write_to_a_deep_copy() -> None:
    """A write to a deep copy reaches neither the model nor its gradients."""
    model = complex_model()
    output = model(torch.randn(1, 10))
    before = output.detach().clone()
    copy.deepcopy(output.detach()).zero_()
    copied = copy.deepcopy(model).requires_grad_(False)
    for weight in copied.parameters():
        weight.zero_()
    assert all(weight.abs().sum() > 0 for weight in model.parameters())
    assert torch.equal(output, before)
    output.sum().backward()


def detach_shares() -> None:
    """`detach()` gives a new tensor object with the same memory, which autograd does not follow."""
    output = simple_model()(torch.randn(1, 10))
    detached = output.detach()
    assert not detached.requires_grad
    assert tc.relate(detached, output).kind == "identical"


def a_write_to_a_detached_output() -> None:
    """What was detached is still the model's memory: a write to it breaks the backward pass."""
    model = nn.Sequential(nn.Linear(10, 5), nn.Sigmoid())
    output = model(torch.randn(1, 10))
    output.detach().zero_()
    assert output.sum() == 0
    message = refusal(RuntimeError, lambda: output.sum().backward())
    assert "modified by an inplace operation" in message


def a_write_to_a_detached_weight() -> None:
    """A write to a detached weight changes the model."""
    model = simple_model()
    model.weight.detach().zero_()
    assert model.weight.abs().sum() == 0


def other_ways_to_a_copy() -> None:
    """There are other ways to a copy: `clone().detach()`, `tc.copy`, and for leaves deepcopy alone."""
    output = simple_model()(torch.randn(1, 10))
    for copied in output.clone().detach(), tc.copy(output):
        assert tc.relate(copied, output).kind == "disjoint"
        assert not tc.relate(copied, output).connected
    weight = simple_model().weight
    assert tc.relate(copy.deepcopy(weight), weight).kind == "disjoint"


def detach_and_clone() -> None:
    """After `detach()`, `clone()` copies as independently, and without what a view does not show."""
    output = simple_model()(torch.randn(1000, 10))
    piece = output[0]
    assert tc.relate(piece.detach().clone(), output).kind == "disjoint"
    assert nbytes(piece.detach().clone()) == 5 * 4
    assert nbytes(copy.deepcopy(piece.detach())) == 1000 * 5 * 4


def detach_and_deepcopy() -> None:
    """A deepcopy of the detached output has memory of its own, and no graph."""
    output = simple_model()(torch.randn(1, 10))
    copied = copy.deepcopy(output.detach())
    assert tc.relate(copied, output).kind == "disjoint"
    assert not tc.relate(copied, output).connected
    assert output.data_ptr() != copied.data_ptr()


def outputs_that_are_no_tensor() -> None:
    """Where the output is a tuple there is nothing to call `detach()` on; its tensors have to be found."""
    output = nn.LSTM(3, 4)(torch.randn(2, 1, 3))
    assert isinstance(output, tuple)
    assert "graph leaves" in refusal(RuntimeError, lambda: copy.deepcopy(output))
    assert tc.relate(tc.copy(output), output).kind == "disjoint"


def the_function_on_a_tensor() -> None:
    """Of one tensor the article's function returns an independent copy."""
    output = complex_model()(torch.randn(1, 10))
    copied = deep_detach_copy(output)
    assert tc.relate(copied, output).kind == "disjoint"


def the_function_on_lists_and_dicts() -> None:
    """The function finds the tensors in lists, tuples and dicts inside each other."""
    x = torch.ones(2, requires_grad=True) * 2
    copied = deep_detach_copy({"states": [x, (x, x)]})
    assert not tc.relate(copied, x).shares_memory


def the_function_on_objects() -> None:
    """The function raises for an object with tensors in it: deepcopy meets them before `detach()` does."""
    output = Output(torch.ones(2, requires_grad=True) * 2)
    assert "graph leaves" in refusal(RuntimeError, lambda: deep_detach_copy(output))
    assert not tc.relate(tc.copy(output), output).shares_memory


def the_function_loses_types() -> None:
    """The function returns other types than it got: tuples become lists, every dict a plain one."""
    x = torch.ones(2)
    assert type(deep_detach_copy((x, x))) is list
    assert type(deep_detach_copy(Point(x, x))) is list
    assert type(deep_detach_copy(OrderedDict(a=x))) is dict
    assert type(tc.copy(Point(x, x))) is Point


def the_function_unties() -> None:
    """What was one tensor is two after the function; `tc.copy` keeps it one."""
    x = torch.ones(2)
    first, second = deep_detach_copy([x, x])
    assert not tc.relate(first, second).shares_memory
    first, second = tc.copy([x, x])
    assert first is second


def the_function_sees_the_output_only() -> None:
    """What the activation created is not in the output, so no copy of the output has it."""
    model = complex_model()
    seen: list[Tensor] = []
    model[1].register_forward_hook(lambda _layer, _inputs, output: seen.append(tc.copy(output)))
    output = model(torch.randn(1, 10))
    assert deep_detach_copy(output).shape == (1, 2)
    assert seen[0].shape == (1, 5)


ANSWER = Answer(
    topic="deepcopy",
    question=TOPICS["deepcopy"],
    article="How can I deepcopy tensors created implicitly within a PyTorch model?",
    answer=(
        "Register a forward hook on the layer whose result you want and copy there, "
        "`output.detach().clone()`: the result of `forward` does not contain what was created on the way. "
        "`copy.deepcopy` of anything that autograd computed raises at once, in simple models as in "
        "complex ones, and works only on leaves. "
        "For outputs that are tuples, dicts or objects `tc.copy(output)` copies every tensor, keeps the "
        "types and what was one tensor, and leaves the graph behind."
    ),
    parts=(
        Part(
            "The difficulty",
            (
                Claim(
                    "Naive approaches to copying such tensors fail.",
                    "holds",
                    (deepcopy_of_an_output_raises,),
                ),
                Claim(
                    "The tensors are not visible in the code of the model.",
                    "holds",
                    (intermediate_results,),
                ),
                Claim(
                    "Layers and activations create them during the forward pass.",
                    "depends",
                    (intermediate_results, an_activation_in_place),
                    why="on the layer: one that works in place creates none",
                ),
                Claim("One can try `copy()`.", "does not hold", (no_method_copy,)),
                Claim(
                    "deepcopy may not fully disentangle a tensor from the model's state.",
                    "does not hold",
                    (deepcopy_of_an_output_raises, a_deep_copy_has_no_graph),
                ),
                Claim(
                    "The graph holds references to tensors, for gradients.",
                    "holds",
                    (the_graph_refers_to_tensors,),
                ),
                Claim("A shallow copy is a new view of the original.", "holds", (a_shallow_copy,)),
                Claim(
                    "Even a deep copy might leave references within the graph.",
                    "does not hold",
                    (a_deep_copy_has_no_graph, deepcopy_of_an_output_raises),
                ),
                Claim(
                    "So a write to the copy could change the model and corrupt training.",
                    "depends",
                    (a_write_to_a_deep_copy, a_write_to_a_detached_output, a_shallow_copy),
                    why="on the copy: a deep one cannot, a shallow or detached one does",
                ),
            ),
        ),
        Part(
            "detach",
            (
                Claim(
                    "`detach()` gives a new tensor apart from the graph, with the same data.",
                    "holds",
                    (detach_shares,),
                ),
                Claim(
                    "That breaks whatever references there are inside the model.",
                    "does not hold",
                    (a_write_to_a_detached_output, a_write_to_a_detached_weight),
                ),
                Claim(
                    "Only after it can a true copy be made.",
                    "does not hold",
                    (other_ways_to_a_copy, deepcopy_without_gradient),
                ),
                Claim(
                    "`detach()` alone does not suffice.",
                    "holds",
                    (detach_shares, a_write_to_a_detached_output),
                ),
                Claim(
                    "It takes a deep copy after it.",
                    "depends",
                    (detach_and_deepcopy, detach_and_clone),
                    why="on what is meant: a copy is needed, and `clone()` is one",
                ),
            ),
        ),
        Part(
            "Example 1: deepcopy",
            (
                Claim(
                    "With a simple model deepcopy might appear to work.",
                    "does not hold",
                    (deepcopy_of_an_output_raises,),
                ),
                Claim(
                    "The example prints False.", "does not hold", (deepcopy_of_an_output_raises,)
                ),
                Claim(
                    "Whether it works depends on the architecture.",
                    "does not hold",
                    (deepcopy_of_an_output_raises, deepcopy_without_gradient),
                ),
            ),
        ),
        Part(
            "Example 2: detach, then deepcopy",
            (
                Claim("The example prints False.", "holds", (detach_and_deepcopy,)),
                Claim(
                    "The copy is independent of the graph, and of writes.",
                    "holds",
                    (detach_and_deepcopy, a_write_to_a_deep_copy),
                ),
                Claim(
                    "Intricate models may need further steps.",
                    "depends",
                    (detach_and_deepcopy, outputs_that_are_no_tensor),
                    why="on the output: a tensor needs none, a structure does",
                ),
            ),
        ),
        Part(
            "Example 3: deep_detach_copy",
            (
                Claim(
                    "`relu` creates a tensor implicitly.",
                    "depends",
                    (relu_makes_a_tensor, an_activation_in_place),
                    why="on its form: the one in place creates none",
                ),
                Claim("The example prints False.", "holds", (the_function_on_a_tensor,)),
                Claim(
                    "The function detaches and copies any tensor that it meets.",
                    "depends",
                    (the_function_on_lists_and_dicts, the_function_on_objects),
                    why="on the containers: it knows lists, tuples and dicts",
                ),
                Claim(
                    "It handles complex outputs.",
                    "does not hold",
                    (the_function_on_objects, the_function_loses_types, the_function_unties),
                ),
                Claim(
                    "It ensures a copy of the tensors that were created on the way.",
                    "does not hold",
                    (the_function_sees_the_output_only,),
                ),
                Claim(
                    "It is the most robust way, to be preferred.",
                    "does not hold",
                    (the_function_on_objects, the_function_loses_types, the_function_unties),
                ),
            ),
        ),
        Part(
            "Conclusion",
            (
                Claim(
                    "detach and deepcopy, adapted to the output, copy reliably and independently.",
                    "depends",
                    (the_function_on_lists_and_dicts, the_function_on_objects),
                    why="on how far it is adapted",
                ),
            ),
        ),
    ),
    not_counted="What the author has seen in large and in sequence-to-sequence models, and what to read.",
)
