"""Copies of tensors and arrays: memory first, bytes next, then flags.

In: the leaves of a walk and the blocks that were planned for them. Out: one copy for each leaf.
Bytes are moved as integers, never computed; whoever shared memory shares it again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.copying.blocks import Block, Member, Move, dense_block, span_block
from truecopy.copying.gradient import attach
from truecopy.copying.options import Options
from truecopy.copying.pages import HUGE_PAGE
from truecopy.copying.transfer import LARGE, Pair, transfer
from truecopy.errors import CannotCopy, NotIndependent
from truecopy.memory.groups import Partition, Table, partition, tabulate
from truecopy.memory.region import Region, Unreadable
from truecopy.structure.kinds import Kind, kind_of
from truecopy.structure.tensors import Form, form_of, is_bare
from truecopy.structure.walk import Walk

AxisOf = Callable[[int], int]
"""Where the copy of a row has its new axis, if it has one."""

_REQUIRES_GRAD, _DTYPE, _NBYTES = map(operator.attrgetter, ("requires_grad", "dtype", "nbytes"))
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(slots=True)
class Layout:
    """Leaves by the way they are copied; decided before any memory is taken."""

    table: Table
    plain: list[int] = field(default_factory=list)  # dense CPU tensors that share with nobody
    blocks: list[Block] = field(default_factory=list)  # everything else that has memory torch shows
    closed: list[int] = field(default_factory=list)  # memory that torch does not show: cloned
    undecided: list[int] = field(default_factory=list)


def lay_out(walked: Walk, options: Options) -> Layout:
    """Decide for every leaf how it is copied. Allocates no tensor memory."""
    table = tabulate(walked.leaves, walked.bare)
    if options.alias == "whole":
        _extend_to_storages(table)
    shared = Partition(table, [], set()) if options.alias == "break" else partition(table)
    if options.alias == "error" and shared.shared:
        _refuse_sharing(walked, shared.shared)
    layout = Layout(table, undecided=sorted(shared.undecided))
    together: set[int] = set()
    for group in shared.shared:
        regions = [region for row in group if isinstance(region := table.region(row), Region)]
        layout.blocks.append(span_block(group, regions, whole=options.alias == "whole"))
        together.update(group)
    for row, region in table.odd.items():
        if row in together:
            continue
        if isinstance(region, Unreadable):
            layout.closed.append(row)
        elif options.alias == "whole" or region.repeats_itself or _is_storage(table.values[row]):
            layout.blocks.append(span_block([row], [region], whole=options.alias == "whole"))
        else:
            layout.blocks.append(dense_block(row, region))
    elsewhere = together.union(table.odd)
    layout.plain = [row for row in range(len(table.values)) if row not in elsewhere]
    return layout


def _is_storage(value: Any) -> bool:
    return isinstance(value, torch.UntypedStorage | torch.TypedStorage)


def _extend_to_storages(table: Table) -> None:
    """Let every row span its whole storage, so that all views of one storage form a group."""
    for row in range(len(table.values)):
        region = table.region(row)
        table.odd[row] = region
        if isinstance(region, Region) and region.storage is not None:
            start = 0 if region.space[0] in ("meta", "freed") else region.storage_start
            table.low[row], table.high[row] = start, start + region.storage[1]


def _refuse_sharing(walked: Walk, groups: list[list[int]]) -> None:
    first = groups[0]
    raise NotIndependent(
        f"shares memory with {walked.path(first[1])}",
        where=str(walked.path(first[0])),
        expected='values that share no byte, as alias="error" asks',
        got=f"{len(groups)} alias {'group' if len(groups) == 1 else 'groups'}",
        way_out='alias="preserve" keeps the sharing inside the copy, alias="break" ends it',
    )


def copy_leaves(walked: Walk, layout: Layout, options: Options) -> list[Any]:
    """One copy for each leaf, in the order of the walk. Allocates what the blocks say."""
    copies: list[Any] = [None] * len(walked.leaves)
    with _torch.disable_torch_function(), torch.inference_mode(False), torch.no_grad():
        copy_plain(walked.leaves, layout, options, copies)
        for block, base in fill_blocks(walked, layout, options):
            put_members(walked.leaves, block, base, copies)
        for row in layout.closed:
            copies[row] = clone_closed(walked, row, options)
    if options.grad == "keep":
        attach_leaves(walked, layout, copies)
    return copies


def attach_leaves(
    walked: Walk, layout: Layout, copies: list[Any], *, axis_of: AxisOf | None = None
) -> None:
    """Let gradient flow from every copy to its source; `axis_of` tells where a stack has its new axis."""
    shared = {m.row for b in layout.blocks if len(b.members) > 1 for m in b.members}
    with _torch.disable_torch_function(), torch.inference_mode(False), torch.no_grad():
        for row, leaf in enumerate(walked.leaves):
            axis = None if axis_of is None else axis_of(row)
            copies[row] = attach(leaf, copies[row], shared=row in shared, axis=axis)


def is_one_plain(obj: Any) -> bool:
    """Whether the whole task is one ordinary dense tensor, which needs no plan."""
    if kind_of[type(obj)] is not Kind.TENSOR:
        return False
    with _torch.disable_torch_function():
        return (
            is_bare(obj)
            and obj.is_contiguous()
            and obj.dtype not in _torch.NOT_MOVED_AS_IS
            and not _torch.in_dual_level()
            and obj.untyped_storage().nbytes() >= obj.storage_offset() * obj.itemsize + obj.nbytes
        )


def copy_one_plain(source: Any) -> Any:
    """The copy of one such tensor. Allocates its bytes."""
    with _torch.disable_torch_function(), _torch.Unrecorded():
        small = source.nbytes < HUGE_PAGE
        return finish(source, source.clone() if small else clones_of([source], alike=True)[0])


# --- plain tensors: many at once ----------------------------------------------------------------


def copy_plain(leaves: Sequence[Any], layout: Layout, options: Options, copies: list[Any]) -> None:
    """Copies of the plain rows, each in memory of its own."""
    rows = np.array(layout.plain, np.int64)
    is_large = layout.table.high[rows] - layout.table.low[rows] >= LARGE
    # With the large ones, those that `clone` does not copy byte by byte.
    dtypes = [leaves[row].dtype for row in layout.plain]
    if not _torch.NOT_MOVED_AS_IS.isdisjoint(dtypes):
        is_large |= np.array([dtype in _torch.NOT_MOVED_AS_IS for dtype in dtypes])
    for some in (rows[~is_large].tolist(), rows[is_large].tolist()):
        sources = [leaves[row] for row in some]
        new = finish_all(sources, clones_of(sources, options.device))
        for row, copied in zip(some, new, strict=True):
            copies[row] = copied


def clones_of(
    sources: list[torch.Tensor], device: torch.device | None = None, *, alike: bool = False
) -> list[torch.Tensor]:
    """Dense tensors on the CPU byte by byte, each in new memory of its own, there or on `device`.

    Of those known to be `alike`, the first answers for all where it can.
    """
    asked = sources[:1] if alike else sources
    as_usual = _torch.NOT_MOVED_AS_IS.isdisjoint(map(_DTYPE, asked))
    stays = device is None or device.type == "cpu"
    if as_usual and stays and max(map(_NBYTES, asked), default=0) < LARGE:
        return _torch.clone_all(sources, alike=alike) if sources else []
    new = [torch.empty_like(source, device=device) for source in sources]
    pairs = list(zip(new, sources, strict=True))
    if not as_usual:
        pairs = [(_torch.as_bytes(block), _torch.as_bytes(source)) for block, source in pairs]
    transfer(pairs, fresh=True)
    return new


def finish_all(
    sources: list[torch.Tensor], fresh: list[torch.Tensor], *, alike: bool = False
) -> list[torch.Tensor]:
    """`finish` for many, which most of them do not need."""
    asked = sources[:1] if alike else sources
    if set(map(type, asked)) == {torch.Tensor} and not any(map(_REQUIRES_GRAD, asked)):
        return fresh
    return [finish(source, new) for source, new in zip(sources, fresh, strict=True)]


def finish(source: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """`data` with the class and the requires_grad of its source."""
    wants_grad = source.requires_grad and source.is_leaf
    if type(source) is torch.Tensor:
        return data.requires_grad_() if wants_grad else data
    return _torch.make_subclass(type(source), data, wants_grad)


# --- blocks: one allocation, many tensors -------------------------------------------------------


def fill_blocks(walked: Walk, layout: Layout, options: Options) -> list[tuple[Block, torch.Tensor]]:
    """Memory for every block, with the bytes of its sources in it. Nobody but the caller holds it."""
    leaves = walked.leaves
    filled: list[tuple[Block, torch.Tensor]] = []
    pending: list[Pair] = []
    for block, device in _by_device(leaves, layout.blocks, options):
        base = allocate(leaves, block, device)
        if not block.freed:
            pending += [
                (integers_in(base, move), integers_of(leaves[move.row], move))
                for move in block.moves
            ]
        filled.append((block, base))
    transfer(pending, fresh=True)
    return filled


def put_members(leaves: Sequence[Any], block: Block, base: torch.Tensor, copies: list[Any]) -> None:
    """The copies of a block's leaves, as views of its memory."""
    for member in block.members:
        copies[member.row] = member_of(leaves[member.row], base, member)
    if block.freed:
        base.untyped_storage().resize_(0)


def _by_device(
    leaves: Sequence[Any], blocks: Sequence[Block], options: Options
) -> Iterator[tuple[Block, torch.device]]:
    """Each block and where its copy lives. Off the CPU, arrays part from tensors: no array leads there."""
    cpu = torch.device("cpu")
    for block in blocks:
        arrays = tuple(m for m in block.members if isinstance(leaves[m.row], np.ndarray))
        tensors = tuple(m for m in block.members if not isinstance(leaves[m.row], np.ndarray))
        device = cpu if not tensors else options.device or _device_of(leaves, block)
        if arrays and device.type != "cpu":
            yield replace(block, members=arrays), cpu
            yield replace(block, members=tensors), device
        else:
            yield block, device


def _device_of(leaves: Sequence[Any], block: Block) -> torch.device:
    for member in block.members:
        if not isinstance(leaves[member.row], np.ndarray):
            device: torch.device = leaves[member.row].device
            return device
    return torch.device("cpu")


def allocate(leaves: Sequence[Any], block: Block, device: torch.device) -> torch.Tensor:
    """The bytes of a block, flat; zero where nothing will be written, for files show them.

    Fake tensors allocate through their own mode.
    """
    first = leaves[block.members[0].row]
    if block.space[0] == "meta" and isinstance(first, torch.Tensor):
        return first.new_empty((block.nbytes,), dtype=torch.uint8)
    new = torch.empty if block.is_filled else torch.zeros
    return new(block.nbytes, dtype=torch.uint8, device=device)


def _unit(move: Move) -> int:
    """The largest integer that the bytes can be moved by."""
    for unit in (8, 4, 2):
        numbers = (move.itemsize, move.start, move.offset, *move.source_strides, *move.strides)
        if all(number % unit == 0 for number in numbers):
            return unit
    return 1


def integers_in(base: torch.Tensor, move: Move) -> torch.Tensor:
    """The move's place in the block, as integers."""
    return _strided_integers(
        base, move.offset, move.shape, move.strides, move.itemsize, _unit(move)
    )


def integers_of(leaf: Any, move: Move) -> torch.Tensor:
    """The move's bytes where they are, as integers; reading never materializes."""
    unit = _unit(move)
    if isinstance(leaf, torch.Tensor):
        offset = move.start - _torch.storage_address(leaf)
        return _strided_integers(leaf, offset, move.shape, move.source_strides, move.itemsize, unit)
    if _is_storage(leaf):
        storage = leaf.untyped() if isinstance(leaf, torch.TypedStorage) else leaf
        flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        offset = move.start - _torch.storage_address(flat)
        return _strided_integers(flat, offset, move.shape, move.source_strides, move.itemsize, unit)
    return torch.from_numpy(np.asarray(_Integers(move, unit)))


def _strided_integers(
    holder: torch.Tensor,
    offset: int,
    shape: Sequence[int],
    strides: Sequence[int],
    itemsize: int,
    unit: int,
) -> torch.Tensor:
    """A view of a tensor's storage as integers of `unit` bytes."""
    shape, strides = (*shape, itemsize // unit), (*strides, unit)
    view = torch.empty(0, dtype=_INTEGERS[unit], device=holder.device)
    storage = holder.untyped_storage()
    view.set_(storage, offset // unit, tuple(shape), tuple(s // unit for s in strides))
    return view


class _Integers:
    """Integers at an address of this process, shown to numpy; the walk holds the array they are of."""

    def __init__(self, move: Move, unit: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (move.start, False),
            "shape": (*move.shape, move.itemsize // unit),
            "strides": (*move.source_strides, unit),
            "typestr": f"<i{unit}" if unit > 1 else "|u1",
        }


def member_of(leaf: Any, base: torch.Tensor, member: Member) -> Any:
    """One leaf's copy, as a view of its block.

    All views of a block share its version counter, so that autograd catches an in-place write
    through any of them, as it does at the source.
    """
    if isinstance(leaf, np.ndarray):
        # Of its class by the constructor: what a class does then, it does without a source at hand.
        view: np.ndarray[Any, Any] = np.ndarray.__new__(
            type(leaf), member.shape, leaf.dtype, base.numpy().data, member.offset, member.strides
        )
        view.flags.writeable = leaf.flags.writeable or 0 not in member.strides
        return view
    if _is_storage(leaf):
        storage = base.untyped_storage()
        if isinstance(leaf, torch.UntypedStorage):
            return storage
        return torch.TypedStorage(wrap_storage=storage, dtype=leaf.dtype, _internal=True)
    itemsize = member.itemsize
    strides = tuple(stride // itemsize for stride in member.strides)
    if form_of(leaf) is Form.QUANTIZED:
        return finish(
            leaf,
            _torch.quantized_on(leaf, base.untyped_storage(), member.offset // itemsize, strides),
        )
    usable = base[: base.numel() // itemsize * itemsize].view(leaf.dtype)
    data = usable.as_strided(member.shape, strides, member.offset // itemsize).detach()
    return finish(leaf, _torch.with_bits_of(leaf, data))


# --- the rest -----------------------------------------------------------------------------------


def clone_closed(walked: Walk, row: int, options: Options) -> Any:
    """The copy of a value whose memory torch does not show, by its own `clone`."""
    leaf = walked.leaves[row]
    copied = leaf.detach().clone()
    if options.device is not None:
        copied = copied.to(options.device)
    if type(copied) is not type(leaf) and not isinstance(leaf, torch.nn.Parameter):
        raise CannotCopy(
            f"is a {type(leaf).__name__}, whose clone() is a {type(copied).__name__}",
            where=str(walked.path(row)),
            expected="a class whose clone() keeps its type, or that has __tensor_flatten__",
            got=type(copied).__name__,
            way_out="Give the class a __deepcopy__, or keep the value with share=",
        )
    return finish(leaf, copied)
