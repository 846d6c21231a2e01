"""A disk that is full at any call that writes: one sentence, no half result, and a second try that gives all of it.

Each piece of work is done once to count its calls. Then it is tried as often as it has calls, with a disk that is full
from that call on.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_data
from faulty_disk import FULL, contents, count, fail_writing

from merging.base.errors import StoreError
from merging.base.files import atomic
from merging.engine.evaluation import evaluate as evaluation
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.build.benchmark_description import Description
from merging.images.benchmarks.build.benchmark_folder import write_benchmark
from merging.images.benchmarks.manifest import altered
from merging.recipes.recipe import Recipe
from merging.sharing.export.model_export import export, export_file
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

SENTENCE = re.compile(r"The disk is full \(No space left on device[^)]*\): .{3,80} was not written\. .*Free some space")
SCRATCH = ("/locks/",)  # what may stay: it is no result, and is made again
TIMED = ("run.json", "manifest.json")  # they hold times


@pytest.fixture
def light(tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """The tiny benchmark, on which every merge has the scores of the pretrained model: writing is what is tested."""
    scores = evaluation.evaluate(tiny_benchmark.pretrained, tiny_benchmark, context=Context(device="cpu"))
    monkeypatch.setattr(evaluation, "evaluate", lambda *given, **options: scores)
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


def refuse_each(root: Path, work: Callable[[], Any], clean: Callable[[], Any], every: int = 1) -> None:
    """Try ``work`` with a disk that is full from each of its calls on; ``clean`` removes its result.

    The sync behind the last rename does not decide over the result.
    """
    before = results(root)
    calls = count(root, work)
    whole, done = results(root), []
    assert set(whole) > set(before)
    for number, call in list(enumerate(calls, start=1))[::every]:
        clean()
        assert results(root) == before
        with fail_writing(root, FULL, number):
            try:
                work()
                done.append(call)
            except StoreError as error:
                assert SENTENCE.search(str(error)), (call, str(error))
                assert results(root) == before, call
        assert not [name for name in contents(root) if "tmp-" in name], call
    assert len(done) <= 1, done
    clean()
    work()
    assert set(results(root)) == set(whole)
    assert [name for name, data in results(root).items() if data != whole[name] and not name.endswith(TIMED)] == []


@pytest.mark.full
def test_a_merge_with_evaluation(tmp_path: Path, light: Benchmark) -> None:
    store = Store(tmp_path / "store", libraries=())
    recipe = plain(light)

    def clean() -> None:
        shutil.rmtree(store.root, ignore_errors=True)

    def work() -> None:
        run = execute(recipe, store, benchmark=light, context=Context(device="cpu"))
        assert atomic.is_whole(run.path)

    refuse_each(tmp_path, work, clean)


@pytest.mark.full
def test_a_benchmark_in_the_making(tmp_path: Path) -> None:
    parts = {"train": tiny_data.rows(2), "test": tiny_data.rows(2, 100)}
    tiny_data.whole_model(tmp_path / "clip.safetensors")
    tiny_data.folder(tmp_path / "folder", parts)
    tiny.write_family(tmp_path / "experts", experts=("flags",))
    tasks = {"flags": {"images": "folder", "expert": "experts/flags.safetensors"}}
    described = Description.from_plain(
        {"pretrained": "clip.safetensors", "images": 2, "exemplars": 2, "tasks": tasks}, tmp_path
    )
    out = tmp_path / "benchmarks" / "mine"

    def work() -> None:
        write_benchmark(described, out, tokenize=tiny_data.letters)
        assert not altered(out)

    # The pixels of an image are buffered, so its last write may come with the file's end.
    refuse_each(tmp_path / "benchmarks", work, lambda: shutil.rmtree(out.parent, ignore_errors=True), every=3)


@pytest.mark.full
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
