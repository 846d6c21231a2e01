"""The two extreme cases of LOT solve the least-squares problem that they picture."""

from __future__ import annotations

import numpy as np
import pytest

from merging.study.analysis.lot_extreme_cases import ENERGIES, RANK, TASKS, solve_extreme_case, task_vectors


def _of(table, merge):
    return table[table["merge"] == merge].set_index("task")["drift"]


def test_orthogonal_feature_spaces_drift_from_neither_expert():
    weights, found = solve_extreme_case(shared_directions=0, energy=3.0, agreement=-0.5)
    assert set(weights["weight"]) == {0.0, 1.0}
    np.testing.assert_allclose(_of(found, "LOT"), 0, atol=1e-12)
    assert (_of(found, "mean of both") > 0).all()
    assert _of(found, "pretrained").sum() == pytest.approx(1)


def test_shared_feature_spaces_give_an_average_weighted_by_energy():
    for energy in (0.25, 1.0, 4.0):
        weights, found = solve_extreme_case(shared_directions=RANK, energy=energy)
        of_b = weights[weights["task"] == TASKS[1]]["weight"]
        np.testing.assert_allclose(of_b, energy / (1 + energy))
        assert _of(found, "LOT").sum() <= _of(found, "mean of both").sum() + 1e-12
        assert _of(found, "LOT").sum() > 0.01
    np.testing.assert_allclose(
        _of(solve_extreme_case(RANK, 1.0)[1], "LOT"), _of(solve_extreme_case(RANK, 1.0)[1], "mean of both")
    )
    assert _of(solve_extreme_case(RANK, 2.0, 1.0)[1], "LOT").sum() < 1e-12  # task vectors that agree do not conflict


def test_with_orthogonal_inputs_the_sum_of_trained_task_vectors_has_no_drift():
    """By plain arithmetic: task A has inputs along e1 to e4, B along e5 to e8, and no vector acts on the other's."""
    trained, anywhere = (solve_extreme_case(0, 2.0, 0.4, trained).drift for trained in (True, False))
    np.testing.assert_allclose(_of(trained, "sum of both"), 0, atol=1e-15)
    np.testing.assert_allclose(_of(trained, "LOT"), 0, atol=1e-15)
    # The mean takes half of every vector: a quarter of the squared drift stays.
    energies = np.array([1.0, 2.0]) * ENERGIES.sum()
    np.testing.assert_allclose(_of(trained, "mean of both"), energies / energies.sum() / 4)
    # Where the vectors act on every direction, the sum adds the other's, of length one: as much as without any merge.
    np.testing.assert_allclose(_of(anywhere, "sum of both"), energies / energies.sum())
    for merge in ("pretrained", "LOT"):
        np.testing.assert_allclose(_of(trained, merge), _of(anywhere, merge))


def test_in_shared_directions_the_sum_of_trained_task_vectors_drifts():
    """One shared direction, e4: A's weakest (0.4), B's strongest (1). There the sum is off by the other's vector."""
    drift = solve_extreme_case(1, 1.0, 0.0).drift
    np.testing.assert_allclose(_of(drift, "sum of both"), np.array([0.4, 1.0]) / (2 * ENERGIES.sum()))
    weights = solve_extreme_case(1, 1.0, 0.0).weights
    assert weights[weights["direction"] == RANK]["weight"].tolist() == pytest.approx([0.4 / 1.4, 1 / 1.4])


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("shared", range(RANK + 1))
def test_the_illustration_solves_the_least_squares_problem(shared, trained):
    """The drift that is drawn is that of numpy's own solution for inputs of those energies."""
    energy, agreement = 2.0, 0.3
    weights, found = solve_extreme_case(shared, energy, agreement, trained)
    wide = weights.pivot(index="direction", columns="task", values="energy")
    grams = wide[list(TASKS)].to_numpy().T
    assert grams[0].sum() == pytest.approx(ENERGIES.sum())
    vectors = task_vectors(grams.shape[1], agreement)
    np.testing.assert_allclose((vectors[0] * vectors[1]).sum(axis=1), agreement)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=2), 1)
    if trained:
        vectors = np.stack([np.diag((gram > 0).astype(float)) @ t for gram, t in zip(grams, vectors, strict=True)])
    inputs = [np.diag(np.sqrt(gram)) for gram in grams]
    solution = np.linalg.lstsq(np.vstack(inputs), np.vstack([x @ t for x, t in zip(inputs, vectors, strict=True)]))[0]
    drifts = np.array([((x @ (solution - t)) ** 2).sum() for x, t in zip(inputs, vectors, strict=True)])
    scale = sum(((x @ t) ** 2).sum() for x, t in zip(inputs, vectors, strict=True))
    np.testing.assert_allclose(_of(found, "LOT"), drifts / scale, atol=1e-12)
