"""The forms that a report can take, by name; which of them a kind of record has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from truecopy.errors import UsageError

FORMS = ("terminal", "markdown", "html", "perfetto", "json")


def text_of(record: Any, form: str) -> str:
    """The report of a record in one of FORMS, without a newline at its end. A pure function."""
    match form:
        case "terminal":
            from truecopy.reports.terminal import render

            return render(record)
        case "markdown":
            from truecopy.reports.markdown import markdown

            return markdown(record)
        case "json":
            from truecopy.reports.json import dumps

            return dumps(record)
    return _drawn(record, form)(record)


def _drawn(record: Any, form: str) -> Callable[[Any], str]:
    """How a kind is drawn in a form that not every kind has."""
    match (record.kind, form):
        case ("trace", "html"):
            from truecopy.reports.traces.page import html

            return html
        case ("bench", "html"):
            from truecopy.reports.benches.page import html as bench_html

            return bench_html
        case ("trace", "perfetto"):
            from truecopy.reports.traces.perfetto import perfetto

            return perfetto
    raise UsageError(
        f"a record of kind {record.kind} has no report of form {form}",
        expected="a trace, or a bench for html",
        way_out="Use --format terminal, markdown or json",
    )
