"""The commands that write and open packs, and the published experiment that offers its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from packed_library import PackedLibrary, read_manifest

from merging.cli import app_commands
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.sharing.published.accuracy_verdicts import TaskScore
from merging.sharing.published.choice import make_choice
from merging.sharing.published.comparison_table import MeasuredRow
from merging.sharing.published.experiment_catalogue import read_experiment
from merging.sharing.published.experiment_run import find_folders
from merging.sharing.published.experiment_steps import store_choice
from merging.sharing.published.measured_rows import MeasuredFiles, MeasuredTable, write_measured
from merging.sharing.published.row_variants import list_variants
from merging.tasks import pack_folders

SMOKE = read_experiment("smoke")


@pytest.fixture
def here(packed: PackedLibrary, monkeypatch: pytest.MonkeyPatch) -> PackedLibrary:
    """The library as the default benchmark, and its store."""
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(packed.folder))
    monkeypatch.setenv("MERGESCOPE_STORE", str(packed.root))
    return packed


def test_pack_command_writes_the_same_file(here: PackedLibrary, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "results.msc"
    assert main(["pack", *here.run_ids, "--out", str(out), "--allow", "model"]) == 0
    said = capsys.readouterr().out
    assert "without weights" in said
    assert "mergescope app --open results.msc" in said
    assert out.read_bytes() == here.pack.read_bytes()
    assert main(["pack", here.run_ids[0][:8], "--out", str(out), "--json", "--allow", "model"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["runs"] >= 1


@pytest.mark.parametrize(
    ("words", "says"),
    [(["000000000000", "--out", "a.msc"], "There is no run"), (["RUN", "--out", "a.zip"], "ends in .msc"),
     (["RUN", "--out", "a.msc", "--sweep", "0" * 12], "no sweep")],
)  # fmt: skip
def test_pack_command_refuses(
    here: PackedLibrary, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pack", *(here.run_ids[0] if word == "RUN" else word for word in words)]) == 1
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_app_opens_a_pack_before_it_starts(
    packed: PackedLibrary, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(app_commands.os, "execv", lambda program, words: started.extend(words))
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    for name in (pack_folders.FOLDERS_VARIABLE, "MERGESCOPE_BENCHMARK"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    main(["app", "--open", str(packed.pack), "--no-browser"])
    assert started
    assert "Opened, read-only: results.msc" in capsys.readouterr().out
    (folder,) = pack_folders.list_pack_folders(tmp_path / "store")
    assert Benchmark.load(Path(app_commands.os.environ["MERGESCOPE_BENCHMARK"])).folder.is_relative_to(folder)
    started.clear()
    (tmp_path / "bad.msc").write_bytes(b"no")
    assert main(["app", "--open", str(tmp_path / "bad.msc"), "--no-browser"]) == 1
    assert "bad.msc is damaged or not a pack" in capsys.readouterr().err
    assert not started


def test_published_experiment_offers_its_pack(
    packed: PackedLibrary, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    folders, choice = find_folders("smoke"), make_choice(SMOKE)
    folders.benchmark_folder.parent.mkdir(parents=True)
    shutil.copytree(packed.folder, folders.benchmark_folder, ignore=shutil.ignore_patterns("runs"))
    shutil.copytree(packed.folder / "runs", tmp_path / "store" / "runs")
    store_choice(folders, choice)
    scores = {one.key: TaskScore(one.key, 0.9, 10_000) for one in SMOKE.tasks}
    row = MeasuredRow(list_variants(SMOKE, choice)[0], scores, run=packed.run_ids[0])
    write_measured(folders.folder, MeasuredTable("CPU", "", choice, {}, MeasuredFiles((), ())).with_row(row))
    out = tmp_path / "smoke.msc"
    assert main(["published", "table", "smoke", "--pack", str(out)]) == 0
    assert "mergescope app --open smoke.msc" in capsys.readouterr().out
    assert [one["id"] for one in read_manifest(out)["runs"]] == [packed.run_ids[0]]
