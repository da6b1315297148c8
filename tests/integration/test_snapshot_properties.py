"""Random state, changed at random, comes back: compared with oracles that list every byte."""

import contextlib
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import truecopy as tc
from oracles import addresses, base_address, offsets_of, partition, payload, poke, portrait
from strategies import mixed_views, structures_with_modules


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None)


def changed(draw: Any, values: list[Any]) -> None:
    """Write some bytes and turn some flags, around everything that torch knows of."""
    for value in values:
        if (count := offsets_of(value).size) and draw(st.booleans()):
            poke(value, draw(st.integers(0, count - 1)), draw(st.integers(0, 255)))
        if isinstance(value, torch.nn.Parameter) and draw(st.booleans()):
            value.requires_grad_(draw(st.booleans()))


def facts(values: list[Any]) -> list[Any]:
    """All that has to come back of leaves: bytes, places and flags."""
    return [
        (id(one), payload(one), base_address(one), one.dtype, one.shape, getattr(one, "requires_grad", None))
        for one in values
    ]  # fmt: skip


@given(st.data(), mixed_views(most=6), st.booleans())
@examples(80)
def test_views_come_back_bit_for_bit(data: st.DataObject, values: list[Any], again: bool) -> None:
    """Whatever shares with what: from memory and from a file; nothing of the snapshot is the sources'."""
    held = [*values]
    snap = tc.Snapshot(held=held)
    changed(data.draw, values)
    snap.update()
    then, ties = facts(values), partition(values)
    changed(data.draw, values)
    held += [torch.ones(1)] * data.draw(st.integers(0, 2))
    if data.draw(st.booleans()):
        held.reverse()
    if again:
        snap.update()
        then, values = facts(held), [*held]
        changed(data.draw, values)
    else:
        assert partition(values) == ties
    snap.restore()
    assert facts(held) == then
    assert snap.diff() == ()
    arrangement = snap._kept.arrangement
    assert arrangement is not None
    mine = set().union(*map(addresses, arrangement.buffers))
    assert not any(mine & addresses(one) for one in held)
    with tempfile.TemporaryDirectory() as folder:
        snap.save(Path(folder) / "run")
        changed(data.draw, held)
        tc.Snapshot.load(Path(folder) / "run").restore(held=held)
    assert facts(held) == then


def parts(value: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """Everything that can be changed in place."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, torch.Tensor | torch.nn.Module | list | dict | deque):
        yield value
    inner: list[Any] = []
    if isinstance(value, torch.nn.Module):
        inner = [value._parameters, value._buffers, value._modules]
    elif isinstance(value, torch.optim.Optimizer):
        inner = [value.param_groups, value.state]
    elif isinstance(value, dict):
        inner = [*value.values()]
    elif isinstance(value, list | tuple | deque | set | frozenset | np.ndarray):
        inner = [*value] if not isinstance(value, np.ndarray) or value.dtype == object else []
    for one in inner:
        yield from parts(one, seen)


def disturb(draw: Any, part: Any) -> None:
    """Change one part, as a program might."""
    match part:
        case torch.Tensor() if part.numel():
            with torch.no_grad():
                part.fill_(draw(st.integers(-5, 5)))
        case torch.nn.Module():
            part.training = draw(st.booleans())
            part.later = draw(st.one_of(st.integers(), st.just([torch.ones(1)])))
        case list() | deque():
            if part and draw(st.booleans()):
                part.pop()
            else:
                part.append(draw(st.sampled_from([1, [2], torch.ones(2)])))
        case dict():
            if part and draw(st.booleans()):
                part.pop(draw(st.sampled_from([*range(len(part))]).map([*part].__getitem__)))
            part["born"] = draw(st.sampled_from([3, (4,)]))


@given(st.data(), structures_with_modules())
@examples(100)
def test_structures_come_back_as_they_were(data: st.DataObject, value: Any) -> None:
    """Members, order, ties, modes and bytes, of whatever holds whatever; the same objects, each time."""
    source = {"value": value}
    snap = tc.Snapshot(source=source)
    for _ in range(3):
        then = portrait(source)
        before: dict[int, Any] = {}
        tensors = [one for one in parts(source, before) if isinstance(one, torch.Tensor)]
        places = [one.data_ptr() for one in tensors]
        for _ in range(2):
            for part in [*parts(source, {})][::-1]:
                if part is not source and data.draw(st.booleans()):
                    with contextlib.suppress(
                        TypeError
                    ):  # a set's hash, a name that a module refuses
                        disturb(data.draw, part)
            snap.restore()
            assert portrait(source) == then
            assert [one.data_ptr() for one in tensors] == places
            now: dict[int, Any] = {}
            list(parts(source, now))
            assert now.keys() == before.keys()
        for part in [*parts(source, {})][::-1]:
            if part is not source and data.draw(st.booleans()):
                with contextlib.suppress(TypeError):
                    disturb(data.draw, part)
        snap.update()
