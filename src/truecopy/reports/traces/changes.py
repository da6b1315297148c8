"""Two traces compared: as plain text, and as Markdown for the summary of a CI job."""

from __future__ import annotations

from collections.abc import Sequence

from truecopy.files.text import printable, shorten
from truecopy.reports.tables import MOST_ROWS, count, section, share, size
from truecopy.reports.traces.words import Names
from truecopy.tracing.comparison import Change, LineChange, TraceComparison
from truecopy.tracing.facts import Site

_LONGEST = 120
_WORDS = {
    "peak bytes": "peak",
    "hidden bytes": "copied without being asked",
    "hidden copies": "hidden copies",
    "left bytes": "left behind by each iteration",
    "left nodes": "autograd nodes left behind by each iteration",
    "copied bytes": "copied",
    "allocated bytes": "allocated",
}


def lines_of(record: TraceComparison, width: int) -> list[str]:
    """The report, line by line: one sentence, then what is worse, then what is better."""
    names = _names(record)
    return [
        sentence(record),
        *section("In all:", record.totals, _total, width),
        *section("Worse, most first:", record.worse, lambda c: _line(c, names), width),
        *section("Better, most first:", record.better, lambda c: _line(c, names), width),
        *section("May not mean the same:", record.unseen, lambda why: (why,), width),
    ]


def sentence(record: TraceComparison) -> str:
    """What became of peak and hidden copies, and how many lines are better and worse."""
    changed = [change for change in record.totals if change.before != change.after]
    head = f"{shorten(printable(record.a), 80)} and {shorten(printable(record.b), 80)}"
    lines = f"{count(len(record.worse), 'line')} worse, {len(record.better):,} better, {record.alike:,} alike"
    told = [f"{_WORDS[change.what]} {_both(change)}" for change in changed[:3]]
    return f"{head}: {' · '.join([*(told or ['nothing changed in all']), lines])}."


def markdown(record: TraceComparison) -> str:
    """The comparison as GitHub's Markdown: whatever the names in it, they are shown and no markup."""
    names = _names(record)
    verdict = "no worse" if record.is_clean else "**worse**"
    head = f"### {_code(record.a)} and {_code(record.b)}: {verdict}"
    totals = [
        (_WORDS[c.what], _amount(c, c.before), _amount(c, c.after), _difference(c))
        for c in record.totals
    ]
    return "\n".join([
        head, "",
        *_table(("in all", "before", "after", "change"), totals),
        *_lines_table("Worse", record.worse, names),
        *_lines_table("Better", record.better, names),
        *(f"- may not mean the same: {_code(why)}" for why in record.unseen),
        "", f"{count(record.alike, 'line')} alike.",
    ])  # fmt: skip


def _lines_table(title: str, changes: tuple[LineChange, ...], names: Names) -> list[str]:
    if not changes:
        return []
    rows = [
        (_code(_place(c, names)), _code(_site(c).text or " "), "<br>".join(map(_told, c.changes)))
        for c in changes[:MOST_ROWS]
    ]
    more = len(changes) - len(rows)
    return [
        "", f"**{title}**", "", *_table(("line", "source", "change"), rows),
        *(["", f"... and {more:,} more"] * (more > 0)), "",
    ]  # fmt: skip


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, tuple("---" for _ in header), *rows)]


def _code(text: str) -> str:
    """A code span that nothing in the text can end, and no cell border either."""
    safe = shorten(printable(text), _LONGEST).replace("`", "'")
    # Two backslashes before a bar would be one escaped backslash, and the bar would end the cell.
    safe = safe.replace("\\|", "\\ |").replace("|", "\\|")
    return f"`{safe}`"


# --- words ----------------------------------------------------------------------------------------


def _names(record: TraceComparison) -> Names:
    return Names(_site(change).file for change in (*record.worse, *record.better))


def _site(change: LineChange) -> Site:
    site = change.after or change.before
    assert site is not None  # a line stands in one of the two at least
    return site


def _place(change: LineChange, names: Names) -> str:
    """Where the line is now, and what became of it."""
    place = names.place(_site(change))
    if change.after is None:
        return f"{place} (gone)"
    return place if change.before is not None else f"{place} (new)"


def _line(change: LineChange, names: Names) -> tuple[str, ...]:
    return (_place(change, names), ", ".join(map(_told, change.changes[:2])), _site(change).text)


def _told(change: Change) -> str:
    return f"{_short(change)} {_both(change)}"


def _both(change: Change) -> str:
    """Before and after; where they read alike, by how much they differ."""
    before, after = _amount(change, change.before), _amount(change, change.after)
    if before == after and change.before != change.after:
        return f"{before}, {_difference(change)}"
    return f"{before} -> {after}"


def _short(change: Change) -> str:
    return change.what.removesuffix(" bytes")


def _amount(change: Change, value: int) -> str:
    if not value or not change.what.endswith(" bytes"):
        return f"{value:,}"
    return size(value)


def _total(change: Change) -> tuple[str, ...]:
    before, after = _amount(change, change.before), _amount(change, change.after)
    return (_WORDS[change.what], f"{before} -> {after}", _difference(change))


def _difference(change: Change) -> str:
    """By how much, in percent of before; nothing where nothing changed."""
    by = change.after - change.before
    if not by:
        return "the same"
    sign = "+" if by > 0 else "-"
    part = f" ({share(abs(by), change.before)})" if change.before else ""
    return f"{sign}{_amount(change, abs(by))}{part}"
