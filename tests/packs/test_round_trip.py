"""Packing and opening: equal tables in an empty store, equal bytes twice, no weights, no paths, no names."""

from __future__ import annotations

import getpass
import gzip
import json
import socket
from pathlib import Path

import pytest
from packed_library import PackedLibrary, read_manifest, read_members

from merging.base.errors import MergingError, StoreError, TaskError
from merging.images.benchmarks.benchmark import Benchmark
from merging.sharing.packs import open_packs
from merging.sharing.packs.open_packs import close_pack, open_pack_file
from merging.sharing.packs.pack_runs import pack_runs
from merging.study.analysis.measurement_store import find_measurement_result
from merging.study.imported_scores import find_scores, store_scores
from merging.study.runs.run import THIS_MACHINE
from merging.study.runs.run_store import Store
from merging.study.score_table import GIVEN, check_scores
from merging.study.sweeps import sweep_plans, sweep_storage
from merging.study.sweeps.known_points import KnownPoints
from merging.tasks import pack_folders
from merging.tasks.pack_folders import list_libraries


@pytest.fixture
def opened(packed: PackedLibrary, tmp_path: Path) -> tuple[Store, Benchmark]:
    """An empty store with the pack opened in it, and the pack's description of the benchmark."""
    folder = open_pack_file(packed.pack, tmp_path / "store")
    benchmark = next((folder / "benchmarks").iterdir())
    libraries = list_libraries(benchmark, tmp_path / "store")
    return Store(tmp_path / "store", libraries=libraries), Benchmark.load(benchmark)


def test_runs_have_equal_tables(packed: PackedLibrary, opened: tuple[Store, Benchmark]) -> None:
    store, _ = opened
    for run_id in packed.run_ids:
        run, original = store.get_run(run_id), packed.store.get_run(run_id)
        assert run.provenance == "pack results.msc" != THIS_MACHINE
        tables = [name for name in original.files if name.endswith((".csv", ".csv.gz"))]
        assert len(tables) > 2
        for name in tables:
            assert run.file(name).read_bytes() == original.file(name).read_bytes()
        assert run.recipe is not None
        assert run.recipe.steps == original.recipe.steps
        assert run.inputs == original.inputs
        assert not run.has_model
    assert {run.kind for run in store.list_runs()} == {"merge", "pretrained", "expert", "multitask"} & {
        run.kind for run in packed.store.list_runs()
    }


@pytest.mark.parametrize("key", ["drift", "signs", "pairs", "features", "features_in_domain"])
def test_measurements_have_equal_tables(packed: PackedLibrary, opened: tuple[Store, Benchmark], key: str) -> None:
    store, described = opened
    for run_id in packed.run_ids:
        found = find_measurement_result(key, store, described, run_id)
        original = find_measurement_result(key, packed.store, Benchmark.load(packed.folder), run_id)
        assert found is not None
        assert original is not None
        assert found.provenance == "pack results.msc"
        for name in original.result.manifest:
            if name.endswith((".csv", ".csv.gz", ".npy", ".npy.gz")):
                assert found.result.file(name).read_bytes() == original.result.file(name).read_bytes()


def test_sweeps_have_equal_points_without_checkpoints(packed: PackedLibrary, opened: tuple[Store, Benchmark]) -> None:
    store, described = opened
    (sweep,) = sweep_storage.list_sweeps(store).values()
    assert sweep_storage.find_pack(store, sweep.id) == "results.msc"
    assert not sweep_storage.is_own(store, sweep.id)
    planned = sweep_plans.plan_or_read(sweep, store, described)
    original = sweep_plans.plan_or_read(packed.sweep, packed.store, Benchmark.load(packed.folder))
    assert [(one.name, one.run_id) for one in planned] == [(one.name, one.run_id) for one in original]
    found = KnownPoints(planned, store, described, sweep.sample.normalize_on(described)).read_points()
    assert set(found) == {one.name for one in original}
    for name, point in found.items():
        own = KnownPoints(original, packed.store, Benchmark.load(packed.folder), sweep.sample).read_points()[name]
        assert point.rows == own.rows


def test_benchmark_has_labels_but_no_images(packed: PackedLibrary, opened: tuple[Store, Benchmark]) -> None:
    _, described = opened
    original = Benchmark.load(packed.folder)
    assert described.digest == original.digest
    assert list(described.experts) == list(original.experts)
    for task in original.tasks:
        assert (described.load_labels(task.key, "reporting") == original.load_labels(task.key, "reporting")).all()
        with pytest.raises(TaskError, match=r"images of this benchmark are not in results\.msc"):
            described.load_unlabeled(task.key, "reporting")
    with pytest.raises(TaskError, match="zero-shot heads of this benchmark are not in"):
        described.load_head(original.tasks[0].key)
    assert "only results" in described.describe_misfit(original.open_pretrained())


def test_same_runs_make_equal_bytes(packed: PackedLibrary, tmp_path: Path) -> None:
    again = packed.write(tmp_path / "other name.msc")
    assert again.read_bytes() == packed.pack.read_bytes()


def test_a_pack_of_a_pack_is_the_same(packed: PackedLibrary, opened: tuple[Store, Benchmark], tmp_path: Path) -> None:
    store, described = opened
    pack_runs(packed.run_ids, store, [described], tmp_path / "again.msc", allowed=["model"])
    members, again = read_members(packed.pack), read_members(tmp_path / "again.msc")
    assert set(again) == set(members)
    assert {name for name in members if members[name] != again[name]} == set()


def test_has_no_weights_paths_or_names(packed: PackedLibrary) -> None:
    members = read_members(packed.pack)
    assert not [name for name in members if name.endswith((".safetensors", ".pt", ".bin", ".pkl"))]
    assert not [name for name in members if "heads" in name or "models" in name]
    private = [str(packed.folder), str(packed.root), str(Path.home()), str(Path.cwd())]
    names = [name for name in (socket.gethostname(), getpass.getuser()) if len(name) > 4]
    for name, content in members.items():
        raw = gzip.decompress(content) if name.endswith(".gz") else content
        for text in (*private, *names):
            assert text.encode() not in raw, (name, text)
        assert b"pretrained.safetensors" not in raw or b"/pretrained.safetensors" not in raw
    recipe = next(content for name, content in members.items() if name.endswith("recipe.yaml")).decode()
    assert "pretrained: pretrained.safetensors" in recipe


def test_manifest_has_digests_sizes_and_versions(packed: PackedLibrary) -> None:
    manifest, members = read_manifest(packed.pack), read_members(packed.pack)
    assert manifest["format"] == 1
    assert manifest["mergescope"]
    assert set(manifest["files"]) == set(members) - {"pack.json"}
    assert {one["id"] for one in manifest["runs"]} == set(packed.run_ids)


def test_private_text_is_refused(packed: PackedLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    title = packed.store.get_run(packed.run_ids[0]).title.split()[0]
    monkeypatch.setattr(socket, "gethostname", lambda: title)
    benchmark = Benchmark.load(packed.folder)
    with pytest.raises(StoreError, match=f"“{title}”, the name of this machine or of its user.*--allow {title}"):
        pack_runs(packed.run_ids[:1], packed.store, [benchmark], tmp_path / "no.msc")
    assert not (tmp_path / "no.msc").exists()
    assert pack_runs(packed.run_ids[:1], packed.store, [benchmark], tmp_path / "yes.msc", allowed=[title]).size


def test_imported_scores_come_along(packed: PackedLibrary, tmp_path: Path) -> None:
    table = check_scores(iter([("line", {"task": "t", "metric": "accuracy", "value": "0.5"})]), GIVEN, "/home/x/a.csv")
    root, run_id = tmp_path / "own", packed.run_ids[0]
    store_scores(root, run_id, table)
    store = Store(root, libraries=(packed.folder / "runs",))
    pack_runs([run_id], store, [Benchmark.load(packed.folder)], tmp_path / "scores.msc")
    open_pack_file(tmp_path / "scores.msc", tmp_path / "other")
    found = find_scores(tmp_path / "other", run_id)
    assert found is not None
    assert [score.value for score in found.scores] == [score.value for score in table.scores]
    assert found.origin == "a.csv"


def test_closed_pack_is_gone(packed: PackedLibrary, tmp_path: Path) -> None:
    folder = open_pack_file(packed.pack, tmp_path)
    assert open_pack_file(packed.pack, tmp_path) == folder
    assert pack_folders.list_pack_folders(tmp_path) == [folder]
    close_pack(folder.name, tmp_path)
    assert pack_folders.list_pack_folders(tmp_path) == []
    assert not folder.exists()


def test_changed_cache_is_unpacked_again(packed: PackedLibrary, tmp_path: Path) -> None:
    folder = open_pack_file(packed.pack, tmp_path)
    victim = folder / "runs" / packed.run_ids[0] / "scores.csv"
    before = victim.read_bytes()
    victim.write_bytes(before[:-3] + b"9" + before[-2:])
    open_pack_file(packed.pack, tmp_path)
    assert victim.read_bytes() == before


def test_runs_of_an_unknown_benchmark_are_not_packed(packed: PackedLibrary, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="MERGESCOPE_BENCHMARK"):
        pack_runs(packed.run_ids, packed.store, [], tmp_path / "no.msc")
    with pytest.raises(StoreError, match=r"ends in \.msc"):
        pack_runs(packed.run_ids, packed.store, [], tmp_path / "no.zip")
    with pytest.raises(StoreError, match="There is no run"):
        pack_runs(["0" * 12], packed.store, [], tmp_path / "no.msc")


def test_packed_runs_cannot_be_deleted(packed: PackedLibrary, opened: tuple[Store, Benchmark]) -> None:
    store, _ = opened
    with pytest.raises(MergingError, match="not one of this machine's own"):
        store.delete(packed.run_ids[0])
    assert store.has_run(packed.run_ids[0])


def test_server_opens_packs_of_the_environment(
    packed: PackedLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_PACKS", str(packed.pack.parent))
    for name in (pack_folders.FOLDERS_VARIABLE, "MERGESCOPE_BENCHMARK"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (folder,) = open_packs.open_for_server()
    assert pack_folders.list_pack_folders(tmp_path / "elsewhere") == [folder]
    assert "MERGESCOPE_BENCHMARK" not in open_packs.os.environ
    open_packs.open_for_server([packed.pack])
    benchmark = Benchmark.load(Path(open_packs.os.environ["MERGESCOPE_BENCHMARK"]))
    assert benchmark.digest == Benchmark.load(packed.folder).digest
    monkeypatch.setenv("MERGESCOPE_PACKS", str(tmp_path / "none.msc"))
    with pytest.raises(StoreError, match=r"no pack none\.msc"):
        open_packs.open_for_server()


def test_a_damaged_plan_is_told(packed: PackedLibrary, opened: tuple[Store, Benchmark]) -> None:
    store, described = opened
    (sweep,) = sweep_storage.list_sweeps(store).values()
    path = sweep_storage.find_file(store, sweep.id)
    assert path is not None
    facts = json.loads(path.with_suffix(".json").read_bytes())
    path.with_suffix(".json").write_text(json.dumps(facts | {"points": facts["points"][:-1]}))
    with pytest.raises(StoreError, match="cannot be read"):
        sweep_plans.plan_or_read(sweep, store, described)
