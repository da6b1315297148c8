"""Write the table of docs/speed.md from the kept results, so that no figure is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "speed.md"
BEGIN, END = "<!-- figures: written by benchmarks/table.py -->", "<!-- end of figures -->"


def rows() -> list[str]:
    """One Markdown row for each target, with what was measured."""
    lines = ["| what | target | measured | verdict |", "| --- | --- | --- | --- |"]
    for file in sorted((HERE / "results").glob("*.json")):
        for check in json.loads(file.read_text())["checks"]:
            stretch = "" if check["stretch"] is None else f" [{check['stretch']:g}]"
            target, verdict = f"{check['must']:.2g}{stretch}", check["verdict"]
            if not check["must"] and not check["stretch"]:
                target, verdict = "none", "for comparison"
            lines.append(f"| {check['what']} | {target} | {check['got']:.2f} | {verdict} |")
    return lines


def medians() -> list[str]:
    """Medians of every method, in milliseconds, a table for each case and regime."""
    lines: list[str] = []
    for file in sorted((HERE / "results").glob("*.json")):
        for result in json.loads(file.read_text())["results"]:
            if "regime" not in result:  # measured in another way, which its own page tells
                continue
            lines += [
                "",
                f"**{result['case']}, {result['regime']}** ({result['rounds']} rounds)",
                "",
            ]
            lines += ["| method | median |", "| --- | --- |"]
            ordered = sorted(result["median"].items(), key=lambda pair: pair[1])
            lines += [f"| {name} | {_time(seconds)} |" for name, seconds in ordered]
    return lines


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.2f} us"


def main() -> None:
    """Put the figures between the marks of the page."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text("\n".join([before + BEGIN, "", *rows(), *medians(), "", END]) + after)


if __name__ == "__main__":
    main()
