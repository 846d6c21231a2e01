"""Packs in the app: pages drawn from an opened pack, opening by upload, closing, packing, and who may do it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import packed_library
import pytest
from packed_library import PackedLibrary
from page_harness import chart_keys, chart_specs, charts, forget, open_page, press, words
from streamlit.testing.v1 import AppTest

from app import permissions
from app.views.runs import packs
from merging.base.errors import ModeError
from merging.sharing.packs.open_packs import find_benchmark_of_pack, open_pack_file
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_storage
from merging.tasks.pack_folders import list_libraries, list_pack_folders


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> PackedLibrary:
    return packed_library.write(tmp_path_factory.mktemp("packed"))


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty store on a benchmark that has nothing to do with the pack."""
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    forget()
    yield tmp_path / "store"
    forget()


@pytest.fixture
def elsewhere(packed: PackedLibrary, empty: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The pack opened as by ``mergescope app --open``, on a machine that has neither its benchmark nor its models."""
    folder = open_pack_file(packed.pack, empty)
    moved = packed.folder.rename(packed.folder.with_name("away"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(find_benchmark_of_pack(folder)))
    forget()
    yield empty
    moved.rename(packed.folder)


def _query(page: str, packed: PackedLibrary, store: Path) -> dict[str, str]:
    if page == "sweeps":
        own = Store(store, libraries=list_libraries(store / "none", store))
        return {"sweep": next(iter(sweep_storage.list_sweeps(own)))}
    return {"run": packed.pruned} if page != "scores" else {}


def _numbers(spec: str) -> list[object]:
    """What the marks of a chart show: positions, values and texts."""
    return [[trace.get(name) for name in ("x", "y", "z", "text", "name")] for trace in json.loads(spec)["data"]]


@pytest.mark.full
@pytest.mark.parametrize("page", ["masks", "conflicts", "drift", "features", "scores", "sweeps"])
def test_page_draws_the_same_charts_from_a_pack(
    packed: PackedLibrary, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    at = open_page(page, _query(page, packed, elsewhere))
    assert not at.exception
    assert not at.error, [one.value for one in at.error]
    drawn, keys = chart_specs(at), chart_keys(at)
    assert charts(at) > 0
    away = packed.folder.with_name("away")
    away.rename(packed.folder)
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(packed.folder))
    monkeypatch.setenv("MERGESCOPE_STORE", str(packed.root))
    forget()
    query = {"sweep": packed.sweep.id} if page == "sweeps" else _query(page, packed, packed.root)
    original = open_page(page, query)
    packed.folder.rename(away)
    expected = dict(zip(chart_keys(original), chart_specs(original), strict=True))
    expected.pop("preview_change", None)  # which needs the weights
    assert keys == list(expected)
    assert [_numbers(spec) for spec in drawn] == [_numbers(spec) for spec in expected.values()]


@pytest.mark.parametrize("page", ["home", "merge", "run", "compare", "learning", "image", "methods", "mix", "models",
                                  "partners", "report", "lessons"])  # fmt: skip
def test_other_pages_say_what_needs_weights(packed: PackedLibrary, elsewhere: Path, page: str) -> None:
    at = open_page(page, {"run": packed.run_ids[1]} if page in ("run", "image") else {})
    assert not at.exception, at.exception[0].value


def test_missing_measurement_says_that_it_needs_weights(packed: PackedLibrary, elsewhere: Path) -> None:
    at = open_page("drift", {"run": packed.run_ids[1], "drift_view": "put back"})
    assert not at.exception
    assert "has results only. This needs weights and images" in words(at)


def test_runs_are_listed_as_from_the_pack(packed: PackedLibrary, elsewhere: Path) -> None:
    at = open_page("models", {"models_view": "runs"})
    assert not at.exception
    assert "results.msc" in words(at)
    assert "read-only, without weights" in words(at)
    table = next(one.value for one in at.dataframe if "made" in one.value)
    assert set(table["made"]) == {"pack results.msc"}


def _upload(at: AppTest, file: Path) -> AppTest:
    widget = next(one for one in at.file_uploader if str(one.key).startswith(packs.UPLOAD_KEY))
    return widget.set_value((file.name, file.read_bytes(), "application/zip")).run()


def test_upload_opens_a_pack_and_close_removes_it(packed: PackedLibrary, empty: Path, tiny_folder: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    at = open_page("models", {"models_view": "runs"})
    at = _upload(at, packed.pack)
    assert not at.exception
    assert "is open" in words(at)
    assert [folder.name.rpartition("-")[0] for folder in list_pack_folders(empty)] == ["results"]
    at = press(at, "Close")
    assert not at.exception
    assert list_pack_folders(empty) == []


def test_a_bad_upload_is_a_sentence(empty: Path, tiny_folder: Path, tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    (tmp_path / "bad.msc").write_bytes(b"hello")
    at = _upload(open_page("models", {"models_view": "runs"}), tmp_path / "bad.msc")
    assert not at.exception
    assert "is damaged or not a pack" in words(at)
    assert list_pack_folders(empty) == []


@pytest.mark.parametrize("mode", ["class", "read"])
def test_modes_for_many_take_no_packs(
    packed: PackedLibrary, empty: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    monkeypatch.setenv("MERGESCOPE_MODE", mode)
    at = open_page("models", {"models_view": "runs"})
    assert not at.exception
    assert not [one for one in at.file_uploader if str(one.key).startswith(packs.UPLOAD_KEY)]
    for name in ("_open_upload", "_close", "_pack"):
        _, call = permissions.REQUIRED_ACTIONS[f"{packs.__name__}.{name}"]
        with pytest.raises(ModeError):
            call(None)


def test_runs_are_packed_by_a_click(packed: PackedLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(packed.root))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(packed.folder))
    forget()
    at = open_page("models", {"models_view": "runs", "selected_runs": ",".join(packed.run_ids)})
    at = press(at, "Pack")
    assert not at.exception
    assert not at.error, [one.value for one in at.error]
    ids, content = at.session_state[packs.WRITTEN_KEY]
    assert set(ids) == set(packed.run_ids)
    assert content[:4] == b"PK\x03\x04"
    forget()


@pytest.mark.full
def test_pack_beside_its_benchmark(packed: PackedLibrary, empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the benchmark is, its runs appear beside the own ones, and there is no second benchmark to choose."""
    open_pack_file(packed.pack, empty)
    library = packed.folder / "runs"
    hidden = library.rename(packed.folder / "hidden")
    try:
        monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(packed.folder))
        forget()
        at = open_page("scores", {})
        assert not at.exception
        assert charts(at) > 0
        at = open_page("models", {"models_view": "data"})
        chooser: Any = next(one for one in at.selectbox if one.key == "benchmark_picked")
        assert not [option for option in chooser.options if "pack" in option]
    finally:
        hidden.rename(library)


@pytest.mark.full
def test_a_shut_store_still_shows_packs_of_the_server(
    packed: PackedLibrary, empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from merging.base.files import disk
    from merging.sharing.packs import open_packs

    monkeypatch.setattr(disk, "is_writable", lambda folder: False)
    monkeypatch.setattr(open_packs.tempfile, "mkdtemp", lambda prefix: str(tmp_path / "temporary"))
    monkeypatch.setenv("MERGESCOPE_PACK_FOLDERS", "")
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(packed.folder))
    (folder,) = open_packs.open_for_server([packed.pack])
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(find_benchmark_of_pack(folder)))
    forget()
    at = open_page("scores", {})
    assert not at.exception
    assert charts(at) > 0
    assert not empty.exists() or not list((empty / "opened").glob("*"))
    shutil.rmtree(tmp_path / "temporary")
