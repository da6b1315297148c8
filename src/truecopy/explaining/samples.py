"""Samples of every operation: torch's operator database, and ours for what it leaves out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from truecopy import _torch
from truecopy.explaining.advice import IN_PLACE, is_in_place, is_writing
from truecopy.explaining.watching import Sample
from truecopy.tracing.operations import tensors_in

MOST = 24
"""Samples of one operation: those of the database differ in shapes first, and these are enough."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One operation, all its forms, and samples of each."""

    name: str
    spellings: tuple[str, ...]
    samples: tuple[Sample, ...]


def from_database(wanted: Callable[[str], bool] = lambda _: True) -> Iterator[Subject]:
    """The public operations of torch's database, in the order of their names. Allocates the samples."""
    entries: dict[str, list[Any]] = {}
    for entry in _torch.operator_database():
        name = _public_name(entry.name)
        if name and wanted(name):
            entries.setdefault(name, []).append(entry)
    for name in sorted(entries):
        yield _subject(name, entries[name])


def _public_name(name: str) -> str:
    """The name of an operation that users can write; `uniform` is only there as `uniform_`."""
    private = name.startswith(("_", "jiterator", "torch.")) or "._" in name
    if private and name != "__getitem__":
        return ""
    if _spelling(name):
        return name
    return f"{name}_" if hasattr(Tensor, f"{name}_") else ""


def _subject(name: str, entries: list[Any]) -> Subject:
    """Entries of one name are variants: `norm` and `norm(p="fro")`, say."""
    torch.manual_seed(0)
    samples: list[Sample] = []
    spellings: dict[str, None] = {}
    for entry in entries:
        forms = _forms(entry)
        spellings.update(dict.fromkeys(forms))
        spellings.update(dict.fromkeys(_other_spellings(entry)))
        given = list(itertools.islice(_inputs(entry), MOST // len(entries) or 1))
        for form, function in forms.items():
            samples += (Sample(form, function, args, kwargs) for args, kwargs in given)
        if entry.supports_out:
            samples += _with_out(f"{_spelling(name)}(out=)", entry.op, given)
    return Subject(name, tuple(spellings), tuple(samples))


def _forms(entry: Any) -> dict[str, Any]:
    """How the operation can be written, each with what is called."""
    name = entry.name
    if name.endswith("_"):  # in the database, a copy is made first
        return {f"torch.Tensor.{name}": getattr(Tensor, name)}
    if entry.variant_test_name == "in_place":
        return {f"torch.Tensor.{name}_": entry.inplace_variant}
    forms = {spelling: entry.op} if (spelling := _spelling(name)) else {}
    method = entry.method_variant
    if method is not None and hasattr(Tensor, name):
        forms.setdefault(f"torch.Tensor.{name}", method)
    if entry.inplace_variant is not None:
        where = (
            f"torch.Tensor.{name}_" if hasattr(Tensor, f"{name}_") else f"torch.{name}{IN_PLACE}"
        )
        forms[where] = entry.inplace_variant
    return forms


def _other_spellings(entry: Any) -> Iterator[str]:
    """Names that torch has given the same operation; they are not run again."""
    for alias in entry.aliases:
        if where := _spelling(alias.name):
            yield where
        if alias.inplace_variant is not None and hasattr(Tensor, f"{alias.name}_"):
            yield f"torch.Tensor.{alias.name}_"


def _spelling(name: str) -> str:
    """How a name of the database is written: as a function where there is one, else as a method."""
    try:
        is_function = callable(attrgetter(name)(torch))  # torch.float is a dtype
    except AttributeError:
        is_function = False
    if is_function:
        return f"torch.{name}"
    return f"torch.Tensor.{name}" if hasattr(Tensor, name) else ""


def _inputs(entry: Any) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    dtype = min(entry.dtypes, key=_preference, default=torch.float32)
    try:
        for sample in entry.sample_inputs("cpu", dtype, requires_grad=False):
            yield (sample.input, *sample.args), dict(sample.kwargs)
    except (RuntimeError, ImportError):  # some need a library or a device that is not here
        return


_PREFERRED = (torch.float32, torch.complex64, torch.int64, torch.bool)


def _preference(dtype: torch.dtype) -> tuple[int, str]:
    known = dtype in _PREFERRED
    return (_PREFERRED.index(dtype) if known else len(_PREFERRED), str(dtype))


def _with_out(form: str, function: Any, given: list[Any]) -> Iterator[Sample]:
    """One sample that writes into memory of the right size, and one into memory that has none."""
    for args, kwargs in given[:4]:
        try:
            made = function(*args, **kwargs)
        except Exception:  # noqa: BLE001 - what raises has shown nothing
            continue
        if not isinstance(made, Tensor) or made.layout is not torch.strided:
            continue
        for out in (torch.empty_like(made), made.new_empty(0)):
            yield Sample(form, _Writing(function, len(args)), (*args, out), kwargs)


@dataclass(frozen=True, slots=True)
class _Writing:
    """The call with the last argument as `out=`."""

    function: Any
    place: int

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args[: self.place], out=args[self.place], **kwargs)


def gradient_samples(subject: Subject) -> list[Sample]:
    """Samples of the forms that return something, and of those in place where there is no other."""
    samples = [one for one in subject.samples if any(True for _ in tensors_in(one.args))]
    plain = [one for one in samples if not is_writing(one.form)]
    return plain or [one for one in samples if is_in_place(one.form)]
