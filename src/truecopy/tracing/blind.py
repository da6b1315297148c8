"""What a trace cannot see, counted while it runs: threads and processes that the program starts."""

from __future__ import annotations

import multiprocessing.process
import threading
from typing import Any

from truecopy.tracing.facts import Unseen
from truecopy.tracing.ledger import Ledger


class Blind:
    """Counts starts, by methods that are wrapped while somebody looks."""

    def __init__(self) -> None:
        self.threads = _Starts(threading.Thread)
        self.workers = _Starts(multiprocessing.process.BaseProcess)

    def open(self) -> None:
        """Begin to count."""
        self.threads.open()
        self.workers.open()

    def close(self) -> None:
        """Count no more."""
        self.threads.close()
        self.workers.close()

    def started(self) -> list[tuple[str, int, str]]:
        """What the program has started: kind, how many, and what that means."""
        return [
            ("other threads", self.threads.count, "a trace is of the thread that it was opened in"),
            ("other processes", self.workers.count, "what they send arrives as adopted memory"),
        ]

    def unseen(self, ledger: Ledger) -> tuple[Unseen, ...]:
        """What a run did that the trace of it knows nothing of."""
        rows = (
            *self.started(),
            (
                "compiled regions", ledger.stream.regions.count,
                "run as compiled: what kernels made by the compiler do is not told, nor their lines",
            ),
            (
                "tensors without a storage", ledger.memory.shapeless,
                "sparse, opaque or wrapped: their origin is unknown, their bytes are in no number",
            ),
            (
                "inside of operations", ledger.operations,
                "copies and scratch memory that a kernel makes on its own; exact=True sees them",
            ),
        )  # fmt: skip
        return tuple(Unseen(what, count, why) for what, count, why in rows if count)


class _Starts:
    """How often a class of threads or processes was started."""

    def __init__(self, cls: Any) -> None:
        self.count = 0
        self._class = cls
        self._is_open = False
        self._original: Any = None
        self._wrapper: Any = None

    def open(self) -> None:
        original = self._original = self._class.start

        def start(self_: Any) -> Any:
            self.count += self._is_open
            return original(self_)

        self._is_open = True
        self._wrapper = self._class.start = start

    def close(self) -> None:
        self._is_open = False
        if self._class.start is self._wrapper:
            self._class.start = self._original
