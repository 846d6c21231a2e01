"""Maps of models: planted points come back, products are those of plain numpy, and which runs a map has."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from merging.base.errors import CheckpointError, StoreError
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.families import UNMERGED
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.analysis.measurement_subject import Subject, SubjectKind
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.sweeps import weighted_sum
from merging.study.weight_space import model_map
from merging.tasks.context import QUIET, Context

CPU = Context(device="cpu")


def squared_distances(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.square(points[:, None] - points[None]).sum(axis=-1)


def flat_changes(models: dict[str, Checkpoint], pretrained: Checkpoint) -> NDArray[np.float64]:
    """The changes (models, scalars) of models, read whole, of the tensors that merges may change."""
    names = [one.name for one in pretrained.parameters if one.role not in UNMERGED]
    base = np.concatenate([pretrained.read(name).double().numpy().ravel() for name in names])
    return np.stack(
        [np.concatenate([model.read(name).double().numpy().ravel() for name in names]) - base
         for model in models.values()]
    )  # fmt: skip


def test_planted_points_come_back() -> None:
    points = np.random.default_rng(0).normal(size=(9, 2)) * [5, 1]
    scaling = model_map.scale_classically(points @ points.T)
    assert squared_distances(scaling.positions) == pytest.approx(squared_distances(points))
    assert scaling.positions.mean(axis=0) == pytest.approx([0, 0], abs=1e-12) and scaling.shares.sum() == pytest.approx(
        1
    )
    assert scaling.shares[0] > scaling.shares[1] > 0
    moved = points + np.array([100.0, -7.0])  # only distances count
    assert model_map.scale_classically(moved @ moved.T).positions == pytest.approx(scaling.positions, abs=1e-9)


def test_a_third_direction_is_said_to_be_left_out() -> None:
    points = np.diag([3.0, 2.0, 1.0])
    points = np.concatenate([points, -points])
    assert model_map.scale_classically(points @ points.T).shares == pytest.approx([9 / 14, 4 / 14])
    assert model_map.scale_classically(np.ones((1, 1))).positions == pytest.approx(np.zeros((1, 2)))


def test_products_do_not_depend_on_pieces(tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    pretrained = tiny_benchmark.open_pretrained()
    models = {name: open_checkpoint(path, name) for name, path in tiny_benchmark.experts.items()}
    changes = flat_changes(models, pretrained)
    for scalars in (1 << 22, 100):
        monkeypatch.setattr(weighted_sum, "PIECE_SCALARS", scalars)
        gram, counted = weighted_sum.sum_products(pretrained, list(models.values()), QUIET)
        assert gram == pytest.approx(changes @ changes.T) and counted == changes.shape[1]
    doubled = MappingCheckpoint({name: 2 * pretrained.read(name) for name in pretrained.infos}, "doubled")
    assert weighted_sum.sum_products(pretrained, [pretrained, doubled], QUIET)[0][0].tolist() == [0, 0]


def test_a_map_has_experts_pretrained_and_runs(store: Store, library: Path) -> None:
    benchmark = Benchmark.load(library)
    runs = [run for run in store.list_runs() if run.kind == "merge"]
    mapped = [run for run in runs if model_map.is_mappable(run, runs[0])]
    measured = measure.measure("model_map", store, benchmark, runs[0].id, context=CPU)
    models, gram = measured.table("models"), measured.array("gram")
    assert set(models["model"]) == {"pretrained", *runs[0].experts, *(run.id for run in mapped)}
    assert gram.shape == (len(models), len(models)) and not gram[0].any() and measured.notes["left_out"] == 0
    assert measured.notes["failed"] == []
    experts = {name: open_checkpoint(benchmark.experts[name], name) for name in runs[0].experts}
    changes = flat_changes(experts, benchmark.open_pretrained())
    inner = slice(1, 1 + len(experts))
    assert gram[inner, inner] == pytest.approx(changes @ changes.T)
    table, shares = model_map.tabulate_map(models, gram, {"pretrained": "Pretrained"})
    assert table["length"][0] == 0 and table["label"][0] == "Pretrained" and 0 < shares.sum() <= 1 + 1e-9
    distances = np.sqrt(squared_distances(changes)) + np.diag(np.full(len(changes), np.inf))
    assert (table["distance"][inner] <= distances.min(axis=1) + 1e-9).all()


def test_runs_with_modules_several_models_or_other_experts_are_not_on_it(store: Store) -> None:
    run = next(run for run in store.list_runs() if run.kind == "merge")
    assert model_map.is_mappable(run, run)
    for other in (
        replace(run, per_task=True), replace(run, adapt="surgery"), replace(run, kind="expert"),
        replace(run, experts=run.experts[1:]),
    ):  # fmt: skip
        assert not model_map.is_mappable(other, run)
    assert model_map.is_mappable(replace(run, experts=run.experts[::-1]), run)


def test_a_run_is_merged_again_from_the_files_of_the_measured_one(
    store: Store, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark, run = Benchmark.load(library), next(run for run in store.list_runs() if run.kind == "merge")
    copies = {name: tmp_path / f"{name}.safetensors" for name in run.experts}
    for name, path in copies.items():
        shutil.copy(benchmark.experts[name], path)
    recipe = Recipe.build(
        "task_arithmetic",
        {"scaling": 0.37},
        [],
        benchmark.pretrained,
        {name: str(path) for name, path in copies.items()},
    )
    peer = execute(recipe, store, evaluate=False, keep_model=False)
    for path in copies.values():
        path.unlink()
    own = Subject(store, benchmark, run.id, SubjectKind.EXPERTS)
    measured = model_map.measure_model_map(own, CPU)
    models = measured.tables["models"]["model"].tolist()
    assert peer.id in models and measured.notes["failed"] == []
    changes = flat_changes({name: open_checkpoint(benchmark.experts[name], name) for name in run.experts},
                           benchmark.open_pretrained())  # fmt: skip
    squared = np.square(0.37 * changes.sum(axis=0)).sum()
    assert np.diag(measured.arrays["gram"])[models.index(peer.id)] == pytest.approx(squared, rel=1e-2)

    def fail(one: Recipe, *arguments: Any, **options: Any) -> Run:
        if one.merge == recipe.merge:
            raise CheckpointError("it is gone")
        return execute(one, *arguments, **options)

    monkeypatch.setattr(model_map, "execute", fail)
    warnings = list[str]()
    measured = model_map.measure_model_map(own, replace(CPU, warn=warnings.append))
    assert measured.notes["failed"] == [peer.id] and warnings == [f"Run {peer.id} is not on the map: it is gone"]
    assert measured.tables["models"]["model"].tolist() == [model for model in models if model != peer.id]
    monkeypatch.setattr(model_map, "free_bytes", lambda folder: 1000)
    with pytest.raises(StoreError, match="of disk until it is measured; 1 kB are free"):
        model_map.measure_model_map(own, CPU)


def test_a_run_that_learns_is_not_merged_again(store: Store) -> None:
    run = next(run for run in store.list_runs() if run.kind == "merge")
    assert run.recipe is not None and model_map.is_quick(replace(run, models={}))
    learning = replace(run, id="ffffffffffff", models={})
    vars(learning)["recipe"] = type("Recipe", (), {"learns": True})()
    assert not model_map.is_quick(learning) and model_map.list_mapped([learning, run]) == [run]


def test_the_nearest_model_is_named() -> None:
    models = pd.DataFrame({"model": ["pretrained", "a", "b"], "kind": ["pretrained", "expert", "expert"]})
    changes = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]])
    table, _ = model_map.tabulate_map(models, changes @ changes.T, {"a": "A"})
    assert table["nearest"].tolist() == ["A", "b", "A"] and table["distance"].tolist() == pytest.approx([5, 1, 1])
    assert table["length"].tolist() == pytest.approx([0, 5, 34**0.5])


def test_models_far_beyond_the_experts_are_left_out_of_the_near_map() -> None:
    models = pd.DataFrame({"model": ["pretrained", "a", "m", "n"], "kind": ["pretrained", "expert", "merge", "merge"]})
    changes = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0], [3.0, 0.5]])
    gram = changes @ changes.T
    near = model_map.find_near(models, gram)
    assert near.tolist() == [True, True, True, False]
    assert model_map.find_near(models, gram, "n").all()  # the chosen run is always on its map
    table, shares = model_map.tabulate_map(models, gram, {}, near)
    assert table["run"].tolist() == ["pretrained", "a", "m"] and table["nearest"].tolist() == ["a", "n", "pretrained"]
    assert squared_distances(table[["x", "y"]].to_numpy()) == pytest.approx(squared_distances(changes[:3]))
    assert shares.sum() == pytest.approx(1)
