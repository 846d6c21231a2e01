"""Exact factorizations of task vectors, in float64: bases, truncated decompositions and polar factors.

Decomposing the Gram matrix of the short side is several times cheaper than decomposing the matrix itself, but squares
the condition number. The Gram matrix is decomposed if that costs no accuracy, else the matrix. Directions of singular
value zero are left out: no function returns the arbitrary vectors that span a null space.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.errors import MergingError
from merging.base.numerics.eigen import decompose_symmetric
from merging.base.numerics.finite import all_finite

RANK_TOLERANCE = 1e-10  # a singular value below this share of the largest is a rounding error
MIN_EIGENVALUE_SHARE = 1e-5  # below this share of the largest, an eigenvalue of a Gram matrix has lost too many digits
MAX_ROW_COSINE = 1e-6  # the square of a smaller cosine between rows is a rounding error
DEVICES_WITHOUT_FLOAT64 = {"mps"}  # kinds of devices that have no float64
FILL_STRIPES = 32  # in which a triangle is copied, so that a stripe stays in the processor's cache
GRAM_STRIPES = 4  # the lower triangle of a Gram matrix is computed in this many stripes of rows


@dataclass(frozen=True, slots=True)
class Factors:
    """A truncated singular value decomposition: ``left`` (m, r), ``values`` (r,) descending, ``right`` (r, n)."""

    left: Tensor
    values: Tensor
    right: Tensor

    def on_cpu(self) -> Factors:
        """The same factors on the CPU."""
        return Factors(self.left.cpu(), self.values.cpu(), self.right.cpu())


def to_float64(tensor: Tensor) -> Tensor:
    """The tensor (*S), of any shape, in float64; on the CPU if its device has no float64."""
    return move_to_float64_device(tensor).to(torch.float64)


def move_to_float64_device(tensor: Tensor) -> Tensor:
    """The tensor (*S), of any shape, on its device, or on the CPU if its device has no float64."""
    return tensor.cpu() if tensor.device.type in DEVICES_WITHOUT_FLOAT64 else tensor


def to_numbers(*scalars: Tensor) -> list[float]:
    """Scalars () as Python numbers, copied to the host together."""
    numbers: list[float] = torch.stack(scalars).cpu().tolist()
    return numbers


def lower_gram(blocks: Tensor) -> Tensor:
    """Σ B_k B_kᵀ (m, m) in float64 of ``blocks`` (K, m, n), correct on and below the diagonal.

    ``torch.linalg.eigh`` reads only that triangle, and computing it in stripes saves most of the other half.

    Raises:
        MergingError: squares of these numbers overflow float64.
    """
    size = blocks.shape[1]
    total = torch.zeros(size, size, dtype=torch.float64, device=move_to_float64_device(blocks[:0]).device)
    for block in blocks:
        exact = to_float64(block)
        add_lower_product(total, exact, exact)
    if not all_finite(total.diagonal()):
        raise MergingError("The task vectors are too large to be factorized. Are these checkpoints of one family?")
    return total


def _decompose_gram(blocks: Tensor, count: int | None = None) -> tuple[Tensor, Tensor]:
    """The pairs that ``decompose_symmetric`` finds of Σ B_k B_kᵀ (m, m), in the memory of that matrix."""
    try:
        return decompose_symmetric(lower_gram(blocks), count, overwrite=True)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        return decompose_symmetric(lower_gram(blocks), count)


def add_lower_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add ``left`` @ ``right``ᵀ, of matrices (m, n), to ``total`` (m, m), correct on and below the diagonal.

    The sum of all products that are added must be symmetric.
    """
    edges = [len(total) * stripe // GRAM_STRIPES for stripe in range(GRAM_STRIPES + 1)]
    for start, stop in itertools.pairwise(edges):
        total[start:stop, :stop].addmm_(left[start:stop], right[:stop].T)


def fill_symmetric(lower: Tensor) -> Tensor:
    """``lower`` (m, m), in place, with the entries above the diagonal replaced by those below it."""
    edges = [len(lower) * stripe // FILL_STRIPES for stripe in range(FILL_STRIPES + 1)]
    for start, stop in itertools.pairwise(edges):
        block = lower[start:stop, start:stop]
        block.copy_(block.tril() + block.tril(-1).mT)
        lower[:start, start:stop] = lower[start:stop, :start].mT
    return lower


def left_basis(blocks: Tensor, rank_tol: float) -> Tensor:
    """The orthonormal left singular vectors (m, r) of ``blocks`` (K, m, n) that ``left_factors`` returns."""
    return left_factors(blocks, rank_tol)[0]


def left_factors(blocks: Tensor, rank_tol: float) -> tuple[Tensor, Tensor]:
    """Orthonormal left singular vectors (m, r) of ``blocks`` (K, m, n) side by side, and their values (r,), ascending.

    Directions are left out if their singular value is at most ``rank_tol`` times the largest, or if a Gram matrix in
    float64 cannot distinguish it from zero.
    """
    block_count, height, width = blocks.shape
    column_basis = None
    if (
        height > block_count * width
    ):  # the other side is shorter: change to a basis of the columns first, which is exact
        column_basis, blocks = torch.linalg.qr(torch.cat([to_float64(block) for block in blocks], dim=1))
        blocks = blocks[None]
    squares, vectors = _decompose_gram(blocks)
    floor = max(rank_tol**2, len(squares) * torch.finfo(squares.dtype).eps)
    dropped = int((squares <= floor * squares[-1:].clamp(min=0)).sum().cpu())
    basis: Tensor = vectors[:, dropped:]
    return basis if column_basis is None else column_basis @ basis, squares[dropped:].sqrt()


def truncated_svd(matrix: Tensor, count: int) -> Factors:
    """The ``count`` largest singular values (r,) of a matrix (m, n) with their vectors (m, r) and (r, n).

    r is smaller than ``count`` if the matrix has a lower rank.
    """
    exact = to_float64(matrix)
    tall = exact.shape[0] > exact.shape[1]
    left, values, right = _wide_svd(exact.T if tall else exact, count)
    return Factors(right.T, values, left.T) if tall else Factors(left, values, right)


def _wide_svd(matrix: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """``truncated_svd`` for m <= n, from the Gram matrix (m, m) unless some of the ``count`` values are too small."""
    squares, vectors = _decompose_gram(matrix[None], count)
    squares, vectors = squares.flip(0), vectors.flip(1)
    if _is_well_conditioned(squares):
        values = squares.sqrt()
        return vectors, values, (vectors.T @ matrix) / values[:, None]
    return _full_svd(matrix, count)


def _full_svd(matrix: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    nonzero = slice(min(count, int((values > RANK_TOLERANCE * values[:1]).sum().cpu())))
    return left[:, nonzero], values[nonzero], right[nonzero]


def polar_factor(matrix: Tensor) -> Tensor:
    """The orthogonal polar factor P Qᵀ (m, n) of a matrix P diag(d) Qᵀ (m, n), over the nonzero d, in its dtype.

    The Gram matrix and its decomposition are in float64. So is the last product, unless the matrix is in float32 and
    well conditioned: then entries are off by up to 1e-5 of the largest.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return polar_factor(matrix.T).T
    exact = to_float64(matrix)
    squares, vectors = _decompose_gram(exact[None])
    if _is_well_conditioned(squares.flip(0)):
        left, right = ((vectors / squares.sqrt()) @ vectors.T).to(matrix), matrix
    elif (orthonormal := _orthogonalize_rows(vectors.T @ exact)) is not None:
        left, right = vectors, orthonormal
    else:
        left, _, right = _full_svd(exact, len(exact))
    factor: Tensor = left @ right
    return factor.to(matrix)


def _orthogonalize_rows(rows: Tensor) -> Tensor | None:
    """The orthogonal polar factor of rows (r, n) that are nearly orthogonal to each other; None if they are not.

    Eigenvectors of an ill-conditioned Gram matrix leave small cosines C between the rows, whose lengths are d. To first
    order the unit rows are (I + C/2) Q with orthonormal Q, and the polar factor of diag(d) (I + C/2) Q is (I + X) Q,
    where X_ij = C_ij (d_i - d_j) / (2 (d_i + d_j)) is skew-symmetric. Terms in C squared are neglected.
    """
    lengths = rows.norm(dim=1)
    if not bool((lengths > RANK_TOLERANCE * lengths.max()).all().cpu()):
        return None
    unit = rows / lengths[:, None]
    cosines = unit @ unit.T
    cosines.diagonal().zero_()
    if float(cosines.abs().max().cpu()) > MAX_ROW_COSINE:
        return None
    length_ratios = (lengths[:, None] - lengths) / (lengths[:, None] + lengths)
    orthonormal: Tensor = unit + ((length_ratios - 1) * cosines / 2) @ unit
    return orthonormal


def _is_well_conditioned(squares: Tensor) -> bool:
    """Whether eigenvalues (r,) of a Gram matrix, descending, are all accurate."""
    return len(squares) == 0 or bool((squares[-1] > MIN_EIGENVALUE_SHARE * squares[0]).cpu())


def inner_products(rows: Tensor, vector: Tensor) -> Tensor:
    """Inner products (K,) of tensors ``rows`` (K, *S) with the tensor ``vector`` (*S), in float64 on the CPU."""
    exact = to_float64(vector).reshape(-1)
    return torch.stack([torch.dot(to_float64(row).reshape(-1), exact) for row in rows]).cpu()


def weighted_sum(rows: Tensor, weights: Sequence[float]) -> Tensor:
    """The sum (*S) of tensors ``rows`` (K, *S), each times its weight.

    If all weights are equal, the plain sum is multiplied once, so the result is exactly the weight times the sum.
    """
    if all(weight == weights[0] for weight in weights):
        return weights[0] * rows.sum(dim=0)
    total: Tensor = torch.tensordot(rows.new_tensor(weights), rows, dims=1)
    return total
