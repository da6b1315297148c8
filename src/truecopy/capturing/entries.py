"""What was captured, one entry for each name, in the order of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from truecopy.capturing.gradients import Slot
from truecopy.capturing.names import Name
from truecopy.capturing.structures import Kept
from truecopy.tracing.sites import Place


@dataclass(slots=True, eq=False)
class Entry:
    """One captured value."""

    name: Name
    kind: str  # of the module: "Linear"; of a function: "function"
    kept: Kept
    slots: list[Slot | None] = field(default_factory=list)  # gradients of its leaves
    node: str = ""  # the autograd node that saved it
    place: Place | None = None  # the line that made the node
    note: str = ""
    _value: Any = None
    _is_built: bool = False

    @property
    def value(self) -> Any:
        """The value as it was: the same object every time."""
        if not self._is_built:
            self._value = self.kept.build(_value_of)
            self._is_built = True
        return self._value

    @property
    def gradient(self) -> Any:
        """The gradient of the value, in the same structure."""
        slots = iter(self.slots)
        return self.kept.build(lambda _: _value_of(next(slots, None)))


def _value_of(leaf: Any) -> Any:
    return None if leaf is None else leaf.value


class Entries:
    """Entries by name. A name is given once: whoever comes later gets the next number."""

    def __init__(self) -> None:
        self._by_name: dict[str, Entry] = {}

    def add(self, entry: Entry) -> None:
        """Put an entry at the end."""
        key = str(entry.name)
        while key in self._by_name:
            entry.name = _next(entry.name)
            key = str(entry.name)
        self._by_name[key] = entry

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Entry | None:
        """The entry of a name, as it is written."""
        return self._by_name.get(name)

    def names(self) -> list[str]:
        """All names, in the order of the run."""
        return list(self._by_name)


def _next(name: Name) -> Name:
    if name.function:
        return Name(name.module, name.call, name.function, name.number + 1, name.port)
    return Name(name.module, name.call + 1, port=name.port)
