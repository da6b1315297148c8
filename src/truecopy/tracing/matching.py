"""Which line of one run is which line of another, when the file was edited between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from difflib import SequenceMatcher
from pathlib import PurePath

from truecopy.tracing.facts import Site

Pair = tuple[Site | None, Site | None]

_LIKE = 0.6
"""From which likeness on an edited line is taken for the same one; difflib's own measure of close."""

_MOST_TO_TRY = 100
"""Lines of one function, beyond which edited ones are not looked for: each is tried with each."""


def pairs_of(a: Iterable[Site | None], b: Iterable[Site | None]) -> list[Pair]:
    """Every site of both, those that are one line together.

    First by file, function and text; then, for a project that lies elsewhere, by the file's name
    instead of its path; then by likeness of text within one function. The same line many times is
    matched in the order of the file. A number of a line alone matches nothing.
    """
    left, right = _in_order(a), _in_order(b)
    found: list[Pair] = []
    for key in (_exactly, _by_name):
        matched, left, right = _match(left, right, key)
        found += matched
    matched, left, right = _match_edited(left, right)
    return [*found, *matched, *((site, None) for site in left), *((None, site) for site in right)]


def _in_order(sites: Iterable[Site | None]) -> list[Site]:
    known = {site for site in sites if site is not None}
    return sorted(known, key=lambda site: (site.file, site.line, site.column, site.text))


def _exactly(site: Site) -> Hashable:
    return site.file, site.function, site.text


def _by_name(site: Site) -> Hashable:
    return PurePath(site.file).name, site.function, site.text


def _match(
    left: list[Site], right: list[Site], key: Callable[[Site], Hashable]
) -> tuple[list[Pair], list[Site], list[Site]]:
    """Sites of equal key in pairs, first with first, and those that are over."""
    waiting: dict[Hashable, list[Site]] = defaultdict(list)
    for site in reversed(right):
        waiting[key(site)].append(site)
    found: list[Pair] = []
    over = []
    for site in left:
        if others := waiting[key(site)]:
            found.append((site, others.pop()))
        else:
            over.append(site)
    taken = {other for _, other in found}
    return found, over, [site for site in right if site not in taken]


def _match_edited(left: list[Site], right: list[Site]) -> tuple[list[Pair], list[Site], list[Site]]:
    """Within each function the most alike of what is left, the most alike pair first."""
    found: list[Pair] = []
    functions: dict[Hashable, list[Site]] = defaultdict(list)
    for site in right:
        functions[PurePath(site.file).name, site.function].append(site)
    here: dict[Hashable, list[Site]] = defaultdict(list)
    for site in left:
        here[PurePath(site.file).name, site.function].append(site)
    for function, ours in here.items():
        theirs = functions[function]
        if max(len(ours), len(theirs)) <= _MOST_TO_TRY:
            found += _most_alike(ours, theirs)
    taken = {site for pair in found for site in pair}
    return found, [s for s in left if s not in taken], [s for s in right if s not in taken]


def _most_alike(left: list[Site], right: list[Site]) -> list[Pair]:
    tried = [
        (-SequenceMatcher(None, a.text, b.text).ratio(), abs(a.line - b.line), i, j)
        for i, a in enumerate(left)
        for j, b in enumerate(right)
    ]
    found: list[Pair] = []
    used: set[tuple[str, int]] = set()
    for likeness, _, i, j in sorted(tried):
        if -likeness >= _LIKE and ("a", i) not in used and ("b", j) not in used:
            used |= {("a", i), ("b", j)}
            found.append((left[i], right[j]))
    return found
