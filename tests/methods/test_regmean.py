"""What RegMean promises beyond the common checks, against naive references on small layers."""

from __future__ import annotations

import common_checks
import plain_tower
import pytest
import tiny
import torch
from layer_slots import D_IN, EXPERTS, assert_near, draw, record_notes, rows_of, run, slot_of

import merging
from merging.engine import run as engine
from merging.models.checkpoint import MappingCheckpoint
from merging.models.families import Role
from merging.recipes.recipe import Recipe
from merging.tasks.context import Context

# --- RegMean ---------------------------------------------------------------------------------------------------------


def _weights(slot):
    return slot.pretrained + slot.task_vectors


def _shrunk(x, alpha):
    gram = x.T @ x
    return alpha * gram + (1 - alpha) * torch.diag(gram.diagonal())


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.95, 1.0])
@pytest.mark.parametrize("count", [40, 2])
def test_regmean_is_stationary(alpha, count):
    """Σ_k Ĝ_k (θ - θ_k)ᵀ = 0, with as few exemplars as one likes."""
    rows = rows_of(count)
    slot = slot_of(rows)
    found = slot.pretrained + run("regmean", slot, alpha=alpha)
    weights = _weights(slot)
    rest = sum(_shrunk(x, alpha) @ (found - w).T for x, w in zip(rows, weights, strict=True))
    assert float(rest.norm()) < 1e-9 * sum(float((x.T @ x).norm()) for x in rows)


def test_regmean_without_off_diagonals_is_a_mean_weighted_by_energy():
    rows = rows_of(8)
    slot = slot_of(rows)
    energy = torch.stack([x.square().sum(dim=0) for x in rows])[:, None]
    expected = (energy * slot.task_vectors).sum(dim=0) / energy.sum(dim=0)
    assert assert_near(run("regmean", slot, alpha=0.0), expected)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_regmean_limits(alpha):
    same = slot_of([draw(0, 30, D_IN)] * EXPERTS)
    assert assert_near(run("regmean", same, alpha=alpha), same.task_vectors.mean(dim=0))
    slot = slot_of(rows_of(30))
    identical = slot.with_task_vectors(slot.task_vectors[:1].expand(EXPERTS, -1, -1))
    assert assert_near(run("regmean", identical, alpha=alpha), identical.task_vectors[0])


def test_regmean_with_whole_grams_is_lot_where_they_can_be_inverted():
    slot = slot_of(rows_of(40))
    assert assert_near(run("regmean", slot, alpha=1.0), run("lot", slot, scaling=1.0))


def test_regmean_with_few_exemplars_loses_pretrained_weights_at_alpha_one_only():
    """The literal pseudo-inverse of whole weights; the part that it loses is in the table. LOT keeps it."""
    rows = rows_of(2)
    slot, told = record_notes(slot_of(rows))
    found = slot.pretrained + run("regmean", slot, alpha=1.0)
    gram = sum(x.T @ x for x in rows)
    inverse = torch.linalg.pinv(gram, rtol=1e-12, hermitian=True)
    target = sum(x.T @ x @ w.T for x, w in zip(rows, _weights(slot), strict=True))
    assert assert_near(found, (inverse @ target).T)
    lost = slot.pretrained @ (torch.eye(D_IN).double() - gram @ inverse)
    assert assert_near(found, slot.pretrained + run("lot", slot, scaling=1.0, rtol=1e-12) - lost)
    assert told[0]["rank"] == 9 and told[0]["rows"] == 9 and told[0]["width"] == D_IN
    assert told[0]["pretrained_lost"] == pytest.approx(float(lost.square().sum() / slot.pretrained.square().sum()))
    assert told[0]["pretrained_lost"] > 0.1
    told.clear()
    run("regmean", slot, alpha=0.95)
    assert told[0]["rank"] == D_IN and told[0]["pretrained_lost"] == 0


@pytest.mark.parametrize("alpha", [0.9, 1.0])
def test_regmean_says_how_well_conditioned_its_equations_are(alpha):
    rows = rows_of(60)
    slot, told = record_notes(slot_of(rows))
    run("regmean", slot, alpha=alpha)
    values = torch.linalg.eigvalsh(sum(_shrunk(x, alpha) for x in rows))
    exact = float(values[-1] / values[0])
    assert 0.7 * exact < told[0]["condition"] <= exact * (1 + 1e-9)
    assert told[0]["condition_is_at_least"] == (alpha < 1)
    assert told[0]["condition_is_at_least"] or told[0]["condition"] == pytest.approx(exact)


def test_regmean_keeps_the_pretrained_weights_of_inputs_that_are_always_zero():
    rows = [x.index_fill(1, torch.tensor([2, 5]), 0.0) for x in rows_of(30)]
    slot, told = record_notes(slot_of(rows))
    found = run("regmean", slot, alpha=0.95)
    assert (found[:, [2, 5]] == 0).all() and told[0]["rank"] == D_IN - 2
    rest = [i for i in range(D_IN) if i not in (2, 5)]
    smaller = slot_of([x[:, rest] for x in rows]).with_task_vectors(slot.task_vectors[:, :, rest])
    assert assert_near(found[:, rest], run("regmean", smaller, alpha=0.95))
    nothing = slot_of([torch.zeros(4, D_IN).double()] * EXPERTS)
    assert (run("regmean", nothing, alpha=0.5) == 0).all()


def test_regmean_falls_back_when_rounding_spoils_the_factorization(monkeypatch):
    slot = slot_of(rows_of(40))
    expected = run("regmean", slot, alpha=0.9)
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda gram: (gram, torch.tensor(3)))
    assert assert_near(run("regmean", slot, alpha=0.9), expected)


def test_regmean_takes_the_mean_of_what_is_no_linear_weight():
    base, experts = common_checks.family()
    inputs = common_checks.layer_inputs(experts)
    result = merging.merge(base, experts, "regmean", layer_inputs=inputs, device="cpu")
    described = MappingCheckpoint(base, "base").parameters
    regressed = {p.name for p in described if p.role in {Role.LINEAR, Role.PROJECTION}}
    assert set(result.tables["regmean"]["tensor"]) == regressed
    for name in base:
        mean = torch.stack([e[name] for e in experts.values()]).mean(dim=0)
        assert assert_near(result.state_dict[name], mean) == (name not in regressed)


# --- both under either naming ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["lot", "regmean", "regmean_pp"])
def test_packed_and_separate_attention_weights_give_one_model(key):
    base, states = tiny.family()
    images = {n: torch.randn(4, 3, tiny.SIZE, tiny.SIZE) for n in states}

    def merged(opened):
        experts = {n: opened(s) for n, s in states.items()}
        return engine.run_recipe(
            Recipe.build(key), opened(base), experts, exemplars=images, context=Context("cpu")
        ).state_dict

    def renamed(state):
        found = MappingCheckpoint(plain_tower.hugging_face(state), "hf")
        found.metadata = tiny.checkpoint(state).metadata
        return found

    packed = plain_tower.hugging_face(merged(tiny.checkpoint))
    common_checks.assert_close(merged(renamed), packed, plain_tower.hugging_face(base), 1e-4)
