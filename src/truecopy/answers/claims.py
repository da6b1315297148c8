"""What an answer is made of: what an article claims, the verdicts, and the proofs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["holds", "does not hold", "depends", "not testable here"]
Pace = Literal["faster", "slower", "same"]


@dataclass(frozen=True, slots=True)
class Race:
    """Two ways to do one thing, to be timed against each other where the proof is run.

    `expected` is what the verdict says of the first against the second, `denied` the ratios (the time of
    the first over that of the second) that it says are not so: one of the two. Where neither is given,
    the figure is only shown. A run that cannot tell contradicts nothing.
    """

    first: str
    run_first: Callable[[Any], object]
    second: str
    run_second: Callable[[Any], object]
    on: Any  # what both are called with
    expected: Pace | None = None
    denied: tuple[float, float | None] | None = None  # from, and to; None: and beyond


Proof = Callable[[], Race | None]
"""Raises AssertionError where the verdict is not so on this installation; may return a race."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One factual claim of an article in our words, its verdict, and what proves the verdict."""

    says: str
    verdict: Verdict
    proofs: tuple[Proof, ...] = ()
    why: str = ""  # on what it depends; why it cannot be tested here

    def __post_init__(self) -> None:
        untested = self.verdict == "not testable here"
        if untested == bool(self.proofs):
            lacks = "cannot have a proof" if untested else "needs a proof"
            raise ValueError(f"a claim that is said to be {self.verdict!r} {lacks}: {self.says}")
        if (untested or self.verdict == "depends") != bool(self.why):
            raise ValueError(
                f"a claim says why exactly where it depends or is not testable: {self.says}"
            )


@dataclass(frozen=True, slots=True)
class Part:
    """The claims of one part of an article, in the article's order."""

    title: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """One question: the right answer, and every claim of the article that answered it before us."""

    topic: str
    question: str
    article: str  # its title
    answer: str  # three sentences
    parts: tuple[Part, ...]
    not_counted: str  # sentences of the article that claim nothing that can be true or false

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of the answer."""
        *first, last = self.answer.split(". ")
        return (*(f"{sentence}." for sentence in first), last)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """All claims, in the article's order."""
        return tuple(claim for part in self.parts for claim in part.claims)

    @property
    def proofs(self) -> tuple[Proof, ...]:
        """Each proof once, in the order in which claims ask for them."""
        return tuple(dict.fromkeys(proof for claim in self.claims for proof in claim.proofs))


def statement(proof: Proof) -> str:
    """What a proof proves, in one or two sentences: its docstring."""
    return " ".join((proof.__doc__ or "").split())


def is_race(proof: Proof) -> bool:
    """Whether a proof is about time, told without running it."""
    return bool(proof.__annotations__["return"] == "Race")
