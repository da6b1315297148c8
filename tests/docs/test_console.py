"""Every `console` block of docs/ that runs truecopy prints what the page shows."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from truecopy.cli import main

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(p for p in ROOT.glob("docs/*.md") if "$ truecopy" in p.read_text())


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each line behind a `$`, with what is shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        yield line, shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_consoles(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From top to bottom, in an empty directory: Python makes the files, commands look at them."""
    monkeypatch.chdir(tmp_path)
    code = 0
    for language, block in BLOCK.findall(page.read_text()):
        if language == "python":
            if ">>>" not in block:
                exec(compile(block, str(page), "exec"), {})
            continue
        for line, shown in commands(block):
            if line == "echo $?":
                assert shown == f"{code}\n"
                continue
            words, _, target = line.partition(" > ")
            program, *argv = words.split()
            assert program == "truecopy"
            code = main(argv)
            out, err = capsys.readouterr()
            if target:
                Path(target).write_text(out)
                out = ""
            assert out + err == shown


def test_these_tests_can_fail() -> None:
    """Commands and what they show are found, and told apart."""
    assert list(commands("$ a b\nshown\n\nmore\n$ echo $?\n1\n")) == [
        ("a b", "shown\n\nmore\n"),
        ("echo $?", "1\n"),
    ]
