"""`truecopy answers`, as a user calls it."""

import json

import pytest

from truecopy.answers import methods, topics
from truecopy.answers.claims import Answer, Claim, Part
from truecopy.cli import main


def fails() -> None:
    """One is two."""
    raise AssertionError("one is one")


WRONG = Answer(
    "deepcopy",
    "Q?",
    "An article",
    "Yes.",
    (Part("All", (Claim("1 is 2", "holds", (fails,)),)),),
    "",
)

SMALL = Answer(
    "methods", "Q?", "An article", "Yes.",
    (
        Part(
            "All",
            (
                Claim("Two steps", "holds", (methods.two_steps,)),
                Claim("Twice the time", "does not hold", (methods.the_factor_at_its_largest,)),
            ),
        ),
    ),
    "",
)  # fmt: skip


def test_a_topic_is_answered(capfd: pytest.CaptureFixture[str]) -> None:
    """Question, answer, claims and verdicts; exit code 0."""
    assert main(["answers", "deepcopy"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert "deepcopy: How can I deepcopy tensors that a model creates on its way?\n" in out
    assert '"One can try `copy()`."\n    does not hold.\n    + Tensors have no' in out


def test_times_are_measured_here(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A claim about time shows what was found, and nothing that libraries log reaches stderr."""
    monkeypatch.setattr("truecopy.cli.answers.load", lambda _topic: SMALL)
    assert main(["answers", "methods", "--seconds", "0.01"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert "measured here: tensor() against clone().detach(): " in out
    assert out.startswith("1 of 2 verdicts borne out here; 1 cannot be told here.\n")


def test_json(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """`--json` prints the record in its envelope, each claim with its outcome and each race with figures."""
    monkeypatch.setattr("truecopy.cli.answers.load", lambda _topic: SMALL)
    assert main(["answers", "methods", "--seconds", "0.01", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["kind"], data["version"]) == ("answers", 1)
    steps, factor = data["topics"][0]["claims"]
    assert (steps["outcome"], steps["proofs"][0]["figure"]) == ("agrees", None)
    figure = factor["proofs"][0]["figure"]
    assert figure["low"] <= figure["ratio"] <= figure["high"]
    assert figure["denied"] == [2, None]


def test_a_verdict_that_is_not_so_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 where a proof disagrees with its verdict, and the report says which and why."""
    monkeypatch.setattr("truecopy.cli.answers.load", lambda _topic: WRONG)
    assert main(["answers", "deepcopy"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("0 of 1 verdict borne out here; 1 not so here.\n")
    assert "    ! One is two.\n      does not agree: one is one\n" in out


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["contigous"], "no topic is called 'contigous': did you mean contiguous?"),
        (["Deepcopy"], "no topic is called 'Deepcopy': did you mean deepcopy?"),
        (["zzz"], "no topic is called 'zzz': there are duplicate, methods, allocation, deepcopy"),
        (["--seconds", "0"], "'0' is no number of seconds between 0 and 3600"),
        (["--seconds", "nan"], "'nan' is no number of seconds between 0 and 3600"),
        (["--seconds", "soon"], "'soon' is no number of seconds between 0 and 3600"),
    ],
)
def test_mistakes(argv: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong topics and numbers are usage errors, with the nearest topic."""
    assert main(["answers", *argv]) == 2
    assert text in capsys.readouterr().err


def test_help_names_the_topics(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` says which topics there are."""
    assert main(["answers", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert ", ".join(topics.TOPICS) in out
