"""The lines of `x + 1` and `x[0]`: of operators the profile tells the function alone.

It tells the lines of calls before and after them. The source tells which operators stand between those
calls, in the order in which they are evaluated; where there are as many as have run, each has its place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_BY_OPERATOR: dict[type[ast.AST], frozenset[str]] = {
    ast.Add: frozenset(("add", "add_")),
    ast.Sub: frozenset(("sub", "sub_", "rsub")),
    ast.Mult: frozenset(("mul", "mul_")),
    ast.Div: frozenset(("div", "div_")),
    ast.MatMult: frozenset(("matmul",)),
    ast.Pow: frozenset(("pow", "pow_")),
    ast.Mod: frozenset(("remainder", "remainder_")),
    ast.FloorDiv: frozenset(("floor_divide", "floor_divide_")),
    ast.BitAnd: frozenset(("__and__", "__iand__", "bitwise_and", "bitwise_and_")),
    ast.BitOr: frozenset(("__or__", "__ior__", "bitwise_or", "bitwise_or_")),
    ast.BitXor: frozenset(("__xor__", "__ixor__", "bitwise_xor", "bitwise_xor_")),
    ast.LShift: frozenset(("__lshift__", "__ilshift__")),
    ast.RShift: frozenset(("__rshift__", "__irshift__")),
    ast.Lt: frozenset(("lt",)),
    ast.LtE: frozenset(("le",)),
    ast.Gt: frozenset(("gt",)),
    ast.GtE: frozenset(("ge",)),
    ast.Eq: frozenset(("eq",)),
    ast.NotEq: frozenset(("ne",)),
    ast.USub: frozenset(("neg",)),
    ast.Invert: frozenset(("bitwise_not",)),
}
_BY_ATTRIBUTE = {
    "T": frozenset(("numpy_T", "t")),
    "mT": frozenset(("mT", "transpose")),
    "H": frozenset(("matrix_H", "adjoint")),
    "mH": frozenset(("mH", "adjoint")),
    "data": frozenset(("detach",)),
    "real": frozenset(("real", "view_as_real", "select")),
    "imag": frozenset(("imag", "view_as_real", "select")),
}
_READING = frozenset((
    "select", "slice", "index", "unsqueeze", "alias", "to", "expand", "lift_fresh", "detach_", "empty",
    "nonzero",
))  # fmt: skip
_WRITING = _READING | {"copy_", "fill_", "index_put_", "view", "masked_fill_"}
_UNPACKING = frozenset(("unbind",))
_ASKING = frozenset(("is_nonzero", "item"))


@dataclass(frozen=True, slots=True)
class Point:
    """One thing that a function evaluates: a call, or what may run an operation without one."""

    names: frozenset[str]  # of operations; none for a call
    line: int
    end_line: int
    column: int  # in bytes, as `ast` counts
    end_column: int
    block: int  # statements of one block have one number
    lines: tuple[int, ...] = ()  # by which a call may be told


def points_of(function: ast.AST) -> list[Point]:
    """What a function evaluates itself, in order."""
    walk = _Walk()
    match function:
        case ast.Lambda(body=body):
            walk.visit(body)
        case ast.Module(body=body) | ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            walk.block(body)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            walk.comprehension(function)
    return walk.points


def place(
    points: Sequence[Point], before: int | None, after: int | None, operations: Sequence[str]
) -> list[Point | None]:
    """Where operations have run that stand between two calls, told by the lines of these.

    None for those of which the source does not leave one line only.
    """
    window = _between(points, before, after)
    fit = [point for point in window if point.names.intersection(operations)]
    aligned = _aligned(fit, operations)
    if aligned is not None:
        return list(aligned)
    found: list[Point | None] = []
    for name in operations:
        of_it = [point for point in fit if name in point.names]
        found.append(of_it[0] if len({point.line for point in of_it}) == 1 else None)
    return found


def _between(points: Sequence[Point], before: int | None, after: int | None) -> Sequence[Point]:
    low = -1 if before is None else _first(points, before)
    high = len(points) if after is None else _last(points, after)
    if low < high:
        return points[low + 1 : high]
    return [*points[low + 1 :], *points[:high]]  # a loop has come round


def _first(points: Sequence[Point], line: int) -> int:
    return next((i for i, point in enumerate(points) if line in point.lines), -1)


def _last(points: Sequence[Point], line: int) -> int:
    places = range(len(points) - 1, -1, -1)
    return next((i for i in places if line in points[i].lines), len(points))


def _aligned(fit: Sequence[Point], operations: Sequence[str]) -> Sequence[Point] | None:
    """One point for each operation, where nothing but straight code leaves no choice."""
    if len(fit) != len(operations) or len({point.block for point in fit}) > 1:
        return None
    if all(name in point.names for name, point in zip(operations, fit, strict=True)):
        return fit
    return None


class _Walk:
    """Goes through a function as Python does, and into no function inside of it."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._block = 0
        self._blocks = 0

    def block(self, statements: Sequence[ast.AST]) -> None:
        outer = self._block
        self._blocks += 1
        self._block = self._blocks
        for statement in statements:
            self.visit(statement)
        self._block = outer

    def comprehension(self, node: ast.AST) -> None:
        generators: list[ast.comprehension] = getattr(node, "generators", [])
        for index, one in enumerate(generators):
            if index:
                self.visit(one.iter)
            self._point(one.target, _UNPACKING)
            self._each(one.ifs)
        for name in ("key", "value", "elt"):
            if hasattr(node, name):
                self.visit(getattr(node, name))

    def visit(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                self._each(getattr(node, "decorator_list", []))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self.visit(node.generators[0].iter)  # the rest is a function of its own
            case ast.BinOp(op=op) | ast.UnaryOp(op=op):
                self._children(node)
                self._point(node, _BY_OPERATOR.get(type(op), frozenset()))
            case ast.Compare(left=left, ops=ops, comparators=others):
                self.visit(left)
                for compared, other in zip(ops, others, strict=True):
                    self.visit(other)
                    self._point(node, _BY_OPERATOR.get(type(compared), frozenset()))
            case ast.Assign(targets=targets, value=value):
                self.visit(value)
                self._each(targets)
            case ast.AugAssign(target=target, op=op, value=value):
                if isinstance(target, ast.Subscript):
                    self._children(target)
                    self._point(target, _READING)
                self.visit(value)
                self._point(node, _BY_OPERATOR.get(type(op), frozenset()))
                if isinstance(target, ast.Subscript):
                    self._point(target, _WRITING)
            case ast.Subscript(ctx=ctx):
                self._children(node)
                self._point(node, _READING if isinstance(ctx, ast.Load) else _WRITING)
            case ast.Attribute(attr=attr, ctx=ast.Load()) if attr in _BY_ATTRIBUTE:
                self._children(node)
                self._point(node, _BY_ATTRIBUTE[attr])
            case ast.Tuple(ctx=ast.Store()) | ast.List(ctx=ast.Store()):
                self._point(node, _UNPACKING)
                self._children(node)
            case ast.Call(func=func):
                self._children(node)
                self._point(node, frozenset(), (node.lineno, func.end_lineno or func.lineno))
            case ast.If(test=test) | ast.While(test=test):
                self.visit(test)
                self._point(test, _ASKING)
                self.block(node.body)
                self.block(node.orelse)
            case ast.For(target=target, iter=over) | ast.AsyncFor(target=target, iter=over):
                self.visit(over)
                self._point(over, _UNPACKING)
                self.visit(target)
                self.block(node.body)
                self.block(node.orelse)
            case ast.Try():
                for statements in (node.body, node.handlers, node.orelse, node.finalbody):
                    self.block(statements)
            case _:
                self._children(node)

    def _each(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _children(self, node: ast.AST) -> None:
        self._each(list(_in_order(node)))

    def _point(
        self, node: ast.AST, names: frozenset[str], lines: tuple[int, ...] | None = None
    ) -> None:
        if not isinstance(node, (ast.expr, ast.stmt)) or not (names or lines):
            return
        self.points.append(
            Point(
                names,
                node.lineno,
                node.end_lineno or node.lineno,
                node.col_offset,
                node.end_col_offset or node.col_offset,
                self._block,
                lines or (),
            )
        )


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    return ast.iter_child_nodes(node)
