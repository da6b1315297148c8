"""Lines of operators, from the calls around them and the source."""

import ast
import textwrap

import pytest

from truecopy.tracing.exact.operators import place, points_of


def lines(source: str, before: int | None, after: int | None, *operations: str) -> list[int | None]:
    """The lines of operations between two calls; the function's own first line is 1."""
    function = ast.parse(textwrap.dedent(source).strip()).body[0]
    return [point and point.line for point in place(points_of(function), before, after, operations)]


TWO = """
def f(x):
    y = x + 1
    z = y + 2
    return z
"""
AROUND_CALLS = """
def f(self, x):
    x = x + self.attention(x)
    x = x + self.mlp(x)
    return x
"""
BRANCH = """
def f(x, c):
    if c:
        y = x + 1
    else:
        y = x + 2
    return y
"""
LOOP = """
def f(x):
    for _ in range(3):
        x = step(x)
        x = x * 2
    return x
"""


def test_operators_of_straight_code_have_their_places_in_order() -> None:
    """As many as the source has, each by its name."""
    assert lines(TWO, None, None, "add", "add") == [2, 3]
    assert lines("def f(a, b):\n  a += b\n  return -a * b", None, None, "add_", "neg", "mul") == [
        2, 3, 3,
    ]  # fmt: skip


def test_calls_around_an_operator_tell_which_it_is() -> None:
    """`x + f(x)` adds when the call is over: between two calls is one addition, and behind the last."""
    assert lines(AROUND_CALLS, None, 2) == []
    assert lines(AROUND_CALLS, 2, 3, "add") == [2]
    assert lines(AROUND_CALLS, 3, None, "add") == [3]


def test_a_loop_that_comes_round_is_followed() -> None:
    """From the last call of its body to the first."""
    assert lines(LOOP, 3, 3, "mul") == [4]
    assert lines(LOOP, 3, None, "mul") == [4]


def test_where_two_lines_are_left_none_is_told() -> None:
    """Which branch has run is in no profile; how often a loop has gone round neither."""
    assert lines(BRANCH, None, None, "add") == [None]
    assert lines(TWO, None, None, "add") == [None]
    two = "def f(x):\n  y = x[0, 1]\n  z = x[2]"
    assert lines(two, None, None, "select", "select", "select") == [2, None, 3]
    assert lines(TWO, None, None, "mul") == [None]


@pytest.mark.parametrize(
    ("code", "operations", "line"),
    [
        ("y = x[0, 1:]", ["select", "slice"], 2),
        ("x[0] = 1", ["select", "fill_"], 2),
        ("a, b = x", ["unbind"], 2),
        ("y = x.T", ["numpy_T"], 2),
        ("y = x @ x < 3", ["matmul", "lt"], 2),
        ("return [a * 2 for a in x]", ["unbind"], None),
    ],
)
def test_what_runs_operations_without_a_call(
    code: str, operations: list[str], line: int | None
) -> None:
    """Subscripts, attributes and unpacking, not operators alone; comprehensions are their own."""
    assert lines(f"def f(x):\n    {code}", None, None, *operations) == [line] * len(operations)


def test_comprehensions_and_lambdas_are_functions_of_their_own() -> None:
    """As Python runs them."""
    (comprehension,) = (
        node for node in ast.walk(ast.parse("[a * 2 for a in x]")) if isinstance(node, ast.ListComp)
    )
    (function,) = (
        node for node in ast.walk(ast.parse("f = lambda a: -a")) if isinstance(node, ast.Lambda)
    )
    assert [point.names for point in points_of(comprehension)][-1] == {"mul", "mul_"}
    assert [point.names for point in points_of(function)] == [{"neg"}]
