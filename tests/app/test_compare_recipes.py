"""How the recipes of two runs differ: line by line, in a sentence, and which runs are nearest to one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_library

from app.views.compare import recipe_lines
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    return Benchmark.load(tiny_library.write(tmp_path_factory.mktemp("library"), ()))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"), libraries=())


def stored(store: Store, benchmark: Benchmark, merge: str, **rest: Any) -> Run:
    options = {"pretrained": benchmark.pretrained, "experts": benchmark.experts, **rest}
    recipe = Recipe.build(merge, **options)
    return execute(recipe, store, benchmark=benchmark, evaluate=False, keep_model=False)


def test_only_lines_that_differ_are_listed(store: Store, benchmark: Benchmark) -> None:
    ties = stored(store, benchmark, "ties")
    other = stored(store, benchmark, "ties", params={"density": 0.3, "aggregation": "mean"}, edits=["dare"])
    assert recipe_lines.list_differences(ties, ties) == []
    found = {(line.step, line.setting): (line.a, line.b) for line in recipe_lines.list_differences(ties, other)}
    assert found["Edit", "Method"][0] == "—" and found["Edit", "Method"][1].startswith("DARE")
    (density,) = [cells for cells in found.values() if cells == ("0.2", "0.3")]
    (aggregation,) = [cells for cells in found.values() if cells == ("sum", "mean")]
    assert density and aggregation and len(found) == 3


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (("ties", {}, []), ("ties", {}, ["dare"]), "Adds DARE (drop rate 0.5, seed 0)"),
        (("ties", {}, ["dare"]), ("ties", {}, []), "Removes DARE (drop rate 0.5, seed 0)"),
        (
            ("ties", {}, ["dare"]),
            ("ties", {}, ["magnitude"]),
            "Magnitude pruning instead of DARE",
        ),
        (
            ("ties", {}, []),
            ("weight_averaging", {}, []),
            "Weight Averaging instead of TIES",
        ),
        (
            ("task_arithmetic", {}, []),
            ("task_arithmetic", {"scaling": 0.5}, ["dare"]),
            "Adds DARE (drop rate 0.5, seed 0); Task Arithmetic: scaling coefficient 0.3 → 0.5",
        ),
        (
            ("ties", {}, []),
            ("ties", {"density": 0.3, "aggregation": "mean", "scaling": 1.0, "scope": "tensor"}, []),
            "TIES: density 0.2 → 0.3; aggregation sum → mean; scaling coefficient 0.3 → 1; and 1 more",
        ),
        (("ties", {}, []), ("ties", {}, []), "The same recipe"),
    ],
)
def test_a_sentence_says_what_b_does_otherwise(
    store: Store, benchmark: Benchmark, a: tuple[Any, ...], b: tuple[Any, ...], said: str
) -> None:
    one, other = (stored(store, benchmark, merge, params=params, edits=edits) for merge, params, edits in (a, b))
    assert recipe_lines.differences_in_words(recipe_lines.list_differences(one, other)) == said


def test_a_setting_that_names_itself_needs_no_step(store: Store, benchmark: Benchmark) -> None:
    few, more = (stored(store, benchmark, "lot", exemplars={"per_task": count}) for count in (4, 8))
    assert recipe_lines.differences_in_words(recipe_lines.list_differences(few, more)) == "Exemplars per task 4 → 8"


def test_experts_order_and_digests_are_listed(store: Store, benchmark: Benchmark, tmp_path: Path) -> None:
    experts = benchmark.experts
    whole = stored(store, benchmark, "task_arithmetic")
    some = stored(store, benchmark, "task_arithmetic", experts=dict(list(experts.items())[:3]))
    turned = stored(store, benchmark, "task_arithmetic", experts=dict(reversed(experts.items())))
    replaced = tiny.write(tmp_path / "circles.safetensors", tiny.expert(tiny.pretrained(), 99))
    changed = stored(store, benchmark, "task_arithmetic", experts=experts | {"circles": str(replaced)})
    (line,) = recipe_lines.list_differences(whole, some)
    assert (line.step, line.a, line.b) == ("Experts", "leaves", "—")
    (line,) = recipe_lines.list_differences(whole, turned)
    assert line.setting == "Order" and line.b.startswith("leaves")
    (line,) = recipe_lines.list_differences(whole, changed)
    assert (line.step, line.setting) == ("Checkpoint", "circles") and line.a != line.b
    assert any("different experts" in sentence for sentence in recipe_lines.incomparable_in_words(whole, some))
    assert recipe_lines.incomparable_in_words(whole, changed) == []


def test_exemplars_are_listed(store: Store, benchmark: Benchmark) -> None:
    few = stored(store, benchmark, "lot", exemplars={"per_task": 4})
    more = stored(store, benchmark, "lot", exemplars={"per_task": 8, "seed": 3})
    assert [(line.setting, line.a, line.b) for line in recipe_lines.list_differences(few, more)] == [
        ("Exemplars per task", "4", "8"), ("Exemplar seed", "0", "3"),
    ]  # fmt: skip


def test_images_to_learn_from_are_listed_in_words(store: Store, benchmark: Benchmark) -> None:
    short = {"steps": 1, "batch": 4}
    held_out, scored = (
        stored(store, benchmark, "adamerging", params=short, test_data={"split": split})
        for split in ("choosing", "reporting")
    )
    (line,) = recipe_lines.list_differences(held_out, scored)
    assert (line.a, line.b) == ("other test images", "† the scored images, as the papers do")


def test_another_activation_is_listed(store: Store, benchmark: Benchmark) -> None:
    one, other = (stored(store, benchmark, "ties", activation=named) for named in ("", "gelu"))
    (line,) = recipe_lines.list_differences(one, other)
    assert (line.step, line.setting, line.a, line.b) == ("Models", "Activation", "from the files", "gelu")


def test_the_nearest_runs_come_first(store: Store, benchmark: Benchmark) -> None:
    ties = stored(store, benchmark, "ties")
    near = stored(store, benchmark, "ties", params={"density": 0.4})
    far = stored(store, benchmark, "pcb", edits=["dare"])
    alien = stored(store, benchmark, "ties", experts=dict(list(benchmark.experts.items())[:2]))
    found = recipe_lines.find_nearest_runs(ties, [far, alien, ties, near])
    assert [run.id for run, _ in found] == [near.id, far.id]
    assert len(found[0][1]) == 1


def test_a_recipe_of_another_version_is_no_error(store: Store, benchmark: Benchmark) -> None:
    ties = stored(store, benchmark, "ties")
    unknown = replace(ties)
    unknown.__dict__["recipe_yaml"] = "version: 1\nmerge: of_tomorrow\n"
    assert recipe_lines.has_known_methods(ties) and not recipe_lines.has_known_methods(unknown)
    assert recipe_lines.list_differences(ties, unknown) == []
