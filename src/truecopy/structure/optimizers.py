"""What optimizers keep beside the state that they hand out for checkpoints."""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

import torch


def with_what_is_left_out(optimizer: torch.optim.Optimizer, state: Any) -> Any:
    """The state handed out, with hooks and the attributes of the class, such as LBFGS's `_params`.

    An optimizer's own `__getstate__` is made for checkpoints and leaves them out; `__setstate__` takes
    them. Functions hung on it mean the original: see `rehang`.
    """
    if type(state) is not dict:
        return state
    own = {
        name: held
        for name, held in vars(optimizer).items()
        if name in state or not isinstance(held, types.FunctionType)
    }
    return own | state


def rehang(optimizer: torch.optim.Optimizer, made: torch.optim.Optimizer) -> None:
    """Hang on the copy what a scheduler hangs on its optimizer: a `step` that knows it by a weak reference.

    Without it a copied scheduler warns that somebody has overridden `step`. Functions that know the
    optimizer in any other way are not rebound.
    """
    for name, function in vars(optimizer).items():
        if isinstance(function, types.FunctionType) and name not in vars(made):
            held = _contents(function)
            mine = [one for one in held if isinstance(one, weakref.ref) and one() is optimizer]
            if mine and all(one in mine or isinstance(one, types.FunctionType) for one in held):
                cells = (weakref.ref(made) if one in mine else one for one in held)
                setattr(
                    made, name, _with_cells(function, made, name, tuple(map(types.CellType, cells)))
                )


def _contents(function: types.FunctionType) -> list[Any]:
    try:
        return [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a cell that is not filled yet
        return []


def _with_cells(
    function: types.FunctionType, made: Any, name: str, cells: tuple[types.CellType, ...]
) -> types.FunctionType:
    new = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
    )
    functools.update_wrapper(new, getattr(made, name))
    new.__dict__.update({k: v for k, v in vars(function).items() if k != "__wrapped__"})
    return new
