"""Every example in the README, in docs/ and in a docstring of ours runs, and shows what it says."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
PAGES = sorted([*ROOT.glob("README.md"), *ROOT.glob("docs/**/*.md")])
MODULES = sorted(
    ".".join(path.relative_to(SRC).with_suffix("").parts)
    for path in SRC.rglob("*.py")
    if ">>>" in path.read_text()
)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class MarkdownParser(doctest.DocTestParser):
    """Ends an example at the fence of its code block, which doctest takes for output."""

    def parse(self, string: str, name: str = "<string>") -> list[str | doctest.Example]:
        return super().parse(re.sub(r"^ *```.*$", "", string, flags=re.MULTILINE), name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages(page: Path) -> None:
    """A page's examples run from top to bottom, in one session."""
    failed, _ = doctest.testfile(
        str(page),
        module_relative=False,
        optionflags=OPTIONS,
        parser=MarkdownParser(),
        encoding="utf-8",
    )
    assert not failed, "the output above shows what was expected and what was got"


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    """A docstring's examples run."""
    failed, _ = doctest.testmod(
        importlib.import_module(name.removesuffix(".__init__")), optionflags=OPTIONS
    )
    assert not failed, "the output above shows what was expected and what was got"


def test_these_tests_can_fail() -> None:
    """An example in a fenced block that shows something else is found, and the fence is not."""
    for shown, failures in ("2", 0), ("3", 1):
        text = f"```python\n>>> 1 + 1\n{shown}\n```\n"
        test = MarkdownParser().get_doctest(text, {}, "page", "page", 0)
        result = doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None)
        assert result == (failures, 1)
