"""docs/corner-cases.md and the tests of this folder agree."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "corner-cases.md"
CASES = range(1, 49)


def rows() -> dict[int, str]:
    """Case and answer of each row of the table."""
    found = re.findall(r"^\| (\d+) \|.*\| ([a-z ]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(found) == len({case for case, _ in found})
    return {int(case): answer for case, answer in found}


def covered() -> dict[int, list[str]]:
    """The tests of each case, by the number in their name."""
    found: dict[int, list[str]] = {}
    for path in HERE.glob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                number = re.match(r"test_(\d\d)_", node.name)
                if number:
                    found.setdefault(int(number[1]), []).append(node.name)
                    low, high = re.findall(r"\d\d", path.name)
                    assert int(low) <= int(number[1]) <= int(high), f"{node.name} in {path.name}"
    return found


def test_every_case_has_a_row_and_a_test() -> None:
    """All forty-eight, in order, and nothing else."""
    assert list(rows()) == list(CASES)
    assert sorted(covered()) == list(CASES)


def test_every_answer_but_a_plain_one_is_explained() -> None:
    """Each row that does not simply hold has its paragraph, and no other has."""
    page = PAGE.read_text()
    for answer, heading in (("by design", "## By design"), ("in part", "## In part")):
        section = page.split(heading)[1].split("\n## ")[0]
        explained = [
            int(number) for number in re.findall(r"^- \*\*(\d+)\*\*", section, re.MULTILINE)
        ]
        assert explained == [case for case, given in rows().items() if given == answer]
    assert set(rows().values()) == {"holds", "by design", "in part"}
