"""A file that `Snapshot.save` wrote, checked before anything of it is believed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from truecopy.errors import CannotRead, UsageError
from truecopy.files.opening import Content, Source, content_of, opened
from truecopy.files.safetensors_files import parse_json_object, read_header
from truecopy.files.safetensors_files import refuse as refuse_file
from truecopy.records import SCHEMA_VERSION
from truecopy.snapshots.contents import Table
from truecopy.snapshots.disk.writing import KEY, shown_progress

_PIECE = 256 << 20


@dataclass(frozen=True, slots=True)
class Shard:
    """How a part lies in the whole that all processes hold together."""

    mesh: Any
    placements: tuple[Any, ...]
    shape: tuple[int, ...]

    def around(self, part: torch.Tensor) -> torch.Tensor:
        """The DTensor of which this process has that part."""
        from torch.distributed.tensor import DTensor

        whole: torch.Tensor = DTensor.from_local(
            part, self.mesh, self.placements, run_check=False, shape=torch.Size(self.shape),
            stride=torch.empty(self.shape, device="meta").stride(),
        )  # fmt: skip
        return whole


@dataclass(frozen=True, slots=True)
class Stored:
    """A file in memory: its description, and the bytes of each tensor, flat."""

    path: Path
    sources: list[str]
    roots: list[Any]
    nodes: list[dict[str, Any]]
    leaves: list[dict[str, Any]]
    random: Any
    unseen: list[str]
    tensors: dict[str, torch.Tensor]
    shards: dict[int, Shard] = field(default_factory=dict)  # of leaves whose bytes are a part
    expected: dict[str, Any] = field(default_factory=dict)  # of a save whose bytes are not read yet

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def load(path: Path, only: tuple[str, ...] | None = None) -> Stored:
    """Read a file, or what those of its sources reach.

    Raises CannotRead for one that is missing, cut off, damaged, or no snapshot.
    """
    with opened(path) as source:
        if content_of(source) is not Content.SAFETENSORS:
            raise _no_snapshot(path, "another kind of file")
        header = read_header(source)
        text = header.metadata.get(KEY)
        if text is None:
            raise _no_snapshot(path, "safetensors without a description by truecopy")
        body = parse_json_object(source, text.encode())
        refuse_damaged(source, body)
        names, leaves = header.names, body["leaves"]
        if only is not None:
            _choose(body, only, path)
            leaves = [leaves[row] for row in _reached(body)]
            wanted = {leaf["tensor"] for leaf in leaves}
            names = tuple(name for name in names if name in wanted)
        tensors = _tensors(source.stable_path, names, source.size, path.name)
        problem = next(filter(None, (_out_of_bounds(one, tensors) for one in leaves)), None)
        if problem is not None:
            raise refuse_file(source, "has a description that does not fit its tensors", problem)
    return Stored(
        path, body["sources"], body["roots"], body["nodes"], body["leaves"], body["random"],
        body["unseen"], tensors,
    )  # fmt: skip


def refuse_damaged(source: Source, body: dict[str, Any]) -> None:
    """Raise CannotRead unless this is the description of a snapshot, and one that can be followed."""
    if body.get("kind") != "snapshot" or body.get("version") != SCHEMA_VERSION:
        got = f"kind {body.get('kind')!r:.40}, version {body.get('version')!r:.40}"
        raise _no_snapshot(source.path, got)
    problem = _problem(body)
    if problem is not None:
        raise refuse_file(source, "has a description that is damaged", problem)


def _choose(body: dict[str, Any], only: tuple[str, ...], path: Path) -> None:
    """Let a description be about some of its sources alone; random state belongs to none of them."""
    unknown = [name for name in only if name not in body["sources"]]
    if unknown or not only:
        raise UsageError(
            f"{path} has no source {', '.join(unknown)}" if unknown else "only= chooses no source",
            expected=f"some of {', '.join(body['sources'])}",
        )
    chosen = [place for place, name in enumerate(body["sources"]) if name in only]
    body["roots"] = [body["roots"][place] for place in chosen]
    body["sources"] = [body["sources"][place] for place in chosen]
    body["random"] = None


def _reached(body: dict[str, Any]) -> list[int]:
    """The leaves to which its sources lead."""
    seen: set[tuple[str, int]] = set()
    waiting: list[Any] = [*body["roots"]]
    while waiting:
        match waiting.pop():
            case {"$node": int(place)}:
                if ("node", place) not in seen:
                    seen.add(("node", place))
                    waiting.append(body["nodes"][place])
            case {"$leaf": int(row)}:
                if ("leaf", row) not in seen:
                    seen.add(("leaf", row))
                    waiting.append(body["leaves"][row].get("holder"))
            case dict(data):
                waiting.extend(data.values())
            case list(data):
                waiting.extend(data)
    return sorted(row for what, row in seen if what == "leaf")


def _tensors(path: str, names: tuple[str, ...], size: int, shown: str) -> dict[str, torch.Tensor]:
    """Every tensor as bytes, in memory of its own: the file may be replaced while we hold it."""
    from safetensors import safe_open

    found = {}
    with (
        safe_open(path, framework="pt") as file,
        shown_progress(f"loading {shown}", size, True) as tell,
    ):
        for name in names:
            flat = file.get_tensor(name).contiguous().reshape(-1).view(torch.uint8)
            found[name] = flat.clone()
            tell(flat.nbytes)
    return found


def _no_snapshot(path: Path, got: str) -> CannotRead:
    return CannotRead(
        "is no snapshot that this truecopy knows",
        where=str(path),
        expected=f"a file written by Snapshot.save, of version {SCHEMA_VERSION}",
        got=got,
        way_out="Plain checkpoints are read by safetensors.torch.load_file and torch.load",
    )


# --- a description that can be followed without surprise ------------------------------------------------

_FIELDS = {"sources": list, "roots": list, "nodes": list, "leaves": list, "unseen": list}


def _problem(body: dict[str, Any]) -> str | None:
    """What is wrong with the form of a description."""
    for name, kind in _FIELDS.items():
        if not isinstance(body.get(name), kind):
            return f"no {name}"
    if "random" not in body or len(body["roots"]) != len(body["sources"]):
        return "sources without what they hold"
    if not all(type(name) is str for name in (*body["sources"], *body["unseen"])):
        return "names that are no text"
    counts = len(body["nodes"]), len(body["leaves"])
    for leaf in body["leaves"]:
        if not _is_leaf(leaf) or ("holder" in leaf and not _is_node(leaf["holder"], counts)):
            return "a tensor that is not described"
    if not all(_is_node(node, counts) for node in body["nodes"]):
        return "an object that is not described"
    if not all(_is_reference(root, counts) for root in body["roots"]):
        return "a source that is not described"
    return None


def _is_leaf(leaf: Any) -> bool:
    match leaf:
        case {
            "path": str(), "tensor": str(), "offset": int(offset), "strides": list(strides),
            "dtype": str(), "shape": list(shape),
        }:  # fmt: skip
            counts = [offset, *strides, *shape]
            return all(type(n) is int for n in counts) and all(n >= 0 for n in (offset, *shape))
    return False


def _is_node(node: Any, counts: tuple[int, int]) -> bool:
    match node:
        case {"type": str(), "tables": list(tables)}:
            return all(_is_table(table, counts) for table in tables)
        case {"type": str(), "items": list(items)}:
            return all(_is_reference(item, counts) for item in items)
        case {"type": str()}:
            return True
    return False


def _is_table(table: Any, counts: tuple[int, int]) -> bool:
    match table:
        case {"table": "HIDDEN", "state": _}:
            return True
        case {"table": str(name), "values": list(values)} if name in Table.__members__:
            keys = table.get("keys", [])
            named = Table[name] in (Table.NAMES, Table.SLOTS, Table.MAPPING, Table.ORDERED)
            return (
                isinstance(keys, list)
                and (len(keys) == len(values) if named else not keys)
                and all(_is_reference(value, counts) for value in (*keys, *values))
            )
    return False


def _is_reference(value: Any, counts: tuple[int, int]) -> bool:
    if not isinstance(value, dict):
        return value is None or type(value) in (bool, int, float, str)
    match value:
        case {"$node": int(place)}:
            return 0 <= place < counts[0] and type(place) is int
        case {"$leaf": int(place)}:
            return 0 <= place < counts[1] and type(place) is int
    return len(value) == 1


def _out_of_bounds(leaf: dict[str, Any], tensors: dict[str, torch.Tensor]) -> str | None:
    """Why a tensor's bytes are not all in the file; None if they are."""
    held = tensors.get(leaf["tensor"])
    if held is None:
        return f"{leaf['path']:.80} has no bytes"
    strides, shape = leaf["strides"], leaf["shape"]
    if 0 in shape or (not strides and held.nbytes == 0):
        return None
    dtype = dtype_of(leaf["dtype"])
    stored = dtype_of(leaf["stored"]) if "stored" in leaf else dtype
    if dtype is None or stored is None or len(strides) != len(shape):
        return f"{leaf['path']:.80} is of no dtype that is known here"
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low = leaf["offset"] + sum(step for step in steps if step < 0)
    high = leaf["offset"] + sum(step for step in steps if step > 0) + dtype
    if "stored" in leaf and any(s < 0 or s % dtype for s in (*strides, leaf["offset"])):
        return f"{leaf['path']:.80} has no ordinary strides"
    if low < 0 or high * stored > held.nbytes * dtype:
        return f"{leaf['path']:.80} reaches beyond its bytes"
    return None


def dtype_of(name: str) -> int | None:
    """The size of an element, by the name of its dtype."""
    found = vars(torch).get(name)  # not getattr: the name comes from a file
    if isinstance(found, torch.dtype):
        return found.itemsize
    try:
        import numpy as np

        kind = np.dtype(name)
        return None if kind.hasobject else kind.itemsize
    except TypeError:
        return None
