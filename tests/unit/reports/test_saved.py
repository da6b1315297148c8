"""Records read again: each kind's report is that of the record which was written."""

import json
from pathlib import Path

import pytest
import torch

import truecopy as tc
from benches import measured, slowed
from trace_examples import HOSTILE, hostile, large
from traces import example
from truecopy.answers.record import AnswersRecord, ClaimRun, Figure, Ran, TopicRun
from truecopy.errors import CannotRead, UsageError
from truecopy.files.checkpoint import Checkpoint
from truecopy.files.compaction import Compaction
from truecopy.files.comparison import compare
from truecopy.files.inspection import inspect
from truecopy.measuring.comparison import compare_benches
from truecopy.memory.aliases import StorageUse
from truecopy.reports.forms import FORMS, text_of
from truecopy.reports.json import dumps
from truecopy.reports.notebook import MOST_CHARACTERS
from truecopy.reports.saved import _KEPT, _READERS, load
from truecopy.reports.terminal import _REPORTS, render
from truecopy.tracing.comparison import compare_traces
from truecopy.tracing.ranks import TracesRecord


def checkpoint(obj: object) -> Checkpoint:
    return Checkpoint(Path("model.pt"), "torch", obj, 4_197_000)


def answers() -> AnswersRecord:
    """A topic with a claim of each outcome, one of them about time."""
    figure = Figure("a", "b", "faster", 0.5, 0.4, 0.6, 20, "", "slower", (1.5, None))
    proofs = (
        Ran("views", "a view shares memory", "agrees"),
        Ran("race", "a is slower", "does not agree", "it is faster", figure),
    )
    claims = (
        ClaimRun("Part one", "clone copies", "holds", "", proofs),
        ClaimRun("Part two", "on a GPU", "not testable here", "there is none", ()),
    )
    return AnswersRecord((TopicRun("methods", "Which one?", "an article", "clone.", claims),))


def captures() -> dict[str, object]:
    """What was captured of a model, and the same beside a capture of another input."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    taken = []
    for value in (1.0, 2.0):
        with tc.capture(model) as one:
            model(torch.full((1, 3), value))
        taken.append(one)
    return {"capture": taken[0].record, "capture comparison": taken[0].compare(taken[1])}


def records() -> dict[str, object]:
    """One record of each kind, with something in each of its sections."""
    weight = torch.zeros(1024, 1024)
    state = {"a": weight, "b": weight[0], "c": torch.zeros(3), "sample": torch.zeros(1 << 20)[:3]}
    changed = {**state, "b": weight[1] + 1, "d": torch.ones(2)}
    return {
        "inspection": inspect(checkpoint(state)),
        "compaction": Compaction(
            "a.pt", "b.pt", "torch", 9, 5, 2, 1, 4, 1, (StorageUse(("x",), 9, 5),), True
        ),
        "comparison": compare(checkpoint(state), checkpoint(changed)),
        "aliases": tc.aliases(state),
        "plan": tc.plan({**state, "f": lambda: state}),
        "explanation": tc.explain("reshape"),
        "trace": example(),
        "traces": TracesRecord("train.py", (example(), large(events=50))),
        "trace comparison": compare_traces(example(), large(events=50), ("a.json", "b.json")),
        "bench": measured(),
        "bench comparison": compare_benches(measured(), slowed(measured()), ("a.json", "b.json")),
        "answers": answers(),
        **captures(),
    }


RECORDS = records()


def test_every_kind_that_has_a_report_can_be_read() -> None:
    """No kind is printed that cannot be kept and shown again."""
    assert set(RECORDS) == set(_REPORTS) == {*_READERS, *_KEPT}


@pytest.mark.parametrize("kind", RECORDS)
def test_a_saved_record_shows_as_it_did(kind: str, tmp_path: Path) -> None:
    """Read from JSON, whatever the file's name, a record has the report that it had."""
    record = RECORDS[kind]
    path = tmp_path / "record.png"
    path.write_text(dumps(record))
    again = load(path)

    assert render(again) == render(record)
    assert render(again, color=True) == render(record, color=True)
    assert json.loads(dumps(again)) == json.loads(dumps(record))


@pytest.mark.parametrize("kind", RECORDS)
def test_a_damaged_record_is_a_sentence(kind: str, tmp_path: Path) -> None:
    """Each field gone, or of another type, is refused; nothing else is raised."""
    whole = json.loads(dumps(RECORDS[kind]))
    path = tmp_path / "record.json"
    refused = 0
    for name in whole.keys() - {"made_with"}:
        for other in (None, {"x": []}, 3, "text", [3]):
            path.write_text(json.dumps({**whole, name: other}))
            try:
                load(path)
            except CannotRead:
                refused += 1
    assert refused > 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04" + bytes(60), "is no record. Expected JSON that truecopy wrote"),
        (
            b'{"kind": "recipe", "version": 1}',
            "is no record that can be shown. Expected kind aliases or",
        ),
        (
            b'{"kind": "trace", "version": 9}',
            "is a record of a version that this truecopy does not know",
        ),
        (b"[]", "is of no kind that is known here"),
    ],
)
def test_what_is_no_record_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    """A file is told by its content, and what is not known is refused with a sentence."""
    path = tmp_path / "run.json"
    path.write_bytes(content)

    with pytest.raises(CannotRead, match=said):
        load(path)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_trace(form: str) -> None:
    """A trace has every form."""
    assert text_of(example(), form)


def test_a_bench_has_a_page() -> None:
    """What `bench --html` writes and what `report --format html` makes of the record is one page."""
    assert "<!DOCTYPE html>" in text_of(RECORDS["bench"], "html")
    with pytest.raises(UsageError, match="a record of kind bench has no report of form perfetto"):
        text_of(RECORDS["bench"], "perfetto")


@pytest.mark.parametrize("form", ["html", "perfetto"])
def test_a_form_that_a_kind_has_not(form: str) -> None:
    """A kind without a page says so, and which forms it has."""
    with pytest.raises(UsageError, match=f"a record of kind plan has no report of form {form}"):
        text_of(RECORDS["plan"], form)


@pytest.mark.parametrize("kind", RECORDS)
def test_a_notebook_shows_the_report(kind: str) -> None:
    """Every record shows itself in a notebook."""
    shown = RECORDS[kind]._repr_html_()

    assert shown.startswith("<pre style=")
    assert render(RECORDS[kind]).split(" ", maxsplit=1)[0] in shown


def test_a_notebook_is_safe_and_bounded() -> None:
    """Hostile names are text there too, and long ones do not make it long."""
    shown = hostile()._repr_html_()

    assert not [text for text in HOSTILE if "<" in text and text in shown]
    assert shown.count("<") == 4
    assert len(large(wide=True, events=50)._repr_html_()) < 6 * MOST_CHARACTERS


def test_markdown_of_a_report_ends_no_fence() -> None:
    """The fence around a report is longer than any run of backticks that begins a line in it."""
    lines = text_of(hostile(), "markdown").splitlines()

    fence = lines[0].removesuffix("text")
    assert lines[-1] == fence
    assert not [line for line in lines[1:-1] if line.strip().startswith(fence)]
