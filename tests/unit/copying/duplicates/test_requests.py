"""What may be asked of `duplicate`, what is refused, and with which words."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import truecopy as tc
from truecopy.copying.duplicates import available
from truecopy.memory.region import CPU

HOWS = ["list", "stack", "view", "lazy"]


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (True, "n=True is no whole number. Expected how many duplicates to make, such as 3. Got bool."),
        (2.0, "n=2.0 is no whole number. Expected how many duplicates to make, such as 3. Got float."),
        ("2", "n='2' is no whole number. Expected how many duplicates to make, such as 3. Got str."),
        (None, "n=None is no whole number. Expected how many duplicates to make, such as 3. Got NoneType."),
        (-1, "n=-1 is no number of duplicates. Expected a whole number, 0 or more. Got -1."),
        (
            2**63,
            ("n=9223372036854775808 is no number of duplicates. Expected at most 9223372036854775807. "
            "Got 9223372036854775808."),
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", HOWS)
def test_what_is_no_number_is_refused(how: Any, n: Any, message: str) -> None:
    """A bool, a float, a string, a negative number: a UsageError that says what was expected."""
    with pytest.raises(tc.UsageError) as raised:
        tc.duplicate(torch.zeros(2), n, how=how)
    assert str(raised.value) == message


def test_whole_numbers_of_numpy_are_numbers() -> None:
    """What a loop over an array hands out."""
    assert len(tc.duplicate(torch.zeros(2), np.int64(2))) == 2
    assert tc.duplicate(torch.zeros(2), 2, how="stack", dim=np.int8(-1)).shape == (2, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"how": "zip"},
            "how='zip' means nothing. Expected one of 'list', 'stack', 'view', 'lazy'. Got 'zip'.",
        ),
        (
            {"dim": 1},
            (
                "dim=1 means nothing with how='list', which makes no axis. "
                'Expected dim= with how="stack" or how="view". Got dim=1, how=\'list\'.'
            ),
        ),
        (
            {"how": "stack", "dim": 0.5},
            "dim=0.5 is no whole number. Expected a dimension, such as 0 or -1. Got float.",
        ),
        (
            {"how": "stack", "live": True},
            (
                "live=True means nothing with how='stack'. "
                "Expected live=True with how=\"lazy\". Got live=True, how='stack'."
            ),
        ),
        (
            {"how": "lazy", "live": 1},
            (
                "live=1 means nothing with how='lazy'. "
                "Expected live=True with how=\"lazy\". Got live=1, how='lazy'."
            ),
        ),
        (
            {"grad": "maybe"},
            "grad='maybe' means nothing. Expected one of 'detach', 'keep', 'error'. Got 'maybe'.",
        ),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    """An option that would be ignored is an error, not a silence."""
    with pytest.raises(tc.UsageError) as raised:
        tc.duplicate(torch.zeros(2), 2, **options)
    assert str(raised.value) == message


@pytest.mark.parametrize("how", ["stack", "view"])
def test_an_axis_has_to_have_its_place_in_every_tensor(how: Any) -> None:
    """A dim that one tensor of a structure cannot have is refused with its path."""
    bn = nn.BatchNorm1d(2)
    with pytest.raises(tc.UsageError) as raised:
        tc.duplicate(bn, 2, how=how, dim=1)
    assert str(raised.value) == (
        "bn.num_batches_tracked has 0 dimensions, and no place for a new one at dim=1. "
        "Expected dim from -1 to 0. Got dim=1. dim=0 and dim=-1 have a place in every tensor."
    )
    with pytest.raises(tc.UsageError, match="no place for a new one at dim=-3"):
        tc.duplicate(torch.zeros(2), 2, how=how, dim=-3)


@pytest.mark.parametrize("how", HOWS)
def test_none_and_one(how: Any) -> None:
    """n=0 is an empty list, or an axis of length 0; n=1 is a list of one, or an axis of length 1."""
    x = torch.arange(6.0).view(2, 3)
    held = {"x": x, "row": x[1], "array": x.numpy()}
    none, one = tc.duplicate(held, 0, how=how), tc.duplicate(held, 1, how=how)
    if how in ("stack", "view"):
        assert [v.shape for v in none.values()] == [(0, 2, 3), (0, 3), (0, 2, 3)]
        assert [v.shape for v in one.values()] == [(1, 2, 3), (1, 3), (1, 2, 3)]
        assert torch.equal(one["x"][0], x)
    else:
        assert none == []
        assert torch.equal(one[0]["x"], x)
        assert np.array_equal(one[0]["array"], x.numpy())


def test_too_many_are_refused_before_memory_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """N times the bytes is compared with what there is; NotEnoughMemory is a MemoryError."""
    monkeypatch.setattr(available, "available_bytes", lambda _: 1 << 30)
    model = torch.zeros(1 << 26)  # 256 MiB
    expected = "Expected at most 1,073,741,824 bytes, which is what can be had now. Got "
    way_out = 'Ask for fewer; how="lazy" allocates one copy for all of them, how="view" none.'
    for how, n, nbytes in (("list", 5, "1,342,178,280"), ("stack", 5, "1,342,177,280")):
        with pytest.raises(tc.NotEnoughMemory) as raised:
            tc.duplicate(model, n, how=how)  # type: ignore[call-overload]
        assert str(raised.value) == (
            f"{n} duplicates of model need {nbytes} bytes; nothing was allocated. "
            f"{expected}{nbytes} bytes. {way_out}"
        )
    assert issubclass(tc.NotEnoughMemory, MemoryError)
    assert len(tc.duplicate(model, 5, how="lazy")) == 5
    assert tc.duplicate(model, 10**9, how="view").shape == (10**9, 1 << 26)


@pytest.mark.parametrize("how", ["list", "lazy"])
def test_an_absurd_number_is_refused_at_once(how: Any) -> None:
    """Even where one of them has no bytes: the objects themselves would not fit."""
    empty = torch.zeros(0)
    with pytest.raises(tc.NotEnoughMemory, match=r"^1,000,000,000,000 duplicates of empty need "):
        tc.duplicate(empty, 10**12, how=how)
    if how == "list":
        with pytest.raises(tc.NotEnoughMemory, match=r"^4,611,686,018,427,387,904 duplicates of "):
            tc.duplicate({"x": torch.zeros(9)}, 2**62)


@pytest.mark.parametrize("how", ["stack", "view"])
def test_more_elements_than_can_be_counted(how: Any) -> None:
    """Torch's own word for it is an overflow, or nothing."""
    x = torch.zeros(4)
    with pytest.raises(tc.UsageError) as raised:
        tc.duplicate(x, 2**62, how=how)
    assert str(raised.value) == (
        "4611686018427387904 times x are more elements than torch can count. "
        "Expected n=2305843009213693951 at most. Got n=4611686018427387904."
    )


@pytest.mark.parametrize("how", HOWS)
def test_values_without_tensors(how: Any) -> None:
    """Numbers, strings and None are what they are, in as many structures as asked."""
    value = {"lr": 0.1, "names": ["a", None]}
    made = tc.duplicate(value, 2, how=how)
    copies = made if how in ("list", "lazy") else [made]
    assert copies == [value] * len(copies)
    assert all(c is not value and c["names"] is not value["names"] for c in copies)
    assert tc.duplicate(3, 2, how="list") == [3, 3]
    assert tc.duplicate(3, 2, how="stack") == 3


@pytest.mark.parametrize("how", HOWS)
def test_what_cannot_be_copied_cannot_be_duplicated(how: Any) -> None:
    """The refusals of `copy` hold, with the same path."""
    holder = {"x": torch.zeros(2), "file": open(__file__)}  # noqa: SIM115, PTH123 - what is refused
    with pytest.raises(
        tc.CannotCopy, match=r"`holder\['file'\]`: a TextIOWrapper cannot be copied"
    ):
        tc.duplicate(holder, 2, how=how)
    holder["file"].close()
    shrunk = torch.zeros(4)
    shrunk.untyped_storage().resize_(4)
    with pytest.raises(tc.CannotCopy, match="reaches beyond the end of its storage"):
        tc.duplicate({"x": shrunk}, 2, how=how)


@pytest.mark.parametrize("how", HOWS)
def test_grad_error_refuses_what_autograd_computed(how: Any) -> None:
    """As in `copy`, with the path."""
    held = {"w": torch.ones(2, requires_grad=True)}
    held["y"] = held["w"] * 2
    with pytest.raises(tc.NonLeaf, match=r"^`held\['y'\]`: was computed by autograd"):
        tc.duplicate(held, 2, how=how, grad="error")


@pytest.mark.parametrize("how", HOWS)
def test_what_points_back_is_told_of_once(how: Any) -> None:
    """One warning, not n, at the caller's line."""
    model = nn.Linear(2, 2)
    model.forward = lambda x: x @ model.weight  # type: ignore[method-assign]
    with pytest.warns(tc.PointsBack) as told:
        tc.duplicate(model, 5, how=how)
    assert [one.filename for one in told] == [__file__]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ({"/proc/meminfo": "MemAvailable:  10 kB\nSwapFree: 2 kB\n"}, 12 << 10),
        ({"/proc/meminfo": ""}, None),
        (
            {
                "/proc/meminfo": "MemAvailable:  100 kB\n",
                "/proc/self/cgroup": "0::/box\n",
                "/sys/fs/cgroup/box/memory.max": "9000\n",
                "/sys/fs/cgroup/box/memory.current": "5000\n",
                "/sys/fs/cgroup/box/memory.stat": "anon 1\ninactive_file 100\n",
                "/sys/fs/cgroup/memory.max": "max\n",
            },
            4100,
        ),
        (
            {
                "/proc/meminfo": "MemAvailable:  100 kB\n",
                "/proc/self/cgroup": "3:cpu:/\n4:memory:/own/box\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9000\n",
                "/sys/fs/cgroup/memory/memory.usage_in_bytes": "8000\n",
            },
            1000,
        ),
        (
            {
                "/proc/meminfo": "MemAvailable:  1 kB\n",
                "/proc/self/cgroup": "0::/\n",
                "/sys/fs/cgroup/memory.max": "5\n",
                "/sys/fs/cgroup/memory.current": "9\n",
            },
            0,
        ),
    ],
    ids=["machine", "nobody tells", "cgroup v2", "cgroup v1", "none left"],
)
def test_memory_is_what_the_tightest_limit_leaves(
    monkeypatch: pytest.MonkeyPatch, text: dict[str, str], expected: int | None
) -> None:
    """The machine, the control group of either version, whichever has least."""
    monkeypatch.setattr(available, "_text", lambda path: text.get(str(path), ""))
    assert available.available_bytes(CPU) == expected


def test_memory_of_this_machine_is_a_number() -> None:
    """On Linux there is an answer, and no limit is asked of a device that has none."""
    there = available.available_bytes(CPU)
    assert there is not None
    assert 0 < there < 1 << 50
    assert available.available_bytes(("meta", 0)) is None


def test_a_limit_on_the_address_space_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ulimit -v`, less what the process has mapped."""
    monkeypatch.setattr(available.resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    monkeypatch.setattr(available, "_text", lambda path: "2 1 1" if "statm" in str(path) else "")
    assert available.available_bytes(CPU) == (1 << 20) - 2 * available.resource.getpagesize()
