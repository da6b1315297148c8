"""Small leaves that lie close together are fetched and brought back by one call."""

import numpy as np
import torch

import truecopy as tc
from truecopy.snapshots.gathering import Gathering, stretches


def test_what_lies_between_the_leaves_is_never_written() -> None:
    """Only the leaves' own bytes come back: the rest belongs to the allocator and to others."""
    memory = torch.arange(64 * 64 * 16, dtype=torch.int32).numpy().view(np.uint8)
    base = -(-memory.__array_interface__["data"][0] // 64) * 64
    addresses, sizes = [base + 192 * i for i in range(900)], [64 + 64 * (i % 2) for i in range(900)]
    offset = base - memory.__array_interface__["data"][0]
    (stretch,) = stretches(addresses, sizes)
    kept = bytearray(sum(sizes))
    gathering = Gathering.of(
        [addresses[i] for i in stretch], [sizes[i] for i in stretch], memoryview(kept)
    )
    before = memory.copy()
    gathering.fetch()
    at = [
        slice(a - base + offset, a - base + offset + n)
        for a, n in zip(addresses, sizes, strict=True)
    ]
    assert bytes(kept) == b"".join(before[place].tobytes() for place in at)
    memory ^= 255
    expected = memory.copy()
    for place in at:
        expected[place] = before[place]
    gathering.bring_back()
    assert memory.tobytes() == expected.tobytes()


def test_a_stretch_has_no_gap_in_which_a_buffer_would_fit() -> None:
    """Else numpy would take the stretch, which is not all ours, for an overlap, and copy all of it."""
    near, far = [64 * i for i in range(600)], [64 * i + 64 * 600 + 4096 for i in range(600)]
    assert list(stretches(near + far, [64] * 1200)) == [list(range(600)), list(range(600, 1200))]
    assert list(stretches(near[:500], [64] * 500)) == [], "its list of units would fit into a gap"
    assert list(stretches([a + 4 for a in near], [64] * 600)) == []
    assert list(stretches(near, [60] * 600)) == []


def test_leaves_that_are_gathered_keep_the_whole_contract() -> None:
    """Kept, compared and put back like others, whatever the order in which they are named."""
    # Where torch's own allocator puts them depends on what was freed before: here they do lie together.
    memory = np.zeros(64 * 2000 + 16, np.float32)
    first = -memory.__array_interface__["data"][0] % 64 // 4
    starts = [first + 64 * i for i in range(2000)]
    tensors = [
        torch.from_numpy(memory[start : start + 16 + 16 * (i % 3)]).fill_(float(i))
        for i, start in enumerate(starts)
    ]
    order = torch.randperm(2000).tolist()
    held = {str(i): tensors[i] for i in order}
    snap = tc.Snapshot(held=held, odd=[torch.full((3,), float(i)) for i in range(50)])
    arrangement = snap._kept.arrangement
    assert arrangement is not None
    assert len(arrangement.gathered) == 1
    addresses = [one.data_ptr() for one in tensors]
    for one in tensors:
        one.fill_(-1)
    assert len(snap.diff()) == 2000
    snap.restore()
    assert not snap.diff()
    assert all(one.tolist() == [float(i)] * len(one) for i, one in enumerate(tensors))
    assert [one.data_ptr() for one in tensors] == addresses
