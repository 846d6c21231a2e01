"""What TATR makes of gradients: conflicts, the mask, and what stays."""

from __future__ import annotations

import common_checks
import pytest
import tiny
import torch
from plain_gradients import make_slot

import merging
from merging.methods import registry
from merging.methods.edits.tatr import TatrParams, conflict
from merging.methods.slot import Gradients

# --- TATR ------------------------------------------------------------------------------------------------------------

TATR = registry.find_edit("tatr")
FISHER = registry.find_merge("fisher")


def test_conflict_of_worked_numbers():
    felt, vectors = [[1, 2, 0, 1], [0.5, 0, 3, 1]], [[1, -1, 2, 0], [2, 1, -1, 4]]
    found = conflict(make_slot(vectors, Gradients.SENSITIVITY, felt), TatrParams())
    assert found.tolist() == [2.5, 2.0, 6.0, 4.0]


@pytest.mark.parametrize("sensitivity", ["gradient", "magnitude"])
def test_conflict_equals_the_sum_over_pairs(sensitivity):
    draw = torch.Generator().manual_seed(0)
    felt, vectors = torch.rand((5, 40), generator=draw), torch.randn((5, 40), generator=draw)
    slot = make_slot(vectors.tolist(), Gradients.SENSITIVITY, felt.tolist())
    found = conflict(slot, TatrParams(sensitivity=sensitivity))
    weights = felt if sensitivity == "gradient" else vectors.abs()
    expected = sum(weights[i].double() * vectors[j].double().abs() for i in range(5) for j in range(5) if i != j)
    assert torch.allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("sensitivity", ["gradient", "magnitude"])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_so_many_scalars_are_kept(family, sensitivity, keep):
    """⌊ρP⌋ - 1 lie strictly below the ⌊ρP⌋-th smallest; what is masked is pretrained bit for bit, the rest is TA."""
    base, experts = family
    params = {"keep": keep, "sensitivity": sensitivity}
    options = {"exemplars": None} if sensitivity == "magnitude" else {}
    found = common_checks.merge(TATR, base, experts, params, **options).state_dict
    plain = common_checks.merge(registry.find_merge("task_arithmetic"), base, experts).state_dict
    same = {n: found[n] == plain[n] for n in base}
    masked = sum(int((~mask).sum()) for mask in same.values())
    numel = sum(value.numel() for value in base.values())
    assert numel - masked == max(int(keep * numel) - 1, 0)
    assert all(torch.equal(found[n][~mask], base[n][~mask]) for n, mask in same.items())


@pytest.mark.parametrize("params", [{"keep": 1.0}, {"keep": 1.0, "sensitivity": "magnitude"}])
def test_keeping_everything_is_task_arithmetic(family, params):
    found = common_checks.merge(TATR, *family, params, exemplars=None).state_dict
    plain = common_checks.merge(registry.find_merge("task_arithmetic"), *family).state_dict
    assert all(torch.equal(value, plain[n]) for n, value in found.items())


def test_dead_parameters_count_in_the_quantile(family):
    base, experts = family
    text = {"token_embedding.weight": torch.zeros(100, 8), "logit_scale": torch.zeros(())}
    carrying = {name: state | text for name, state in experts.items()}
    numel = sum(value.numel() for value in base.values())
    for dead, counted in ((False, numel), (True, numel + 801)):
        edits = [("tatr", {"keep": 0.9, "sensitivity": "magnitude"})]
        found = merging.merge(base | text, carrying, edits=edits, count_dead_params=dead, device="cpu").state_dict
        changed = sum(int((found[n] != base[n]).sum()) for n in base)
        assert changed == int(0.9 * counted) - 1 - (counted - numel)


def test_scalars_without_conflict_stay_when_the_threshold_is_zero(family):
    """One of two experts did not move: by magnitude, nothing conflicts."""
    base, experts = family
    pair = {"a": experts["expert 0"], "b": base}
    found = common_checks.merge(TATR, base, pair, {"sensitivity": "magnitude"}, exemplars=None).state_dict
    plain = common_checks.merge(registry.find_merge("task_arithmetic"), base, pair).state_dict
    assert all(torch.equal(value, plain[n]) for n, value in found.items())


def test_the_mask_does_not_depend_on_how_tensors_stream(family, shown, monkeypatch):
    """Surveys stream in pieces where the merge takes whole tensors; a scalar at the threshold must not notice."""
    monkeypatch.setattr("merging.engine.run_inputs.PIECE_CPU", 7)
    monkeypatch.setattr("merging.engine.run_inputs.BLOCK_CPU", 33)
    base, experts = family
    numel = sum(value.numel() for value in base.values())
    whole = {"scope": "tensor", "density": 1.0}
    result = merging.merge(tiny.checkpoint(base), experts, "ties", whole, ["tatr"], exemplars=shown, device="cpu")
    assert sum(int((result.state_dict[n] != base[n]).sum()) for n in base) == int(0.99 * numel) - 1


# --- Fisher ----------------------------------------------------------------------------------------------------------


def test_both_in_one_chain(family, shown):
    base, experts = family
    result = merging.merge(tiny.checkpoint(base), experts, "fisher", edits=["tatr"], exemplars=shown, device="cpu")
    plain = common_checks.merge(FISHER, base, experts).state_dict
    numel = sum(value.numel() for value in base.values())
    same = sum(int((result.state_dict[n] == plain[n]).sum()) for n in base)
    assert same == int(0.99 * numel) - 1 and {"fisher", "trust_region"} <= set(result.tables)
