"""DRM's ablations are the recipes that they say; subsets, averages and t-tests; what both views draw and say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import tiny
import torch
import viz_tables
from page_harness import words
from safetensors.torch import load_file
from streamlit.testing.v1 import AppTest

import viz
from app.views.conflicts import drm_ablations as conflict_ablations
from merging.base.errors import TaskError
from merging.base.numerics.linear_algebra import left_basis
from merging.engine.evaluation.evaluate import evaluate
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.metrics import summarize
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.study.trials import drm_ablations, task_counts, trial_merges
from merging.study.trials.task_counts import average_counts, paired_tests, sample_subsets
from merging.tasks.context import Context

VARIANTS = drm_ablations.VARIANTS
METHODS, CUTS = ("drm_h", "drm_v", "task_arithmetic_lwptv"), (0.0, 0.01, 0.2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark of its own, beside which the measurements lie as a library's do."""
    return tiny.write_benchmark(tmp_path_factory.mktemp("counted"))


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, StoredMeasurement]:
    """Both measurements of the tiny benchmark, with fewer methods and cuts than the real ones."""
    benchmark, store = Benchmark.load(folder), Store(folder / "making", libraries=())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_counts, "PRESETS", METHODS)
        patch.setattr(drm_ablations, "CUTS", CUTS)
        made = {
            key: measure.measure(key, store, benchmark, context=Context(device="cpu"))
            for key in ("drm_ablations", "task_counts")
        }
    assert {path.name for path in (folder / "making").iterdir()} == {"measured", "locks"}  # no run is stored
    return made


# Ablations


@pytest.mark.full
def test_every_row_is_the_recipe_it_says(found: dict[str, StoredMeasurement], folder: Path) -> None:
    rows = found["drm_ablations"].table("ablations").set_index(["method", "variant"])
    stated: dict[tuple[str, str], dict[str, Any]] = {
        ("DRM-H", "nothing removed"): {},
        ("DRM-V", "without renormalization"): {"direction": "vertical", "renorm": False},
        ("DRM-H", "without pruning"): {"density": 1.0},
        ("DRM-V", "without sign election"): {"direction": "vertical", "elect": False},
        ("DRM-H", "without disjoint mean"): {"disjoint": False},
        ("DRM-V", "each task by itself"): {"direction": "vertical", "pruning": "individual"},
    }
    assert set(rows.index) == {(method, variant.label) for method in ("DRM-H", "DRM-V") for variant in VARIANTS}
    for place, params in stated.items():
        assert_is(rows.loc[place], params, folder)
    ranks = found["drm_ablations"].table("ranks").set_index(["method", "cut"])
    assert set(ranks.index) == {(method, cut) for method in ("DRM-H", "DRM-V") for cut in CUTS}
    assert_is(ranks.loc[("DRM-V", 0.2)], {"direction": "vertical", "rank_tol": 0.2}, folder)


def assert_is(row: pd.Series[Any], params: dict[str, Any], folder: Path) -> None:
    """A row has the chain, and the scores of the run, of DRM with these parameters."""
    benchmark = Benchmark.load(folder)
    recipe = Recipe.build("drm", params, [], benchmark.pretrained, benchmark.experts)
    assert row["chain"] == recipe.text()
    run = execute(recipe, Store(folder / "runs_made", libraries=()), benchmark=benchmark, context=Context(device="cpu"))
    assert run.scores is not None
    own = summarize(run.scores, list(benchmark.experts))
    for name in drm_ablations.SCORE_COLUMNS:
        assert row[name] == pytest.approx(getattr(own, name), rel=1e-6), name
    assert (row["tasks_in"], row["n_in"], row["n_out"]) == (4, 4 * tiny.REPORTING, 2 * tiny.REPORTING)


def test_a_chain_is_merged_once_however_many_rows_show_it(
    tiny_benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drm_ablations, "VARIANTS", VARIANTS[:2])
    monkeypatch.setattr(drm_ablations, "CUTS", (0.01, 0.3))
    merged = []
    whole = trial_merges.merge_in_memory

    def counted(recipe: Recipe, *said: Any) -> Any:
        merged.append(recipe.text())
        return whole(recipe, *said)

    monkeypatch.setattr(drm_ablations, "merge_in_memory", counted)
    made = measure.measure("drm_ablations", Store(tmp_path, libraries=()), tiny_benchmark, context=Context("cpu"))
    assert len(merged) == len(set(merged)) == made.notes["chains"] == 6  # 2 · (2 variants + 2 cuts - the default cut)
    rows, ranks = made.table("ablations"), made.table("ranks")
    same = ranks[ranks["cut"] == 0.01]["in_domain"].to_numpy()
    assert (rows[rows["variant"] == "nothing removed"]["in_domain"].to_numpy() == same).all()


def test_shares_of_ranks_are_those_that_the_merge_keeps(found: dict[str, StoredMeasurement], folder: Path) -> None:
    benchmark = Benchmark.load(folder)
    ranks = found["drm_ablations"].table("ranks").set_index(["method", "cut"])
    pretrained = load_file(benchmark.pretrained)
    towers = [load_file(path) for path in benchmark.experts.values()]
    names = [n for n in pretrained if n.endswith(("in_proj_weight", "out_proj.weight", "c_fc.weight", "c_proj.weight"))]
    for method, turned in (("DRM-H", False), ("DRM-V", True)):
        shares = []
        for name in [*names, "visual.proj"]:
            blocks = torch.stack([tower[name].float() - pretrained[name].float() for tower in towers])
            blocks = blocks.mT if turned != (name == "visual.proj") else blocks
            shares.append(left_basis(blocks, 0.2).shape[1] / left_basis(blocks, 0.0).shape[1])
        row = ranks.loc[method, 0.2]
        assert row["kept"] == pytest.approx(np.mean(shares), rel=1e-6)
        assert (row["kept_low"], row["kept_high"]) == pytest.approx((min(shares), max(shares)), rel=1e-6)
    assert (ranks.xs(0.0, level="cut")["kept"] == 1).all()


# Number of tasks


def test_subsets_are_seeded_and_at_most_ten() -> None:
    names = [f"t{number}" for number in range(8)]
    for size in range(2, 9):
        drawn = sample_subsets(names, size)
        assert len(drawn) == len(set(drawn)) == min(10, math.comb(8, size))
        assert drawn == sample_subsets(names, size)
        assert all(len(chosen) == size and list(chosen) == sorted(chosen) for chosen in drawn)
    assert sample_subsets(names, 3) != sample_subsets(names, 3, seed=1)
    assert sample_subsets(names[:4], 2) == [(a, b) for i, a in enumerate(names[:4]) for b in names[i + 1 : 4]]
    assert len(sample_subsets([str(number) for number in range(40)], 20)) == 10  # of 137 billion


def test_every_method_merges_the_same_subsets(found: dict[str, StoredMeasurement], folder: Path) -> None:
    counts = found["task_counts"].table("counts")
    sets = counts.groupby(["method", "subset"])["task"].agg(tuple).unstack("method")
    assert sets.shape == (6 + 4 + 1, len(METHODS)) and sets.notna().all(axis=None)
    assert (sets.nunique(axis=1) == 1).all()
    assert sorted(sets.iloc[:, 0]) == sorted(s for size in (2, 3, 4) for s in sample_subsets(list(tiny.EXPERTS), size))
    assert not counts.duplicated(["method", "subset", "task"]).any()
    notes = found["task_counts"].notes
    assert notes == {"split": "reporting", "images": tiny.REPORTING, "seed": 0, "subsets": 11, "most": 10}
    assert_counts(counts, "drm_v", ("digits", "leaves"), folder)
    assert_counts(counts, "task_arithmetic_lwptv", ("circles", "digits", "flags"), folder)


def assert_counts(counts: pd.DataFrame, key: str, chosen: tuple[str, ...], folder: Path) -> None:
    """The rows of a method and a subset are what the preset scores with these experts."""
    benchmark = Benchmark.load(folder)
    recipe = find_preset(key).recipe(benchmark.pretrained, {name: benchmark.experts[name] for name in chosen})
    run = execute(recipe, Store(folder / "runs_made", libraries=()), benchmark=benchmark, context=Context(device="cpu"))
    assert run.model_path is not None
    own = evaluate(run.model_path, benchmark, splits=("reporting",), tasks=chosen)
    rows = counts[counts["method"] == recipe.title].groupby("subset").filter(lambda g: tuple(g["task"]) == chosen)
    assert list(rows["correct"]) == list(own["correct"]) and list(rows["n"]) == list(own["n"])


def test_averages_are_unweighted_means_over_the_merged_tasks() -> None:
    counts = pd.DataFrame(
        [("a", 2, 0, "x", 30, 40), ("a", 2, 0, "y", 10, 20), ("a", 2, 1, "y", 15, 20), ("a", 2, 1, "z", 0, 10)],
        columns=list(task_counts.COUNT_COLUMNS[:-1]),
    )
    own = pd.DataFrame(
        [("x", "X", 40, 40), ("y", "Y", 16, 20), ("z", "Z", 0, 10)], columns=list(task_counts.EXPERT_COLUMNS)
    )
    table = average_counts(counts, own)
    assert list(table["accuracy"]) == pytest.approx([0.625, 0.375])
    assert list(table["normalized"]) == pytest.approx([(0.75 + 0.625) / 2, 0.9375])  # an expert without any is left out
    assert list(table["tasks"]) == ["X + Y", "Y + Z"] and list(table["n"]) == [60, 30]


def test_t_tests_are_scipys() -> None:
    ours, theirs = [0.61, 0.58, 0.66, 0.70], [0.55, 0.59, 0.60, 0.61]
    rows = [("ref", 3, i, value) for i, value in enumerate(ours)] + [("b", 3, i, v) for i, v in enumerate(theirs)]
    rows += [("c", 3, i, value) for i, value in enumerate(ours)]  # no difference at all
    rows += [("ref", 4, 9, 0.5), ("b", 4, 9, 0.4), ("c", 4, 9, 0.6)]  # one pair
    table = pd.DataFrame(rows, columns=["method", "size", "subset", "accuracy"])
    tests = paired_tests(table.sample(frac=1, random_state=0), "ref").set_index(["method", "size"])
    expected = scipy.stats.ttest_rel(ours, theirs, alternative="greater")
    row = tests.loc["b", 3]
    assert (row["t"], row["p"], row["pairs"]) == pytest.approx((expected.statistic, expected.pvalue, 4))
    d = np.subtract(ours, theirs)
    assert row["t"] == pytest.approx(d.mean() / (d.std(ddof=1) / 2)) and row["difference"] == pytest.approx(d.mean())
    assert math.isnan(tests.loc["c", 3]["p"]) and tests.loc["c", 3]["difference"] == 0
    assert tests.loc["b", 4]["pairs"] == 1 and math.isnan(tests.loc["b", 4]["t"])
    assert tests.loc["c", 4]["difference"] == pytest.approx(-0.1)


def test_one_expert_is_not_enough(tmp_path: Path) -> None:
    alone = tiny.write_benchmark(tmp_path / "alone")
    for name in tiny.EXPERTS[1:]:
        (alone / "models" / f"{name}.safetensors").unlink()
    for key in ("drm_ablations", "task_counts"):
        with pytest.raises(TaskError, match="two experts"):
            measure.measure(key, Store(tmp_path / "store", libraries=()), Benchmark.load(alone))


# Figures


def _named(fig: Any, name: str) -> Any:
    (trace,) = [trace for trace in fig.data if trace.name == name]
    return trace


@pytest.mark.parametrize("value", ["accuracy", "normalized"])
def test_dots_and_lines_are_the_tables(value: str) -> None:
    table = viz_tables.task_counts(3)
    fig = viz.draw("task_counts", table, value=value)
    for method, rows in table.groupby("method"):
        dots, line = _named(fig, f"{method}, subsets"), _named(fig, str(method))
        np.testing.assert_allclose(dots.y, rows[value], rtol=1e-6)
        assert list(np.round(dots.x)) == list(rows["size"])
        means = rows.groupby("size")[value].mean()
        np.testing.assert_allclose(line.y, means, rtol=1e-6)
        assert list(np.round(line.x)) == list(means.index)
        assert line.x[0] == dots.x[0]  # a method's dots stand under its own line
    assert len({trace.x[0] for trace in fig.data}) == 3


def test_truncation_draws_every_cut_with_its_interval(found: dict[str, StoredMeasurement]) -> None:
    ranks = found["drm_ablations"].table("ranks")
    table = conflict_ablations.build_truncation_table(ranks)
    fig = viz.draw("rank_truncation", table)
    for method, rows in ranks.groupby("method"):
        for group, (mean, low, high, _) in conflict_ablations.DOMAIN_COLUMNS.items():
            trace = _named(fig, f"{method}, {group}")
            own = rows.sort_values("kept")
            np.testing.assert_allclose(trace.x, own["kept"], rtol=1e-6)
            np.testing.assert_allclose(trace.y, own[mean], rtol=1e-6)
            np.testing.assert_allclose(trace.error_y.array, own[high] - own[mean], atol=1e-6)
            np.testing.assert_allclose(trace.error_y.arrayminus, own[mean] - own[low], atol=1e-6)


def test_the_papers_figures_stand_beside_their_chains() -> None:
    printed = conflict_ablations.read_published_accuracies()
    of = {variant.label: Recipe.build("drm", variant.changed).text() for variant in VARIANTS}
    assert printed[of["nothing removed"]] == 77.5 and printed[of["without renormalization"]] == 73.5
    assert printed[of["without pruning"]] == 74.9 and printed[of["without disjoint mean"]] == 62.9
    assert printed[of["without sign election"]] == 76.6 and printed[of["each task by itself"]] == 77.4


# Views


@pytest.fixture
def open_view(open_app: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that opens a view of Conflicts, with or without the measurements in the library."""

    def opened(about: str, store: Path) -> AppTest:
        monkeypatch.setenv("MERGESCOPE_STORE", str(store))
        return open_app("conflicts", folder, conflicts_view=about)

    return opened


@pytest.mark.parametrize("about", ["ablations of DRM", "number of tasks"])
def test_a_view_without_its_measurement_offers_it(open_view: Any, tmp_path: Path, about: str) -> None:
    at = open_view(about, tmp_path / "store")
    assert not at.exception and not at.error
    assert "has not been measured on this benchmark" in words(at)
    assert [button.label for button in at.button].count("Measure") == 1
    assert not at.get("plotly_chart")


def test_the_ablations_show_every_row(open_view: Any, found: dict[str, StoredMeasurement], folder: Path) -> None:
    at = open_view("ablations of DRM", folder / "making")
    assert not at.exception and not at.error
    (shown,) = at.dataframe
    rows = found["drm_ablations"].table("ablations")
    assert list(shown.value["variant"]) == list(rows["variant"])
    np.testing.assert_allclose(shown.value["In"], 100 * rows["in_domain"])
    assert shown.value["change"].iloc[0] == 0 and shown.value["printed"].iloc[0] == "77.5%"
    assert len(at.get("plotly_chart")) == 1
    assert "n = 120 images" in words(at) and "reporting half" in words(at)


def test_the_number_of_tasks_shows_figure_and_tests(
    open_view: Any, found: dict[str, StoredMeasurement], folder: Path
) -> None:
    at = open_view("number of tasks", folder / "making")
    assert not at.exception and not at.error
    assert len(at.get("plotly_chart")) == 1
    (shown,) = at.dataframe
    assert list(shown.value["method"])[-1] == "Pairs"
    assert list(shown.value.iloc[-1, 1:]) == ["6", "4", "1"]
    table = average_counts(found["task_counts"].table("counts"), found["task_counts"].table("experts"))
    tests = paired_tests(table, "DRM-H").set_index(["method", "size"])
    cell = shown.value.set_index("method").loc["Task Arithmetic w/ LwPTV", "2 experts"]
    first = tests.loc["Task Arithmetic w/ LwPTV", 2]
    assert cell == f"{100 * first['difference']:+.1f}, p = {first['p']:.3f}"
    assert shown.value.set_index("method").loc["Task Arithmetic w/ LwPTV", "4 experts"].endswith(", —")
    assert "n = 30 images" in words(at) and "11 subsets" in words(at) and "**too small**" in words(at)
    at.selectbox(key="tested_method").set_value("DRM-V").run()
    assert "Positive numbers favor **DRM\\-V**" in words(at) and "DRM-H" in set(at.dataframe[0].value["method"])
    at.toggle(key="relative_accuracy").set_value(True).run()
    relative = paired_tests(table, "DRM-V", "normalized").set_index(["method", "size"]).loc["DRM-H", 2]
    (shown,) = at.dataframe
    cell = shown.value.set_index("method").loc["DRM-H", "2 experts"]
    assert cell.startswith(f"{100 * relative['difference']:+.1f}, p = ")
