"""Names in lists: a paper's title, with the values of the merge's parameters where titles alone are alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_library

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import LWPTV, PRESETS, find_preset, list_partners, name_of
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store


@pytest.mark.parametrize(
    ("title", "params", "name"),
    [
        ("Ties", {"aggregation": "sum", "scaling": 0.3}, "TIES (sum, λ 0.3)"),
        ("Ties w/ LwPTV", {"aggregation": "sum", "scaling": 0.4}, "TIES (sum, λ 0.4) w/ LwPTV"),
        ("TIES-Merging", {"aggregation": "mean", "scaling": 1.0}, "TIES-Merging (mean, λ 1)"),
        ("Ties of mine", {"aggregation": "sum", "scaling": 0.3}, "Ties of mine"),
        ("Task Arithmetic", {"scaling": 0.3}, "Task Arithmetic"),
        ("Ties", {}, "Ties"),  # a recipe without those values
        ("Ties", {"aggregation": "sum", "scaling": "much"}, "Ties"),
    ],
)
def test_a_name_has_the_values_of_its_merge(title: str, params: dict[str, Any], name: str) -> None:
    assert name_of(title, lambda: params) == name


@pytest.mark.full
def test_a_runs_name_is_of_its_recipe_and_its_title_and_id_stay(tmp_path: Path) -> None:
    benchmark = Benchmark.load(tiny_library.write(tmp_path / "library", ()))
    store = Store(tmp_path / "store", libraries=())
    recipe = find_preset("ties").recipe(benchmark.pretrained, benchmark.experts, large=True)
    run = execute(recipe, store, benchmark=benchmark, evaluate=False, keep_model=False)
    assert (run.title, run.name) == ("Ties", "TIES (sum, λ 0.4)")
    own = Recipe.build("ties", {"scaling": 0.7}, [], benchmark.pretrained, benchmark.experts, "Mine")
    run = execute(own, store, benchmark=benchmark, evaluate=False, keep_model=False)
    assert run.title == run.name == "Mine"


def test_no_two_names_in_lists_are_alike_but_for_capitals() -> None:
    names = [one.name_in_lists() for one in (*PRESETS, *list_partners())]
    assert len({name.casefold() for name in names}) == len(names)
    assert find_preset("ties").name_in_lists(large=True) == "TIES (sum, λ 0.4)"
    assert find_preset("ties_mean").with_edit(LWPTV).name_in_lists() == "TIES-Merging (mean, λ 1) w/ LwPTV"
    assert not [name for name in names if name.startswith("Ties")]
