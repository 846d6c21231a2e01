"""The two extreme cases of LOT solve the least-squares problem that they picture."""

from __future__ import annotations

import numpy as np
import pytest

from merging.analysis.lot_extreme_cases import ENERGIES, RANK, TASKS, extreme_case, task_vectors


def _of(table, merge):
    return table[table["merge"] == merge].set_index("task")["drift"]


def test_orthogonal_feature_spaces_drift_from_neither_expert():
    weights, found = extreme_case(shared=0, energy=3.0, agreement=-0.5)
    assert set(weights["weight"]) == {0.0, 1.0}
    np.testing.assert_allclose(_of(found, "LOT"), 0, atol=1e-12)
    assert (_of(found, "mean of both") > 0).all()
    assert _of(found, "pretrained").sum() == pytest.approx(1)


def test_shared_feature_spaces_give_an_average_weighted_by_energy():
    for energy in (0.25, 1.0, 4.0):
        weights, found = extreme_case(shared=RANK, energy=energy)
        of_b = weights[weights["task"] == TASKS[1]]["weight"]
        np.testing.assert_allclose(of_b, energy / (1 + energy))
        assert _of(found, "LOT").sum() <= _of(found, "mean of both").sum() + 1e-12
        assert _of(found, "LOT").sum() > 0.01
    np.testing.assert_allclose(_of(extreme_case(RANK, 1.0)[1], "LOT"), _of(extreme_case(RANK, 1.0)[1], "mean of both"))
    assert _of(extreme_case(RANK, 2.0, 1.0)[1], "LOT").sum() < 1e-12  # task vectors that agree do not conflict


@pytest.mark.parametrize("shared", range(RANK + 1))
def test_the_illustration_solves_the_least_squares_problem(shared):
    """The drift that is drawn is that of numpy's own solution for inputs of those energies."""
    energy, agreement = 2.0, 0.3
    weights, found = extreme_case(shared, energy, agreement)
    wide = weights.pivot(index="direction", columns="task", values="energy")
    grams = wide[list(TASKS)].to_numpy().T
    assert grams[0].sum() == pytest.approx(ENERGIES.sum())
    vectors = task_vectors(grams.shape[1], agreement)
    np.testing.assert_allclose((vectors[0] * vectors[1]).sum(axis=1), agreement)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=2), 1)
    inputs = [np.diag(np.sqrt(gram)) for gram in grams]
    solution = np.linalg.lstsq(np.vstack(inputs), np.vstack([x @ t for x, t in zip(inputs, vectors, strict=True)]))[0]
    drifts = np.array([((x @ (solution - t)) ** 2).sum() for x, t in zip(inputs, vectors, strict=True)])
    scale = sum(((x @ t) ** 2).sum() for x, t in zip(inputs, vectors, strict=True))
    np.testing.assert_allclose(_of(found, "LOT"), drifts / scale, atol=1e-12)
