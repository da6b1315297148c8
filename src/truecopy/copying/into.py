"""Copies into a structure that exists: everything is compared first, then everything is written.

In: a source and a target of the same shape. Out: the target, whose tensors kept their addresses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import torch

from truecopy import _torch
from truecopy.copying.refusals import storage_bytes
from truecopy.copying.transfer import transfer
from truecopy.errors import StructureMismatch
from truecopy.memory.groups import Table, partition, tabulate
from truecopy.memory.region import Region
from truecopy.structure.hidden import HiddenState, hidden_state_of
from truecopy.structure.kinds import Kind, kind_of
from truecopy.structure.parts import named_parts
from truecopy.structure.paths import Attribute, Item
from truecopy.structure.tensors import Form, form_of
from truecopy.structure.walk import Keep, Node, Place, Walk, walk


@dataclass(slots=True)
class _Writes:
    """What will be written, once everything is known to match."""

    tensors: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)  # target, source
    arrays: list[tuple[Any, Any]] = field(default_factory=list)
    values: list[tuple[Any, Any, Any]] = field(default_factory=list)  # holder, step, value
    states: list[tuple[HiddenState, Any, Any]] = field(default_factory=list)  # source, target
    kept_gradients: list[tuple[int, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    gradients: list[tuple[torch.Tensor, torch.Tensor | None]] = field(default_factory=list)


def copy_into(
    source: Any, target: Any, name: str, keep: Keep | None = None, leave: Keep | None = None
) -> None:
    """Make `target` hold what `source` holds, in place; raise before writing if anything differs.

    What `keep` names in the source and `leave` in the target stays as it is.
    """
    if source is target:
        return
    ours = walk(source, name, keep=keep, with_grad=False, parts_of=named_parts)
    theirs = walk(target, "into", keep=leave, with_grad=False, parts_of=named_parts)
    writes = _Writes()
    with _torch.disable_torch_function(), torch.no_grad():
        _compare_structures(ours, theirs, writes)
        _compare_leaves(ours, theirs, writes)
        _compare_aliasing(ours, theirs, writes)
        _write(writes)


def _differ(walked: Walk, place: Place, expected: str, got: str) -> NoReturn:
    raise StructureMismatch(
        "differs from the source; nothing was written",
        where=str(walked.path_of(place)),
        expected=expected,
        got=got,
        way_out="Without into=, tc.copy makes a new structure",
    )


# --- objects ------------------------------------------------------------------------------------


def _compare_structures(ours: Walk, theirs: Walk, writes: _Writes) -> None:
    mine, yours = list(ours.nodes.values()), list(theirs.nodes.values())
    numbers = _numbers(ours), _numbers(theirs)
    for source, target in zip(mine, yours, strict=False):
        _compare_nodes(theirs, source, target, writes)
        _compare_identities(theirs, source, target, *numbers)
    if len(mine) != len(yours) or len(ours.leaves) != len(theirs.leaves):
        _differ(
            theirs, (None, 0), f"{len(mine)} objects and {len(ours.leaves)} tensors",
            f"{len(yours)} objects and {len(theirs.leaves)} tensors",
        )  # fmt: skip
    if not mine and not ours.leaves and ours.root != theirs.root:
        _differ(
            theirs,
            (None, 0),
            f"a value that can be written in place, or {ours.root!r}",
            repr(theirs.root),
        )


def _compare_nodes(theirs: Walk, source: Node, target: Node, writes: _Writes) -> None:
    place = (target.parent, target.place)
    if type(source.value) is not type(target.value):
        _differ(theirs, place, type(source.value).__name__, type(target.value).__name__)
    mine, yours = _members(source), _members(target)
    for step in [*sorted(mine.keys() - yours.keys()), *sorted(yours.keys() - mine.keys())]:
        missing = step in mine
        index = (mine if missing else yours)[step]
        if missing or kind_of[type(target.children[index])] is not Kind.FUNCTION:
            # Functions that only the target has are what somebody hung on it: a scheduler, a tracer.
            name = step.strip()
            expected, got = (
                (f"a member {name}", "none") if missing else ("none", f"a member {name}")
            )
            _differ(theirs, place, expected, got)
    for step, index in yours.items():
        if step not in mine:
            continue
        old, new = source.children[mine[step]], target.children[index]
        if old is not new and (_is_plain(old) or _is_plain(new)):
            _compare_values(theirs, target, index, old, new, writes)
    hidden = hidden_state_of(source.value)
    if hidden is not None:
        writes.states.append((hidden, source.value, target.value))
    elif not source.children and source.kind in (Kind.REDUCED, Kind.OPAQUE):
        _compare_hidden(theirs, place, source.value, target.value)
    elif isinstance(source.value, torch.Tensor):
        _compare_descriptions(theirs, place, source.value, target.value)


def _members(node: Node) -> dict[str, int]:
    """Places of a node's children by the way to each."""
    return {node.parts.step(index).code(""): index for index in range(len(node.children))}


def _compare_hidden(theirs: Walk, place: Place, mine: Any, yours: Any) -> None:
    """What shows nothing of itself (a date, a counter) is known by what it hands out to be pickled."""
    try:
        handed_out = [tuple(value.__reduce_ex__(4))[:3] for value in (mine, yours)]
    except Exception:  # noqa: BLE001 - a lock, a file: the target goes on with its own
        return
    if handed_out[0] != handed_out[1]:
        _differ(theirs, place, repr(mine), repr(yours))


def _numbers(walked: Walk) -> dict[int, int]:
    """Objects and leaves by the order in which they were met."""
    numbers = {key: -1 - number for number, key in enumerate(walked.nodes)}
    return numbers | walked.leaf_of


def _compare_identities(
    theirs: Walk, source: Node, target: Node, mine: dict[int, int], yours: dict[int, int]
) -> None:
    """What is one object in the source has to be one in the target, and the other way round."""
    members = _members(source)
    for step, index in _members(target).items():
        if step not in members:
            continue
        a, b = source.children[members[step]], target.children[index]
        if mine.get(id(a)) != yours.get(id(b)) and not _is_plain(a):
            _differ(
                theirs, (target, index), "an object that is met where it is in the source",
                "one that is met elsewhere, or not there",
            )  # fmt: skip


def _is_plain(value: Any) -> bool:
    return kind_of[type(value)] in (Kind.ATOM, Kind.FUNCTION)


def _compare_values(
    theirs: Walk, target: Node, index: int, mine: Any, yours: Any, writes: _Writes
) -> None:
    """A number, string or function that differs is written where its holder can be written."""
    if _is_plain(mine) != _is_plain(yours):
        _differ(theirs, (target, index), type(mine).__name__, type(yours).__name__)
    if type(mine) is type(yours) and _equal(mine, yours):
        return
    step = target.parts.step(index)
    frozen = isinstance(target.value, (tuple, frozenset, set)) and isinstance(step, Item)
    if frozen or not isinstance(step, Attribute | Item):
        _differ(theirs, (target, index), repr(mine), repr(yours))
    writes.values.append((target.value, step, mine))


def _equal(a: Any, b: Any) -> bool:
    return repr(a) == repr(b) if isinstance(a, float | complex) else bool(a == b)  # NaN, -0.0


# --- tensors and arrays -------------------------------------------------------------------------


def _compare_leaves(ours: Walk, theirs: Walk, writes: _Writes) -> None:
    for row, (source, target) in enumerate(zip(ours.leaves, theirs.leaves, strict=True)):
        place = (theirs.parents[row], theirs.indices[row])
        _compare_descriptions(theirs, place, source, target)
        if source is target:
            continue
        if isinstance(target, np.ndarray):
            if not target.flags.writeable:
                _differ(theirs, place, "an array that can be written", "a read-only array")
            writes.arrays.append((target, source))
        elif isinstance(target, torch.Tensor):
            _compare_memory(theirs, place, source, target)
            _compare_tensors(theirs, place, source, target, writes)
            _compare_gradients(row, source, target, writes)
        else:
            _differ(theirs, place, "a tensor or an array", type(target).__name__)


def _compare_descriptions(theirs: Walk, place: Place, source: Any, target: Any) -> None:
    wanted, found = _describe(source), _describe(target)
    if wanted != found:
        _differ(theirs, place, wanted, found)


def _describe(leaf: Any) -> str:
    if torch.nn.parameter.is_lazy(leaf):
        return f"{type(leaf).__name__} of {leaf.dtype}"
    if isinstance(leaf, torch.Tensor):
        return f"{type(leaf).__name__} of {leaf.dtype} and shape {_shape(leaf)}{_coding(leaf)}"
    if isinstance(leaf, np.ndarray):
        return f"{type(leaf).__name__} of {leaf.dtype} and shape {leaf.shape}"
    return type(leaf).__name__


def _shape(tensor: torch.Tensor) -> tuple[Any, ...]:
    if not tensor.is_nested:
        return tuple(tensor.shape)
    # A jagged one's lengths are in its offsets, which are compared and written like any tensor.
    strided = tensor.layout is torch.strided
    return tuple(_torch.nested_parts(tensor)[0].tolist()) if strided else (tensor.dim(),)


def _coding(tensor: torch.Tensor) -> str:
    """What else decides on the meaning of a tensor's bytes."""
    if tensor.layout is torch.sparse_coo:
        return ", coalesced" if tensor.is_coalesced() else ", not coalesced"
    if not tensor.is_quantized:
        return ""
    if tensor.qscheme() == torch.per_tensor_affine:
        return f", scale {tensor.q_scale()}, zero point {tensor.q_zero_point()}"
    scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    return f", scales {scales.tolist()}, zero points {zeros.tolist()}"


def _compare_memory(theirs: Walk, place: Place, source: torch.Tensor, target: torch.Tensor) -> None:
    """Whoever freed or shrank a storage left a tensor that torch would read and write past its end."""
    for whose, tensor in (("source", source), ("target", target)):
        if form_of(tensor) is Form.DENSE:
            needed, have = storage_bytes(tensor)
            if needed > have:
                expected = f"memory for every element, {needed} bytes of storage"
                _differ(theirs, place, expected, f"a {whose} whose storage has {have}")


def _compare_tensors(
    theirs: Walk, place: Place, source: torch.Tensor, target: torch.Tensor, writes: _Writes
) -> None:
    for index, (mine, yours) in enumerate(zip(_repeats(source), _repeats(target), strict=True)):
        if yours and not mine:
            _differ(
                theirs, place, f"memory of its own along dimension {index}", "an expanded dimension"
            )
    if any(_repeats(target)):
        thin = tuple(slice(0, 1) if repeated else slice(None) for repeated in _repeats(target))
        writes.tensors.append((target[thin], source[thin]))
    else:
        writes.tensors.append((target, source))


def _compare_gradients(
    row: int, source: torch.Tensor, target: torch.Tensor, writes: _Writes
) -> None:
    new, old = _gradient(source), _gradient(target)
    if new is not None and old is not None and _describe(new) == _describe(old):
        writes.tensors.append((old, new))
        writes.kept_gradients.append((row, old, new))
    elif new is not None or old is not None:
        writes.gradients.append((target, new))


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor.grad if tensor.is_leaf or tensor.retains_grad else None


def _repeats(tensor: torch.Tensor) -> list[bool]:
    if tensor.layout is not torch.strided or tensor.is_nested:
        return [False] * tensor.dim()
    return [s == 0 and n > 1 for n, s in zip(tensor.shape, tensor.stride(), strict=True)]


def _compare_aliasing(ours: Walk, theirs: Walk, writes: _Writes) -> None:
    """Targets that share memory must be shared in the same way by the sources, and with no source.

    Gradients take part: they are written like every other tensor.
    """
    sources = [*ours.leaves, *(new for _, _, new in writes.kept_gradients)]
    targets = [*theirs.leaves, *(old for _, old, _ in writes.kept_gradients)]
    owners = [*range(len(ours.leaves)), *(row for row, _, _ in writes.kept_gradients)]
    places = [(theirs.parents[row], theirs.indices[row]) for row in owners]
    mine, yours = tabulate(sources, ours.bare), tabulate(targets, theirs.bare)
    for row, region in yours.odd.items():
        itself = isinstance(region, Region) and region.repeats_itself
        if itself and _layout(mine, row, row) != _layout(yours, row, row):
            _differ(
                theirs, places[row], "memory in which no element lies twice, or just as in the source",
                "a view that overlaps itself",
            )  # fmt: skip
    for group in partition(yours).shared:
        for row in group:
            if _layout(mine, group[0], row) != _layout(yours, group[0], row):
                _differ(
                    theirs, places[row], "memory apart, as in the source",
                    f"memory shared with {theirs.path(owners[group[0]])}",
                )  # fmt: skip
    both, count = tabulate([*sources, *targets]), len(sources)
    for group in partition(both).shared:
        for row in (r for r in group if r >= count):
            for other in (r for r in group if r < count):
                if other != row - count or not _is_same_region(both, other, row):
                    _differ(
                        theirs, places[row - count], "memory apart from the source",
                        f"memory shared with {ours.path(owners[other])}",
                    )  # fmt: skip


def _is_same_region(table: Table, a: int, b: int) -> bool:
    first, second = table.region(a), table.region(b)
    if not isinstance(first, Region) or not isinstance(second, Region):
        return False
    return (first.start, first.strides) == (second.start, second.strides)


def _layout(table: Table, first: int, row: int) -> Any:
    """How a row lies beside another: two pairs with the same layout share the same bytes."""
    a, b = table.region(first), table.region(row)
    if not isinstance(a, Region) or not isinstance(b, Region) or a.space != b.space:
        return None
    return b.start - a.start, b.shape, b.strides, b.itemsize, a.shape, a.strides


# --- writing ------------------------------------------------------------------------------------


def _write(writes: _Writes) -> None:
    for holder, step, value in writes.values:  # first: users' holders may refuse, memory does not
        _set(holder, step, value)
    transfer([_as_stored(target, source) for target, source in writes.tensors])
    for target, source in writes.arrays:
        np.copyto(target, source, casting="no")
    for tensor, gradient in writes.gradients:
        tensor.grad = None if gradient is None else gradient.clone()
    for hidden, source, target in writes.states:
        hidden.write(target, hidden.read(source))


def _set(holder: Any, step: Any, value: Any) -> None:
    """Write a value past what the holder's class makes of writing."""
    match holder:
        case _ if isinstance(step, Attribute):
            object.__setattr__(holder, step.name, value)
        case dict():
            dict.__setitem__(holder, step.key, value)
        case list():
            list.__setitem__(holder, step.key, value)
        case _:
            holder[step.key] = value


def _as_stored(target: torch.Tensor, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both sides without conj and neg bits where they are alike, so that bytes go over as they are."""
    if target.is_conj() == source.is_conj() and target.is_neg() == source.is_neg():
        return _torch.as_bytes(target.detach()), _torch.as_bytes(source.detach())
    return target.detach(), source.detach()
