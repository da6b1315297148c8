"""`capture`: see inside a model, and keep what it makes and never shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from truecopy import _torch
from truecopy.capturing.absent import Seen, not_captured
from truecopy.capturing.attention import scores_of
from truecopy.capturing.budget import Budget, Over
from truecopy.capturing.compiling import Eager
from truecopy.capturing.entries import Entry
from truecopy.capturing.gradients import Gradients
from truecopy.capturing.keeping import Held, Keeper
from truecopy.capturing.leaves import leaf_keeper
from truecopy.capturing.names import Pattern
from truecopy.capturing.observing import Recorder
from truecopy.capturing.record import Captured, CaptureRecord, Leaf
from truecopy.capturing.selection import Select, Selection
from truecopy.capturing.store import SavedCapture, write_capture
from truecopy.capturing.tree import tree_of
from truecopy.errors import NotCaptured, UsageError
from truecopy.files.captures import CaptureComparison, compare_captures
from truecopy.tracing.sites import resolve
from truecopy.tracing.stream import Stream

Keep = Literal["tensors", "stats", "shapes"]


class Capture(Mapping[str, Any]):
    """What a model made while it was observed: names to values, in the order of the run.

    Made by `capture`. Open it with `with`; it can be read inside and afterwards.
    """

    def __init__(
        self, model: nn.Module, recorder: Recorder, gradients: Gradients | None, budget: Budget
    ) -> None:
        self._model: nn.Module | None = model
        self._recorder = recorder
        self._gradients = gradients
        self._budget = budget
        self._stream: Stream | None = None
        self._eager = Eager()
        self._class = type(model).__name__
        self.ended = "not begun"

    # --- the window -----------------------------------------------------------------------------

    def __enter__(self) -> Capture:
        if self._stream is not None:
            raise UsageError(
                "a capture is opened once", way_out="Make another with tc.capture(...)"
            )
        self._stream = Stream(self._recorder)
        self._eager.begin()
        try:
            self._stream.__enter__()
        except BaseException:
            self._eager.end()
            raise
        self.ended = "open"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        assert self._stream is not None
        self._stream.__exit__(kind, error, traceback)
        self._eager.end()
        if self._eager.was_needed and any(map(_is_compiled, self._recorder.places.model.modules())):
            self._recorder.unseen[
                "compiled regions, which ran eagerly while they were observed"
            ] += 1
        if self._gradients is not None:
            self._gradients.close()
        self._recorder.keeper.close()
        stopped = self._recorder.stopped
        if error is not None and error is stopped:
            self.ended = f"stopped at {error}"
            return True
        if error is not None:
            inside = f" in {self._recorder.failed}" if self._recorder.failed else ""
            self.ended = f"raised {type(error).__name__}{inside}"
            return False
        self.ended = "completed"
        self._refuse_what_never_came()
        return False

    def _refuse_what_never_came(self) -> None:
        selection, until = self._recorder.selection, self._recorder.until
        missing = [pattern.text for pattern in selection.never_met()]
        if until is not None and until.text not in missing:
            missing.append(until.text)
        missing += [kind.__name__ for kind in selection.types if kind not in selection.types_met]
        if missing:
            raise self._absent(missing[0])

    def _absent(self, asked: str) -> NotCaptured:
        seen = Seen(self._recorder.places.numbers, self._recorder.fast)
        return not_captured(asked, self.names(), self._model, seen)

    @property
    def partial(self) -> bool:
        """Whether the run ended before its end: by an exception, or at `until=`."""
        return self.ended.startswith(("raised", "stopped"))

    # --- a mapping ------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        return self._entry(name).value

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._recorder.entries)

    def __repr__(self) -> str:
        return f"<capture of {self._class}: {len(self)} values, {self.ended}>"

    def _entry(self, name: str) -> Entry:
        entry = self._recorder.entries.get(name)
        if entry is None:
            raise self._absent(name)
        return entry

    def names(self, pattern: str | None = None) -> list[str]:
        """Names in the order of the run; those that a pattern means, if one is given."""
        if pattern is None:
            return self._recorder.entries.names()
        meant = Pattern.parse(pattern)
        return [str(entry.name) for entry in self._recorder.entries if meant.matches(entry.name)]

    def calls(self, name: str) -> list[Any]:
        """The values of every call of a module or a function, be it one or many.

        `calls("rnn.cell")`, `calls("attn/softmax")`: numbers in the name are those that are meant.
        """
        found = [self[one] for one in self.names(name)]
        if not found:
            raise self._absent(name)
        return found

    def tree(self) -> str:
        """All names below the modules that they belong to, with what was kept."""
        return tree_of(self._recorder.entries)

    @property
    def gradients(self) -> Mapping[str, Any]:
        """Gradients by the names of the values, in the same structures; None where none came."""
        if self._gradients is None:
            raise UsageError(
                "gradients were not asked for", way_out="tc.capture(model, gradients=True)"
            )
        return _Gradients(self)

    def why_no_gradient(self, name: str) -> str:
        """Why a value has no gradient; empty where it has one."""
        slots = [slot for slot in self._entry(name).slots if slot is not None]
        if any(slot.times for slot in slots):
            return ""
        return "; ".join(dict.fromkeys(slot.why for slot in slots)) or "it holds no tensor"

    def scores(self, name: str) -> Tensor:
        """What a fused attention would have had as scores, computed again from its inputs.

        `scores("layers.0.attn/scaled_dot_product_attention")`: after softmax and mask, without dropout.
        Derived, not observed: the fused kernel never makes them. Needs `inputs=True`. Allocates them.
        """
        entry = self._recorder.entries.get(f"{self._entry(name).name}:in")
        if entry is None:
            raise UsageError(
                "scores are computed from the inputs of the call, which were not kept",
                where=name,
                way_out="tc.capture(model, inputs=True)",
            )
        return scores_of(entry.value, name)

    # --- what is told of it ---------------------------------------------------------------------

    @property
    def record(self) -> CaptureRecord:
        """What was kept, how, and what could not be seen, as plain data."""
        first: dict[tuple[int, ...], str] = {}
        values = tuple(_captured(entry, first) for entry in self._recorder.entries)
        leaves = [leaf for value in values for leaf in value.leaves]
        unseen = dict(self._recorder.unseen)
        for path, count in self._recorder.fast.items():
            what = f"what is inside of {path or '(model)'}, which went its fused fast path"
            unseen[what] = count
        return CaptureRecord(
            self._class,
            self.ended,
            values,
            self._budget.used,
            sum(leaf.nbytes for leaf in leaves),
            self._recorder.keeper.spilled.nbytes,
            self._budget.most,
            self._budget.over,
            tuple(unseen.items()),
        )

    @property
    def nbytes(self) -> int:
        """Bytes that are held in memory, as if nothing were shared with the model any more."""
        return self._budget.used

    def __str__(self) -> str:
        return str(self.record)

    # --- files ----------------------------------------------------------------------------------

    def save(self, path: Path | str, *, force: bool = False) -> int:
        """Write the values to a safetensors file, one after the other, and return the bytes written.

        Each value once, whatever its names; structures and the order of the run in the metadata. Takes
        the memory of one value beside what is held; replaces a file only with `force`.
        """
        return write_capture(self.record, list(self._recorder.entries), path, force=force)

    @staticmethod
    def load(path: Path | str) -> SavedCapture:
        """A capture that was saved: a mapping from names to values, mapped from the file.

        Only plain data is read: tuples, lists and dicts come back as such, other classes as dicts.
        """
        return SavedCapture.read(path)

    def compare(
        self, other: Capture | SavedCapture, *, rtol: float = 0.0, atol: float = 0.0
    ) -> CaptureComparison:
        """Where two runs differ: the first tensor, in the order of the run, and all others after it."""
        return compare_captures(
            ("this", dict(self.tensors())),
            ("other", dict(other.tensors())),
            rtol=rtol,
            atol=atol,
        )

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor by the name of its value and its path in it: `(model).logits`, `attn[0]`."""
        for entry in self._recorder.entries:
            for leaf, path in zip(entry.kept.leaves, entry.kept.paths, strict=True):
                value = leaf.value
                if isinstance(value, Tensor):
                    yield f"{entry.name}{path}", value


def _is_compiled(module: nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule" or _torch.compiles_itself(module)


class _Gradients(Mapping[str, Any]):
    """Gradients of a capture."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    def __getitem__(self, name: str) -> Any:
        return self._capture._entry(name).gradient

    def __iter__(self) -> Iterator[str]:
        return iter(self._capture)

    def __len__(self) -> int:
        return len(self._capture)


def _captured(entry: Entry, first: dict[tuple[int, ...], str]) -> Captured:
    leaves = []
    for leaf, path in zip(entry.kept.leaves, entry.kept.paths, strict=True):
        name = f"{entry.name}{path}"
        if not isinstance(leaf, Held):
            leaves.append(Leaf(path, "", (), 0, "function", "", older=False))
            continue
        before = first.setdefault(leaf.identity, name)
        dtype, same_as = str(leaf.dtype).removeprefix("torch."), "" if before == name else before
        leaves.append(Leaf(path, dtype, leaf.shape, leaf.nbytes, leaf.how, same_as, leaf.alias))
    line = "" if entry.place is None else resolve(entry.place).place
    return Captured(
        str(entry.name), entry.kind, tuple(leaves), entry.node, line, tuple(entry.kept.notes)
    )


@_torch.run_eagerly
def capture(
    model: nn.Module,
    *,
    select: Select | Iterable[Select] | None = None,
    keep: Keep | Callable[[Tensor], Any] = "tensors",
    inputs: bool = False,
    saved: bool = False,
    gradients: bool = False,
    grad: Literal["detach", "keep"] = "detach",
    dtype: torch.dtype | None = None,
    budget: int | str | None = None,
    over: Over = "spill",
    until: str | None = None,
    opaque: tuple[type, ...] = (),
) -> Capture:
    """See inside a model: every value that it makes while the capture is open, as it was at that moment.

    Args:
        model: any module. What is called of it inside `with` is observed, any number of times.
        select: names, patterns ("*" modules, "*/softmax" functions), classes of modules, functions of
            a Name; None takes every module, every function and every tensor put into an attribute.
        keep: "tensors", "stats" (see `Statistics`), "shapes", or a function of each tensor.
        inputs: keep also what the selected modules and functions were given.
        saved: keep also what autograd saved for backward, with the node and the line.
        gradients: keep also the gradient of each value, of backward passes inside `with`.
        grad: "detach" keeps values, "keep" keeps them in the graph, so that gradient flows through them.
        dtype: floating values of more bytes are kept in this dtype.
        budget: bytes that may be held in memory, hard: 4096, "512 MiB".
        over: what becomes of values beyond it: "spill" to a file, "lower" to bfloat16, "stats", "stop".
        until: a name, captured like those of `select`; the run ends when it came, and `with` is left.
        opaque: classes whose instances in outputs are not looked into.

    Values share no memory with the model nor with each other. What was born in the run is kept without
    a copy until somebody writes; parameters, buffers, inputs and their views are copied. Returns no
    view of anything that is live; no gradient flows but with grad="keep"; does not synchronize.

    >>> import torch, truecopy as tc
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(inplace=True))
    >>> with tc.capture(model) as cap:
    ...     out = model(torch.ones(1, 2))
    >>> cap.names()
    ['0/linear', '0', '1/relu', '1', '(model)']
    >>> torch.equal(cap["0"].relu(), cap["1"]), tc.relate(cap["1"], out).shares_memory
    (True, False)
    """
    if not isinstance(model, nn.Module):
        raise UsageError(
            "capture observes a module",
            expected="a torch.nn.Module",
            got=f"a {type(model).__name__}",
        )
    if not callable(keep) and keep not in get_args(Keep):
        raise UsageError(
            f"keep={keep!r} means nothing",
            expected=" or ".join(map(repr, get_args(Keep))) + ", or a function of a tensor",
        )
    if grad not in ("detach", "keep"):
        raise UsageError(f"grad={grad!r} means nothing", expected="'detach' or 'keep'")
    if dtype is not None and not dtype.is_floating_point:
        raise UsageError(f"dtype={dtype} cannot be converted to", expected="a floating dtype")
    bound = Budget.checked(budget, over)
    keeper = Keeper(bound, dtype, in_graph=grad == "keep")
    asked = Gradients(keeper, in_graph=grad == "keep") if gradients else None
    recorder = Recorder(
        model,
        Selection(select, inputs=inputs, saved=saved, until=until),
        keeper,
        leaf_keeper(keep, keeper),
        until=None if until is None else Pattern.parse(until),
        gradients=asked,
        opaque=opaque,
    )
    return Capture(model, recorder, asked, bound)
