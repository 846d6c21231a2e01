"""The README of the bundled benchmark says what is stored, to the digit, and the stored scalings are what it says."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from merging.base import settings
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.metrics import summarize
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from sample_data.build import scalings, tables
from sample_data.build.measure import LOT, MASKED, RECIPES, TASK_ARITHMETIC
from sample_data.build.stored_models import StoredModels, relative_size

README = (settings.BUNDLED_FOLDER / "README.md").read_text("utf-8")
BY_TITLE = {recipe.title: recipe for recipe in RECIPES}


@pytest.fixture(scope="module")
def benchmark():
    return Benchmark.load()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"), libraries=(settings.LIBRARY_FOLDER,))


@pytest.fixture(scope="module")
def stored(store, benchmark):
    return tables.StoredScores(store, benchmark)


@pytest.fixture(scope="module")
def tried():
    return scalings.read(settings.BUNDLED_FOLDER)


def rows_under(head):
    """The rows of the README's table with this head."""
    lines = README[README.index(head) :].splitlines()
    return list(itertools.takewhile(lambda line: line.startswith("|"), lines[2:]))


def measured():
    """{quantity: what the table of floors and goals says was measured}."""
    rows = [row.split("|") for row in rows_under("| quantity | measured |")]
    return {row[1].strip(): row[2].strip() for row in rows}


def published_mean(tried, recipe, side):
    """The mean over tasks of a recipe's accuracy on reporting images at its published scaling, in percent."""
    (row,) = tried[(tried["recipe"] == recipe.title) & tried["published"]].to_dict("records")
    return row[side]


def test_the_table_of_single_models(stored):
    assert rows_under("| data set | n |") == list(tables.single_models(stored))


def test_the_table_of_merges(stored, tried):
    assert rows_under("| recipe, scaling |") == list(tables.merges(stored, tried))


def test_the_table_of_drift(store, benchmark):
    assert rows_under("| merge | drift |") == list(tables.drift(store, benchmark))


def test_what_is_said_of_single_models(stored):
    rows = measured()
    assert {name: rows[name] for name in tables.bounds(stored)} == tables.bounds(stored)
    bench = StoredModels(settings.BUNDLED_FOLDER)
    sizes = [f"{key} {relative_size(bench.pretrained, model):.1f}" for key, model in bench.experts.items()]
    assert rows["relative size of task vectors, %"] == ", ".join(sizes)


def test_what_is_said_of_merges(stored, tried):
    rows = measured()
    pretrained = 100 * float(stored.average("pretrained", stored.inside))
    label, best = max(scalings.reported_rows(tried), key=lambda pair: pair[1]["in_domain"])
    assert rows[f"best merge over pretrained, in domain ({label})"] == f"{best['in_domain'] - pretrained:+.1f}"
    assert rows["best merge under the experts' mean"] == f"{100 * float(stored.own) - best['in_domain']:.1f}"
    masked, plain = (
        {side: published_mean(tried, each, side) for side in ("in_domain", "out_of_domain")}
        for each in (MASKED, TASK_ARITHMETIC)
    )
    outside, inside = "lwptv then task arithmetic over task arithmetic, 0.3, out of domain", "the same, in domain"
    assert rows[outside].startswith(f"{masked['out_of_domain'] - plain['out_of_domain']:+.1f} ±")
    assert rows[inside].startswith(f"{masked['in_domain'] - plain['in_domain']:+.1f} ±")
    averaging = published_mean(tried, BY_TITLE["weight averaging"], "in_domain")
    lot = published_mean(tried, LOT, "in_domain") - averaging
    assert rows["LOT over averaging, in domain, paired"].startswith(f"{lot:+.1f} ±")


def test_what_is_said_of_emr(store, benchmark):
    run = store.get_run(open_inputs(find_preset("emr").recipe(benchmark.pretrained, benchmark.experts)).run_id())
    found = summarize(run.scores, run.experts)
    said = re.search(r"has ([\d.]+) in domain and ([\d.]+) out of domain", README)
    assert said.groups() == (f"{100 * found.in_domain:.1f}", f"{100 * found.out_of_domain:.1f}")


def test_every_merge_is_tried_at_every_scaling_of_one_grid(tried):
    assert list(dict.fromkeys(tried["recipe"])) == [recipe.title for recipe in RECIPES]
    for title, rows in tried.groupby("recipe", sort=False):
        published = BY_TITLE[title].scaling
        if published is None:
            assert len(rows) == 1 and rows["choosing"].isna().all() and not rows["chosen"].any()
            continue
        assert tuple(rows["scaling"]) == scalings.GRID and published in scalings.GRID
        choosing = dict(zip(rows["scaling"], rows["choosing"], strict=True))
        assert list(rows.loc[rows["chosen"], "scaling"]) == [scalings.best_scaling(choosing)]
        assert list(rows.loc[rows["published"], "scaling"]) == [published]
        assert (rows["in_domain"].notna() == (rows["chosen"] | rows["published"])).all()
    assert f"{scalings.GRID[0]:g}, {scalings.GRID[1]:g}, … {scalings.GRID[-1]:g}" in README


def test_the_smallest_of_equally_good_scalings_is_chosen():
    assert scalings.best_scaling({0.1: 5, 0.2: 9, 0.3: 9, 0.4: 7}) == 0.2


@pytest.mark.full
def test_counts_at_published_scalings_are_those_of_the_library(store, benchmark, tried):
    """The library's runs and the table come from two ways to merge and evaluate."""
    compared = 0
    for recipe in RECIPES:
        drawn = {"per_task": recipe.exemplars, "seed": 0} if recipe.exemplars else None
        model = benchmark.pretrained, benchmark.experts
        built = Recipe.build(recipe.merge, recipe.params, recipe.edits, *model, exemplars=drawn)
        run = store.find(open_inputs(built).run_id())
        if run is not None:
            found = tables.counts(run.scores)
            shares = {key: 100 * right / n for key, (right, n) in found.items()}
            inside = np.mean([shares[key] for key in benchmark.experts])
            outside = np.mean([share for key, share in shares.items() if key not in benchmark.experts])
            means = published_mean(tried, recipe, "in_domain"), published_mean(tried, recipe, "out_of_domain")
            assert means == pytest.approx((inside, outside), abs=1e-4), recipe.title
            compared += 1
    assert compared > 20
