"""One layer of a recipe changed: what the merge of the changed recipe is, bit for bit where it can be."""

from __future__ import annotations

import pytest
import tiny
import torch
from namings import to_naming

import merging
from merging.base.errors import RecipeError
from merging.methods.factor_rules import resolve
from merging.models.families import UNMERGED, classify_parameters
from merging.recipes.layer_changes import ChosenLayer, restrict_to_expert, scale_layer, single_factor
from merging.recipes.recipe import Recipe

BASE, EXPERTS = tiny.family()
PARAMETERS = classify_parameters(BASE)
TENSOR = "visual.transformer.resblocks.0.mlp.c_fc.weight"
PART = next(p.part for p in PARAMETERS if p.name == TENSOR)
LAYER = ChosenLayer(TENSOR, "block 0", "linear")


def recipe(merge="task_arithmetic", params=None, edits=()):
    return Recipe.build(merge, params or {}, edits, experts=dict.fromkeys(EXPERTS, "memory"))


def merged(one, experts=EXPERTS):
    edits = [(step.key, step.params.values()) for step in one.edits]
    return merging.merge(BASE, experts, one.merge.key, one.merge.params.values(), edits=edits).state_dict


def changed(one, other):
    """The names of the tensors that differ."""
    return {name for name in one if not torch.equal(one[name], other[name])}


@pytest.mark.parametrize(("merge", "edits"), [("ties", ()), ("task_arithmetic", ["lwptv"]), ("pcb", ())])
@pytest.mark.parametrize(
    ("reach", "inside"),
    [
        ("tensor", lambda p: p.name == TENSOR),
        ("block", lambda p: p.section == "block 0"),
        ("layer", lambda p: p.part == PART),
        ("kind", lambda p: p.role == "linear"),
    ],
)
def test_what_is_put_back_has_the_pretrained_bits_and_nothing_else_moves(merge, edits, reach, inside):
    plain = recipe(merge, edits=edits)
    before = merged(plain)
    after = merged(scale_layer(plain, ChosenLayer(TENSOR, "block 0", "linear", reach, PART), 0.0, PARAMETERS))
    names = {p.name for p in PARAMETERS if inside(p)}
    assert changed(before, after) == {name for name in names if not torch.equal(before[name], BASE[name])}
    assert all(torch.equal(after[name], BASE[name]) for name in names)


@pytest.mark.parametrize("section", ["embeddings", "output"])
def test_the_ends_of_the_network_count_as_blocks(section):
    plain = recipe()
    one = next(p for p in PARAMETERS if p.section == section)
    after = merged(scale_layer(plain, ChosenLayer(one.name, section, str(one.role), "block"), 0.0, PARAMETERS))
    assert changed(merged(plain), after) == {p.name for p in PARAMETERS if p.section == section}


NAMINGS = {
    "open_clip": BASE,
    "Hugging Face": to_naming(BASE, "hf"),
    "tower": {name.removeprefix("visual."): value for name, value in BASE.items()},
}


@pytest.mark.parametrize("naming", NAMINGS)
def test_a_layer_in_all_blocks_is_all_tensors_of_its_part_in_every_naming(naming):
    parameters = [p for p in classify_parameters(NAMINGS[naming]) if p.role not in UNMERGED]
    for one in parameters:
        rule = ChosenLayer(one.name, one.section, str(one.role), "layer", one.part).rule(0.5, parameters)
        factors = resolve([rule], 1.0, ["merged"], parameters)
        selected = [name for name, value in zip(factors.tensors, factors.values[0], strict=True) if value == 0.5]
        assert selected == [p.name for p in parameters if p.part == one.part]


def test_changes_of_one_recipe_multiply():
    plain = recipe()
    half = scale_layer(plain, LAYER, 0.5, PARAMETERS)
    both = scale_layer(half, ChosenLayer(TENSOR, "block 0", "linear", "block"), 0.5, PARAMETERS)
    assert len(both.edits) == 1
    moved, before = merged(both), merged(plain)
    bias = TENSOR.replace("weight", "bias")
    torch.testing.assert_close(moved[TENSOR] - BASE[TENSOR], 0.25 * (before[TENSOR] - BASE[TENSOR]), rtol=0, atol=1e-6)
    torch.testing.assert_close(moved[bias] - BASE[bias], 0.5 * (before[bias] - BASE[bias]), rtol=0, atol=1e-6)
    back = merged(scale_layer(both, LAYER, 0.0, PARAMETERS))
    assert torch.equal(back[TENSOR], BASE[TENSOR]) and torch.equal(back[bias], moved[bias])


@pytest.mark.parametrize(
    ("merge", "params", "factor"),
    [
        ("task_arithmetic", {"scaling": 0.3}, 1 / 0.3),
        ("task_arithmetic", {"scaling": 0.01}, 100.0),
        ("weight_averaging", {}, 4.0),
        ("model_stock", {}, 1.0),
    ],
)
def test_the_factor_of_a_single_expert(merge, params, factor):
    assert single_factor(recipe(merge, params)) == pytest.approx(factor)


def test_a_small_coefficient_gives_back_as_much_as_the_edit_takes():
    after = merged(restrict_to_expert(recipe("task_arithmetic", {"scaling": 0.05}), LAYER, "digits", PARAMETERS))
    half = BASE[TENSOR] + (EXPERTS["digits"][TENSOR] - BASE[TENSOR]) / 2
    torch.testing.assert_close(after[TENSOR], half, rtol=0, atol=1e-5)


@pytest.mark.parametrize("merge", ["task_arithmetic", "weight_averaging"])
def test_a_sum_gives_a_layer_back_to_its_expert(merge):
    plain = recipe(merge)
    given = restrict_to_expert(plain, LAYER, "digits", PARAMETERS)
    after = merged(given)
    torch.testing.assert_close(after[TENSOR], EXPERTS["digits"][TENSOR], rtol=0, atol=1e-5)
    assert changed(merged(plain), after) == {TENSOR}
    both = merged(scale_layer(given, LAYER, 0.0, PARAMETERS))  # what works after the merge stays last
    assert torch.equal(both[TENSOR], BASE[TENSOR])
    again = restrict_to_expert(scale_layer(plain, LAYER, 0.5, PARAMETERS), LAYER, "digits", PARAMETERS)
    assert [step.params.values()["when"] for step in again.edits] == ["before", "after"]


def test_one_expert_alone_is_given_its_layer():
    alone = Recipe.build("task_arithmetic", experts={"digits": "memory"})
    after = merged(restrict_to_expert(alone, LAYER, "digits", PARAMETERS), {"digits": EXPERTS["digits"]})
    torch.testing.assert_close(after[TENSOR], EXPERTS["digits"][TENSOR], rtol=0, atol=1e-5)


def test_an_expert_that_is_not_merged_is_refused():
    with pytest.raises(RecipeError, match="does not merge 'tigers'"):
        restrict_to_expert(recipe(), LAYER, "tigers", PARAMETERS)


def test_a_name_with_signs_of_patterns_means_itself():
    hostile = ChosenLayer("a[b]*?", "embeddings", "embedding")
    assert hostile.rule(0.0, PARAMETERS).tensors == ("a[[]b][*][?]",)
