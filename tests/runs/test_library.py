"""The precomputed library is complete, belongs to these checkpoints and this code, and its numbers come out again."""

from __future__ import annotations

import gzip
import json

import pytest

from merging import settings
from merging.analysis import stored as stored_measurements
from merging.benchmarks.benchmark import Benchmark
from merging.files.tables import PACKED
from merging.recipes.presets import PRESETS, partners
from merging.runs import edit_pairs
from merging.runs.execute import execute
from merging.runs.inputs import open_inputs
from merging.runs.reference_models import references
from merging.runs.run import FACTS as RUN_FACTS
from merging.runs.run import PRECOMPUTED, SALIENCY
from merging.runs.store import Store
from merging.sweeps import compute, points, storage
from sample_data.library import AWAITED, MEASURED, MEASUREMENTS, PACK_ABOVE, RUNS, pack, planned

FACTS = {RUN_FACTS, stored_measurements.FACTS, points.FACTS}
POINTS = settings.BUNDLED / points.FOLDER


@pytest.fixture(scope="module")
def benchmark():
    return Benchmark.load()


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", libraries=(settings.LIBRARY,))


@pytest.mark.slow
def test_every_preset_is_there_with_its_partner_and_not_stale(benchmark, store):
    """A changed method, parameter, checkpoint or test image changes an id or a digest: run `make library`."""
    assert {preset.key for preset in PRESETS} - AWAITED < {preset.key for preset in RUNS}
    assert {preset.key for preset in (*PRESETS, *partners())} >= AWAITED
    for preset in RUNS:
        run = store.run(open_inputs(preset.recipe(benchmark.pretrained, benchmark.experts)).run_id())
        assert run.provenance == PRECOMPUTED and run.title == preset.title
        assert run.benchmark == benchmark.digest
    assert len([run for run in store.runs() if run.kind == "merge"]) == len(RUNS)


def test_saliency_is_left_out_only_where_another_run_has_it(store):
    runs = store.runs()
    pruned = [run for run in runs if edit_pairs.same_saliency(run, runs)]
    assert len(pruned) > 20
    holders = {edit_pairs.same_saliency(run, runs).id for run in pruned if SALIENCY not in run.tables}
    assert len(holders) == 1 and all(SALIENCY in store.run(run_id).tables for run_id in holders)


@pytest.mark.slow
def test_every_measurement_is_there_and_not_stale(benchmark, store):
    recipes = {preset.key: preset.recipe(benchmark.pretrained, benchmark.experts) for preset in PRESETS}
    pretrained = references(store, benchmark, compute=False)["pretrained"].id
    for kind, key in MEASUREMENTS:
        run = open_inputs(recipes[key]).run_id() if key in recipes else pretrained if key else ""
        found = stored_measurements.find(kind, store, benchmark, run)
        assert found is not None, (kind, key)
        assert found.provenance == PRECOMPUTED
        assert all(len(found.table(name)) for name in found.tables)


def test_every_sweep_is_there_and_complete(benchmark, store):
    assert set(storage.listed(store)) == {wanted.id for wanted in planned(benchmark)}
    for wanted in planned(benchmark):
        found = [points.find(store, one.name) for one in compute.plan(wanted, benchmark)]
        assert found and all(point and point.provenance == PRECOMPUTED for point in found)


def test_every_reference_is_there(benchmark, store):
    found = references(store, benchmark, compute=False)
    assert set(found) == {"pretrained", "multitask", *benchmark.experts}
    assert {run.benchmark for run in found.values()} == {benchmark.digest}


def test_the_library_holds_no_weights_and_nothing_of_a_machine():
    for path in (*settings.LIBRARY.rglob("*"), *MEASURED.rglob("*"), *POINTS.rglob("*")):
        assert path.suffix != ".safetensors"
        if path.name in FACTS:
            assert not json.loads(path.read_bytes())["seconds"]  # nor its speed
        if path.is_file():
            content = gzip.decompress(path.read_bytes()) if path.suffix == PACKED else path.read_bytes()
            assert b"/home/" not in content and b"/root/" not in content and b"/tmp/" not in content


def test_large_tables_are_packed_and_equal_ones_give_equal_files(tmp_path):
    folders = (settings.LIBRARY, MEASURED, POINTS)
    plain = [path for root in folders for path in root.rglob("*.csv") if path.stat().st_size > PACK_ABOVE]
    packed = [path for root in folders for path in root.rglob(f"*.csv{PACKED}")]
    assert plain == [] and len(packed) > 100
    for path in packed[:3]:
        folder = tmp_path / path.parent.parent.name
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        (folder / "tables" / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        pack(folder)
        assert [one.name for one in (folder / "tables").iterdir()] == [path.name]
        assert path.read_bytes()[3:8] == bytes(5)  # neither a name nor a time


@pytest.mark.parametrize("key", ["task_arithmetic_lwptv", "ties"])
@pytest.mark.slow
def test_a_run_computed_now_equals_the_stored_one(key, benchmark, tmp_path, store):
    """The scores may differ by an image or two where another processor rounds otherwise; the tables not visibly."""
    (preset,) = (p for p in PRESETS if p.key == key)
    recipe = preset.recipe(benchmark.pretrained, benchmark.experts)
    fresh = execute(recipe, Store(tmp_path / "fresh", libraries=()), benchmark=benchmark)
    stored = store.run(fresh.id)
    merged = fresh.scores.merge(stored.scores, on=["task", "split"], validate="one_to_one")
    assert len(merged) == len(fresh.scores)
    assert (merged["correct_x"] - merged["correct_y"]).abs().max() <= 2
    ours, theirs = fresh.table("tensors"), stored.table("tensors")
    assert ours["tensor"].equals(theirs["tensor"])
    assert (ours["change_norm"] - theirs["change_norm"]).abs().max() < 1e-4 * ours["change_norm"].max()
