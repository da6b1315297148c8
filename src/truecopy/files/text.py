"""Names that come from files, made safe to print: files come from anyone."""

from __future__ import annotations

_LONGEST_REASON = 200


def printable(text: str) -> str:
    """Control characters, bidirectional marks and lone surrogates shown, not obeyed."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters, cut in the middle: the ends of a path tell most."""
    if len(text) <= limit:
        return text
    head = (limit - 3) // 2
    return f"{text[:head]}...{text[len(text) - (limit - 3 - head) :]}"


def reason_of(error: BaseException) -> str:
    """What another library said went wrong, as one short printable line."""
    lines = str(error).strip().splitlines()
    said = lines[0].strip().rstrip(".") if lines else ""
    # The libraries' own names of what they raise say more than an empty or bare message.
    told = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return shorten(printable(told), _LONGEST_REASON)
