import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from truecopy.capturing import statistics
from truecopy.capturing.statistics import Bins, summarize


@settings(deadline=None)
@given(
    st.lists(
        st.floats(-1e6, 1e6, width=32) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
    ),
    st.sampled_from([torch.float32, torch.float64, torch.float16]),
)
def test_against_torch_on_the_whole(values: list[float], dtype: torch.dtype) -> None:
    """Piece by piece gives what the whole gives in double precision."""
    x = torch.tensor(values, dtype=dtype)
    found = summarize(x).read()
    finite = x[x.isfinite()].double()
    assert found.nan == x.isnan().sum()
    assert found.inf == x.isinf().sum()
    if len(finite):
        assert found.min == finite.min()
        assert found.max == finite.max()
        scale = float(finite.abs().max()) + 1e-30
        assert abs(found.mean - float(finite.mean())) <= 1e-5 * scale
        assert abs(found.std - float(finite.std(correction=0))) <= 1e-4 * scale
        assert found.zero_fraction == pytest.approx(float((x == 0).double().mean()))


def test_pieces_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small pieces, contiguous or not, give the numbers of the whole; histograms add up."""
    x = torch.randn(64, 50) * 3 + 10
    whole = summarize(x, Bins(10, 0, 20)).read()
    monkeypatch.setattr(statistics, "_PIECE", 100)
    for view in (x, x.t()):
        pieces = summarize(view, Bins(10, 0, 20)).read()
        assert pieces.mean == pytest.approx(whole.mean)
        assert pieces.std == pytest.approx(whole.std)
        assert (pieces.min, pieces.max) == (whole.min, whole.max)
        assert pieces.histogram == whole.histogram
    assert whole.std == pytest.approx(float(x.double().std(correction=0)))
    assert list(whole.histogram) == torch.histc(x, 10, 0, 20).int().tolist()


def test_all_kinds_of_values() -> None:
    """Bools, integers, complex numbers, nothing at all."""
    assert summarize(torch.tensor([True, False])).read().mean == 0.5
    assert summarize(torch.tensor([2**40, 0])).read().max == 2**40
    assert summarize(torch.tensor([3 + 4j])).read().mean == 5
    assert math.isnan(summarize(torch.empty(0)).read().mean)
    assert "from 1 to 2" in str(summarize(torch.tensor([1.0, 2.0])).read())
