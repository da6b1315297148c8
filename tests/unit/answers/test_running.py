"""Every proof is run; and what a run comes to, whatever happens in it."""

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from truecopy.answers.claims import Answer, Claim, Part, Proof, Race, is_race
from truecopy.answers.record import Figure
from truecopy.answers.running import figure_of, run, run_proof
from truecopy.answers.topics import TOPICS, load

pytestmark = pytest.mark.usefixtures("objects_frozen")

PROOFS = [(topic, proof) for topic in TOPICS for proof in load(topic).proofs]
OTHERS = [pair for pair in PROOFS if re.search("jax|tensorflow", pair[1].__name__)]
HERE = [pair for pair in PROOFS if pair not in OTHERS]
FIGURE = Figure("a", "b", "faster", 0.5, 0.4, 0.6, 40, "", None, None)


@pytest.mark.parametrize(
    ("topic", "proof"), HERE, ids=[f"{topic}-{proof.__name__}" for topic, proof in HERE]
)
def test_every_proof(topic: str, proof: Proof) -> None:  # noqa: ARG001 - names the test
    """What is proven by assertions is so; what is proven by time comes to a word with its figures."""
    ran = run_proof(proof, seconds=0.01)
    if not is_race(proof):
        assert (ran.outcome, ran.detail, ran.figure) == ("agrees", "", None)
        return
    figure = ran.figure
    assert figure is not None
    assert figure.word in ("faster", "slower", "same", "cannot tell")
    assert 0 < figure.low <= figure.ratio <= figure.high
    assert ran.outcome in ("agrees", "does not agree", "cannot tell")
    assert figure.said.startswith(f"{figure.word}, ")


def test_proofs_about_other_libraries() -> None:
    """Run as proofs and from their pages, in a process of their own: TensorFlow would stay in ours."""
    names = [(topic, proof.__name__) for topic, proof in OTHERS]
    assert len(names) == 4
    script = (
        "from truecopy.answers.pages import code, preamble\n"
        "from truecopy.answers.running import run_proof\n"
        "from truecopy.answers.topics import load\n"
        f"for topic, name in {names}:\n"
        "    (proof,) = (proof for proof in load(topic).proofs if proof.__name__ == name)\n"
        "    space = {}\n"
        "    exec(preamble(load(topic)), space)\n"
        "    exec(code(proof), space)\n"
        "    print(run_proof(proof, 0.01).outcome)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["agrees"] * 4, done.stderr


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "agrees"),
        ({"word": "cannot tell"}, "agrees"),
        ({"expected": "faster"}, "agrees"),
        ({"expected": "slower"}, "does not agree"),
        ({"expected": "slower", "word": "cannot tell"}, "cannot tell"),
        ({"denied": (2.0, 3.0)}, "agrees"),
        ({"denied": (0.3, 0.7)}, "does not agree"),
        ({"denied": (0.5, 0.7)}, "cannot tell"),
        ({"denied": (0.3, None)}, "does not agree"),
        ({"denied": (0.7, None)}, "agrees"),
        ({"denied": (0.3, 0.7), "rounds": 3}, "cannot tell"),
        ({"denied": (2.0, 3.0), "rounds": 3}, "cannot tell"),
    ],
)
def test_what_a_figure_says_of_a_verdict(changes: dict[str, Any], outcome: str) -> None:
    """A figure agrees, disagrees, or cannot tell; what the verdict does not speak of contradicts nothing."""
    assert replace(FIGURE, **changes).outcome == outcome


def test_a_race_is_run_by_the_protocol() -> None:
    """The figure of a race is the verdict of measuring, with its interval and rounds."""
    x = torch.zeros(1 << 16)
    figure = figure_of(
        Race("detach", torch.Tensor.detach, "clone", torch.clone, x, expected="faster"), 1.0
    )
    assert figure.ratio < 1
    assert figure.rounds >= 1
    assert figure.expected == "faster"


def fails() -> None:
    """One is two."""
    raise AssertionError


def raises() -> None:
    """One over nothing is something."""
    raise ZeroDivisionError("division by zero")


def passes() -> None:
    """One is one."""
    warnings.warn("by the way", UserWarning, stacklevel=1)
    torch.manual_seed(7)


def without_jax() -> None:
    """JAX is there."""
    raise ModuleNotFoundError("No module named 'jax'", name="jax")


def without_something() -> None:
    """It is there."""
    raise ModuleNotFoundError("No module named 'nothing'", name="nothing")


def answer_of(*proofs: Callable[[], None]) -> Answer:
    claims = tuple(Claim(proof.__name__, "holds", (proof,)) for proof in proofs)
    untested = Claim("on GPUs", "not testable here", why="no GPU")
    return Answer("t", "Q?", "A", "Yes.", (Part("all", (*claims, untested)),), "")


@pytest.mark.parametrize(
    ("proof", "outcome", "detail"),
    [
        (passes, "agrees", ""),
        (fails, "does not agree", "an assertion does not hold here"),
        (raises, "does not agree", "ZeroDivisionError: division by zero"),
        (without_jax, "not run", "jax is not installed"),
    ],
)
def test_whatever_happens_in_a_proof_is_its_outcome(
    proof: Callable[[], None], outcome: str, detail: str
) -> None:
    """A proof that fails ends nothing: it is what the record says, and the record is not clean."""
    record = run([answer_of(proof, passes)])
    (ran,) = record.claims[0].proofs
    assert ran.outcome == outcome
    assert detail in ran.detail
    assert record.claims[1].outcome == "agrees"
    assert record.claims[2].outcome == "not run"
    assert record.is_clean == (outcome != "does not agree")


def test_another_missing_module_is_an_error() -> None:
    """Only what need not be installed is passed over: a broken installation is not."""
    with pytest.raises(ModuleNotFoundError):
        run_proof(without_something, 0.01)


def test_a_run_changes_nothing() -> None:
    """Torch's generator, its modes and the filters of warnings are afterwards what they were."""
    torch.manual_seed(3)
    before = torch.get_rng_state(), list(warnings.filters)
    with torch.inference_mode():
        run([load("deepcopy")])
        assert torch.is_inference_mode_enabled()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert list(warnings.filters) == before[1]


def test_the_record_is_plain_data() -> None:
    """The record goes through JSON, with the outcome of each claim, and says whether it is clean."""
    record = run([answer_of(passes, fails)])
    data = json.loads(json.dumps(record.to_json()))
    assert (data["kind"], data["clean"]) == ("answers", False)
    assert [claim["outcome"] for claim in data["topics"][0]["claims"]] == [
        "agrees",
        "does not agree",
        "not run",
    ]


def test_without_assertions_nothing_is_proven() -> None:
    """Under `python -O`, where assertions are left out, the command says so and proves nothing."""
    done = subprocess.run(
        [sys.executable, "-O", "-m", "truecopy", "answers", "deepcopy"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "python -O leaves assertions out" in done.stderr
