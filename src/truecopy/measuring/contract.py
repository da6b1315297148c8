"""What a method returned, before any time is taken: is it a copy, and what came with it?

A method of these tables promises that what it returns shares no byte with the source (nor duplicates
with each other), has its shape, dtype and bits, and that the source is as it was; one that fills a kept
destination, that the destination stays where it is. What breaks one of these is named, and its time is
struck out. All else is a note: other strides, the graph kept or dropped, a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truecopy.measuring.methods import Method, pieces
from truecopy.measuring.works import each_byte_once, leaves
from truecopy.memory.relation import relate

_OTHER_VALUES = "other values"


@dataclass(frozen=True, slots=True)
class Check:
    """What one method did with one input. Of a structure, facts are those of its first tensor."""

    method: str
    raised: str  # the error, or empty
    broken: tuple[str, ...]  # promises that do not hold, in words
    notes: tuple[str, ...]  # what holds, and may surprise
    relation: str  # of the first copy to the source
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]  # in elements; empty where a library has none
    layout: str
    requires_grad: bool
    grad_fn: str
    warnings: tuple[str, ...]
    source_unchanged: bool

    @property
    def holds(self) -> bool:
        """Whether every promise does, so that its time may be set beside others."""
        return not self.raised and not self.broken


def check(method: Method, source: Any, is_unchanged: Callable[[], bool]) -> Check:
    """Call the method once, and look. `is_unchanged` tells whether the source is as it was."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call = method.bound(source)
            before = _addresses(call())
            output = call()
        except Exception as error:  # noqa: BLE001 - methods are users' code: any error is a finding
            return _raised(method, error, is_unchanged())
    said = tuple(dict.fromkeys(f"{one.category.__name__}: {_line(one.message)}" for one in caught))
    copies = pieces(method, output)
    unchanged = is_unchanged()
    # Of a source that was changed meanwhile, a right copy has other values.
    broken = [what for what in _broken(source, copies) if unchanged or what != _OTHER_VALUES]
    if method.fills and _addresses(output) != before:
        broken.append("moves the destination to other memory")
    if not unchanged:
        broken.append("writes into the source")
    facts = {**_facts(leaves(copies[0])[0]), **_gradient_of(method.read(output))}
    return Check(
        method=method.name,
        raised="",
        broken=tuple(broken),
        notes=tuple(_notes(_facts(leaves(source)[0]), facts, said)),
        relation=relate(source, copies[0]).kind,
        warnings=said,
        source_unchanged=unchanged,
        **facts,
    )


def _raised(method: Method, error: Exception, unchanged: bool) -> Check:
    what = f"{type(error).__name__}: {_line(error)}"
    broken = () if unchanged else ("writes into the source",)
    nothing: dict[str, Any] = {
        "shape": (),
        "dtype": "",
        "strides": (),
        "layout": "",
        "requires_grad": False,
        "grad_fn": "",
    }
    return Check(
        method=method.name, raised=what, broken=broken, notes=(), relation="unknown", warnings=(),
        source_unchanged=unchanged, **nothing,
    )  # fmt: skip


def _line(message: object) -> str:
    return str(message).strip().partition("\n")[0][:160]


def _broken(source: Any, copies: list[Any]) -> Iterator[str]:
    """Promises about the copies that do not hold."""
    relations = [relate(source, one) for one in copies]
    kinds = {relation.kind for relation in relations}
    if "same" in kinds or any(_one_object(source, one) for one in copies):
        yield "returns the same tensor"
    elif kinds & {"identical", "overlapping"}:
        yield "returns a view of the source"
    elif "unknown" in kinds:
        yield f"may share memory: {relations[0].why}"
    elif len(copies) > 1 and relate(copies[0], copies[1]).shares_memory is not False:
        yield "its duplicates share memory"
    for mine, theirs in zip(leaves(source), leaves(copies[0]), strict=False):
        if (difference := _difference(mine, theirs)) is not None:
            yield difference
            return
    if any(not _same_bits(source, one) for one in copies):
        yield _OTHER_VALUES


def _one_object(source: Any, copied: Any) -> bool:
    pairs = zip(leaves(source), leaves(copied), strict=False)
    return any(mine is theirs for mine, theirs in pairs)


def _difference(mine: Any, theirs: Any) -> str | None:
    if type(mine) is not type(theirs) and not isinstance(mine, Tensor | np.ndarray):
        return None if _facts(mine)["shape"] == _facts(theirs)["shape"] else "another shape"
    if isinstance(mine, Tensor) != isinstance(theirs, Tensor):
        return f"returns {type(theirs).__name__}, not {type(mine).__name__}"
    ours, other = _facts(mine), _facts(theirs)
    for what in ("shape", "dtype"):
        if ours[what] != other[what]:
            return f"another {what}: {other[what]}, not {ours[what]}"
    return None


def _notes(source: dict[str, Any], copied: dict[str, Any], said: tuple[str, ...]) -> Iterator[str]:
    if source["strides"] != copied["strides"]:
        yield "other strides"
    if source["layout"] != copied["layout"]:
        yield f"layout {copied['layout']}"
    if copied["grad_fn"]:
        yield f"stays in the graph ({copied['grad_fn']})"
    elif source["requires_grad"] and not copied["requires_grad"]:
        yield "requires no gradient"
    if said:
        yield f"warns ({said[0].partition(':')[0]})"


def _facts(value: Any) -> dict[str, Any]:
    """Shape, dtype and the like of a tensor or array of any library, as `Check` has them."""
    if isinstance(value, Tensor):
        node = value.grad_fn
        return {
            "shape": tuple(value.shape),
            "dtype": str(value.dtype).removeprefix("torch."),
            "strides": tuple(value.stride()),
            "layout": str(value.layout).removeprefix("torch."),
            "requires_grad": value.requires_grad,
            "grad_fn": "" if node is None else node.name(),
        }
    strides: tuple[int, ...] = ()
    if isinstance(value, np.ndarray):
        strides = tuple(step // max(value.itemsize, 1) for step in value.strides)
    return {
        "shape": tuple(map(int, getattr(value, "shape", ()))),
        "dtype": str(getattr(getattr(value, "dtype", ""), "name", "")),
        "strides": strides,
        "layout": "strided",
        "requires_grad": False,
        "grad_fn": "",
    }


def _gradient_of(value: Any) -> dict[str, Any]:
    """The node of a stack of duplicates, not that of taking one from it."""
    first = leaves(value)[0]
    if not isinstance(first, Tensor):
        return {}
    facts = _facts(first)
    return {name: facts[name] for name in ("requires_grad", "grad_fn")}


def _addresses(output: Any) -> list[int]:
    """Where the leaves of a destination are, of those that torch and NumPy hold."""
    if not isinstance(output, dict | Tensor | np.ndarray):
        return []
    return [
        leaf.data_ptr() if isinstance(leaf, Tensor) else leaf.ctypes.data
        for leaf in leaves(output)
        if isinstance(leaf, Tensor | np.ndarray)
    ]


# --- bits -----------------------------------------------------------------------------------------


def _same_bits(source: Any, copied: Any) -> bool:
    ours, theirs = leaves(source), leaves(copied)
    return len(ours) == len(theirs) and all(map(same_bits, ours, theirs))


def same_bits(a: Any, b: Any) -> bool:
    """Whether two tensors or arrays hold the same bits in the same order, whatever their strides."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        with torch.no_grad():
            return torch.equal(_bytes(a), _bytes(b))
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def _bytes(tensor: Tensor) -> Tensor:
    dense = tensor.detach().contiguous()
    return dense.view(-1).view(torch.uint8) if dense.numel() else dense.to(torch.uint8)


class Watch:
    """A source as it was: whether anything wrote into it since."""

    _SAMPLED = 8

    def __init__(self, source: Any) -> None:
        self._source = source
        self._kept = [_copied(leaf) for leaf in leaves(source)]
        self._places = [_some_places(leaf, self._SAMPLED) for leaf in leaves(source)[:4]]
        self._seen = self._sample()

    def is_unchanged(self) -> bool:
        """Whether every bit is as it was."""
        return all(map(same_bits, leaves(self._source), self._kept))

    def seems_unchanged(self) -> bool:
        """Whether a few elements are, fast enough to be asked after every block."""
        return all(map(torch.equal, self._sample(), self._seen))

    def restore(self) -> None:
        """Write back what was there."""
        for leaf, kept in zip(leaves(self._source), self._kept, strict=True):
            if isinstance(leaf, Tensor):
                once = each_byte_once(leaf.stride())
                with torch.no_grad():
                    leaf.detach()[once].copy_(kept[once])
            elif isinstance(leaf, np.ndarray) and leaf.flags.writeable:
                np.copyto(leaf, kept)

    def _sample(self) -> list[Tensor]:
        return [
            torch.as_tensor(leaf[places]).clone()
            for leaf, places in zip(map(_plain, leaves(self._source)), self._places, strict=False)
            if places is not None
        ]


def _plain(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, Tensor) else leaf


def _copied(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.detach().clone()
    return np.array(leaf)


def _some_places(leaf: Any, most: int) -> tuple[Any, ...] | None:
    """Places of a few elements, spread over a tensor; None where nobody can write."""
    if not isinstance(leaf, Tensor | np.ndarray):
        return None
    count = int(np.prod(leaf.shape))
    flat = np.unique(np.linspace(0, max(count - 1, 0), most).astype(np.int64))
    axes = np.unravel_index(flat, tuple(leaf.shape))
    return axes if isinstance(leaf, np.ndarray) else tuple(map(torch.from_numpy, axes))
