"""Multiply-adds of what methods do to a linear map beyond passes over its scalars: leading terms, for estimates."""

from __future__ import annotations

from typing import NamedTuple

EIGEN = 5  # times n³: all eigenvalues and vectors of a symmetric matrix (n, n)


class LinearMap(NamedTuple):
    """A linear map as several tasks have it: how many tasks, and what goes in and out."""

    tasks: int
    outputs: int
    inputs: int


def eigen(size: int) -> float:
    """An eigen-decomposition of a symmetric matrix (n, n)."""
    return EIGEN * float(size) ** 3


def svd(matrix: LinearMap) -> float:
    """A singular value decomposition of one task's matrix by the Gram matrix of its short side, or its polar factor."""
    short, long = sorted((matrix.outputs, matrix.inputs))
    return 2.0 * short**2 * long + eigen(short)


def products(matrix: LinearMap, side: int) -> float:
    """Every task's matrix times a square one of one of its sides."""
    return float(matrix.tasks) * matrix.outputs * matrix.inputs * side


def regression(matrix: LinearMap) -> float:
    """Every task's outputs fitted on its own inputs: Gram matrices times maps, and one decomposition of their sum."""
    return products(matrix, matrix.inputs) + eigen(matrix.inputs)
