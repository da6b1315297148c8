"""What was asked for, once it makes sense: every cell in order, and whether there is memory for it."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from truecopy.copying.duplicates.available import available_bytes, refuse_more_than_there_is
from truecopy.errors import UsageError
from truecopy.measuring.cells import DUPLICATES, MODES, OWN_THREADS, REGIMES, Cell
from truecopy.measuring.finding import MethodLike, every_method, find_methods
from truecopy.measuring.libraries import why_not
from truecopy.measuring.methods import FILLS, Method
from truecopy.measuring.record import Request
from truecopy.measuring.regimes import MOST_HELD
from truecopy.measuring.sizes import DEFAULT_SIZES, Size, elements_of
from truecopy.measuring.uses import SHAPES_OF_USES, USES
from truecopy.measuring.works import LEAST, SHAPES, storage_factor
from truecopy.memory.region import CPU, Space


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that can be carried out, and the methods that its names mean."""

    request: Request
    methods: tuple[Method, ...]

    def methods_in(self, cell: Cell) -> tuple[Method, ...]:
        """What takes part in a cell: the reference first, asked for or not, and what was asked for."""
        if cell.task in USES:
            return ()
        every = every_method(cell.library)
        fits = [one for one in (*every, *self.methods) if is_of(one, cell)]
        return tuple(dict.fromkeys((fits[0], *(one for one in fits if one in self.methods))))


def is_of(method: Method, cell: Cell) -> bool:
    """Whether a method does the task of a cell, in a form that its regime asks for."""
    fills = cell.regime == "into"
    return (method.library, method.task, method.fills) == (cell.library, cell.task, fills)


# --- cells ----------------------------------------------------------------------------------------


def ask(
    methods: MethodLike | Iterable[MethodLike] | None,
    *,
    sizes: Size | Iterable[Size] | None,
    shapes: str | Iterable[str] | None,
    dtypes: Any,
    regimes: str | Iterable[str] | None,
    threads: int | Iterable[int] | None,
    modes: str | Iterable[str] | None,
    device: str,
    budget: float | None,
    seed: int,
) -> Asked:
    """The request that arguments make. Raises UsageError, and NotEnoughMemory before any is taken."""
    wanted = _several(methods, ("copies",))
    chosen = find_methods(wanted)
    if budget is not None and not budget > 0:
        raise UsageError("a budget is a time", expected="seconds, more than 0", got=repr(budget))
    _check_device(device)
    axes = _Axes(
        tuple(_one_of("shape", one, SHAPES) for one in _several(shapes, ("contiguous",))),
        tuple(map(_dtype, _several(dtypes, (torch.float32,)))),
        tuple(_one_of("regime", one, REGIMES) for one in _several(regimes, ("recycled",))),
        _threads(threads),
        tuple(_one_of("mode", one, MODES) for one in _several(modes, ("plain",))),
        device,
    )
    cells, left_out = _cells(
        chosen, _tasks(wanted, chosen), axes, _several(sizes, DEFAULT_SIZES), shapes
    )
    if not cells:
        raise UsageError(
            "nothing is left to measure", expected="one combination that has a meaning",
            got="; ".join(left_out) or "no method",
        )  # fmt: skip
    names = tuple(
        one if isinstance(one, str) else getattr(one, "__name__", repr(one)) for one in wanted
    )
    request = Request(names, seed, budget, tuple(cells), tuple(left_out))
    asked = Asked(request, chosen)
    _refuse_too_much(asked)
    return asked


@dataclass(frozen=True, slots=True)
class _Axes:
    """Every axis but size."""

    shapes: tuple[str, ...]
    dtypes: tuple[str, ...]
    regimes: tuple[str, ...]
    threads: tuple[int, ...]
    modes: tuple[str, ...]
    device: str


def _several(value: Any, default: tuple[Any, ...]) -> tuple[Any, ...]:
    if value is None:
        return default
    if isinstance(value, str | int | torch.dtype) or callable(value):
        return (value,)
    return tuple(value)


def _one_of(what: str, name: Any, known: Iterable[str]) -> str:
    if name in known:
        return str(name)
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.4)
    raise UsageError(
        f"no {what} is called {name!r}",
        expected="one of " + ", ".join(known),
        got=repr(name),
        way_out=f"Did you mean {near[0]!r}?" if near else None,
    )


def _dtype(name: Any) -> str:
    dtypes = {n: v for n, v in vars(torch).items() if isinstance(v, torch.dtype)}
    text = str(name).removeprefix("torch.")
    found = dtypes.get(text)
    if found is None:
        return _one_of("dtype", text, sorted(dtypes))
    return str(found).removeprefix("torch.")


def _threads(threads: Any) -> tuple[int, ...]:
    asked = _several(threads, (1, torch.get_num_threads()))
    for one in asked:
        if type(one) is not int or one < 1:
            raise UsageError(
                f"{one!r} is no number of threads",
                expected="a whole number, 1 or more",
                got=repr(one),
            )
    return tuple(dict.fromkeys(asked))


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise UsageError(
            f"device={device!r} names no device of this machine",
            expected="a torch.device or its name",
            got=str(error).partition("\n")[0],
        ) from None


def _tasks(wanted: Iterable[MethodLike], chosen: Iterable[Method]) -> list[tuple[str, str]]:
    tasks = dict.fromkeys((one.library, one.task) for one in chosen)
    if "uses" in wanted:
        tasks |= dict.fromkeys(("torch", use) for use in USES)
    return list(tasks)


def _cells(
    chosen: tuple[Method, ...],
    tasks: list[tuple[str, str]],
    axes: _Axes,
    sizes: tuple[Size, ...],
    asked_shapes: Any,
) -> tuple[list[Cell], list[str]]:
    """Every cell, the smallest first, and the combinations that have no meaning, with the reason."""
    cells: dict[Cell, None] = {}
    left_out: dict[str, None] = {}
    combinations = itertools.product(
        tasks, axes.dtypes, axes.regimes, axes.modes, axes.threads, sizes
    )
    for (library, task), dtype, regime, mode, count, size in combinations:
        threads = _threads_of(library, count)
        like = Cell(library, task, "contiguous", 1, dtype, regime, threads, mode, axes.device)
        shapes = SHAPES_OF_USES if task in USES and asked_shapes is None else axes.shapes
        for shape, elements in itertools.product(shapes, _elements(size, like)):
            cell = replace(like, shape=shape, elements=elements)
            why = _why_none(cell, chosen)
            if why is None:
                cells[cell] = None
            else:
                left_out[why] = None
    return sorted(cells, key=lambda cell: cell.elements), list(left_out)


def _elements(size: Size, like: Cell) -> list[int]:
    itemsize = int(getattr(torch, like.dtype).itemsize)
    return elements_of(size, itemsize, lambda: _most_that_fits(like, itemsize))


def _threads_of(library: str, count: int) -> int:
    return {"torch": count, "numpy": 1}.get(library, OWN_THREADS)


def _why_none(cell: Cell, chosen: tuple[Method, ...]) -> str | None:
    """Why a combination has no meaning, or None."""
    dtype: torch.dtype = getattr(torch, cell.dtype)
    floating = dtype.is_floating_point or dtype.is_complex
    if cell.elements < LEAST[cell.shape]:
        return f"{cell.shape} needs {LEAST[cell.shape]} elements, {cell.elements} were asked for"
    if cell.mode in ("requires_grad", "no_grad") and not floating:
        return f"{cell.dtype} has no gradient: not with {cell.mode}"
    if cell.regime == "into" and cell.mode == "requires_grad":
        return "into with requires_grad: each copy would add to a graph that grows without end; use no_grad"
    if cell.task in USES:
        return _why_no_use(cell, floating=floating)
    if not any(is_of(one, cell) for one in chosen):
        return f"none of the methods does {cell.library} {cell.task} with {cell.regime}"
    return why_not(cell.library, cell.shape, cell.dtype, cell.regime, cell.mode)


def _why_no_use(cell: Cell, *, floating: bool) -> str | None:
    if cell.shape not in SHAPES_OF_USES:
        return f"uses are measured on {', '.join(SHAPES_OF_USES)}, not on {cell.shape}"
    if cell.regime != "recycled" or cell.mode != "plain":
        return f"uses are measured in recycled memory and plain mode, not with {cell.regime}, {cell.mode}"
    if not floating and cell.task in ("matmul", "convolution"):
        return f"{cell.task} of {cell.dtype} is not measured"
    return None


# --- memory ---------------------------------------------------------------------------------------


def bytes_of(cell: Cell, fills: int = 0) -> int:
    """About what measuring a cell takes at its height: more is not held at one time."""
    payload = cell.elements * int(getattr(torch, cell.dtype).itemsize)
    copies = DUPLICATES if cell.task == "duplicate" else 1
    source = storage_factor(cell.shape) * payload
    held = min(MOST_HELD, 100_000 * payload) if cell.regime == "fresh" else 0
    # The source as it was, the ceiling's two, and the largest of outputs: saved, loaded, compared.
    return source + payload + 2 * copies * payload + 4 * copies * payload + held + fills * payload


def _most_that_fits(cell: Cell, itemsize: int) -> int:
    there = available_bytes(_space(cell.device)) or (1 << 30)
    of_one = bytes_of(cell, len(FILLS)) / cell.elements
    held = MOST_HELD if cell.regime == "fresh" else 0
    most = max((there // 2 - held) / max(of_one, itemsize), 1)
    return 1 << (int(most).bit_length() - 1)


def _refuse_too_much(asked: Asked) -> None:
    """Say that memory is lacking before any is taken."""
    for cell in asked.request.cells:
        fills = len(asked.methods_in(cell)) if cell.regime == "into" else 0
        refuse_more_than_there_is(
            {_space(cell.device): bytes_of(cell, fills)},
            f"the methods on {cell.shape}, {cell.elements:,} x {cell.dtype},",
            "Ask for smaller sizes; 2^0.. goes on to what fits",
        )


def _space(device: str) -> Space:
    found = torch.device(device)
    return CPU if found.type == "cpu" else (found.type, found.index or 0)
