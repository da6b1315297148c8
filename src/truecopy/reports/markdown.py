"""Any record as Markdown, for a comment or the summary of a CI job."""

from __future__ import annotations

from typing import Any

from truecopy.reports.terminal import render


def markdown(record: Any) -> str:
    """The report of a record as GitHub's Markdown; names in it are shown, and are no markup."""
    if record.kind == "trace comparison":
        from truecopy.reports.traces.changes import markdown as of_changes

        return of_changes(record)
    text = render(record)
    # A fence must be longer than any run of backticks at the start of a line within it.
    fence = "`" * max(3, 1 + max(len(line) - len(line.lstrip(" `")) for line in text.splitlines()))
    return f"{fence}text\n{text}\n{fence}"
