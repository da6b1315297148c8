"""Which topics there are. Imports nothing heavy: a mistyped topic is answered without torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truecopy.answers.claims import Answer

TOPICS = {
    "duplicate": "How can a tensor be duplicated N times?",
    "methods": "Which way to copy a tensor is the right one?",
    "allocation": "Why does repeating an operation move a tensor to new memory?",
    "deepcopy": "How can I deepcopy tensors that a model creates on its way?",
    "contiguous": "How do copy.deepcopy and contiguous() differ?",
}
"""Topic -> its question; each topic is a module of this room."""


def load(topic: str) -> Answer:
    """The answer to one topic, with the proofs not yet run."""
    answer: Answer = import_module(f"truecopy.answers.{topic}").ANSWER
    return answer
