"""Truncated decompositions and bases, at every condition and shape."""

from __future__ import annotations

import pytest
import torch
from naive_merges import SHAPES, SVD_MERGES, assert_same, draw, low_rank, naive_polar, orthogonal, run

from merging.base.errors import MergingError
from merging.base.numerics.linear_algebra import left_basis, lower_gram, polar_factor, truncated_svd


@pytest.mark.parametrize("shape", [*SHAPES, (1, 1), (130, 5)])
def test_truncated_decompositions_at_every_condition(shape):
    """From well conditioned, where the Gram matrix serves, to singular values of 1e-9 and none at all."""
    full = min(shape)
    for smallest in (0.5, 1e-2, 4e-3, 2e-3, 1e-5, 1e-9):
        spectrum = torch.logspace(0, torch.log10(torch.tensor(smallest)).item(), full, dtype=torch.float64)
        left, right = orthogonal(shape[0], 1)[:, :full], orthogonal(shape[1], 2)[:, :full]
        matrix = left * spectrum @ right.T
        assert_same(polar_factor(matrix), left @ right.T, max(1e-10, 1e-14 / smallest))
        for count in {1, full // 2, full}:
            found = truncated_svd(matrix, count)
            assert_same(found.values, spectrum[:count], 1e-10)
            assert_same(
                found.left * found.values @ found.right, left[:, :count] * spectrum[:count] @ right[:, :count].T
            )


@pytest.mark.parametrize("smallest", [0.1, 4e-3, 1e-3, 1e-5])
@pytest.mark.parametrize("shape", [(40, 90), (90, 40)])
def test_polar_factors_of_float32_matrices_are_close_in_float32(shape, smallest):
    spectrum = torch.logspace(0, torch.log10(torch.tensor(smallest)).item(), 40, dtype=torch.float64)
    left, right = orthogonal(shape[0], 1)[:, :40], orthogonal(shape[1], 2)[:, :40]
    matrix = (left * spectrum @ right.T).float()
    found = polar_factor(matrix)
    assert found.dtype == torch.float32
    assert_same(found.double(), polar_factor(matrix.double()), 3e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_directions_that_do_not_exist_are_left_out(shape):
    matrix = low_rank(2, *shape)
    found = truncated_svd(matrix, 3)
    assert len(found.values) == 2 and found.left.shape == (shape[0], 2) and found.right.shape == (2, shape[1])
    assert torch.linalg.matrix_rank(polar_factor(matrix)) == 2
    assert_same(polar_factor(matrix), naive_polar(matrix))
    assert left_basis(matrix[None], 0.0).shape[1] == 2
    nothing = torch.zeros(shape, dtype=torch.float64)
    assert not polar_factor(nothing).any() and len(truncated_svd(nothing, 2).values) == 0
    assert left_basis(nothing[None], 0.01).shape == (shape[0], 0)


def test_empty_matrices_have_empty_factors():
    for shape in ((0, 4), (4, 0), (0, 0)):
        empty = torch.zeros(shape, dtype=torch.float64)
        assert polar_factor(empty).shape == shape and len(truncated_svd(empty, 1).values) == 0
        for key in ("drm", *SVD_MERGES, "wudi"):
            assert run(key, empty.expand(3, *shape)).shape == shape


def test_the_gram_matrix_is_computed_in_double_precision():
    blocks = draw(3, 11, 4).float()
    expected = sum(block.double() @ block.double().T for block in blocks)
    found = lower_gram(blocks)
    assert found.dtype == torch.float64
    assert_same(found.tril(), expected.tril(), 1e-15)


@pytest.mark.parametrize("key", ["drm", *SVD_MERGES])
def test_numbers_whose_squares_overflow_are_refused(key):
    with pytest.raises(MergingError, match="too large to be factorized"):
        run(key, 1e200 * draw(3, 9, 6))


@pytest.mark.parametrize("shape", SHAPES)
def test_bases_decompose_the_smaller_side_only(shape, monkeypatch):
    sides, eigh = [], torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda gram: sides.append(len(gram)) or eigh(gram))
    left_basis(draw(3, *shape), 0.01)
    assert sides == [min(shape[0], 3 * shape[1])]


@pytest.mark.parametrize("shape", SHAPES)
def test_bases_span_the_matrices_whichever_side_is_smaller(shape):
    blocks = draw(3, *shape)
    basis = left_basis(blocks, 0.0)
    assert basis.shape == (shape[0], min(shape[0], 3 * shape[1]))
    assert_same(basis.T @ basis, torch.eye(basis.shape[1], dtype=torch.float64), 1e-12)
    assert_same(basis @ (basis.T @ blocks), blocks, 1e-12)
