"""docs/answers/ is what the command writes, and every code block there runs from top to bottom."""

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from truecopy.answers import pages
from truecopy.answers.claims import is_race
from truecopy.answers.record import Figure
from truecopy.answers.topics import TOPICS, load

pytestmark = pytest.mark.usefixtures("objects_frozen")

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "answers"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ONCE = "race.run_first(race.on), race.run_second(race.on)"
FIGURE = Figure("a", "b", "faster", 0.5, 0.4, 0.6, 40, "", "faster", None)


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    """The program that writes the pages."""
    path = ROOT / "benchmarks" / "answer_pages.py"
    spec = importlib.util.spec_from_file_location("answer_pages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kept() -> Any:
    """The figures that are kept."""
    return json.loads((ROOT / "benchmarks" / "results" / "answers.json").read_text())


def test_the_pages_are_what_the_command_writes(writer: ModuleType, kept: Any) -> None:
    """No page was edited by hand or forgotten: `make answers` would change nothing."""
    written: Mapping[str, str] = writer.written(kept)
    assert sorted(written) == sorted(path.name for path in FOLDER.iterdir())
    for name, text in written.items():
        assert (FOLDER / name).read_text() == text, f"{name}: run `make answers`"


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning")
@pytest.mark.parametrize("topic", TOPICS)
def test_every_block_runs(topic: str) -> None:
    """A page's code can be pasted into Python, block after block; races are run once here."""
    text = (FOLDER / f"{topic}.md").read_text()
    space: dict[str, Any] = {"__name__": "page"}
    blocks = BLOCK.findall(text)
    assert len(blocks) == 1 + len(load(topic).proofs)
    for block in blocks:
        if "import jax" in block or "import tensorflow" in block:
            continue  # run in a process of their own: test_proofs_about_other_libraries
        exec(block.replace(pages.RUN, ONCE), space)


def test_a_page_runs_a_race(capsys: pytest.CaptureFixture[str]) -> None:
    """The line with which a page runs a race prints the verdict of measuring."""
    proof = next(proof for proof in load("methods").proofs if is_race(proof))
    block = pages.code(proof)
    assert block.endswith(pages.RUN)
    space: dict[str, Any] = {}
    exec(pages.preamble(load("methods")), space)
    exec(block.replace("seconds=1)", "seconds=0.01)"), space)
    assert " times as long (" in capsys.readouterr().out


@pytest.mark.parametrize("topic", TOPICS)
def test_every_claim_is_on_its_page(topic: str) -> None:
    """Claims, verdicts, statements and proofs are all there, and each link leads to a heading."""
    text = (FOLDER / f"{topic}.md").read_text()
    for claim in load(topic).claims:
        assert f"| {claim.says} | **{claim.verdict}**" in text
    headings = {line[4:].replace(" ", "-") for line in text.splitlines() if line[:4] == "### "}
    links = set(re.findall(r"\[Proof\]\(#([\w-]+)\)", text))
    assert links == {proof.__name__.replace("_", "-") for proof in load(topic).proofs}
    assert links <= headings


@pytest.mark.parametrize("topic", TOPICS)
def test_every_race_was_measured(topic: str, kept: Any) -> None:
    """A page has a figure for each claim about time, and says what was measured in the same words."""
    text = (FOLDER / f"{topic}.md").read_text()
    races = {proof.__name__ for proof in load(topic).proofs if is_race(proof)}
    assert set(kept["races"][topic]) == races
    for figure in kept["races"][topic].values():
        assert f"Measured here: `{figure['first']}` against `{figure['second']}`: " in text
        assert f"Measured here: {figure['word']}, " in text


@pytest.mark.parametrize(
    ("word", "expected"),
    [("faster", False), ("cannot tell", False), ("slower", True), ("same", True)],
)
def test_a_figure_against_the_verdict_is_said(word: str, expected: bool) -> None:
    """Where the kept figure contradicts the verdict, the page says so beside it."""
    figure = replace(FIGURE, word=word)
    text = pages.page(load("methods"), {"the_order_with_gradient": figure}, "measured")
    assert f"{figure.said}" in text
    assert ("does not agree with the verdict" in text) == expected
