"""Benchmarks on one machine: finding data, naming folders in links and recipes, and what comes with one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
import tiny_data
from plain_recipes import plain_recipe

from merging.base.errors import CheckpointError
from merging.cli.main import main
from merging.images.benchmarks import benchmark_folders
from merging.images.benchmarks.benchmark import Benchmark
from merging.models import model_references
from merging.sharing.catalog import data_set_catalog, folder_walk
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


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


# Finding and naming


def test_data_sets_are_found_by_what_lies_where(data: Path) -> None:
    found = data_set_catalog.list_in_models_folder("data", data)
    assert [one.listed_path for one in found] == [
        f"data/{name}" for name in ("arrays.npz", "arrow", "deep/Euro SAT", "parquet", "whole")
    ]
    assert found[2].reference == "models:data/deep/Euro SAT" and found[0].name == "arrays"
    (alone,) = data_set_catalog.list_at_path(str(data / "whole"))
    assert alone.reference == str(data / "whole")
    assert [one.path.name for one in data_set_catalog.list_at_path(str(data / "arrays.npz"))] == ["arrays.npz"]
    for odd in ("/nowhere", "a\0b", "~nobody/x", str(data / "notes" / "a.txt")):
        assert data_set_catalog.list_at_path(odd) == []


def test_the_search_has_bounds(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_walk, "MAX_LEVELS", 0)
    assert "deep" not in " ".join(one.listed_path for one in data_set_catalog.list_in_models_folder("data", data))
    monkeypatch.setattr(folder_walk, "MAX_ENTRIES", 1)
    assert len(data_set_catalog.list_in_models_folder("data", data)) <= 1
    assert data_set_catalog.list_in_models_folder("gone", data / "gone") == []


def test_what_a_task_is_called_and_goes_with() -> None:
    assert data_set_catalog.choose_task_key("Euro SAT (2019)") == "euro_sat_2019"
    assert data_set_catalog.choose_task_key("cars", ["cars"]) == "cars_2"
    assert data_set_catalog.choose_task_key("…") == "task" and len(data_set_catalog.choose_task_key("x" * 99)) <= 40
    assert (
        data_set_catalog.find_prompt_key("EuroSAT") == "eurosat"
        and data_set_catalog.find_prompt_key("my fruit") is None
    )
    assert data_set_catalog.find_alike("EuroSAT", ["cars", "euro-sat"]) == "euro-sat"


def test_links_call_benchmarks_by_name_and_never_by_path(data: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    made = tiny.write_benchmark(benchmark_folders.own_folder("mine", root))
    assert list(benchmark_folders.list_built(root)) == ["own:mine"]
    for key in (benchmark_folders.SERVER, "own:mine", "models:data/bench"):
        folder = benchmark_folders.find_folder(key, root)
        assert folder is not None and benchmark_folders.key_of(folder, root) == key
    assert benchmark_folders.find_folder("own:mine", root) == made
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
        assert benchmark_folders.find_folder(odd, root) is None, odd
    assert benchmark_folders.key_of(tmp_path / "elsewhere", root) == ""


def test_recipes_tell_no_folder_of_a_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_benchmark: Benchmark
) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_MODELS", str(tmp_path / "models"))
    for folder, prefix in ((benchmark_folders.own_folder("mine", tmp_path / "store"), "own:mine"),
                           (tmp_path / "models" / "deep" / "bench", "models:models/deep/bench")):  # fmt: skip
        found = Benchmark.load(tiny.write_benchmark(folder))
        assert found.pretrained == f"{prefix}/models/pretrained.safetensors"
        assert model_references.locate(found.pretrained) == folder / "models" / "pretrained.safetensors"
        assert str(tmp_path) not in plain_recipe(found).to_yaml()
        run = execute(
            plain_recipe(found), Store(tmp_path / "runs", libraries=()), benchmark=found, context=Context(device="cpu")
        )
        assert run.has_scores
    assert tiny_benchmark.pretrained.startswith("/")
    for odd in ("own:../x", "own:mine/../../x", "own:", "own:mine/\0", "own:/etc/passwd"):
        with pytest.raises(CheckpointError, match="is outside"):
            model_references.locate(odd)


# Stores and jobs


@pytest.mark.full
def test_a_benchmark_comes_with_what_merges_are_compared_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = tiny_data.open_clip_folder(tmp_path / "clip")
    tiny.write_family(tmp_path / "experts")
    images = tiny_data.folder(tmp_path / "images", {"train": tiny_data.rows(2), "test": tiny_data.rows(4, 50)})
    task = f"flags={images},expert={tmp_path / 'experts' / 'flags.safetensors'}"
    words = ["benchmark", "make", str(tmp_path / "mine"), "--pretrained", str(clip), "--task", task, "--evaluate"]
    assert main([*words, "--device", "cpu", "--events", str(tmp_path / "events.jsonl")]) == 0, capsys.readouterr().err
    runs = Store(tmp_path / "nothing", libraries=(tmp_path / "mine" / "runs",)).list_runs()
    assert sorted(run.kind for run in runs) == ["expert", "pretrained"]
    assert {run.benchmark for run in runs} == {Benchmark.load(tmp_path / "mine").digest}
    assert '"phase": "Evaluating"' in (tmp_path / "events.jsonl").read_text()
