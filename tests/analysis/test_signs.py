"""Sign agreement and elections: worked numbers, plain NumPy, invariances, and what the pictures draw of the tables."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch

import viz
from app.views.conflicts import signs as conflict_signs
from merging.analysis import context, measure, stored
from merging.analysis.drm_joint_space import joint_space
from merging.analysis.measurements import signs
from merging.analysis.measurements.signs import (
    SPACES,
    agreement,
    count_votes,
    estimated_seconds,
    histogram,
    inspect_layer,
    random_agreement,
)
from merging.analysis.stored import Measured, same_experts
from merging.benchmarks.benchmark import Benchmark
from merging.checkpoints.families import Parameter, Role
from merging.errors import Cancelled, CheckpointError, StoreError
from merging.methods import registry
from merging.methods.merges.ties import TrimThresholds as TiesElection
from merging.methods.merges.ties import ties
from merging.methods.slot import Slot
from merging.numerics.linear_algebra import left_basis
from merging.numerics.sign_election import elect, trimmed
from merging.progress import Progress
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.store import Store

WORKED = [[1, -1, 0, 0, 2, 0], [1, 1, 0, 0, -2, 0], [-1, 1, 3, 0, 0, 0], [1, -1, 0, -2, 0, 0]]


def drawn(count: int = 4, out: int = 12, into: int = 7, seed: int = 0) -> torch.Tensor:
    """Task vectors (count, out, into) with something in common."""
    source = torch.Generator().manual_seed(seed)
    common = torch.randn(1, out, into, generator=source, dtype=torch.float64)
    return torch.randn(count, out, into, generator=source, dtype=torch.float64) + 0.3 * common


def naive(values: np.ndarray[Any, Any]) -> tuple[float, list[float]]:
    """Mean agreement, and agreement position by position, of entries (K, *S)."""
    found = []
    for votes in values.reshape(len(values), -1).T:
        p, q = (votes > 0).sum(), (votes < 0).sum()
        if p + q:
            found.append(max(p, q) / (p + q))
    return float(np.mean(found)), found


# Numbers


def test_the_worked_numbers_of_sign_agreement() -> None:
    values = torch.tensor(WORKED, dtype=torch.float64)
    by_position = [agreement(count_votes(values[:, [place]])).mean for place in range(6)]
    assert by_position[:5] == [0.75, 0.5, 1, 1, 0.5]
    assert math.isnan(by_position[5])
    found = agreement(count_votes(values))
    assert (found.mean, found.positions) == (0.75, 5)
    assert found.density == pytest.approx(12 / 24)


def test_random_signs_by_number_of_votes() -> None:
    found = [random_agreement(votes) for votes in range(1, 9)]
    assert found == pytest.approx([1, 0.75, 0.75, 0.6875, 0.6875, 0.65625, 0.65625, 0.636719], abs=5e-7)


@pytest.mark.parametrize(
    ("tasks", "density", "null"),
    [(8, 0.2, 0.847), (8, 0.258, 0.812), (8, 0.5, 0.713), (8, 1.0, 0.637), (5, 0.2, 0.902), (5, 1.0, 0.688)],
)
def test_random_signs_at_a_density(tasks: int, density: float, null: float) -> None:
    counts = np.zeros((tasks + 1, tasks + 1), np.int64)
    for votes in range(tasks + 1):  # where signs are, and not how they agree, decides
        chance = math.comb(tasks, votes) * density**votes * (1 - density) ** (tasks - votes)
        counts[votes, votes] = round(1e9 * chance)
    assert round(agreement(counts).null, 3) == null
    noise = torch.randn(tasks, 400, 400, generator=torch.Generator().manual_seed(1))
    found = agreement(count_votes(next(trimmed(noise, [density]))))
    assert found.null == pytest.approx(null, abs=1.5e-3)
    assert found.density == pytest.approx(density, abs=1e-4)
    assert found.excess == pytest.approx(0, abs=2e-3)


def test_the_histogram_puts_edges_where_they_belong() -> None:
    values = torch.randn(5, 3000, generator=torch.Generator().manual_seed(2)) + 0.2
    values = next(trimmed(values, [0.7]))
    _, each = naive(values.numpy())
    edges = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    places = np.clip(np.searchsorted(edges - 1e-9, each, side="right") - 1, 0, 4)  # 3 of 5 votes are in [0.6, 0.7)
    shares, chances = histogram(count_votes(values))
    np.testing.assert_allclose(shares, np.bincount(places, minlength=5) / len(each))
    assert shares.sum() == pytest.approx(1)
    assert chances.sum() == pytest.approx(1)


# One layer


@pytest.mark.parametrize("shape", [(12, 7), (7, 12), (40, 5)])
def test_every_space_is_what_its_definition_says(shape: tuple[int, int]) -> None:
    vectors, density = drawn(3, *shape), 0.3
    found = inspect_layer(vectors, (density,), rank_tol=0.0)
    for way, matrices in (("h", vectors.numpy()), ("v", vectors.mT.numpy())):
        left, _, right = np.linalg.svd(np.concatenate(matrices, axis=1), full_matrices=False)
        kept, back = [], []
        for number, matrix in enumerate(matrices):
            own = right[:, number * matrix.shape[1] : (number + 1) * matrix.shape[1]]
            sizes = np.abs(own) / np.linalg.norm(own, axis=1, keepdims=True)
            entries = (left.T @ matrix) * (sizes >= np.sort(sizes.ravel())[-(round(density * sizes.size) + 1)])
            kept.append(entries)
            back.append(left @ entries)
        for space, values in ((f"joint_{way}", kept), (f"back_{way}", back)):
            said = agreement(found.votes[space, density])
            assert said.mean == pytest.approx(naive(np.array(values))[0])
            assert said.density == pytest.approx(np.mean(np.array(values) != 0))
        assert found.ranks["hv".index(way)] == left.shape[1]
    assert agreement(found.votes["weights", density]).mean == pytest.approx(
        naive(next(trimmed(vectors, [density])).numpy())[0]
    )


def test_without_pruning_the_way_back_gives_the_task_vectors() -> None:
    vectors = drawn()
    vectors[:, 3] = 0  # a row that nobody changed stays without votes: rounding is none
    for blocks in (vectors, vectors.mT):
        basis = left_basis(blocks, 0.0)
        torch.testing.assert_close(basis @ (basis.T @ blocks), blocks, rtol=0, atol=1e-12)
    found = inspect_layer(vectors, (1.0,), rank_tol=0.0).votes
    for space in ("back_h", "back_v"):
        np.testing.assert_array_equal(found[space, 1.0], found["weights", 1.0])
    assert found["weights", 1.0][0, 0] == vectors.shape[2]


def test_in_single_precision_rounding_is_no_vote() -> None:
    vectors = drawn(4, 60, 40).float()
    vectors[1, :, ::2] = 0  # as half-precision checkpoints have them: an expert's own zeros, where others have none
    vectors[2, 5:30] = 0
    vectors[3].mul_(vectors[3].abs() > 1)
    found, exact = (inspect_layer(some, (1.0, 0.3), rank_tol=0.0).votes for some in (vectors, vectors.double()))
    for space in ("back_h", "back_v"):
        np.testing.assert_array_equal(found[space, 1.0], found["weights", 1.0])
    for key, counts in found.items():
        assert np.abs(counts - exact[key]).sum() <= 4  # entries that are equal but for rounding


def test_spaces_that_are_there_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = drawn()
    spaces = [joint_space("abcd", vectors, vertical) for vertical in (False, True)]
    expected = inspect_layer(vectors, (0.3,), 0.05)
    monkeypatch.delattr(signs, "joint_space")
    found = inspect_layer(vectors, (0.3,), 0.05, spaces=spaces)
    assert found.ranks == expected.ranks
    for key, counts in found.votes.items():
        np.testing.assert_array_equal(counts, expected.votes[key])


def test_the_estimated_time_grows_with_the_layer() -> None:
    small, large = (estimated_seconds(shape) for shape in ((8, 192, 192), (8, 3072, 768)))
    assert 0 < 64 * small < large  # as many entries, and longer products


def test_a_rank_cut_takes_directions_away() -> None:
    vectors = drawn()
    assert inspect_layer(vectors, (1.0,), 0.0).ranks == (12, 7)
    sizes = torch.linalg.svdvals(torch.cat(list(vectors), dim=1))
    assert inspect_layer(vectors, (1.0,), 0.5).ranks[0] == int((sizes > 0.5 * sizes[0]).sum()) < 12


@pytest.mark.parametrize("change", ["experts in another order", "all scaled", "all signs"])
def test_agreement_does_not_depend_on(change: str) -> None:
    vectors = drawn(5)
    changed = {
        "experts in another order": vectors[[3, 0, 4, 2, 1]], "all scaled": 1e-3 * vectors, "all signs": -vectors,
    }[change]  # fmt: skip
    one, other = (inspect_layer(some, (1.0, 0.2)) for some in (vectors, changed))
    for key, counts in one.votes.items():
        np.testing.assert_array_equal(counts, other.votes[key])


def test_the_sign_of_a_singular_vector_changes_nothing() -> None:
    entries = drawn()
    flipped = entries * torch.where(torch.arange(entries.shape[1]) % 3 == 0, -1.0, 1.0)[:, None]
    np.testing.assert_array_equal(count_votes(entries), count_votes(flipped))


def test_equal_experts_agree_and_nobody_loses() -> None:
    same = drawn(1).expand(3, -1, -1)
    found = inspect_layer(same, (0.2,))
    for counts in found.votes.values():
        assert agreement(counts).mean == 1
    np.testing.assert_array_equal(found.elections[0.2].won, found.elections[0.2].kept)


def test_experts_that_changed_nothing_have_no_votes() -> None:
    found = inspect_layer(torch.zeros(3, 4, 5), (1.0, 0.2))
    for counts in found.votes.values():
        said = agreement(counts)
        assert math.isnan(said.mean) and (said.positions, said.density) == (0, 0)
    assert found.elections[0.2].kept.tolist() == [0, 0, 0]


# Elections


def test_the_trim_keeps_the_largest_of_each_expert() -> None:
    vectors = drawn(3, 10, 10)
    for density, kept in zip((1.0, 0.5, 0.05), trimmed(vectors, (1.0, 0.5, 0.05)), strict=True):
        for own, left in zip(vectors, kept, strict=True):
            many = min(round(density * 100) + 1, 100)
            assert int((left != 0).sum()) == many
            assert left.abs()[left != 0].min() == own.abs().flatten().sort().values[-many]


def test_the_sign_of_the_sum_is_elected() -> None:
    values = torch.tensor(WORKED, dtype=torch.float64)  # sums 2, 0, 3, -2, 0, 0: two exact ties elect nobody
    found = elect(values)
    assert found.kept.tolist() == [3, 3, 3, 3]
    assert found.won.tolist() == [1, 1, 1, 2]


def test_what_ties_merges_is_what_survives() -> None:
    vectors = drawn(4, 9, 8)
    params = registry.merge("ties").params.build({"density": 1.0, "scope": "tensor", "scaling": 1.0})
    slot = Slot(Parameter("w", Role.LINEAR, "w", "block 0", 0, 0), tuple("abcd"), torch.zeros_like(vectors[0]), vectors)
    merged = ties(slot, params, TiesElection(None, 0.0))
    survivors = vectors * (vectors * vectors.sum(dim=0) > 0)
    torch.testing.assert_close(merged, survivors.sum(dim=0))
    assert elect(vectors).won.tolist() == (survivors != 0).flatten(1).sum(dim=1).tolist()


# As a measurement


def uniform(benchmark: Benchmark, experts: dict[str, str] | None = None, merge: str = "weight_averaging") -> Recipe:
    return Recipe.build(merge, {}, [], benchmark.pretrained, experts or benchmark.experts)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, tiny_benchmark: Benchmark) -> tuple[Store, list[str], Measured]:
    """A store with two merges of the same experts, one of fewer, and what was measured of the first."""
    store = Store(tmp_path_factory.mktemp("signs"), libraries=())
    fewer = dict(list(tiny_benchmark.experts.items())[:3])
    recipes = [uniform(tiny_benchmark), uniform(tiny_benchmark, merge="ties"), uniform(tiny_benchmark, fewer)]
    ids = [execute(r, store, benchmark=tiny_benchmark, evaluate=False, keep_model=False).id for r in recipes]
    return store, ids, measure.measure("signs", store, tiny_benchmark, ids[0], device="cpu")


def test_runs_on_the_same_experts_share_what_is_measured(
    measured: tuple[Store, list[str], Measured], tiny_benchmark: Benchmark
) -> None:
    store, (first, second, fewer), found = measured
    assert stored.find("signs", store, tiny_benchmark, second) == found
    assert measure.measure("signs", store, tiny_benchmark, second, cancel=lambda: True) == found
    assert stored.find("signs", store, tiny_benchmark, fewer) is None
    assert stored.find("signs", store, tiny_benchmark, "0" * 12) is None
    assert same_experts(store.run(first), store.run(second))
    assert not same_experts(store.run(first), store.run(fewer))


def test_the_tables_are_those_of_every_layer(
    measured: tuple[Store, list[str], Measured], tiny_benchmark: Benchmark
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
        said = agreement(counts)
        expected = [said.mean, said.null, said.density, said.positions]
        np.testing.assert_allclose(agreed.loc[key].to_numpy(float), expected, rtol=1e-6)
    held = found.table("elections").set_index(["order", "density"]).loc[(order, 0.2)]
    assert held["won"].tolist() == live.elections[0.2].won.tolist()
    assert list(held["expert"]) == list(tiny_benchmark.experts)
    weighted = found.table("agreement").assign(total=lambda rows: rows["mean"] * rows["positions"])
    sums = weighted.groupby(["space", "density"])[["total", "positions"]].sum()
    for (space, density), counts in conflict_signs.whole(found).items():
        said = agreement(counts)
        assert said.positions == sums.loc[(space, density), "positions"]
        assert said.mean == pytest.approx(sums.loc[(space, density), "total"] / said.positions, rel=1e-5)


def test_measuring_tells_how_far_it_is_and_can_be_cancelled(
    measured: tuple[Store, list[str], Measured], tiny_benchmark: Benchmark
) -> None:
    store, (_, _, fewer), _ = measured
    told: list[Progress] = []
    before = sorted((store.root / context.FOLDER).iterdir())
    with pytest.raises(Cancelled):
        measure.measure(
            "signs", store, tiny_benchmark, fewer, progress=told.append, cancel=lambda: bool(told) and told[-1].done > 9
        )
    assert sorted((store.root / context.FOLDER).iterdir()) == before
    measure.measure("signs", store, tiny_benchmark, fewer, progress=told.append)
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
def test_the_histogram_draws_its_table(measured: tuple[Store, list[str], Measured], density: float) -> None:
    table = conflict_signs.bins(conflict_signs.whole(measured[2]), density)
    assert list(dict.fromkeys(table["space"])) == list(SPACES)
    fig = viz.draw("sign_histogram", table)
    bars = [trace for trace in fig.data if trace.type == "bar"]
    assert [bar.name for bar in bars] == ["Before pruning", "Pruned to 20%"][: 1 if density == 1 else 2]
    for bar, state in zip(bars, ("before", "after"), strict=False):
        rows = table[table["state"] == state]
        np.testing.assert_allclose(bar.y, rows["share"], rtol=1e-6)
        assert len(set(bar.base.tolist())) == len(SPACES)
    marks = next(trace for trace in fig.data if trace.type == "scatter")
    bases = dict(zip(table[table["state"] == "before"]["space"], bars[0].base, strict=True))
    np.testing.assert_allclose(marks.y - table["space"].map(bases).to_numpy(), table["random"], atol=1e-5)
    numbers = [note.text for note in fig.layout.annotations]
    means = table[table["state"] == ("before" if density == 1 else "after")].drop_duplicates("space")["mean"]
    assert all(f"<b>{100 * mean:.1f}%</b>" in words for mean, words in zip(means, numbers, strict=True))


@pytest.mark.parametrize("value", ["excess", "mean", "kept"])
def test_the_heat_map_draws_its_table(measured: tuple[Store, list[str], Measured], value: str) -> None:
    table = conflict_signs.by_layer(measured[2], 0.2)
    fig = viz.draw("sign_layers", table, value=value)
    wide = table.pivot(index="space", columns="tensor", values=value)
    order = dict.fromkeys(names[1] for names in fig.data[1].customdata)
    np.testing.assert_allclose(fig.data[0].z, wide.loc[list(SPACES), list(order)].to_numpy(), rtol=1e-6)
    low, high = fig.data[0].zmin, fig.data[0].zmax
    assert (low, high) == {"mean": (0.5, 1.0), "kept": (0.0, 1.0)}.get(value, (-high, high))


@pytest.mark.parametrize("value", ["survived", "taken"])
def test_the_election_draws_its_table(measured: tuple[Store, list[str], Measured], value: str) -> None:
    table = conflict_signs.elections(measured[2], 0.2)
    fig = viz.draw("election_layers", table, value=value, selected="visual.proj")
    rows = table.set_index(["tensor", "expert"])[value]
    for trace in fig.data:
        assert trace.y.tolist() == pytest.approx([rows[tensor, expert] for tensor, expert in trace.customdata])
    np.testing.assert_allclose(table.groupby("tensor")["taken"].sum(), 1)
    assert sum(shape.name == "selected" for shape in fig.layout.shapes) == 1
    whole = conflict_signs.in_numbers(table, None)
    assert whole["won"].sum() == table["won"].sum()
    one = conflict_signs.in_numbers(table, "visual.proj").set_index("expert")
    assert one["survived"].to_dict() == pytest.approx(rows.loc["visual.proj"].to_dict()) or value == "taken"
