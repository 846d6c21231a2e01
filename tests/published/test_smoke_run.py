"""The whole smoke experiment from the command line, against a Hub on this machine: fetched, computed, compared."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import published_models
import pytest
from loopback_hub import LoopbackHub
from published_calls import call, keys, row, run

from merging.base.errors import RecipeError
from merging.engine import run as engine
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.formats.model_sources import open_checkpoint
from merging.models.hub import blob_cache
from merging.sharing.published import row_runs
from merging.sharing.published.row_variants import RowVariant
from merging.study.runs.run_store import Store


@pytest.mark.full
def test_a_second_run_asks_for_nothing_nor_one_without_a_network(
    hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = run(capsys, "--images", "all")
    assert keys(first) == ["pretrained", "individual", "averaging", "task_arithmetic", "ties"]
    assert [task["n"] for task in first["rows"][0]["tasks"]] == [40, 40] and first["images"] == "on all images"
    assert all(row["change"] for row in first["rows"][1:])  # right answers of every row are known
    assert not any("train" in name or "contrast" in name or name.endswith(".h5") for name in hub.fetched())
    asked = len(hub.requests)
    assert run(capsys, "--images", "all") == first
    monkeypatch.setenv("MERGESCOPE_HUB", "cached")
    assert run(capsys, "--images", "all") == first and len(hub.requests) == asked
    monkeypatch.setenv("MERGESCOPE_HUB", "on")
    hub.stop()
    assert run(capsys, "--images", "all") == first
    few = run(capsys, "--images", "12", "--rows", "averaging")
    assert [task["n"] for task in few["rows"][2]["tasks"]] == [12, 12] and few["images"] == "on 12 of each"
    assert call(capsys, "table", "smoke", "--to", str(tmp_path / "t.csv"))[1] == few


@pytest.mark.full
def test_weights_in_the_other_format_give_the_same_scores(
    hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = run(capsys)
    for (kind, name), repository in list(hub.repositories.items()):
        files = {file: content.content for file, content in repository.commits[repository.branches["main"]].items()}
        if kind == "model" and (other := published_models.in_other_format(files)) != files:
            hub.repositories.pop((kind, name))
            hub.add("model", name, other)
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "other"))
    hub.connect(monkeypatch, tmp_path / "other home")
    before = len(hub.requests)
    assert scores(run(capsys)) == scores(expected)
    asked = [seen.path for seen in hub.requests[before:]]
    assert any("clip-vit-base-patch32/resolve" in path and "model.safetensors" in path for path in asked)
    assert any("_mnist/resolve" in path and path.endswith("pytorch_model.bin") for path in asked)


def scores(table: Any) -> list[Any]:
    """What the rows of a table say of every task."""
    return [[(task["task"], task["n"], task["ours"]) for task in row["tasks"]] for row in table["rows"]]


@pytest.mark.full
def test_neither_images_nor_models_are_stored_again(hub: LoopbackHub, capsys: Any, tmp_path: Path) -> None:
    table = run(capsys, "--rows", "averaging", "--images", "all")
    folder = tmp_path / "store" / "benchmarks" / "published-smoke"
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 100_000 and {name for name in sizes if name.startswith("models/")} == {
        "models/pretrained.json", "models/mnist.json", "models/eurosat.json",
    }  # fmt: skip
    assert not list((tmp_path / "store" / "runs").rglob("*.safetensors"))  # merged weights went after their scores
    benchmark = Benchmark.load(folder)
    expert = open_checkpoint(benchmark.experts["mnist"])
    assert "visual.proj" in expert.infos and benchmark.find_task("mnist").splits == ("reporting",)
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert manifest["digests"]["mnist"] == expert.digest
    licenses = manifest["licenses"]
    stored = Store(tmp_path / "store", benchmark=benchmark.digest).find(row(table, "averaging")["run"])
    assert stored is not None and stored.licenses == licenses  # for cards and reports
    assert licenses["test set MNIST (ylecun/mnist)"].startswith("mit (read 20")
    assert licenses["test set EuroSAT (tanganke/eurosat)"].startswith("none stated (read ")
    assert all(" at commit " in stated for stated in licenses.values()) and len(licenses) == 5


def kept(home: Path) -> dict[Path, tuple[int, int]]:
    """The whole files in a cache, each with what tells it from another one of its name."""
    states = {path: path.stat() for path in home.rglob("blobs/*") if path.suffix != blob_cache.PART_SUFFIX}
    return {path: (state.st_ino, state.st_mtime_ns) for path, state in states.items()}


@pytest.mark.full
def test_stopped_while_it_fetches_it_goes_on(
    hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    link, linked = blob_cache.link_blob, []

    def interrupted(*args: Any) -> None:
        link(*args)
        linked.append(args)
        if len(linked) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(blob_cache, "link_blob", interrupted)
    code, said, err = call(capsys, "run", "smoke", "--yes")
    assert code == 130 and "Cancelled" in said["error"] and len(linked) < 8, (said, err)
    before = kept(tmp_path / "home")
    monkeypatch.setattr(blob_cache, "link_blob", link)
    assert len(run(capsys)["rows"]) == 5
    # Files are compared, not requests: a busy server may note one late that was given up and repeated.
    after = kept(tmp_path / "home")
    assert 3 <= len(before) < len(after) and all(after[path] == state for path, state in before.items())


@pytest.mark.full
def test_stopped_between_recipes_it_goes_on(hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    execute, merged = row_runs.execute, list[str]()

    def counted(recipe: Any, *args: Any, **options: Any) -> Any:
        if not options.get("evaluate", True):
            merged.append(recipe.title)
            if len(merged) == 2:
                os.kill(os.getpid(), signal.SIGINT)
        return execute(recipe, *args, **options)

    monkeypatch.setattr(row_runs, "execute", counted)
    assert call(capsys, "run", "smoke", "--yes")[0] == 130
    assert merged == ["Weight Averaging", "Task Arithmetic"]
    monkeypatch.setattr(row_runs, "execute", execute)
    merge, streamed = engine.run_recipe, list[object]()

    def noted(recipe: Any, *args: Any, **options: Any) -> Any:
        streamed.append(recipe)
        return merge(recipe, *args, **options)

    monkeypatch.setattr(engine, "run_recipe", noted)
    assert len(run(capsys)["rows"]) == 5
    assert len(streamed) == 2  # the first row's model was still there


@pytest.mark.full
def test_a_pause_is_heeded_and_the_same_command_goes_on(hub: LoopbackHub, capsys: Any, tmp_path: Path) -> None:
    pause = tmp_path / "pause"
    pause.touch()
    code, said, _ = call(capsys, "run", "smoke", "--yes", "--pause-file", str(pause))
    assert code == 75 and "Paused" in said["error"], said
    pause.unlink()
    assert len(run(capsys, "--pause-file", str(pause))["rows"]) == 5


@pytest.mark.full
def test_a_folder_carries_an_experiment_to_a_machine_without_a_network(
    hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, name = tmp_path / "carried", "tanganke/clip-vit-base-patch32_mnist"
    assert call(capsys, "fetch", "smoke", "--yes", "--into", str(folder))[0] == 0
    ((_, files),) = hub.repositories["model", name].commits.items()
    hub.add("model", name, {file: each.content for file, each in files.items()} | {"README.md": b"of today"})
    assert call(capsys, "fetch", "smoke", "--yes", "--latest", "--into", str(folder))[0] == 0
    hub.stop()
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "another"))
    monkeypatch.setenv("MERGESCOPE_HUB", "off")
    carried = {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}
    table = run(capsys, "--from", str(folder), "--rows", "averaging")
    assert len(table["rows"]) == 3 and f"not the catalogue's files: {name}" in table["notes"]
    assert {path: path.lstat().st_mtime_ns for path in folder.rglob("*")} == carried  # it may lie on a read-only disk
    assert call(capsys, "table", "smoke")[1] == table  # which is printed without the folder


@pytest.mark.full
def test_a_row_that_cannot_be_computed_is_in_the_table_and_the_others_go_on(
    hub: LoopbackHub, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = RowVariant.build_recipe

    def refused(self: RowVariant, *args: Any) -> Any:
        if self.key == "ties":
            raise RecipeError("Ties: none of its methods can split q, k and v.")
        return recipe(self, *args)

    monkeypatch.setattr(RowVariant, "build_recipe", refused)
    code, table, err = call(capsys, "run", "smoke", "--yes", "--expect", "reproduced")
    assert keys(table) == ["pretrained", "individual", "averaging", "task_arithmetic"], err
    assert any(note.startswith("Ties was not computed: Ties: none of its methods") for note in table["notes"])
    assert code == 1  # the pretrained miniature is not the printed model
    monkeypatch.setattr(RowVariant, "build_recipe", recipe)
    assert keys(run(capsys))[-1] == "ties"


@pytest.mark.full
def test_another_configuration_in_a_shared_cache_is_left_alone(hub: LoopbackHub, capsys: Any, tmp_path: Path) -> None:
    assert call(capsys, "fetch", "smoke", "--yes")[0] == 0
    (own,) = (tmp_path / "home").rglob("snapshots/*/mnist")
    shutil.copytree(own, own.with_name("another"))  # as another program that shares the cache
    table = run(capsys, "--rows", "averaging")
    assert [task["n"] for task in table["rows"][0]["tasks"]] == [40, 40]


def test_class_names_in_another_order_are_not_scored(
    hub: LoopbackHub, capsys: Any, miniatures: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = "data/test-00000-of-00001.parquet"
    table = pq.read_table(miniatures["eurosat"] / name)
    about = json.loads(table.schema.metadata[b"huggingface"])
    names = about["info"]["features"]["label"]["names"]
    about["info"]["features"]["label"]["names"] = [*names[1:], "meadow of another list"]
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(about)}), sink)
    hub.add("dataset", "tanganke/eurosat", {name: sink.getvalue().to_pybytes()})
    code, said, _ = call(capsys, "run", "smoke", "--yes")
    assert code == 1 and "eurosat" in said["error"] and "meadow of another list" in said["error"]
