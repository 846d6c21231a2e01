"""A parameter that recipes did not always have: at its default it is in no recipe, digest, id, link or card."""

from __future__ import annotations

import pytest

import merging
from merging.methods.method import Edit
from merging.methods.split_qkv import SPLIT_QKV
from merging.recipes.chain_text import WrittenChain, parse_chain
from merging.recipes.recipe import Recipe

HAVING = [method for method in merging.list_methods() if SPLIT_QKV in method.params.bounds()]
# Of the chains of methods at their defaults, as they were before any method had the parameter; first digits.
DIGESTS = {
    "awd": "cfb515ac29c7", "breadcrumbs": "d8c146600f11", "cat": "329d06fa0af2", "dare": "f3f6fa07a705",
    "lines": "8eba75230481", "lwptv": "086bfc23bf95", "magnitude": "945a69a88235", "manual": "e34b4c6f98ca",
    "random_mask": "25f280b315ee", "tatr": "262f9b17a3a2", "trim": "8ee363bcfc81", "wise_ft": "495bb8dfc37b",
    "adamerging": "ff6ac796fc69", "consensus": "09c51f04ad82", "drm": "afffd7f1ff21", "emr": "1c9f3064c845",
    "fisher": "ba5324b8fd38", "iso_c": "cf1bf397011b", "iso_cts": "ae6f1e63c7e2",
    "localize_and_stitch": "a79b3a045319", "lot": "7c3632557417", "model_stock": "d2630081992a",
    "pcb": "a7596d84623b", "regmean": "d0414f195566", "regmean_pp": "5df07764eee6", "sce": "d8ad97713636",
    "task_arithmetic": "3378fe83f26c", "ties": "43171b3368de", "tsv_m": "fe07b4bb7c6a",
    "weight_averaging": "8fef637bb1f6", "wudi": "08cc54d391ab",
}  # fmt: skip


def recipe(method: object, **params: object) -> Recipe:
    experts = {"a": "a.safetensors", "b": "b.safetensors"}
    if isinstance(method, Edit):
        return Recipe.build("task_arithmetic", edits=[(method.key, params)], experts=experts)
    return Recipe.build(method.key, params, experts=experts)  # type: ignore[attr-defined]


def run_id(of: Recipe) -> str:
    return of.run_id("0" * 64, {"a": "1" * 64, "b": "2" * 64}, "x")


def test_digests_of_chains_without_it_stay() -> None:
    chains = {method.key: Recipe.from_method(method).chain_digest[:12] for method in merging.list_methods()}
    assert {key: chains[key] for key in DIGESTS} == DIGESTS


@pytest.mark.parametrize("method", HAVING, ids=lambda method: method.key)
def test_it_is_written_only_where_it_is_on(method: object) -> None:
    off, written_off, on = recipe(method), recipe(method, split_qkv=False), recipe(method, split_qkv=True)
    assert off == written_off and run_id(off) == run_id(written_off) != run_id(on)
    assert SPLIT_QKV not in off.to_yaml() and f"{SPLIT_QKV}: true" in on.to_yaml()
    for one in (off, on):
        assert Recipe.from_yaml(one.to_yaml()) == one
        steps = [(step.key, step.params.values()) for step in one.steps]
        written = WrittenChain(steps[:-1], steps[-1])
        assert (SPLIT_QKV in written.text()) == (one is on)
        again = parse_chain(written.text())
        assert [*again.edits, again.merge] == [(key, dict(values)) for key, values in steps]


def test_its_name_is_in_titles_only_where_it_counts() -> None:
    ties = Recipe.build("ties", {SPLIT_QKV: True})
    assert ties.text() == "ties" and Recipe.build("ties", {SPLIT_QKV: True, "scope": "tensor"}).text() == (
        "ties(scope=tensor, split_qkv=True)"
    )
