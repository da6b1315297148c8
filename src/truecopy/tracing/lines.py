"""Lines of code and what they did so far; and the event that is on, which adds to one of them."""

from __future__ import annotations

from types import CodeType
from typing import Any

from truecopy.tracing.facts import PHASES, Site
from truecopy.tracing.storages import Block

FORWARD, BACKWARD, RECOMPUTE, OPTIMIZER = range(len(PHASES))


class LineOfCode:
    """All that one place in the source did."""

    __slots__ = (
        "allocated", "calls", "churn", "code", "copied", "copies", "effects", "events", "hidden",
        "hidden_bytes", "last_path", "offset", "operations", "origins", "paths", "phases", "raised", "read",
        "site",
    )  # fmt: skip

    def __init__(self, code: CodeType | None, offset: int, site: Site | None = None) -> None:
        self.code = code
        self.offset = offset
        self.site = site  # where it is known by name already
        self.events = self.operations = self.raised = 0
        self.allocated = self.copied = self.read = self.hidden = self.hidden_bytes = 0
        self.copies = 0  # operations that copied
        self.calls: dict[Any, int] = {}  # functions and operations, or names
        self.origins: dict[str, int] = {}
        self.effects: dict[str, int] = {}
        self.paths: dict[str, None] = {}
        self.last_path: str | None = None
        self.phases = 0  # a bit for each
        self.churn: Any = None

    def ended(self, block: Block) -> None:
        """A storage that was allocated here was freed."""
        churn = self.churn
        if churn is not None and block.most == churn.nbytes:
            churn.dropped += 1


class Current:
    """The event that is on: where it is, and what it has done so far."""

    __slots__ = (
        "allocated", "born", "forward", "function", "hidden", "index", "line", "node", "operations",
        "parent", "path", "phase", "read", "start", "touched", "written",
    )  # fmt: skip

    def __init__(self, line: LineOfCode) -> None:
        self.line = line
        self.path = ""
        self.phase = FORWARD
        self.index = 0
        self.parent = -1
        self.function: Any = None  # what was called, or the operation
        self.node = ""  # in a backward pass
        self.forward: LineOfCode | None = None  # that made the node
        self.start = 0
        self.operations = self.allocated = self.written = self.read = self.hidden = 0
        self.born: list[Block] = []
        self.touched: list[tuple[str, str]] = []

    def clear(self) -> None:
        """Begin anew."""
        self.operations = self.allocated = self.written = self.read = self.hidden = 0
        if self.born:
            self.born = []
        if self.touched:
            self.touched = []

    @property
    def call(self) -> str:
        """What the user called; in a backward pass the node."""
        return self.node or name_of(self.function)


def name_of(function: Any) -> str:
    """The name by which a function of torch, or an operation, is called."""
    if isinstance(function, str):
        return function
    name = str(getattr(function, "__name__", None) or getattr(function, "name", ""))
    if name == "__get__":
        return str(getattr(function.__self__, "__name__", name))
    return name
