"""Two traces set beside each other: lines are found again, and what is worse is a finding."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trace_examples import HOSTILE, empty, hostile
from traces import FLAT, LOAD, LOSS, example
from truecopy.reports.json import dumps
from truecopy.reports.markdown import markdown
from truecopy.reports.terminal import render
from truecopy.tracing.comparison import TraceComparison, compare_traces
from truecopy.tracing.facts import Site
from truecopy.tracing.matching import pairs_of
from truecopy.tracing.record import TraceRecord


def changed(record: TraceRecord, index: int, **numbers: object) -> TraceRecord:
    """The record with one line changed, in its number or its place."""
    lines = list(record.lines)
    lines[index] = replace(lines[index], **numbers)
    return replace(record, lines=tuple(lines))


def mended() -> TraceRecord:
    """The example after its hidden copy was taken out, further down in the file."""
    site = replace(FLAT, line=12, text="return x.reshape(6144)")
    record = changed(
        example(), 0, site=site, hidden_bytes=0, hidden_copies=0, copied_bytes=0, allocated_bytes=0
    )
    totals = replace(record.totals, hidden_bytes=0, hidden_copies=0, copied_bytes=0)
    return replace(record, totals=totals, copies=())


REPORT = """\
before.json and after.json: copied without being asked 24.0 KiB -> 0 · hidden copies 1 -> 0 · copied 24.0 KiB -> 0 · 0 lines worse, 1 better, 3 alike.

In all:
  peak                                          72.0 KiB -> 72.0 KiB  the same
  copied without being asked                    24.0 KiB -> 0         -24.0 KiB (100.0 %)
  hidden copies                                 1 -> 0                -1 (100.0 %)
  left behind by each iteration                 4 bytes -> 4 bytes    the same
  autograd nodes left behind by each iteration  1 -> 1                the same
  copied                                        24.0 KiB -> 0         -24.0 KiB (100.0 %)
  allocated                                     72.0 KiB -> 72.0 KiB  the same

Better, most first:
  train.py:12  hidden 24.0 KiB -> 0, hidden copies 1 -> 0  return x.reshape(6144)"""  # noqa: E501 - as it is printed

MARKDOWN = """\
### `before.json` and `after.json`: no worse

| in all | before | after | change |
| --- | --- | --- | --- |
| peak | 72.0 KiB | 72.0 KiB | the same |
| copied without being asked | 24.0 KiB | 0 | -24.0 KiB (100.0 %) |
| hidden copies | 1 | 0 | -1 (100.0 %) |
| left behind by each iteration | 4 bytes | 4 bytes | the same |
| autograd nodes left behind by each iteration | 1 | 1 | the same |
| copied | 24.0 KiB | 0 | -24.0 KiB (100.0 %) |
| allocated | 72.0 KiB | 72.0 KiB | the same |

**Better**

| line | source | change |
| --- | --- | --- |
| `train.py:12` | `return x.reshape(6144)` | hidden 24.0 KiB -> 0<br>hidden copies 1 -> 0<br>copied 24.0 KiB -> 0<br>allocated 24.0 KiB -> 0 |


3 lines alike."""  # noqa: E501 - as it is printed


def test_a_comparison() -> None:
    """First one sentence, then the run, then the lines, worse ones before better ones."""
    assert render(compare_traces(example(), mended(), ("before.json", "after.json"))) == REPORT


def test_the_page_shows_this_comparison() -> None:
    """What the documentation explains is what is printed."""
    page = Path(__file__).parents[3] / "docs" / "compare.md"

    assert f"```text\n{REPORT}\n```" in page.read_text()


def test_a_change_too_small_for_its_unit() -> None:
    """Where before and after read alike, the difference is told in bytes."""
    before = replace(example(), peak=replace(example().peak, nbytes=3 << 20))
    after = replace(example(), peak=replace(example().peak, nbytes=(3 << 20) + 4))

    text = render(compare_traces(before, after, ("a", "b")))
    assert text.startswith("a and b: peak 3.0 MiB, +4 bytes (less than 0.1 %) · ")
    assert "  3.0 MiB -> 3.0 MiB    +4 bytes (less than 0.1 %)\n" in text


def test_a_comparison_as_markdown() -> None:
    """Tables that the summary of a CI job shows."""
    assert markdown(compare_traces(example(), mended(), ("before.json", "after.json"))) == MARKDOWN


def test_a_record_of_its_own_kind() -> None:
    """A comparison is kept and read again as it was."""
    found = compare_traces(mended(), example())

    assert found.to_json()["kind"] == "trace comparison"
    assert TraceComparison.from_json(json.loads(dumps(found))) == found


@pytest.mark.parametrize(
    "record", [example(), empty(), hostile()], ids=["small", "empty", "hostile"]
)
def test_a_trace_is_no_worse_than_itself(record: TraceRecord) -> None:
    """Nothing changed, nothing found."""
    found = compare_traces(record, record)

    assert found.is_clean
    assert not found.worse
    assert not found.better
    assert found.alike == len(
        {(f.site.file, f.site.line) for f in (*record.lines, *record.survivors)}
    )


def test_forth_and_back() -> None:
    """What is better in one direction is worse in the other."""
    forth, back = compare_traces(example(), mended()), compare_traces(mended(), example())

    assert forth.is_clean
    assert not back.is_clean
    assert [c.after for c in forth.better] == [c.before for c in back.worse]
    assert len(forth.worse) == len(back.better) == 0


@pytest.mark.parametrize(
    ("before", "after", "clean"),
    [
        (example(), changed(example(), 1, allocated_bytes=10**9), True),
        (example(), changed(example(), 1, hidden_bytes=1), False),
        (example(), changed(example(), 1, hidden_copies=1), False),
        (example(), replace(example(), peak=replace(example().peak, nbytes=10**9)), False),
        (example(), replace(example(), survivors=()), True),
        (replace(example(), survivors=()), example(), False),
        (example(), empty(), True),
        (empty(), example(), False),
    ],
)
def test_what_is_a_finding(before: TraceRecord, after: TraceRecord, clean: bool) -> None:
    """A total that grew, a line that hides more copies or leaves more: nothing else."""
    assert compare_traces(before, after).is_clean is clean


def test_a_line_has_what_all_its_places_left() -> None:
    """Two calls on one line leave something each: the line leaves both, once."""
    record = example()
    first = record.survivors[0]
    again = replace(first, site=replace(first.site, column=9))
    found = compare_traces(replace(record, survivors=()), replace(record, survivors=(first, again)))

    (line,) = found.worse
    assert line.after == first.site
    assert [(c.what, c.before, c.after) for c in line.changes] == [("left bytes", 0, 8)]


def test_what_cannot_be_compared_is_said() -> None:
    """Another tier, other iterations, a run that did not end: numbers may not mean the same."""
    other = replace(example(), tier="profiler", iterations=(), ended="raised ValueError")

    assert compare_traces(example(), other).unseen == (
        "one is of tier modes, the other of tier profiler: they see different copies",
        "2 iterations in one, 0 in the other",
        "the second did not come to its end: it raised ValueError",
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_no_markup(text: str) -> None:
    """In Markdown every name is a code span within its cell."""
    site = Site(text, 3, 3, 0, 1, text, text)
    lines = markdown(
        compare_traces(changed(example(), 0, site=site), example(), (text, f"{text}|`"))
    ).splitlines()

    rows = [line for line in lines if line.startswith("|")]
    for row in rows:
        outside = row.replace("\\|", "").split("`")[::2]
        assert not {"<", "*", "@"} & set("".join(outside).replace("<br>", ""))
        assert "".join(outside).count("|") in (4, 5)
        assert row.count("`") % 2 == 0


# --- which line is which --------------------------------------------------------------------------


def site(text: str, line: int, file: str = "train.py", function: str = "f") -> Site:
    return Site(file, line, line, 0, 1, function, text)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (site("x = y + 1", 3), site("x = y + 1", 30), True),
        (site("x = y + 1", 3), site("x = y + 2", 9), True),
        (site("x = y + 1", 3, "/old/train.py"), site("x = y + 1", 3, "/new/train.py"), True),
        (site("x = y + 1", 3), site("raise SystemExit", 3), False),
        (site("x = y + 1", 3), site("x = y + 1", 3, function="g"), False),
        (site("x = y + 1", 3), site("x = y + 1", 3, file="eval.py"), False),
    ],
)
def test_lines_are_found_again(a: Site, b: Site, same: bool) -> None:
    """By file, function and text, or by likeness of text; never by number alone."""
    assert ((a, b) in pairs_of([a], [b])) is same


def test_the_same_line_many_times() -> None:
    """Repeated lines are matched in the order of the file; a new one among them is new."""
    a = [site("x.add_(1)", n) for n in (3, 5, 9)]
    b = [site("x.add_(1)", n) for n in (4, 6, 10, 11)]

    assert pairs_of(a, b) == [*zip(a, b[:3], strict=True), (None, b[3])]


def test_the_most_alike_lines_are_one() -> None:
    """Of several edited lines of a function each goes to the nearest in text."""
    a = [site("y = x.t().reshape(6144)", 3), site("z = model(batch).sum()", 4)]
    b = [site("z = model(batch).mean()", 8), site("y = x.reshape(6144)", 9)]

    assert set(pairs_of(a, b)) == {(a[0], b[1]), (a[1], b[0])}


SITES = st.sets(
    st.builds(site, st.sampled_from(["a = b", "a = c", "zzz(1, 2)"]), st.integers(1, 6),
              st.sampled_from(["x/t.py", "y/t.py", "u.py"]), st.sampled_from(["f", "g"])), max_size=8,
)  # fmt: skip


@given(SITES, SITES)
@settings(max_examples=60)
def test_every_line_is_there_once(a: set[Site], b: set[Site]) -> None:
    """Each line of either run is in one pair, and equal lines of equal files are together."""
    pairs = pairs_of(a, b)

    assert sorted((x for x, _ in pairs if x), key=str) == sorted(a, key=str)
    assert sorted((y for _, y in pairs if y), key=str) == sorted(b, key=str)
    for x, y in pairs:
        assert x is None or y is None or (x.function == y.function)


def test_the_example_has_the_lines_that_these_tests_mean() -> None:
    """The tests above change the line that copies, by its place."""
    assert [line.site for line in example().lines[:3]] == [FLAT, LOAD, LOSS]
