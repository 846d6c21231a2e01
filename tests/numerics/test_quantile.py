"""The k-th smallest number of a stream is exact, whatever the numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from merging.numerics.quantile import kth_smallest

VALUES = st.floats(0, 1e6, width=32) | st.sampled_from([0.0, 1.0, 2.0])


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(data=hnp.arrays(np.float32, (2, 300), elements=VALUES), rank=st.integers(0, 299), piece=st.integers(1, 300))
def test_kth_smallest_is_exact(data, rank, piece):
    rows = torch.from_numpy(data)
    found = kth_smallest(lambda: rows.split(piece, dim=1), [rank, rank, 299 - rank, 299 - rank])
    assert found == [float(np.sort(row)[r]) for r in (rank, 299 - rank) for row in data]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kth_smallest_finds_what_its_sample_misleads_it_about(dtype):
    """The sample sees only every 61st number: here, exactly those lie."""
    rows = torch.rand(1, 61 * 500, dtype=dtype)
    rows[:, ::61] += 5.0
    for rank in (0, 100, 15_000, 30_000, 30_499):
        expected = float(rows.sort().values[0, rank])
        assert kth_smallest(lambda: [rows], [rank]) == [expected]
