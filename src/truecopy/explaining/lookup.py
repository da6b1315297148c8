"""`explain`: what an operation does with memory, from the package's data."""

from __future__ import annotations

import functools
import json
from difflib import get_close_matches
from importlib import resources

from truecopy.errors import UsageError
from truecopy.explaining.facts import Explanation


def explain(name: str) -> Explanation:
    """What an operation does with memory: which inputs give a view and which a copy, and the usual trap.

    Args:
        name: "reshape", "torch.Tensor.contiguous", "F.relu", "add_".

    Reads the package's data: allocates no tensor, returns no view, runs no operation, does not
    synchronize. The data was made by running samples; `python -m truecopy.explaining` makes it anew.

    >>> import truecopy as tc
    >>> tc.explain("contiguous").sentence
    'its input itself for contiguous input; new memory for transposed and strided and expanded input'
    """
    found = _index().get(_normal(name))
    if found is None:
        near = get_close_matches(_normal(name), _index(), n=2, cutoff=0.7)
        raise UsageError(
            f"no operation is called {name!r}",
            expected="a function of torch, a method of Tensor, or an in-place form",
            way_out=f"Did you mean {' or '.join(near)}?"
            if near
            else "`truecopy explain --page FILE` lists all; what returns no tensor is left out",
        )
    return found


@functools.cache
def all_explanations() -> tuple[Explanation, ...]:
    """Every operation that is known, in the order of their names."""
    text = resources.files("truecopy.explaining").joinpath("data/operations.json").read_text()
    return tuple(map(Explanation.from_body, json.loads(text)))


@functools.cache
def _index() -> dict[str, Explanation]:
    """Explanations by every name that means one: the shorter a name, the later it is given away."""
    index: dict[str, Explanation] = {}
    for one in all_explanations():
        index.setdefault(one.name, one)
    for one in all_explanations():
        for spelling in one.spellings:
            index.setdefault(_normal(spelling), one)
    for one in all_explanations():
        index.setdefault(one.name.rpartition(".")[2], one)
    return index


def _normal(name: str) -> str:
    """A name without what stands before it everywhere: `torch.Tensor.add_` is `add_`."""
    name = name.strip().removesuffix("()")
    for prefix in ("torch.Tensor.", "Tensor.", "torch."):
        name = name.removeprefix(prefix)
    return f"nn.functional.{name[2:]}" if name.startswith("F.") else name
