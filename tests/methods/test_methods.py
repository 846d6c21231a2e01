"""Every registered edit and merge against every common check; and wrong methods, which the checks must catch."""

from __future__ import annotations

import dataclasses
import functools
import random

import common_checks
import devices
import pytest
import tiny
import torch
from common_checks import CHECKS, EXCUSED, merge

import merging
from merging.base.errors import MergingError
from merging.methods import registry
from merging.methods.method import REGISTERED, register
from merging.methods.params import Params, real

METHODS = merging.list_methods()
EXPECTED = {  # by role; a method that loses its registration would take its share of the common checks with it
    "edit": [
        "awd",
        "breadcrumbs",
        "cat",
        "dare",
        "della",
        "lines",
        "lwptv",
        "magnitude",
        "manual",
        "random_mask",
        "tatr",
        "trim",
        "wise_ft",
    ],
    "merge": [
        "adamerging",
        "consensus",
        "core_space",
        "drm",
        "emr",
        "fisher",
        "iso_c",
        "iso_cts",
        "karcher",
        "knots",
        "localize_and_stitch",
        "lot",
        "model_stock",
        "nuslerp",
        "pcb",
        "regmean",
        "regmean_pp",
        "sce",
        "slerp",
        "task_arithmetic",
        "ties",
        "tsv_m",
        "weight_averaging",
        "wudi",
    ],
    "adapt": [
        "mass",
        "surgery",
        "twin",
        "wemoe",
    ],
}


@pytest.mark.parametrize("role", EXPECTED)
def test_every_method_is_registered(role):
    assert [method.key for method in METHODS if method.role == role] == EXPECTED[role]


@pytest.mark.parametrize("role,key", [(role, key) for role, keys in EXPECTED.items() for key in keys])
@pytest.mark.parametrize("device", devices.WITH_FLOAT64)
def test_common(device, role, key):
    """Every check, with all that fail named at once; an excuse that is not needed fails, too."""
    method = registry.find_method(role, key)  # not those that are registered: one that is lost fails here, too
    failed = {}
    for check in CHECKS:
        try:
            check(method, device)
        except (AssertionError, MergingError) as error:
            failed[check.__name__] = error
    assert failed.keys() == {check for check, of in EXCUSED if of == key}, failed


# --- wrong on purpose ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrongParams(Params):
    scaling: float = real(0.3, low=0.0, label="Scaling", help="A factor.")


def _mutates(slot, params, found):
    return params.scaling * slot.task_vectors.add_(0).mul_(1.0).sum(dim=0).add_(slot.pretrained.mul_(1.1) * 0)


def _first_expert_counts_double(slot, params, found):
    return params.scaling * (slot.task_vectors.sum(dim=0) + slot.task_vectors[0])


def _adds_a_constant(slot, params, found):
    return params.scaling * slot.task_vectors.sum(dim=0) + 1e-3


def _draws(slot, params, found):
    return params.scaling * slot.task_vectors.sum(dim=0) * (1 + random.random())


def _divides_by_norm(slot, params, found):
    return params.scaling * (slot.task_vectors / slot.task_vectors.flatten(1).norm(dim=1).min()).sum(dim=0)


def _global_mean_in_a_piece(slot, params, found):
    return params.scaling * slot.task_vectors.sum(dim=0) * (slot.task_vectors.abs().mean() > 0.02)


def _forgets_scaling(slot, params, found):
    return slot.task_vectors.mean(dim=0) * 0.5


def _half_precision(slot, params, found):
    return params.scaling * slot.task_vectors.half().sum(dim=0).to(slot.task_vectors.dtype)


WRONG = {
    "changes its inputs": (_mutates, "inputs_are_untouched"),
    "prefers an expert": (_first_expert_counts_double, "order_of_experts_does_not_matter"),
    "adds a constant": (_adds_a_constant, "equals_pretrained_when_experts_do"),
    "is not deterministic": (_draws, "result_is_finite_and_deterministic"),
    "divides by zero": (_divides_by_norm, "a_zero_expert_stays_finite"),
    "claims to be elementwise": (_global_mean_in_a_piece, "pieces_equal_whole_tensors"),
    "ignores scaling": (_forgets_scaling, "scaling_zero_gives_pretrained"),
    "loses the expert": (_forgets_scaling, "one_expert_at_full_strength"),
    "loses precision": (_half_precision, "one_expert_at_full_strength"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_method_that_is_wrong_on_purpose_is_caught(name, monkeypatch):
    run, check = WRONG[name]
    wrong = dataclasses.replace(
        registry.find_merge("task_arithmetic"),
        key="wrong",
        params=WrongParams,
        run=run,
        elementwise=lambda params, parameter: True,
    )
    monkeypatch.setitem(REGISTERED, ("merge", "wrong"), wrong)
    with pytest.raises((AssertionError, MergingError)):  # some the engine itself refuses
        next(one for one in CHECKS if one.__name__ == check)(wrong, "cpu")


def test_a_key_cannot_be_taken_twice():
    with pytest.raises(ValueError, match="two merges have the key 'ties'"):
        register(registry.find_merge("ties"))


def test_unknown_methods_are_answered_with_the_nearest():
    with pytest.raises(merging.base.errors.UnknownMethodError, match="Did you mean 'task_arithmetic'"):
        registry.find_merge("task_arithmetics")
    with pytest.raises(merging.base.errors.UnknownMethodError, match="'lwptv' is an edit"):
        registry.find_merge("lwptv")


# --- what single methods promise -------------------------------------------------------------------------------------


@functools.cache
def _family():
    return common_checks.family()


@pytest.mark.parametrize("key", EXPECTED["merge"])
@pytest.mark.parametrize("granularity", ["tensor", "parameter"])
def test_what_lwptv_masks_stays_pretrained_bit_for_bit(key, granularity):
    """After any merge; -0.0, of which every tensor has one here, included."""
    base, experts = common_checks.family_of(registry.find_merge(key))
    base = {name: value.clone() for name, value in base.items()}
    for value in base.values():
        value.view(-1)[0] = -0.0
    method = registry.find_merge(key)
    data, params = common_checks.data(method, experts), common_checks.short_params(method)
    edits = [("lwptv", {"prune_ratio": 0.8, "granularity": granularity})]
    result = merging.merge(tiny.checkpoint(base), experts, key, params, edits=edits, device="cpu", **data)
    vectors = {n: torch.stack([e[n] - base[n] for e in experts.values()]) for n in base}
    if granularity == "tensor":
        table = result.tables["saliency"]
        kept = table.groupby("tensor")["final"].any()
        masks = {n: torch.full_like(base[n], bool(kept[n]), dtype=torch.bool) for n in base}
    else:
        score = {n: (v - v.mean(dim=0)).abs() for n, v in vectors.items()}
        flat = torch.cat([s.flatten(1) for s in score.values()], dim=1)
        limit = flat.sort(dim=1).values[:, int(flat.shape[1] * 0.8 + 1e-9)]
        masks = {n: (s > limit.reshape(-1, *[1] * (s.dim() - 1))).any(dim=0) for n, s in score.items()}
    assert any(m.any() for m in masks.values()) and any((~m).any() for m in masks.values())
    for state in common_checks.states(result):
        for name, mask in masks.items():
            bits, before = state[name].view(torch.int64), base[name].view(torch.int64)
            assert torch.equal(bits[~mask], before[~mask]), name


@pytest.mark.parametrize("granularity", ["tensor", "parameter"])
@pytest.mark.parametrize("shared", [True, False])
def test_lwptv_at_its_limits(granularity, shared):
    base, experts = _family()
    options = {"granularity": granularity, "shared": shared}
    plain = merging.merge(base, experts, "ties", device="cpu").state_dict

    def pruned(ratio):
        edits = [("lwptv", {"prune_ratio": ratio, **options})]
        return merging.merge(base, experts, "ties", edits=edits, device="cpu").state_dict

    assert all(torch.equal(value, plain[n]) for n, value in pruned(0.0).items())
    assert all(torch.equal(value, base[n]) for n, value in pruned(1.0).items())


def test_lwptv_says_when_it_prunes_everything():
    base, experts = _family()
    lwptv = registry.find_edit("lwptv")
    one = merge(lwptv, base, {"a": experts["expert 0"]})
    same = merge(lwptv, base, {"a": experts["expert 0"], "b": experts["expert 0"]})
    assert "one expert" in one.warnings[0] and "identical" in same.warnings[0]


def test_ties_keeps_what_the_convention_says():
    """int(d·ρ) + 1 scalars per expert survive a global trim (no ties in this family)."""
    base, experts = _family()
    (name, expert), *_ = experts.items()
    for density in (0.05, 0.2, 0.73):
        result = merge(registry.find_merge("ties"), base, {name: expert}, {"density": density, "scaling": 1.0})
        kept = sum(int((result.state_dict[n] != base[n]).sum()) for n in base)
        assert kept == int(sum(v.numel() for v in base.values()) * density) + 1


def test_lot_leaves_directions_below_the_cut_off_alone():
    """By default d · 2⁻²³ of the largest eigenvalue: 1.9e-6 for 16 inputs."""
    base, experts = _family()
    name = "visual.transformer.resblocks.0.attn.out_proj.weight"

    def change(relative, rtol=None):
        rows = torch.eye(16, dtype=torch.float64)
        rows[3, 3] = relative**0.5  # the Gram matrix of all experts is diagonal, with this one small entry
        inputs = {e: {name: rows} for e in experts}
        merged = merging.merge(base, experts, "lot", {"scaling": 1.0, "rtol": rtol}, layer_inputs=inputs, device="cpu")
        return (merged.state_dict[name] - base[name])[:, 3].abs().max()

    assert change(2.5e-6) > 1e-3 and change(1.2e-6) == 0
    assert change(1.2e-6, rtol=1e-7) > 1e-3
