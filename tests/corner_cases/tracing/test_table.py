"""docs/tracing-corner-cases.md and the tests of this folder agree."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "tracing-corner-cases.md"
CASES = range(1, 42)


def rows() -> dict[int, str]:
    """Case and answer of each row of the table."""
    found = re.findall(r"^\| (\d+) \|.*\| ([a-z ]+) \|$", PAGE.read_text(), re.MULTILINE)
    return {int(case): answer for case, answer in found}


def covered() -> set[int]:
    """The cases that have a test."""
    return {
        int(number[1])
        for path in HERE.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and (number := re.match(r"test_(\d\d)_", node.name))
    }


def test_every_case_has_a_row_and_a_test() -> None:
    """All forty-one, in order, and nothing else."""
    assert list(rows()) == list(CASES)
    assert sorted(covered()) == list(CASES)


def test_every_part_is_explained() -> None:
    """Each row that holds in part has its paragraph, and no other has."""
    section = PAGE.read_text().split("## In part")[1]
    explained = [int(n) for n in re.findall(r"^- \*\*(\d+)\*\*", section, re.MULTILINE)]
    assert explained == [case for case, given in rows().items() if given == "in part"]
    assert set(rows().values()) == {"holds", "in part", "untested"}
