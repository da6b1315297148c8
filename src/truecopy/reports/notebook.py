"""Any record where a notebook shows it: its report as text, in a box that scrolls and obeys nothing."""

from __future__ import annotations

from html import escape
from typing import Any

from truecopy.reports.terminal import render

MOST_CHARACTERS = 40_000
"""Of a report; each kind keeps to some twenty rows of a table, so this is for names without end."""

_BOX = (
    "overflow: auto; max-height: 40em; margin: 0; padding: 0.5em 0; line-height: 1.4; "
    "color: inherit; background: transparent; white-space: pre"
)
_FIRST = "font-weight: 600; white-space: pre-wrap"


def show(record: Any) -> str:
    """HTML without script, color or request: it looks as the notebook around it does."""
    first, _, rest = render(record)[:MOST_CHARACTERS].partition("\n")
    return (
        f'<pre style="{_BOX}"><span style="{_FIRST}">{escape(first)}</span>\n{escape(rest)}</pre>'
    )
