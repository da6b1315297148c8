"""A trace as plain text: one sentence with the numbers, then the lines of the program, worst first."""

from __future__ import annotations

from collections.abc import Callable

from truecopy.files.text import printable, shorten
from truecopy.reports.tables import MOST_ROWS, count, number, paragraph, section, size
from truecopy.reports.traces.words import Names, names_of, sentence, survivors_by_line, tier_of
from truecopy.tracing.facts import Churn, Copy, Iteration, Line, Owner, Survivor
from truecopy.tracing.record import TraceRecord


def lines_of(record: TraceRecord, width: int) -> list[str]:
    """The report, line by line. The first is as long as it is, the others fit the width."""
    names = names_of(record)
    return [
        sentence(record),
        *paragraph(_whole(record), width, 0),
        *_lines(record, names, width),
        *_copies(record, names, width),
        *section(
            "Left behind by each iteration:", survivors_by_line(record),
            lambda s: (_each(s), names.place(s.site), _holders(s), s.site.text), width,
        ),
        *section(
            f"Alive at the peak of {size(record.peak.nbytes)}:", record.peak.owners,
            lambda owner: _owner(owner, names), width,
        ),
        *_unattributed(record),
        *section(
            "Allocated again and again:", record.churn, lambda c: _churn(c, names), width,
        ),
        *_habits(record, names, width),
        *_iterations(record, width),
        *_unseen(record, width),
    ]  # fmt: skip


def _whole(record: TraceRecord) -> str:
    totals = record.totals
    said = (
        f"{count(totals.events, 'call')} and {count(totals.operations, 'operation')} "
        f"in {number(totals.seconds)} s, {tier_of(record)}: {size(totals.allocated_bytes)} allocated, "
        f"{size(totals.copied_bytes)} copied, {size(totals.end_bytes)} alive at the end."
    )
    if totals.would_be_bytes:
        said += f" {size(totals.would_be_bytes)} more would be allocated by meta and fake tensors."
    if totals.raised:
        said += f" {count(totals.raised, 'call')} raised."
    return said


def _lines(record: TraceRecord, names: Names, width: int) -> list[str]:
    """The lines of the program; a narrow window has room for what matters most."""
    columns = _LINE_COLUMNS if width >= _ROOM_FOR_ALL else _LINE_COLUMNS[::2]

    def cells(line: Line) -> tuple[str, ...]:
        return (*(amount(line) for _, amount in columns), names.place(line.site), line.site.text)

    header = (*(name for name, _ in columns), "at", "source")
    return section("Lines, worst first:", record.lines, cells, width, header=header)


def _amount(nbytes: int) -> str:
    return size(nbytes) if nbytes else "0"


_ROOM_FOR_ALL = 80
_LINE_COLUMNS: tuple[tuple[str, Callable[[Line], str]], ...] = (
    ("hidden", lambda line: _amount(line.hidden_bytes)),
    ("copied", lambda line: _amount(line.copied_bytes)),
    ("allocated", lambda line: _amount(line.allocated_bytes)),
    ("calls", lambda line: f"{line.events:,}"),
)


def _copies(record: TraceRecord, names: Names, width: int) -> list[str]:
    if not record.copies:
        return []
    shown = record.copies[:MOST_ROWS]
    lines = ["", "Hidden copies, most bytes first:"]
    lines += (line for copy in shown for line in _copy(copy, names, width))
    if more := len(record.copies) - len(shown):
        lines.append(f"  ... and {more:,} more")
    return lines


def _copy(copy: Copy, names: Names, width: int) -> list[str]:
    where = f"  {_times(copy)}  {names.place(copy.site)}  "
    told = shorten(where + printable(copy.site.text), width)
    lines = [told, *paragraph(why_copied(copy, names), width, 6)]
    if copy.advice:
        lines += paragraph(f"instead: {copy.advice}", width, 6)
    return lines


def _times(copy: Copy) -> str:
    return f"{size(copy.nbytes)} in {count(copy.count, 'copy', 'copies')}"


def why_copied(copy: Copy, names: Names) -> str:
    """What copied, where that was not the line itself, and the reason, in one sentence."""
    what = copy.call or copy.operation
    if copy.inside and copy.inside != what:
        what += f" (inside {copy.inside})"
    elif copy.phase != "forward":
        what += f" ({copy.phase})"
    said = f"{what} copied: {copy.reason}" if copy.reason else f"{what} copied"
    if copy.amplification >= 2:
        said += f", {number(copy.amplification)} bytes written for each byte in memory"
    if copy.forward is not None and copy.forward != copy.site:
        said += f"; made by {names.place(copy.forward)}"
    return said


def _each(survivor: Survivor) -> str:
    if survivor.what == "bytes":
        return size(round(survivor.per_iteration))
    return f"{number(survivor.per_iteration)} {'node' if survivor.per_iteration == 1 else 'nodes'}"


def _holders(survivor: Survivor) -> str:
    if not survivor.holders:
        return "held by: not found"
    more = len(survivor.holders) - 1
    return f"held by {shorten(survivor.holders[0], 60)}" + (f" and {more:,} more" if more else "")


def _owner(owner: Owner, names: Names) -> tuple[str, ...]:
    kind = f"saved by {owner.saved_by}" if owner.saved_by else owner.owner
    text = owner.site.text if owner.site else ""
    return (size(owner.nbytes), kind, names.place(owner.site), owner.module, text)


def _unattributed(record: TraceRecord) -> list[str]:
    lost = record.peak.unattributed_bytes
    return [f"  {size(lost)} of it known to no owner"] if lost else []


def _churn(churn: Churn, names: Names) -> tuple[str, ...]:
    each = f"{churn.count:,} times {size(churn.nbytes)}"
    return (each, names.place(churn.site), f"{churn.call}: {way_out_of(churn)}")


def way_out_of(churn: Churn) -> str:
    """What could be written instead, or why there is nothing."""
    if churn.instead:
        return f"{churn.instead} saves {size(churn.saves_bytes)}"
    return f"not in place: {churn.why_not}" if churn.why_not else "no other way is known"


_MOST_HABITS = 6
"""Each takes three lines or more."""

_LONGEST = 60
"""Characters of a way to copy: those that truecopy knows are shorter."""


def _habits(record: TraceRecord, names: Names, width: int) -> list[str]:
    if not record.habits:
        return []
    shown = record.habits[:_MOST_HABITS]
    lines = ["", "Better ways to copy:"]
    for habit in shown:
        where = (
            f"  {size(habit.nbytes)} in {count(habit.count, 'call')}  {names.place(habit.site)}  "
        )
        lines.append(shorten(where + printable(habit.site.text), width))
        lines += paragraph(f"{shorten(habit.what, _LONGEST)}: {habit.why}", width, 6)
        lines += paragraph(f"instead: {shorten(habit.instead, _LONGEST)}", width, 6)
    if more := len(record.habits) - len(shown):
        lines.append(f"  ... and {more:,} more")
    return lines


_ITERATION_COLUMNS: tuple[tuple[str, Callable[[Iteration], str]], ...] = (
    ("number", lambda one: f"{one.number:,}"),
    ("at its end", lambda one: _amount(one.end_bytes)),
    ("allocated", lambda one: _amount(one.allocated_bytes)),
    ("copied", lambda one: _amount(one.copied_bytes)),
    ("peak", lambda one: _amount(one.peak_bytes)),
    ("survived", lambda one: _amount(one.survived_bytes)),
    ("nodes", lambda one: f"{one.nodes:,}"),
)


def _iterations(record: TraceRecord, width: int) -> list[str]:
    columns = _ITERATION_COLUMNS if width >= _ROOM_FOR_ALL else _ITERATION_COLUMNS[::2]

    def cells(one: Iteration) -> tuple[str, ...]:
        return tuple(amount(one) for _, amount in columns)

    header = tuple(name for name, _ in columns)
    return section("Iterations:", record.iterations, cells, width, header=header)


def _unseen(record: TraceRecord, width: int) -> list[str]:
    """What the trace could not see, with the whole of the reason."""
    if not record.unseen:
        return []
    told = (f"{one.what} ({one.count:,}): {one.why}" for one in record.unseen[:MOST_ROWS])
    return ["", "Not seen:", *(line for one in told for line in paragraph(one, width, 2))]
