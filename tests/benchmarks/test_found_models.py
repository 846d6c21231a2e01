"""Models that a benchmark refers to, found again: by their digest, with nothing changed until it is compared."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_data

from merging.base.errors import Cancelled, CheckpointError
from merging.base.progress import Meter, Progress
from merging.cli.main import main
from merging.images.benchmarks import data_set_locations, model_search
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.build.benchmark_description import Description
from merging.images.benchmarks.build.benchmark_folder import write_benchmark
from merging.images.benchmarks.data_set_locations import Location
from merging.images.benchmarks.model_search import describe_missing_models
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.referenced_model import VERSION_KEY, recorded_path

FLAGS = "flags.safetensors"


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    """A benchmark in a folder with a space in its name, which refers to models in home/."""
    home = tmp_path / "home"
    home.mkdir()
    tiny_data.whole_model(home / "clip.safetensors")
    tiny.write_family(home / "experts")
    tiny_data.parquet(home / "data", {"train": tiny_data.rows(4), "test": tiny_data.rows(6, 100)})
    task = {"images": "data", "expert": f"experts/{FLAGS}"}
    plain = {"pretrained": "clip.safetensors", "images": 4, "exemplars": 5, "tasks": {"fruit": task}}
    described = Description.from_plain({**plain, "models_by_reference": True}, home)
    return write_benchmark(described, tmp_path / "my bench", tokenize=tiny_data.letters)


@pytest.fixture
def expert(benchmark: Benchmark) -> Path:
    """The reference to the expert."""
    return benchmark.folder / "models" / "fruit.json"


@pytest.fixture
def away(benchmark: Benchmark, tmp_path: Path) -> Path:
    """A folder with the experts, which are no longer where the benchmark says."""
    return (tmp_path / "home" / "experts").rename(tmp_path / "away")


def copied(model: Path, folder: Path) -> Path:
    """A model in another folder, called as the benchmark's expert was."""
    folder.mkdir(parents=True)
    return Path(shutil.copy(model, folder / FLAGS))


def changed(reference: Path, **values: Any) -> None:
    reference.write_text(json.dumps({**json.loads(reference.read_text("utf-8")), **values}), "utf-8")


def test_a_search_that_ends_early_leaves_no_other_model_in_place(
    benchmark: Benchmark, expert: Path, away: Path, tmp_path: Path
) -> None:
    copied(away / "digits.safetensors", tmp_path / "place" / "experts")
    right = copied(away / FLAGS, tmp_path / "place" / "z")
    stopped = 0
    while not recorded_path(expert) and stopped < 1000:
        answers = chain([False] * stopped, repeat(True, 1000))
        try:
            assert benchmark.relink_files(tmp_path / "place", Meter(0, None, answers.__next__)) == []
        except Cancelled:
            stopped += 3
    assert recorded_path(expert) == str(right) and stopped > 10


def test_an_error_while_a_model_is_compared_leaves_no_other_model_in_place(
    benchmark: Benchmark, expert: Path, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> None:
        raise KeyError(path)

    monkeypatch.setattr(model_search, "open_checkpoint", broken)
    with pytest.raises(KeyError):
        benchmark.relink_files(away, Meter(0))
    assert not recorded_path(expert)


def test_a_model_that_was_overwritten_is_missing(
    benchmark: Benchmark, expert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "home" / "experts" / FLAGS
    copied(model, tmp_path / "kept")
    shutil.copy(model.with_name("digits.safetensors"), model)
    assert main(["benchmark", "find", str(benchmark.folder), str(tmp_path / "home")]) == 1
    assert f"The model fruit is not stored in the benchmark, and {model} is not the model" in capsys.readouterr().out
    assert main(["benchmark", "find", str(benchmark.folder), str(tmp_path)]) == 0
    assert recorded_path(expert) == str(tmp_path / "kept" / FLAGS)


def test_only_the_pretrained_model_is_named_where_the_others_need_its_names(
    benchmark: Benchmark, tmp_path: Path
) -> None:
    (tmp_path / "home" / "clip.safetensors").unlink()
    problem, *others = benchmark.relink_files(tmp_path, Meter(0))
    assert problem.startswith("The model pretrained is not stored") and not others


@pytest.mark.parametrize(
    "content,sentence",
    [
        ([VERSION_KEY], "fruit.json: the file is a list, not a mapping."),
        (
            {VERSION_KEY: 1, "like": "", "metadata": {}},
            "fruit.json does not say where a model is; make the benchmark again.",
        ),
        (
            {VERSION_KEY: 1, "model": "/x/" + "a" * 5000, "like": "", "metadata": {}},
            "The model fruit is not stored in the",
        ),
        (
            {VERSION_KEY: 1, "model": "/x/\0a", "like": "", "metadata": {}},
            "The model fruit is not stored in the benchmark",
        ),
        ({VERSION_KEY: 1, "model": "/x/\ud800", "like": "", "metadata": {}}, "fruit.json: the file is not valid JSON"),
        (
            {VERSION_KEY: 1, "model": "SELF", "like": "", "metadata": {}},
            "fruit.json refers to itself; make the benchmark",
        ),
    ],
    ids=["list", "no model", "long", "null", "surrogate", "itself"],
)
def test_a_damaged_reference_is_a_sentence(
    benchmark: Benchmark, expert: Path, tmp_path: Path, content: Any, sentence: str
) -> None:
    expert.write_text(json.dumps(content).replace("SELF", str(expert)), "utf-8")
    for problems in (describe_missing_models(benchmark.folder), benchmark.relink_files(tmp_path / "home", Meter(0))):
        assert len(problems) == 1 and problems[0].startswith(sentence), problems


def test_the_progress_counts_bytes_and_the_folders_are_walked_once(
    benchmark: Benchmark, expert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").rename(tmp_path / "away")
    copied(tmp_path / "away" / "experts" / "digits.safetensors", tmp_path / "away" / "other" / "experts")
    walks: list[Path] = []
    walk = os.walk
    monkeypatch.setattr(model_search.os, "walk", lambda below: walks.append(below) or walk(below))
    steps: list[Progress] = []
    benchmark.relink_files(tmp_path / "away", Meter(0, steps.append))
    models = [tmp_path / "away" / "clip.safetensors", tmp_path / "away" / "experts" / FLAGS]
    assert steps[-1].done == steps[-1].total >= sum(model.stat().st_size for model in models)
    shares = [step.fraction for step in steps]
    assert shares == sorted(shares) and len(set(shares)) > 4
    assert walks == [tmp_path / "away"]


def test_a_walk_can_be_stopped(benchmark: Benchmark, away: Path) -> None:
    with pytest.raises(Cancelled):
        model_search.find_models(benchmark.folder, away, Meter(0, None, lambda: True))


def test_paths_that_are_not_utf_8_are_left_out(benchmark: Benchmark, expert: Path, away: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd" / os.fsdecode(b"\xe9x")
    file = Location.of_file(copied(away / FLAGS, odd), "")
    assert (
        data_set_locations.find_moved_files([replace(file, file=tmp_path / FLAGS)], odd, Meter(0))[0].problem
        == "is missing"
    )
    problems = benchmark.relink_files(tmp_path / "odd", Meter(0))
    assert "The model fruit is not" in problems[-1] and not recorded_path(expert)
    right = copied(away / FLAGS, tmp_path / "odd" / "z")
    benchmark.relink_files(tmp_path / "odd", Meter(0))
    assert recorded_path(expert) == str(right)


def test_a_path_of_windows_is_known_by_its_last_part(benchmark: Benchmark, expert: Path, away: Path) -> None:
    changed(expert, model=rf"C:\m\experts\{FLAGS}")
    assert describe_missing_models(benchmark.folder)
    assert benchmark.relink_files(away, Meter(0)) == [] and recorded_path(expert) == str(away / FLAGS)


def test_the_command_that_is_advised_holds_the_whole_path(benchmark: Benchmark, expert: Path, away: Path) -> None:
    command = f"mergescope benchmark find '{benchmark.folder}' FOLDER"
    assert f"with: {command}." in describe_missing_models(benchmark.folder)[0]
    with pytest.raises(CheckpointError, match=re.escape(f"({command})")):
        open_checkpoint(expert)
    assert command in data_set_locations.describe_missing(
        benchmark.folder, "fruit", [Location(away / "gone", "", 1, 1, "")]
    )
