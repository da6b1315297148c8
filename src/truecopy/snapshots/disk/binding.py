"""A stored snapshot laid beside live sources: what goes where, or one error with all that does not fit.

Modules and other objects must be there, of the same class. Plain containers and the tensors in them (the
state of an optimizer that has not stepped yet) are made where they are missing, and are gone where the file
has none. Nothing is written here.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from truecopy import _torch
from truecopy.copying.blocks import Block, Member
from truecopy.copying.leaves import integers_in, integers_of
from truecopy.copying.transfer import Pair
from truecopy.memory.groups import partition, tabulate
from truecopy.memory.region import CPU
from truecopy.snapshots.contents import Contents, Drawer, Table, drawers_of
from truecopy.snapshots.disk.encoding import Mismatch, decode, decode_state, type_name
from truecopy.snapshots.disk.reading import Stored
from truecopy.snapshots.keeping import Home, Wrong, member_move, typed_member
from truecopy.snapshots.looking import Image
from truecopy.structure.kinds import Kind, kind_of

_MISSING: Any = object()
"""Where the live sources have nothing."""

_MAKERS: dict[str, type] = {
    type_name(cls): cls for cls in (dict, list, set, OrderedDict, deque, tuple, frozenset)
}


@dataclass(slots=True)
class Bound:
    """What will be written."""

    contents: list[tuple[Drawer, Contents]] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)  # live, stored
    tensors: list[torch.Tensor] = field(default_factory=list)  # those that are written
    requires_grad: list[tuple[torch.Tensor, bool]] = field(default_factory=list)
    hidden: list[tuple[Drawer, Any]] = field(default_factory=list)
    wrong: list[Wrong] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)


def bind(stored: Stored, image: Image) -> Bound:
    """Find the place of everything that is stored."""
    binder = _Binder(stored, image)
    binder.run()
    return binder.bound


class _Binder:
    """The two graphs, from the sources on."""

    def __init__(self, stored: Stored, image: Image) -> None:
        self.stored, self.image = stored, image
        self.bound = Bound()
        self.rows: dict[int, Any] = {}  # stored leaf -> live one
        self.whole: dict[int, torch.Tensor] = {}  # the DTensors of which those are the local parts
        self.leaf_of: dict[int, int] = {}  # the other way
        self.objects: dict[int, Any] = {}
        self.place_of: dict[int, int] = {}
        self.waiting: deque[tuple[dict[str, Any], Any, str]] = deque()
        self.made_leaves: dict[int, torch.Tensor] = {}
        self.postponed: list[tuple[dict[str, Any], Any, str]] | None = []
        self.live_drawers: dict[int, list[Drawer]] = {}
        for drawer in image.drawers:
            self.live_drawers.setdefault(id(drawer.owner), []).append(drawer)

    def run(self) -> None:
        for name, root in zip(self.stored.sources, self.stored.roots, strict=True):
            if name in self.image.sources:
                self._value(root, self.image.sources[name], name, owned=True)
            self._drain()
        late, self.postponed = self.postponed or [], None
        self.waiting.extend(late)
        self._drain()
        self._compare_sharing()
        for row, live in self.rows.items():
            self._leaf_bytes(row, live)

    def _drain(self) -> None:
        while self.waiting:
            self._node(*self.waiting.popleft())

    def _is_early(self, node: dict[str, Any]) -> bool:
        """Whether a key is a tensor that has not been met: optimizer state before the model."""
        for table in node.get("tables", ()):
            for key in table.get("keys", ()):
                if isinstance(key, dict) and "$leaf" in key and key["$leaf"] not in self.rows:
                    return True
        return False

    # --- values

    def _value(self, data: Any, live: Any, path: str, *, owned: bool) -> Any:
        """What is to stand at a place, where `live` stands now."""
        match data:
            case {"$left": True}:
                return live
            case {"$leaf": int(row)}:
                return self._leaf(row, live, path, owned=owned)
            case {"$node": int(place)}:
                return self._object(place, live, path)
        try:
            return decode(data, live)
        except Mismatch as mismatch:
            self._wrong(path, str(mismatch), _shown(live))
        except (ValueError, TypeError) as error:
            self._wrong(path, "a value as truecopy writes it", str(error)[:80])
        return live

    def _leaf(self, row: int, live: Any, path: str, *, owned: bool) -> Any:
        if _torch.is_sharded(live):
            self.whole.setdefault(row, live)
            self._leaf(row, _torch.local_part(live), path, owned=owned)
            return self.whole[row] if row in self.rows else live
        about = self.stored.leaves[row]
        path = about["path"]
        if row in self.rows or row in self.made_leaves:
            there = self.rows.get(row, self.made_leaves.get(row))
            if live is _MISSING:
                return self.whole.get(row, there)
            if live is not there and live is not _MISSING and self._is_live(live):
                self._wrong(path, f"the same tensor as {about['path']}", "another one")
            return there
        if not self._is_live(live):
            made = None if owned else _born(self.stored, about)
            if made is None:
                self._lacks(path, live, _title(about))
                return live
            if row in self.stored.shards:
                made = self.stored.shards[row].around(made)
            self.made_leaves[row] = made
            return made
        if self.leaf_of.setdefault(id(live), row) != row:
            self._wrong(path, "a tensor of its own", f"the same as {self._path_of(live)}")
            return live
        if _title_of(live) != _title(about):
            if (
                not owned
                and isinstance(live, torch.Tensor)
                and (made := _born(self.stored, about)) is not None
            ):
                self.made_leaves[row] = made
                return made
            self._wrong(path, _title(about), _title_of(live))
            return live
        self.rows[row] = live
        if "holder" in about:
            self.waiting.append((about["holder"], live, path))
        return live

    def _is_live(self, live: Any) -> bool:
        return id(live) in self.image.rows.leaf_of

    def _path_of(self, live: Any) -> str:
        return self.image.path(self.image.rows.leaf_of[id(live)])

    def _object(self, place: int, live: Any, path: str) -> Any:
        node = self.stored.nodes[place]
        plain = node["type"] in _MAKERS
        if place in self.objects:
            there = self.objects[place]
            if live is not there and not plain and type(live) is type(there):
                self._wrong(path, "an object that is met elsewhere too", "another one")
            return there
        if plain and live is not _MISSING and self.place_of.setdefault(id(live), place) != place:
            return self._make(place, node, path)  # one list here, two in the file
        if live is _MISSING or type_name(type(live)) != node["type"]:
            if plain and (live is _MISSING or live is None or type_name(type(live)) in _MAKERS):
                return self._make(place, node, path)
            if live is _MISSING:
                self.bound.missing.append(f"{path} ({node['type']})")
            else:
                self._wrong(path, f"a {node['type']}", f"a {type_name(type(live))}")
            return live
        if isinstance(live, tuple | frozenset):
            return self._fixed(place, node, live, path)
        self.objects[place] = live
        self.waiting.append((node, live, path))
        return live

    def _fixed(self, place: int, node: dict[str, Any], live: Any, path: str) -> Any:
        """A tuple stays the object that it is where its members do."""
        items = node.get("items", [])
        held = list(live) if len(live) == len(items) else [_MISSING] * len(items)
        values = [
            self._value(item, now, f"{path}[{index}]", owned=False)
            for index, (item, now) in enumerate(zip(items, held, strict=True))
        ]
        same = len(values) == len(live) and all(
            a is b or (type(a) is type(b) and kind_of[type(a)] is Kind.ATOM and a == b)
            for a, b in zip(values, live, strict=True)
        )
        self.objects[place] = live
        if same or type(live) not in (tuple, frozenset):
            return live
        self.objects[place] = made = type(live)(values)
        return made

    def _make(self, place: int, node: dict[str, Any], path: str) -> Any:
        """A plain container that is not there, with what it holds."""
        cls = _MAKERS[node["type"]]
        if cls in (tuple, frozenset):
            return self._fixed(place, node, cls(), path)
        self.objects[place] = made = cls()
        (table,) = node.get("tables", [{"values": []}])[-1:]
        values = [
            self._value(value, _MISSING, f"{path}[{_key(table, i)}]", owned=False)
            for i, value in enumerate(table["values"])
        ]
        values = [value for value in values if value is not _MISSING]
        if isinstance(made, dict):
            keys = [self._value(key, _MISSING, path, owned=False) for key in table.get("keys", [])]
            made.update(zip(keys, values, strict=False))
        elif isinstance(made, set):
            made.update(values)
        else:
            made.extend(values)
        return made

    # --- objects

    def _node(self, node: dict[str, Any], live: Any, path: str) -> None:
        if self.postponed is not None and self._is_early(node):
            self.postponed.append((node, live, path))
            return
        if "items" in node:
            known = self.image.walked.nodes.get(id(live))
            children = list(known.children) if known is not None else []
            if len(children) != len(node["items"]):
                self._wrong(path, f"{len(node['items'])} parts", f"{len(children)}")
                return
            for index, (item, child) in enumerate(zip(node["items"], children, strict=True)):
                self._value(item, child, f"{path} (part {index})", owned=True)
            return
        drawers = {d.table: d for d in self.live_drawers.get(id(live), ())}
        if not drawers:
            drawers = {d.table: d for d in drawers_of(kind_of[type(live)], live)}
        for table in node.get("tables", ()):
            kind = Table[table["table"]]
            drawer = drawers.get(kind)
            if drawer is None:
                self._wrong(path, f"{kind.value}", "none")
            elif kind is Table.HIDDEN:
                self._hidden(drawer, table["state"], path)
            else:
                self._table(drawer, table, path)

    def _hidden(self, drawer: Drawer, data: Any, path: str) -> None:
        try:
            self.bound.hidden.append((drawer, decode_state(data)))
        except (ValueError, TypeError) as error:
            self._wrong(path, "the state of a generator", str(error)[:80])

    def _table(self, drawer: Drawer, table: dict[str, Any], path: str) -> None:
        now = drawer.read()
        owned = _is_owned(drawer)
        if "keys" in table or drawer.table in (
            Table.NAMES,
            Table.MAPPING,
            Table.ORDERED,
            Table.SLOTS,
        ):
            contents = self._keyed(drawer, table, now, path, owned=owned)
        else:
            held = [*now[1]] if drawer.table is not Table.SET else []
            values = []
            for index, data in enumerate(table["values"]):
                live = held[index] if index < len(held) else _MISSING
                value = self._value(data, live, f"{path}[{index}]", owned=owned)
                if value is not _MISSING:
                    values.append(value)
            for index in range(len(table["values"]), len(held)):
                if not _is_plain(held[index]):
                    self.bound.unexpected.append(f"{path}[{index}]")
            contents = (), values
        self.bound.contents.append((drawer, contents))

    def _keyed(
        self, drawer: Drawer, table: dict[str, Any], now: Contents, path: str, *, owned: bool
    ) -> Contents:
        live = dict(zip(map(_hashed, now[0]), zip(*now, strict=True), strict=True))
        named = drawer.table in (Table.NAMES, Table.SLOTS)
        keys: list[Any] = []
        values: list[Any] = []
        for data, stored in zip(table.get("keys", []), table["values"], strict=True):
            key = self._value(data, _MISSING, path, owned=True)
            at = f"{path}.{key}" if named or owned else f"{path}[{key!r:.60}]"
            if owned and path.endswith(_MODULE_TABLES):
                at = f"{path.rpartition('.')[0]}.{key}"
            _, there = live.pop(_hashed(key), (key, _MISSING))
            if there is _MISSING and stored == {"$left": True}:
                continue
            value = self._value(stored, there, at, owned=owned)
            if value is not _MISSING:
                keys.append(key)
                values.append(value)
        self._left_over(drawer, live, keys, values, now, owned=owned)
        return keys, values

    def _left_over(
        self, drawer: Drawer, live: dict[Any, Any], keys: list[Any], values: list[Any], now: Contents,
        *, owned: bool,
    ) -> None:  # fmt: skip
        """What the live object has and the file has not."""
        is_group = drawer.table is Table.MAPPING and "params" in keys
        for key, value in live.values():
            stays = not drawer.is_part(key, value) or (
                kind_of[type(value)] is Kind.ATOM
                and (is_group or drawer.table in (Table.NAMES, Table.SLOTS))
            )  # what a newer torch has beside it keeps its default
            if stays or (drawer.table in (Table.NAMES, Table.SLOTS) and not _has_tensors(value)):
                keys.append(key)
                values.append(value)
            elif owned and value is not None:
                index = list(map(_hashed, now[0])).index(_hashed(key))
                step = drawer.step(now, index)
                self.bound.unexpected.append(self.image.place(drawer.owner, step, value))

    # --- tensors

    def _leaf_bytes(self, row: int, live: Any) -> None:
        about = self.stored.leaves[row]
        if isinstance(live, torch.Tensor):
            self.bound.tensors.append(live)
            shown = self.whole.get(row, live)
            if shown.is_leaf and "requires_grad" in about:
                self.bound.requires_grad.append((shown, bool(about["requires_grad"])))
        home, member = _home(self.stored, row, about)
        if 0 in member.shape or home.base.nbytes == 0:
            return
        if home.dtype is not None:
            self.bound.pairs.append((live.detach(), typed_member(home, member)))
            return
        move = member_move(live, home, member)
        kept = integers_in(home.base, move)
        backwards = _backwards(live, member)
        self.bound.pairs.append(
            (integers_of(live, move), kept.flip(backwards) if backwards else kept)
        )

    def _compare_sharing(self) -> None:
        rows = list(self.rows)
        live = {
            frozenset(rows[place] for place in group)
            for group in partition(tabulate([self.rows[row] for row in rows])).shared
        }
        bases = [_home(self.stored, row, self.stored.leaves[row]) for row in rows]
        views = [_bytes_of(home, member) for home, member in bases]
        then = {
            frozenset(rows[place] for place in group) for group in partition(tabulate(views)).shared
        }
        for group in sorted(live ^ then, key=sorted):
            first, *rest = sorted(group)
            others = ", ".join(self.stored.leaves[row]["path"] for row in rest[:4])
            shared, apart = f"memory shared with {others}", f"memory apart from {others}"
            pair = (shared, apart) if group in then else (apart, shared)
            self.bound.wrong.append((self.stored.leaves[first]["path"], *pair))

    def _wrong(self, path: str, expected: str, got: str) -> None:
        self.bound.wrong.append((path, expected, got))

    def _lacks(self, path: str, live: Any, what: str) -> None:
        if live is _MISSING or live is None:
            self.bound.missing.append(f"{path} ({what})")
        else:
            self._wrong(path, what, _shown(live))


_MODULE_TABLES = ("._parameters", "._buffers", "._modules")


def _is_owned(drawer: Drawer) -> bool:
    """Whether what is in a drawer must be there: the tensors and objects of a module."""
    return drawer.of_module


def _is_plain(value: Any) -> bool:
    return kind_of[type(value)] is Kind.ATOM or type_name(type(value)) in _MAKERS


def _has_tensors(value: Any) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray | torch.nn.Module)


def _hashed(key: Any) -> Any:
    return key if kind_of[type(key)] is Kind.ATOM else id(key)


def _key(table: dict[str, Any], index: int) -> str:
    keys = table.get("keys")
    return repr(keys[index] if keys else index)[:60]


def _title(about: dict[str, Any]) -> str:
    return f"{about['dtype']} {tuple(about['shape'])}"


def _title_of(live: Any) -> str:
    if isinstance(live, torch.Tensor):
        return f"{str(live.dtype).removeprefix('torch.')} {tuple(live.shape)}"
    if isinstance(live, np.ndarray):
        try:
            dtype = str(torch.from_numpy(np.empty(0, live.dtype)).dtype).removeprefix("torch.")
        except TypeError:
            dtype = live.dtype.str
        return f"{dtype} {live.shape}"
    return f"uint8 {(len(live),)}" if isinstance(live, bytearray) else f"uint8 {(live.nbytes(),)}"


def _shown(live: Any) -> str:
    return "nothing" if live is _MISSING else f"{type(live).__name__} {live!r:.60}"


def _backwards(live: Any, member: Member) -> list[int]:
    """Of the dimensions that a transfer has, those in which one of the two sides runs backwards."""
    if not isinstance(live, np.ndarray):
        return []
    kept = [
        (now < 0) != (stored < 0)
        for n, now, stored in zip(live.shape, live.strides, member.strides, strict=True)
        if n != 1 and not now == stored == 0
    ]
    return [dimension for dimension, turned in enumerate(kept) if turned]


def _home(stored: Stored, row: int, about: dict[str, Any]) -> tuple[Home, Member]:
    base = stored.tensors[about["tensor"]]
    shape = tuple(about["shape"])
    named = vars(torch).get(about["dtype"])
    itemsize = (
        named.itemsize if isinstance(named, torch.dtype) else np.dtype(about["dtype"]).itemsize
    )
    cast = vars(torch)[about["stored"]] if "stored" in about else None
    strides = tuple(about["strides"]) or (0,) * len(shape)
    member = Member(row, about["offset"], shape, strides, itemsize)
    return Home(base, 0, Block(CPU, base.nbytes, (), ()), cast), member


def _bytes_of(home: Home, member: Member) -> torch.Tensor:
    """A view of the bytes that a stored leaf reaches, to see who shares with whom."""
    if home.base.nbytes == 0 or 0 in member.shape:
        return torch.empty(0, dtype=torch.uint8)
    if home.dtype is not None:
        return typed_member(home, member)
    back = sum((n - 1) * s for n, s in zip(member.shape, member.strides, strict=True) if s < 0)
    return home.base.as_strided(
        (*member.shape, member.itemsize), (*map(abs, member.strides), 1), member.offset + back
    )


def _born(stored: Stored, about: dict[str, Any]) -> torch.Tensor | None:
    """A tensor that is in the file and nowhere else, in memory of its own."""
    named = vars(torch).get(about["dtype"])
    if not isinstance(named, torch.dtype) or about.get("requires_grad"):
        return None  # parameters belong to somebody, who must be there
    home, member = _home(stored, -1, about)
    if home.dtype is not None:
        made = typed_member(home, member).to(named, copy=True)
    elif any(number % member.itemsize for number in (member.offset, *member.strides)):
        own = _bytes_of(home, member).clone(memory_format=torch.contiguous_format)
        made = own.view(-1).view(named).view(member.shape)
    else:
        strides = tuple(s // member.itemsize for s in member.strides)
        typed = home.base[: home.base.nbytes // member.itemsize * member.itemsize].view(named)
        made = typed.as_strided(member.shape, strides, member.offset // member.itemsize).clone()
    return made
