"""Sweeps: what can be varied, what makes no sense, and how they are stored and read back."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_sweeps import RATIO, recipe, sweep, value_of

from merging.base.errors import MergingError, ParameterError, RecipeError, StoreError
from merging.images.benchmarks.benchmark import Benchmark
from merging.methods import registry
from merging.methods.params import Bound
from merging.recipes.presets import PRESETS
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_storage, sweep_tables
from merging.study.sweeps import sweep as sweep_module
from merging.study.sweeps import sweep_session as sweep_compute
from merging.study.sweeps import sweep_target as axes
from merging.study.sweeps.sweep import LINE, PLANE, Axis, Sweep
from merging.study.sweeps.sweep_target import EXPERTS, PLANE_VALUES, POSITION

# What can be varied

PLANE_AXES = (Axis("alpha", (0.0, 1.0)), Axis("beta", (0.0, 1.0)))


def test_every_numeric_parameter_of_every_preset_can_be_varied(tiny_benchmark: Benchmark) -> None:
    """Values that are offered are valid, reach the recipe, and nothing but numbers is offered."""
    for preset in PRESETS:
        base = preset.recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
        known = axes.list_targets([base])
        numeric = [b for _, step in base.stages for b in step.params.bounds().values() if b.kind in axes.NUMBER_KINDS]
        of_steps = [t for t in known if "." in t.name and t.name.partition(".")[0] not in ("exemplars", "test_data")]
        assert len(of_steps) == len(numeric)
        for target in known:
            values = axes.propose_values(target.bound)
            assert 2 <= len(values) <= 20, (preset.key, target.name, values)
            assert axes.check_values(values, target.bound, "x") == values
            for value in (values[0], values[-1]):
                try:
                    changed = axes.vary_recipe(base, target.name, value)
                except RecipeError:
                    continue  # a value with which a chain makes no sense, such as trimming to nothing before TIES
                assert (
                    len(changed.experts) if target.name == EXPERTS else value_of(changed, target.name)
                ) == pytest.approx(value)


def test_offered_values_are_round() -> None:
    share = Bound(kind="real", default=0.5, label="x", help="", low=0.0, high=1.0)
    assert axes.propose_values(share) == tuple(round(i / 10, 10) for i in range(11))
    assert axes.propose_values(replace(share, open_low=True)) == tuple(round(i / 10, 10) for i in range(1, 11))
    assert {0.0, 1.0, 1.5} <= set(axes.propose_values(POSITION)) and {0.0, 1.0} <= set(PLANE_VALUES)
    whole = Bound(kind="integer", default=4, label="x", help="", low=1, slider=(1, 64))
    assert all(value.is_integer() for value in axes.propose_values(whole))


@pytest.mark.parametrize(
    ("text", "values"),
    [("0:1:0.25", (0, 0.25, 0.5, 0.75, 1)), ("0, 0.5;1", (0, 0.5, 1)), ("0.1:0.35:0.1", (0.1, 0.2, 0.3))],
)
def test_values_are_read_and_written(text: str, values: tuple[float, ...]) -> None:
    assert axes.parse_values(text, "x") == pytest.approx(values)
    assert axes.parse_values(axes.write_values(values), "x") == pytest.approx(values)


@pytest.mark.parametrize("text", ["a lot", "0:1:0", "1:0:0.1", "0:1", "0:1:1e-9", "0:inf:1", "nan:1:0.1"])
def test_values_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ParameterError, match=r"x: write values as 0:1:0\.1"):
        axes.parse_values(text, "x")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (
            {"axes": (Axis("lwptv.prune_ratio", (0.0, 1.5)),)},
            r"lwptv.prune_ratio must be a number in \[0, 1\]. Got 1.5",
        ),
        ({"axes": (Axis("lwptv.prune_ratio", (float("nan"), 0.5)),)}, "Got nan instead"),
        ({"axes": (Axis("lwptv.prune_ratio", (0.5, 0.5)),)}, "takes 2 to 201 different values; got 1"),
        ({"axes": (Axis("lwptv.prune_rato", (0.0, 1.0)),)}, "Did you mean 'lwptv.prune_ratio'"),
        ({"axes": (Axis("lwptv.shared", (0.0, 1.0)),)}, "cannot be varied in the recipe"),
        ({"axes": (Axis(EXPERTS, (1.0, 9.0)),)}, r"whole number in \[1, 4\]. Got 9"),
        ({"axes": (Axis(EXPERTS, (1.0, 1.5)),)}, "Got 1.5 instead"),
        ({"axes": (RATIO, RATIO)}, "same thing twice"),
        ({"axes": ()}, "varies 1 or 2; got 0"),
        ({"kind": "tour"}, "one of values, line, plane"),
        ({"split": "chosing"}, "Did you mean 'choosing'"),
        ({"images": -1}, "whole numbers of at least 0"),
        ({"kind": LINE, "axes": (Axis("alpha", (0.0, 9.0)),)}, "alpha must be a number in"),
        ({"kind": PLANE, "axes": PLANE_AXES, "through": ("pretrained", "circles", "digit")}, "Did you mean 'digits'"),
        ({"kind": PLANE, "axes": PLANE_AXES}, "goes through 3 models; got 0"),
        ({"kind": LINE, "axes": PLANE_AXES[:1], "through": ("merged",)}, "goes through 2 models; got 1"),
        ({"kind": LINE, "axes": PLANE_AXES[:1], "through": ("digits", "digits")}, "same model twice"),
        ({"kind": LINE, "axes": PLANE_AXES[1:], "through": ("digits", "merged")}, "varies alpha; got beta"),
        ({"kind": LINE, "axes": PLANE_AXES[:1], "through": ("digits", "merged 2")}, "no model 'merged 2'"),
        ({"through": ("digits",)}, "kind values goes through 0 models; got 1"),
        ({"recipes": ()}, "1 to 8 recipes; got 0"),
        (
            {"axes": tuple(Axis(t, tuple(np.linspace(0, 1, 40))) for t in (RATIO.target, "task_arithmetic.scaling"))},
            "at most 1,000 points here; this one has 1,600",
        ),
    ],
)
def test_a_sweep_that_makes_no_sense_says_so(tiny_benchmark: Benchmark, said: dict[str, Any], error: str) -> None:
    with pytest.raises(MergingError, match=error):
        sweep(tiny_benchmark, **said)


def test_several_recipes_vary_what_they_share(tiny_benchmark: Benchmark) -> None:
    ours = [recipe(tiny_benchmark, merge) for merge in ("task_arithmetic", "ties")]
    assert [target.name for target in axes.list_targets(ours)] == ["lwptv.prune_ratio", EXPERTS, "scaling"]
    made = sweep(tiny_benchmark, "task_arithmetic", "ties", axes=(Axis("scaling", (0.1, 0.2)),))
    assert {value_of(place.recipe, "scaling") for place in made.points} == {0.1, 0.2}
    with pytest.raises(RecipeError, match="takes one recipe"):
        sweep(tiny_benchmark, "task_arithmetic", "ties", axes=(RATIO, Axis("scaling", (0.1, 0.2))))


def test_the_second_step_of_a_key_has_a_name_of_its_own(tiny_benchmark: Benchmark) -> None:
    twice = recipe(tiny_benchmark, edits=[("dare", {"drop_rate": 0.2}), ("dare", {"drop_rate": 0.4, "seed": 1})])
    changed = axes.vary_recipe(twice, "dare#2.drop_rate", 0.9)
    assert [step.params.values()["drop_rate"] for step in changed.edits] == [0.2, 0.9]
    assert axes.vary_recipe(twice, "dare.drop_rate", 0.9).edits[0].params.values()["drop_rate"] == 0.9


def test_experts_come_in_one_seeded_order(tiny_benchmark: Benchmark) -> None:
    base = recipe(tiny_benchmark)
    chosen = [{name for name, _ in axes.vary_recipe(base, EXPERTS, count, seed=3).experts} for count in (1, 2, 3, 4)]
    assert [len(names) for names in chosen] == [1, 2, 3, 4]
    assert all(a < b for a, b in pairwise(chosen))
    orders = {tuple(axes.vary_recipe(base, EXPERTS, 2, seed).experts) for seed in range(8)}
    assert len(orders) > 1


def test_exemplars_are_varied_where_a_chain_needs_them(tiny_benchmark: Benchmark) -> None:
    lot = recipe(tiny_benchmark, "lot", edits=[])
    assert axes.vary_recipe(lot, "exemplars.per_task", 4).exemplars.per_task == 4  # type: ignore[union-attr]
    assert not [target for target in axes.list_targets([recipe(tiny_benchmark)]) if "exemplars" in target.name]


# What a sweep is


@pytest.mark.parametrize("kind", ["values", LINE, PLANE])
def test_a_sweep_reads_back(tiny_benchmark: Benchmark, store: Store, kind: str) -> None:
    said: dict[str, Any] = {
        "values": {},
        LINE: {"axes": (Axis("alpha", (0.0, 0.5, 1.0)),)},
        PLANE: {"axes": PLANE_AXES, "through": ("pretrained", "circles", "merged")},
    }[kind]
    made = sweep(tiny_benchmark, kind=kind, seed=4, images=8, title="Mine: a <b>title</b>", **said)
    assert Sweep.from_yaml(made.to_yaml()) == made
    assert replace(made, title="").id == made.id != replace(made, seed=5).id
    sweep_storage.store_sweep(made, store)
    assert sweep_storage.find_sweep(store, made.id) == made
    sweep_storage.store_sweep(replace(made, title="Renamed"), store)
    assert [found.title for found in sweep_storage.list_sweeps(store).values()] == ["Renamed"]
    sweep_storage.delete_sweep(store, made.id)
    assert not sweep_storage.list_sweeps(store)
    with pytest.raises(StoreError, match="cannot be deleted"):
        sweep_storage.delete_sweep(store, made.id)


def test_precomputed_sweeps_are_listed_by_title_whenever_their_files_were_written(
    tiny_benchmark: Benchmark, tmp_path: Path
) -> None:
    library = Store(tmp_path / "library", libraries=())
    own = Store(tmp_path / "own", libraries=(tmp_path / "library" / "runs",))
    made = {title: sweep(tiny_benchmark, seed=seed, title=title) for seed, title in enumerate(("B", "", "A"))}
    for each in made.values():
        sweep_storage.store_sweep(each, library)
    assert [each.title for each in sweep_storage.list_sweeps(own).values()] == ["", "A", "B"]
    sweep_storage.store_sweep(made["B"], own)  # own ones come first
    assert [each.title for each in sweep_storage.list_sweeps(own).values()] == ["B", "", "A"]


STORED = """version: 1
kind: values
axes: {lwptv.prune_ratio: [0.0, 0.5]}
split: choosing
images: 128
seed: 0
recipes:
- {version: 1, pretrained: p, experts: {a: x}, edits: [{lwptv: {}}], merge: {ties: {}}}
"""


def test_sweeps_stored_by_earlier_versions_keep_their_ids() -> None:
    """Recipes did not write `count_dead_params: false` then; the ids are those that version 0.1 gave."""
    assert Sweep.from_yaml(STORED).id == "d12ddc307c82"
    assert Sweep.from_yaml(Sweep.from_yaml(STORED).to_yaml()).id == "d12ddc307c82"
    assert Sweep.from_yaml(STORED.replace("experts:", "count_dead_params: true, experts:")).id == "3de7c02aa796"


def test_sweeps_that_cannot_be_read_are_left_out(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark)
    sweep_storage.store_sweep(made, store)
    folder = store.root / sweep_storage.FOLDER
    (folder / "000000000000.yaml").write_text(made.to_yaml())  # says that it is another one
    (folder / "111111111111.yaml").write_text("recipes: [&a {}, *a]")
    (folder / "222222222222.yaml").write_bytes(b"\xff")
    assert list(sweep_storage.list_sweeps(store)) == [made.id]
    for bad in ("333333333333", "../../etc/passwd"):
        with pytest.raises(StoreError):
            sweep_storage.find_sweep(store, bad)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"axis": {}}, "Did you mean 'axes'"),
        ({"version": 9}, "is of version 9; this program reads version 1"),
        ({"recipes": "ties"}, "recipes is a list"),
        ({"axes": {"experts": ["two"]}}, "a list of numbers"),
        ({"axes": {"experts": [True, False]}}, "a list of numbers"),
        ({"kind": ["values"]}, "kind is a piece of text"),
        ({"split": True}, "split is a piece of text"),
        ({"images": "many"}, "images is a whole number"),
        ({"seed": 1.5}, "seed is a whole number"),
    ],
)
def test_a_malformed_sweep_says_what_is_wrong(tiny_benchmark: Benchmark, change: dict[str, Any], error: str) -> None:
    with pytest.raises(RecipeError, match=error):
        Sweep.from_yaml(json.dumps(sweep(tiny_benchmark).to_plain() | change))


def test_the_ends_and_the_middle_come_first(tiny_benchmark: Benchmark) -> None:
    made = sweep(tiny_benchmark, axes=(Axis(RATIO.target, tuple(i / 8 for i in range(9))),))
    values = [place.values[0] for place in made.points]
    assert sorted(values) == [i / 8 for i in range(9)]
    assert set(values[:3]) == {0.0, 0.5, 1.0}


# The command, and the job that runs it


def test_methods_are_found_by_sweeps_without_being_named() -> None:
    """No file of the sweeps knows a method or one of its parameters by name."""
    keys = {method.key for method in registry.list_methods()}
    for module in (axes, points, sweep_module, sweep_compute, sweep_tables):
        source = Path(str(module.__file__)).read_text("utf-8")
        assert not [key for key in keys if f'"{key}"' in source], module.__name__
