"""The README of a newcomer: each bug report leads to a page that shows, finds and mends it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "README.md").read_text().split("## You came with a bug")[1].split("\n## ")[0]
LINKS = re.findall(r"\((docs/bugs/[\w-]+\.md)\)", SECTION)
PARTS = ("The bug.", "The line that finds it", "The line that mends it")


def test_five_bugs_and_no_page_that_nobody_finds() -> None:
    """The README links five pages, and these are all there are; the index has them too."""
    assert len(LINKS) == 5
    assert {ROOT / link for link in LINKS} == set(ROOT.glob("docs/bugs/*.md"))
    index = (ROOT / "docs" / "index.md").read_text()
    assert all(link.removeprefix("docs/") in index for link in LINKS)


@pytest.mark.parametrize("link", LINKS)
def test_a_page_shows_finds_and_mends(link: str) -> None:
    """The three parts in order, each with an example that test_doctests.py runs."""
    page = (ROOT / link).read_text()
    places = [page.index(part) for part in PARTS]
    assert places == sorted(places)
    for start, end in zip(places, [*places[1:], len(page)], strict=True):
        assert ">>> " in page[start:end]
