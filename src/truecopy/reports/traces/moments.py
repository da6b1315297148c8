"""Memory over events in fewer stretches than there are."""

from __future__ import annotations

from collections.abc import Sequence

from truecopy.tracing.facts import Moment


def coarser(moments: Sequence[Moment], most: int) -> Sequence[Moment]:
    """At most so many stretches over the same events: neighbors joined, lows and highs kept."""
    together = -(-len(moments) // most) if moments else 1
    if together == 1:
        return moments
    return [_joined(moments[i : i + together]) for i in range(0, len(moments), together)]


def _joined(moments: Sequence[Moment]) -> Moment:
    highest, last = max(moments, key=lambda moment: moment.high_bytes), moments[-1]
    return Moment(
        moments[0].first_event, last.last_event, min(moment.low_bytes for moment in moments),
        highest.high_bytes, last.copied_bytes, last.stop_ns, highest.by_owner,
    )  # fmt: skip
