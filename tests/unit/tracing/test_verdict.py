"""Verdicts of single calls, against what each is known to do. The operator database is in tests/operators."""

from typing import Any

import numpy as np
import pytest
import torch

from truecopy import _torch
from truecopy.tracing.verdict import judge

X = torch.arange(12.0).view(3, 4)


@pytest.mark.parametrize(
    ("call", "origins"),
    [
        (lambda: judge(torch.Tensor.contiguous, X), ["same"]),
        (lambda: judge(torch.reshape, X, (12,)), ["view"]),
        (lambda: judge(torch.reshape, X.t(), (12,)), ["new"]),
        (lambda: judge(torch.Tensor.to, X, torch.float64), ["new"]),
        (lambda: judge(torch.einsum, "ij->ji", X), ["view"]),
        (lambda: judge(torch.unbind, X), ["view"] * 3),
        (lambda: judge(torch.tensor, [1.0]), ["new"]),
        (lambda: judge(torch.from_numpy, np.ones(3)), ["adopted"]),
        (lambda: judge(torch.frombuffer, bytearray(8), dtype=torch.float32), ["adopted"]),
        (lambda: judge(torch._lazy_clone, X.clone()), ["lazy"]),
        (lambda: judge(torch.Tensor.to_sparse, X), ["new"]),
        (lambda: judge(lambda t: t.data, X), ["view"]),
        (lambda: judge(torch.Tensor._values, X.to_sparse()), ["view"]),
    ],
)  # fmt: skip
def test_origins(call: Any, origins: list[str]) -> None:
    """The very same tensor, its memory, new memory, foreign memory, or memory only when written."""
    judged = call()
    assert judged.error is None
    assert list(judged.verdict.origins) == origins
    assert judged.verdict.effects == ()


@pytest.mark.parametrize(
    ("call", "effects"),
    [
        (lambda: judge(torch.Tensor.add_, X.clone(), 1), {"args[0]": "mutated"}),
        (lambda: judge(torch.add, X, X, out=torch.empty(3, 4)), {"out": "mutated"}),
        (lambda: judge(torch.add, X, X, out=torch.empty(0)), {"out": "resized"}),
        (lambda: judge(torch.Tensor.resize_, torch.ones(2), 5), {"args[0]": "resized"}),
        (lambda: judge(torch.Tensor.set_, torch.ones(2), X), {"args[0]": "replaced"}),
        (lambda: judge(torch.Tensor.t_, X.clone()), {}),
        (lambda: judge(lambda t: t[:, 0].add_(1), X.clone()), {"args[0]": "mutated"}),
        (lambda: judge(lambda t: t.data.add_(1), X.clone()), {"args[0]": "mutated"}),
        (lambda: judge(torch._foreach_add_, [X.clone(), X.clone()], 1),
         {"args[0][0]": "mutated", "args[0][1]": "mutated"}),
        (lambda: judge(torch.ops.aten.add_.Tensor, X.clone(), X), {"self": "mutated"}),
    ],
)  # fmt: skip
def test_effects(call: Any, effects: dict[str, str]) -> None:
    """Written, grown, or with another storage under it; what changes shapes alone touches nothing."""
    assert dict(call().verdict.effects) == effects


def test_views_that_are_not_reached_are_untouched() -> None:
    """A write changes the arguments that reach its bytes, and not all on that storage."""
    t = X.clone()
    first, second = t[:, 0], t[:, 1]
    verdict = judge(lambda a, b, whole: a.add_(1), first, second, t).verdict  # noqa: ARG005

    assert verdict.effects == (("args[0]", "mutated"), ("args[2]", "mutated"))
    verdict = judge(lambda a, b: torch.add(a, 1, out=b), t[:, 0], t[:, 1]).verdict
    assert verdict.effects == (("args[1]", "mutated"),)


def test_what_schemas_do_not_say_is_shown() -> None:
    """Batch norm writes its statistics, a meshgrid is made of views; neither is in the schema."""
    mean = torch.zeros(4)
    judged = judge(torch.nn.functional.batch_norm, X, mean, torch.ones(4), training=True)

    assert ("args[1]", "mutated") in judged.verdict.effects
    assert mean.sum() != 0
    assert any("running_mean" in doubt for doubt in judged.verdict.disagreements)
    aliasing = judge(torch.ops.aten._unsafe_view.default, X, [12]).verdict
    assert aliasing.origins == ("view",)
    assert aliasing.disagreements


def test_statistics_that_are_only_read_are_untouched() -> None:
    """In evaluation batch norm writes nothing."""
    judged = judge(torch.nn.functional.batch_norm, X, torch.zeros(4), torch.ones(4))
    assert judged.verdict.effects == ()


def test_a_call_that_raises_is_a_verdict() -> None:
    """The exception is kept, and the verdict names it."""
    judged = judge(torch.mm, X, X)
    assert judged.verdict.raised == "RuntimeError"
    assert isinstance(judged.error, RuntimeError)


def test_copy_on_write_stays_lazy() -> None:
    """Judging a reader of a lazy clone does not make the copy."""
    source = X.clone()
    lazy = torch._lazy_clone(source)
    assert judge(torch.Tensor.view, lazy, 12).verdict.origins == ("view",)
    assert _torch.is_copy_on_write(lazy)
    assert judge(torch.Tensor.add_, lazy, 1).verdict.effects == (("args[0]", "mutated"),)
