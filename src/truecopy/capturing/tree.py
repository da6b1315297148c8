"""Names as a tree: each below the module that it belongs to."""

from __future__ import annotations

from collections.abc import Iterable

from truecopy.capturing.entries import Entry
from truecopy.capturing.names import ROOT, Name, numbered


def tree_of(entries: Iterable[Entry]) -> str:
    """One line for each module and each value, indented by depth, in the order of the first call."""
    lines: dict[str, list[str]] = {"": []}
    for entry in entries:
        _open(lines, entry.name.module)
        lines[entry.name.module].append(_leaf(entry.name, _what(entry)))
    ordered = sorted(lines, key=lambda path: _order(path, list(lines)))
    return "\n".join(line for path in ordered for line in _module(path, lines[path]))


def _open(lines: dict[str, list[str]], path: str) -> None:
    """A place for a module below the modules around it."""
    parts = path.split(".") if path else []
    for depth in range(len(parts) + 1):
        lines.setdefault(".".join(parts[:depth]), [])


def _order(path: str, paths: list[str]) -> list[int]:
    """Where a module stands: each part by its first meeting."""
    parts = path.split(".") if path else []
    return [paths.index(".".join(parts[: depth + 1])) for depth in range(len(parts))]


def _module(path: str, values: list[str]) -> list[str]:
    depth = path.count(".") + 1 if path else 0
    title = path.rpartition(".")[2] or ROOT
    return ["  " * depth + title, *("  " * (depth + 1) + value for value in values)]


def _leaf(name: Name, what: str) -> str:
    own = "" if not name.function else f"/{numbered(name.function, name.number)}"
    port = f":{name.port}" if name.port else ""
    call = f"#{name.call}" if name.call else ""
    return f"{call}{own}{port or ('' if own else ' ->')} {what}".strip()


def _what(entry: Entry) -> str:
    leaves = [
        f"{str(leaf.dtype).removeprefix('torch.')} {'x'.join(map(str, leaf.shape)) or 'scalar'}"
        for leaf in entry.kept.leaves
        if getattr(leaf, "shape", None) is not None
    ]
    return ", ".join(leaves[:3]) + (f" and {len(leaves) - 3} more" if len(leaves) > 3 else "")
