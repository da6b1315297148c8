"""Verdicts over torch's operator database, against the ground truth of addresses and bytes.

`make test-operators` runs all of it and keeps the outcome in result.json; the suite runs a part.
"""

from __future__ import annotations

import json
import sys
import time
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from ground_truth import Argument, origin, tensors  # noqa: E402

from truecopy.tracing.verdict import judge  # noqa: E402

RESULT = Path(__file__).with_name("result.json")
DTYPES = (torch.float32, torch.complex64, torch.int64)


def operators() -> list[Any]:
    """The database, those that run on no CPU left out."""
    # It imports a package for test classes that nothing here uses, and that may not be there.
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if op.supported_dtypes("cpu")]


@dataclass
class Outcome:
    """What a run of the proof has found."""

    operators: int = 0
    samples: int = 0  # calls, by form
    forms: dict[str, int] = field(default_factory=dict)
    raised: dict[str, str] = field(default_factory=dict)  # with us and without, the same exception
    wrong: list[str] = field(default_factory=list)
    disagreements: dict[str, str] = field(default_factory=dict)  # schemas that say otherwise

    def add(self, form: str) -> None:
        """Count one call."""
        self.samples += 1
        self.forms[form] = self.forms.get(form, 0) + 1


Call = tuple[Callable[..., Any], list[Any], dict[str, Any]]


def calls(op: Any, sample: Any) -> Iterator[tuple[str, Callable[[], Call]]]:
    """The forms of one sample, each to be made anew."""

    def plain() -> Call:
        return op.op, [sample.input, *sample.args], dict(sample.kwargs)

    yield "forward", plain
    if op.inplace_variant is not None and isinstance(sample.input, torch.Tensor):
        if not sample.broadcasts_input:
            yield (
                "in place",
                lambda: (
                    op.inplace_variant,
                    [sample.input.clone(), *sample.args],
                    dict(sample.kwargs),
                ),
            )
    if op.supports_out and _returns_tensors(plain):
        for form, fit in (("out", True), ("out of no size", False)):
            yield form, lambda fit=fit: _with_out(plain(), fit)


def _returns_tensors(make: Callable[[], Call]) -> bool:
    function, args, kwargs = make()
    try:
        result = function(*args, **kwargs)
    except Exception:  # noqa: BLE001 - the form without out= meets the same, and tells it
        return False
    several = isinstance(result, tuple) and all(isinstance(one, torch.Tensor) for one in result)
    return isinstance(result, torch.Tensor) or several


def _with_out(call: Call, fit: bool) -> Call:
    """The call with places for its results, right ones full of ones, or empty ones."""
    function, args, kwargs = call
    result = function(*args, **kwargs)
    if isinstance(result, torch.Tensor):
        out: Any = _place(result, fit)
    else:
        out = tuple(_place(one, fit) for one in result)
    return function, args, {**kwargs, "out": out}


def _place(result: torch.Tensor, fit: bool) -> torch.Tensor:
    if not fit:
        return torch.empty(0, dtype=result.dtype)
    return torch.full_like(result, 1, memory_format=torch.contiguous_format)


def check(op: Any, form: str, make: Callable[[], Call], outcome: Outcome) -> None:
    """One call: origins and effects, or the exception that it raises without us too."""
    where = f"{op.name}.{op.variant_test_name or 'default'} {form}"
    function, args, kwargs = make()
    outcome.add(form)
    arguments = [Argument.of(t) for t in dict.fromkeys(tensors((args, kwargs)))]
    judged = judge(function, *args, **kwargs)
    verdict = judged.verdict
    for doubt in verdict.disagreements:
        outcome.disagreements.setdefault(doubt, where)
    if judged.error is not None:
        _check_raised(where, make, judged.error, outcome)
        return
    origins = [origin(output, arguments) for output in tensors(judged.result)]
    if list(verdict.origins) != origins:
        outcome.wrong.append(f"{where}: outputs {verdict.origins}, in truth {origins}")
    told = dict(verdict.effects)
    for name, argument in zip(_names(args, kwargs), arguments, strict=True):
        effect = told.pop(name, "untouched")
        if effect not in argument.allowed():
            outcome.wrong.append(f"{where}: {name} {effect}, in truth {argument.allowed()}")
    if told:
        outcome.wrong.append(f"{where}: effects on what is no argument: {told}")


def _names(args: list[Any], kwargs: dict[str, Any]) -> list[str]:
    """How the verdict names the arguments, found out from the arguments alone."""
    found: dict[int, str] = {}

    def visit(value: Any, name: str) -> None:
        if isinstance(value, torch.Tensor):
            found.setdefault(id(value), name)
        elif isinstance(value, (list, tuple)):
            for index, one in enumerate(value):
                visit(one, f"{name}[{index}]")

    for index, value in enumerate(args):
        visit(value, f"args[{index}]")
    for name, value in kwargs.items():
        visit(value, name)
    return list(found.values())


def _check_raised(
    where: str, make: Callable[[], Call], error: BaseException, outcome: Outcome
) -> None:
    try:
        function, args, kwargs = make()
        function(*args, **kwargs)
    except Exception as plain:  # noqa: BLE001 - compared, and told
        if type(plain) is type(error) and str(plain) == str(error):
            outcome.raised[where] = f"{type(error).__name__}: {error}"[:200]
            return
    outcome.wrong.append(f"{where}: raised {error!r:.200}, and nothing of the kind without us")


def prove(ops: list[Any], dtypes: tuple[torch.dtype, ...]) -> Outcome:
    """All samples of these operators, in all forms."""
    outcome = Outcome()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in ops:
            outcome.operators += 1
            supported = op.supported_dtypes("cpu")
            chosen = [d for d in dtypes if d in supported] or [min(supported, key=str)]
            for dtype in chosen:
                torch.manual_seed(0)
                for sample in op.sample_inputs("cpu", dtype):
                    for form, make in calls(op, sample):
                        check(op, form, make, outcome)
    return outcome


def main() -> int:
    """All of it."""
    started = time.perf_counter()
    outcome = prove(operators(), DTYPES)
    record = {
        "torch": torch.__version__,
        "dtypes": list(map(str, DTYPES)),
        "seconds": round(time.perf_counter() - started),
        **asdict(outcome),
    }
    RESULT.write_text(json.dumps(record, indent=1) + "\n")
    print(
        f"{outcome.samples:,} calls of {outcome.operators} operators: {len(outcome.wrong)} verdicts wrong, "
        f"{len(outcome.raised)} raised with us and without"
    )
    print(*outcome.wrong[:40], sep="\n")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
