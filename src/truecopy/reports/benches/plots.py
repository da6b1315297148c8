"""Plots of a bench, as PNG or SVG: the ratio to the reference with its band, and time over size.

The ratio is the plot to read: on two logarithmic axes a factor of two is a hair's breadth.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truecopy.errors import CannotWrite
from truecopy.measuring.record import CEILING
from truecopy.reports.benches.words import floor_of

FORMATS = (".png", ".svg")
_MOST_LINES = 20


def save_plot(record: Any, path: Path, *, kind: str = "ratio", force: bool = False) -> None:
    """Write one plot, `kind` "ratio" or "time". Needs matplotlib: pip install 'truecopy[plot]'.

    Leaves matplotlib's global style and its backend as they are.
    """
    if path.suffix not in FORMATS:
        raise CannotWrite(
            "is no name of a plot", where=str(path), expected="a name that ends in .png or .svg"
        )
    if path.exists() and not force:
        raise CannotWrite("exists, and would be replaced", where=str(path), way_out="Pass --force")
    figure = draw(record, kind)
    # Without a date: one result has one plot.
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    try:
        figure.savefig(path, metadata=metadata)
    except OSError as error:
        raise CannotWrite(
            f"cannot be written: {error.strerror or error}", where=str(path)
        ) from error


def draw(record: Any, kind: str) -> Any:
    """A figure of matplotlib, one panel for each combination of all axes but size."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise CannotWrite(
            "plots need matplotlib, which is not installed",
            way_out="pip install 'truecopy[plot]', or use --html, which needs nothing",
        ) from None
    panels = panels_of(record)
    figure = Figure(figsize=(10, 4.2 * max(len(panels), 1)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(max(len(panels), 1), 1, squeeze=False)
    for axes, (title, cells) in zip(grid[:, 0], panels.items(), strict=False):
        axes.set_title(title, fontsize=9)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("payload bytes")
        (_ratios if kind == "ratio" else _times)(axes, cells)
        if cells:
            axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def panels_of(record: Any) -> dict[str, list[Any]]:
    """Cells that differ in size alone, smallest first, under a title that names every other axis."""
    panels: dict[str, list[Any]] = {}
    for measured in record.cells:
        if measured.rounds:
            cell = measured.cell
            title = cell.title.replace(f", {cell.elements:,} x {cell.dtype}", f", {cell.dtype}")
            panels.setdefault(title, []).append(measured)
    return panels


def methods_of(cells: list[Any]) -> list[str]:
    """Methods that keep their promise somewhere, as few as can be told apart."""
    names = dict.fromkeys(
        r.method for m in cells for r in m.rows if m.is_sound(r.method) and r.seconds
    )
    return list(names)[:_MOST_LINES]


def _ratios(axes: Any, cells: list[Any]) -> None:
    axes.set_yscale("log")
    axes.set_ylabel(f"time / time of {cells[0].reference}")
    axes.axhline(1, color="black", linewidth=0.8, label=cells[0].reference)
    judged = [(m.opened.payload_bytes, floor) for m in cells if (floor := floor_of(m)) is not None]
    if judged:
        noise = [floor for _, floor in judged]
        at = [nbytes for nbytes, _ in judged]
        axes.fill_between(at, [1 / one for one in noise], noise, color="0.8", label="noise floor")
    for name in methods_of(cells):
        points = [
            (m.opened.payload_bytes, m.row(name).verdict)
            for m in cells if name in m.opened.entries and m.row(name).verdict is not None
        ]  # fmt: skip
        if points:
            sizes = [nbytes for nbytes, _ in points]
            (line,) = axes.plot(sizes, [v.ratio for _, v in points], marker=".", label=name)
            bands = [v.low for _, v in points], [v.high for _, v in points]
            axes.fill_between(sizes, *bands, color=line.get_color(), alpha=0.25)


def _times(axes: Any, cells: list[Any]) -> None:
    axes.set_yscale("log")
    axes.set_ylabel("seconds")
    for name in (*methods_of(cells), CEILING):
        points = [
            (m.opened.payload_bytes, m.ceiling if name == CEILING else m.row(name))
            for m in cells if name in m.opened.entries
        ]  # fmt: skip
        style = {"color": "black", "linestyle": ":"} if name == CEILING else {"marker": "."}
        axes.plot(
            [nbytes for nbytes, _ in points], [r.seconds for _, r in points], label=name, **style
        )
