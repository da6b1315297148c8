"""Frames of a profile: their files, whose code they are, and lines in them as places that people read."""

from __future__ import annotations

import ast
import linecache
import sys
from dataclasses import dataclass
from pathlib import Path

from truecopy import _torch
from truecopy.tracing import sites
from truecopy.tracing.exact.operators import Point, place, points_of
from truecopy.tracing.exact.tree import ALLOCATION, C_CALL, OPERATION, PYTHON, Node
from truecopy.tracing.facts import Site


@dataclass(slots=True)
class _Function:
    """One function of a source file."""

    node: ast.AST
    name: str  # as frames have it: "<lambda>"
    qualified: str
    first: int
    last: int
    points: list[Point] | None = None


class Frames:
    """The source files of a run."""

    def __init__(self) -> None:
        self._prefixes = _torch.profiled_prefixes()
        self._loaded = self._loaded_files()
        self._files: dict[str, str] = {}
        self._kinds: dict[str, int] = {}
        self._functions: dict[str, list[_Function]] = {}
        self._sites: dict[tuple[str, str, int, int], Site] = {}

    def kind(self, frame: Node) -> int:
        """Whose code a Python function is, as `sites` tells it."""
        found = self._kinds.get(frame.file)
        if found is None:
            found = self._kinds[frame.file] = sites.kind_of_file(self.file(frame.file))
        return found

    def file(self, name: str) -> str:
        """The file of a name that the profile has cut."""
        found = self._files.get(name)
        if found is None:
            found = self._files[name] = self._find(name)
        return found

    def site(self, frame: Node, line: int, point: Point | None = None) -> Site:
        """A line in a function; without one, the line where the function begins."""
        key = (frame.file, frame.function, line, -1 if point is None else point.column)
        found = self._sites.get(key)
        if found is None:
            found = self._sites[key] = self._resolve(frame, line, point)
        return found

    def lines_in(self, frame: Node) -> dict[int, Site | None]:
        """For what runs in a frame without a call, by identity of its node: the place, if one is left."""
        function = self._function_at(frame, frame.line)
        found: dict[int, Site | None] = {}
        run: list[Node] = []
        before: int | None = None
        for child in [*_flat(frame), None]:
            if child is not None and child.kind == OPERATION:
                run.append(child)
            elif child is None or child.kind in (PYTHON, C_CALL):
                after = None if child is None else child.call_line
                if run:
                    found |= self._placed(frame, function, before, after, run)
                    run = []
                before = after
        return found

    def _placed(
        self,
        frame: Node,
        function: _Function | None,
        before: int | None,
        after: int | None,
        run: list[Node],
    ) -> dict[int, Site | None]:
        if function is None:
            return {id(one): None for one in run}
        if function.points is None:
            function.points = points_of(function.node)
        names = [one.name.rpartition("::")[2] for one in run]
        places = place(function.points, before, after, names)
        return {
            id(one): None if point is None else self.site(frame, point.line, point)
            for one, point in zip(run, places, strict=True)
        }

    def _resolve(self, frame: Node, line: int, point: Point | None) -> Site:
        file = self.file(frame.file)
        function = self._function_at(frame, line)
        qualified = function.qualified if function else frame.function
        text = linecache.getline(file, line).strip() if line else ""
        if point is None:
            return Site(file, line, line, -1, -1, qualified, text)
        return Site(
            file,
            line,
            point.end_line,
            sites.characters(file, line, point.column),
            sites.characters(file, point.end_line, point.end_column),
            qualified,
            text,
        )

    def _function_at(self, frame: Node, line: int) -> _Function | None:
        """The innermost function of the frame's name around a line."""
        file = self.file(frame.file)
        functions = self._functions.get(file)
        if functions is None:
            functions = self._functions[file] = _functions_in(file)
        around = [
            one for one in functions if one.name == frame.function and one.first <= line <= one.last
        ]
        return max(around, key=lambda one: one.first, default=None)

    def _find(self, name: str) -> str:
        if name in self._loaded:
            return self._loaded[name]
        for prefix in ("", f"{Path.cwd()}/", *self._prefixes):
            if Path(f"{prefix}{name}").is_file():
                return f"{prefix}{name}"
        return name

    def _loaded_files(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str):
                found.setdefault(self._cut(file), file)
        return found

    def _cut(self, file: str) -> str:
        return next((file[len(p) :] for p in self._prefixes if file.startswith(p)), file)


def _flat(frame: Node) -> list[Node]:
    """What runs in a frame: ranges that only carry a name are seen through."""
    found: list[Node] = []
    waiting = list(reversed(frame.children))
    while waiting:
        child = waiting.pop()
        if child.kind == OPERATION and "::" not in child.name:
            waiting += reversed(child.children)
        elif child.kind != ALLOCATION:
            found.append(child)
    return found


def _functions_in(file: str) -> list[_Function]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    found = [_Function(tree, "<module>", "<module>", 0, sys.maxsize)]
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, outer = waiting.pop()
        for child in ast.iter_child_nodes(node):
            name = _name(child)
            if name is None:
                waiting.append((child, outer))
                continue
            qualified = f"{outer}{name}"
            is_class = isinstance(child, ast.ClassDef)
            if not is_class:
                first = min((d.lineno for d in getattr(child, "decorator_list", [])), default=10**9)
                first = min(first, child.lineno)  # type: ignore[attr-defined]
                last = child.end_lineno or first  # type: ignore[attr-defined]
                found.append(_Function(child, name, qualified, first, last))
            waiting.append((child, f"{qualified}." if is_class else f"{qualified}.<locals>."))
    return found


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Lambda():
            return "<lambda>"
        case ast.ListComp():
            return "<listcomp>"
        case ast.SetComp():
            return "<setcomp>"
        case ast.DictComp():
            return "<dictcomp>"
        case ast.GeneratorExp():
            return "<genexpr>"
    return None
