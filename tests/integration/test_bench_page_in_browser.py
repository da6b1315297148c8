"""The page of a bench in a real browser: drawn, opened, searched, and asking for nothing."""

from pathlib import Path

import pytest

from benches import measured
from browsers import Watched, chromium
from truecopy.reports.benches.page import html


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_bench(tmp_path: Path, scheme: str) -> None:
    """Each cell has its table, a broken promise is struck out and told in its row, a search narrows."""
    path = tmp_path / "bench.html"
    path.write_text(html(measured()), encoding="utf-8")
    with chromium() as browser:
        watched = Watched(browser, color_scheme=scheme)
        page = watched.open(path, "#method=0%3Acontiguous")

        assert page.locator("tr.detail dd").first.inner_text() == "returns the same tensor"
        assert page.locator("#cell-0 s").count() == 1
        assert (
            page.locator("#cell-0 svg.ratio").count() == 1
        )  # of tc.copy: no reference, no broken one
        assert "Not measured" in page.locator("main").inner_text()
        page.keyboard.press("/")
        page.keyboard.type("deepcopy")
        assert page.locator("#cell-0 tr.none").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        assert watched.is_quiet(path)
