"""The largest record that a trace keeps, as a page: made, and opened in a browser.

Opening is timed by the browser itself, from the request for the file to the end of its load event,
by when the page's one script has drawn everything. The targets: under 1 MiB, and under a second.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import check, save

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browsers import Watched, chromium
from trace_examples import empty, large
from traces import example
from truecopy.reports.traces.page import html
from truecopy.reports.traces.perfetto import perfetto

ROUNDS = 7
MOST_BYTES = 1 << 20
MOST_SECONDS = 1.0

_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def seconds_to_open(browser: Any, path: Path) -> float:
    """What the browser says of one opening, in a window of its own."""
    watched = Watched(browser)
    page = watched.open(path)
    milliseconds: float = page.evaluate(_LOADED)
    page.close()
    return milliseconds / 1000


def measure(browser: Any, name: str, record: Any, directory: Path) -> dict[str, Any]:
    """Make the page and the timeline once more in each round, and open the page."""
    made, timeline, opened = [], [], []
    path = directory / f"{name}.html"
    for _ in range(ROUNDS):
        started = time.perf_counter()
        text = html(record)
        made.append(time.perf_counter() - started)
        started = time.perf_counter()
        perfetto(record)
        timeline.append(time.perf_counter() - started)
        path.write_text(text, encoding="utf-8")
        opened.append(seconds_to_open(browser, path))
    seconds = {"page": made, "timeline": timeline, "opening": opened}
    return {
        "case": name,
        "nbytes": path.stat().st_size,
        "rounds": ROUNDS,
        "seconds": seconds,
        "median": {what: statistics.median(values) for what, values in seconds.items()},
    }


def verdicts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Both targets of one page."""
    nbytes, seconds = result["nbytes"], result["median"]["opening"]
    return [
        check(f"{result['case']}: under 1 MiB ({nbytes:,} bytes)", MOST_BYTES / nbytes, 1),
        check(f"{result['case']}: opens in a second ({seconds:.2f} s)", MOST_SECONDS / seconds, 1),
    ]


def main() -> None:
    """Measure an empty trace, a small one, and the largest, with names of every length."""
    records = {
        "empty": empty(), "small": example(), "largest": large(),
        "largest, long names": large(wide=True, iterations=2_000, lines=9_000),
    }  # fmt: skip
    with chromium() as browser, tempfile.TemporaryDirectory() as directory:
        results = [measure(browser, n, r, Path(directory)) for n, r in records.items()]
    save("pages", results, [verdict for result in results for verdict in verdicts(result)])


if __name__ == "__main__":
    main()
