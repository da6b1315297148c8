"""The record of a run of proofs: what the verdicts are, and whether each proof agrees here."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from truecopy.encoding import decode
from truecopy.measuring.verdict import LEAST_ROUNDS
from truecopy.records import Record, read_again

Outcome = Literal["agrees", "does not agree", "cannot tell", "not run"]


@dataclass(frozen=True, slots=True)
class Figure:
    """What a race came to: how long the first took in terms of the second."""

    first: str
    second: str
    word: str  # faster, slower, same, cannot tell
    ratio: float  # of times: above 1, the first took longer
    low: float
    high: float
    rounds: int
    why: str  # why one cannot tell
    expected: str | None  # the word that the verdict needs; None where it needs none
    denied: tuple[float, float | None] | None  # the ratios that the verdict denies

    @property
    def outcome(self) -> Outcome:
        """Whether the verdict is borne out. What cannot be told contradicts nothing."""
        if self.denied is not None:
            return self._of_denied(*self.denied)
        if self.expected is None or self.word == self.expected:
            return "agrees"
        return "cannot tell" if self.word == "cannot tell" else "does not agree"

    def _of_denied(self, least: float, end: float | None) -> Outcome:
        most = math.inf if end is None else end
        if self.rounds < LEAST_ROUNDS:
            return "cannot tell"
        if self.high < least or self.low > most:
            return "agrees"
        return "does not agree" if least <= self.low and self.high <= most else "cannot tell"

    @property
    def said(self) -> str:
        """The word, and the ratio with its interval."""
        ratio, low, high = map(_times, (self.ratio, self.low, self.high))
        rounds = f"{self.rounds} round{'' if self.rounds == 1 else 's'}"
        return f"{self.word}, {ratio} times as long ({low} to {high}, {rounds})"

    def __str__(self) -> str:
        return f"{self.first} against {self.second}: {self.said}"


def _times(ratio: float) -> str:
    if ratio >= 100:
        return f"{ratio:,.0f}"
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


@dataclass(frozen=True, slots=True)
class Ran:
    """What one proof came to."""

    proof: str  # its name, which is that on its page
    says: str
    outcome: Outcome
    detail: str = ""  # why it does not agree, or was not run
    figure: Figure | None = None


@dataclass(frozen=True, slots=True)
class ClaimRun:
    """One claim with its verdict, and what its proofs came to."""

    part: str
    says: str
    verdict: str
    why: str
    proofs: tuple[Ran, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst of its proofs; `not run` for a claim that has none."""
        found = {proof.outcome for proof in self.proofs}
        worst: Outcome
        for worst in ("does not agree", "cannot tell", "agrees"):
            if worst in found:
                return worst
        return "not run"


@dataclass(frozen=True, slots=True)
class TopicRun:
    """One question: its answer, and every claim of the article."""

    topic: str
    question: str
    article: str
    answer: str
    claims: tuple[ClaimRun, ...]


@dataclass(frozen=True, slots=True)
class AnswersRecord(Record):
    """A run of proofs. Clean where no proof disagrees with its verdict."""

    kind = "answers"

    topics: tuple[TopicRun, ...]

    @property
    def claims(self) -> tuple[ClaimRun, ...]:
        """The claims of all topics."""
        return tuple(claim for topic in self.topics for claim in topic.claims)

    @property
    def is_clean(self) -> bool:
        """Whether every proof that could be run and told agrees with the verdict."""
        return all(claim.outcome != "does not agree" for claim in self.claims)

    def body(self) -> dict[str, Any]:
        """The record's own data, JSON-able."""
        return {
            "clean": self.is_clean,
            "topics": [
                {**asdict(topic), "claims": [_claim(claim) for claim in topic.claims]}
                for topic in self.topics
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], where: str | None = None) -> AnswersRecord:
        """The record that `to_json` wrote. Raises CannotRead for anything else."""
        return read_again(data, cls.kind, _read, where)


def _claim(claim: ClaimRun) -> dict[str, Any]:
    return {**asdict(claim), "outcome": claim.outcome}


def _read(data: dict[str, Any]) -> AnswersRecord:
    topics = [
        {**topic, "claims": [_without_outcome(claim) for claim in topic["claims"]]}
        for topic in data["topics"]
    ]
    return AnswersRecord(decode(topics, tuple[TopicRun, ...]))


def _without_outcome(claim: dict[str, Any]) -> dict[str, Any]:
    """The fields of a claim: what its proofs came to together follows from them."""
    return {name: value for name, value in claim.items() if name != "outcome"}
