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
    "nonzero", "view",
))  # fmt: skip
_WRITTEN_BY = frozenset(("copy_", "fill_", "index_put_", "_index_put_impl_", "masked_fill_"))
_UNPACKING = frozenset(("unbind",))
_ASKING = frozenset(("is_nonzero", "item"))


@dataclass(frozen=True, slots=True)
class Point:
    """One thing that a function evaluates: a call, or what may run an operation without one."""

    names: frozenset[str]  # of the operation that it is; none for a call
    line: int
    end_line: int
    column: int  # in bytes, as `ast` counts
    end_column: int
    block: int  # statements of one block have one number
    lines: tuple[int, ...] = ()  # by which a call may be told
    before: frozenset[str] = frozenset()  # of operations that may lead to it: `x[0, 1:] = y`

    def fits(self, operations: Sequence[str]) -> bool:
        """Whether it may have run these, one after the other."""
        return (
            operations[-1] in self.names
            and (len(operations) == 1 or bool(self.before))
            and self.before.issuperset(operations[:-1])
        )


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
    fit = [point for point in window if (point.names | point.before).intersection(operations)]
    places: list[list[Point]] = []
    if len({point.block for point in fit}) == 1 and len(fit) * len(operations) <= _MOST_TO_TRY:
        places = _aligned(fit, operations, may_skip=False)
        if not all(places):  # some of them have run no operation: numbers are added too
            places = _aligned(fit, operations, may_skip=True)
    if not all(places) or not places:
        by_name = {
            name: [one for one in fit if name in one.names or name in one.before]
            for name in dict.fromkeys(operations)
        }
        places = [by_name[name] for name in operations]
    return [_one_line(of_it) for of_it in places]


def _one_line(points: Sequence[Point]) -> Point | None:
    is_one = points and all(point.line == points[0].line for point in points)
    return points[0] if is_one else None


_MOST_TO_TRY = 20_000
_LONGEST = 6
"""Operations that one subscript runs, at most."""


def _between(points: Sequence[Point], before: int | None, after: int | None) -> Sequence[Point]:
    low = -1 if before is None else _first(points, before)
    high = len(points) if after is None else _last(points, after)
    if low < high:
        return points[low + 1 : high]
    return [*points[low + 1 :], *points[:high]]  # a loop has come round


def _first(points: Sequence[Point], line: int) -> int:
    return min(_at(points, line), default=-1)


def _last(points: Sequence[Point], line: int) -> int:
    return max(_at(points, line), default=len(points))


def _at(points: Sequence[Point], line: int) -> list[int]:
    """Where the source has what was called from a line: a call, or an operator written in Python."""
    calls = [index for index, point in enumerate(points) if line in point.lines]
    return calls or [index for index, point in enumerate(points) if line == point.line]


def _aligned(
    fit: Sequence[Point], operations: Sequence[str], *, may_skip: bool
) -> list[list[Point]]:
    """For each operation the points that may have run it, where each runs its own, in order."""
    ends = _reached(fit, operations, may_skip=may_skip)
    found: list[list[Point]] = [[] for _ in operations]
    good = {(len(operations), len(fit))} & ends.keys()
    for place in range(len(fit), 0, -1):
        point = fit[place - 1]
        steps = [(begin, end) for end, at in good if at == place for begin in ends[end, place]]
        for begin, end in steps:
            good.add((begin, place - 1))
            for index in range(begin, end):
                if not found[index] or found[index][-1] is not point:
                    found[index].append(point)
    return found


def _reached(
    fit: Sequence[Point], operations: Sequence[str], *, may_skip: bool
) -> dict[tuple[int, int], list[int]]:
    """So many operations are run by so many points: with how many the last of these may begin."""
    ends: dict[tuple[int, int], list[int]] = {(0, 0): []}
    for place, point in enumerate(fit):
        for begin in [begin for begin, at in ends if at == place]:
            if may_skip:
                ends.setdefault((begin, place + 1), []).append(begin)
            for end in range(begin + 1, min(begin + _LONGEST, len(operations)) + 1):
                if point.fits(operations[begin:end]):
                    ends.setdefault((end, place + 1), []).append(begin)
    return ends


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
            case ast.UnaryOp(operand=ast.Constant()):
                pass  # a number
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
            case ast.AugAssign():
                self._change(node)
            case ast.Subscript(ctx=ctx):
                self._children(node)
                is_read = isinstance(ctx, ast.Load)
                self._point(node, _READING if is_read else _WRITTEN_BY, before=_READING)
            case ast.Attribute(attr=attr, ctx=ast.Load()) if attr in _BY_ATTRIBUTE:
                self._children(node)
                self._point(node, _BY_ATTRIBUTE[attr])
            case ast.Tuple(ctx=ast.Store()) | ast.List(ctx=ast.Store()):
                self._point(node, _UNPACKING)
                self._children(node)
            case ast.Call(func=func):
                self._children(node)
                self._point(node, frozenset(), (node.lineno, func.end_lineno or func.lineno))
            case ast.If(test=ast.Constant(value=value)):  # Python leaves the other out
                self._each(node.body if value else node.orelse)
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

    def _change(self, node: ast.AugAssign) -> None:
        """`x[0] += 1` reads, adds and writes."""
        target = node.target
        if isinstance(target, ast.Subscript):
            self._children(target)
            self._point(target, _READING, before=_READING)
        self.visit(node.value)
        self._point(node, _BY_OPERATOR.get(type(node.op), frozenset()))
        if isinstance(target, ast.Subscript):
            self._point(target, _WRITTEN_BY, before=_READING)

    def _each(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _children(self, node: ast.AST) -> None:
        self._each(list(_in_order(node)))

    def _point(
        self,
        node: ast.AST,
        names: frozenset[str],
        lines: tuple[int, ...] = (),
        before: frozenset[str] = frozenset(),
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
                lines,
                before,
            )
        )


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    return ast.iter_child_nodes(node)
