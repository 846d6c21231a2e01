"""Signs are measured once for all runs on the same experts, and the pictures draw the tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import save_file

import viz
from app.views.conflicts import sign_agreement as conflict_signs
from merging.base.errors import Cancelled, CheckpointError, StoreError
from merging.base.progress import Progress
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.families import LINEAR_MAPS
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.analysis import measurement_store, measurement_subject
from merging.study.analysis.measurement_registry import find_measurement
from merging.study.analysis.measurement_store import StoredMeasurement, entry_name, have_same_measurement
from merging.study.measurements.signs import DENSITIES, SPACES, inspect_layer, mean_agreement
from merging.study.runs.execute import execute
from merging.study.runs.run import have_same_models
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

SIGNS = find_measurement("signs")

# As a measurement


def uniform(benchmark: Benchmark, experts: dict[str, str] | None = None, merge: str = "weight_averaging") -> Recipe:
    return Recipe.build(merge, {}, [], benchmark.pretrained, experts or benchmark.experts)


@pytest.fixture(scope="module")
def measured(
    tmp_path_factory: pytest.TempPathFactory, tiny_benchmark: Benchmark
) -> tuple[Store, list[str], StoredMeasurement]:
    """A store with two merges of the same experts, one of fewer, and what was measured of the first."""
    store = Store(tmp_path_factory.mktemp("signs"), libraries=())
    fewer = dict(list(tiny_benchmark.experts.items())[:3])
    recipes = [uniform(tiny_benchmark), uniform(tiny_benchmark, merge="ties"), uniform(tiny_benchmark, fewer)]
    ids = [execute(r, store, benchmark=tiny_benchmark, evaluate=False, keep_model=False).id for r in recipes]
    return store, ids, measure.measure("signs", store, tiny_benchmark, ids[0], context=Context(device="cpu"))


def test_runs_on_the_same_experts_share_what_is_measured(
    measured: tuple[Store, list[str], StoredMeasurement], tiny_benchmark: Benchmark
) -> None:
    store, (first, second, fewer), found = measured
    assert measurement_store.find_measurement_result("signs", store, tiny_benchmark, second) == found
    assert measure.measure("signs", store, tiny_benchmark, second, context=Context(cancel=lambda: True)) == found
    assert measurement_store.find_measurement_result("signs", store, tiny_benchmark, fewer) is None
    assert measurement_store.find_measurement_result("signs", store, tiny_benchmark, "0" * 12) is None
    run, other, less = map(store.get_run, (first, second, fewer))
    assert have_same_measurement(SIGNS, run, other) and have_same_models(run, other)
    assert not have_same_measurement(SIGNS, run, less) and not have_same_models(run, less)


def test_only_a_measurement_of_all_runs_is_shared_with_experts_in_another_order(
    measured: tuple[Store, list[str], StoredMeasurement], tiny_benchmark: Benchmark, tmp_path: Path
) -> None:
    store, (first, *_), _ = measured
    backward, other_store = dict(reversed(tiny_benchmark.experts.items())), Store(tmp_path, libraries=())
    turned = execute(uniform(tiny_benchmark, backward), other_store, evaluate=False, keep_model=False)
    run = store.get_run(first)
    assert have_same_models(turned, run) and turned.experts == run.experts[::-1]
    for key, is_shared in (("signs", False), ("model_map", True)):
        kind = find_measurement(key)
        names = [entry_name(kind, one, tiny_benchmark, id_) for one, id_ in ((store, first), (other_store, turned.id))]
        assert have_same_measurement(kind, turned, run) == is_shared == (names[0] == names[1])


def test_the_tables_are_those_of_every_layer(
    measured: tuple[Store, list[str], StoredMeasurement], tiny_benchmark: Benchmark
) -> None:
    _, _, found = measured
    layers = found.table("layers")
    assert set(layers["role"]) == {"linear", "projection"}
    assert (found.notes["layers"], found.notes["tasks"]) == (len(layers), len(tiny_benchmark.experts))
    base, tuned = tiny.family()
    name = "visual.transformer.resblocks.1.mlp.c_fc.weight"
    half = {key: value.half().float() for key, value in base.items()}
    vectors = torch.stack([expert[name].half().float() - half[name] for expert in tuned.values()])
    live = inspect_layer(vectors)
    order = int(layers.set_index("tensor").loc[name, "order"])
    agreed = found.table("agreement").set_index(["order", "space", "density"]).loc[order]
    for key, counts in live.votes.items():
        said = mean_agreement(counts)
        expected = [said.mean, said.null, said.density, said.positions]
        np.testing.assert_allclose(agreed.loc[key].to_numpy(float), expected, rtol=1e-6)
    elected = found.table("elections").set_index(["order", "density"]).loc[(order, 0.2)]
    assert elected["kept"].tolist() == live.elections[0.2].kept.tolist()
    assert list(elected["expert"]) == list(tiny_benchmark.experts)
    weighted = found.table("agreement").assign(total=lambda rows: rows["mean"] * rows["positions"])
    sums = weighted.groupby(["space", "density"])[["total", "positions"]].sum()
    for (space, density), counts in conflict_signs.read_votes(found).items():
        said = mean_agreement(counts)
        assert said.positions == sums.loc[(space, density), "positions"]
        assert said.mean == pytest.approx(sums.loc[(space, density), "total"] / said.positions, rel=1e-5)


@pytest.mark.parametrize("way", [1, -1])
def test_what_survives_is_what_ties_merges(tmp_path: Path, tiny_benchmark: Benchmark, way: int) -> None:
    """Entries tie at the edge of the trim; votes tie, too, and take the sign that wins more of the model.

    Tensors that are no linear maps decide here which one that is.
    """
    base, tuned = tiny.family()
    base = {name: (64 * value).round() / 64 for name, value in base.items()}  # so that half precision is exact
    names = list(tuned)[:3]
    vectors = {name: torch.stack([(64 * (tuned[e][name] - base[name])).round() / 64 for e in names]) for name in base}
    others = [p.name for p in tiny.checkpoint(base).parameters if p.role not in LINEAR_MAPS]
    vectors |= {name: way * vectors[name].abs() + way / 64 for name in others}
    paths = {"pretrained": base} | {e: {n: base[n] + vectors[n][k] for n in base} for k, e in enumerate(names)}
    for name, state in paths.items():
        save_file({key: value.half() for key, value in state.items()}, tmp_path / f"{name}.safetensors")
    experts = {name: str(tmp_path / f"{name}.safetensors") for name in names}
    recipe = Recipe.build("weight_averaging", {}, [], str(tmp_path / "pretrained.safetensors"), experts)
    store = Store(tmp_path / "store", libraries=())
    run = execute(recipe, store, benchmark=tiny_benchmark, evaluate=False, keep_model=False)
    found = measure.measure("signs", store, tiny_benchmark, run.id, context=Context(device="cpu"))
    layers = found.table("layers").set_index("tensor")["order"]
    rows = found.table("elections").set_index(["order", "density"]).sort_index()
    tied = 0
    for density in DENSITIES:
        kept = {name: by_hand(of, density) for name, of in vectors.items()}
        sums = {name: of.sum(dim=0).sign() for name, of in kept.items()}
        majority = torch.tensor(sum(float(sign.sum()) for sign in sums.values())).sign()
        assert majority == way
        for name, order in layers.items():
            sign = torch.where(sums[name] == 0, majority, sums[name])
            assert rows.loc[(order, density), "won"].tolist() == (kept[name] * sign > 0).flatten(1).sum(dim=1).tolist()
            assert rows.loc[(order, density), "kept"].tolist() == (kept[name] != 0).flatten(1).sum(dim=1).tolist()
            tied += int(((sums[name] == 0) & (kept[name] != 0).any(dim=0)).sum())
    assert tied > 0


def by_hand(vectors: torch.Tensor, density: float) -> torch.Tensor:
    """TIES's trim of one tensor: the int(ρN) + 1 largest entries of each expert, and those that tie with the last."""
    flat = vectors.flatten(1)
    sizes, count = flat.abs().sort(dim=1, descending=True).values, int(density * flat.shape[1])
    limits = sizes[:, count : count + 1] if density < 1 else torch.zeros(len(flat), 1)
    return (flat * (flat.abs() >= limits)).reshape(vectors.shape)


def test_measuring_tells_how_far_it_is_and_can_be_cancelled(
    measured: tuple[Store, list[str], StoredMeasurement], tiny_benchmark: Benchmark
) -> None:
    store, (_, _, fewer), _ = measured
    told: list[Progress] = []
    before = sorted((store.root / measurement_subject.FOLDER).iterdir())
    with pytest.raises(Cancelled):
        measure.measure(
            "signs",
            store,
            tiny_benchmark,
            fewer,
            context=Context(progress=told.append, cancel=lambda: bool(told) and told[-1].done > 9),
        )
    assert sorted((store.root / measurement_subject.FOLDER).iterdir()) == before
    measure.measure("signs", store, tiny_benchmark, fewer, context=Context(progress=told.append))
    assert told[-1].fraction == 1.0
    assert {progress.phase for progress in told} == {"Counting signs"}


def test_what_cannot_be_measured_is_explained(tmp_path: Path, tiny_benchmark: Benchmark) -> None:
    store = Store(tmp_path / "store", libraries=())
    with pytest.raises(StoreError, match="There is no run"):
        measure.measure("signs", store, tiny_benchmark, "0" * 12)
    with pytest.raises(StoreError, match="is a measurement of the experts of a run"):
        measure.measure("signs", store, tiny_benchmark)
    folder = shutil.copytree(tiny_benchmark.folder / "models", tmp_path / "models")
    mine = {"mine": str(folder / "circles.safetensors"), "yours": str(folder / "digits.safetensors")}
    run = execute(uniform(tiny_benchmark, mine), store, benchmark=tiny_benchmark, evaluate=False, keep_model=False)
    shutil.copy(folder / "flags.safetensors", folder / "circles.safetensors")
    with pytest.raises(CheckpointError, match="not the ones that this run merged: mine"):
        measure.measure("signs", store, tiny_benchmark, run.id)
    shutil.copy(tiny_benchmark.folder / "models" / "circles.safetensors", folder / "circles.safetensors")
    found = measure.measure("signs", store, tiny_benchmark, run.id)  # no task of the benchmark is called so
    assert set(found.table("elections")["expert"]) == {"mine", "yours"}


# Pictures


@pytest.mark.parametrize("density", [1.0, 0.2])
def test_the_histogram_draws_its_table(measured: tuple[Store, list[str], StoredMeasurement], density: float) -> None:
    table = conflict_signs.build_histogram(conflict_signs.read_votes(measured[2]), density)
    assert list(dict.fromkeys(table["space"])) == list(SPACES)
    fig = viz.draw("sign_histogram", table)
    bars = [trace for trace in fig.data if trace.type == "bar"]
    assert [bar.name for bar in bars] == ["Before pruning", "Pruned to 20%"][: 1 if density == 1 else 2]
    for bar, state in zip(bars, ("before", "after"), strict=False):
        rows = table[table["state"] == state]
        np.testing.assert_allclose(bar.y, rows["share"], rtol=1e-6)
        assert len(set(bar.base)) == len(SPACES)
    marks = next(trace for trace in fig.data if trace.type == "scatter")
    bases = dict(zip(table[table["state"] == "before"]["space"], bars[0].base, strict=True))
    np.testing.assert_allclose(marks.y - table["space"].map(bases).to_numpy(), table["random"], atol=1e-5)
    numbers = [note.text for note in fig.layout.annotations]
    means = table[table["state"] == ("before" if density == 1 else "after")].drop_duplicates("space")["mean"]
    assert all(f"<b>{100 * mean:.1f}%</b>" in words for mean, words in zip(means, numbers, strict=True))


@pytest.mark.parametrize("value", ["excess", "mean", "kept"])
def test_the_heat_map_draws_its_table(measured: tuple[Store, list[str], StoredMeasurement], value: str) -> None:
    table = conflict_signs.read_agreement(measured[2], 0.2)
    fig = viz.draw("sign_layers", table, value=value)
    wide = table.pivot(index="space", columns="tensor", values=value)
    order = dict.fromkeys(names[1] for names in fig.data[1].customdata)
    np.testing.assert_allclose(fig.data[0].z, wide.loc[list(SPACES), list(order)].to_numpy(), rtol=1e-6)
    low, high = fig.data[0].zmin, fig.data[0].zmax
    assert (low, high) == {"mean": (0.5, 1.0), "kept": (0.0, 1.0)}.get(value, (-high, high))


@pytest.mark.parametrize("value", ["survived", "taken"])
def test_the_election_draws_its_table(measured: tuple[Store, list[str], StoredMeasurement], value: str) -> None:
    table = conflict_signs.read_elections(measured[2], 0.2)
    fig = viz.draw("election_layers", table, value=value, selected="visual.proj")
    rows = table.set_index(["tensor", "expert"])[value]
    for trace in fig.data:
        assert trace.y.tolist() == pytest.approx([rows[tensor, expert] for tensor, expert in trace.customdata])
    np.testing.assert_allclose(table.groupby("tensor")["taken"].sum(), 1)
    assert sum(shape.name == "selected" for shape in fig.layout.shapes) == 1
    whole = conflict_signs.sum_elections(table, None)
    assert whole["won"].sum() == table["won"].sum()
    one = conflict_signs.sum_elections(table, "visual.proj").set_index("expert")
    assert one["survived"].to_dict() == pytest.approx(rows.loc["visual.proj"].to_dict()) or value == "taken"
