"""Nothing is claimed without proof: what an answer must have, and what is known of the articles."""

import ast
import inspect
import sys
from typing import Any

import pytest

from truecopy.answers.claims import Answer, Claim, statement
from truecopy.answers.topics import TOPICS, load

ANSWERS = {topic: load(topic) for topic in TOPICS}


def proves() -> None:
    """What is so."""


@pytest.mark.parametrize("verdict", ["holds", "does not hold", "depends"])
def test_a_claim_without_proof_is_refused(verdict: Any) -> None:
    """Whoever adds a claim without a proof cannot even import the package's answers."""
    with pytest.raises(ValueError, match=r"needs a proof: water is wet$"):
        Claim("water is wet", verdict, why="on the water" if verdict == "depends" else "")


@pytest.mark.parametrize(
    ("verdict", "proofs", "why"),
    [
        ("not testable here", (), ""),
        ("not testable here", (proves,), "no GPU"),
        ("depends", (proves,), ""),
        ("holds", (proves,), "but why"),
    ],
)
def test_a_reason_stands_where_one_is_needed(verdict: Any, proofs: Any, why: str) -> None:
    """What cannot be tested says why and has no proof; what depends says on what; the rest is proven."""
    with pytest.raises(ValueError, match="water is wet"):
        Claim("water is wet", verdict, proofs, why)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_has_three_sentences(answer: Answer) -> None:
    """The right answer is said in three sentences, before anything else."""
    assert len(answer.sentences) == 3
    assert " ".join(answer.sentences) == answer.answer
    assert answer.question == TOPICS[answer.topic]


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_no_proof_is_forgotten(answer: Answer) -> None:
    """Every proof of a module proves a claim, and no two have one name."""
    tree = ast.parse(inspect.getsource(sys.modules[answer.proofs[0].__module__]))
    written = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and ast.unparse(node.returns or ast.Constant("")) in ("None", "Race")
        and not node.args.args
    ]
    assert sorted(written) == sorted(proof.__name__ for proof in answer.proofs)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_proofs_say_what_is_so(answer: Answer) -> None:
    """Each statement stands by itself in a table: a sentence that needs no other before it."""
    for proof in answer.proofs:
        said = statement(proof)
        assert said.endswith("."), proof
        assert said.split()[0] not in ("It", "So", "And", "They", "That"), said


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_no_claim_twice(answer: Answer) -> None:
    """Within a part of an article each claim is made once."""
    for part in answer.parts:
        assert len({claim.says for claim in part.claims}) == len(part.claims)


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("duplicate", "A write to one slice affects all slices, since they share data."),
        ("methods", "`empty_like(x).copy_(x)` is among the ways to a copy without gradient."),
        ("methods", "They are two to three times faster than the first two."),
        (
            "allocation",
            "Each `reshape` of the example generates a tensor at a different address.",
        ),
        ("deepcopy", "With a simple model deepcopy might appear to work."),
        ("contiguous", "The new tensor shares its data with the original."),
        ("contiguous", "`original[0:1, :]` is not contiguous."),
    ],
)
def test_what_is_known_to_be_wrong(topic: str, says: str) -> None:
    """The errors that the articles are known for are among the claims, and called so."""
    (claim,) = (claim for claim in ANSWERS[topic].claims if claim.says == says)
    assert claim.verdict == "does not hold"


def test_the_order_depends() -> None:
    """Whether detach() comes first matters with gradient, and is measured with and without."""
    says = "`detach().clone()` is slightly faster than `clone().detach()`."
    (claim,) = (claim for claim in ANSWERS["methods"].claims if claim.says == says)
    assert claim.verdict == "depends"
    races = [proof() for proof in claim.proofs]
    assert {race.on.requires_grad for race in races if race} == {True, False}
