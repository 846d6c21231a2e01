"""The joint space of one layer: what DRM itself computes, what pruning drops, reduced pictures, figures."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import viz_tables
from safetensors.torch import load_file
from torch import Tensor

import viz
from merging.base.errors import CheckpointError, StoreError
from merging.images.benchmarks.benchmark import Benchmark
from merging.methods import registry
from merging.methods.slot import Slot
from merging.models.families import Parameter, Role
from merging.recipes.recipe import Recipe
from merging.study.analysis.drm_joint_space import (
    JointSpace,
    TaskMatrices,
    algorithm_steps,
    block_means,
    compute_joint_space,
    dropped_shares,
    energy_by_direction,
    estimated_seconds,
    spectrum,
)
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store

EXPERTS = ("one", "two", "three")
SHAPES = [(9, 6), (6, 9), (24, 5)]  # the last one is taller than all experts side by side are wide


def vectors(shape: tuple[int, int], seed: int = 0) -> Tensor:
    """Task vectors (3, *shape) in float64 whose singular values differ a lot."""
    draw = torch.Generator().manual_seed(seed)
    found = torch.randn(3, *shape, generator=draw, dtype=torch.float64)
    return found * torch.logspace(0, -2, shape[1], dtype=torch.float64) * torch.tensor([[[1.0]], [[3.0]], [[0.3]]])


def space_of(shape: tuple[int, int], vertical: bool) -> JointSpace:
    return compute_joint_space(EXPERTS, vectors(shape), vertical)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("vertical", [False, True])
def test_before_pruning_the_matrices_come_back(shape: tuple[int, int], vertical: bool) -> None:
    given, space = vectors(shape), space_of(shape, vertical)
    torch.testing.assert_close(space.matrices(), given, rtol=0, atol=1e-9)
    rank = space.basis.shape[1]
    torch.testing.assert_close(space.basis.T @ space.basis, torch.eye(rank, dtype=torch.float64))
    side = torch.cat(list(given.mT if vertical else given), dim=1)
    expected = torch.linalg.svdvals(side)[:rank]
    torch.testing.assert_close(space.values, expected, rtol=1e-6, atol=1e-6 * float(expected[0]))


@pytest.mark.parametrize("vertical", [False, True])
def test_squares_of_row_norms_add_up(vertical: bool) -> None:
    space = space_of((9, 6), vertical)
    np.testing.assert_allclose((space.lengths**2).sum(axis=0), 1, rtol=1e-9)
    table = energy_by_direction(space)
    np.testing.assert_allclose(table.groupby("expert")["energy"].sum(), 1, rtol=1e-9)
    assert (table["first"] == table["last"]).all() and set(table["expert"]) == set(EXPERTS)
    exact = vectors((9, 6))
    first = table[(table["expert"] == "two") & (table["first"] == 1)]["energy"].iloc[0]
    share = float(space.entries[1, 0].square().sum() / exact[1].square().sum())
    assert first == pytest.approx(share)


def test_the_rank_cut_is_a_share_of_the_largest_value() -> None:
    space = space_of((9, 6), False)
    table = spectrum(space, 0.1)
    assert (table["kept"] == (table["share"] > 0.1)).all() and 0 < table["kept"].sum() < len(table)
    assert table["energy"].iloc[-1] == pytest.approx(1)
    cut = space.truncate(0.1)
    assert cut.entries.shape[1] == cut.basis.shape[1] == len(cut.values) == table["kept"].sum()
    assert space.truncate(0.0).entries.shape == space.entries.shape


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("vertical", [False, True])
def test_on_average_the_prune_ratio_is_dropped(ratio: float, vertical: bool) -> None:
    space = compute_joint_space(EXPERTS, vectors((40, 30)), vertical)
    numel = space.entries[0].numel()
    alone = dropped_shares(space, ratio).groupby(["renorm", "expert"])["dropped"].mean()
    assert len(alone) == 6
    assert alone.to_numpy() == pytest.approx(np.full(6, ratio), abs=2 / numel)  # one entry more is kept
    together = dropped_shares(space, ratio, joint=True).groupby("renorm")["dropped"].mean()
    assert together.to_numpy() == pytest.approx([ratio, ratio], abs=2 / (3 * numel))


def test_renormalization_spreads_what_is_dropped() -> None:
    own = torch.full((3, 39, 1), 0.1, dtype=torch.float64)
    for expert in range(3):  # every expert moves outputs of its own
        own[expert, 13 * expert : 13 * (expert + 1)] = 1.0
    given = torch.randn(3, 39, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table = dropped_shares(compute_joint_space(EXPERTS, own * given, False), 0.5)
    spread = table.groupby("renorm")["dropped"].std()
    assert spread[True] < 0.6 * spread[False]


@pytest.mark.parametrize("ratio", [0.5, 0.8])
@pytest.mark.parametrize("vertical", [False, True])
@pytest.mark.parametrize("joint", [False, True])
def test_the_steps_end_where_the_merge_ends(ratio: float, vertical: bool, joint: bool) -> None:
    given = vectors((9, 6))
    space = space_of((9, 6), vertical)
    table, facts = algorithm_steps(space.truncate(0.01), ratio, joint)
    parameter = Parameter("visual.x.weight", Role.LINEAR, "x", "block 0", 0, 0)
    method = registry.find_merge("drm")
    params = {
        "density": 1 - ratio,
        "direction": "vertical" if vertical else "horizontal",
        "pruning": "joint" if joint else "individual",
    }
    slot = Slot(parameter, EXPERTS, torch.zeros(9, 6, dtype=torch.float64), given)
    merged = method.run(slot, method.params.build(params), None)
    delta = table[table["step"] == "delta"]["value"].to_numpy().reshape(9, 6)
    np.testing.assert_allclose(delta, merged.abs().numpy(), rtol=1e-9, atol=1e-12)
    mean = space.truncate(0.01).matrices().mean(dim=0)
    assert facts["norm"] == pytest.approx(float(merged.norm() / mean.norm()))
    pruned = table[table["step"] == "pruned"]["value"].to_numpy()
    assert facts["kept"] == pytest.approx((pruned > 0).mean()) and 0.5 <= facts["elected"] <= 1


def test_renormalized_rows_have_length_one() -> None:
    table, _ = algorithm_steps(space_of((9, 6), False), 0.5, False)
    rows = table[table["step"] == "renormalized"].groupby(["expert", "row"])["value"]
    np.testing.assert_allclose(rows.apply(lambda x: (x**2).mean()), 1, rtol=1e-9)
    before = table[table["step"] == "decomposed"].assign(square=lambda t: t["value"] ** 2)
    lengths = before.groupby(["row", "expert"])["square"].mean().groupby("row").sum()
    np.testing.assert_allclose(lengths, 1, rtol=1e-9)


def test_block_means_are_means_of_even_blocks() -> None:
    matrix = torch.arange(-35.0, 35.0).reshape(10, 7)
    means, rows, columns = block_means(matrix, 4, 3)
    assert list(rows) == [0, 2, 5, 7] and list(columns) == [0, 2, 4]
    assert means[1, 2] == pytest.approx(float(matrix[2:5, 4:].abs().mean()))
    whole, _, _ = block_means(matrix, 96, 96)
    np.testing.assert_array_equal(whole, matrix.abs().numpy())


def test_pictures_stay_small() -> None:
    big = torch.randn(8, 300, 200, generator=torch.Generator().manual_seed(0))
    names = [f"expert {k}" for k in range(8)]
    space = compute_joint_space(names, big, False)
    table, _ = algorithm_steps(space, 0.5, True)
    for _, rows in table.groupby("step"):
        width = rows.groupby("expert")["column"].nunique().sum()
        assert rows["row"].nunique() <= 96 and width <= 256
    assert energy_by_direction(space)["first"].nunique() == 256
    assert len(viz.draw("joint_steps", table).to_json()) < 1_000_000


def test_nothing_moved() -> None:
    space = compute_joint_space(EXPERTS, torch.zeros(3, 4, 5), False)
    assert len(space.values) == 0


def test_taller_layers_take_longer() -> None:
    small, tall = (estimated_seconds(8, shape, False) for shape in ((64, 64), (512, 64)))
    assert 0 < small < tall
    assert estimated_seconds(8, (512, 64), True) < tall


# Figures


def test_steps_draw_their_table() -> None:
    table = viz_tables.joint_steps(3).sample(frac=1, random_state=1)
    fig = viz.draw("joint_steps", table)
    assert [trace.name for trace in fig.data] == ["decomposed", "renormalized", "pruned", "merged", "delta"]
    names = list(dict.fromkeys(table["expert"][table["step"] == "decomposed"]))
    ordered = table.sort_values(["row", "column"]).set_index(["step", "expert"])["value"]
    for trace in fig.data[:3]:
        blocks = [ordered[trace.name, name].to_numpy().reshape(12, 10) for name in names]
        np.testing.assert_allclose(trace.z, np.concatenate(blocks, axis=1), rtol=1e-6)
        assert (trace.zmin, trace.zmax) == (fig.data[0].zmin, fig.data[0].zmax)
    merged = ordered["merged", ""].to_numpy().reshape(12, 10)
    np.testing.assert_allclose(10.0 ** fig.data[3].z, np.maximum(merged, 1e-3 * merged.max()), rtol=1e-5)
    np.testing.assert_allclose(fig.data[4].z, ordered["delta", ""].to_numpy().reshape(12, 10), rtol=1e-6)
    assert list(fig.layout.xaxis3.ticktext) == names


def test_dropped_draws_one_expert() -> None:
    table = viz_tables.joint_dropped(3)
    fig = viz.draw("joint_dropped", table, expert="Digits", ratio=0.5)
    own = table[table["expert"] == "Digits"]
    for trace in fig.data:
        rows = own[own["renorm"] == trace.name.startswith("renormalized")]
        np.testing.assert_allclose(trace.y, rows["dropped"], rtol=1e-6)
        assert f"mean {100 * rows['dropped'].mean():.1f}%" in trace.name
    assert fig.layout.shapes[0].y0 == 0.5


@pytest.mark.parametrize("value", ["norm", "energy", "cumulative"])
def test_energy_draws_its_table(value: str) -> None:
    table = viz_tables.joint_energy(3, 7)
    fig = viz.draw("joint_energy", table, value=value, selected="Digits")
    wide = table.pivot(index="expert", columns="first", values=value).loc[list(dict.fromkeys(table["expert"]))]
    z = 10.0 ** fig.data[0].z if value == "energy" else fig.data[0].z
    np.testing.assert_allclose(z, np.maximum(wide, 1e-6 * wide.max().max()), rtol=1e-5)
    outlined = [shape for shape in fig.layout.shapes if shape.name == "selected"]
    assert (outlined[0].y0, outlined[0].y1) == (0.5, 1.5)


def test_spectrum_tells_the_cut() -> None:
    table = viz_tables.joint_spectrum(60)
    kept, lost = viz.draw("joint_spectrum", table, rank_tol=0.01).data
    np.testing.assert_allclose(np.concatenate([kept.y, lost.y]), table["value"], rtol=1e-6)
    assert (kept.y > 0.01).all() and (lost.y <= 0.01).all()


# The panel


def test_tables_are_tidy() -> None:
    table = dropped_shares(space_of((9, 6), False), 0.5)
    assert list(table.columns) == ["direction", "expert", "renorm", "dropped"]
    assert not pd.isna(table).any(axis=None)


def stored_run(folder: Path, store: Store) -> Run:
    benchmark = Benchmark.load(folder)
    recipe = Recipe.build("weight_averaging", {}, [], benchmark.pretrained, benchmark.experts)
    return execute(recipe, store, benchmark=benchmark, evaluate=False, keep_model=False)


def test_a_run_gives_the_matrices_of_its_experts(tiny_folder: Path, tmp_path: Path) -> None:
    run = stored_run(tiny_folder, Store(tmp_path / "store", libraries=()))
    read = TaskMatrices.from_run(run).layer("visual.proj")
    benchmark = Benchmark.load(tiny_folder)
    base = load_file(benchmark.pretrained)["visual.proj"].float()
    expected = [load_file(benchmark.experts[name])["visual.proj"].float() - base for name in run.experts]
    assert torch.equal(read, torch.stack(expected).mT)  # as linear weights: outputs by inputs
    assert read.is_contiguous()


def test_a_run_with_other_files_gives_no_matrices(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "copy")
    run = stored_run(folder, Store(tmp_path / "store", libraries=()))
    first, second, *_ = (folder / "models" / f"{name}.safetensors" for name in run.experts)
    shutil.copy(second, first)
    with pytest.raises(CheckpointError, match="not the ones that this run merged"):
        TaskMatrices.from_run(run)
    evaluation: Any = SimpleNamespace(id="abc", recipe=None)
    with pytest.raises(StoreError, match="is not a merge"):
        TaskMatrices.from_run(evaluation)
