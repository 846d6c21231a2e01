"""The precomputed library is complete, belongs to these checkpoints and this code, and its numbers come out again."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from merging.base import settings
from merging.base.errors import StoreError
from merging.base.files.atomic import is_whole, seal
from merging.base.files.records import write_json
from merging.base.files.tables import PACKED_SUFFIX, read_table, write_table
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.recipes.presets import LEARNING, PRESETS, find_preset, list_partners
from merging.study.analysis import measurement_store as stored_measurements
from merging.study.partners.best_subsets import choose_best, list_chosen
from merging.study.partners.stored_subsets import read_subsets
from merging.study.partners.subsets import list_few, plan_subsets
from merging.study.runs import edit_pairs
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.reference_models import find_references
from merging.study.runs.run import FACTS as RUN_FACTS
from merging.study.runs.run import PRECOMPUTED, SALIENCY
from merging.study.runs.run_answers import read_run_answers
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_session, sweep_storage
from merging.study.sweeps.known_points import KnownPoints
from sample_data import library
from sample_data.build.library_entries import HISTORY, PACK_ABOVE, pack, remove_seconds, shorten, table_path, thin_steps
from sample_data.library import (
    AWAITED_PRESETS,
    LEARNED,
    MEASURED,
    MEASUREMENTS,
    RUNS,
    Plan,
    add,
    copy_finished_runs,
    plan_library,
    rebuild_library,
)

FACTS = {RUN_FACTS, stored_measurements.FACTS, points.FACTS}
POINTS = settings.BUNDLED_FOLDER / points.FOLDER


@pytest.fixture(scope="module")
def benchmark():
    return Benchmark.load()


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", libraries=(settings.LIBRARY_FOLDER,))


@pytest.mark.full
def test_every_preset_is_there_with_its_partner_and_not_stale(benchmark, store):
    """A changed method, parameter, checkpoint or test image changes an id or a digest: run `make library`."""
    assert {one.key for one in PRESETS} - AWAITED_PRESETS < {one.key for one in RUNS}
    assert {one.key for one in (*PRESETS, *list_partners())} >= AWAITED_PRESETS
    assert list(LEARNED) == [one.key for one in PRESETS if one.key in LEARNED] and set(LEARNED) <= LEARNING
    for one in RUNS:
        run = store.get_run(open_inputs(one.recipe(benchmark.pretrained, benchmark.experts)).run_id())
        assert run.provenance == PRECOMPUTED and run.title == one.title
        assert run.benchmark == benchmark.digest
    assert len([run for run in store.list_runs() if run.kind == "merge"]) == len(RUNS)


def test_saliency_is_left_out_only_where_another_run_has_it(store):
    runs = store.list_runs()
    pruned = [run for run in runs if edit_pairs.find_same_saliency(run, runs)]
    assert len(pruned) > 20
    holders = {edit_pairs.find_same_saliency(run, runs).id for run in pruned if SALIENCY not in run.tables}
    assert holders and all(SALIENCY in store.get_run(run_id).tables for run_id in holders)


@pytest.mark.full
def test_every_measurement_is_there_and_not_stale(benchmark, store):
    recipes = {one.key: one.recipe(benchmark.pretrained, benchmark.experts) for one in PRESETS}
    pretrained = find_references(store, benchmark, compute=False)["pretrained"].id
    for kind, key in MEASUREMENTS:
        run = open_inputs(recipes[key]).run_id() if key in recipes else pretrained if key else ""
        found = stored_measurements.find_measurement_result(kind, store, benchmark, run)
        assert found is not None, (kind, key)
        assert found.provenance == PRECOMPUTED
        assert all(len(found.table(name)) for name in found.tables)


def test_every_sweep_is_there_and_complete(benchmark, store):
    assert set(sweep_storage.list_sweeps(store)) == {wanted.id for wanted in plan_library(benchmark).sweeps}
    for wanted in plan_library(benchmark).sweeps:
        planned, sample = sweep_session.plan_sweep(wanted, benchmark), wanted.sample.normalize_on(benchmark)
        found = KnownPoints(planned, store, benchmark, sample).read_points().values()
        assert len(found) == len({one.name for one in planned})
        assert all(point.provenance == PRECOMPUTED for point in found)


@pytest.mark.full
def test_subsets_of_the_team_are_there_with_the_report_of_the_best(benchmark, store):
    for key in plan_library(benchmark).subsets:
        recipe = find_preset(key).recipe(benchmark.pretrained, benchmark.experts)
        if key in library.FEW_SUBSETS_OF:
            few = list_few(len(benchmark.experts))
            assert list(read_subsets(plan_subsets(recipe, subsets=few), store, benchmark).right) == few
            continue
        measured = read_subsets(plan_subsets(recipe), store, benchmark)
        assert measured.complete and measured.total == 2 ** len(benchmark.experts)
        chosen = list_chosen(choose_best(measured))
        assert read_subsets(plan_subsets(recipe, 0, split=SPLITS[1], subsets=chosen), store, benchmark).complete


def test_what_is_not_planned_stays_as_it_is(benchmark, tmp_path):
    for name in library.FACTS_FILES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "entry").write_text("kept")
    rebuild_library(benchmark, Plan(tmp_path, (), (), (), (), ()), keep=True)
    assert {path.parent.name for path in tmp_path.glob("*/entry")} == set(library.FACTS_FILES)


@pytest.mark.full
def test_answers_of_every_run_give_exactly_its_scores(benchmark, store):
    scored = [run for run in store.list_runs() if run.has_scores]
    assert len(scored) > len(RUNS)  # with the references
    for run in scored:
        for split in SPLITS:
            answers, scores = read_run_answers(run, benchmark, split), run.scores[run.scores["split"] == split]
            assert answers is not None, run.id
            assert list(answers) == [task.key for task in benchmark.tasks], run.id
            for row in scores.to_dict("records"):
                one = answers[row["task"]]
                assert (one.predicted.shape, one.margin.shape) == ((len(one.models), row["n"]),) * 2, run.id
                assert round(one.is_right.sum() / len(one.models)) == row["correct"], run.id
                assert one.correctness.mean() == pytest.approx(row["accuracy"], rel=1e-12), run.id
                clear = np.abs(one.margin) > 1e-3
                assert ((one.margin > 0) == one.is_right)[clear].all(), run.id
        assert len(run.scores) == 2 * len(benchmark.tasks), run.id


@pytest.mark.full
def test_predictions_of_every_point_give_its_scores(benchmark, store):
    for wanted in plan_library(benchmark).sweeps:
        planned, sample = sweep_session.plan_sweep(wanted, benchmark), wanted.sample.normalize_on(benchmark)
        sampled = points.SampledBenchmark.from_benchmark(benchmark, sample)
        found = KnownPoints(planned, store, benchmark, sample).read_points()
        assert found
        for point in found.values():
            right = point.read_correctness(sampled)
            assert right is not None and list(right) == point.scores["task"].tolist(), point.name
            for row in point.scores.to_dict("records"):
                assert len(right[row["task"]]) == row["n"], point.name
                assert right[row["task"]].mean() == pytest.approx(row["accuracy"], rel=1e-12), point.name


def test_every_reference_is_there(benchmark, store):
    found = find_references(store, benchmark, compute=False)
    assert set(found) == {"pretrained", "multitask", *benchmark.experts}
    assert {run.benchmark for run in found.values()} == {benchmark.digest}


def test_the_library_holds_no_weights_and_nothing_of_a_machine():
    for path in (*settings.LIBRARY_FOLDER.rglob("*"), *MEASURED.rglob("*"), *POINTS.rglob("*")):
        assert path.suffix != ".safetensors"
        if path.name in FACTS:
            assert not json.loads(path.read_bytes()).get("seconds")  # nor its speed
        if path.is_file():
            content = gzip.decompress(path.read_bytes()) if path.suffix == PACKED_SUFFIX else path.read_bytes()
            assert b"/home/" not in content and b"/root/" not in content and b"/tmp/" not in content


def test_large_tables_are_packed_and_equal_ones_give_equal_files(tmp_path):
    folders = (settings.LIBRARY_FOLDER, MEASURED, POINTS)
    plain = [path for root in folders for path in root.rglob("*.csv") if path.stat().st_size > PACK_ABOVE]
    packed = [path for root in folders for path in root.rglob(f"*.csv{PACKED_SUFFIX}")]
    assert plain == [] and len(packed) > 100
    for number, path in enumerate(packed[:3]):
        folder = tmp_path / str(number)
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        (folder / "tables" / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        pack(folder)
        assert [one.name for one in (folder / "tables").iterdir()] == [path.name]
        assert (folder / "tables" / path.name).read_bytes()[3:8] == bytes(5)  # neither a name nor a time


def test_steps_of_learning_keep_few_digits_and_everything_else_all(tmp_path):
    table = pd.DataFrame({"step": [123456], "expert": ["1"], "coefficient": [0.123456], "order": [7]})
    entry = tmp_path / "run"
    entry.mkdir()
    schemas = {name: write_table(entry, name, table) for name in (*HISTORY, "coefficients")}
    write_json(entry / RUN_FACTS, {"seconds": {"merging": 1.0}, "created": "2026-01-01", "tables": schemas})
    seal(entry)
    for _ in range(2):  # what is short already stays as it is
        remove_seconds(tmp_path, RUN_FACTS)
        facts = json.loads((entry / RUN_FACTS).read_bytes())
        assert is_whole(entry) and facts["seconds"] == {} and facts["created"] is None
        for name, kept in {**dict.fromkeys(HISTORY, 0.123), "coefficients": 0.123456}.items():
            stored = read_table(table_path(entry, name), schemas[name])
            pd.testing.assert_frame_equal(stored, table.assign(coefficient=[kept]), check_exact=True)


def test_many_steps_are_thinned_out_but_for_the_last(tmp_path):
    (tmp_path / "tables").mkdir()
    steps = [*range(0, 510, 10), 505]
    schema = write_table(
        tmp_path, "coefficient_steps", pd.DataFrame({"step": steps, "coefficient": [0.5] * len(steps)})
    )
    for _ in range(2):
        shorten(tmp_path, "coefficient_steps", schema)
    kept = read_table(table_path(tmp_path, "coefficient_steps"), schema)
    assert kept["step"].tolist() == [*range(0, 481, 40), 505]
    assert (
        thin_steps([], 3) == set()
        and thin_steps([1, 2, 3], 3) == {1, 2, 3}
        and thin_steps([1, 2, 3, 4, 5], 3) == {1, 3, 5}
    )
    left = thin_steps(range(1, 7), 3)
    assert (
        left == {1, 3, 5, 6} and thin_steps(sorted(left), 3) == left
    )  # the last one stays, so one more is none too many


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """An empty library, and a store of our own beside it."""
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "own"))
    monkeypatch.setattr(settings, "LIBRARY_FOLDER", tmp_path / "runs")
    monkeypatch.setattr(settings, "BUNDLED_FOLDER", tmp_path)
    (tmp_path / "runs").mkdir()
    return tmp_path


def on_the_shelf(shelf):
    return Store(shelf / "none", libraries=(shelf / "runs",)).list_runs()


def content(run):
    """The bytes of a run's files, but for the work of reading: another run of this process may have read them."""
    files = {name: run.file(name).read_bytes() for name in run.files}
    facts = json.loads(files.pop(RUN_FACTS))
    return files, {**facts, "work": {**facts["work"], "reading": 0}}


def test_a_run_of_its_own_is_added_without_weights_and_seconds(shelf, tiny_benchmark):
    chosen = find_preset("localize_and_stitch_dataless")
    for _ in range(2):
        add(chosen, tiny_benchmark)
    (run,) = on_the_shelf(shelf)
    assert run.provenance == PRECOMPUTED and run.title == chosen.title and run.has_scores
    assert run.seconds == {} and run.created is None and not run.has_model and is_whole(run.path)
    assert (shelf / library.LEARNED_LIST).read_text() == f"{chosen.key}\n"


@pytest.mark.full
def test_what_is_measured_of_a_run_that_learned_comes_with_it(shelf, tiny_benchmark):
    add(find_preset("lw_adamerging_quick"), tiny_benchmark)
    (run,) = on_the_shelf(shelf)
    here = Store(shelf / "none", libraries=(shelf / "runs",))
    measured = stored_measurements.find_measurement_result("along_steps", here, tiny_benchmark, run.id)
    assert measured is not None and measured.provenance == PRECOMPUTED and measured.seconds is None
    assert set(measured.table("losses")["step"]) == set(run.table("coefficient_steps")["step"])


def test_a_finished_run_of_a_store_is_taken_as_it_is_and_not_computed_again(shelf, tiny_benchmark, monkeypatch, capsys):
    chosen, awaited = find_preset("localize_and_stitch_dataless"), find_preset("surgery")
    store = Store(shelf / "store", libraries=())
    theirs = execute(chosen.recipe(tiny_benchmark.pretrained, tiny_benchmark.experts), store, benchmark=tiny_benchmark)
    before = content(theirs)
    add(chosen, tiny_benchmark)
    (computed,) = on_the_shelf(shelf)
    added = content(computed)
    monkeypatch.setattr(library, "execute", None)
    assert copy_finished_runs([awaited, chosen], store, tiny_benchmark) == [chosen.key]
    assert f"{awaited.title}: no finished run" in capsys.readouterr().out
    (run,) = on_the_shelf(shelf)
    assert content(run) == added
    assert not run.has_model and run.created is None and theirs.has_model and theirs.created
    assert content(theirs) == before
    assert (shelf / library.LEARNED_LIST).read_text() == f"{chosen.key}\n"


@pytest.mark.full
def test_a_run_whose_recipe_is_written_otherwise_is_left_and_a_damaged_one_refused(shelf, tiny_benchmark, capsys):
    chosen = find_preset("localize_and_stitch_dataless")
    recipe = chosen.recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    store = Store(shelf / "store", libraries=())
    run = execute(replace(recipe, title="Mine"), store, benchmark=tiny_benchmark)
    assert copy_finished_runs([chosen], store, tiny_benchmark) == [] and on_the_shelf(shelf) == []
    assert "its recipe is written otherwise" in capsys.readouterr().out
    store.delete(run.id)
    run = execute(recipe, store, benchmark=tiny_benchmark)
    table = run.path / "tables" / "tensors.csv"
    table.write_text(table.read_text().replace("visual", "virtual"[:6], 1))
    with pytest.raises(StoreError, match=r"tensors\.csv"):
        copy_finished_runs([chosen], store, tiny_benchmark)
    assert on_the_shelf(shelf) == [] and not (shelf / library.LEARNED_LIST).exists()


@pytest.mark.parametrize("key", ["task_arithmetic_lwptv", "ties"])
@pytest.mark.full
def test_a_run_computed_now_equals_the_stored_one(key, benchmark, tmp_path, store):
    """The scores may differ by an image or two where another processor rounds otherwise; the tables not visibly."""
    recipe = find_preset(key).recipe(benchmark.pretrained, benchmark.experts)
    fresh = execute(recipe, Store(tmp_path / "fresh", libraries=()), benchmark=benchmark)
    stored = store.get_run(fresh.id)
    merged = fresh.scores.merge(stored.scores, on=["task", "split"], validate="one_to_one")
    assert len(merged) == len(fresh.scores)
    assert (merged["correct_x"] - merged["correct_y"]).abs().max() <= 2
    ours, theirs = fresh.table("tensors"), stored.table("tensors")
    assert ours["tensor"].equals(theirs["tensor"])
    assert (ours["change_norm"] - theirs["change_norm"]).abs().max() < 1e-4 * ours["change_norm"].max()
