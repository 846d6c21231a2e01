"""Eigenpairs of large matrices by LAPACK, all and few, and polar factors of badly conditioned matrices."""

from __future__ import annotations

import sys
import threading

import pytest
import torch

from merging.base.numerics import eigen as module
from merging.base.numerics import linear_algebra
from merging.base.numerics.eigen import LAPACK_MIN_SIDE, computes_only_part, decompose_symmetric

SIDE = LAPACK_MIN_SIDE + 3


@pytest.fixture(scope="module")
def matrix() -> torch.Tensor:
    draw = torch.randn(SIDE, SIDE, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return draw + draw.T


@pytest.mark.parametrize("count", [None, 1, 40, SIDE // 2, SIDE, 2 * SIDE])
def test_eigenpairs_are_torchs(matrix: torch.Tensor, count: int | None) -> None:
    expect, _ = torch.linalg.eigh(matrix)
    values, vectors = decompose_symmetric(matrix.tril(), count)  # the lower triangle is all that is read
    number = min(count or SIDE, SIDE)
    assert values.shape == (number,) and vectors.shape == (SIDE, number)
    torch.testing.assert_close(values, expect[-number:], rtol=0, atol=1e-11)
    torch.testing.assert_close(matrix @ vectors, vectors * values, rtol=0, atol=1e-11)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(number, dtype=torch.float64), rtol=0, atol=1e-11)


def test_only_few_of_a_large_matrix_are_found_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [computes_only_part(SIDE, count) for count in (None, 1, SIDE // 4, SIDE // 4 + 1)] == [
        False,
        True,
        True,
        False,
    ]
    assert not computes_only_part(LAPACK_MIN_SIDE - 1, 1)
    called: list[str] = []
    call = module.call_lapack

    def noted(name: str, *arguments: object) -> int:
        called.append(name)
        return call(name, *arguments)

    monkeypatch.setattr(module, "call_lapack", noted)
    decompose_symmetric(torch.eye(SIDE, dtype=torch.float64), 3)
    decompose_symmetric(torch.eye(SIDE, dtype=torch.float64))
    decompose_symmetric(torch.eye(LAPACK_MIN_SIDE - 1, dtype=torch.float64))
    assert called == ["dsyevr", "dsyevd"]


@pytest.mark.parametrize("count", [None, 5])
def test_torch_takes_over_where_lapack_fails(
    matrix: torch.Tensor, count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "call_lapack", lambda *arguments: 1)
    values, vectors = decompose_symmetric(matrix, count)
    torch.testing.assert_close(matrix @ vectors, vectors * values, rtol=0, atol=1e-11)


@pytest.mark.parametrize("count", [None, 5])
def test_a_matrix_is_overwritten_only_if_the_caller_allows_it(
    matrix: torch.Tensor, count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = matrix.clone()
    values, vectors = decompose_symmetric(given, count)
    assert torch.equal(given, matrix)
    again = decompose_symmetric(given, count, overwrite=True)
    assert torch.equal(again[0], values) and torch.equal(again[1], vectors) and not torch.equal(given, matrix)
    monkeypatch.setattr(module, "call_lapack", lambda *arguments: 1)
    with pytest.raises(torch.linalg.LinAlgError, match="did not converge"):
        decompose_symmetric(matrix.clone(), count, overwrite=True)


def test_factors_are_found_where_lapack_fails_on_the_only_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = torch.randn(SIDE, SIDE + 60, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    expected = linear_algebra.polar_factor(wide), linear_algebra.left_basis(wide[None], 0.0)
    monkeypatch.setattr(module, "call_lapack", lambda *arguments: 1)
    factor, basis = linear_algebra.polar_factor(wide), linear_algebra.left_basis(wide[None], 0.0)
    torch.testing.assert_close(factor, expected[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(basis @ basis.T, expected[1] @ expected[1].T, rtol=0, atol=1e-9)


def test_matrices_of_low_rank_and_zero() -> None:
    thin = torch.randn(SIDE, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for count in (None, 100):
        values = decompose_symmetric(thin @ thin.T, count)[0]
        torch.testing.assert_close(values[-5:].sqrt(), torch.linalg.svdvals(thin).flip(0))
        assert float(values[:-5].abs().max()) < 1e-11 * float(values[-1])
        assert not decompose_symmetric(torch.zeros(SIDE, SIDE, dtype=torch.float64), count)[0].any()


def test_other_threads_go_on_while_a_matrix_is_decomposed(matrix: torch.Tensor) -> None:
    """The interpreter's lock is free: with an endless switch interval, only its release lets another thread run."""
    counted, stop, started = [0], threading.Event(), threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1
            started.set()
            stop.wait(1e-4)

    decompose_symmetric(matrix)  # loads the routine
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    thread = threading.Thread(target=count)
    try:
        thread.start()
        assert started.wait(60)
        reached = counted[0]
        for _ in range(5):
            decompose_symmetric(matrix)
        assert counted[0] > reached
    finally:
        sys.setswitchinterval(before)
        stop.set()
        thread.join()


@pytest.mark.parametrize("smallest", [1e-3, 1e-4, 1e-5])
def test_polar_factors_of_badly_conditioned_matrices_are_exact_without_a_wide_decomposition(
    smallest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(2)
    left = torch.linalg.qr(torch.randn(40, 40, dtype=torch.float64, generator=generator)).Q
    right = torch.linalg.qr(torch.randn(60, 40, dtype=torch.float64, generator=generator)).Q
    sizes = torch.linspace(1, 0, 40, dtype=torch.float64) * (1 - smallest) + smallest

    def refuse(*arguments: object) -> None:
        raise AssertionError("a wide decomposition")

    monkeypatch.setattr(torch.linalg, "svd", refuse)
    found = linear_algebra.polar_factor((left * sizes) @ right.T)
    torch.testing.assert_close(found, left @ right.T, rtol=0, atol=1e-14 / smallest)
