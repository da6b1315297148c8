"""Methods by what people call them: a name, a group, a function, a function in a file."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from truecopy.errors import UsageError
from truecopy.measuring.libraries import LIBRARIES, is_installed, methods_of
from truecopy.measuring.methods import COPIES, DUPLICATIONS, FILLS, Method

MethodLike = str | Callable[[Any], Any]

GROUPS = ("copies", "duplicates", "uses", *LIBRARIES, "all")
"""Names that stand for several methods."""


def every_method(library: str) -> tuple[Method, ...]:
    """All methods of a library, references first."""
    return (*COPIES, *FILLS, *DUPLICATIONS) if library == "torch" else methods_of(library)


def find_methods(wanted: Iterable[MethodLike]) -> tuple[Method, ...]:
    """Methods by name, by group, from a file, or as functions. Raises UsageError for unknown ones."""
    found: dict[Method, None] = {}
    for one in wanted:
        found.update(dict.fromkeys(_methods(one)))
    return tuple(found)


def _methods(one: MethodLike) -> Sequence[Method]:
    if not isinstance(one, str):
        if not callable(one):
            raise UsageError(
                f"methods={one!r} is no method",
                expected="a name, FILE.py:FUNCTION or a function",
                got=type(one).__name__,
            )
        return [Method(getattr(one, "__name__", repr(one)), one)]
    match one:
        case "copies":
            return [*COPIES, *FILLS]
        case "duplicates":
            return DUPLICATIONS
        case "uses":
            return []
        case "torch":
            return every_method("torch")
        case "all":
            return [
                m for library in LIBRARIES if is_installed(library) for m in every_method(library)
            ]
        case _ if one in LIBRARIES:
            return _of_library(one)
        case _ if ".py:" in one:
            return [_from_file(one)]
    return [_named(one)]


def _of_library(library: str) -> Sequence[Method]:
    if not is_installed(library):
        raise UsageError(
            f"{library} is not installed",
            expected="one of " + ", ".join(filter(is_installed, LIBRARIES)),
            got=library,
            way_out=f"Install {library}; truecopy does not need it",
        )
    return methods_of(library)


def _named(name: str) -> Method:
    known = {one.name: one for one in every_method("torch")}
    if name in known:
        return known[name]
    for library in LIBRARIES[1:]:
        if is_installed(library) and _may_be_of(name, library):
            known |= {one.name: one for one in methods_of(library)}
            if name in known:
                return known[name]
    near = difflib.get_close_matches(name, (*known, *GROUPS), n=1, cutoff=0.4)
    raise UsageError(
        f"no method is called {name!r}",
        expected="a method, one of " + ", ".join(GROUPS) + ", or FILE.py:FUNCTION",
        got=repr(name),
        way_out=f"Did you mean {near[0]!r}?" if near else "`truecopy bench --list` names them all",
    )


def _may_be_of(name: str, library: str) -> bool:
    """Whether a name could be that of a library's method: importing one takes seconds."""
    marks = {
        "numpy": ("np.", "ndarray", "NumPy"), "jax": ("jax", "jnp.", "JAX"),
        "tensorflow": ("tf.", "TensorFlow"),
    }  # fmt: skip
    return any(mark in name for mark in marks[library])


def _from_file(text: str) -> Method:
    """`FILE.py:FUNCTION`: a function of the user's, which takes a tensor and returns its copy."""
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"there is no file {file!r}", expected="FILE.py:FUNCTION", got=repr(text))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(
            f"{file} cannot be run",
            expected="a Python file",
            got=f"{type(error).__name__}: {error}",
        ) from error
    function = vars(module).get(name)
    if not callable(function):
        there = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        near = difflib.get_close_matches(name, there, n=1, cutoff=0.4)
        raise UsageError(
            f"{file} has no function {name!r}",
            expected="FILE.py:FUNCTION",
            got=repr(text),
            way_out=f"Did you mean {near[0]!r}?" if near else None,
        )
    return Method(f"{path.name}:{name}", function)
