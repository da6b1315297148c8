"""The handle on a save: it may still be going on in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from truecopy.snapshots.contents import Keeper


class Saving(Keeper):
    """One save. `wait()` returns when the file is in place, and raises what went wrong."""

    def __init__(self, path: Path, work: Callable[[], None]) -> None:
        self.path = path
        self._work = work
        self._error: BaseException | None = None
        self._asked = False
        # No daemon: a program that ends waits for its file.
        self._thread = threading.Thread(target=self._run, name=f"truecopy save {path.name}")
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether the file is in place, or the save has failed. Waits for nothing."""
        return not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most so many seconds; whether it was reached. Raises what the save raised."""
        self._thread.join(timeout)
        self._asked = True
        if self._error is not None:
            raise self._error
        return self.done

    def finish(self) -> None:
        """Wait for the end; raise what the save raised if nobody has been told yet."""
        self._thread.join()
        if self._error is not None and not self._asked:
            self.wait()

    def __repr__(self) -> str:
        state = "going on" if not self.done else "failed" if self._error else "done"
        return f"<truecopy save to {str(self.path)!r}: {state}>"

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that asks
            self._error = error
