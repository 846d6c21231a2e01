"""A benchmark, its runs and its models with hostile texts wherever a text may come from outside."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tiny
import tiny_library
from hostile_texts import TEXTS

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.analysis import measurement_subject
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

MEASURED = ("drift", "signs", "pairs", "features")


def text_at(place: int) -> str:
    """A text of the table, another one for each place until all are used."""
    return list(TEXTS.values())[place % len(TEXTS)]


@pytest.fixture(scope="session")
def hostile_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Titles of tasks, classes, sources, licenses, experts and runs are hostile; everything is measured once."""
    folder = tiny_library.write(tmp_path_factory.mktemp("hostile"), ("task_arithmetic_lwptv",))
    shutil.rmtree(folder / "runs")
    _spoil(folder / "tasks.json")
    benchmark, making = Benchmark.load(folder), Store(folder / "made", libraries=(), dated=False)
    for run in [_run(making, benchmark, start) for start in range(0, len(TEXTS), len(benchmark.experts))][:1]:
        for key in MEASURED:
            measure.measure(key, making, benchmark, run.id, context=Context(device="cpu"))
    (folder / "made" / "runs").rename(folder / "runs")
    (folder / "made" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
    return folder


def _run(store: Store, benchmark: Benchmark, start: int) -> Run:
    """A run whose title is hostile; but for the first run, which is measured, so are its experts' names."""
    names = [text_at(start + place) if start else name for place, name in enumerate(benchmark.experts)]
    experts = dict(zip(names, benchmark.experts.values(), strict=True))
    edit = ("lwptv", {}) if start else ("dare", {})
    recipe = Recipe.build("ties", {}, [edit], benchmark.pretrained, experts, text_at(start))
    return execute(recipe, store, benchmark=benchmark, keep_model=False)


def _spoil(path: Path) -> None:
    tasks = json.loads(path.read_text("utf-8"))
    for place, task in enumerate(tasks["tasks"]):
        task["title"] = text_at(place)[:70]
        task["source"], task["license"] = text_at(place + 1), text_at(place + 2)
        task["class_names"] = [f"{text_at(place + i)} {i}" for i, _ in enumerate(task["class_names"])]
        task["descriptions"] = [f"{text_at(place + i)} {i}" for i, _ in enumerate(task["descriptions"])]
    path.write_text(json.dumps(tasks), "utf-8")


@pytest.fixture
def hostile_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder whose files and folders have hostile names, as far as a file system allows them."""
    folder = tmp_path / "models"
    base, tuned = tiny.family(("circles", "digits"))
    names = [text.replace("/", "_").replace("\0", "_")[:80] for text in TEXTS.values()]
    for place, state in enumerate((base, *tuned.values())):
        (folder / names[place]).mkdir(parents=True)
        tiny.write(folder / names[place] / f"{names[place + 3]}.safetensors", state)
    for name in names:
        (folder / f"{name}.safetensors").write_bytes(b"no model")
    monkeypatch.setenv("MERGESCOPE_MODELS", str(folder))
    return folder
