"""Runs in a list have different names, which say what differs, and pickers show these names."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.reading.runs import run_names
from merging.base import settings
from merging.recipes.recipe import Recipe
from merging.study.runs.run_store import Store

EXPERTS = {name: f"{name}.safetensors" for name in ("land", "signs", "flags", "mine", "other")}


@dataclass
class NamedRun:
    id: str
    name: str
    recipe: Recipe
    seed: int | None = None
    adapts_on_test: bool = False
    per_task: bool = False
    needs_task: bool = False
    experts: tuple[str, ...] = field(init=False)
    recipe_yaml: str = field(init=False)

    def __post_init__(self) -> None:
        self.experts, self.recipe_yaml = tuple(dict(self.recipe.experts)), self.recipe.to_yaml()


def run(number: int, name: str, merge: str = "ties", edits: Any = (), experts: Any = EXPERTS, **params: Any) -> Any:
    recipe = Recipe.build(merge, params, list(edits), "pretrained.safetensors", experts)
    return NamedRun(f"{number:012x}", name, recipe)


def names(*runs: Any) -> list[str]:
    return list(run_names.name_runs(runs).values())


def test_runs_of_one_name_state_the_values_in_which_they_differ() -> None:
    first, second = run(1, "TIES", scaling=0.3), run(2, "TIES", scaling=0.5)
    assert names(first, second) == ["TIES (λ 0.3)", "TIES (λ 0.5)"]
    third = run(3, "TIES", scaling=0.5, density=0.4)
    assert names(first, second, third)[2] == "TIES (density 0.4)"
    assert names(first, second, third)[1] == "TIES (density 0.2, λ 0.5)"


def test_names_that_are_nearly_the_same_differ_in_words() -> None:
    plain, mean = run(1, "Ties"), run(2, "TIES-Merging", aggregation="mean", scaling=1.0)
    assert names(plain, mean) == ["Ties (aggregation sum)", "TIES-Merging (aggregation mean)"]
    stated = run(3, "TIES-Merging (mean, λ 1)", aggregation="mean", scaling=1.0)
    assert names(plain, stated) == ["Ties (aggregation sum)", "TIES-Merging (mean, λ 1)"]


def test_chains_experts_and_ids_tell_apart_what_values_do_not() -> None:
    plain, pruned = run(1, "Mine"), run(2, "Mine", edits=["lwptv"])
    assert names(plain, pruned) == ["Mine (TIES)", "Mine (LwPTV → TIES)"]
    few = run(3, "Mine", experts={name: EXPERTS[name] for name in ("land", "signs", "flags")})
    assert names(plain, few) == ["Mine (5 experts)", "Mine (without mine and other)"]
    assert names(plain, run(0xABCDEF000000, "Mine")) == ["Mine (000000)", "Mine (abcdef)"]


@pytest.mark.parametrize("other", ["TIES++", "TSV-Merge", "TIES w/ LwPTV", "DARE-TIES"])
def test_other_names_stay_as_they_are(other: str) -> None:
    assert names(run(1, "TIES"), run(2, other, scaling=1.0)) == ["TIES", other]


def test_names_of_the_library_are_different_and_its_own(tmp_path: Path) -> None:
    runs = Store(tmp_path / "store", libraries=(settings.LIBRARY_FOLDER,)).list_runs()
    merges = [one for one in runs if one.kind == "merge"]
    found = run_names.name_runs(merges)
    assert len(set(found.values())) == len(merges) > 80
    assert [found[one.id] for one in merges] == [one.name for one in merges]


def test_labels_of_pickers_have_the_names_and_the_ids() -> None:
    first, second = run(1, "TIES", scaling=0.3), run(2, "TIES", scaling=0.5)
    second.adapts_on_test = True
    assert list(run_names.label_runs([first, second]).values()) == [
        "TIES (λ 0.3)  ·  000000", "TIES (λ 0.5) †  ·  000000",
    ]  # fmt: skip
