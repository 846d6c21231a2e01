"""Floating-point operations of matrix products and decompositions, as the methods use them: leading terms only.

A multiplication and an addition count as two operations. Products are exact; decompositions are estimates by the usual
counts of dense algorithms, whose iterations depend on the numbers: LAPACK does more or fewer. Arithmetic scalar by
scalar, sums and selections are not counted anywhere; passes over the tensors stand for them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from merging.base.numerics.eigen import finds_only_part
from merging.base.numerics.linear_algebra import STRIPES

EIGEN = 10  # times n³: all eigenvalues and eigenvectors of a symmetric matrix (n, n)
PART = 3  # times n³: few of them
CHOLESKY = 1 / 3  # times n³
TRIANGLE = (STRIPES + 1) / (2 * STRIPES)  # share of a symmetric product that is computed


class LinearMap(NamedTuple):
    """A linear map that several tasks have: the number of tasks, of outputs, of inputs and of a task's known inputs."""

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
        """Scalars of one task's matrix."""
        return self.outputs * self.inputs


def product(rows: float, inner: float, columns: float) -> float:
    """A matrix (rows, inner) times a matrix (inner, columns)."""
    return 2.0 * rows * inner * columns


def symmetric_product(side: float, length: float) -> float:
    """A matrix (side, length) times its transpose, or another product that is known to be symmetric."""
    return TRIANGLE * 2.0 * side**2 * length


def eigen(size: float, count: int | None = None) -> float:
    """An eigen-decomposition of a symmetric matrix (size, size), or its ``count`` largest eigenpairs."""
    return (PART if finds_only_part(size, count) else EIGEN) * float(size) ** 3


def cholesky(size: int) -> float:
    """A Cholesky decomposition of a matrix (size, size)."""
    return CHOLESKY * float(size) ** 3


def truncated_svd(rows: int, columns: int, count: int) -> float:
    """The ``count`` largest singular values with their vectors, by the Gram matrix of the short side."""
    short, long = sorted((rows, columns))
    return symmetric_product(short, long) + eigen(short, count) + product(count, short, long)


def polar(rows: int, columns: int) -> float:
    """The orthogonal polar factor of a matrix (rows, columns), by the Gram matrix of the short side."""
    short, long = sorted((rows, columns))
    return symmetric_product(short, long) + eigen(short) + 2 * product(short, short, long)


def core_projection(matrix: LinearMap, ranks: float) -> float:
    """Bases of what thin factors of so many ``ranks`` together span, and what is found in them as a whole matrix."""
    bases = 2 * product(matrix.outputs + matrix.inputs, ranks, ranks)
    return bases + product(ranks, ranks, matrix.inputs) + product(matrix.outputs, ranks, matrix.inputs)


def gram_products(matrix: LinearMap) -> float:
    """Every task's matrix times the Gram matrix (inputs, inputs) of its own inputs, or twice times few inputs."""
    return matrix.tasks * product(matrix.outputs, matrix.inputs, min(matrix.inputs, 2 * matrix.rows))


def task_products(matrix: LinearMap) -> float:
    """The inner product of every two tasks' matrices."""
    return product(matrix.tasks, matrix.numel, matrix.tasks)
