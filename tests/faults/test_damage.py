"""Every file of the store, cut and with a bit flipped: found, set aside, told, and computed again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tiny_data
from damage import damage_each_file
from small_sweeps import names

from merging.base.errors import CheckpointError, StoreError, TaskError
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.images.benchmarks.build.benchmark_description import Description
from merging.images.benchmarks.build.benchmark_folder import write_benchmark
from merging.images.benchmarks.manifest import MANIFEST
from merging.models.digest_cache import DIGESTS
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.sharing.export.text_side import find_text_tower_beside
from merging.study import measure
from merging.study.analysis import measurement_store as stored_measurements
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store, read_damaged_recipe
from merging.study.sweeps import points, sweep_storage
from merging.study.sweeps import sweep_session as sweep_compute
from merging.tasks.context import Context


@pytest.fixture
def store(filled: Run, library: Path) -> Store:
    return Store(filled.path.parents[1], libraries=(library / "runs",))


@pytest.mark.parametrize("name", ["run.json", "recipe.yaml", "manifest.json", "scores.csv"])
def test_what_a_damaged_run_was_of_is_known_unless_that_is_damaged(store: Store, filled: Run, name: str) -> None:
    original, path = filled.recipe, filled.path / name
    path.write_bytes(path.read_bytes()[:-2])
    assert store.find(filled.id) is None
    (damage,) = store.damaged.list_damage()
    assert read_damaged_recipe(damage) == (None if name == "recipe.yaml" else original)


@pytest.mark.parametrize("name", ["measured.json", "tables/votes.csv"])
def test_what_a_damaged_measurement_was_of_is_known_unless_that_is_damaged(
    store: Store, filled: Run, library: Path, name: str
) -> None:
    found = stored_measurements.find_measurement_result("signs", store, Benchmark.load(library), filled.id)
    assert found is not None
    path = found.path / name
    path.write_bytes(path.read_bytes()[:-2])
    assert stored_measurements.find_measurement_result("signs", store, Benchmark.load(library), filled.id) is None
    (damage,) = store.damaged.list_damage()
    expected = None if name == "measured.json" else ("signs", filled.id)
    assert stored_measurements.read_damaged_subject(damage.path) == expected


def test_a_sweep(store: Store) -> None:
    (path,) = (store.root / sweep_storage.FOLDER).iterdir()
    title = sweep_storage.find_sweep(store, path.stem).title
    harmless = 0
    spare = path.read_bytes()
    for what, _ in damage_each_file(path.parent):
        try:
            assert sweep_storage.find_sweep(store, path.stem).title == title, what
            harmless += 1  # the comment was cut, and nothing of the sweep
        except StoreError as error:
            assert "There is no sweep" in str(error)
            (damage,) = store.damaged.list_damage()
            assert (damage.kind, damage.name, damage.is_moved) == ("sweep", path.stem, True), what
            assert not sweep_storage.list_sweeps(store), what
            path.write_bytes(spare)
            store.damaged.remove(damage)
    assert harmless <= 2
    assert list(sweep_storage.list_sweeps(store)) == [path.stem]


def test_a_sweep_of_an_earlier_version_opens_and_one_of_a_later_version_stays(store: Store) -> None:
    (path,) = (store.root / sweep_storage.FOLDER).iterdir()
    text = path.read_text("utf-8").rpartition("# sha256")[0]
    path.write_text(text, "utf-8")
    assert sweep_storage.find_sweep(store, path.stem).title == "An own sweep"
    later = text.replace("version: 1", "version: 2")
    sweep_storage.write_text(path, sweep_storage.add_digest(later))
    with pytest.raises(StoreError, match="no sweep"):
        sweep_storage.find_sweep(store, path.stem)
    assert path.is_file() and not store.damaged.list_damage()


@pytest.mark.full
def test_what_was_set_aside_is_computed_again(store: Store, filled: Run, library: Path) -> None:
    benchmark = Benchmark.load(library)
    before = {name: filled.file(name).read_bytes() for name in filled.files}
    measured = stored_measurements.find_measurement_result("signs", store, benchmark, filled.id)
    (sweep,) = sweep_storage.list_sweeps(store).values()
    assert measured is not None and filled.recipe is not None
    point = points.points_folder(store) / min(names(store))
    for path in (filled.path / "scores.csv", measured.path / "tables" / "votes.csv", point / "scores.csv"):
        path.write_bytes(path.read_bytes()[:-1])
    all_points = names(store)
    again = execute(filled.recipe, store, benchmark=benchmark, context=Context(device="cpu"))
    assert {name: data for name in before if (data := again.file(name).read_bytes()) != before[name]}.keys() <= {
        "run.json"
    }
    assert measure.measure("signs", store, benchmark, filled.id, context=Context("cpu")).table("votes") is not None
    sweep_compute.run_sweep(sweep, store, benchmark, context=Context("cpu"))
    assert names(store) == all_points
    assert sorted(damage.kind for damage in store.damaged.list_damage() if damage.is_replaced) == [
        "measurement",
        "point",
        "run",
    ]


def test_damage_is_not_sealed_into_a_copy(store: Store, filled: Run) -> None:
    """Dropping the weights writes a new manifest, which must not take over a damaged table."""
    table = filled.path / "tables" / "saliency.csv"
    table.write_bytes(table.read_bytes().replace(b"0", b"1", 1))
    with pytest.raises(StoreError, match=r"damaged .*saliency\.csv"):
        store.delete_models(filled.id)
    assert [damage.name for damage in store.damaged.list_damage()] == [filled.id]


@pytest.mark.full
def test_a_benchmark_that_was_made_here(tmp_path: Path) -> None:
    parts = {"train": tiny_data.rows(2), "test": tiny_data.rows(2, 100)}
    tiny_data.whole_model(tmp_path / "clip.safetensors")
    tiny_data.folder(tmp_path / "folder", parts)
    plain = {"pretrained": "clip.safetensors", "images": 2, "exemplars": 2, "tasks": {"flags": "folder"}}
    made = write_benchmark(Description.from_plain(plain, tmp_path), tmp_path / "mine", tokenize=tiny_data.letters)

    def use() -> tuple[Any, ...]:
        DIGESTS.clear()
        found = Benchmark.load(made.folder)
        images = [found.load_images("flags", split)[1].tolist() for split in SPLITS]
        opened = open_inputs(Recipe.build("ties", {}, [], found.pretrained, {"a": found.pretrained}), benchmark=found)
        texts = [tower.digest for tower in find_text_tower_beside(open_checkpoint(found.pretrained))]
        return found.digest, images, found.load_head("flags").tolist(), opened.digests(), texts

    before, unnoticed = use(), []
    pixels = made.folder / "data" / "flags.npz"
    whole = pixels.read_bytes()
    pixels.write_bytes(whole.replace(bytes(whole[400:404]), bytes(4), 1))
    with pytest.raises(TaskError, match=r"mine is damaged: data/flags\.npz does not have the sha-256"):
        Benchmark.load(made.folder).load_images("flags", SPLITS[0])
    pixels.write_bytes(whole)
    for what, path in damage_each_file(made.folder):
        try:
            assert use() == before, what
            unnoticed.append(what)
        except (TaskError, CheckpointError) as error:
            assert path.name in {MANIFEST, *re.findall(r"[\w.]+", str(error))}, (what, str(error))
            assert re.search("damaged|empty|truncated|malformed", str(error)), (what, str(error))
    # A manifest does not guard itself, and metadata of weights are no weights.
    assert all(what.startswith((MANIFEST, "models/")) for what in unnoticed) and len(unnoticed) <= 8, unnoticed
