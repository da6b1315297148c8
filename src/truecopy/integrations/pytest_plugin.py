"""The pytest plugin: `@pytest.mark.truecopy(...)`, `truecopy_expect` and `truecopy_independent`.

pytest loads it in every run, so it imports nothing but pytest: torch comes with the first test that
uses one of the three.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from truecopy.tracing.expecting import Expectation

MARKER = (
    "truecopy(*, hidden_copies=None, copies=None, allocated=None, peak=None, growth=None): "
    "fail the test where it copies, allocates or leaves behind more, and say which line did it."
)


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run a test within its limits, its fixtures outside of them; then check its results once more."""
    limits = limits_of(item)
    if limits:
        with _expectation(limits, item):
            outcome = yield
    else:
        outcome = yield
    results = getattr(item, "funcargs", {}).get("truecopy_independent")
    if results is not None:
        results.check()
    return outcome


def limits_of(item: pytest.Item) -> dict[str, Any]:
    """The limits of a test: those of its own marker, and of its class and module what it does not say."""
    limits: dict[str, Any] = {}
    for mark in item.iter_markers("truecopy"):
        if mark.args:
            from truecopy.errors import UsageError

            raise UsageError(
                f"the marker was given {', '.join(map(repr, mark.args))} without a name",
                where=item.nodeid,
                expected="@pytest.mark.truecopy(hidden_copies=0), for example",
            )
        limits = {**mark.kwargs, **limits}
    return limits


def _expectation(limits: dict[str, Any], item: pytest.Item) -> Expectation:
    from truecopy import expect

    expected = expect(**limits)
    function = getattr(item, "function", None)  # a test of a text file, say, has none
    return expected if function is None else expected.of(function)


class Expect(Protocol):
    """`tc.expect`."""

    def __call__(
        self,
        *,
        hidden_copies: int | None = None,
        copies: int | None = None,
        allocated: int | str | None = None,
        peak: int | str | None = None,
        growth: int | str | None = None,
    ) -> Expectation: ...


@pytest.fixture
def truecopy_expect() -> Expect:
    """Limits for a part of a test, used as `tc.expect` is."""
    from truecopy import expect

    return expect


@pytest.fixture
def truecopy_independent() -> Callable[..., None]:
    """Fail a test in which two results share memory, now or by its end: give it all of them."""
    return Results()


class Results:
    """Results of one test, no two of which may have a byte in common. They are held until it ends."""

    def __init__(self) -> None:
        self._named: list[tuple[str, Any]] = []

    def __call__(self, *values: Any, **named: Any) -> None:
        """Take more results, and compare each with all before it."""
        from truecopy.structure.naming import name_of

        known = {id(value) for _, value in self._named}
        first = len(self._named)
        called = [(name_of(value, f"result {first + i}"), value) for i, value in enumerate(values)]
        self._named += (one for one in [*called, *named.items()] if id(one[1]) not in known)
        self.check(first)

    def check(self, first: int = 1) -> None:
        """Compare each result from the first on with all before it. Raises NotIndependent."""
        from truecopy.memory.relation import require_independent

        for place in range(first, len(self._named)):
            name, value = self._named[place]
            for earlier, other in self._named[:place]:
                require_independent(other, value, earlier, name)
