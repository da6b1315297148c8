"""A headless Chromium for tests, and a page that says what it asked for and what it complained of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_SWITCHES = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    """The system's Chromium; the test is skipped, and says so, where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on PATH: pages are not tried in a browser here")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_SWITCHES))
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """An open page, and all that it did that a report must not do."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self._dismiss)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: self.complaints.append(message.text))

    def open(self, path: Path, fragment: str = "") -> Any:
        """The page of a file, drawn."""
        self.page.goto(path.as_uri() + fragment)
        self.page.wait_for_selector("main h1")
        return self.page

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def is_quiet(self, path: Path) -> bool:
        """Whether nothing was asked for but the file itself, and nobody was disturbed."""
        asked = {url.partition("#")[0] for url in self.requests if not url.startswith("data:")}
        return asked == {path.as_uri()} and not self.dialogs and not self.complaints
