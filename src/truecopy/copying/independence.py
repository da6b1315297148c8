"""After a copy: objects that copied themselves must not have kept memory of the original.

And where they made anew what is tied to something beside them, that is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from truecopy import _torch
from truecopy.copying.leaves import Layout
from truecopy.errors import CannotCopy, StillShared, TieLost
from truecopy.memory.groups import partition, tabulate
from truecopy.structure.kinds import Kind, arrays_of_others
from truecopy.structure.naming import warn_caller
from truecopy.structure.protocol import Reduction
from truecopy.structure.rebuild import Memo
from truecopy.structure.walk import Keep, Node, Place, Walk, walk


def check_self_made(walked: Walk, layout: Layout, memo: Memo, *, honor: bool) -> None:
    """Raise, or with `honor` warn, where an object's own copying returned memory of its source.

    Warn where it lost a tie that the source has.
    """
    for node in walked.nodes.values():
        if not _copies_itself(node):
            continue
        made = memo.get(id(node.value), node.value)
        for mine, copied in _shared(walked, node.value, made):
            _report(walked, node, mine, copied, honor=honor)
            break
        else:
            _tell_of_lost_ties(walked, layout, node, made, memo)
            _tell_of_lost_bridges(walked, node)


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


def _tell_of_lost_ties(walked: Walk, layout: Layout, node: Node, made: Any, memo: Memo) -> None:
    """Warn where an object made a tensor anew that shares memory with something beside the object."""
    source = walk(node.value, "source", keep=_is_kept(walked))
    copied = walk(made, "copy", keep=_is_kept(walked))
    anew = {str(copied.path(row))[4:]: leaf for row, leaf in enumerate(copied.leaves)}
    groups = {m.row: block.members for block in layout.blocks for m in block.members}
    for number, leaf in enumerate(source.leaves):
        row, way = walked.leaf_of.get(id(leaf)), str(source.path(number))[6:]
        if row is None or way not in anew or anew[way] is memo.get(id(leaf)):
            continue
        tied = [member.row for member in groups.get(row, ())] or [row]
        places = (place for row in tied for place in walked.places(row))
        beside = next((place for place in places if not _is_within(place, node)), None)
        if beside is None:
            continue
        with _torch.disable_torch_function():
            if partition(tabulate([memo.get(id(leaf)), anew[way]])).shared:
                continue
        path = str(walked.path_of((node.parent, node.place)))
        name, how = type(node.value).__name__, _protocol_of(node)
        what = f"{path}{way} of the copy is not tied to {walked.path_of(beside)}"
        warn_caller(TieLost(f"{what}: {name}.{how} made it anew, past its memo"))
        return


def _tell_of_lost_bridges(walked: Walk, node: Node) -> None:
    """Warn where an array of another library, which copies itself, shared memory with something beside it."""
    if type(node.value) not in arrays_of_others():
        return
    with _torch.disable_torch_function():
        groups = partition(tabulate([node.value, *walked.leaves])).shared
    beside = next((row for group in groups if 0 in group for row in group if row), None)
    if beside is not None:
        path, name = str(walked.path_of((node.parent, node.place))), type(node.value).__name__
        what = f"{path} of the copy is not tied to {walked.path(beside - 1)}"
        warn_caller(TieLost(f"{what}: {name} makes memory of its own, and takes none"))


def _is_within(place: Place, node: Node) -> bool:
    parent: Node | None = place[0]
    while parent is not None and parent.value is not node.value:
        parent = parent.parent
    return parent is not None


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
