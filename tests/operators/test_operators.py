"""A part of the proof in proof.py, and what the last run of all of it has found."""

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import proof
from ground_truth import Argument, origin

EVERY = 15


def test_verdicts_are_what_memory_says() -> None:
    """Every fifteenth operator, all samples, all forms: no verdict is wrong, no exception is lost."""
    outcome = proof.prove(proof.operators()[::EVERY], (torch.float32,))

    assert outcome.wrong == []
    assert outcome.samples > 500
    assert set(outcome.forms) == {"forward", "in place", "out", "out of no size"}


def test_the_last_full_run_found_nothing_wrong() -> None:
    """`make test-operators` has run with this torch, over all operators."""
    if not proof.RESULT.exists():
        pytest.fail("make test-operators has not been run")
    last = json.loads(proof.RESULT.read_text())

    assert last["torch"] == torch.__version__
    assert last["wrong"] == []
    assert last["operators"] > 500


def test_the_ground_truth_can_tell() -> None:
    """Writes, growth, other storages and views are seen in bytes and addresses alone."""
    x = torch.ones(4)
    before = Argument.of(x)
    assert before.allowed() == {"untouched"}
    assert origin(x[1:], [before]) == "view"
    assert origin(x, [before]) == "same"
    assert origin(x.clone(), [before]) == "new"
    x.data.add_(1)
    assert before.allowed() == {"mutated"}
    x.set_(torch.ones(9))
    assert "replaced" in before.allowed()
