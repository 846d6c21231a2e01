"""A disk that is full at any call that writes: one sentence, no half result, and a second try that gives all of it.

Each piece of work is done once to count its calls. Then it is tried as often as it has calls, with a disk that is full
from that call on, and one that refuses that call alone.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small_sweeps
import tiny
import tiny_data
from faulty_disk import FULL, contents, count, faulty

from app.views.models import benchmark_plan
from merging.analysis import measure
from merging.benchmarks import evaluate as evaluation
from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.build.description import Description
from merging.benchmarks.build.write import make
from merging.benchmarks.manifest import altered
from merging.catalog import model_sets, uploads
from merging.errors import StoreError
from merging.export.export import export, export_file
from merging.files import atomic
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.store import Store
from merging.sweeps import compute as sweep_compute
from merging.sweeps import points, storage
from merging.sweeps.sweep import Axis, Sweep
from merging.tasks.context import Context

SENTENCE = re.compile(r"The disk is full \(No space left on device[^)]*\): .{3,80} was not written\. .*Free some space")
SCRATCH = ("/locks/",)  # what may stay: it is no result, and is made again
TIMED = ("run.json", "manifest.json", "measured.json", "point.json")  # they hold times


@pytest.fixture
def light(tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """The tiny benchmark, on which every merge has the scores of the pretrained model: writing is what is tested."""
    scores = evaluation.evaluate(tiny_benchmark.pretrained, tiny_benchmark, context=Context(device="cpu"))
    monkeypatch.setattr(evaluation, "evaluate", lambda *given, **options: scores)
    monkeypatch.setattr(sweep_compute, "evaluate", lambda *given, **options: scores)
    return tiny_benchmark


def plain(benchmark: Benchmark) -> Recipe:
    """A merge of one expert, which takes little time beside its writing."""
    return Recipe.build("task_arithmetic", {}, [], benchmark.pretrained, {"flags": benchmark.experts["flags"]})


def results(root: Path) -> dict[str, bytes | None]:
    """Everything below a folder that anybody could take for a result."""
    return {
        name: data
        for name, data in contents(root).items()
        if not any(part in f"/{name}" for part in SCRATCH) and data is not None
    }


def refuse_each(
    root: Path, work: Callable[[], Any], clean: Callable[[], Any], alone: bool = False, spared: int = 1, every: int = 1
) -> None:  # fmt: skip
    """Try ``work`` with each of its calls refused; ``clean`` removes its result, ``spared`` calls do not matter."""
    before = results(root)
    calls = count(root, work)
    whole, done = results(root), []
    assert set(whole) > set(before)
    for number, call in list(enumerate(calls, start=1))[::every]:
        clean()
        assert results(root) == before
        with faulty(root, FULL, number, number if alone else float("inf")):
            try:
                work()
                done.append(call)
            except StoreError as error:
                assert SENTENCE.search(str(error)), (call, str(error))
                assert results(root) == before, call
        assert not [name for name in contents(root) if "tmp-" in name], call
    assert len(done) <= spared, done
    clean()
    work()
    assert set(results(root)) == set(whole)
    assert [name for name, data in results(root).items() if data != whole[name] and not name.endswith(TIMED)] == []


@pytest.mark.slow
@pytest.mark.parametrize("alone", [False, True])
def test_a_merge_with_evaluation(tmp_path: Path, light: Benchmark, alone: bool) -> None:
    store = Store(tmp_path / "store", libraries=())
    recipe = plain(light)

    def clean() -> None:
        shutil.rmtree(store.root, ignore_errors=True)

    def work() -> None:
        run = execute(recipe, store, benchmark=light, context=Context(device="cpu"))
        assert atomic.is_whole(run.path)

    # The lock and the sync behind the last rename do not decide over the result.
    refuse_each(tmp_path, work, clean, alone, spared=10 if alone else 1, every=3 if alone else 1)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["signs", "features"])
def test_a_measurement(tmp_path: Path, light: Benchmark, key: str) -> None:
    store = Store(tmp_path / "store", libraries=())
    recipe = plain(light)
    run = execute(recipe, store, benchmark=light, context=Context(device="cpu"))

    def clean() -> None:
        shutil.rmtree(store.root / "measured", ignore_errors=True)

    refuse_each(
        tmp_path,
        lambda: measure.measure(key, store, light, run.id, context=Context(device="cpu")),
        clean,
        every=1 if key == "signs" else 4,
    )


@pytest.mark.slow
def test_a_sweep(tmp_path: Path, light: Benchmark) -> None:
    """Points that are whole stay, so a second try goes on with them."""
    store = Store(tmp_path / "store", libraries=())
    sweep = Sweep(recipes=(plain(light),), axes=(Axis("task_arithmetic.scaling", (0.1, 0.5)),), images=0)

    def work() -> None:
        storage.keep(sweep, store)
        sweep_compute.run(sweep, store, light, context=Context(device="cpu"))

    calls = count(tmp_path, work)
    names = small_sweeps.names(store)
    for number in range(len(calls), 0, -2):  # behind the last rename come its sync, and the time of the point
        shutil.rmtree(store.root, ignore_errors=True)
        with faulty(tmp_path, FULL, number):
            try:
                work()
                assert not any(call.startswith("rename") for call in calls[number - 1 :])
            except StoreError as error:
                assert SENTENCE.search(str(error)), (calls[number - 1], str(error))
        assert not [name for name in contents(tmp_path) if "tmp-" in name], calls[number - 1]
        stored = small_sweeps.names(store) if points.folder(store).is_dir() else set()
        assert all(points.find(store, name) is not None for name in stored)
    work()
    assert small_sweeps.names(store) == names
    assert list(storage.listed(store)) == [sweep.id]


@pytest.mark.slow
def test_a_benchmark_in_the_making(tmp_path: Path) -> None:
    parts = {"train": tiny_data.rows(2), "test": tiny_data.rows(2, 100)}
    tiny_data.whole_model(tmp_path / "clip.safetensors")
    tiny_data.folder(tmp_path / "folder", parts)
    tiny.write_family(tmp_path / "experts", experts=("flags",))
    tasks = {"flags": {"images": "folder", "expert": "experts/flags.safetensors"}}
    described = Description.of(
        {"pretrained": "clip.safetensors", "images": 2, "exemplars": 2, "tasks": tasks}, tmp_path
    )
    out = tmp_path / "benchmarks" / "mine"

    def work() -> None:
        make(described, out, tokenize=tiny_data.letters)
        assert not altered(out)

    # The pixels of an image are buffered, so its last write may come with the file's end.
    refuse_each(tmp_path / "benchmarks", work, lambda: shutil.rmtree(out.parent, ignore_errors=True), every=3)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["hf", "open_clip", "file"])
def test_an_export(tmp_path: Path, light: Benchmark, to: str) -> None:
    store = Store(tmp_path / "store", libraries=())
    recipe = plain(light)
    run = execute(recipe, store, benchmark=light, context=Context(device="cpu"))
    place = tmp_path / "exports"

    def work() -> None:
        if to == "file":
            export_file(run, place / "model.safetensors")
        else:
            export(run, place / "model", to=to)

    refuse_each(place, work, lambda: shutil.rmtree(place, ignore_errors=True), every=3)


def test_an_earlier_export_stays(tmp_path: Path, light: Benchmark) -> None:
    store = Store(tmp_path / "store", libraries=())
    run = execute(plain(light), store, benchmark=light, context=Context(device="cpu"))
    place = tmp_path / "exports" / "model"
    export(run, place)
    before = contents(place)
    calls = count(place.parent, lambda: export(run, place, overwrite=True))
    for number in range(1, len(calls) + 1, 11):
        with faulty(place.parent, FULL, number), pytest.raises(StoreError, match="disk is full"):
            export(run, place, overwrite=True)
        assert contents(place) == before and [path.name for path in place.parent.iterdir()] == ["model"]


def test_small_things_of_the_app(tmp_path: Path, tiny_family: tiny.Family, tiny_benchmark: Benchmark) -> None:
    """A set of models, an upload, a sweep's title: whole or as before."""
    made = model_sets.make("Größe α", "/a/b", {"x": "/c/d"})
    content = tiny_family.pretrained.read_bytes()
    sweep = small_sweeps.sweep(tiny_benchmark)
    works: dict[str, Callable[[Path], Any]] = {
        "set": lambda root: model_sets.keep(root, made),
        "upload": lambda root: uploads.keep(root, "my model.safetensors", content),
        "sweep": lambda root: storage.keep(sweep, Store(root, libraries=())),
        "description": lambda root: benchmark_plan.keep(root / "benchmarks" / "mine.yaml", {"images": 4}),
    }
    for name, work in works.items():
        root = tmp_path / name

        def clean(root: Path = root) -> None:
            shutil.rmtree(root, ignore_errors=True)

        refuse_each(root, partial(work, root), clean, spared=int(name == "upload"))  # its last sync
