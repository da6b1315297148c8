"""`advise`: which method for which case on this machine, from the measurements just made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from truecopy.measuring.cells import Cell
from truecopy.measuring.record import BenchResult, Measured, Row
from truecopy.measuring.uses import USES


def advise(result: BenchResult) -> str:
    """One paragraph: for each case the method to take, with figures; what could not be told is said.

    Says nothing that was not measured: methods, sizes and regimes that a run left out are not in it.
    Sizes of which the same was found are one case, with the figures of the largest.
    """
    sentences = [sentence for alike in _alike(result) for sentence in _of_cell(alike)]
    if not sentences:
        return "Nothing was measured to its end, so there is nothing to advise."
    machine = result.machine
    return " ".join([f"On this machine ({machine.cpu}, torch {machine.torch}):", *sentences])


def _alike(result: BenchResult) -> list[list[Measured]]:
    """Cells that differ in size alone, and say the same: the smallest first."""
    groups: dict[object, list[Measured]] = {}
    for measured in sorted(result.cells, key=lambda one: one.cell.elements):
        if not measured.rounds:
            continue
        words = {(row.method, row.verdict and row.verdict.word) for row in measured.rows}
        uses = measured.break_even and (measured.break_even.uses or measured.break_even.why)
        found = (replace(measured.cell, elements=0), frozenset(words), uses)
        groups.setdefault(found, []).append(measured)
    return list(groups.values())


def _of_cell(alike: list[Measured]) -> Iterator[str]:
    measured = alike[-1]
    case = _case(measured.cell, alike[0].cell.elements)
    if measured.break_even is not None:
        yield (f"For {measured.cell.task} of {case}, {measured.break_even.why}.")
    elif measured.cell.task not in USES:
        yield from _of_copies(measured, case)


def _of_copies(measured: Measured, case: str) -> Iterator[str]:
    sound = [
        row for row in measured.rows if measured.is_sound(row.method) and row.seconds is not None
    ]
    reference = measured.row(measured.reference)
    if reference not in sound:
        return
    faster = [row for row in sound if _says(row, "faster")]
    alike = [row.method for row in sound if _says(row, "same")]
    if faster:
        best = faster[0]
        yield (
            f"For {case}, take {best.method}: {_time(best)}, {_ratio(best)} times that of "
            f"{reference.method} ({_time(reference)})."
        )
    else:
        beside = (
            f"; {_names(alike)} {'takes' if len(alike) == 1 else 'take'} as long" if alike else ""
        )
        yield f"For {case}, nothing was faster than {reference.method} ({_time(reference)}){beside}."
    slow = [row for row in sound if _says(row, "slower")]
    if slow:
        yield f"There {slow[-1].method} takes {_ratio(slow[-1])} times as long."
    doubts = [row.method for row in sound if _says(row, "cannot tell")]
    if doubts:
        yield f"Of {_names(doubts)} one cannot tell."
    views = [row.method for row in measured.rows if row.check is not None and row.check.broken]
    if views:
        yield f"No copies: {_names(views)}."


def _says(row: Row, word: str) -> bool:
    return row.verdict is not None and row.verdict.word == word


def _case(cell: Cell, least: int) -> str:
    """The axes of a cell, as short as can be; `least` elements are where it begins to hold."""
    size = f"{cell.elements:,}" if least == cell.elements else f"{least:,} to {cell.elements:,}"
    what = "" if cell.task == "copy" else "duplicates of " if cell.task == "duplicate" else ""
    threads = f", {cell.threads} thread{'s' if cell.threads > 1 else ''}" if cell.threads else ""
    mode = "" if cell.mode == "plain" else f", {cell.mode}"
    library = "" if cell.library == "torch" else f" in {cell.library}"
    return f"{what}{cell.shape} {size} x {cell.dtype}{library} ({cell.regime}{threads}{mode})"


def _time(row: Row) -> str:
    seconds = row.seconds or 0.0
    return f"{seconds * 1e6:,.3g} us" if seconds < 1e-3 else f"{seconds * 1e3:,.3g} ms"


def _ratio(row: Row) -> str:
    assert row.verdict is not None
    return f"{row.verdict.ratio:.2f}" if row.verdict.ratio < 100 else f"{row.verdict.ratio:.0f}"


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
