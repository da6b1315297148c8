"""The page of a trace in a real browser: opened, clicked, searched, with keys, in the dark, attacked."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from browsers import Watched, chromium
from trace_examples import HOSTILE, empty, hostile, large
from traces import example
from truecopy.files.text import printable
from truecopy.reports.tables import size
from truecopy.reports.traces.page import html
from truecopy.reports.traces.words import sentence
from truecopy.tracing.record import TraceRecord

RECORDS = {"small": example, "large": large, "empty": empty, "hostile": hostile}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of each record, written once."""
    directory = tmp_path_factory.mktemp("pages")
    paths = {name: directory / f"{name}.html" for name in RECORDS}
    for name, path in paths.items():
        path.write_text(html(RECORDS[name]()), encoding="utf-8")
    return paths


@pytest.fixture
def watched(browser: Any) -> Iterator[Watched]:
    one = Watched(browser)
    yield one
    one.page.close()


def rows(page: Any, section: str, which: str = "tr.row") -> list[list[str]]:
    """The cells of each row of a section's table."""
    texts = page.locator(f"#{section} table.rows > tbody > {which}").all_inner_texts()
    return [[cell.strip() for cell in text.split("\t")] for text in texts]


def the_open(page: Any) -> Any:
    return page.locator("tr.row[aria-expanded=true]")


@pytest.mark.parametrize("name", RECORDS)
def test_a_page_asks_for_nothing_and_says_the_sentence(
    watched: Watched, pages: dict[str, Path], name: str
) -> None:
    """Whatever the record: the sentence stands on top, no request, no dialog, no error, no overflow."""
    page = watched.open(pages[name])

    assert page.locator("h1").inner_text() == sentence(RECORDS[name]())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert watched.is_quiet(pages[name])


def test_the_numbers_are_those_of_the_record(watched: Watched, pages: dict[str, Path]) -> None:
    """Tiles, lines, hidden copies, owners and storages say what the record holds."""
    record = example()
    page = watched.open(pages["small"])

    values = page.locator(".tile .value").all_inner_texts()
    totals = record.totals
    assert values == [
        size(record.peak.nbytes), size(totals.hidden_bytes), "4 bytes",
        size(totals.allocated_bytes), size(totals.copied_bytes),
    ]  # fmt: skip
    for line, told in zip(record.lines, rows(page, "lines"), strict=True):
        amounts = (line.hidden_bytes, line.copied_bytes, line.allocated_bytes, line.peak_bytes)
        shown = [size(nbytes) if nbytes else "0" for nbytes in amounts]
        assert told == [
            f"train.py:{line.site.line}",
            line.site.text,
            *shown,
            str(line.events),
        ]
    card = page.locator("#copies .card").inner_text()
    (copy,) = record.copies
    for part in (size(copy.nbytes), copy.site.text, copy.reason, copy.advice):
        assert part in card
    owners = rows(page, "owners", "tr")
    assert [told[0] for told in owners] == [o.owner for o in record.peak.owners]
    assert [told[-1] for told in owners] == [size(o.nbytes) for o in record.peak.owners]
    assert len(rows(page, "storages")) == len(record.storages)
    assert page.locator("#unseen").inner_text().count("other threads") == 1


def test_memory_over_time_says_what_was_alive(watched: Watched, pages: dict[str, Path]) -> None:
    """The chart's legend has the peak's classes; arrows go to other moments, Enter shows storages."""
    record = example()
    page = watched.open(pages["small"])
    legend = page.locator(".legend")

    assert (
        legend.locator(".when").inner_text().startswith(f"{size(record.peak.nbytes)} at the peak")
    )
    assert "gradient24.0 KiB" in legend.inner_text().replace("\n", "")
    page.locator(".chart").focus()
    page.keyboard.press("ArrowLeft")
    assert (
        legend.locator(".when")
        .inner_text()
        .startswith(f"{size(record.memory[0].high_bytes)} at most in events 0 to 2")
    )
    assert "gradient0 bytes" in legend.inner_text().replace("\n", "")
    page.keyboard.press("Enter")
    assert page.locator(".chip").inner_text() == "2 alive at events 0 to 2 ×"  # noqa: RUF001
    assert len(rows(page, "storages")) == 2
    page.locator(".chip").click()
    assert len(rows(page, "storages")) == 3
    page.locator(".chart").focus()
    page.keyboard.press("Enter")
    assert page.locator(".chip").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator(".chip").is_visible()


def test_a_click_opens_a_line_and_a_second_closes_it(
    watched: Watched, pages: dict[str, Path]
) -> None:
    """An open line tells why it copied, and what it allocated; the address names it."""
    page = watched.open(pages["small"])
    first = page.locator("#lines tr.row").first

    first.click()
    detail = page.locator("#lines tr.detail").inner_text()
    assert "strides (1, 64) cannot be viewed as (6144,)" in detail
    assert "storage 1" in detail
    assert page.url.endswith("#line=train.py%3A9")
    first.click()
    assert the_open(page).count() == 0
    assert "#" not in page.url


def test_a_link_opens_what_it_names(watched: Watched, pages: dict[str, Path]) -> None:
    """The address of a line or a storage leads there, in a page just opened and in an open one."""
    page = watched.open(pages["large"], "#line=layer_3.py%3A13")

    assert the_open(page).get_attribute("data-key") == "line=layer_3.py%3A13"
    assert the_open(page).evaluate("row => row === document.activeElement")
    page.evaluate("location.hash = '#storage=700'")
    page.wait_for_selector("#storages tr.row[aria-expanded=true]")
    told = page.locator("#storages tr.detail").inner_text()
    assert "calls with a result in this memory" in told
    page.evaluate("location.hash = '#line=nowhere'")
    assert the_open(page).count() == 2
    assert not watched.complaints


def test_a_storage_shows_its_life_and_its_views(watched: Watched, pages: dict[str, Path]) -> None:
    """Every event of the record whose result lies in a storage is there, with its line."""
    record = example()
    page = watched.open(pages["small"], "#storage=0")

    told = page.locator("#storages tr.detail").inner_text()
    assert "born at event 0, alive at the end" in told
    shown = page.locator("#storages tr.detail .touched tr").all_inner_texts()[1:]
    touching = [event for event in record.events if event.storage == 0]
    assert [row.split("\t")[:3] for row in shown] == [
        [str(event.index), event.call, event.origins[0]] for event in touching
    ]


def test_search_finds_and_escape_forgets(watched: Watched, pages: dict[str, Path]) -> None:
    """`/` goes to the search; lines, copies and storages that do not match go; Esc brings all back."""
    page = watched.open(pages["small"])

    page.keyboard.press("/")
    page.keyboard.type("T().Reshape flatten")
    assert [told[0] for told in rows(page, "lines")] == ["train.py:9"]
    assert len(rows(page, "storages")) == 1
    assert page.locator(".found").inner_text() == "4 found"
    page.keyboard.press("Escape")
    assert len(rows(page, "lines")) == 4
    assert page.locator(".found").inner_text() == ""
    page.keyboard.press("/")
    page.keyboard.type("no such thing")
    assert rows(page, "lines") == []
    assert "Nothing here matches." in page.locator("#lines").inner_text()


def test_everything_can_be_done_with_keys(watched: Watched, pages: dict[str, Path]) -> None:
    """Arrows walk through rows, Enter opens one, Esc closes it, ? explains, t changes the theme."""
    page = watched.open(pages["small"])

    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert the_open(page).get_attribute("data-key") == "line=train.py%3A4"
    page.keyboard.press("Escape")
    assert the_open(page).count() == 0
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()
    page.locator("#lines th button", has_text="allocated").focus()
    page.keyboard.press("Enter")
    assert page.locator("#lines th[aria-sort]").inner_text().startswith("allocated")


def test_sorting_goes_both_ways(watched: Watched, pages: dict[str, Path]) -> None:
    """A column's name sorts by its numbers, most first; once more, least first."""
    amounts = (900, 70_000, 5, 1024)
    lines = zip(example().lines, amounts, strict=True)
    record = replace(
        example(), lines=tuple(replace(line, allocated_bytes=amount) for line, amount in lines)
    )
    path = pages["small"].with_name("sorted.html")
    path.write_text(html(record), encoding="utf-8")
    page = watched.open(path)
    allocated = page.locator("#lines th button", has_text="allocated")

    allocated.click()
    assert [told[4] for told in rows(page, "lines")] == [
        "68.4 KiB",
        "1.0 KiB",
        "900 bytes",
        "5 bytes",
    ]
    allocated.click()
    assert next(told[4] for told in rows(page, "lines")) == "5 bytes"


@pytest.mark.parametrize(("system", "dark"), [("light", False), ("dark", True)])
def test_it_is_dark_where_the_system_is_and_where_it_is_asked_to_be(
    browser: Any, pages: dict[str, Path], system: str, dark: bool
) -> None:
    """The theme is the system's; the button and `t` go through light, dark and back."""
    watched = Watched(browser, color_scheme=system)
    page = watched.open(pages["small"])

    def is_dark() -> bool:
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", color)[:3])) < 300

    assert is_dark() is dark
    page.keyboard.press("t")
    assert not is_dark()
    page.get_by_role("button", name="Theme: light").click()
    assert is_dark()
    page.keyboard.press("t")
    assert is_dark() is dark
    page.close()


def test_a_large_run_shows_its_first_rows_and_all_when_asked(
    watched: Watched, pages: dict[str, Path]
) -> None:
    """Rows beyond the first are a click away, and what is not in the page at all is summed."""
    page = watched.open(pages["large"])

    assert len(rows(page, "lines")) == 25
    page.locator("#lines button.more").click()
    shown = len(rows(page, "lines"))
    assert shown > 100
    rest = page.locator("#lines .rest").inner_text()
    assert rest.startswith(f"{3000 - shown:,} more lines")


def test_a_narrow_window_cuts_nothing_off(browser: Any, pages: dict[str, Path]) -> None:
    """On a phone the page scrolls down and never sideways."""
    watched = Watched(browser, viewport={"width": 390, "height": 844})
    page = watched.open(pages["large"], "#line=layer_3.py%3A13")

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_hostile_names_are_text(watched: Watched, pages: dict[str, Path]) -> None:
    """Opened everywhere and searched: file names, source and modules are shown, and nothing happens."""
    page = watched.open(pages["hostile"])

    for section in ("lines", "storages"):
        for row in page.locator(f"#{section} tr.row").all():
            row.click()
    page.keyboard.press("/")
    page.keyboard.type(HOSTILE[1])
    page.keyboard.press("Escape")
    page.locator(".chart svg").click(position={"x": 300, "y": 100})
    shown = page.locator("body").inner_text()
    assert any(printable(text) in shown for text in HOSTILE)
    assert page.locator("script").count() == 2
    assert (
        page.locator("main img, main script, main b, main iframe").count()
        == page.locator("main .why b, main .advice b, main .legend b").count()
    )
    assert page.evaluate(
        "[...document.querySelectorAll('a')].every(a => a.getAttribute('href').startsWith('#'))"
    )
    assert watched.is_quiet(pages["hostile"])


def test_the_watch_would_see_it(browser: Any, tmp_path: Path) -> None:
    """The checks above can fail: a page without our care asks, disturbs and complains."""
    path = tmp_path / "careless.html"
    path.write_text(
        "<main><h1>x</h1></main><img src='http://127.0.0.1:9/x.png'><script>alert(1)</script>"
    )
    watched = Watched(browser)
    watched.open(path)

    assert watched.dialogs == ["1"]
    assert not watched.is_quiet(path)
    watched.page.close()


def test_no_script_but_ours_can_run(watched: Watched, pages: dict[str, Path]) -> None:
    """Even markup that came into the page would be dead: the policy allows one script, by its hash."""
    page = watched.open(pages["small"])

    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s);"
        " document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">'); }"
    )
    page.wait_for_timeout(50)
    assert page.evaluate("window.ran") is None


def test_record_of_the_exact_tier(browser: Any, tmp_path: Path) -> None:
    """What the allocator counted and nobody owned has a class of its own."""
    record: TraceRecord = example()
    last = replace(record.memory[-1], high_bytes=record.memory[-1].high_bytes + 4096)
    exact = replace(record, tier="profiler", memory=(record.memory[0], last))
    path = tmp_path / "exact.html"
    path.write_text(html(exact), encoding="utf-8")
    watched = Watched(browser)
    page = watched.open(path)

    assert "known to no owner4.0 KiB" in page.locator(".legend").inner_text().replace("\n", "")
    assert "by torch's profiler" in page.locator(".whole").inner_text()
    page.close()
