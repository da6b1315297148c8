"""Limits of a block of code: what passes them raises, with the lines that did it."""

import re

import pytest
import torch

from truecopy import expect
from truecopy.errors import BrokenExpectation, UsageError

X = torch.zeros(64, 96)


def work() -> None:
    """Two hidden copies, and one that was asked for."""
    small = X[:2].t().reshape(-1)
    large = X.t().reshape(-1)
    large.clone().add_(small[0])


def keep_all() -> None:
    """A loop that keeps what it makes."""
    kept = []
    for i in range(8):
        kept.append(X + i)  # noqa: PERF401 - the loop is what is looked at


def broken(**limits: object) -> str:
    """What is said of the work."""
    with pytest.raises(BrokenExpectation) as caught, expect(**limits):
        work()
    return str(caught.value)


@pytest.mark.parametrize(
    ("limit", "got", "worst"),
    [
        ({"hidden_copies": 1}, "hidden_copies=2", "large = X.t().reshape(-1)"),
        ({"copies": 2}, "copies=3", "= X.t().reshape(-1)"),
        ({"allocated": "48 KiB"}, "allocated=49,920 bytes", "large = X.t().reshape(-1)"),
        ({"peak": "64 KiB"}, "peak=74,496 bytes", "from before the block"),
    ],
)
def test_the_worst_line_comes_first(limit: dict[str, object], got: str, worst: str) -> None:
    """The number that was got, then the lines that did it, most first, with their source text."""
    said = broken(**limit)
    first = said.split("\n")[2]

    assert f"Got {got}" in said
    assert worst in first


def test_a_hidden_copy_has_its_reason_and_the_way_out() -> None:
    """Why it was copied, and what would avoid it, below its line."""
    assert re.search(
        r"test_expecting\.py:\d+ \(`large = X\.t\(\)\.reshape\(-1\)`\)\n"
        r" +reshape copied: strides \(1, 96\) cannot be viewed as \(6144,\)\n"
        r" +instead: \S",
        broken(hidden_copies=0),
    )


def test_all_that_is_passed_is_told_at_once() -> None:
    """Several limits, one error, each with its lines; a limit that is kept is not mentioned."""
    said = broken(hidden_copies=0, copies=0, allocated="1 GiB")

    assert "Expected at most hidden_copies=0, copies=0. Got hidden_copies=2, copies=3." in said
    assert "\n hidden_copies:\n" in said
    assert "\n copies:\n" in said
    assert "allocated" not in said


@pytest.mark.parametrize(
    "limits",
    [
        {"hidden_copies": 2, "copies": 3},
        {"allocated": 49_920},
        {"peak": 24_576 + 49_920},
        {"peak": "73 KiB"},
    ],
)
def test_a_limit_may_be_reached(limits: dict[str, object]) -> None:
    """At most means at most: the very number passes."""
    with expect(**limits):
        work()


def test_growth_is_of_each_iteration() -> None:
    """What a loop leaves behind each time, whoever holds it; what it drops is none."""
    with expect(growth=0):
        for i in range(6):
            y = X * i
            y = y + 1

    kept = []
    limited = expect(growth=0)
    limited.__enter__()
    for i in range(6):
        kept.append(X + i)  # noqa: PERF401 - the loop is what is looked at
    with pytest.raises(
        BrokenExpectation, match=r"24,576 bytes.*kept\.append\(X \+ i\).*held by .*kept\["
    ):
        limited.__exit__(None, None, None)


def test_growth_of_a_function_that_has_returned() -> None:
    """What a loop left behind is told too where the function that held it is over."""
    with pytest.raises(BrokenExpectation, match=r"kept\.append"):
        expect(growth="1 KiB")(keep_all)()


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_growth_without_iterations_is_not_passed_in_silence(rounds: int) -> None:
    """A limit that cannot be judged is an error, not a success."""

    def run() -> None:
        with expect(growth=0) as trace:
            for i in range(rounds):
                with trace.step():
                    _ = X + i

    with pytest.raises(UsageError, match="growth was to be limited"):
        run()


def test_steps_can_be_marked() -> None:
    """The block is handed the trace that runs."""
    with expect(growth=0) as trace:
        for i in range(3):
            with trace.step():
                _ = X + i
    assert len(trace.record.iterations) == 3


def test_the_body_comes_first() -> None:
    """What the block raises is what is raised."""
    with pytest.raises(ZeroDivisionError), expect(copies=0):
        X.clone().size(1 // 0)


def test_a_decorator_looks_at_each_call() -> None:
    """By the function's name, with its result, also where it calls itself."""

    @expect(copies=1)
    def copy(n: int) -> torch.Tensor:
        return X.clone() if n == 0 else copy(n - 1) + 1

    assert copy(0).shape == X.shape
    assert copy(2).shape == X.shape

    @expect(copies=0)
    def none() -> torch.Tensor:
        return X.clone()

    for _ in range(2):
        with pytest.raises(BrokenExpectation, match="none`: did more"):
            none()


def test_expectations_nest() -> None:
    """Each keeps its own count; the same object may be entered inside of itself."""
    once = expect(copies=1)
    with once, once:
        X.clone()
    with pytest.raises(BrokenExpectation, match="copies=2"), expect(copies=1), once:
        once(X.clone)().clone()


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"peak": "12 parsecs"},
        {"peak": -1},
        {"hidden_copies": True},
        {"copies": "1 MiB"},
        {"allocated": "much"},
    ],
)
def test_a_limit_that_means_nothing(limits: dict[str, object]) -> None:
    """It is refused where it is written, before anything runs."""
    with pytest.raises(UsageError):
        expect(**limits)


def test_what_runs_later_is_refused() -> None:
    """A generator or a coroutine would return before it does anything, and always pass."""

    def generator() -> object:
        yield X.clone()

    async def coroutine() -> object:
        return X.clone()

    for function in (generator, coroutine):
        with pytest.raises(UsageError, match="iterated"):
            expect(copies=0)(function)


def test_a_failed_expectation_is_a_failed_assertion() -> None:
    """Test runners show it as a failure."""
    assert issubclass(BrokenExpectation, AssertionError)
