"""What a config of mergekit says, what no recipe can express, and what mergekit cannot."""

from __future__ import annotations

from typing import Any

import mergekit_cases
import pytest
import split_qkv_models
import torch
import yaml

from merging.base.errors import MergingError, RecipeError
from merging.models.families import classify_parameters
from merging.recipes.mergekit.reading import read_mergekit
from merging.recipes.mergekit.settings import NetworkTensor, evaluate
from merging.recipes.mergekit.tensors import read_network_tensors
from merging.recipes.mergekit.writing import write_mergekit
from merging.recipes.recipe import Recipe

TENSORS = [NetworkTensor(p, (p.name,)) for p in classify_parameters(list(mergekit_cases.SHAPES))]
MODELS = "base_model: base\nmodels: [{model: a}, {model: b}]\n"
PLUS = {"density": 1.0, "zero_votes": "plus"}
ONE = "base_model: base\nmodels: [{model: a}]\n"


def read(text: str, tensors: Any = TENSORS, **fields: Any) -> Recipe:
    return read_mergekit(text, lambda reference: tensors, **fields)


@pytest.mark.parametrize(
    "text,problem",
    [
        ("[]", "mapping with merge_method and models"),
        ("merge_method: [", "is not valid YAML in line 1"),
        (f"merge_method: passthrough\n{MODELS}", "merge_method 'passthrough', which cannot be run here"),
        (f"merge_method: tie\n{MODELS}", "Did you mean 'ties'"),
        (f"merge_method: ties\n{MODELS}slices: [{{}}]", "has slices, which takes layers of models apart"),
        (f"merge_method: ties\n{MODELS}modules: {{}}", "has modules, which merges parts"),
        (f"merge_method: ties\n{MODELS}tokenizer_source: union", "has tokenizer_source, which changes the tokenizer"),
        (f"merge_method: ties\n{MODELS}tokenizer: {{source: base}}", "has tokenizer, which changes the tokenizer"),
        (f"merge_method: ties\n{MODELS}chat_template: auto", "has chat_template, which changes the chat template"),
        (f"merge_method: ties\n{MODELS}dtipe: float32", "unknown field 'dtipe'. Did you mean 'dtype'"),
        (f"merge_method: ties\n{MODELS}dtype: float64", "dtype is float32, float16, bfloat16"),
        ("merge_method: ties\nmodels: [{model: a}]\nparameters: {weight: 1}", "has no base_model, and ties needs one"),
        ("merge_method: ties\nbase_model: base\nmodels: []", "models is a list with entries"),
        ("merge_method: ties\nbase_model: base\nmodels: [a]", "models, entry 1 has `model` and `parameters` only"),
        ("merge_method: ties\nbase_model: base\nmodels: [{model: a}, {model: a}]", "lists the model 'a' twice"),
        ("merge_method: ties\nbase_model: base\nmodels: [{model: a+lora}]", "adds an adapter with '.': 'a.lora'"),
        ("merge_method: ties\nbase_model: base\nmodels: [{model: base}]", "lists no model besides the base_model"),
        (f"merge_method: ties\n{MODELS}", "has no weight of the model 'a', and ties needs it; add it"),
        (f"merge_method: ties\n{MODELS}parameters: {{weigth: 1}}", "not 'weigth'. Did you mean 'weight'"),
        (f"merge_method: ties\n{MODELS}parameters: {{weight: x}}", "weight is a number; got 'x'"),
        (f"merge_method: ties\n{MODELS}parameters: {{weight: true}}", "weight is a number; got True"),
        (f"merge_method: ties\n{MODELS}parameters: {{weight: []}}", "a list of numbers or of filters"),
        (f"merge_method: ties\n{MODELS}parameters: {{weight: [1, {{value: 1}}]}}", "an entry of weight has `value`"),
        (f"merge_method: ties\n{MODELS}parameters: {{weight: [{{filter: mlp, value: 1}}]}}",
         "no weight of the model 'a' for the tensor visual.class_embedding"),
        (f"merge_method: ties\n{MODELS}parameters: {{weight: 11, density: [0, 1]}}", None),
        (f"merge_method: task_arithmetic\n{MODELS}parameters: {{weight: [1, 11]}}", "number in \\[-10, 10\\], got 11"),
        (f"merge_method: ties\n{MODELS}parameters: {{weight: 1, density: -0.5}}", "density is a share from 0 to 1"),
        (f"merge_method: ties\n{MODELS}parameters: {{weight: 1, normalize: [true, false]}}", "is true or false"),
        ("merge_method: ties\nbase_model: base\nmodels: [{model: a, parameters: {normalize: true}}]",
         "normalize holds for all models"),
        (f"merge_method: della\n{MODELS}parameters: {{weight: 1, density: 0.9}}", "must lie between 0 and 1"),
        (f"merge_method: della\n{MODELS}parameters: {{weight: 1, density: [0.4, 0.6]}}", "density varies by model"),
        (f"merge_method: breadcrumbs\n{MODELS}parameters: {{weight: 1, density: 0.5, gamma: [0, 1]}}", "gamma varies"),
        (f"merge_method: linear\n{ONE}parameters: {{weight: 1, normalize: false}}", "add up to 2 without normalize"),
        (f"merge_method: model_stock\n{ONE}", "takes at least two models"),
        (f"merge_method: model_stock\n{MODELS}parameters: {{filter_wise: true}}", "one coefficient per tensor here"),
        (f"merge_method: slerp\n{MODELS}parameters: {{t: 0.5}}", "one other model; got 2"),
        (f"merge_method: slerp\n{ONE}parameters: {{t: [0, 1.5]}}", "t is a position from 0 to 1; got 1.5"),
        (f"merge_method: nuslerp\n{ONE}parameters: {{weight: 1}}", "takes two models besides"),
        (f"merge_method: karcher\n{MODELS}parameters: {{max_iter: 2.5}}", "max_iter is a whole number"),
        (f"merge_method: karcher\n{MODELS}parameters: {{max_iter: 2000}}", "values of karcher that cannot be run here"),
        (f"merge_method: sce\n{MODELS}parameters: {{select_topk: 0}}", "keeps nothing"),
        (f"merge_method: sce\n{MODELS}parameters: {{select_topk: [0.1, 1]}}", "write one number"),
    ],
)  # fmt: skip
def test_what_no_recipe_can_express_is_refused_by_name(text: str, problem: str | None) -> None:
    if problem is None:
        assert read(text)
        return
    with pytest.raises(RecipeError, match=problem):
        read(text)


def test_a_config_in_the_place_of_a_recipe_is_recognized() -> None:
    with pytest.raises(RecipeError, match="a config of mergekit, not a recipe; run `mergescope merge --mergekit"):
        Recipe.from_yaml(f"merge_method: ties\n{MODELS}")


def test_values_follow_filters_and_layers() -> None:
    layers = [0, 0.5, 1]
    assert [evaluate("weight", layers, "x", depth) for depth in (0, 0.25, 0.5, 1)] == [0, 0.25, 0.5, 1]
    filters = [{"filter": "mlp", "value": layers}, {"filter": "attn", "value": "1e-1"}, {"filter": "*", "value": 3}]
    found = [evaluate("weight", filters, name, 0.5) for name in ("a.mlp.b", "a.attn.mlp", "a.attn", "ln")]
    assert found == [0.5, 0.5, 0.1, 3.0]
    assert evaluate("weight", filters[:2], "ln", 0.5) is None


def test_models_become_experts_of_their_names() -> None:
    text = (
        "merge_method: task_arithmetic\nbase_model: org/base\nparameters: {weight: 1}\nmodels: [{model: runs/v1.5/cars"
        ".safetensors}, {model: other/cars.pt}, {model: 'org/clip_v1.5'}, {model: 'bundled:signs'}]"
    )
    recipe = read(text, find_reference=lambda written: f"<{written}>")
    assert recipe.pretrained == "<org/base>"
    assert dict(recipe.experts) == {
        "cars": "<runs/v1.5/cars.safetensors>", "cars-2": "<other/cars.pt>", "clip_v1.5": "<org/clip_v1.5>",
        "signs": "<bundled:signs>",
    }  # fmt: skip


def test_the_task_vectors_start_from_the_base_model_or_a_stated_one() -> None:
    linear = "merge_method: linear\nmodels: [{model: a}, {model: b}]\nparameters: {weight: 1}"
    assert read(linear).pretrained == "a" and read(linear, pretrained="p").pretrained == "p"
    assert [reference for _, reference in read(linear).experts] == ["a", "b"]
    with pytest.raises(RecipeError, match="has the base_model base, and the merge starts from p; name the same"):
        read(f"merge_method: ties\n{MODELS}parameters: {{weight: 1}}", pretrained="p")
    slerp = read(f"merge_method: slerp\n{ONE}parameters: {{t: 0.5}}", pretrained="p")
    assert slerp.pretrained == "p" and [reference for _, reference in slerp.experts] == ["base", "a"]


def test_sentences_tell_what_is_not_used() -> None:
    text = f"merge_method: task_arithmetic\n{MODELS}parameters: {{weight: 1, density: 0.5, int8_mask: true}}\n"
    density, dtype = read(f"{text}dtype: bfloat16").unused
    assert density.startswith("density has no effect in task_arithmetic") and "dtype bfloat16 is not used" in dtype
    dare = read(f"merge_method: dare_ties\n{MODELS}parameters: {{weight: 1, density: 0.5}}\ndtype: float32")
    assert dare.unused == ("mergekit drops other scalars at random, with the same probabilities.",)


def test_plain_configs_become_plain_chains() -> None:
    equal = f"{MODELS}parameters: {{weight: 0.5, density: 0.25}}"
    texts = {method: read(f"merge_method: {method}\n{equal}").text() for method in ("task_arithmetic", "ties")}
    assert texts == {
        "task_arithmetic": "task_arithmetic(scaling=0.5)",
        "ties": "breadcrumbs(density=0.25, gamma=0, at_least_one=True) → "
        "ties(density=1, aggregation=mean, scaling=1, zero_votes=plus)",
    }


def test_query_key_and_value_are_three_tensors_where_the_file_has_three(tmp_path: Any) -> None:
    import common_checks

    base, _ = common_checks.family(torch.float32)
    state = split_qkv_models.to_transformers_names(base)
    folder = split_qkv_models.write(tmp_path / "base", state)
    tensors = read_network_tensors(str(folder))
    assert {len(t.stored) for t in tensors if t.parameter.part == "attn.in_proj"} == {3}
    assert all(name in state or "visual_projection" in name for t in tensors for name in t.stored)
    stock = read(f"merge_method: model_stock\n{MODELS}", tensors)
    assert "split_qkv=True" in stock.text()
    by_filter = (
        f"merge_method: task_arithmetic\n{MODELS}parameters: {{weight: [{{filter: %s, value: 0.5}}, {{value: 1}}]}}"
    )
    assert "self_attn" in write_mergekit(read(by_filter % "self_attn", tensors), tensors)
    with pytest.raises(RecipeError, match=r"a filter of weight divides .*q_proj"):
        read(by_filter % "q_proj", tensors)
    with pytest.raises(RecipeError, match="are three tensors in the model's file; set split_qkv to true"):
        write_mergekit(recipe("model_stock", {"signed": True, "least_norm": 1e-6}), tensors)


def recipe(merge: str, params: Any = None, edits: Any = (), **fields: Any) -> Recipe:
    return Recipe.build(merge, params or {}, edits, "base", {"a": "a", "b": "b"}, **fields)


@pytest.mark.parametrize(
    "chain,reason",
    [
        (recipe("iso_c"), "iso_c: it has no such method"),
        (recipe("task_arithmetic", edits=["lwptv"]), "lwptv: it has no such edit"),
        (recipe("task_arithmetic", edits=["dare"]), "set rescale_by to l1"),
        (recipe("task_arithmetic", edits=["della"]), "set rescale_by to l1 or none"),
        (recipe("task_arithmetic", edits=["breadcrumbs", ("dare", {"rescale": False})]), "sparse once"),
        (recipe("task_arithmetic", edits=[("breadcrumbs", {"at_least_one": True})]), "leave out at_least_one"),
        (recipe("task_arithmetic", edits=[("breadcrumbs", {"split_qkv": True})]), "set split_qkv to false"),
        (recipe("ties"), "put breadcrumbs with gamma=0 and at_least_one before ties with density=1"),
        (recipe("ties", {"density": 1.0}), "set zero_votes to plus"),
        (recipe("ties", {**PLUS, "aggregation": "mean"}, [("manual", {"rules": "e.a=2"})]),
         "write them as the weights of ties"),
        (recipe("sce"), "set equal_below to 1e-06"),
        (recipe("sce", {"equal_below": 1e-6}, ["breadcrumbs"]), "it has no edits before this method"),
        (recipe("model_stock"), "set signed, least_norm=1e-06"),
        (recipe("slerp", {"between": "task_vectors"}), "nuslerp has"),
        (recipe("karcher", {"between": "task_vectors"}), "set between to weights"),
        (recipe("task_arithmetic", adapt="twin"), "no modules on top"),
    ],
)  # fmt: skip
def test_what_mergekit_cannot_express_is_refused_by_name(chain: Recipe, reason: str) -> None:
    with pytest.raises(MergingError, match=f"mergekit cannot express .*{reason}"):
        write_mergekit(chain, TENSORS)


def test_written_configs_state_dtypes_and_random_draws() -> None:
    text = write_mergekit(recipe("task_arithmetic", edits=[("dare", {"rescale_by": "l1"})]), TENSORS, "float16")
    assert "# mergekit drops other scalars at random" in text and "merge_method: dare_linear" in text
    assert text.endswith("dtype: float32\nout_dtype: float16\n") and "density: 0.5" in text
    hub = Recipe.build("weight_averaging", {}, [("wise_ft", {"alpha": 0.5})], "hf-hub:o/base", {"a": "hf-hub:o/a"})
    plain = write_mergekit(hub, TENSORS, "float32")
    assert "base_model: o/base" in plain and "out_dtype" not in plain and "weight: 0.5" in plain


def test_the_average_of_several_checkpoints_counts_every_task_once() -> None:
    several = Recipe.build("weight_averaging", {}, [], "base", {"a": ["a1", "a2"], "b": "b"})
    models = yaml.safe_load(write_mergekit(several, TENSORS))["models"]
    assert {entry["model"]: entry["parameters"]["weight"] for entry in models} == {"a1": 0.25, "a2": 0.25, "b": 0.5}
