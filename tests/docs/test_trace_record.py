"""The written schema of a trace's record says what the code says."""

import re
import typing
from pathlib import Path

import pytest

from truecopy.encoding import hints_of, is_in_tables
from truecopy.records import SCHEMA_VERSION
from truecopy.tracing import comparison, facts, record

PAGE = (Path(__file__).parents[2] / "docs" / "trace-record.md").read_text()
NAMES = {str: "text", int: "integer", float: "number", facts.Site: "site"}


def word_of(hint: typing.Any) -> str:
    """A type in the words of the page."""
    if hint in NAMES:
        return NAMES[hint]
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is not tuple:
        return f"{word_of(inner[0])} or null" if inner else hint.__name__
    if inner[-1] is not ...:
        return f"[{', '.join(map(word_of, inner))}]"
    return f"{'table' if is_in_tables(inner[0]) else 'list'} of {word_of(inner[0])}"


def written(name: str) -> list[tuple[str, str]]:
    """Field and type of each row below a heading."""
    part = re.search(rf"^### {name}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert part, f"the page has no heading {name}"
    return re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]*\S[^|]* \|$", part[1], re.MULTILINE)


def named(hint: typing.Any) -> set[type]:
    """Every fact within a type."""
    inner = {fact for one in typing.get_args(hint) for fact in named(one)}
    return inner | ({hint} if hint in KNOWN else set())


KNOWN = {
    value
    for module in (facts, comparison)
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == module.__name__
} - {comparison.TraceComparison}


@pytest.mark.parametrize(
    ("name", "hints"),
    [
        ("TraceRecord", record._HINTS),
        ("TraceComparison", comparison._HINTS),
        *((kind.__name__, hints_of(kind)) for kind in sorted(KNOWN, key=str)),
    ],
)
def test_the_page_has_each_field(name: str, hints: dict[str, typing.Any]) -> None:
    """Each field stands there, in order, with its type and a meaning; and no other."""
    assert written(name) == [(field, word_of(hint)) for field, hint in hints.items()]


def test_the_page_has_every_fact_that_a_record_can_hold() -> None:
    """No kind of fact is missing from the test above."""
    found = {
        fact
        for hint in (*record._HINTS.values(), *comparison._HINTS.values())
        for fact in named(hint)
    }
    deeper = {fact for one in found for hint in hints_of(one).values() for fact in named(hint)}

    assert found | deeper == KNOWN


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("origin", facts.ORIGINS),
        ("effect", facts.EFFECTS),
        ("phase", facts.PHASES),
        ("owner", facts.OWNERS),
    ],
)
def test_the_page_has_the_words(word: str, values: tuple[str, ...]) -> None:
    """Each word of the facts is listed, in the order in which they number them."""
    row = re.search(rf"^\| {word} \| (.*) \|$", PAGE, re.MULTILINE)

    assert row
    assert tuple(re.findall(r"`([^`]+)`", row[1])) == values


def test_the_page_has_the_numbers() -> None:
    """The version and the bounds are those of the code."""
    assert f"`version` is {SCHEMA_VERSION}." in PAGE
    for most in (record.MOST_EVENTS, record.MOST_MOMENTS, record.MOST_STORAGES):
        assert f"at most {most:,}" in PAGE
    for what in comparison.TOTALS:
        assert f"`{what}`" in PAGE
