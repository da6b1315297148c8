"""Proofs run where they stand: on this installation, each by itself, none of which ends the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch

from truecopy import errors
from truecopy.answers.claims import Answer, Proof, Race, statement
from truecopy.answers.record import AnswersRecord, ClaimRun, Figure, Ran, TopicRun
from truecopy.measuring.faster import faster

OTHER_LIBRARIES = ("jax", "tensorflow")
"""What some proofs are about, and what need not be installed."""


def run(
    answers: Sequence[Answer],
    *,
    seconds: float = 1.0,
    announce: Callable[[str], None] = lambda _what: None,
) -> AnswersRecord:
    """Run every proof of the answers once, races for `seconds` each, and say which agree.

    Allocates what the proofs do, 200 MB at most. Leaves torch's generator, modes and the
    warnings of the process as they were.
    """
    if not __debug__:
        raise errors.UsageError(
            "the proofs are assertions, and python -O leaves assertions out",
            way_out="Run it without -O, and without PYTHONOPTIMIZE",
        )
    return AnswersRecord(tuple(_topic(answer, seconds, announce) for answer in answers))


def _topic(answer: Answer, seconds: float, announce: Callable[[str], None]) -> TopicRun:
    ran: dict[Proof, Ran] = {}
    for place, proof in enumerate(answer.proofs, start=1):
        announce(f"{answer.topic}: proof {place} of {len(answer.proofs)}")
        ran[proof] = run_proof(proof, seconds)
    claims = [
        ClaimRun(
            part.title, claim.says, claim.verdict, claim.why, tuple(ran[p] for p in claim.proofs)
        )
        for part in answer.parts
        for claim in part.claims
    ]
    return TopicRun(answer.topic, answer.question, answer.article, answer.answer, tuple(claims))


def run_proof(proof: Proof, seconds: float) -> Ran:
    """What one proof comes to here. Whatever goes wrong in it is what it comes to, not an error."""
    name, says = proof.__name__, statement(proof)
    with (
        torch.random.fork_rng(devices=[]),
        torch.inference_mode(False),
        torch.enable_grad(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            race = proof()
            figure = None if race is None else figure_of(race, seconds)
        except ModuleNotFoundError as missing:
            if missing.name not in OTHER_LIBRARIES:
                raise
            return Ran(name, says, "not run", f"{missing.name} is not installed")
        except AssertionError as failed:
            return Ran(
                name, says, "does not agree", str(failed) or "an assertion does not hold here"
            )
        except Exception as error:  # noqa: BLE001 - another torch may refuse what this one does
            return Ran(name, says, "does not agree", f"{type(error).__name__}: {error}")
    return Ran(name, says, "agrees" if figure is None else figure.outcome, figure=figure)


def figure_of(race: Race, seconds: float) -> Figure:
    """A race, run: what can be said of the first against the second, by the protocol of measuring."""
    found = faster(race.run_first, race.run_second, race.on, seconds=seconds)
    return Figure(
        race.first, race.second, found.word, found.ratio, found.low, found.high, found.rounds,
        found.why, race.expected, race.denied,
    )  # fmt: skip
