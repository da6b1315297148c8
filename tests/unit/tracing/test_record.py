"""The record of a trace is plain data: it is written, read again, and refused where it is damaged."""

import copy
import json

import pytest

from traces import example
from truecopy.errors import CannotRead
from truecopy.reports.json import dumps
from truecopy.tracing.facts import OWNERS
from truecopy.tracing.record import TraceRecord


def test_a_record_is_read_as_it_was_written() -> None:
    """Every field comes back, of the type and value that it had, through JSON text."""
    record = example()

    assert TraceRecord.from_json(json.loads(dumps(record))) == record


def test_a_site_is_written_once() -> None:
    """However many facts name a line, its text is in the file once."""
    text = dumps(example())

    assert text.count("Model.forward") == 1


def test_the_envelope_is_that_of_every_record() -> None:
    """Kind, version and what it was made with stand where every other record has them."""
    data = example().to_json()

    assert data["kind"] == "trace"
    assert data["version"] == 1
    assert set(data["made_with"]) == {"truecopy", "torch", "python"}
    assert data["clean"] is False
    assert all(len(row) == len(data["events"]["columns"]) for row in data["events"]["rows"])


def test_moments_have_one_number_for_each_class() -> None:
    """The example keeps what the facts promise of `by_owner`."""
    assert all(len(moment.by_owner) == len(OWNERS) for moment in example().memory)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.pop("lines"),
        lambda data: data["totals"].update(events="six"),
        lambda data: data["totals"].update(other=1),
        lambda data: data["lines"][0].update(site=99),
        lambda data: data["lines"][0].update(site=-1),
        lambda data: data["lines"][0].update(site=True),
        lambda data: data["events"]["columns"].reverse(),
        lambda data: data["events"]["rows"][0].pop(),
        lambda data: data["events"].update(rows=None),
        lambda data: data.update(sites={}),
        lambda data: data["sites"][0].pop("text"),
        lambda data: data.update(unseen="nothing"),
    ],
)
def test_a_damaged_record_is_refused(damage) -> None:
    """Whatever is missing, unknown or of another type is an error that says so, and no guess."""
    data = copy.deepcopy(json.loads(dumps(example())))
    damage(data)

    with pytest.raises(CannotRead, match=r"^`run.json`: is a record of a trace that is damaged"):
        TraceRecord.from_json(data, "run.json")


@pytest.mark.parametrize("wrong", [{"kind": "plan"}, {"version": 2}, {"kind": None}])
def test_another_kind_or_version_is_refused(wrong) -> None:
    """A reader refuses what it does not know."""
    with pytest.raises(CannotRead, match="Expected kind trace, version 1"):
        TraceRecord.from_json({**example().to_json(), **wrong})
