"""Regions, overlap, counting and sweeps against bytes counted out one by one."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import byte_addresses, fresh_buffer, views
from truecopy.memory.counting import are_identical, count_common, count_reached
from truecopy.memory.groups import partition, tabulate
from truecopy.memory.overlap import overlaps
from truecopy.memory.reading import read
from truecopy.memory.region import Region
from truecopy.memory.sweeps import Comb, separate

MANY = settings(max_examples=200, deadline=None)


def region_of(view: Any) -> Region:
    region = read(view)
    assert isinstance(region, Region)
    return region


def drawn_views(data: st.DataObject, least: int, most: int) -> tuple[Any, list[Any]]:
    buffer = fresh_buffer()
    return buffer, data.draw(st.lists(views(buffer), min_size=least, max_size=most))


@MANY
@given(st.data())
def test_span_is_first_and_last_byte(data: st.DataObject) -> None:
    """A span begins at the first byte that is reached and ends after the last."""
    _, (view,) = drawn_views(data, 1, 1)
    reached = byte_addresses(view)
    low, high = region_of(view).span
    assert (low, high) == (min(reached), max(reached) + 1) if reached else low == high


@MANY
@given(st.data())
def test_dense_means_that_every_byte_of_the_span_is_reached(data: st.DataObject) -> None:
    """`is_dense` is exact in both directions."""
    _, (view,) = drawn_views(data, 1, 1)
    region, reached = region_of(view), byte_addresses(view)
    if reached:
        assert region.is_dense == (len(reached) == region.span[1] - region.span[0])


@MANY
@given(st.data())
def test_canonical_form_reaches_the_same_bytes(data: st.DataObject) -> None:
    """Start, run and steps name the very bytes of the view."""
    _, (view,) = drawn_views(data, 1, 1)
    if not byte_addresses(view):
        return
    start, run, steps = region_of(view).canonical
    places = itertools.product(*(range(count) for _, count in steps))
    offsets = [sum(i * s for i, (s, _) in zip(p, steps, strict=True)) for p in places]
    assert {start + o + b for o in offsets for b in range(run)} == byte_addresses(view)


@MANY
@given(st.data())
def test_relation_of_regions_is_that_of_their_bytes(data: st.DataObject) -> None:
    """Overlap, identity and bytes in common are exact to the byte, for views of every family."""
    _, (a, b) = drawn_views(data, 2, 2)
    one, two = region_of(a), region_of(b)
    common = byte_addresses(a) & byte_addresses(b)
    assert overlaps(one, two) is bool(common)
    assert count_common(one, two) == len(common)
    if common:
        assert are_identical(one, two) is (byte_addresses(a) == byte_addresses(b))


@MANY
@given(st.data())
def test_reached_bytes_are_counted_once(data: st.DataObject) -> None:
    """The union of regions counts each byte once."""
    _, drawn = drawn_views(data, 0, 5)
    reached = set().union(*map(byte_addresses, drawn))
    assert count_reached(map(region_of, drawn)) == len(reached)


def test_too_many_pieces_are_not_counted() -> None:
    """Beyond the limit the count is None, not a guess."""
    region = region_of(torch.zeros(8, 4)[:, :2])
    both = [region, region_of(torch.zeros(8, 4)[:, :2])]
    assert count_reached([region], most_runs=1) == 64  # one comb that meets no byte twice
    assert count_reached(both, most_runs=15) is None


def brute_force_groups(drawn: list[Any]) -> list[list[int]]:
    """Union-find over shared bytes."""
    reached = list(map(byte_addresses, drawn))
    above = list(range(len(drawn)))

    def top(i: int) -> int:
        return i if above[i] == i else top(above[i])

    for i, j in itertools.combinations(range(len(drawn)), 2):
        if reached[i] & reached[j]:
            above[top(j)] = top(i)
    groups: dict[int, list[int]] = {}
    for i in range(len(drawn)):
        groups.setdefault(top(i), []).append(i)
    return sorted(group for group in groups.values() if len(group) > 1)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_partition_is_that_of_brute_force(data: st.DataObject) -> None:
    """Groups are those that comparing all bytes of all pairs gives, and all are decided."""
    _, drawn = drawn_views(data, 0, 12)
    found = partition(tabulate(drawn))
    assert found.shared == brute_force_groups(drawn)
    assert found.undecided == set()
    shared = {row for group in found.shared for row in group}
    assert sorted({*found.alone(), *shared}) == list(range(len(drawn)))


@MANY
@given(st.data())
def test_bare_rows_give_the_same_table(data: st.DataObject) -> None:
    """The short way for ordinary tensors reads what the long way reads."""
    _, drawn = drawn_views(data, 0, 6)
    tensors = [view for view in drawn if isinstance(view, torch.Tensor)]
    long, short = tabulate(tensors), tabulate(tensors, range(len(tensors)))
    assert [region_of(t).span for t in tensors if region_of(t).span[0] != region_of(t).span[1]] == [
        (low, high)
        for low, high in zip(short.low.tolist(), short.high.tolist(), strict=True)
        if low != high
    ]
    assert partition(long).shared == partition(short).shared


# --- sweeps ---------------------------------------------------------------------------------------


@st.composite
def combs(draw: st.DrawFn) -> list[Comb]:
    found = []
    for row in range(draw(st.integers(0, 10))):
        run = draw(st.integers(1, 4))
        steps = tuple(
            sorted(
                (draw(st.sampled_from([2, 3, 5, 6, 8, 12, 24])), draw(st.integers(2, 3)))
                for _ in range(draw(st.integers(0, 2)))
            )
        )
        found.append(Comb(row, draw(st.integers(0, 40)), run, steps))
    return found


def bytes_of(comb: Comb) -> set[int]:
    places = itertools.product(*(range(count) for _, count in comb.steps))
    offsets = [sum(i * s for i, (s, _) in zip(p, comb.steps, strict=True)) for p in places]
    return {comb.start + offset + byte for offset in offsets for byte in range(comb.run)}


@settings(max_examples=300, deadline=None)
@given(combs())
def test_what_sweeps_separate_shares_no_byte(drawn: list[Comb]) -> None:
    """A sweep never parts two combs with a byte in common."""
    part_of = {comb.row: i for i, part in enumerate(separate(drawn)) for comb in part}
    for a, b in itertools.combinations(drawn, 2):
        if bytes_of(a) & bytes_of(b):
            assert part_of[a.row] == part_of[b.row]


def test_columns_are_separated_without_a_pair_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of interleaved columns of one matrix are told apart by sorting alone."""
    tested = counted_tests(monkeypatch)
    columns = torch.zeros(8, 20_000).unbind(1)
    assert partition(tabulate(columns)).shared == []
    assert tested == []


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_slices_of_any_dimension_are_separated(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks cut along any dimension, and each of them cut along another, need no pair test."""
    tested = counted_tests(monkeypatch)
    blocks = [
        piece
        for block in torch.zeros(12, 10, 14).split(2, dim)
        for piece in block.unbind((dim + 1) % 3)
    ]
    assert partition(tabulate(blocks)).shared == []
    assert tested == []


def test_columns_with_their_matrix_are_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix joins its columns; each is tested against it once at most."""
    tested = counted_tests(monkeypatch)
    matrix = torch.zeros(8, 3000)
    found = partition(tabulate([matrix, *matrix.unbind(1)]))
    assert found.shared == [list(range(3001))]
    assert len(tested) <= 3000


def counted_tests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one with each exact test."""
    tested: list[int] = []

    def counting(a: Any, b: Any) -> bool | None:
        tested.append(1)
        return bool(np.shares_memory(a, b))

    monkeypatch.setattr("truecopy.memory.joining.arrays_overlap", counting)
    return tested


def test_a_hundred_thousand_tensors_need_no_exact_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense tensors are grouped by their spans: one reading each, no pair looked at."""
    tested = counted_tests(monkeypatch)
    buffer = torch.zeros(100_000)
    drawn = [buffer[i : i + 1] for i in range(100_000)]
    assert partition(tabulate(drawn, range(100_000))).shared == []
    assert partition(tabulate([buffer, *drawn], range(100_001))).shared == [list(range(100_001))]
    assert tested == []


# --- known cases ----------------------------------------------------------------------------------


def test_spans_inside_a_span() -> None:
    """The sweep keeps the furthest end: safetensors' compares neighbors, and misses the third."""
    whole = torch.zeros(100, dtype=torch.uint8)
    drawn = {"whole": whole, "head": whole[10:20], "tail": whole[30:40]}
    assert partition(tabulate(list(drawn.values()))).shared == [[0, 1, 2]]
    assert partition(tabulate(list(drawn.values()), {0, 1, 2})).shared == [[0, 1, 2]]


def test_what_would_take_too_many_tests_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limit a cluster is one group that is not decided; nothing is left out quietly."""
    monkeypatch.setattr("truecopy.memory.joining._MOST_TESTS", 3)
    flat = torch.zeros(64, dtype=torch.uint8)
    drawn = [flat[start::step] for start, step in ((0, 6), (1, 10), (2, 15), (3, 21), (4, 35))]
    found = partition(tabulate(drawn))
    assert found.undecided
    assert set(range(5)) == {row for group in found.shared for row in group}


def test_over_a_million_tests_end_in_an_answer() -> None:
    """Two thousand pairs of bytes with no step in common: given up, with all of them in one group."""
    rng = np.random.RandomState(0)
    flat = np.zeros(400_000, np.uint8)
    starts, ends = rng.permutation(10_000)[:2000], 200_000 + rng.permutation(10_000)[:2000]
    drawn = [flat[a : b + 1 : b - a] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    found = partition(tabulate(drawn))
    assert found.shared == [list(range(2000))]
    assert found.undecided == {0}


NUMPY_FACTS = [
    # (shape, strides, start) twice, item size 1, and whether they share: numpy's test_mem_overlap.py.
    pytest.param(((2,), (2,), 0), ((2,), (3,), 1), False, id="x[0::2][:2], x[1::3][:2]"),
    pytest.param(((3,), (2,), 0), ((2,), (3,), 1), True, id="4 is reached by both"),
    pytest.param(((4, 3), (4, 1), 0), ((4, 1), (4, 1), 3), False, id="columns 0..2 and 3"),
    pytest.param(((1000,), (3,), 0), ((1000,), (3,), 1), False, id="modulo 3"),
    pytest.param(((1000,), (3,), 0), ((1000,), (7,), 1), True, id="coprime steps"),
    pytest.param(((13, 11), (77, 91), 0), ((1,), (1,), 1), False, id="7 divides every step"),
    pytest.param(((13, 11), (77, 91), 0), ((2,), (1,), 167), True, id="77 + 91 = 168"),
]


@pytest.mark.parametrize(("a", "b", "shares"), NUMPY_FACTS)
def test_facts_of_overlap(a: Any, b: Any, shares: bool) -> None:
    """Small diophantine cases, each true by its own arithmetic."""
    one, two = (
        Region(("cpu", 0), start + 4096, shape, strides, 1) for shape, strides, start in (a, b)
    )
    assert overlaps(one, two) is shares


def test_a_problem_that_numpy_calls_too_hard_is_given_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NumPy's own example of TooHardError ends in None: no answer, and not a guess."""
    x = np.zeros((4, 5, 6), np.int8)
    a, b = region_of(x[:, ::2, ::3]), region_of(x[:, ::3, ::2])
    assert overlaps(a, b) is True
    monkeypatch.setattr("truecopy.memory.overlap._MOST_WORK", 1)
    assert overlaps(a, b) is None


def test_a_knapsack_ends() -> None:
    """Overlap is as hard as subset sum: thirty large steps without a common one end, in None."""
    rng = np.random.RandomState(1234)
    steps = tuple(int(step) for step in rng.randint(10**9, 10**10, size=30))
    sums = Region(("cpu", 0), 4096, (2,) * 30, steps, 1)
    target = Region(("cpu", 0), 4096 + sum(steps) // 2, (1,), (1,), 1)
    assert overlaps(sums, target) is None


BASES = [
    np.zeros((13, 21, 23, 22), np.int8),
    np.zeros((13, 21, 23 * 2, 22), np.int8)[:, :, ::2, :],
]


@pytest.mark.parametrize("base", BASES, ids=["dense", "every second"])
@pytest.mark.parametrize("signs", list(itertools.product([1, -1], repeat=4)), ids=str)
def test_numpys_manual_cases(base: Any, signs: tuple[int, ...]) -> None:
    """NumPy's `test_may_share_memory_manual`: writing to one view shows whether the other sees it."""
    x = base[tuple(slice(None, None, sign) for sign in signs)]
    sees(x[:, 0, :], x[:, 1, :])
    sees(x[:, ::7], x[:, 3::3])
    flat = x.ravel()
    if flat.flags.owndata:
        return
    wide = flat.view(np.int16).reshape(13, 21, 23, 11)
    sees(flat[6:6], wide[:, ::7])
    sees(x[:, ::7], wide)
    sees(x[:, ::7], wide[:, 3::3])
    sees(flat[6:7], wide[:, ::7])


def sees(a: Any, b: Any) -> None:
    a.fill(0)
    b.fill(0)
    a.fill(1)
    assert overlaps(region_of(a), region_of(b)) is bool(b.any())


def test_numpys_slicings_of_one_array() -> None:
    """NumPy's random pairs of views: slices of any step and sign, axes swapped, stride 0, stride 1."""
    x = np.zeros((5, 7, 4), np.int16)
    rng = np.random.RandomState(7)
    for _ in range(400):
        a, b = (random_slicing(x, rng) for _ in range(2))
        assert overlaps(region_of(a), region_of(b)) is bool(byte_addresses(a) & byte_addresses(b))


def random_slicing(x: Any, rng: Any) -> Any:
    """One view as numpy's `iter_random_view_pairs` draws them."""
    strides = list(x.strides)
    if (special := rng.randint(0, 10)) < 2:
        strides[0] = int(special)
    x = np.lib.stride_tricks.as_strided(x, x.shape, strides)
    slices = tuple(
        slice(*(int(rng.randint(-n - 1, n + 1)) for n in (size, size)), int(rng.choice(STEPS)))
        for size in x.shape
    )
    return x[slices].transpose(rng.permutation(3))


STEPS = [-3, -2, -1, 1, 2, 3]


@pytest.mark.parametrize(
    ("strides", "shape"),
    [((3, 4), (5, 4)), ((1, 1), (3, 3)), ((2, 3), (4, 3)), ((-1, 2), (3, 2))],
)
def test_a_view_that_meets_itself_is_never_missed(
    strides: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    """NumPy's `internal_overlap` facts: each of these reaches one byte by two indices."""
    assert Region(("cpu", 0), 4096, shape, strides, 1).repeats_itself


@pytest.mark.parametrize(
    ("strides", "shape"),
    [((), ()), ((0,), (0,)), ((0,), (1,)), ((0, -9993), (1, 22)), ((0, -9993), (0, 22))],
)
def test_a_view_that_does_not_meet_itself(strides: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """The rest of numpy's manual facts; dimensions of stride 0 are told by `unique`, not by this."""
    assert not Region(("cpu", 0), 4096, shape, strides, 1).repeats_itself
