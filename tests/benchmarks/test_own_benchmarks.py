"""Several benchmarks on one machine: finding data, naming folders in links, jobs and stores that keep them apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import test_jobs
import tiny
import tiny_data

from merging.benchmarks import folders
from merging.benchmarks.benchmark import Benchmark
from merging.catalog import data_sets, folder_walk
from merging.checkpoints import references
from merging.cli.main import main
from merging.errors import CheckpointError, StoreError
from merging.jobs import records
from merging.jobs.cleanup import sweep_up
from merging.jobs.records import State
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.store import Store

child, runner, store = test_jobs.child, test_jobs.runner, test_jobs.store  # fixtures


@pytest.fixture
def other(tiny_folder: Path, tmp_path: Path) -> Benchmark:
    """The same models and images as the tiny benchmark's, with another digest."""
    folder = tmp_path / "other"
    shutil.copytree(tiny_folder, folder)
    (folder / "tasks.json").write_text((folder / "tasks.json").read_text() + "\n")
    return Benchmark.load(folder)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data sets of every kind, and with what is none."""
    root, parts = tmp_path / "data", {"train": tiny_data.rows(2), "test": tiny_data.rows(2, 50)}
    tiny_data.folder(root / "deep" / "Euro SAT", parts)
    tiny_data.folder(root / "whole", {"": tiny_data.rows(1)})
    tiny_data.arrow(root / "arrow", parts)
    tiny_data.parquet(root / "parquet", parts)
    np.savez(root / "arrays.npz", images=tiny_data.same_size(parts["test"]), labels=np.zeros(6, int))
    tiny.write_benchmark(root / "bench")
    (root / "notes").mkdir()
    (root / "notes" / "a.txt").write_text("hello")
    (root / ".hidden").mkdir()
    (root / "link").symlink_to(root / "whole")
    monkeypatch.setenv("MERGESCOPE_MODELS", str(root))
    return root


def recipe(benchmark: Benchmark) -> Recipe:
    return Recipe.build("task_arithmetic", {}, [], benchmark.pretrained, benchmark.experts)


# Finding and naming


def test_data_sets_are_found_by_what_lies_where(data: Path) -> None:
    found = data_sets.in_models_folder("data", data)
    assert [one.place for one in found] == [
        f"data/{name}" for name in ("arrays.npz", "arrow", "deep/Euro SAT", "parquet", "whole")
    ]
    assert found[2].reference == "models:data/deep/Euro SAT" and found[0].name == "arrays"
    (alone,) = data_sets.at_path(str(data / "whole"))
    assert alone.reference == str(data / "whole")
    assert [one.path.name for one in data_sets.at_path(str(data / "arrays.npz"))] == ["arrays.npz"]
    for odd in ("/nowhere", "a\0b", "~nobody/x", str(data / "notes" / "a.txt")):
        assert data_sets.at_path(odd) == []


def test_the_search_has_bounds(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_walk, "DEEPEST", 0)
    assert "deep" not in " ".join(one.place for one in data_sets.in_models_folder("data", data))
    monkeypatch.setattr(folder_walk, "MOST", 1)
    assert len(data_sets.in_models_folder("data", data)) <= 1
    assert data_sets.in_models_folder("gone", data / "gone") == []


def test_what_a_task_is_called_and_goes_with() -> None:
    assert data_sets.task_key("Euro SAT (2019)") == "euro_sat_2019"
    assert data_sets.task_key("cars", ["cars"]) == "cars_2"
    assert data_sets.task_key("…") == "task" and len(data_sets.task_key("x" * 99)) <= 40
    assert data_sets.published("EuroSAT") == "eurosat" and data_sets.published("my fruit") is None
    assert data_sets.alike("EuroSAT", ["cars", "euro-sat"]) == "euro-sat"


def test_links_call_benchmarks_by_name_and_never_by_path(data: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    made = tiny.write_benchmark(folders.place_of("mine", root))
    assert list(folders.built(root)) == ["own:mine"]
    for key in (folders.SERVER, "own:mine", "models:data/bench"):
        folder = folders.find(key, root)
        assert folder is not None and folders.key_of(folder, root) == key
    assert folders.find("own:mine", root) == made
    for odd in (
        "own:../mine",
        "own:",
        "models:data/whole",
        "models:data/../store",
        "models:x/y",
        str(made),
        "",
        "x" * 99,
    ):
        assert folders.find(odd, root) is None, odd
    assert folders.key_of(tmp_path / "elsewhere", root) == ""


def test_recipes_tell_no_folder_of_a_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_benchmark: Benchmark
) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_MODELS", str(tmp_path / "models"))
    for folder, prefix in ((folders.place_of("mine", tmp_path / "store"), "own:mine"),
                           (tmp_path / "models" / "deep" / "bench", "models:models/deep/bench")):  # fmt: skip
        found = Benchmark.load(tiny.write_benchmark(folder))
        assert found.pretrained == f"{prefix}/models/pretrained.safetensors"
        assert references.locate(found.pretrained) == folder / "models" / "pretrained.safetensors"
        assert str(tmp_path) not in recipe(found).to_yaml()
        run = execute(recipe(found), Store(tmp_path / "runs", libraries=()), benchmark=found, device="cpu")
        assert run.has_scores
    assert tiny_benchmark.pretrained.startswith("/")
    for odd in ("own:../x", "own:mine/../../x", "own:", "own:mine/\0", "own:/etc/passwd"):
        with pytest.raises(CheckpointError, match="lies outside"):
            references.locate(odd)


# Stores and jobs


def test_a_store_prefers_scores_on_its_benchmark(tmp_path: Path, tiny_benchmark: Benchmark, other: Benchmark) -> None:
    library = Store(tmp_path / "library", libraries=())
    run = execute(recipe(tiny_benchmark), library, benchmark=tiny_benchmark, device="cpu", keep_model=False)
    own = Store(tmp_path / "own", libraries=())
    assert execute(recipe(tiny_benchmark), own, benchmark=other, device="cpu").id == run.id
    for benchmark in (tiny_benchmark, other):
        both = Store(tmp_path / "own", libraries=(tmp_path / "library" / "runs",), benchmark=benchmark.digest)
        assert both.run(run.id).benchmark == benchmark.digest
        assert [found.benchmark for found in both.runs()] == [benchmark.digest]
    plain = Store(tmp_path / "own", libraries=(tmp_path / "library" / "runs",))
    assert plain.run(run.id).benchmark == other.digest, "the own one where no benchmark is named"


def test_scores_on_one_benchmark_survive_those_on_another(
    tmp_path: Path, tiny_benchmark: Benchmark, other: Benchmark
) -> None:
    root, asked = tmp_path / "store", recipe(tiny_benchmark)

    def at(benchmark: Benchmark) -> Store:
        return Store(root, libraries=(), benchmark=benchmark.digest)

    first = execute(asked, Store(root, libraries=()), benchmark=tiny_benchmark, device="cpu")
    second = execute(asked, Store(root, libraries=()), benchmark=other, device="cpu")
    assert second.id == first.id
    for benchmark in (tiny_benchmark, other):
        (found,) = at(benchmark).runs()
        assert (found.benchmark, found.provenance) == (benchmark.digest, "this machine")
        assert execute(asked, at(benchmark), benchmark=benchmark, device="cpu").id == first.id
        assert found.scores is not None and at(benchmark).run(first.id).benchmark == benchmark.digest
    assert not at(tiny_benchmark).run(first.id).has_model and at(other).run(first.id).has_model
    again = execute(asked, at(tiny_benchmark), benchmark=tiny_benchmark, device="cpu", need_model=True)
    assert again.has_model and again.benchmark == tiny_benchmark.digest
    assert at(other).run(first.id).benchmark == other.digest, "kept apart in its turn"
    at(tiny_benchmark).delete(first.id)
    assert [run.benchmark for run in at(other).runs()] == [other.digest]
    assert not at(tiny_benchmark).runs()
    at(other).delete(first.id)
    assert not at(other).has(first.id)


def test_a_run_is_not_done_before_it_is_scored_on_the_benchmark(runner, store, child, tiny_benchmark, other) -> None:  # type: ignore[no-untyped-def]
    child(test_jobs.SLEEP)
    execute(recipe(tiny_benchmark), store, benchmark=tiny_benchmark, device="cpu")
    assert runner.submit(recipe(tiny_benchmark), benchmark=tiny_benchmark).state == State.DONE
    job = runner.submit(recipe(tiny_benchmark), benchmark=other)
    assert job.live and job.benchmark == str(other.folder)
    assert runner.submit(recipe(tiny_benchmark), benchmark=other).id == job.id
    runner.measure("drift", job.id, str(other.folder))
    for ask in (
        lambda: runner.measure("drift", job.id, str(tiny_benchmark.folder)),
        lambda: runner.submit(recipe(tiny_benchmark), benchmark=tiny_benchmark),
    ):
        with pytest.raises(StoreError, match="on another benchmark"):
            ask()


def test_a_job_works_on_its_benchmark(monkeypatch: pytest.MonkeyPatch, other: Benchmark) -> None:
    monkeypatch.delenv("MERGESCOPE_BENCHMARK", raising=False)
    assert "MERGESCOPE_BENCHMARK" not in records._environment()
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", "elsewhere")
    assert records._environment(str(other.folder))["MERGESCOPE_BENCHMARK"] == str(other.folder)


def test_what_a_killed_build_leaves_is_removed(tmp_path: Path) -> None:
    store, out = Store(tmp_path / "store", libraries=()), tmp_path / "benchmarks" / "mine"
    left = out.parent / f"tmp-{'0' * 32}-4194000"
    left.mkdir(parents=True)
    words = ("benchmark", "make", str(out), "--from", "x.yaml")
    owner = records.ProcessId()
    sweep_up(store, records.Record(State.RUNNING, "", "", False, 0.0, owner, kind="data", words=words), 4194000)
    assert not left.exists()


@pytest.mark.slow
def test_a_benchmark_comes_with_what_merges_are_compared_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = tiny_data.open_clip_folder(tmp_path / "clip")
    tiny.write_family(tmp_path / "experts")
    images = tiny_data.folder(tmp_path / "images", {"train": tiny_data.rows(2), "test": tiny_data.rows(4, 50)})
    task = f"flags={images},expert={tmp_path / 'experts' / 'flags.safetensors'}"
    words = ["benchmark", "make", str(tmp_path / "mine"), "--pretrained", str(clip), "--task", task, "--evaluate"]
    assert main([*words, "--device", "cpu", "--events", str(tmp_path / "events.jsonl")]) == 0, capsys.readouterr().err
    runs = Store(tmp_path / "nothing", libraries=(tmp_path / "mine" / "runs",)).runs()
    assert sorted(run.kind for run in runs) == ["expert", "pretrained"]
    assert {run.benchmark for run in runs} == {Benchmark.load(tmp_path / "mine").digest}
    assert '"phase": "Evaluating"' in (tmp_path / "events.jsonl").read_text()
