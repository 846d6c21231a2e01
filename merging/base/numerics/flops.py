"""Floating-point operations of matrix products and decompositions, as the methods use them: leading terms only.

A multiplication and an addition count as two operations. Products are exact; decompositions are estimates by the usual
counts of dense algorithms, whose iterations depend on the numbers: LAPACK does more or fewer. Elementwise arithmetic,
sums and selections are not counted here; their cost is stated as passes over the tensors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from merging.base.numerics.eigen import computes_only_part
from merging.base.numerics.linear_algebra import GRAM_STRIPES

EIGEN_FACTOR = 10  # times n³: all eigenvalues and eigenvectors of a symmetric matrix (n, n)
PARTIAL_EIGEN_FACTOR = 3  # times n³: a few eigenvalues and eigenvectors
CHOLESKY_FACTOR = 1 / 3  # times n³
TRIANGLE_SHARE = (GRAM_STRIPES + 1) / (2 * GRAM_STRIPES)  # share of a symmetric product that is computed


class LinearMap(NamedTuple):
    """A linear map of several tasks: the numbers of tasks, outputs, inputs, and known input rows of each task."""

    tasks: int
    outputs: int
    inputs: int
    rows: float = math.inf

    @property
    def short(self) -> int:
        """The length of its shorter side, the largest rank that it can have."""
        return min(self.outputs, self.inputs)

    @property
    def numel(self) -> int:
        """The number of scalars of one task's matrix."""
        return self.outputs * self.inputs


def product(rows: float, inner: float, columns: float) -> float:
    """Operations of a matrix (rows, inner) times a matrix (inner, columns)."""
    return 2.0 * rows * inner * columns


def symmetric_product(side: float, length: float) -> float:
    """Operations of a matrix (side, length) times its transpose, or of another product known to be symmetric."""
    return TRIANGLE_SHARE * 2.0 * side**2 * length


def eigen(size: float, count: int | None = None) -> float:
    """Operations of finding all eigenpairs of a symmetric matrix (size, size), or the ``count`` largest."""
    return (PARTIAL_EIGEN_FACTOR if computes_only_part(size, count) else EIGEN_FACTOR) * float(size) ** 3


def cholesky(size: int) -> float:
    """Operations of a Cholesky decomposition of a matrix (size, size)."""
    return CHOLESKY_FACTOR * float(size) ** 3


def truncated_svd(rows: int, columns: int, count: int) -> float:
    """Operations of the ``count`` largest singular triples of a matrix (rows, columns), by its smaller Gram matrix."""
    short, long = sorted((rows, columns))
    return symmetric_product(short, long) + eigen(short, count) + product(count, short, long)


def polar(rows: int, columns: int) -> float:
    """Operations of the orthogonal polar factor of a matrix (rows, columns), by its smaller Gram matrix."""
    short, long = sorted((rows, columns))
    return symmetric_product(short, long) + eigen(short) + 2 * product(short, short, long)


def core_projection(matrix: LinearMap, ranks: float) -> float:
    """Operations of a merge in low-rank form, besides the merge of its small core matrix (ranks, ranks).

    The factors of all task vectors are orthonormalized, and the merged core is expanded to the whole matrix.

    ``ranks`` is the sum of the ranks of all factors.
    """
    bases = 2 * product(matrix.outputs + matrix.inputs, ranks, ranks)
    return bases + product(ranks, ranks, matrix.inputs) + product(matrix.outputs, ranks, matrix.inputs)


def gram_products(matrix: LinearMap) -> float:
    """Operations of every task's matrix times the Gram matrix (inputs, inputs) of its inputs.

    If there are few input rows, two products with these rows replace the product with the Gram matrix.
    """
    return matrix.tasks * product(matrix.outputs, matrix.inputs, min(matrix.inputs, 2 * matrix.rows))


def task_products(matrix: LinearMap) -> float:
    """Operations of the inner products of every two tasks' matrices."""
    return product(matrix.tasks, matrix.numel, matrix.tasks)
