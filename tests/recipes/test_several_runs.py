"""Several checkpoints of one expert: what averages them, how they are written, and what refuses them."""

from __future__ import annotations

import common_checks
import numpy as np
import pytest

import merging
from merging.base.errors import RecipeError
from merging.engine.run import run_recipe
from merging.methods.method import Adapt, Edit
from merging.models.checkpoint import MappingCheckpoint
from merging.models.task_checkpoints import count_experts, flatten_experts, group_by_task, nest_experts
from merging.recipes.layer_changes import ChosenLayer, restrict_to_expert, scale_layer, single_factor
from merging.recipes.recipe import Recipe
from merging.study.sweeps.sweep_target import bound_subsets, list_targets, vary_recipe

TEXT = """
version: 1
pretrained: base.pt
experts:
  cars: [a.pt, b.pt, c.pt]
  dtd: d.pt
merge: weight_averaging
"""
METHODS = merging.list_methods()


@pytest.fixture(scope="module")
def family():
    base, experts = common_checks.family(experts=4)
    a, b, c, d = experts.values()
    near = {n: a[n] + (b[n] - base[n]) / 4 for n in a}  # runs of one task align
    return base, {"cars": [a, near, {n: (a[n] + near[n]) / 2 + (c[n] - base[n]) / 8 for n in a}], "dtd": d}


def changes(base, state, name):
    return (state[name] - base[name]).double().numpy().ravel()


def stock(vectors):
    """Model Stock of vectors (K, n), by its formula."""
    k, norms = len(vectors), np.linalg.norm(vectors, axis=1)
    cosines = (vectors @ vectors.T) / np.outer(norms, norms)
    mean = max(float(cosines[np.triu_indices(k, 1)].mean()), 0.0) if k > 1 else 1.0
    return k * mean / (1 + (k - 1) * mean) * vectors.mean(axis=0)


EXPECTED = [
    ("weight_averaging", {}, lambda cars, dtd: (cars.mean(axis=0) + dtd[0]) / 2),
    ("model_stock", {}, lambda cars, dtd: stock(np.concatenate([cars, dtd]))),
    ("model_stock", {"across": "mean_of_tasks"}, lambda cars, dtd: (stock(cars) + dtd[0]) / 2),
    ("model_stock", {"across": "sum_of_tasks", "scaling": 0.4}, lambda cars, dtd: 0.4 * (stock(cars) + dtd[0])),
]


@pytest.mark.parametrize(("key", "params", "expected"), EXPECTED)
def test_the_merged_weights_follow_the_formula(family, key, params, expected):
    base, experts = family
    merged = merging.merge(base, experts, key, params, device="cpu")
    results = []
    for name in base:
        cars, dtd = [np.stack([changes(base, s, name) for s in t]) for t in (experts["cars"], [experts["dtd"]])]
        results.append(expected(cars, dtd))
        assert changes(base, merged.state_dict, name) == pytest.approx(results[-1], abs=1e-9)
    assert all(np.abs(result).max() > 1e-3 for result in results)  # no tensor is trivially right
    assert bool(merged.warnings) == (key == "model_stock" and not params)


def test_one_task_is_the_papers_model_stock_in_every_mode(family):
    base, experts = family
    states = [
        merging.merge(base, {"cars": experts["cars"]}, "model_stock", params, device="cpu")
        for params in ({}, {"across": "mean_of_tasks"}, {"across": "sum_of_tasks", "scaling": 1.0})
    ]
    for state in states[1:]:
        for name in base:
            np.testing.assert_allclose(state.state_dict[name], states[0].state_dict[name], rtol=1e-12, atol=1e-12)
    assert not states[0].warnings


def test_the_coefficients_of_tasks_are_in_the_table(family):
    base, experts = family
    table = merging.merge(base, experts, "model_stock", {"across": "mean_of_tasks"}, device="cpu").tables[
        "coefficients"
    ]
    assert len(table) == 2 * len(base) and list(table["task"].unique()) == ["cars", "dtd"]
    assert (table[table["task"] == "dtd"]["coefficient"] == 1).all()
    assert (table[table["task"] == "cars"]["coefficient"] < 1).all()


@pytest.mark.parametrize("key", ["weight_averaging", "model_stock"])
def test_a_list_of_one_changes_nothing(family, key):
    base, experts = family
    plain = merging.merge(base, {"cars": experts["cars"][0], "dtd": experts["dtd"]}, key, device="cpu").state_dict
    listed = merging.merge(base, {"cars": experts["cars"][:1], "dtd": [experts["dtd"]]}, key, device="cpu").state_dict
    assert all(plain[name].equal(listed[name]) for name in base)
    assert Recipe.build(key, experts={"a": ["x"], "b": "y"}) == Recipe.build(key, experts={"a": "x", "b": "y"})


def test_a_recipe_is_read_and_written_back():
    recipe = Recipe.from_yaml(TEXT)
    assert recipe.experts == (("cars", "a.pt"), ("cars#2", "b.pt"), ("cars#3", "c.pt"), ("dtd", "d.pt"))
    assert recipe.tasks == ("cars", "dtd") and recipe.to_plain()["experts"]["cars"] == ["a.pt", "b.pt", "c.pt"]
    assert Recipe.from_yaml(recipe.to_yaml()) == recipe
    assert {key: model.text for key, model in recipe.models().items()}["experts/cars#3"] == "c.pt"


def test_the_id_depends_on_every_checkpoint_and_their_order():
    recipe = Recipe.from_yaml(TEXT)
    digests = {name: str(number) * 64 for number, (name, _) in enumerate(recipe.experts)}
    run_id = recipe.run_id("f" * 64, digests)
    assert run_id == recipe.run_id("f" * 64, dict(digests))
    for changed in ({"cars#3": "9" * 64}, {"cars": digests["cars#2"], "cars#2": digests["cars"]}):
        assert recipe.run_id("f" * 64, digests | changed) != run_id


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.role} {method.key}")
def test_every_other_method_refuses_by_name(method):
    merge = "weight_averaging" if isinstance(method, (Edit, Adapt)) else method.key
    chain = {"edits": [method.key] if isinstance(method, Edit) else []}
    chain["adapt"] = method.key if isinstance(method, Adapt) else None
    experts = {"dtd": "d", "cars": ["a", "b", "c"]}
    if method.several_checkpoints:
        assert len(Recipe.build(merge, experts=experts, **chain).experts) == 4
        return
    with pytest.raises(RecipeError) as raised:
        Recipe.build(merge, experts=experts, **chain)
    assert str(raised.value) == (
        f"{method.key} takes one checkpoint of each expert, but cars has 3; only model_stock and weight_averaging take "
        "several."
    )


def test_only_averages_take_several():
    assert {method.key for method in METHODS if method.several_checkpoints} == {"model_stock", "weight_averaging"}


def test_a_merge_in_memory_refuses_too(family):
    base, experts = family
    with pytest.raises(RecipeError, match="ties takes one checkpoint of each expert, but cars has 3"):
        merging.merge(base, experts, "ties")


def test_an_edit_of_the_merged_task_vector_is_taken(family):
    base, experts = family
    name = next(iter(base))
    recipe = Recipe.build("weight_averaging", experts={"cars": ["a", "b", "c"], "dtd": "d"})
    checkpoint = MappingCheckpoint(base, "base")
    parameters = checkpoint.parameters
    layer = ChosenLayer(name, parameters[0].section, "", part=parameters[0].part)
    reset = scale_layer(recipe, layer, 0.0, parameters)
    opened = {key: MappingCheckpoint(state, key) for key, state in flatten_experts(experts).items()}
    merged = run_recipe(Recipe.from_plain(reset.to_plain()), checkpoint, opened).state_dict
    assert merged[name].equal(base[name]) and not all(merged[n].equal(base[n]) for n in base)
    with pytest.raises(RecipeError, match="manual takes one checkpoint of each expert, but cars has 3"):
        restrict_to_expert(recipe, layer, "dtd", parameters)


@pytest.mark.parametrize(
    ("params", "factor"),
    [({}, 1.0), ({"scaling": 0.3}, 1.0), ({"across": "mean_of_tasks"}, 2.0),
     ({"across": "sum_of_tasks", "scaling": 0.4}, 2.5)],
)  # fmt: skip
def test_the_factor_of_one_expert_counts_what_has_an_effect(params, factor):
    assert single_factor(Recipe.build("model_stock", params, experts={"a": "x", "b": "y"})) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("experts", "sentence"),
    [
        ({"cars": []}, "its list of checkpoints is empty"),
        ({"cars": "x", "cars#2": ["a", "b"]}, "is a name within a list"),
        ({"cars": [["a", "b"]]}, "an expert's file is a piece of text"),
        ({"cars": [None]}, "an expert's file is a piece of text"),
    ],
)
def test_lists_that_mean_nothing_are_refused(experts, sentence):
    plain = {"version": 1, "pretrained": "p", "experts": experts, "merge": "weight_averaging"}
    with pytest.raises(RecipeError, match=sentence):
        Recipe.from_plain(plain)


def test_names_with_a_number_belong_to_the_expert_that_is_there():
    assert group_by_task(["cars", "dtd", "cars#2"]) == {"cars": [0, 2], "dtd": [1]}
    assert group_by_task(["cars#2", "dtd#1", "dtd"]) == {"cars#2": [0], "dtd#1": [1], "dtd": [2]}
    assert flatten_experts({"cars": "a", "dtd": "d", "cars#3": "c"}) == {"cars": "a", "cars#2": "c", "dtd": "d"}
    assert nest_experts({"cars": "a", "cars#2": "b", "dtd": "d"}) == {"cars": ["a", "b"], "dtd": "d"}
    assert count_experts(["cars", "cars#2", "dtd"]) == "2 experts (3 checkpoints)"
    assert count_experts(["cars"]) == "1 expert"


def test_sweeps_count_experts_and_not_checkpoints():
    recipe = Recipe.from_yaml(TEXT)
    assert {target.name: target.bound.high for target in list_targets([recipe])}["experts"] == 2
    fewer = [set(dict(vary_recipe(recipe, "experts", 1, seed).experts)) for seed in range(8)]
    assert {frozenset(names) for names in fewer} == {frozenset({"cars", "cars#2", "cars#3"}), frozenset({"dtd"})}
    with pytest.raises(RecipeError, match="one checkpoint each"):
        bound_subsets(recipe)
