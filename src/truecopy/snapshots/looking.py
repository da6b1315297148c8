"""A look at the sources: which objects hold what, and how their memory lies.

In: named sources. Out: an `Image`, which can tell cheaply whether the sources still are as it says.
"""

from __future__ import annotations

import copy
import operator
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.copying.blocks import Block, span_block
from truecopy.copying.leaves import Layout, lay_out
from truecopy.copying.options import Options
from truecopy.copying.refusals import refuse_what_cannot_be
from truecopy.errors import CannotCopy
from truecopy.memory.reading import read
from truecopy.memory.region import Region
from truecopy.snapshots.contents import (
    CONTAINERS,
    FLAT,
    Contents,
    Drawer,
    Table,
    drawers_of,
    is_hooks,
    is_owned_by_modules,
    is_same,
    is_state,
    replaced,
)
from truecopy.snapshots.sources import Keeping
from truecopy.structure.kinds import Kind, kind_of
from truecopy.structure.parts import Parts, attributes, container_parts
from truecopy.structure.paths import Attribute, Nth, Path, Step
from truecopy.structure.tensors import LEAF_FORMS, Form, form_of, tensor_parts
from truecopy.structure.walk import Node, Walk, walk


@dataclass(frozen=True, slots=True)
class Source:
    """The step from all sources to one of them, which is where its paths begin."""

    name: str

    def code(self, before: str) -> str:
        return self.name if self.name.isidentifier() else f"{before}[{self.name!r}]"

    def follow(self, value: Any) -> Any:
        return value[self.name]


@dataclass(slots=True)
class Image:
    """The sources as they were found."""

    sources: dict[str, Any]
    walked: Walk
    rows: Walk  # the same, with those leaves alone that are kept
    layout: Layout
    drawers: list[Drawer]
    contents: list[Contents]
    unseen: list[tuple[Any, Step, str]]  # the holder, the step from it, and why
    left_out: list[tuple[Any, Step, str]]
    lazy: list[tuple[torch.Tensor, type]]  # tensors without memory yet
    chosen: list[bool] = field(default_factory=list)  # drawers that are put back
    sharded: list[torch.Tensor] = field(
        default_factory=list
    )  # DTensors; their local parts are leaves
    flagged: list[tuple[torch.Tensor, bool]] = field(
        default_factory=list
    )  # that hold others; requires_grad
    fully_sharded: list[torch.nn.Module] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    requires_grad: list[bool] = field(default_factory=list)
    described_as: list[tuple[Any, ...]] = field(default_factory=list)  # each leaf
    counted: list[torch.Tensor] = field(default_factory=list)  # those that have a version counter
    others: list[tuple[Any, Any]] = field(
        default_factory=list
    )  # leaves of other kinds, and regions
    addresses: list[int] = field(default_factory=list)
    described: Callable[[Sequence[torch.Tensor]], bool] | None = None  # None: look again each time
    met_twice: frozenset[int] | None = None  # containers; None until it is asked for

    @property
    def leaves(self) -> list[Any]:
        """The tensors and arrays that are kept."""
        return self.rows.leaves

    def path(self, row: int) -> str:
        """The best path to one of them."""
        return str(self.rows.path(row))

    def path_of(self, holder: Any) -> Path:
        """The path to an object that holds something."""
        node = self.walked.nodes.get(id(holder))
        return self.walked.path_of((None, 0) if node is None else (node.parent, node.place))

    def place(self, holder: Any, step: Step, held: Any = None) -> str:
        """The path to what an object holds."""
        node = self.walked.nodes.get(id(holder))
        for index, child in enumerate(
            node.children if node is not None and held is not None else ()
        ):
            if child is held:
                return str(self.walked.path_of((node, index)))
        path = self.path_of(holder)
        return str(Path(path.root, (*path.steps, step)))

    def follow(self) -> Image | None:
        """The sources as they are now, with what the drawers hold; None where more than that has changed."""
        if self.described is None or not self.memory_is_the_same():
            return None
        found: list[Contents] = []
        exchanged: list[tuple[Any, Any]] = []
        for drawer, then in zip(self.drawers, self.contents, strict=True):
            now = drawer.read()
            if is_same(now, then):
                found.append(then)
                continue
            pairs = replaced(now, then)
            if pairs is None:
                return None
            exchanged += pairs
            found.append(now)
        if exchanged:
            return self._with(exchanged, found)
        self.contents = found
        return self

    def _with(self, exchanged: list[tuple[Any, Any]], found: list[Contents]) -> Image | None:
        """This image with flat containers in the place of others; None where one of them is met twice."""
        if self.met_twice is None:
            counts = Counter(
                id(held) for _, values in self.contents for held in values if type(held) in FLAT
            )
            self.met_twice = frozenset(held for held, count in counts.items() if count > 1)
        nodes = dict(self.walked.nodes)
        drawers, contents = [*self.drawers], found
        place_of = {id(drawer.owner): place for place, drawer in enumerate(drawers)}
        for old, new in exchanged:
            if id(old) in self.met_twice or id(old) not in nodes or id(new) in nodes:
                return None
            node = nodes.pop(id(old))
            nodes[id(new)] = Node(new, node.kind, node.parts, node.parent, node.place, [])
            place = place_of.get(id(old))
            if place is not None:
                drawers[place] = replace(drawers[place], owner=new)
                contents[place] = drawers[place].read()
        walked = copy.copy(self.walked)
        walked.nodes = nodes
        rows = walked
        if self.rows is not self.walked:
            rows = copy.copy(self.rows)
            rows.nodes = nodes
        return replace(self, walked=walked, rows=rows, drawers=drawers, contents=contents)

    def memory_is_the_same(self) -> bool:
        """Whether every leaf has the shape, dtype, device and address that it had."""
        return (
            self.described is not None
            and self.described(self.tensors)
            and not _torch.any_copy_on_write(self.tensors)
            and list(map(torch.Tensor.data_ptr, self.tensors)) == self.addresses
            and all(read(leaf) == region for leaf, region in self.others)
        )


def look(sources: dict[str, Any], keeping: Keeping) -> Image:
    """Look at everything that the sources hold. Allocates no tensor memory; raises where that fails."""
    looker = _Looker(sources)
    walked = walk(sources, "sources", with_grad=False, parts_of=looker.parts)
    looker.add_tensors(walked)
    rows = _kept_rows(walked, keeping, looker)
    options = Options(device=keeping.device)
    layout = lay_out(rows, options)
    refuse_what_cannot_be(rows, layout, options)
    _refuse_closed(rows, layout)
    _join_neighbors(rows, layout)
    drawers, contents = looker.drawers, looker.contents
    image = Image(
        sources, walked, rows, layout, drawers, contents, looker.unseen, looker.left_out, lazy=looker.lazy,
        sharded=looker.sharded, flagged=looker.flagged, fully_sharded=looker.fully_sharded,
    )  # fmt: skip
    only = keeping.only
    image.chosen = [
        only is None or only(str(image.path_of(drawer.owner))) for drawer in image.drawers
    ]
    _describe(image, can_follow=looker.can_follow)
    return image


class _Looker:
    """What each object holds, for the walk; and the drawers, in the order in which they were met."""

    def __init__(self, sources: dict[str, Any]) -> None:
        self.sources = sources
        self.drawers: list[Drawer] = []
        self.contents: list[Contents] = []
        self.unseen: list[tuple[Any, Step, str]] = []
        self.left_out: list[tuple[Any, Step, str]] = []
        self.can_follow = True
        self.lazy: list[tuple[torch.Tensor, type]] = []  # without memory yet
        self.sharded: list[torch.Tensor] = []
        self.flagged: list[tuple[torch.Tensor, bool]] = []
        self.fully_sharded: list[torch.nn.Module] = []
        self._in_modules: set[int] = set()
        self._told: set[int] = set()

    def parts(self, kind: Kind, value: Any) -> Parts:
        """What an object holds, without code and without what modules do not own."""
        if value is self.sources:
            steps = [Source(name) for name in value]
            return Parts(filled_with=list(value.values()), step=steps.__getitem__)
        if isinstance(value, torch.jit.ScriptModule):
            raise TypeError("torch.jit keeps the tensors of a script module where nobody can look")
        if isinstance(value, torch.Tensor):  # of a class that copies itself
            return self._tensor(value)
        if _torch.is_fully_sharded(value):
            _torch.reshard(
                value
            )  # its parameters are the shards, and not what a forward pass left behind
            self.fully_sharded.append(value)
        in_module = id(value) in self._in_modules or isinstance(value, torch.nn.Module)
        drawers = drawers_of(kind, value, of_module=in_module)
        if not drawers:
            return self._fixed(kind, value, in_module)
        children: list[Any] = []
        steps_to: list[tuple[Drawer, Contents, int]] = []
        for drawer in drawers:
            if drawer.table is Table.HIDDEN:
                self._note(drawer, ((), ()))
                continue
            held = drawer.read()
            self._note(drawer, held)
            for index, (name, child) in enumerate(zip(held[0] or held[1], held[1], strict=True)):
                if self._follows(drawer, held, index, name, child):
                    children.append(child)
                    steps_to.append((drawer, held, index))
            if drawer.table in (Table.MAPPING, Table.ORDERED):
                for index, key in enumerate(held[0]):
                    if kind_of[type(key)] is not Kind.ATOM and is_state(key):
                        children.append(key)
                        steps_to.append((drawer, held, -1 - index))
        return Parts(filled_with=children, step=lambda i: _step(*steps_to[i]))

    def _fixed(self, kind: Kind, value: Any, in_module: bool) -> Parts:
        """Members that are there for good: of tuples, frozen sets and objects that a user registered."""
        if kind not in CONTAINERS and kind not in (Kind.REGISTERED, Kind.ARRAY):
            return Parts()  # an object of C, or one without attributes
        parts = container_parts(kind, value)
        held = [*parts.made_from, *parts.filled_with]
        places = [
            index for index, child in enumerate(held)
            if kind_of[type(child)] is not Kind.ATOM and is_state(child)
            and (not in_module or is_owned_by_modules(child))
        ]  # fmt: skip
        if in_module:
            self._in_modules.update(id(held[index]) for index in places)
        return Parts(
            filled_with=[held[index] for index in places],
            step=lambda i: parts.step(places[i]),
        )

    def _tensor(self, value: torch.Tensor) -> Parts:
        """A tensor whose class has a `__deepcopy__`: the walk leaves it to that, and we need its bytes."""
        self.can_follow = False
        form = form_of(value)
        if form is Form.UNINITIALIZED:
            self.lazy.append((value, type(value)))
            return Parts()
        if form in LEAF_FORMS:
            return Parts(filled_with=[value.detach()], step=lambda _: Attribute("data"))
        parts = tensor_parts(value, with_grad=False)
        return Parts(filled_with=parts.made_from, step=parts.step)

    def _note(self, drawer: Drawer, held: Contents) -> None:
        self.drawers.append(drawer)
        self.contents.append(held)

    def _follows(self, drawer: Drawer, held: Contents, index: int, name: Any, child: Any) -> bool:
        kind = kind_of[type(child)]
        if kind is Kind.ATOM or not is_state(child):
            return False
        if not drawer.is_part(name, child):
            if not is_hooks(drawer.owner, name):
                self._tell(self.left_out, drawer, held, index, child, "modules do not own it")
            return False
        if drawer.of_module and kind in CONTAINERS:
            self._in_modules.add(id(child))
        if kind in (Kind.REDUCED, Kind.OPAQUE):
            drawers = drawers_of(kind, child)
            if any(inner.table is Table.HIDDEN for inner in drawers):
                return True
            if _is_machinery(child) or (not isinstance(child, Iterator) and _is_recipe(child)):
                return False
            if not drawers and _may_change(child):
                self._tell(self.unseen, drawer, held, index, child, "it shows nothing of itself")
                return False
        return True

    def _tell(
        self, where: list[tuple[Any, Step, str]], drawer: Drawer, held: Contents, index: int,
        child: Any, why: str,
    ) -> None:  # fmt: skip
        if id(child) not in self._told:
            self._told.add(id(child))
            where.append((drawer.owner, _step(drawer, held, index), f"{_name(child)}: {why}"))

    def add_tensors(self, walked: Walk) -> None:
        """The attributes of tensors, which the walk looks after itself."""
        for node in walked.nodes.values():
            if not isinstance(node.value, torch.Tensor):
                continue
            if node.kind is not Kind.TENSOR or node.parts.memory.form not in LEAF_FORMS:
                self.can_follow = False  # its parts are other objects at every look
                self.flagged.append((node.value, node.value.requires_grad))
            if _torch.is_sharded(node.value):
                self.sharded.append(node.value)
            if not attributes(node.value):
                continue
            drawer = Drawer(node.value, Table.NAMES)
            self._note(drawer, drawer.read())
        for failure in walked.failures:
            raise CannotCopy(
                f"cannot be looked into: {failure.error}",
                where=str(walked.path_of(failure.place)),
                way_out="Name the sources apart from it",
            ) from failure.error


def _step(drawer: Drawer, held: Contents, index: int) -> Step:
    return Nth(-1 - index) if index < 0 else drawer.step(held, index)


def _name(value: Any) -> str:
    return f"a {type(value).__name__}"


def _is_machinery(value: Any) -> bool:
    """Whether an object is part of torch's compiler or tracer, which is not rolled back."""
    return _torch.is_compiler_part(type(value))


def _is_recipe(value: Any) -> bool:
    """Whether an object says that it is made again from a name, as loggers do: it keeps no state."""
    cls = type(value)
    reducers = (getattr(cls, "__reduce_ex__", None), getattr(cls, "__reduce__", None))
    if reducers == _ORDINARY or isinstance(value, _NEVER_RECIPES):
        return False
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # noqa: BLE001 - locks and files cannot be reduced, and may still hold things
        return False
    return isinstance(reduced, str) or (isinstance(reduced, tuple) and set(reduced[2:]) <= {None})


_ORDINARY = (object.__reduce_ex__, object.__reduce__)
_NEVER_RECIPES = (
    dict, list, set, tuple, deque, torch.Tensor, torch.nn.Module, torch.optim.Optimizer, BaseException,
)  # fmt: skip


def _may_change(value: Any) -> bool:
    """Whether an object that shows nothing could have state: those known by value have not."""
    cls: Any = type(value)
    known_by_value = cls.__hash__ is not _BY_IDENTITY
    return not known_by_value and cls is not object and not isinstance(value, _LOCKS)


_BY_IDENTITY: Any = object.__hash__
_LOCKS = (type(threading.Lock()), type(threading.RLock()))


# --- leaves -----------------------------------------------------------------------------------------


def _kept_rows(walked: Walk, keeping: Keeping, looker: _Looker) -> Walk:
    """The walk with those leaves alone that are kept."""
    rows = [
        row
        for row, leaf in enumerate(walked.leaves)
        if _can_be_written(walked, row, leaf, looker) and _is_wanted(walked, row, leaf, keeping)
    ]
    if len(rows) == len(walked.leaves):
        return walked
    kept = Walk(walked.root, walked.name)
    kept.nodes = walked.nodes
    kept.leaves = [walked.leaves[row] for row in rows]
    kept.parents = [walked.parents[row] for row in rows]
    kept.indices = [walked.indices[row] for row in rows]
    kept.bare = {new for new, row in enumerate(rows) if row in walked.bare}
    kept.again = {new: walked.again[row] for new, row in enumerate(rows) if row in walked.again}
    kept.leaf_of = {id(leaf): row for row, leaf in enumerate(kept.leaves)}
    return kept


def _can_be_written(walked: Walk, row: int, leaf: Any, looker: _Looker) -> bool:
    if isinstance(leaf, torch.Tensor):
        return True
    if isinstance(leaf, np.ndarray):
        why = "" if leaf.flags.writeable else "it is read-only"
    else:
        why = "" if isinstance(leaf, _WRITABLE) else "its memory is not ours to write"
    if why:
        node, index = walked.parents[row], walked.indices[row]
        if node is not None:
            looker.unseen.append((node.value, node.parts.step(index), f"{_name(leaf)}: {why}"))
    return not why


_WRITABLE = (torch.UntypedStorage, torch.TypedStorage, bytearray)


def _is_wanted(walked: Walk, row: int, leaf: Any, keeping: Keeping) -> bool:
    if keeping.trainable and isinstance(leaf, torch.nn.Parameter) and not leaf.requires_grad:
        return False
    return keeping.only is None or any(keeping.only(str(path)) for path in walked.paths(row))


def _refuse_closed(rows: Walk, layout: Layout) -> None:
    for row in layout.closed:
        region = layout.table.region(row)
        raise CannotCopy(
            "cannot be kept",
            where=str(rows.path(row)),
            expected="a tensor whose memory can be read and written in place",
            got=getattr(region, "reason", type(rows.leaves[row]).__name__),
            way_out="Choose the others with only=",
        )


def _join_neighbors(rows: Walk, layout: Layout) -> None:
    """Let plain rows that follow each other in one storage be one block: one transfer takes them all."""
    plain = np.array(layout.plain, np.int64)
    if len(plain) < 2:
        return
    low, high = layout.table.low[plain], layout.table.high[plain]
    order = np.argsort(low, kind="stable")
    touch = np.flatnonzero(
        (high[order][:-1] == low[order][1:]) & (low[order][:-1] < low[order][1:])
    )
    if not len(touch):
        return
    runs: list[list[int]] = []
    for place in touch.tolist():
        first, second = int(plain[order[place]]), int(plain[order[place + 1]])
        if _storage(rows.leaves[first]) != _storage(rows.leaves[second]):
            continue
        if runs and runs[-1][-1] == first:
            runs[-1].append(second)
        else:
            runs.append([first, second])
    joined = {row for run in runs for row in run}
    layout.plain = [row for row in layout.plain if row not in joined]
    layout.blocks += (_run_block(rows, run) for run in runs)


def _storage(tensor: torch.Tensor) -> int:
    return _torch.storage_identity(tensor)


def _run_block(rows: Walk, run: list[int]) -> Block:
    regions = [region for row in run if isinstance(region := read(rows.leaves[row]), Region)]
    return span_block(run, regions, whole=False)


def _describe(image: Image, *, can_follow: bool) -> None:
    """Note what tells later whether the leaves still are where and what they were."""
    table = image.layout.table
    for row, leaf in enumerate(image.leaves):
        if isinstance(leaf, torch.Tensor):
            image.tensors.append(leaf)
        else:
            image.others.append((leaf, table.region(row)))
    image.described_as = list(map(described, image.leaves))
    image.counted = [tensor for tensor in image.tensors if not tensor.is_inference()]
    image.requires_grad = list(map(_REQUIRES_GRAD, image.tensors))
    if can_follow and not _torch.any_copy_on_write(image.tensors):
        image.addresses = list(map(torch.Tensor.data_ptr, image.tensors))
        image.described = _torch.description_of(image.tensors)


def described(leaf: Any) -> tuple[Any, ...]:
    """What has to be the same for the bytes of a leaf to mean the same: comparable, and cheap."""
    if isinstance(leaf, torch.Tensor):
        room = leaf.untyped_storage().nbytes() > 0 or not leaf.numel()
        return type(leaf).__name__, leaf.dtype, leaf.shape, leaf.device, room
    if isinstance(leaf, np.ndarray):
        return type(leaf).__name__, leaf.dtype, leaf.shape, "cpu", True
    nbytes = (
        leaf.nbytes() if isinstance(leaf, torch.UntypedStorage | torch.TypedStorage) else len(leaf)
    )
    return type(leaf).__name__, "bytes", (nbytes,), "cpu", True


_REQUIRES_GRAD = operator.attrgetter("requires_grad")


def names_of(image: Image) -> Iterator[str]:
    """The path of each leaf."""
    return map(image.path, range(len(image.leaves)))
