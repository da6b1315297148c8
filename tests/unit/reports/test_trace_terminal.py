"""The report of a trace as it is printed: whole texts at a fixed width."""

from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trace_examples import empty, hostile, large
from traces import BACK, FLAT, example
from truecopy.reports.terminal import render
from truecopy.reports.traces.words import Names, sentence
from truecopy.tracing.facts import Peak

REPORT = """\
train.py: peak 72.0 KiB at train.py:15 (backward) · 24.0 KiB copied in 1 hidden copy, all from 1 line · 4 bytes and 1 autograd node left behind by each iteration.
6 calls and 9 operations in 0.25 s, seen from Python, operation by operation: 72.0 KiB allocated,
24.0 KiB copied, 48.0 KiB alive at the end.

Lines, worst first:
    hidden    copied  allocated  calls  at           source
  24.0 KiB  24.0 KiB   24.0 KiB      2  train.py:9   return x.t().reshape(6144)
         0         0   24.0 KiB      1  train.py:4   w = torch.ones(96, 64)
         0         0    4 bytes      1  train.py:14  loss = model(w).sum()
         0         0          0      1  train.py:16  total += loss

Hidden copies, most bytes first:
  24.0 KiB in 1 copy  train.py:9  return x.t().reshape(6144)
      reshape copied: strides (1, 64) cannot be viewed as (6144,)
      instead: keep the order of dimensions until here, or flatten before transposing

Left behind by each iteration:
  4 bytes  train.py:16  held by total          total += loss
  1 node   train.py:16  held by total.grad_fn  total += loss

Alive at the peak of 72.0 KiB:
  24.0 KiB  parameter              train.py:4            w = torch.ones(96, 64)
  24.0 KiB  saved by SumBackward0  train.py:9   flatten  return x.t().reshape(6144)
  24.0 KiB  gradient               train.py:15           loss.backward()
   8 bytes  activation             train.py:14           loss = model(w).sum()

Allocated again and again:
  12 times 4 bytes  train.py:14  sum: torch.sum(..., out=...) saves 44 bytes

Better ways to copy:
  24.0 KiB in 1 call  train.py:4  w = torch.ones(96, 64)
      torch.tensor(t): copies through the host
      instead: t.detach().clone()

Iterations:
  number  at its end  allocated    copied      peak  survived  nodes
       0    48.0 KiB   24.0 KiB  24.0 KiB  48.0 KiB   4 bytes  1
       1    48.0 KiB   24.0 KiB         0  72.0 KiB   4 bytes  1

Not seen:
  other threads (1): modes are of one thread"""  # noqa: E501 - as it is printed


def test_a_trace() -> None:
    """First a sentence with the numbers that matter, then the lines with their source, worst first."""
    assert render(example()) == REPORT


def test_the_page_shows_this_report() -> None:
    """What the documentation explains is what is printed."""
    page = Path(__file__).parents[3] / "docs" / "report.md"

    assert f"```text\n{REPORT}\n```" in page.read_text()


def test_a_program_that_did_nothing() -> None:
    """Where there is nothing to tell, two lines say so."""
    assert render(empty()) == (
        "nothing.py: no memory seen · no hidden copies.\n"
        "0 calls and 0 operations in 0.001 s, seen from Python, operation by operation: 0 bytes "
        "allocated, 0\nbytes copied, 0 bytes alive at the end."
    )


@pytest.mark.parametrize("width", [60, 100, 200])
@pytest.mark.parametrize(
    "record", [hostile(), large(wide=True, events=100)], ids=["hostile", "wide"]
)
def test_nothing_is_wider_than_the_window_nor_obeyed(record, width: int) -> None:
    """Whatever the names: no line but the first is too wide, no control character is left, all is short."""
    first, *rest = render(record, width=width).splitlines()

    assert max(map(len, rest)) <= width
    assert len(first) < 600
    assert len(rest) < 400
    assert all(line.isprintable() for line in (first, *rest))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"ended": "raised ValueError"}, " · raised ValueError."),
        ({"survivors": ()}, " · nothing survives an iteration."),
        ({"survivors": (), "iterations": ()}, "all from 1 line."),
        (
            {"peak": Peak(12, -1, None, "", "", -1, 0, ())},
            "train.py: peak 12 bytes before it began · ",
        ),
        (
            {"peak": replace(example().peak, module="layers.0.attn")},
            "at train.py:15 (layers.0.attn) · ",
        ),
        ({"peak": replace(example().peak, phase="forward")}, "at train.py:15 · "),
    ],
)
def test_the_sentence_says_what_there_is(changes: dict, part: str) -> None:
    """Each part of the sentence depends on the record, and stands only where it means something."""
    assert part in sentence(replace(example(), **changes))


def test_the_sentence_counts_the_lines_that_matter() -> None:
    """Of many lines with hidden copies, the fewest that make up most of the bytes are counted."""
    record = example()
    (copy,) = record.copies
    copies = [
        replace(copy, site=replace(FLAT, line=i), nbytes=n)
        for i, n in enumerate((8, 800, 10, 90, 100))
    ]
    totals = replace(record.totals, hidden_copies=5, hidden_bytes=1008)

    assert "1,008 bytes copied in 5 hidden copies, 89.3 % from 2 lines" in sentence(
        replace(record, copies=tuple(copies), totals=totals)
    ).replace("1008 bytes", "1,008 bytes")


def test_a_line_leaves_behind_what_its_calls_do() -> None:
    """Several places of one line are one row: added up, every holder named once."""
    record = example()
    first, second = record.survivors
    again = replace(
        second, site=replace(second.site, column=9), holders=("history", "total.grad_fn")
    )

    text = render(replace(record, survivors=(first, second, again)), width=120)
    assert "  2 nodes  train.py:16  held by total.grad_fn and 1 more  total += loss\n" in text


def test_what_nobody_owns_is_said() -> None:
    """What the allocator counted beyond all owners stands under them."""
    record = replace(example(), peak=replace(example().peak, unattributed_bytes=512))

    assert "  512 bytes of it known to no owner\n" in render(record)


def test_backward_names_the_forward_line() -> None:
    """A copy in backward tells the line that made the node."""
    (copy,) = example().copies
    copy = replace(
        copy, site=BACK, phase="backward", call="CloneBackward0", forward=FLAT, amplification=1000.0
    )

    text = render(replace(example(), copies=(copy,)), width=200)
    assert (
        "CloneBackward0 (backward) copied: strides (1, 64) cannot be viewed as (6144,), 1,000 bytes written "
        "for each byte in memory; made by train.py:9\n"
    ) in text


@given(
    st.sets(
        st.lists(st.sampled_from(["a", "b", "c.py"]), min_size=1, max_size=4).map("/".join),
        max_size=8,
    )
)
def test_short_names_tell_files_apart(files: set[str]) -> None:
    """No two files have one name, and each name is an end of the path."""
    short = Names(files).short

    assert len(set(short.values())) == len(files)
    for file, name in short.items():
        parts = PurePosixPath(name).parts
        assert PurePosixPath(file).parts[-len(parts) :] == parts
