"""The usual trap of an operation, and what to write instead: by hand, or else by what was seen."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from importlib import resources

from truecopy.explaining.facts import Autograd, Outcome

Advice = tuple[str, str]
"""The trap, and what to write instead."""

IN_PLACE = "(inplace=True)"
"""How the form of a function of torch.nn.functional is written that works in place."""

_COPY = "`.clone()` behind it, or `tc.copy(...)`, where it must be a copy"
_SAME = (
    "Where there is nothing to do it returns its input itself: a later in-place write reaches both."
)


@functools.cache
def by_hand() -> dict[str, Advice]:
    """Advice that somebody wrote, by the names of operations."""
    text = resources.files("truecopy.explaining").joinpath("data/advice.toml").read_text("utf-8")
    return {name: (one["trap"], one["instead"]) for name, one in tomllib.loads(text).items()}


def advise(
    name: str, forms: Sequence[str], outcomes: Sequence[Outcome], autograd: Autograd
) -> Advice:
    """What to look out for with an operation: by hand where somebody wrote it, else by what it did."""
    if name in by_hand():
        return by_hand()[name]
    plain = [one for one in outcomes if not is_writing(one.form)]
    if outcomes and not plain:
        return (
            "It writes into its input, and so into every view of it: the old values are gone.",
            "`x.clone()` first, where the old values are needed",
        )
    origins = {word for one in plain for word in one.origins.split(", ") if word}
    if not origins:
        return (
            "It returns no tensor, and waits for the values: on a device that is a synchronization.",
            "a tensor that stays where it is, read once at the end",
        )
    if "same" in origins and len(origins) > 1:
        return _SAME, _COPY
    if "view" in origins and origins - {"view"}:
        return (
            "A view of some inputs, new memory for others: on them depends whether a write is shared.",
            _COPY,
        )
    if origins <= {"view", "same"}:
        return (
            "A write to the result reaches the input, and a small result keeps the whole storage alive.",
            _COPY,
        )
    return _of_new_memory(forms, plain, autograd)


def _of_new_memory(forms: Sequence[str], plain: Sequence[Outcome], autograd: Autograd) -> Advice:
    copied = {one.layout for one in plain if one.copies_inside and one.layout != "contiguous"}
    if copied and not any(one.copies_inside for one in plain if one.layout == "contiguous"):
        layouts = " or ".join(sorted(copied))
        always = all(one.copies_inside for one in plain if one.layout in copied)
        does = "It copies" if always else "On some arguments it copies"
        return (
            f"{does} an input that is {layouts} before it begins, in every call.",
            "`contiguous()` once, outside of the loop",
        )
    held = f", and keeps {' and '.join(autograd.keeps)} until backward" if autograd.keeps else ""
    trap = f"Every call allocates its result{held}."
    better = [form for form in forms if is_writing(form)]
    if not better:
        return trap, "nothing: there is no form of it without the allocation"
    return trap, f"`{better[0]}` where the old values are not needed, by backward neither"


def is_in_place(form: str) -> bool:
    """Whether a form writes into its input, and returns it."""
    if form.endswith((IN_PLACE, ".__setitem__")):
        return True
    return form.endswith("_") and not form.endswith("__")


def is_writing(form: str) -> bool:
    """Whether a form writes into an argument: in place, or by `out=`."""
    return form.endswith("(out=)") or is_in_place(form)
