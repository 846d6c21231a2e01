"""What LOT promises beyond the common checks, against naive references on small layers."""

from __future__ import annotations

import common_checks
import pytest
import torch
from layer_slots import D_IN, D_OUT, EXPERTS, assert_near, draw, drift, record_notes, rows_of, run, slot_of

import merging
from merging.methods.shared import least_squares
from merging.models.families import Role


@pytest.mark.parametrize("count,rtol", [(40, None), (2, None), (40, 0.5)])  # full rank, rank-deficient, truncated
def test_lot_has_no_gradient_in_the_directions_it_keeps(count, rtol):
    rows = rows_of(count)
    slot = slot_of(rows)
    found = run("lot", slot, scaling=1.0, rtol=rtol)
    gram = sum(x.T @ x for x in rows)
    target = sum(x.T @ x @ v.T for x, v in zip(rows, slot.task_vectors, strict=True))
    values, vectors = torch.linalg.eigh(gram)
    kept = vectors[:, values > (D_IN * 2**-23 if rtol is None else rtol) * values[-1]]
    assert (kept.shape[1] == D_IN) == (count == 40 and rtol is None)
    assert assert_near(kept.T @ (gram @ found.T - target), torch.zeros(kept.shape[1], D_OUT).double(), 1e-8)
    assert assert_near(found @ kept @ kept.T, found)  # nothing outside of them


def test_lots_drift_is_not_above_anything_elses():
    rows = rows_of(40)
    slot = slot_of(rows)
    found = run("lot", slot, scaling=1.0)
    least = drift(slot, rows, found)
    others = [slot.task_vectors.mean(dim=0), torch.zeros_like(found), *slot.task_vectors]
    nearby = [found + size * draw(seed, *found.shape) for seed in range(20) for size in (1e-4, 1e-2, 1.0)]
    assert all(least < drift(slot, rows, other) for other in (*others, *nearby))


def test_lot_on_orthogonal_features_has_no_drift():
    """The paper's ideal case: every task's vector in its own subspace, Σ_k V_k V_kᵀ T_k."""
    frame = torch.linalg.qr(draw(0, D_IN, D_IN)).Q
    spaces = frame.split(D_IN // EXPERTS, dim=1)
    rows = [draw(k, 20, space.shape[1]) @ space.T for k, space in enumerate(spaces)]
    slot, told = record_notes(slot_of(rows))
    found = run("lot", slot, scaling=1.0)
    assert assert_near(found, sum(v @ space @ space.T for v, space in zip(slot.task_vectors, spaces, strict=True)))
    assert told[0]["drift"] < 1e-12 * told[0]["drift_zero"]


def test_lot_is_the_mean_on_equal_inputs():
    rows = [draw(0, 30, D_IN)] * EXPERTS
    slot = slot_of(rows)
    assert assert_near(run("lot", slot, scaling=0.7), 0.7 * slot.task_vectors.mean(dim=0))


@pytest.mark.parametrize("count,rtol", [(40, None), (2, None), (40, 0.5)])
def test_lot_says_what_it_minimized(count, rtol):
    rows = rows_of(count)
    slot, told = record_notes(slot_of(rows))
    found = run("lot", slot, scaling=1.0, rtol=rtol)
    (row,) = told
    values = torch.linalg.eigvalsh(sum(x.T @ x for x in rows))
    kept = values[values > (D_IN * 2**-23 if rtol is None else rtol) * values[-1]]
    expected = {
        "rows": sum(map(len, rows)),
        "width": D_IN,
        "directions": len(kept),
        "trace_kept": float(kept.sum() / values.sum()),
        "smallest": float(kept[0] / values[-1]),
        "drift": drift(slot, rows, found),
        "drift_mean": drift(slot, rows, slot.task_vectors.mean(dim=0)),
        "drift_zero": drift(slot, rows, torch.zeros_like(found)),
    }
    assert row.pop("table") == "lot" and row == pytest.approx(expected, rel=1e-8)


def test_lot_weighs_norm_scales_by_the_energy_of_their_inputs():
    rows = rows_of(7)
    rows = [x.index_fill(1, torch.tensor([4]), 0.0) for x in rows]  # a channel that nothing enters
    for x in rows:
        x[:, 7] *= 1e-3  # and one that hardly anything enters
    slot, told = record_notes(slot_of(rows, role=Role.NORM_SCALE))
    found = run("lot", slot, scaling=1.0)
    energy = torch.stack([x.square().sum(dim=0) for x in rows])
    energy[:, 4] = 0
    expected = (energy * slot.task_vectors).sum(dim=0) / energy.sum(dim=0).clamp(min=1e-10)
    assert assert_near(found, expected) and found[4] == 0
    mean = slot.task_vectors.mean(dim=0)
    for key, scale in (("drift", found), ("drift_mean", mean), ("drift_zero", torch.zeros_like(mean))):
        assert told[0][key] == pytest.approx(float((energy * (scale - slot.task_vectors).square()).sum()))
    assert told[0]["directions"] == D_IN - 1


def test_lot_tells_of_every_tensor_with_inputs():
    base, experts = common_checks.family()
    inputs = common_checks.layer_inputs(experts)
    table = merging.merge(base, experts, "lot", layer_inputs=inputs, device="cpu").tables["lot"]
    assert set(table["tensor"]) == set(inputs["expert 0"]) and table["order"].is_monotonic_increasing
    linear = table[table["role"] != "norm_scale"]
    assert (linear["drift"] <= linear["drift_mean"]).all() and (table["drift_mean"] <= table["drift_zero"]).all()


def test_an_eigen_decomposition_that_fails_is_tried_again(monkeypatch):
    calls, original = [], torch.linalg.eigh

    def eigh(matrix):
        calls.append(matrix)
        if len(calls) == 1:
            raise torch.linalg.LinAlgError("did not converge")
        return original(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", eigh)
    gram = draw(0, 5, 5)
    gram = gram @ gram.T
    values, vectors = least_squares.spectrum(gram)
    assert len(calls) == 2 and torch.allclose((vectors * values) @ vectors.T, gram, rtol=1e-9)
