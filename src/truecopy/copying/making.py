"""From a value to its copies: it is taken apart once, and put together as often as copies are made."""

from __future__ import annotations

from typing import Any

from truecopy import _torch
from truecopy.copying.gradient import attach
from truecopy.copying.leaves import Layout, lay_out
from truecopy.copying.options import Grad, Options
from truecopy.copying.plan import points_back, refuse_failures
from truecopy.copying.refusals import refuse_what_cannot_be
from truecopy.errors import CannotCopy, PointsBack
from truecopy.structure.naming import warn_caller
from truecopy.structure.rebuild import Memo, Rebuilder
from truecopy.structure.walk import Keep, Walk, walk


def take_apart(
    obj: Any, options: Options, keep: Keep | None = None, *, strict: bool = False
) -> tuple[Walk, Layout]:
    """Walk and lay out what will be copied; raises for what cannot be. Allocates no tensor memory."""
    walked = walk(obj, None, protocol=True, keep=keep)
    refuse_failures(walked)
    with _torch.disable_torch_function():
        layout = lay_out(walked, options)
        refuse_what_cannot_be(walked, layout, options)
        _tell_what_points_back(walked, strict=strict)
    return walked, layout


def put_together(walked: Walk, copies: list[Any], memo: Memo, grad: Grad) -> Any:
    """The structure again, around the copies of its leaves. Allocates no tensor memory."""
    finish = attach if grad == "keep" else None
    return Rebuilder(walked, memo, finish).run(
        dict(zip(map(id, walked.leaves), copies, strict=True))
    )


def _tell_what_points_back(walked: Walk, *, strict: bool) -> None:
    if not walked.functions and not walked.weakrefs:
        return
    for note in points_back(walked):
        if strict:
            raise CannotCopy(
                note.why,
                where=note.path,
                expected="a copy that refers to nothing of the original, as strict=True asks",
                got="a function that copying cannot rebind",
                way_out="Make it a method, or name it in share=",
            )
        warn_caller(PointsBack(f"{note.path} of the copy still means the original: {note.why}"))
