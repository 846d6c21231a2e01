"""Every file of the store, cut and with a bit flipped: found, set aside, told, and computed again."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_data
from damage import faults
from small_sweeps import names

from merging.analysis import measure
from merging.analysis import stored as stored_measurements
from merging.benchmarks.benchmark import SPLITS, Benchmark
from merging.benchmarks.build.description import Description
from merging.benchmarks.build.write import make
from merging.benchmarks.manifest import MANIFEST
from merging.checkpoints.digests import DIGESTS
from merging.errors import CheckpointError, StoreError, TaskError
from merging.export.text_side import beside
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.inputs import open_inputs
from merging.runs.run import Run
from merging.runs.store import Store, recipe_of
from merging.sweeps import compute as sweep_compute
from merging.sweeps import points, storage
from merging.tasks import results
from merging.tasks.context import Context
from merging.tasks.quarantine import FOLDER


@pytest.fixture
def store(filled: Run, library: Path) -> Store:
    return Store(filled.path.parents[1], libraries=(library / "runs",))


def everything_of(run: Run) -> list[Any]:
    """All that a run holds, read."""
    return [*map(run.table, run.tables), run.scores, run.recipe, run.model_paths]


def each(store: Store, entry: Path, use: Callable[[], Any], kind: str) -> Iterator[str]:
    """Every fault of an entry, after it was found and set aside; ``use`` gives None or raises StoreError then."""
    spare = store.root / f"spare {entry.name}"
    shutil.copytree(entry, spare) if entry.is_dir() else shutil.copy(entry, spare)
    for what, path in faults(entry if entry.is_dir() else entry.parent):
        try:
            assert use() is None, what
        except StoreError as error:
            assert "damaged" in str(error) or "no sweep" in str(error), what
            assert kind == "sweep" or use() is None, what
        (damage,) = store.damaged.listed()
        assert damage.aside and not damage.replaced and not entry.exists(), what
        assert (damage.kind, damage.name) == (kind, entry.stem) and damage.reason, what
        assert "was set aside" in damage.sentence and damage.place.parent == store.root / FOLDER, what
        yield what
        shutil.rmtree(entry, ignore_errors=True)
        shutil.copytree(spare, entry) if spare.is_dir() else shutil.copy(spare, entry)
        assert use() is not None, what
        assert damage.replaced
        store.damaged.remove(damage)
        assert store.damaged.listed() == []
        path.touch()


def test_a_run(store: Store, filled: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "PAUSE", 0.0)  # nobody is replacing it meanwhile

    def use() -> Any:
        found = store.find(filled.id)
        return found and everything_of(found)

    count, original = 0, filled.recipe
    for what in each(store, filled.path, use, "run"):
        count += 1
        (damage,) = store.damaged.listed()
        recipe = recipe_of(damage)
        if what.startswith(MANIFEST):  # nothing tells whether the recipe is as it was written
            assert recipe in {None, original}, what
        else:
            assert recipe == (None if what.startswith("recipe.yaml") else original), what
    assert count == 20 * len([path for path in filled.path.rglob("*") if path.is_file()]) >= 100
    assert len(caplog.records) == count  # one sentence for each


def test_a_measurement(store: Store, filled: Run, library: Path) -> None:
    benchmark = Benchmark.load(library)
    found = stored_measurements.find("signs", store, benchmark, filled.id)
    assert found is not None

    def use() -> Any:
        measured = stored_measurements.find("signs", store, benchmark, filled.id)
        return measured and [*map(measured.table, measured.tables)]

    for what in each(store, found.path, use, "measurement"):
        (damage,) = store.damaged.listed()
        expected = None if what.startswith("measured.json") else ("signs", filled.id)
        assert stored_measurements.subject_of(damage.place) in {expected, ("signs", filled.id)}, what


def test_a_point(store: Store) -> None:
    name = sorted(names(store))[0]
    for _ in each(store, points.folder(store) / name, lambda: points.find(store, name), "point"):
        pass


def test_a_sweep(store: Store) -> None:
    (path,) = (store.root / storage.FOLDER).iterdir()
    title = storage.find(store, path.stem).title
    harmless = 0
    spare = path.read_bytes()
    for what, _ in faults(path.parent):
        try:
            assert storage.find(store, path.stem).title == title, what
            harmless += 1  # the comment was cut, and nothing of the sweep
        except StoreError as error:
            assert "There is no sweep" in str(error)
            (damage,) = store.damaged.listed()
            assert (damage.kind, damage.name, damage.aside) == ("sweep", path.stem, True), what
            assert not storage.listed(store), what
            path.write_bytes(spare)
            store.damaged.remove(damage)
    assert harmless <= 2
    assert list(storage.listed(store)) == [path.stem]


def test_a_sweep_of_an_earlier_version_opens_and_one_of_a_later_version_stays(store: Store) -> None:
    (path,) = (store.root / storage.FOLDER).iterdir()
    text = path.read_text("utf-8").rpartition("# sha256")[0]
    path.write_text(text, "utf-8")
    assert storage.find(store, path.stem).title == "An own sweep"
    later = text.replace("version: 1", "version: 2")
    storage.write_text(path, storage.sealed(later))
    with pytest.raises(StoreError, match="no sweep"):
        storage.find(store, path.stem)
    assert path.is_file() and not store.damaged.listed()


@pytest.mark.slow
def test_what_was_set_aside_is_computed_again(store: Store, filled: Run, library: Path) -> None:
    benchmark = Benchmark.load(library)
    before = {name: filled.file(name).read_bytes() for name in filled.files}
    measured = stored_measurements.find("signs", store, benchmark, filled.id)
    (sweep,) = storage.listed(store).values()
    assert measured is not None and filled.recipe is not None
    point = points.folder(store) / min(names(store))
    for path in (filled.path / "scores.csv", measured.path / "tables" / "votes.csv", point / "scores.csv"):
        path.write_bytes(path.read_bytes()[:-1])
    all_points = names(store)
    again = execute(filled.recipe, store, benchmark=benchmark, context=Context(device="cpu"))
    assert {name: data for name in before if (data := again.file(name).read_bytes()) != before[name]}.keys() <= {
        "run.json"
    }
    assert measure.measure("signs", store, benchmark, filled.id, context=Context("cpu")).table("votes") is not None
    sweep_compute.run(sweep, store, benchmark, context=Context("cpu"))
    assert names(store) == all_points
    assert sorted(damage.kind for damage in store.damaged.listed() if damage.replaced) == [
        "measurement",
        "point",
        "run",
    ]


def test_damage_is_not_sealed_into_a_copy(store: Store, filled: Run) -> None:
    """Dropping the weights writes a new manifest, which must not take over a damaged table."""
    table = filled.path / "tables" / "saliency.csv"
    table.write_bytes(table.read_bytes().replace(b"0", b"1", 1))
    with pytest.raises(StoreError, match=r"damaged .*saliency\.csv"):
        store.drop_models(filled.id)
    assert [damage.name for damage in store.damaged.listed()] == [filled.id]


def test_a_library_stays_and_is_told(filled: Run, tmp_path: Path, library: Path) -> None:
    shutil.copytree(library / "runs", tmp_path / "library" / "runs")
    store = Store(tmp_path / "other", libraries=(tmp_path / "library" / "runs",))
    run = store.runs()[0]
    whole = (run.path / "scores.csv").read_bytes()
    (run.path / "scores.csv").write_bytes(whole[:-3])
    assert store.find(run.id) is None
    (damage,) = store.damaged.listed()
    assert not damage.aside and "left where it is" in damage.sentence and run.path.is_dir()
    (run.path / "scores.csv").write_bytes(whole)
    assert store.damaged.listed() == [] and store.has(run.id)


def test_a_benchmark_that_was_made_here(tmp_path: Path) -> None:
    parts = {"train": tiny_data.rows(2), "test": tiny_data.rows(2, 100)}
    tiny_data.whole_model(tmp_path / "clip.safetensors")
    tiny_data.folder(tmp_path / "folder", parts)
    plain = {"pretrained": "clip.safetensors", "images": 2, "exemplars": 2, "tasks": {"flags": "folder"}}
    made = make(Description.of(plain, tmp_path), tmp_path / "mine", tokenize=tiny_data.letters)

    def use() -> tuple[Any, ...]:
        DIGESTS.clear()
        found = Benchmark.load(made.folder)
        images = [found.images("flags", split)[1].tolist() for split in SPLITS]
        opened = open_inputs(Recipe.build("ties", {}, [], found.pretrained, {"a": found.pretrained}), benchmark=found)
        texts = [tower.digest for tower in beside(found.pretrained)]
        return found.digest, images, found.head("flags").tolist(), opened.digests(), texts

    before, unnoticed = use(), []
    pixels = made.folder / "data" / "flags.npz"
    whole = pixels.read_bytes()
    pixels.write_bytes(whole.replace(bytes(whole[400:404]), bytes(4), 1))
    with pytest.raises(TaskError, match=r"mine is damaged: data/flags\.npz does not have the sha-256"):
        Benchmark.load(made.folder).images("flags", SPLITS[0])
    pixels.write_bytes(whole)
    for what, path in faults(made.folder):
        try:
            assert use() == before, what
            unnoticed.append(what)
        except (TaskError, CheckpointError) as error:
            assert path.name in {MANIFEST, *re.findall(r"[\w.]+", str(error))}, (what, str(error))
            assert re.search("damaged|empty|truncated|malformed", str(error)), (what, str(error))
    # A manifest does not guard itself, and metadata of weights are no weights.
    assert all(what.startswith((MANIFEST, "models/")) for what in unnoticed) and len(unnoticed) <= 8, unnoticed
