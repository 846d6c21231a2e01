"""Multiply-adds of the methods' matrix computations on a linear map: leading terms only, for estimates of time."""

from __future__ import annotations

from typing import NamedTuple

EIGEN = 5  # times n³: all eigenvalues and eigenvectors of a symmetric matrix (n, n)


class LinearMap(NamedTuple):
    """A linear map that several tasks have: the number of tasks, of outputs and of inputs."""

    tasks: int
    outputs: int
    inputs: int


def eigen(size: int) -> float:
    """An eigen-decomposition of a symmetric matrix (n, n)."""
    return EIGEN * float(size) ** 3


def svd(matrix: LinearMap) -> float:
    """One task's matrix decomposed by the Gram matrix of its short side: singular values, or the polar factor."""
    short, long = sorted((matrix.outputs, matrix.inputs))
    return 2.0 * short**2 * long + eigen(short)


def products(matrix: LinearMap, side: int) -> float:
    """Every task's matrix times a square matrix (side, side)."""
    return float(matrix.tasks) * matrix.outputs * matrix.inputs * side


def regression(matrix: LinearMap) -> float:
    """Every task's outputs fitted on its own inputs: Gram matrices times maps, and one decomposition of their sum."""
    return products(matrix, matrix.inputs) + eigen(matrix.inputs)
