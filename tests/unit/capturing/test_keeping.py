import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import apart, same_bits
from truecopy.capturing.budget import Budget, bytes_of
from truecopy.capturing.keeping import Keeper
from truecopy.errors import UsageError


def keeper(budget=None, over="spill", dtype=None) -> Keeper:
    return Keeper(Budget.checked(budget, over), dtype, in_graph=False)


WRITES = [
    lambda t: t.add_(1), lambda t: t[0].zero_(), lambda t: t.data.mul_(2), lambda t: t.t().neg_(),
    lambda t: t.numpy().fill(3), lambda t: t.copy_(t.flip(0)), lambda t: t.view(-1)[1:].sub_(1),
]  # fmt: skip
VIEWS = [
    lambda t: t, lambda t: t.t(), lambda t: t[0], lambda t: t.view(-1), lambda t: t[:, 1:],
    lambda t: t.expand(2, 4, 4), lambda t: t.diagonal(), lambda t: t.view(torch.int32),
]  # fmt: skip
STEPS = st.lists(
    st.tuples(st.sampled_from(["keep", "write"]), st.integers(0, len(VIEWS) - 1)), max_size=20
)


@settings(deadline=None)
@given(STEPS, st.booleans(), st.sampled_from([None, 64, 200]))
def test_values_are_what_they_were(steps, born: bool, budget: int | None) -> None:
    """Any order of keeping and writing, born in the run or before, in memory or in a file."""
    kept = keeper(budget)
    live = torch.arange(16.0).view(4, 4)
    kept.meet(live, born=born)
    expected = []
    for step, which in steps:
        kept.moment += 1
        if step == "keep":
            view = VIEWS[which](live)
            expected.append((kept.keep(view), view.clone()))
        else:
            WRITES[which % len(WRITES)](live)
    values = [held.value for held, _ in expected]
    for value, (_, then) in zip(values, expected, strict=True):
        assert torch.equal(value, then)
        assert value.dtype is then.dtype
    distinct = list({id(value): value for value in values}.values())
    for i, value in enumerate(distinct):
        assert apart([value], [live, *distinct[i + 1 :]])
    if budget is not None:
        assert kept.budget.used <= budget


def test_one_value_is_kept_once_until_it_is_written() -> None:
    """Under any name, whatever its geometry."""
    kept, x = keeper(), torch.ones(10, 10)
    kept.meet(x, born=True)
    first, second = kept.keep(x), kept.keep(x.t())
    assert first.block is second.block
    assert kept.budget.used == 400
    x.add_(1)
    assert kept.keep(x).block is not first.block
    assert kept.budget.used == 800


def test_what_is_older_is_copied_and_kept_once_while_it_has_its_bytes() -> None:
    """`_version` is not asked: `.data` does not move it."""
    kept, weight = keeper(), torch.nn.Parameter(torch.ones(4))
    first = kept.keep(weight)
    assert kept.keep(weight) is first
    weight.data.add_(1)
    assert kept.keep(weight) is not first
    assert first.alias
    assert first.value.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("over", "hows"),
    [
        ("spill", ["memory", "disk", "disk"]),
        ("lower", ["memory", "bfloat16", "stats"]),
        ("stats", ["memory", "stats", "stats"]),
        ("stop", ["memory", "dropped", "dropped"]),
    ],
)
def test_policies(over: str, hows: list[str]) -> None:
    """What was told beforehand is what is done, and the bound is never passed."""
    kept, found = keeper(600, over), []
    for i in range(3):
        x = torch.full((100,), float(i))
        kept.meet(x, born=True)
        found.append(kept.keep(x))
        x.fill_(-1)
    assert [held.how for held in found] == hows
    assert kept.budget.used <= 600
    assert found[0].value.tolist() == [0.0] * 100
    if over == "spill":
        assert found[2].value.tolist() == [2.0] * 100
    if hows[2] == "stats":
        assert found[2].value.mean == 2


def test_a_lower_dtype_on_the_way() -> None:
    """Only floating values of more bytes; others stay bit for bit."""
    kept = keeper(dtype=torch.bfloat16)
    for x, dtype in ((torch.ones(3), torch.bfloat16), (torch.ones(3).half(), torch.float16),
                     (torch.arange(3), torch.int64)):  # fmt: skip
        kept.meet(x, born=True)
        assert kept.keep(x).value.dtype is dtype


def test_bits_come_through_a_file() -> None:
    """NaN payloads, negative zero, bf16, expanded and transposed values."""
    kept = keeper(1)
    nan = torch.tensor([0x7FC01234, -2147483648], dtype=torch.int32).view(torch.float32)
    for x in (nan, torch.ones(2).bfloat16(), torch.ones(3, 1), torch.tensor(5), torch.empty(0, 3)):
        assert same_bits(kept.keep(x).value.clone(), x)
    assert kept.keep(torch.ones(2, 3).t()).value.tolist() == [[1.0, 1.0]] * 3


@pytest.mark.parametrize(
    ("text", "size"),
    [(5, 5), ("7", 7), ("2 GiB", 2 << 30), ("1.5MiB", 3 << 19), ("3 kb", 3000), ("4 B", 4)],
)
def test_sizes(text, size: int) -> None:
    """As people write them."""
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["two", "-1", -1, 1.5, True, "3 XiB", None])
def test_what_is_no_size(text) -> None:
    """Anything else is refused."""
    with pytest.raises(UsageError, match="is no size"):
        bytes_of(text)
