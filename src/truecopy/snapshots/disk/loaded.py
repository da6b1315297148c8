"""`LoadedSnapshot`: a snapshot read from a file, to be put into sources that are named then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truecopy import _torch
from truecopy.copying.transfer import transfer
from truecopy.errors import CannotRead, StructureMismatch
from truecopy.snapshots.contents import Keeper
from truecopy.snapshots.disk.binding import Bound, bind
from truecopy.snapshots.disk.encoding import decode_state
from truecopy.snapshots.disk.reading import Stored
from truecopy.snapshots.disk.shards import all_fit, read_shards
from truecopy.snapshots.keeping import quietly
from truecopy.snapshots.looking import look
from truecopy.snapshots.random_state import RandomState
from truecopy.snapshots.sources import Keeping, named
from truecopy.structure.hidden import HiddenState


class LoadedSnapshot(Keeper):
    """What `Snapshot.load` read. It has bytes of its own, and may be restored as often as one likes."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored

    @_torch.run_eagerly
    def restore(self, sources: Mapping[str, Any] | None = None, /, **by_name: Any) -> None:
        """Put what the file has into these sources, in place; they have the names that they were saved by.

        The state of an optimizer that has not stepped yet is made. Otherwise allocates nothing that lasts.
        All that is missing, unexpected or of another shape or dtype is named in one StructureMismatch, and
        nothing is written then. No gradient flows; synchronizes where memory on a device is written.
        """
        given = named(sources, by_name)
        with quietly():
            image = look(given, Keeping())
            stored = read_shards(self._stored, image) if self._stored.expected else self._stored
            bound = bind(stored, image)
            bound.missing[:0] = [
                f"the source {name}" for name in self._stored.sources if name not in given
            ]
            bound.unexpected[:0] = [
                f"the source {name}" for name in given if name not in self._stored.sources
            ]
            fits = not (bound.missing or bound.unexpected or bound.wrong)
            others_fit = not stored.expected or all_fit(fits)
            _refuse(bound, str(self._stored.path), _way_out(self._stored.sources, given))
            if not others_fit:
                raise StructureMismatch(
                    "does not fit the sources of another process; nothing was written here",
                    where=str(self._stored.path),
                )
            _put_back_states(bound, self._random(), str(self._stored.path))
            _write(bound)

    def _random(self) -> RandomState | None:
        try:
            return _random_state(self._stored.random)
        except (ValueError, TypeError, AttributeError) as error:
            raise _damaged(str(self._stored.path), error) from None

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of what is in it."""
        return tuple(self._stored.sources)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it has taken."""
        return self._stored.nbytes

    @property
    def left_out(self) -> tuple[str, ...]:
        """What the sources held and the snapshot did not, each with the reason."""
        return tuple(self._stored.unseen)

    def __repr__(self) -> str:
        return (
            f"<truecopy snapshot of {', '.join(self.sources)} from {str(self._stored.path)!r}; "
            f"{self.nbytes:,} bytes>"
        )


def _way_out(saved: list[str], given: Mapping[str, Any]) -> str | None:
    """How to restore a part, where a part is what was asked for."""
    some = [name for name in saved if name in given]
    if not some or len(some) == len(saved):
        return None
    part = some if len(some) > 1 else some[0]
    return f"To restore a part, read that part: Snapshot.load(path, only={part!r})"


def _refuse(bound: Bound, path: str, way_out: str | None) -> None:
    """One error for all that does not fit."""
    if not (bound.missing or bound.unexpected or bound.wrong):
        return
    parts = []
    if bound.missing:
        parts.append(f"missing here: {', '.join(bound.missing)}")
    if bound.unexpected:
        parts.append(f"not in the file: {', '.join(bound.unexpected)}")
    if bound.wrong:
        parts.append("; ".join(f"{at}: {e} in the file, {g} here" for at, e, g in bound.wrong))
    raise StructureMismatch(
        "does not fit these sources; nothing was written",
        where=path,
        expected="the sources that were saved, under the same names",
        got="; ".join(parts),
        way_out=way_out,
    )


def _write(bound: Bound) -> None:
    for drawer, contents in bound.contents:
        drawer.write(contents)
    transfer(bound.pairs)
    _torch.move_versions([tensor for tensor in bound.tensors if not tensor.is_inference()])
    for tensor, flag in bound.requires_grad:
        if tensor.requires_grad != flag:
            tensor.requires_grad_(flag)


def _random_state(data: Any) -> RandomState | None:
    if data is None:
        return None
    return RandomState(**{name: decode_state(state) for name, state in data.items()})


def _put_back_states(bound: Bound, random: RandomState | None, path: str) -> None:
    """Generators come first: whether they take a state is known when they have taken it."""
    before = RandomState.now()
    done: list[tuple[Any, HiddenState, Any]] = []
    try:
        for drawer, state in bound.hidden:
            if drawer.hidden is not None:
                done.append((drawer.owner, drawer.hidden, drawer.hidden.read(drawer.owner)))
                drawer.hidden.write(drawer.owner, state)
        if random is not None:
            random.put_back()
    except (ValueError, TypeError, RuntimeError, KeyError, OverflowError, AttributeError) as error:
        for owner, hidden, state in reversed(done):
            hidden.write(owner, state)
        before.put_back()
        raise _damaged(path, error) from None


def _damaged(path: str, error: Exception) -> CannotRead:
    return CannotRead(
        "has a state of random numbers that is damaged; nothing was written",
        where=path,
        got=f"{type(error).__name__}: {error}"[:200],
    )
