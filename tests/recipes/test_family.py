"""The key ``family``: the CLIP tower of a larger network, or every role inferred; run ids without it stay."""

from __future__ import annotations

import other_kinds
import pytest
import torch
from safetensors.torch import save_file

import merging
from merging.base.errors import FamilyError, RecipeError
from merging.models.checkpoint import MappingCheckpoint
from merging.recipes.recipe import Recipe
from merging.study.runs.opened_recipe import attach_checkpoints, open_inputs

TOWER = "vision_tower.vision_model."


@pytest.fixture
def files(tmp_path):
    base = other_kinds.pretrained("LLaVA")
    states = {"pretrained": base} | {name: other_kinds.expert(base, seed) for seed, name in enumerate("ab", start=1)}
    for name, state in states.items():
        save_file(state, tmp_path / f"{name}.safetensors")
    return states, {name: str(tmp_path / f"{name}.safetensors") for name in states}


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_composite_is_merged_whole_and_as_clip_its_tower_alone(files, in_memory):
    states, paths = files
    base, *experts = states.values() if in_memory else paths.values()
    team = dict(zip("ab", experts, strict=True))
    whole = merging.merge(base, team, "weight_averaging", device="cpu").state_dict
    assert set(whole) == set(states["pretrained"])
    tower = merging.merge(base, team, "weight_averaging", family="clip", device="cpu").state_dict
    assert set(tower) == {name for name in whole if name.startswith(TOWER)}
    assert all(torch.equal(value, whole[name]) for name, value in tower.items())
    assert set(merging.describe(base, family="clip")["told_by"]) == {"clip"}


def test_family_is_refused_where_it_cannot_be(files):
    _, paths = files
    with pytest.raises(RecipeError, match=r"family is clip or inferred, or left out; got 'bert'"):
        merging.merge(paths["pretrained"], {"a": paths["a"]}, family="bert")
    for kind in ("BERT", "BLIP vision"):  # BLIP gives its class embedding and norms the names of CLIP
        base = other_kinds.pretrained(kind)
        with pytest.raises(FamilyError, match="holds no whole CLIP image encoder; leave the family out"):
            merging.merge(base, {"a": base}, family="clip")


def test_inferred_leaves_the_facts_out():
    base = other_kinds.pretrained("T5")
    assert set(merging.describe(base)["told_by"]) == {"facts"}
    assert set(merging.describe(base, family="inferred")["told_by"]) == {"inferred"}


def test_recipes_hold_the_family_and_run_ids_without_it_stay(files):
    states, paths = files
    experts = {name: paths[name] for name in "ab"}
    plain = Recipe.build("ties", pretrained=paths["pretrained"], experts=experts)
    clip = Recipe.build("ties", pretrained=paths["pretrained"], experts=experts, family="clip")
    assert "\nfamily:" not in plain.to_yaml() and Recipe.from_yaml(clip.to_yaml()) == clip
    ids = [open_inputs(recipe).run_id() for recipe in (plain, clip)]
    assert ids[0] != ids[1] and not open_inputs(clip).pretrained.is_inferred
    models = [MappingCheckpoint(state, name) for name, state in states.items()]
    assert attach_checkpoints(plain, models[0], dict(zip("ab", models[1:], strict=True))).run_id() == ids[0]
