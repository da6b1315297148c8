"""The page of a trace as a text: how large it is, what is in it, and what it cannot do."""

import base64
import hashlib
import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trace_examples import HOSTILE, empty, hostile, large
from traces import event, example
from truecopy.reports.html.page import embedded, page
from truecopy.reports.traces.moments import coarser
from truecopy.reports.traces.page import chosen, data_of, html
from truecopy.tracing.facts import Moment, StorageLife

MIB = 1 << 20


@pytest.mark.parametrize(
    "record",
    [
        example(), empty(), hostile(), large(), large(wide=True, iterations=2_000),
        large(lines=9_000, iterations=5_000), large(events=1, storages=1, moments=1, lines=1),
    ],
    ids=["small", "empty", "hostile", "large", "wide", "long", "one"],
)  # fmt: skip
def test_a_page_is_under_a_mebibyte(record) -> None:
    """Whatever the run, the file is small; and it is ASCII, so no encoding can spoil it."""
    text = html(record)

    assert len(text.encode()) < MIB
    assert _data(text)["sentence"]
    assert _block(text).isascii()


@pytest.mark.parametrize("most", [20_000, 60_000, 200_000])
def test_the_budget_is_kept(most: int) -> None:
    """However few bytes are allowed, the page keeps to them, and says what it left out."""
    data = data_of(large(wide=True), most)

    assert len(embedded(data)) <= most
    assert data["lines"]["rest"]["count"] == 3_000 - len(data["lines"]["rows"])
    assert data["storages"]["rest"]["count"] == 1_000 - len(data["storages"]["rows"])
    assert data["lines"]["rows"]
    assert data["memory"]["rows"]


def test_nothing_is_left_out_where_it_fits() -> None:
    """A small record is in its page whole, and the rest of each table is nothing."""
    data, record = data_of(example()), example()

    for name in (
        "lines",
        "copies",
        "churn",
        "habits",
        "survivors",
        "iterations",
        "storages",
        "unseen",
    ):
        assert len(data[name]["rows"]) == len(getattr(record, name))
        assert data[name]["rest"]["count"] == 0
    assert len(data["events"]["rows"]) == len([e for e in record.events if e.storage in (0, 1, 2)])


def test_what_is_left_out_is_summed() -> None:
    """Bytes shown and bytes of the rest are those of the record."""
    record = large()
    data = data_of(record)
    column = data["lines"]["columns"].index("hidden_bytes")

    shown = sum(row[column] for row in data["lines"]["rows"])
    assert shown + data["lines"]["rest"]["hidden_bytes"] == sum(
        line.hidden_bytes for line in record.lines
    )


def test_each_line_has_a_link_of_its_own() -> None:
    """Two statements on one line, and two files of one name, are told apart."""
    data = data_of(large())
    links = [row[-1] for row in data["lines"]["rows"]]

    assert len(set(links)) == len(links)


@pytest.mark.parametrize("text", HOSTILE)
def test_data_ends_no_block(text: str) -> None:
    """No name closes the block that it stands in, opens another, or leaves ASCII."""
    written = embedded({"name": text})

    assert not re.search("[<>&]", written)
    assert written.isascii()
    assert json.loads(written)["name"] == text


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    """Escaping changes nothing of what is read."""
    assert json.loads(embedded([text])) == [text]


def test_the_policy_names_the_script_and_the_style() -> None:
    """One script and one style may act, by the hashes of their very bytes; nothing may be loaded."""
    text = page({}, shown_by="trace")
    policy = re.search('content="(default-src [^"]*)"', text)[1]
    script = re.search("<script>(.*?)</script>", text, re.DOTALL)[1]
    style = re.search("<style>(.*?)</style>", text, re.DOTALL)[1]

    assert policy.startswith("default-src 'none'; img-src data:; ")
    for kind, content in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}';" in policy
    assert "unsafe" not in policy


def test_our_files_write_no_markup_and_load_nothing() -> None:
    """Text goes onto the page as text: no innerHTML, no eval, no address of another place."""
    text = page({}, shown_by="trace").replace("http://www.w3.org/2000/svg", "")

    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "//cdn",
        "http:",
        "https:",
        "@import",
        "url(",
        "fetch(",
        "XMLHttp",
    ):
        assert forbidden not in text, forbidden


# --- parts ----------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 9), max_size=60), st.integers(0, 50), st.integers(0, 9),
)  # fmt: skip
def test_events_of_storages_are_shared_out_fairly(
    touched: list[int], most: int, known: int
) -> None:
    """Within the number, no storage gives up an event while another keeps more than it has."""
    events = [event(i, "view", None, storage=number) for i, number in enumerate(touched)]
    storages = [StorageLife(n, 1, "cpu", "other", None, "", 0, -1) for n in range(known)]

    kept, counts = chosen(events, storages, most)

    wanted = [e for e in events if e.storage < known]
    assert len(kept) <= max(most, 0)
    assert kept == sorted(kept, key=lambda e: e.index)
    assert {n: counts[n] for n in counts} == {
        n: touched.count(n) for n in set(touched) if n < known
    }
    if len(wanted) <= most:
        assert kept == wanted
    has = {n: sum(e.storage == n for e in kept) for n in counts}
    cut = [n for n in counts if has[n] < counts[n]]
    assert all(has[n] == max(has.values()) for n in cut)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.integers(1, 50))
@settings(max_examples=50)
def test_coarser_moments_keep_the_peak(highs: list[int], most: int) -> None:
    """Joined stretches cover the same events, are no more than allowed, and lose no high and no low."""
    moments = [Moment(i, i, h // 2, h, i, i, (h,) * 9) for i, h in enumerate(highs)]

    fewer = coarser(moments, most)

    assert len(fewer) <= most
    assert (fewer[0].first_event, fewer[-1].last_event) == (0, len(highs) - 1)
    assert all(a.last_event + 1 == b.first_event for a, b in itertools.pairwise(fewer))
    assert max(m.high_bytes for m in fewer) == max(highs)
    assert min(m.low_bytes for m in fewer) == min(highs) // 2
    assert all(m.by_owner == (m.high_bytes,) * 9 for m in fewer)


def _block(text: str) -> str:
    return re.search('<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)[1]


def _data(text: str) -> dict:
    return json.loads(_block(text))
