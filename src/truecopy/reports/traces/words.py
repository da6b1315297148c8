"""What every report of a trace says in the same words: the sentence, and the names of places."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePath

from truecopy.files.text import printable, shorten
from truecopy.reports.tables import count, number, share, size
from truecopy.tracing.facts import Site, Survivor
from truecopy.tracing.record import TraceRecord

_LONGEST_NAME = 60
_MOST_OF_IT = 0.8  # of the hidden bytes: how few lines make up so much?
_FEW = 5  # lines; where more are needed for that, no line is worth naming alone


class Names:
    """Short names for the files of one record: the last parts of their paths that tell them apart."""

    def __init__(self, files: Iterable[str]) -> None:
        self.short = _short_names(set(files))

    def place(self, site: Site | None) -> str:
        """`train.py:9`; where Python did not tell the line, the file alone."""
        if site is None:
            return "from outside"
        file = shorten(printable(self.short.get(site.file, site.file)), _LONGEST_NAME)
        return f"{file}:{site.line}" if site.line else file


def names_of(record: TraceRecord) -> Names:
    """The short names of all files that a record speaks of."""
    return Names(site.file for site in sites_of(record))


def sites_of(record: TraceRecord) -> Iterable[Site]:
    """Every site of a record, as often as it stands there."""
    optional = [
        record.peak.site,
        *(owner.site for owner in record.peak.owners),
        *(copy.forward for copy in record.copies),
        *(event.site for event in record.events),
        *(event.forward for event in record.events),
        *(storage.site for storage in record.storages),
    ]
    for many in (record.lines, record.copies, record.churn, record.habits, record.survivors):
        yield from (fact.site for fact in many)
    yield from (site for site in optional if site is not None)


def _short_names(files: set[str]) -> dict[str, str]:
    """For each path its last part, or as many as no other path ends in."""
    ends: dict[str, set[str]] = defaultdict(set)
    for file in files:
        for end in _ends(file):
            ends[end].add(file)
    return {file: next((end for end in _ends(file) if len(ends[end]) == 1), file) for file in files}


def _ends(file: str) -> list[str]:
    parts = PurePath(file).parts
    return [str(PurePath(*parts[i:])) for i in reversed(range(len(parts)))] or [file]


def sentence(record: TraceRecord) -> str:
    """The numbers that matter, in one line: peak, hidden copies, what survives, how it ended."""
    parts = [_peak(record), _hidden(record), _survivors(record)]
    if record.ended != "completed":
        parts.append(shorten(printable(record.ended), _LONGEST_NAME))
    name = shorten(printable(record.name), _LONGEST_NAME)
    return f"{name}: {' · '.join(part for part in parts if part)}."


def tier_of(record: TraceRecord) -> str:
    """Which of the two ways of looking made the record, in words."""
    return {
        "modes": "seen from Python, operation by operation",
        "profiler": "seen by torch's profiler, inside of kernels too",
    }.get(record.tier, printable(record.tier))


def _peak(record: TraceRecord) -> str:
    peak = record.peak
    if not peak.nbytes:
        return "no memory seen"
    if peak.site is None:
        return f"peak {size(peak.nbytes)}" + (" before it began" if peak.event < 0 else "")
    told = peak.module or (peak.phase if peak.phase != "forward" else "")
    inside = f" ({shorten(printable(told), _LONGEST_NAME)})" if told else ""
    return f"peak {size(peak.nbytes)} at {names_of(record).place(peak.site)}{inside}"


def _hidden(record: TraceRecord) -> str:
    totals = record.totals
    if not totals.hidden_copies:
        return "no hidden copies"
    said = (
        f"{size(totals.hidden_bytes)} copied in "
        f"{count(totals.hidden_copies, 'hidden copy', 'hidden copies')}"
    )
    by_line: Counter[tuple[str, int]] = Counter()
    for copy in record.copies:
        by_line[copy.site.file, copy.site.line] += copy.nbytes
    few, part = _fewest(by_line, totals.hidden_bytes)
    if few > _FEW:
        return f"{said} from {count(len(by_line), 'line')}"
    return f"{said}, {part} from {count(few, 'line')}" if few else said


def _fewest(by_line: Counter[tuple[str, int]], whole: int) -> tuple[int, str]:
    """How few lines copy most of it, and how much that is."""
    so_far = few = 0
    for _, nbytes in by_line.most_common():
        so_far, few = so_far + nbytes, few + 1
        if so_far >= _MOST_OF_IT * whole:
            break
    return few, "all" if so_far >= whole else share(so_far, whole)


def _survivors(record: TraceRecord) -> str:
    if not record.survivors:
        return "nothing survives an iteration" if len(record.iterations) > 1 else ""
    each = {
        what: sum(s.per_iteration for s in record.survivors if s.what == what)
        for what in ("bytes", "nodes")
    }
    told = [
        *([size(round(each["bytes"]))] if each["bytes"] else []),
        *([nodes(each["nodes"])] if each["nodes"] else []),
    ]
    return f"{' and '.join(told)} left behind by each iteration"


def nodes(amount: float) -> str:
    """So many nodes of the autograd graph, whole or on average."""
    return f"{number(amount)} autograd {'node' if amount == 1 else 'nodes'}"


def survivors_by_line(record: TraceRecord) -> list[Survivor]:
    """What each line leaves behind, its places added up: a line has a place for each call in it."""
    together: dict[tuple[str, int, str], list[Survivor]] = defaultdict(list)
    for one in record.survivors:
        together[one.site.file, one.site.line, one.what].append(one)
    lines = [_added_up(same) for same in together.values()]
    return sorted(lines, key=lambda one: (one.what != "bytes", -one.amount))


def _added_up(survivors: list[Survivor]) -> Survivor:
    return replace(
        survivors[0],
        amount=sum(one.amount for one in survivors),
        per_iteration=sum(one.per_iteration for one in survivors),
        iterations=max(one.iterations for one in survivors),
        holders=tuple(dict.fromkeys(path for one in survivors for path in one.holders)),
    )
