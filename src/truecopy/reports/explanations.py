"""What an operation does with memory, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truecopy.reports.tables import count, paragraph, section


def lines_of(record: Any, width: int) -> list[str]:
    """A sentence, what to look out for, and what was seen, form by form."""
    autograd = record.autograd
    lines = [f"{record.name}: {record.sentence}."]
    for label, text in (
        ("cost", record.cost),
        ("autograd", autograd_text(autograd)),
        ("trap", record.trap),
        ("instead", record.instead),
        ("written", ", ".join(record.spellings)),
    ):
        if text:
            lines += _labelled(label, text, width)
    lines += section(
        f"Seen in {count(record.samples, 'call')}, torch {record.seen_with}:",
        record.outcomes,
        lambda one: (
            one.form.replace("torch.", ""),
            one.layout,
            one.origins or "no tensor",
            also(one),
            f"{one.count:,}",
            one.example,
        ),
        width,
        header=("form", "first input", "result", "and", "calls", "for example"),
    )
    return lines


def _labelled(label: str, text: str, width: int) -> list[str]:
    first, *rest = paragraph(f"{text}", width - 11, 0) or [""]
    return [f"  {label:9}{first}", *(f"{'':11}{line}" for line in rest)]


def autograd_text(autograd: Any) -> str:
    """What autograd does, in a few words."""
    if not autograd.flows:
        return "no gradient flows to the result, as far as was seen"
    if autograd.node.endswith("NotImplemented"):
        return "backward raises: torch has no derivative of it"
    node = f"gradient flows through {autograd.node}" if autograd.node else "gradient flows"
    kept: Sequence[str] = autograd.keeps
    return f"{node}, which keeps {' and '.join(kept)} until backward" if kept else node


def also(outcome: Any) -> str:
    """What an outcome says beside the origin of the result."""
    parts = [outcome.effects] if outcome.effects else []
    if outcome.copies_inside:
        parts.append("copies inside")
    return "; ".join(parts)
