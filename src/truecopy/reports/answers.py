"""The report of a run of proofs: each claim with its verdict, what is so, and whether it is so here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from truecopy.files.text import printable

_INDENT = " " * 4


def answers(record: Any, width: int) -> list[str]:
    """One sentence with the numbers, then question after question."""
    lines = [_summary(record)]
    for topic in record.topics:
        lines += ["", *_topic(topic, width)]
    return lines


def _summary(record: Any) -> str:
    found = Counter(claim.outcome for claim in record.claims)
    total = len(record.claims)
    parts = [f"{found['agrees']:,} of {total:,} verdict{'' if total == 1 else 's'} borne out here"]
    for outcome, words in (
        ("does not agree", "not so here"),
        ("cannot tell", "cannot be told here"),
        ("not run", "not run"),
    ):
        if found[outcome]:
            parts.append(f"{found[outcome]:,} {words}")
    return f"{'; '.join(parts)}."


def _topic(topic: Any, width: int) -> Iterator[str]:
    yield f"{topic.topic}: {topic.question}"
    yield ""
    yield from wrap(topic.answer, width - 2, initial_indent="  ", subsequent_indent="  ")
    part = None
    shown: set[str] = set()
    for claim in topic.claims:
        if claim.part != part:
            part = claim.part
            yield from ("", f"  {part}")
        yield from _claim(claim, width, shown)


def _claim(claim: Any, width: int, shown: set[str]) -> Iterator[str]:
    why = f" ({claim.why})" if claim.why else ""
    yield ""
    yield from _wrapped(f'"{claim.says}"', width, "  ")
    yield from _wrapped(f"{claim.verdict}{why}.", width, _INDENT)
    for proof in claim.proofs:
        yield from _proof(proof, width, again=proof.proof in shown)
        shown.add(proof.proof)


_MARKS = {"agrees": "+", "does not agree": "!", "cannot tell": "?", "not run": "-"}


def _proof(proof: Any, width: int, *, again: bool) -> Iterator[str]:
    mark = _MARKS[proof.outcome]
    yield from _wrapped(f"{mark} {proof.says}", width, _INDENT)
    if again:  # what is so is said again, the figures are not
        return
    if proof.figure is not None:
        yield from _wrapped(f"measured here: {proof.figure}", width, _INDENT + "  ")
        if proof.figure.why:
            yield from _wrapped(proof.figure.why, width, _INDENT + "  ")
    if proof.detail:
        yield from _wrapped(f"{proof.outcome}: {proof.detail}", width, _INDENT + "  ")


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return wrap(printable(text), width, initial_indent=indent, subsequent_indent=indent + "  ")
