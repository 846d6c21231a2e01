"""The k-th smallest number of a stream is exact, whatever the numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from merging.base.numerics.quantile import SampledRows, kth_smallest

VALUES = st.floats(0, 1e6, width=32) | st.sampled_from([0.0, 1.0, 2.0])


@pytest.mark.full
@settings(deadline=None, max_examples=150)
@given(data=hnp.arrays(np.float32, (2, 300), elements=VALUES), rank=st.integers(0, 299), piece=st.integers(1, 300))
def test_kth_smallest_is_exact(data, rank, piece):
    rows = torch.from_numpy(data)
    found = kth_smallest(lambda: rows.split(piece, dim=1), [rank, rank, 299 - rank, 299 - rank])
    assert found == [float(np.sort(row)[r]) for r in (rank, 299 - rank) for row in data]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shift", [5.0, -1.0])
def test_kth_smallest_finds_what_its_sample_misleads_it_about(dtype, shift):
    """The sample sees only every 61st number: here, exactly those lie."""
    rows = torch.rand(1, 61 * 500, dtype=dtype) + 1
    rows[:, ::61] += shift
    for rank in (0, 100, 15_000, 30_000, 30_499):
        expected = float(rows.sort().values[0, rank])
        assert kth_smallest(lambda: [rows], [rank]) == [expected]


def test_kth_smallest_counts_a_number_once_that_is_both_ends_of_its_bracket():
    """The sample sees only 1, which one number in ten is; the next ones are larger."""
    rows = torch.rand(1, 61 * 500) + 2
    rows[:, ::61] = rows[:, ::10] = 1
    ones = int((rows == 1).sum())
    for rank in (ones - 1, ones, ones + 900):
        assert kth_smallest(lambda: [rows], [rank]) == [float(rows.sort().values[0, rank])]


@pytest.mark.parametrize("zeros", [1, 7, 400])
def test_zeros_that_are_not_streamed_count(zeros):
    rows = torch.rand(2, 300) + 0.5
    whole = torch.cat([torch.zeros(2, zeros), rows], dim=1).sort(dim=1).values
    for rank in (0, zeros - 1, zeros, zeros + 1, zeros + 299):
        assert kth_smallest(lambda: [rows], [rank, rank], zero_count=zeros) == whole[:, rank].tolist()


def test_a_thinned_stream_takes_the_place_of_the_first_pass_and_decides_nothing():
    rows, passes = torch.rand(2, 61 * 50) + 1, []
    expected = [float(row.sort().values[700]) for row in rows]
    for sample in (rows, torch.zeros_like(rows), rows + 5):
        strides: list[int] = []

        def thinned(stride: int, of: torch.Tensor = sample, into: list[int] = strides) -> list[torch.Tensor]:
            into.append(stride)
            return [of[:, ::stride]]

        passes.append(0)

        def whole() -> list[torch.Tensor]:
            passes[-1] += 1
            return list(rows.split(400, dim=1))

        assert kth_smallest(whole, [700, 700], sample=SampledRows(thinned, rows.shape[1])) == expected
        assert strides == [61]
    assert passes[0] == 1


def test_a_sample_of_runs_whose_numbers_are_alike_needs_no_further_pass():
    """Runs of 1,024 numbers differ in size, as rows of a weight do; as many single numbers would tell more."""
    draw = torch.Generator().manual_seed(0)
    sizes = torch.rand(61 * 20, 1, generator=draw) + 0.01
    row = (torch.rand(61 * 20, 1024, generator=draw) * sizes).reshape(1, -1)
    passes = []

    def whole() -> list[torch.Tensor]:
        passes.append(1)
        return [row]

    sample = SampledRows(lambda stride: [row.reshape(-1, 1024)[::stride].reshape(1, -1)], row.shape[1])
    ranks = [row.shape[1] * share // 100 for share in range(5, 100, 10)]
    found = kth_smallest(whole, ranks, sample=sample)
    assert found == row.sort().values[0, ranks].tolist() and len(passes) == 1
