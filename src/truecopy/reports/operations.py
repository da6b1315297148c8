"""All explanations as one page that can be searched, offline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truecopy.reports.explanations import also, autograd_text
from truecopy.reports.html.page import page

_COLUMNS = (
    "name", "spellings", "sentence", "cost", "autograd", "trap", "instead", "seen",
)  # fmt: skip


def html(explanations: Sequence[Any]) -> str:
    """The page. What was seen is counted, without examples: `truecopy explain` prints those."""
    rows = [
        [
            one.name,
            list(one.spellings),
            one.sentence,
            one.cost,
            autograd_text(one.autograd),
            one.trap,
            one.instead,
            [[o.form, o.layout, o.origins, also(o), o.count] for o in one.outcomes],
        ]
        for one in explanations
    ]
    seen_with = explanations[0].seen_with if explanations else ""
    data = {"seen_with": seen_with, "operations": {"columns": _COLUMNS, "rows": rows}}
    return page(data, shown_by="operations")
