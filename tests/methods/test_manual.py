"""Factors set by hand: what they are equal to, bit for bit; before the merge and after it; and what is refused."""

from __future__ import annotations

import functools
import math

import common_checks
import pytest
import tiny
import torch

import merging
from merging.base.errors import ParameterError, RecipeError
from merging.methods import registry
from merging.methods.factor_rules import FactorRule, rules_text
from merging.recipes.recipe import Recipe

MERGES = [method.key for method in registry.list_methods() if method.role == "merge"]
BLOCK = "visual.transformer.resblocks.0."
# A plain one, one with a survey, one that gives a model per task, and one of whole matrices.
WHOLE = ("task_arithmetic", "ties", "emr", "tsv_m")
GLOBAL = {"ties": {}, "pcb": {}, "consensus": {"base": "ties"}}  # they compare every scalar with all others


@functools.cache
def family(dtype=torch.float32):
    """The tiny family with a -0.0 in every tensor."""
    base, experts = common_checks.family(dtype)
    base = {name: value.clone() for name, value in base.items()}
    for value in base.values():
        value.view(-1)[0] = -0.0
    return base, experts


def merge(key="task_arithmetic", edits=(), params=None, **options):
    base, experts = family(options.pop("dtype", torch.float32))
    experts = dict(list(experts.items())[: registry.find_merge(key).max_experts])
    given, params = (
        common_checks.data(registry.find_merge(key), experts),
        {**common_checks.short_params(registry.find_merge(key)), **(params or {})},
    )
    return merging.merge(tiny.checkpoint(base), experts, key, params, edits=edits, device="cpu", **given, **options)


@functools.cache
def plain(key):
    return common_checks.states(merge(key))


def bits(state):
    return {name: value.view(torch.int32).clone() for name, value in state.items()}


def assert_same_bits(result, expected):
    for state, other in zip(common_checks.states(result), expected, strict=True):
        assert [name for name, value in bits(state).items() if not torch.equal(value, bits(other)[name])] == []


def manual(rules="", **params):
    return ("manual", {"rules": rules, **params})


# --- what it is equal to ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", MERGES)
def test_factors_of_one_change_nothing_and_it_says_so(key):
    for when in ("before", "after") if key in WHOLE else ("before",):
        result = merge(key, [manual("all=0+all=1", when=when)])
        assert_same_bits(result, plain(key))
        assert result.warnings[0] == "manual changes nothing: every factor is 1."


@pytest.mark.full
@pytest.mark.parametrize("key,shared", [*((key, True) for key in MERGES), *((key, False) for key in WHOLE)])
def test_lwptvs_masks_as_factors_are_lwptv(key, shared):
    lwptv = merge(key, [("lwptv", {"prune_ratio": 0.8, "shared": shared})])
    kept = lwptv.tables["saliency"].query("final")
    assert 0 < len(kept) < len(lwptv.tables["saliency"])
    rules = [FactorRule(factor=1, tensors=(row.tensor,), experts=(row.expert,)) for row in kept.itertuples()]
    assert_same_bits(merge(key, [manual(rules, default=0.0)]), common_checks.states(lwptv))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_one_factor_is_wise_ft(dtype):
    by_hand = merge(edits=[manual(default=0.3)], dtype=dtype).state_dict
    expected = merge(edits=[("wise_ft", {"alpha": 0.3})], dtype=dtype).state_dict
    assert all(torch.equal(value, expected[name]) for name, value in by_hand.items())


def test_factors_by_block_are_lines():
    lines = merge(edits=[("lines", {"base": 0.4, "slope": 0.9})])
    assert_same_bits(merge(edits=[manual("b1=1.3", default=0.4)]), [lines.state_dict])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_one_expert_alone_comes_out_within_a_rounding(dtype):
    _, experts = family(dtype)
    result = merge(edits=[manual("e.expert%201=1", default=0.0)], params={"scaling": 1.0}, dtype=dtype)
    for name, value in experts["expert 1"].items():
        step = torch.finfo(dtype).eps * torch.maximum(value.abs(), family(dtype)[0][name].abs()).double()
        assert ((result.state_dict[name] - value).double().abs() <= step).all(), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_factors_multiply_each_experts_task_vector(dtype):
    base, experts = family(dtype)
    rules = "b0=2+e.expert%200/r.linear=-0.5+s.output/e.expert%202=0"
    result = merge(edits=[manual(rules, default=0.75)], params={"scaling": 1.0}, dtype=dtype)
    table = result.tables["factors"].set_index(["expert", "tensor"])["factor"]
    for name, value in base.items():  # by rules, in plain arithmetic
        change = sum(table[e, name] * (state[name] - value).double() for e, state in experts.items())
        assert torch.allclose(result.state_dict[name].double(), value.double() + change, atol=1e-5)
    linear = f"{BLOCK}mlp.c_fc.weight"
    assert [table[e, linear] for e in experts] == [-0.5, 2.0, 2.0]
    assert [table[e, "visual.proj"] for e in experts] == [0.75, 0.75, 0.0]


def test_tensors_that_nobody_keeps_are_not_read():
    base, experts = family()
    bad = torch.full_like(base["visual.proj"], math.inf)
    broken = {name: {**state, "visual.proj": bad} for name, state in experts.items()}
    with pytest.raises(merging.base.errors.CompatibilityError):
        merging.merge(tiny.checkpoint(base), broken, "task_arithmetic", device="cpu")
    result = merging.merge(tiny.checkpoint(base), broken, "task_arithmetic", edits=[manual("t.proj=0")], device="cpu")
    assert torch.equal(result.state_dict["visual.proj"], base["visual.proj"])


# --- after the merge -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", MERGES)
def test_after_the_merge_a_factor_changes_its_own_tensors_alone(key):
    base, _ = family()
    result = merge(key, [manual("b0=0+s.output=2", when="after")])
    assert "changes nothing" not in " ".join(result.warnings)
    for state, other in zip(common_checks.states(result), plain(key), strict=True):
        for name, value in state.items():
            if name.startswith(BLOCK):
                assert torch.equal(value.view(torch.int32), base[name].view(torch.int32)), name
            elif name == "visual.proj" or name.startswith("visual.ln_post"):
                assert torch.allclose(value - base[name], 2 * (other[name] - base[name]), atol=1e-5), name
            else:
                assert torch.equal(value.view(torch.int32), other[name].view(torch.int32)), name


@pytest.mark.parametrize("key", GLOBAL)
def test_before_a_global_threshold_it_changes_other_tensors_too(key):
    alone, before = (merge(key, edits, GLOBAL[key]).state_dict for edits in ([], [manual("b0=0")]))
    after = merge(key, [manual("b0=0", when="after")], GLOBAL[key]).state_dict
    elsewhere = [name for name in alone if not name.startswith(BLOCK)]
    assert any(not torch.equal(before[name], alone[name]) for name in elsewhere)
    assert all(torch.equal(after[name], alone[name]) for name in elsewhere)


@pytest.mark.parametrize("key", WHOLE)
@pytest.mark.parametrize("when", ["before", "after"])
def test_pieces_give_what_whole_tensors_give(key, when, monkeypatch):
    chain = [manual("b0/r.linear=0.5+b1=0", when=when)]
    whole = common_checks.states(merge(key, chain))
    monkeypatch.setattr("merging.engine.run_inputs.PIECE_CPU", 29)
    monkeypatch.setattr("merging.engine.run_inputs.BLOCK_CPU", 131)
    for one, other in zip(common_checks.states(merge(key, chain)), whole, strict=True):
        assert all(torch.allclose(value, other[name], atol=1e-6) for name, value in one.items())


def test_after_the_merge_comes_after_the_other_edits():
    chain = [("lwptv", {"prune_ratio": 0.5}), manual("b1=0", when="after")]
    pruned, result = merge("ties", chain[:1]), merge("ties", chain)
    assert result.tables["saliency"].equals(pruned.tables["saliency"])
    assert result.tables["factors"]["expert"].unique().tolist() == ["merged"]
    base, _ = family()
    for name, value in result.state_dict.items():
        assert torch.equal(value, base[name] if ".1." in name else pruned.state_dict[name]), name


# --- tables, texts, refusals -----------------------------------------------------------------------------------------


def test_the_table_says_which_rule_decided():
    table = merge(edits=[manual("b0=0+e.expert%201/r.shift=2", default=0.5)]).tables["factors"]
    assert list(table.columns) == ["expert", "tensor", "factor", "rule"]
    chosen = table.set_index(["expert", "tensor"])
    assert chosen.loc[("expert 1", f"{BLOCK}ln_1.bias")].tolist() == [2.0, 2]
    assert chosen.loc[("expert 0", f"{BLOCK}ln_1.bias")].tolist() == [0.0, 1]
    assert chosen.loc[("expert 0", "visual.proj")].tolist() == [0.5, 0]


@pytest.mark.parametrize(
    "edits,problem",
    [
        ([manual("b0=0", when="after"), manual("b1=0", when="after")], "Two edits of this chain work on the merged"),
        ([manual("b0=0", when="after"), "lwptv"], "manual works on the merged task vector here, so it is the last"),
        ([manual("b1=0+e.a=0", when="after")], "rule 2 names experts, and after the merge"),
    ],
)
def test_chains_that_make_no_sense_are_refused(edits, problem):
    with pytest.raises(RecipeError, match=problem):
        Recipe.build("ties", edits=edits)


def test_before_and_after_may_stand_in_one_chain():
    chain = [manual("b0=0"), manual("e.expert%201=0"), "lwptv"]
    before, both = (merge("ties", edits).state_dict for edits in (chain, [*chain, manual("b1=0", when="after")]))
    base, _ = family()
    assert any(not torch.equal(before[name], base[name]) for name in base if ".1." in name)
    for name, value in both.items():
        cleared = name.startswith(BLOCK) or ".1." in name  # block 0 before the merge, block 1 after it
        assert torch.equal(value, base[name] if cleared else before[name]), name


@pytest.mark.parametrize("rules", ["b7=0", "e.expert%209=0", "t.no.such=0"])
def test_rules_that_match_nothing_are_refused_before_anything_is_computed(rules):
    with pytest.raises(ParameterError, match="Rule 1"):
        merge("ties", [manual(rules)])


def test_the_recipe_keeps_the_rules_as_written():
    written = "b0=0+b1=0+r.norm_scale/r.shift=0.5+t.*.mlp.*/e.a%2Cb=2"
    recipe = Recipe.build("ties", edits=[manual(written)])
    again = Recipe.from_yaml(recipe.to_yaml())
    assert again == recipe and rules_text(again.edits[0].params.rules) == written
    assert {"blocks": "0", "factor": 0.0} in again.to_plain()["edits"][0]["manual"]["rules"]
    assert recipe.text() == "manual(4 rules) → ties"
    assert Recipe.build("ties", edits=[manual("b0-1=0")]).text() == "manual(blocks 0-1 × 0) → ties"
