"""Sweeps: what can be varied, points that are kept one by one, and what a kill or a damaged file leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.evaluate import evaluate
from merging.benchmarks.metrics import summarize
from merging.checkpoints.checkpoint import MappingCheckpoint
from merging.cli import exit_codes
from merging.cli.main import main
from merging.errors import CompatibilityError, MergingError, ParameterError, RecipeError, StoreError
from merging.jobs import records
from merging.jobs.records import JobFiles, State
from merging.jobs.runner import Runner
from merging.methods import registry
from merging.methods.params import Bound
from merging.recipes.presets import PRESETS
from merging.recipes.recipe import Recipe
from merging.runs import execute
from merging.runs.store import Store
from merging.sweeps import axis as axes
from merging.sweeps import compute as sweep_compute
from merging.sweeps import points, storage, tables
from merging.sweeps import sweep as sweep_module
from merging.sweeps.axis import ALPHA, EXPERTS, LAMBDA
from merging.sweeps.points import DrawnImages, Sample
from merging.sweeps.sweep import LINE, PLANE, Axis, Sweep
from merging.sweeps.weighted_sum import CombinedCheckpoint

ROOT = Path(__file__).resolve().parents[2]
RATIO = Axis("lwptv.prune_ratio", (0.0, 0.5, 0.9))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", libraries=())


def recipe(benchmark: Benchmark, merge: str = "task_arithmetic", **said: Any) -> Recipe:
    edits = said.pop("edits", ["lwptv"])
    return Recipe.build(merge, said.pop("params", {}), edits, benchmark.pretrained, benchmark.experts, **said)


def sweep(benchmark: Benchmark, *merges: str, **said: Any) -> Sweep:
    recipes = tuple(recipe(benchmark, merge) for merge in merges or ("task_arithmetic",))
    return Sweep(**({"recipes": recipes, "axes": (RATIO,), "images": 0} | said))


def run(found: Sweep, store: Store, benchmark: Benchmark, **said: Any) -> sweep_compute.Outcome:
    storage.keep(found, store)
    return sweep_compute.run(found, store, benchmark, device="cpu", **said)


def names(store: Store) -> set[str]:
    return {path.name for path in points.folder(store).iterdir() if len(path.name) == 12}


def found_points(found: Sweep, store: Store, benchmark: Benchmark) -> dict[str, points.Point]:
    every = sweep_compute.plan(found, benchmark)
    return {one.name: point for one in every if (point := sweep_compute.stored(one, store, benchmark, found.sample))}


# What can be varied


def test_every_numeric_parameter_of_every_preset_can_be_varied(tiny_benchmark: Benchmark) -> None:
    """Values that are offered are valid, reach the recipe, and nothing but numbers is offered."""
    for preset in PRESETS:
        base = preset.recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
        known = axes.targets([base])
        numeric = [b for step in base.steps for b in step.params.bounds().values() if b.kind in axes.NUMBERS]
        assert len([t for t in known if "." in t.name and t.name.partition(".")[0] != "exemplars"]) == len(numeric)
        for target in known:
            values = axes.offered(target.bound)
            assert 2 <= len(values) <= 20, (preset.key, target.name, values)
            assert axes.check_values(values, target.bound, "x") == values
            for value in (values[0], values[-1]):
                try:
                    changed = axes.varied(base, target.name, value)
                except RecipeError:
                    continue  # a value with which a chain makes no sense, such as trimming to nothing before TIES
                assert axes.current(changed, target.name) == pytest.approx(value)


def test_offered_values_are_round() -> None:
    share = Bound(kind="real", default=0.5, label="x", help="", low=0.0, high=1.0)
    assert axes.offered(share) == tuple(round(i / 10, 10) for i in range(11))
    assert axes.offered(replace(share, open_low=True)) == tuple(round(i / 10, 10) for i in range(1, 11))
    assert {0.0, 1.0, 1.5} <= set(axes.offered(ALPHA)) and {0.0, 1.0} <= set(axes.offered(LAMBDA))
    whole = Bound(kind="integer", default=4, label="x", help="", low=1, slider=(1, 64))
    assert all(value.is_integer() for value in axes.offered(whole))


@pytest.mark.parametrize(
    ("text", "values"),
    [("0:1:0.25", (0, 0.25, 0.5, 0.75, 1)), ("0, 0.5;1", (0, 0.5, 1)), ("0.1:0.35:0.1", (0.1, 0.2, 0.3))],
)
def test_values_are_read_and_written(text: str, values: tuple[float, ...]) -> None:
    assert axes.parse_values(text, "x") == pytest.approx(values)
    assert axes.parse_values(axes.written(values), "x") == pytest.approx(values)


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
        ({"kind": PLANE, "axes": (Axis("circles", (0, 1)), Axis("digit", (0, 1)))}, "Did you mean 'digits'"),
        ({"recipes": ()}, "1 to 8 recipes; got 0"),
        (
            {"axes": tuple(Axis(t, tuple(np.linspace(0, 1, 40))) for t in (RATIO.target, "task_arithmetic.scaling"))},
            "at most 1000 points; this one has 1,600",
        ),
    ],
)
def test_a_sweep_that_makes_no_sense_says_so(tiny_benchmark: Benchmark, said: dict[str, Any], error: str) -> None:
    with pytest.raises(MergingError, match=error):
        sweep(tiny_benchmark, **said)


def test_several_recipes_vary_what_they_share(tiny_benchmark: Benchmark) -> None:
    ours = [recipe(tiny_benchmark, merge) for merge in ("task_arithmetic", "ties")]
    assert [target.name for target in axes.targets(ours)] == ["lwptv.prune_ratio", EXPERTS, "scaling"]
    made = sweep(tiny_benchmark, "task_arithmetic", "ties", axes=(Axis("scaling", (0.1, 0.2)),))
    assert {axes.current(place.recipe, "scaling") for place in made.places} == {0.1, 0.2}
    with pytest.raises(RecipeError, match="takes one recipe"):
        sweep(tiny_benchmark, "task_arithmetic", "ties", axes=(RATIO, Axis("scaling", (0.1, 0.2))))


def test_the_second_step_of_a_key_has_a_name_of_its_own(tiny_benchmark: Benchmark) -> None:
    twice = recipe(tiny_benchmark, edits=[("dare", {"drop_rate": 0.2}), ("dare", {"drop_rate": 0.4, "seed": 1})])
    changed = axes.varied(twice, "dare#2.drop_rate", 0.9)
    assert [step.params.values()["drop_rate"] for step in changed.edits] == [0.2, 0.9]
    assert axes.varied(twice, "dare.drop_rate", 0.9).edits[0].params.values()["drop_rate"] == 0.9


def test_experts_come_in_one_seeded_order(tiny_benchmark: Benchmark) -> None:
    base = recipe(tiny_benchmark)
    chosen = [{name for name, _ in axes.varied(base, EXPERTS, count, seed=3).experts} for count in (1, 2, 3, 4)]
    assert [len(names) for names in chosen] == [1, 2, 3, 4]
    assert all(a < b for a, b in pairwise(chosen))
    orders = {tuple(axes.varied(base, EXPERTS, 2, seed).experts) for seed in range(8)}
    assert len(orders) > 1


def test_exemplars_are_varied_where_a_chain_needs_them(tiny_benchmark: Benchmark) -> None:
    lot = recipe(tiny_benchmark, "lot", edits=[])
    assert axes.varied(lot, "exemplars.per_task", 4).exemplars.per_task == 4  # type: ignore[union-attr]
    assert not [target for target in axes.targets([recipe(tiny_benchmark)]) if "exemplars" in target.name]


# What a sweep is


@pytest.mark.parametrize("kind", ["values", LINE, PLANE])
def test_a_sweep_reads_back(tiny_benchmark: Benchmark, store: Store, kind: str) -> None:
    said: dict[str, Any] = {
        "values": {},
        LINE: {"axes": (Axis("alpha", (0.0, 0.5, 1.0)),)},
        PLANE: {"axes": (Axis("circles", (0.0, 1.0)), Axis("digits", (0.0, 1.0)))},
    }[kind]
    made = sweep(tiny_benchmark, kind=kind, seed=4, images=8, title="Mine: a <b>title</b>", **said)
    assert Sweep.from_yaml(made.to_yaml()) == made
    assert replace(made, title="").id == made.id != replace(made, seed=5).id
    storage.keep(made, store)
    assert storage.find(store, made.id) == made
    storage.keep(replace(made, title="Renamed"), store)
    assert [found.title for found in storage.listed(store).values()] == ["Renamed"]
    storage.delete(store, made.id)
    assert not storage.listed(store)
    with pytest.raises(StoreError, match="cannot be deleted"):
        storage.delete(store, made.id)


def test_sweeps_that_cannot_be_read_are_left_out(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark)
    storage.keep(made, store)
    folder = store.root / storage.FOLDER
    (folder / "000000000000.yaml").write_text(made.to_yaml())  # says that it is another one
    (folder / "111111111111.yaml").write_text("recipes: [&a {}, *a]")
    (folder / "222222222222.yaml").write_bytes(b"\xff")
    assert list(storage.listed(store)) == [made.id]
    for bad in ("333333333333", "../../etc/passwd"):
        with pytest.raises(StoreError):
            storage.find(store, bad)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"axis": {}}, "Did you mean 'axes'"),
        ({"version": 9}, "another version"),
        ({"recipes": "ties"}, "recipes is a list"),
        ({"axes": {"experts": ["two"]}}, "a list of numbers"),
        ({"axes": {"experts": [True, False]}}, "a list of numbers"),
    ],
)
def test_a_malformed_sweep_says_what_is_wrong(tiny_benchmark: Benchmark, change: dict[str, Any], error: str) -> None:
    with pytest.raises(RecipeError, match=error):
        Sweep.from_yaml(json.dumps(sweep(tiny_benchmark).plain() | change))


def test_the_ends_and_the_middle_come_first(tiny_benchmark: Benchmark) -> None:
    made = sweep(tiny_benchmark, axes=(Axis(RATIO.target, tuple(i / 8 for i in range(9))),))
    values = [place.values[0] for place in made.places]
    assert sorted(values) == [i / 8 for i in range(9)]
    assert set(values[:3]) == {0.0, 0.5, 1.0}


# Weighted sums


def test_a_combination_is_the_dense_sum() -> None:
    base, experts = tiny.family()
    terms = [(0.4, experts["circles"]), (-1.3, experts["digits"])]
    made = CombinedCheckpoint(MappingCheckpoint(base, "base"), [(c, MappingCheckpoint(e, "e")) for c, e in terms])
    for name, first in base.items():
        dense = first.double() + sum(c * (e[name].double() - first.double()) for c, e in terms)
        torch.testing.assert_close(made.read(name).double(), dense, rtol=1e-5, atol=1e-6)
        assert made.read(name).dtype == first.dtype
        piece = made.read_flat(name, 1, 5)
        assert torch.equal(piece, made.read(name).reshape(-1)[1:5])


def test_a_combination_is_exact_at_its_corners_and_in_double() -> None:
    base, experts = tiny.family()
    pretrained, one = MappingCheckpoint(base, "base"), MappingCheckpoint(experts["circles"], "one")
    for coefficient, same in ((1.0, one), (0.0, pretrained)):
        assert CombinedCheckpoint(pretrained, [(coefficient, one)]).digest == same.digest
    assert CombinedCheckpoint(pretrained, []).digest == pretrained.digest
    double = {name: value.double() for name, value in base.items()}
    far = {name: value + 1e-12 for name, value in double.items()}
    made = CombinedCheckpoint(MappingCheckpoint(double, "base"), [(0.5, MappingCheckpoint(far, "far"))])
    assert all(not torch.equal(made.read(name), value) for name, value in double.items())


def test_a_combination_of_what_does_not_fit_is_refused() -> None:
    base, experts = tiny.family()
    odd = {name: value for name, value in experts["circles"].items() if name != "visual.proj"}
    with pytest.raises(CompatibilityError, match=r"visual\.proj"):
        CombinedCheckpoint(MappingCheckpoint(base, "base"), [(1.0, MappingCheckpoint(odd, "odd"))])


def test_where_a_merge_lies_in_its_plane(tiny_benchmark: Benchmark, store: Store) -> None:
    pair = ("circles", "digits")
    axes_ = tuple(Axis(name, (0.0, 1.0)) for name in pair)
    plain = Sweep(recipes=(recipe(tiny_benchmark, edits=[]),), axes=axes_, kind=PLANE, images=0)
    outcome = run(plain, store, tiny_benchmark)
    assert outcome == sweep_compute.Outcome(5, 5, False)
    merged = next(one for one in sweep_compute.plan(plain, tiny_benchmark) if not one.place.values)
    notes = points.find(store, merged.name).notes  # type: ignore[union-attr]
    assert notes["at"] == pytest.approx(dict.fromkeys(pair, 0.3), abs=2e-3)  # stored in float16
    assert notes["off_plane"] < 0.02
    found = found_points(plain, store, tiny_benchmark)
    rows = tables.table(plain, sweep_compute.plan(plain, tiny_benchmark), found)
    assert set(rows["task"]) == set(pair) and len(rows) == 8
    corner = rows[(rows["x"] == 1) & (rows["y"] == 0)].set_index("task")["correct"]
    own = evaluate(tiny_benchmark.experts["circles"], tiny_benchmark, splits=("choosing",), tasks=pair, device="cpu")
    assert corner.to_dict() == own.set_index("task")["correct"].to_dict()


# Points


@pytest.mark.slow
def test_points_have_the_scores_of_the_run_of_the_same_recipe(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark, "task_arithmetic", "ties")
    run(made, store, tiny_benchmark)
    every = sweep_compute.plan(made, tiny_benchmark)
    found = found_points(made, store, tiny_benchmark)
    means = tables.averages(tables.table(made, every, found)).set_index("point")
    other = Store(store.root / "other", libraries=())
    for one in every:
        stored = execute.execute(one.place.recipe, other, benchmark=tiny_benchmark, device="cpu")
        assert stored.id == one.run_id and stored.scores is not None
        expected = stored.scores[stored.scores["split"] == "choosing"].reset_index(drop=True)
        assert found[one.name].scores.to_csv() == expected.to_csv()
        summary = summarize(stored.scores, stored.experts, split="choosing")
        assert means.loc[one.name, "h_score"] == summary.h_score
        assert means.loc[one.name, "in_low"] == summary.in_low


def test_merges_of_one_model_per_task_are_judged_as_runs_are(tiny_benchmark: Benchmark, store: Store) -> None:
    emr = recipe(tiny_benchmark, "emr")
    made = Sweep(recipes=(emr,), axes=(Axis(RATIO.target, (0.2, 0.7)),), images=0)
    run(made, store, tiny_benchmark)
    one = next(one for one in sweep_compute.plan(made, tiny_benchmark) if one.place.values == (0.7,))
    stored = execute.execute(one.place.recipe, Store(store.root / "x", libraries=()), benchmark=tiny_benchmark)
    assert stored.scores is not None
    expected = stored.scores[stored.scores["split"] == "choosing"].reset_index(drop=True)
    assert points.find(store, one.name).scores.to_csv() == expected.to_csv()  # type: ignore[union-attr]
    with pytest.raises(RecipeError, match="no line through it"):
        Sweep(recipes=(emr,), axes=(Axis("alpha", (0.0, 1.0)),), kind=LINE)


def test_points_that_a_stored_run_has_are_taken_from_it(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark)
    middle = axes.varied(made.recipes[0], RATIO.target, 0.5)
    execute.execute(middle, store, benchmark=tiny_benchmark, device="cpu")
    assert tables.budget(made, store, tiny_benchmark).stored == 1
    run(made, store, tiny_benchmark)
    assert len(names(store)) == 2
    assert len(found_points(made, store, tiny_benchmark)) == 3
    few = replace(made, images=5)  # the run was judged on all images
    assert tables.budget(few, store, tiny_benchmark).stored == 0


def test_a_line_ends_in_the_pretrained_and_the_merged_model(tiny_benchmark: Benchmark, store: Store) -> None:
    line = sweep(tiny_benchmark, kind=LINE, axes=(Axis("alpha", (0.0, 0.5, 1.0)),))
    run(line, store, tiny_benchmark)
    every = {one.place.values[0]: one for one in sweep_compute.plan(line, tiny_benchmark)}
    found = found_points(line, store, tiny_benchmark)
    zero = evaluate(tiny_benchmark.pretrained, tiny_benchmark, splits=("choosing",), device="cpu")
    assert found[every[0.0].name].scores["correct"].tolist() == zero["correct"].tolist()
    stored = execute.execute(line.recipes[0], Store(store.root / "x", libraries=()), benchmark=tiny_benchmark)
    assert every[1.0].run_id == stored.id and not every[0.5].run_id
    assert stored.scores is not None
    expected = stored.scores[stored.scores["split"] == "choosing"]["correct"].tolist()
    assert found[every[1.0].name].scores["correct"].tolist() == expected


def test_a_point_that_lines_share_counts_once(tiny_benchmark: Benchmark, store: Store) -> None:
    lines = sweep(tiny_benchmark, "task_arithmetic", "ties", kind=LINE, axes=(Axis("alpha", (0.0, 1.0)),))
    assert len(lines.places) == 4
    assert tables.budget(lines, store, tiny_benchmark).points == 3
    assert run(lines, store, tiny_benchmark) == sweep_compute.Outcome(3, 3, False)
    every = sweep_compute.plan(lines, tiny_benchmark)
    means = tables.averages(tables.table(lines, every, found_points(lines, store, tiny_benchmark)))
    assert list(means["x"]) == [0.0, 1.0, 0.0, 1.0]  # and is on both lines
    assert means["in_domain"].iloc[0] == means["in_domain"].iloc[2]


def test_a_draw_of_images_is_seeded_and_of_the_stated_size(tiny_benchmark: Benchmark) -> None:
    def shown(images: int, seed: int) -> Any:
        return DrawnImages.of(tiny_benchmark, Sample(images=images, seed=seed)).images("circles", "choosing")

    few, labels = shown(7, 0)
    assert len(few) == len(labels) == 7
    assert np.array_equal(shown(7, 0)[0], few) and not np.array_equal(shown(7, 1)[0], few)
    whole, every = tiny_benchmark.images("circles", "choosing")
    places = [int(np.flatnonzero((whole == image).all(axis=(1, 2, 3)))[0]) for image in few]
    assert [every[place] for place in places] == list(labels)
    assert (
        len(shown(500, 0)[0]) == tiny.CHOOSING == DrawnImages.of(tiny_benchmark, Sample()).count("circles", "choosing")
    )
    assert Sample(images=500, seed=3).on(tiny_benchmark) == Sample()  # nothing is drawn, so the seed means nothing
    exemplars = DrawnImages.of(tiny_benchmark, Sample(images=3)).labeled_exemplars(8)
    assert all(len(task.images) == 8 for task in exemplars.values())


def test_left_out_experts_tasks_are_in_neither_average(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark, axes=(Axis(EXPERTS, (2.0, 4.0)),))
    run(made, store, tiny_benchmark)
    every = sweep_compute.plan(made, tiny_benchmark)
    rows = tables.table(made, every, found_points(made, store, tiny_benchmark))
    means = tables.averages(rows).set_index("x")
    assert means["tasks_in"].to_dict() == {2.0: 2, 4.0: 4}
    assert means["tasks_out"].to_dict() == {2.0: 2, 4.0: 2}


# Stopping and going on


def test_a_paused_sweep_goes_on_where_it_was(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark, "task_arithmetic", "ties")
    asked = iter(range(99))
    assert run(made, store, tiny_benchmark, paused=lambda: next(asked) >= 2) == sweep_compute.Outcome(2, 6, True)
    first = {name: (points.folder(store) / name).stat().st_mtime_ns for name in names(store)}
    said: list[str] = []
    run(made, store, tiny_benchmark, progress=lambda progress: said.append(progress.phase))
    assert len(names(store)) == 6
    assert all((points.folder(store) / name).stat().st_mtime_ns == time_ for name, time_ in first.items())
    assert list(dict.fromkeys(said)) == [f"Point {number} of 6" for number in (3, 4, 5, 6)]


@pytest.mark.parametrize("file", ["scores.csv", "point.json", "manifest.json"])
def test_only_a_damaged_point_is_computed_again(tiny_benchmark: Benchmark, store: Store, file: str) -> None:
    made = sweep(tiny_benchmark)
    run(made, store, tiny_benchmark)
    before = found_points(made, store, tiny_benchmark)
    victim = sorted(names(store))[1]
    written = {name: (points.folder(store) / name).stat().st_ino for name in names(store)}
    path = points.folder(store) / victim / file
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b",20,", b",19,", 1) if file == "scores.csv" else whole[:-9] + b"something")
    assert path.read_bytes() != whole and path.stat().st_size == len(whole)
    assert set(found_points(made, store, tiny_benchmark)) == set(before) - {victim}
    run(made, store, tiny_benchmark)
    after = found_points(made, store, tiny_benchmark)
    assert after[victim].scores.to_csv() == before[victim].scores.to_csv()
    changed = {name for name in names(store) if (points.folder(store) / name).stat().st_ino != written[name]}
    assert changed == {victim}


def test_a_failing_point_does_not_stop_the_others(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, compute = sweep(tiny_benchmark), sweep_compute.Session.compute

    def fail(self: Any, planned: sweep_compute.NamedPoint, tell: Any) -> Any:
        if planned.place.values == (0.5,):
            raise MergingError("The merged tensor overflows.")
        return compute(self, planned, tell)

    monkeypatch.setattr(sweep_compute.Session, "compute", fail)
    with pytest.raises(MergingError, match=r"1 of 3 points .* lwptv.prune_ratio 0.5: The merged tensor overflows"):
        run(made, store, tiny_benchmark)
    assert len(names(store)) == 2


def test_the_budget_learns_from_points(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark, images=8)
    guess = tables.budget(made, store, tiny_benchmark)
    assert (guess.points, guess.stored, guess.known) == (3, 0, False) and guess.seconds > 0
    asked = iter(range(99))
    run(made, store, tiny_benchmark, paused=lambda: next(asked) >= 1)
    learned = tables.budget(made, store, tiny_benchmark)
    took = next(iter(found_points(made, store, tiny_benchmark).values())).seconds
    assert (learned.stored, learned.known) == (1, True)
    assert learned.each == pytest.approx(sum(took.values()), rel=0.02)


def test_models_that_do_not_fit_the_benchmark_are_refused(tiny_benchmark: Benchmark, store: Store) -> None:
    with pytest.raises(MergingError, match="cannot be evaluated on the benchmark"):
        run(sweep(tiny_benchmark), store, replace(tiny_benchmark, image_size=32))


# The command, and the job that runs it


def command(found: Sweep, store: Store, *more: str) -> list[str]:
    wanted = ["sweep", "--stored", found.id, "--store", str(store.root), "--device", "cpu"]
    return [sys.executable, "-m", "merging", *wanted, *more]


@pytest.mark.slow
def test_a_killed_sweep_goes_on_without_redoing_points(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = Axis(RATIO.target, tuple(round(i / 24, 4) for i in range(24)))
    made = sweep(tiny_benchmark, axes=(many,))
    storage.keep(made, store)
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_benchmark.folder))
    process = subprocess.Popen(command(made, store), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (points.folder(store).is_dir() and len(names(store)) >= 3):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = found_points(made, store, tiny_benchmark)
    assert 3 <= len(before) < 24
    inodes = {name: (points.folder(store) / name).stat().st_ino for name in before}
    run(made, store, tiny_benchmark)
    assert len(found_points(made, store, tiny_benchmark)) == 24
    assert all((points.folder(store) / name).stat().st_ino == inode for name, inode in inodes.items())
    points.sweep_up(store, process.pid)
    assert len(list(points.folder(store).iterdir())) == 24


@pytest.mark.slow
def test_the_command_describes_pauses_and_goes_on(
    tiny_benchmark: Benchmark, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_benchmark.folder))
    file, flag = tmp_path / "recipe.yaml", tmp_path / "pause"
    file.write_text(recipe(tiny_benchmark).to_yaml())
    flag.touch()
    common = ["sweep", str(file), "--vary", "lwptv.prune_ratio=0,0.5", "--store", str(store.root), "--device", "cpu"]
    assert main([*common, "--pause-file", str(flag)]) == exit_codes.PAUSED
    said = capsys.readouterr().out
    assert "2 points, 0 of them stored" in said and "Paused at 0 of 2 points" in said
    assert main([*common, "--json"]) == exit_codes.DONE
    told = json.loads(capsys.readouterr().out)
    assert [point["x"] for point in told["points"]] == [0.0, 0.5] and len(told["tasks"]) == 12
    assert main(["sweep", "--stored", told["id"], "--store", str(store.root)]) == exit_codes.DONE
    assert "LwPTV: prune ratio" in capsys.readouterr().out
    assert main([*common[:2], "--line", "0,1", "--images", "4", *common[4:]]) == exit_codes.DONE
    assert main([*common[:2], "--plane", "circles,digits", "--vary", "circles=0,1", *common[4:]]) == exit_codes.DONE
    capsys.readouterr()
    assert main(["sweep"]) == exit_codes.USAGE
    assert main([*common[:2], "--vary", "lwptv.prune_ratio=0,2", *common[4:]]) == exit_codes.FAILED
    assert capsys.readouterr().err.endswith("lwptv.prune_ratio must be a number in [0, 1]. Got 2 instead.\n")


@pytest.fixture
def runner(store: Store, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    made = Runner(store, device="cpu")
    yield made
    made.close()


def _until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_job_computes_a_sweep_and_pauses(
    runner: Runner, store: Store, tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sweep(tiny_benchmark, axes=(Axis(RATIO.target, tuple(round(i / 90, 4) for i in range(90))),))
    storage.keep(made, store)
    job = runner.sweep(made.id, "mine")
    assert (job.title, job.kind, job.subject) == ("Sweep: mine", records.SWEEP, made.id)
    assert runner.sweep(made.id, "mine").submitted == job.submitted
    _until(lambda: points.folder(store).is_dir() and len(names(store)) >= 2)
    runner.pause(job.id)
    _until(lambda: not runner.get(job.id).live)
    assert runner.get(job.id).state == State.PAUSED
    assert 2 <= len(names(store)) < 90
    wait = [sys.executable, "-c", "import time; time.sleep(9)"]
    monkeypatch.setattr(JobFiles, "start", lambda *_: subprocess.Popen(wait, start_new_session=True))
    other = replace(made, seed=1)
    storage.keep(other, store)
    runner.sweep(made.id, "mine")
    waiting = runner.sweep(other.id, "other")
    runner.pause(waiting.id)
    assert runner.get(waiting.id).state == State.PAUSED
    runner.cancel(job.id)
    _until(lambda: runner.get(job.id).state == State.CANCELLED)


def test_methods_are_found_by_sweeps_without_being_named() -> None:
    """No file of the sweeps knows a method or one of its parameters by name."""
    keys = {method.key for method in registry.methods()}
    for module in (axes, points, sweep_module, sweep_compute, tables):
        source = Path(str(module.__file__)).read_text("utf-8")
        assert not [key for key in keys if f'"{key}"' in source], module.__name__
