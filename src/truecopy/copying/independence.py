"""After a copy: objects that copied themselves must not have kept memory of the original."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from truecopy import _torch
from truecopy.errors import CannotCopy, StillShared
from truecopy.memory.groups import partition, tabulate
from truecopy.structure.kinds import Kind
from truecopy.structure.naming import warn_caller
from truecopy.structure.protocol import Reduction
from truecopy.structure.rebuild import Memo
from truecopy.structure.walk import Keep, Node, Walk, walk


def check_self_made(walked: Walk, memo: Memo, *, honor: bool) -> None:
    """Raise, or with `honor` warn, where an object's own copying returned memory of its source."""
    for node in walked.nodes.values():
        if not _copies_itself(node):
            continue
        made = memo.get(id(node.value), node.value)
        for mine, copied in _shared(walked, node.value, made):
            _report(walked, node, mine, copied, honor=honor)
            break


def check_duplicates_apart(walked: Walk, memos: Sequence[Memo]) -> None:
    """Raise where an object's own copying handed the same memory to two duplicates."""
    for node in walked.nodes.values():
        if not _copies_itself(node):
            continue
        leaves: list[Any] = []
        owners: list[int] = []
        for number, memo in enumerate(memos):
            made = walk(memo.get(id(node.value), node.value), "made", keep=_is_kept(walked))
            leaves += made.leaves
            owners += [number] * len(made.leaves)
        with _torch.disable_torch_function():
            groups = partition(tabulate(leaves)).shared
        if any(len({owners[row] for row in group}) > 1 for group in groups):
            name, how = type(node.value).__name__, _protocol_of(node)
            raise CannotCopy(
                f"{name}.{how} returned the same memory twice",
                where=str(walked.path_of((node.parent, node.place))),
                expected="duplicates that share no byte with each other",
                got="objects that share memory",
                way_out=f"Mend {name}.{how}",
            )


def _protocol_of(node: Node) -> str:
    return "__deepcopy__" if node.kind is Kind.OPAQUE else "__reduce_ex__"


def _is_kept(walked: Walk) -> Keep:
    return lambda child, _path: id(child) in walked.kept


def _copies_itself(node: Node) -> bool:
    if node.kind is Kind.OPAQUE:
        return True
    return isinstance(node.parts.memory, Reduction) and node.parts.memory.itself


def _shared(walked: Walk, value: Any, made: Any) -> Iterator[tuple[str, str]]:
    """Paths, in the source and in the copy, of tensors that share a byte and were not asked to."""
    source = walk(value, "source", keep=_is_kept(walked))
    copied = walk(made, "copy", keep=_is_kept(walked))
    count = len(source.leaves)
    with _torch.disable_torch_function():
        groups = partition(tabulate([*source.leaves, *copied.leaves])).shared
    for group in groups:
        mine = [row for row in group if row < count]
        theirs = [row for row in group if row >= count]
        if mine and theirs:
            yield str(source.path(mine[0])), str(copied.path(theirs[0] - count))


def _report(walked: Walk, node: Node, mine: str, copied: str, *, honor: bool) -> None:
    path = str(walked.path_of((node.parent, node.place)))
    name, how = type(node.value).__name__, _protocol_of(node)
    if honor:
        what = f"{path}: {name}.{how} keeps memory of the original at {path}{mine[6:]}"
        warn_caller(StillShared(what))
        return
    raise CannotCopy(
        f"{name}.{how} returned an object that still reaches memory of the original",
        where=path,
        expected="a copy that shares no byte with its source",
        got=f"{path}{mine[6:]} shares memory with {path}{copied[4:]} of the copy",
        way_out=f"Name it in share= to keep it by reference, or mend {name}.{how}",
    )
