"""docs/capture-corner-cases.md and the tests of this folder agree."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "capture-corner-cases.md"
CASES = list(range(1, 37))


def rows() -> dict[int, str]:
    """Case and answer of each row of the table."""
    found = re.findall(r"^\| (\d+) \|.*\| ([a-z]+) \|$", PAGE.read_text(), re.MULTILINE)
    return {int(case): answer for case, answer in found}


def covered() -> set[int]:
    """The cases that have a test, by the number in its name, each in the file of its range."""
    found = set()
    for path in HERE.glob("test_*_to_*.py"):
        low, high = map(int, re.findall(r"\d\d", path.name))
        for node in ast.parse(path.read_text()).body:
            number = re.match(r"test_(\d\d)_", getattr(node, "name", ""))
            if number:
                assert low <= int(number[1]) <= high, f"{number[0]} in {path.name}"
                found.add(int(number[1]))
    return found


def test_every_case_has_a_row_and_a_test() -> None:
    """All thirty-six, in order, and nothing else."""
    assert list(rows()) == CASES
    assert sorted(covered()) == CASES


def test_every_answer_but_a_plain_one_is_explained() -> None:
    """Each row that does not simply hold has its paragraph, and no other has."""
    explained = {int(n) for n in re.findall(r"^- \*\*(\d+)\*\*:", PAGE.read_text(), re.MULTILINE)}
    assert explained == {case for case, answer in rows().items() if answer != "yes"}
