"""What a run's id depends on, and values that must come back from text as exactly the same values."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from merging.cli.model_options import parse_experts
from merging.methods import registry
from merging.methods.method import REGISTERED
from merging.recipes.chain_text import WrittenChain, parse_chain
from merging.recipes.recipe import Recipe

EXPERTS = {"a": "a.safetensors", "b": "b.safetensors"}
DIGESTS = {"a": "1" * 64, "b": "2" * 64}


def recipe(merge: str = "ties", **options: Any) -> Recipe:
    return Recipe.build(merge, experts=EXPERTS, **options)


def run_id(of: Recipe, digests: dict[str, str] = DIGESTS, benchmark: str = "x", **options: Any) -> str:
    return of.run_id("0" * 64, digests, benchmark, **options)


def test_a_new_version_of_a_method_makes_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_id(recipe())
    newer = dataclasses.replace(registry.find_merge("ties"), version=registry.find_merge("ties").version + 1)
    monkeypatch.setitem(REGISTERED, ("merge", "ties"), newer)
    assert run_id(recipe()) != before


def test_the_benchmark_counts_only_where_exemplars_are_drawn_from_it() -> None:
    assert run_id(recipe("lot"), benchmark="x") != run_id(recipe("lot"), benchmark="y")
    assert run_id(recipe(), benchmark="x") == run_id(recipe(), benchmark="y")
    assert run_id(recipe("lot")) != run_id(recipe("lot", exemplars={"seed": 1}))


def test_unused_tensors_count_only_where_there_are_some() -> None:
    plain, counting = recipe(), recipe(count_dead_params=True)
    assert run_id(plain) == run_id(counting) == run_id(plain, carries_dead=True)
    assert run_id(counting, carries_dead=True) != run_id(plain)


def test_contents_names_and_activation_count_and_paths_and_titles_do_not() -> None:
    one = run_id(recipe())
    assert run_id(recipe(title="mine")) == one == run_id(dataclasses.replace(recipe(), pretrained="elsewhere"))
    others = [run_id(recipe(activation="gelu")), run_id(recipe(), DIGESTS | {"b": "3" * 64})]
    renamed = Recipe.build("ties", experts={"a": "a.safetensors", "c": "b.safetensors"})
    others.append(run_id(renamed, {"a": "1" * 64, "c": "2" * 64}))
    assert len({one, *others}) == 4


@pytest.mark.parametrize("value", [0.1, 0.1234567890123456, 1 / 3, 1e-12, 0.30000000000000004])
def test_a_value_in_a_chain_comes_back_exactly(value: float) -> None:
    written = WrittenChain([("lwptv", {"prune_ratio": value})], ("ties", {"scaling": value}))
    chain = parse_chain(written.text())
    assert chain.merge[1]["scaling"] == value == chain.edits[0][1]["prune_ratio"]


def test_two_experts_of_one_name_are_a_problem() -> None:
    problems: list[str] = []
    parse_experts(["a=hf-hub:x/y", "a=hf-hub:x/z"], problems)
    assert problems == ["Two experts are called 'a'; give them different names."]
