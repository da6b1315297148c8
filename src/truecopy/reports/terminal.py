"""Every record as plain text of a fixed width: one sentence with the numbers, then details, worst first.

Written as strings and not through a console of rich: the width is the caller's, the text is the same
in a pipe, and a closed pipe stays an error that the command answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from truecopy.files.text import printable
from truecopy.reports.answers import answers
from truecopy.reports.benches.comparison import bench_comparison
from truecopy.reports.benches.terminal import bench
from truecopy.reports.tables import count as _count
from truecopy.reports.tables import name_all as _paths
from truecopy.reports.tables import section as _section
from truecopy.reports.tables import share as _share
from truecopy.reports.tables import size

WIDTH = 100

_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


def render(record: Any, *, width: int = WIDTH, color: bool = False) -> str:
    """The report of a record, without a newline at its end. A pure function."""
    lines = _REPORTS.get(record.kind, _relation)(record, width)
    first, rest = lines[0], lines[1:]
    if color:
        clean = getattr(record, "is_clean", True)
        first = f"{_BOLD}{'' if clean else _RED}{first}{_PLAIN}"
    return "\n".join([first, *(line.rstrip() for line in rest)])


# --- one function for each kind of record ---------------------------------------------------------


def _name(path: str) -> str:
    return printable(path)


def _inspection(record: Any, width: int) -> list[str]:
    stored = record.reached_bytes + record.unreached_bytes
    reach = (
        f"{size(record.unreached_bytes)} ({_share(record.unreached_bytes, stored)}) reached by nobody"
        if record.unreached_bytes
        else "every byte reached"
    )
    first = (
        f"{_name(record.path)} ({record.format}, {size(record.file_bytes)}): "
        f"{_count(len(record.entries), 'tensor')} in {size(stored)}, {reach}, "
        f"{_count(len(record.ties), 'alias group')}."
    )
    return [
        first,
        *_storages("Storages with bytes that nobody reaches, most first:", record.storages, width),
        *_section(
            "In the file, and in no entry:", record.unreferenced,
            lambda u: (size(u.nbytes), u.name), width,
        ),
        *_section("Shares memory, largest first:", record.ties, _group, width),
        *_section(
            "At the top:", record.parts,
            lambda p: (p.path, p.what, _held(p.tensors, p.nbytes)), width,
        ),
        *_section(
            "Tensors, largest first:", record.entries,
            lambda e: (size(e.nbytes), e.dtype, _shape(e.shape), e.path), width,
        ),
        *_section("Cannot be told:", record.unknown, tuple, width),
        *_unseen(record.unseen, width),
    ]  # fmt: skip


def _storages(title: str, storages: Sequence[Any], width: int) -> list[str]:
    def cells(use: Any) -> tuple[str, ...]:
        return (f"{size(use.unreached_bytes)} of {size(use.nbytes)}", "kept by", _paths(use.paths))

    return _section(title, storages, cells, width)


def _group(group: Any) -> tuple[str, ...]:
    reached = size(group.reached_bytes) if group.reached_bytes is not None else "not counted"
    return (reached if group.decided else f"{reached}, not decided", _paths(group.paths))


def _held(tensors: int, nbytes: int) -> str:
    return f"{_count(tensors, 'tensor')}, {size(nbytes)}" if tensors else ""


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


def _unseen(unseen: Sequence[str], width: int) -> list[str]:
    return _section("Not looked at:", unseen, lambda why: (why,), width)


def _compaction(record: Any, width: int) -> list[str]:
    saved = record.source_bytes - record.target_bytes
    change = (
        f"{size(saved)} less" if saved > 0 else f"{size(-saved)} more" if saved else "no change"
    )
    first = (
        f"{_name(record.target)}: {size(record.target_bytes)} from {size(record.source_bytes)} "
        f"({change}), {_count(record.tensors, 'tensor')} and "
        f"{_count(record.ties, 'alias group')} kept, "
        f"{'verified bit for bit' if record.verified else 'not verified'}."
    )
    lines = [first, *_storages("Left out, most first:", record.storages, width)]
    if record.left_unreached_bytes:
        stay = size(record.left_unreached_bytes)
        lines += ["", f"{stay} that nobody reaches stay: gaps between views that share memory."]
    return lines


def _comparison(record: Any, width: int) -> list[str]:
    worst = max(
        (d.max_abs for d in record.differences if d.max_abs is not None), default=None, key=float
    )
    parts = [f"{_count(len(record.differences), 'difference')} in {record.compared:,} compared"]
    if not record.differences:
        parts[0] = f"{record.compared:,} in both alike"
    if worst is not None:
        parts[0] += f", by {_number(worst)} at most"
    for names, side in ((record.only_a, record.a), (record.only_b, record.b)):
        if names:
            parts.append(f"{len(names):,} only in {_name(side)}")
    if ties := len(record.ties_only_a) + len(record.ties_only_b):
        parts.append(_count(ties, "alias group differs", "alias groups differ"))
    exact = record.rtol == 0 and record.atol == 0
    how = "bit for bit" if exact else f"within rtol={record.rtol:g}, atol={record.atol:g}"
    if record.is_clean:
        parts = [f"equal {how}, {record.compared:,} compared"]
    return [
        f"{_name(record.a)} and {_name(record.b)}: {'; '.join(parts)}.",
        *_section(f"Only in {_name(record.a)}:", record.only_a, lambda path: (path,), width),
        *_section(f"Only in {_name(record.b)}:", record.only_b, lambda path: (path,), width),
        *_section(
            "Differences, worst first:", record.differences,
            lambda d: (d.what, _difference(d), d.path), width,
        ),
        *_section(f"Share memory only in {_name(record.a)}:", record.ties_only_a, _tie, width),
        *_section(f"Share memory only in {_name(record.b)}:", record.ties_only_b, _tie, width),
        *_section(
            "Same values in another layout (no finding):", record.layouts,
            lambda d: (f"{d.a} -> {d.b}", d.path), width,
        ),
        *_unseen(record.unseen, width),
    ]  # fmt: skip


def _capture_comparison(record: Any, width: int) -> list[str]:
    first = record.differences[0] if record.differences else None
    exact = record.rtol == 0 and record.atol == 0
    how = "bit for bit" if exact else f"within rtol={record.rtol:g}, atol={record.atol:g}"
    if first is None:
        told = f"equal {how}, {_count(record.compared, 'tensor')} compared"
    else:
        told = f"the first to differ is {_name(first.path)} ({_difference(first)})"
        told += f"; {len(record.differences):,} of {record.compared:,} differ"
        told += f", up to {_name(record.last_alike)} they are equal" if record.last_alike else ""
    for names, side in ((record.only_a, record.a), (record.only_b, record.b)):
        if names:
            told += f"; {len(names):,} only in {_name(side)}"
    return [
        f"{_name(record.a)} and {_name(record.b)}: {told}.",
        *_section(
            "Differences, in the order of the run:", record.differences,
            lambda d: (d.what, _difference(d), d.path), width,
        ),
        *_section(f"Only in {_name(record.a)}:", record.only_a, lambda path: (path,), width),
        *_section(f"Only in {_name(record.b)}:", record.only_b, lambda path: (path,), width),
    ]  # fmt: skip


def _capture(record: Any, width: int) -> list[str]:
    leaves = [leaf for value in record.values for leaf in value.leaves]
    elsewhere: dict[str, int] = {}
    for leaf in leaves:
        if leaf.how not in ("memory", "function"):
            elsewhere[leaf.how] = elsewhere.get(leaf.how, 0) + 1
    first = (
        f"{_name(record.model)}: {_count(len(record.values), 'value')} captured in "
        f"{size(record.held_bytes)}, where a clone of each takes {size(record.cloned_bytes)}"
    )
    if elsewhere:
        first += "; kept as " + ", ".join(f"{how}: {n:,}" for how, n in elsewhere.items())
    if record.budget_bytes is not None:
        first += f"; the budget is {size(record.budget_bytes)}"
    first += "." if record.ended == "completed" else f"; {_name(record.ended)}."

    def cells(value: Any) -> tuple[str, ...]:
        nbytes = sum(leaf.nbytes for leaf in value.leaves)
        told = [f"{leaf.dtype} {_shape(leaf.shape)}" for leaf in value.leaves[:2]]
        return (size(nbytes), ", ".join(told), value.name)

    return [
        first,
        *_section("In the order of the run:", record.values, cells, width),
        *_section(
            "Not seen, or seen differently:", record.unseen,
            lambda u: (f"{u[1]:,}", u[0]), width,
        ),
    ]  # fmt: skip


def _difference(difference: Any) -> str:
    if difference.elements is None:
        return f"{difference.a} -> {difference.b}"
    text = "" if difference.what == "values" else f"{difference.a} -> {difference.b}, "
    if difference.differing is None:
        return f"{text}bytes differ"
    text += f"{difference.differing:,} of {difference.elements:,}"
    if difference.max_abs is not None:
        text += f", by {_number(difference.max_abs)} (relative {_number(difference.max_rel)})"
    if difference.nan_in_one:
        text += f", {difference.nan_in_one:,} NaN in one"
    return text


def _tie(tie: Any) -> tuple[str, ...]:
    where = "at bytes " + ", ".join(map(str, tie.offsets[:4])) if tie.offsets else ""
    return (_paths(tie.paths), where)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def _aliases(record: Any, width: int) -> list[str]:
    groups = sorted(record.groups, key=lambda group: -group.span_bytes)
    wasteful = [use for use in record.storages if use.unreached_bytes]
    first = (
        f"{_count(record.tensors, 'value')} in {size(record.storage_bytes)}: "
        f"{_count(len(groups), 'alias group')}, {size(record.unreached_bytes)} "
        f"({_share(record.unreached_bytes, record.storage_bytes)}) reached by nobody."
    )
    return [
        first,
        *_storages("Storages with bytes that nobody reaches, most first:", wasteful, width),
        *_section("Shares memory, largest first:", groups, _group, width),
        *_section("Cannot be told:", record.unknown, tuple, width),
    ]


def _plan(record: Any, width: int) -> list[str]:
    def note(entry: Any) -> tuple[str, ...]:
        return (entry.path, entry.why)

    fails = f", {_count(len(record.fails), 'part')} that cannot be copied" if record.fails else ""
    first = (
        f"A copy of {_name(record.name)} takes {size(record.nbytes)} in "
        f"{_count(len(record.groups), 'block')}, {_count(len(record.kept), 'object')} "
        f"kept by reference{fails}."
    )
    return [
        first,
        *_section("Cannot be copied:", record.fails, note, width),
        *_section("Still means the original:", record.points_back, note, width),
        *_section("Kept by reference:", record.kept, note, width),
        *_section("Dropped:", record.dropped, note, width),
        *_section(
            "Sharing not decided, copied together:", record.undecided, lambda p: (p,), width
        ),
        *_section(
            "Blocks, largest first:", record.groups,
            lambda g: (size(g.nbytes), _paths(g.paths)), width,
        ),
    ]  # fmt: skip


def _relation(record: Any, width: int) -> list[str]:
    first, *rest = printable_lines(str(record))
    pairs = record.pairs if record.pair_count > 1 else ()
    return [
        first,
        *rest,
        *_section(
            "Pairs that touch:", pairs,
            lambda p: (size(p.common_bytes), p.kind, f"{p.a} and {p.b}"), width, record.pair_count,
        ),
    ]  # fmt: skip


def printable_lines(text: str) -> list[str]:
    """The lines of a text, each made safe to print; one at least."""
    return [printable(line) for line in text.splitlines()] or [""]


def _trace(record: Any, width: int) -> list[str]:
    from truecopy.reports.traces.terminal import lines_of

    return lines_of(record, width)


def _changes(record: Any, width: int) -> list[str]:
    from truecopy.reports.traces.changes import lines_of

    return lines_of(record, width)


def _explanation(record: Any, width: int) -> list[str]:
    from truecopy.reports.explanations import lines_of

    return lines_of(record, width)


def _ranks(record: Any, width: int) -> list[str]:
    from truecopy.reports.traces.ranks import lines_of

    return lines_of(record, width)


_REPORTS: dict[str, Callable[[Any, int], list[str]]] = {
    "inspection": _inspection,
    "compaction": _compaction,
    "comparison": _comparison,
    "capture": _capture,
    "capture comparison": _capture_comparison,
    "aliases": _aliases,
    "plan": _plan,
    "trace": _trace,
    "traces": _ranks,
    "trace comparison": _changes,
    "explanation": _explanation,
    "answers": answers,
    "bench": bench,
    "bench comparison": bench_comparison,
}
