"""The page Mix without a browser: the desk's files, its arguments, the recipe that it hands to Merge, and refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_harness import forget, open_page, words
from streamlit.testing.v1 import AppTest

from app.live import component, graph
from merging.images.benchmarks.benchmark import Benchmark

DESK = {
    "edit": {"key": "lwptv", "prune_ratio": 0.7, "shared": True},
    "merge": {"key": "task_arithmetic", "scaling": 0.3},
    "experts": {"circles": 1, "digits": 1},
    "sections": {"block 0": 1, "output": 1},
}
Sent = list[dict[str, Any]]


@pytest.fixture
def mix(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., AppTest]]:
    """A function that opens Mix on a small library, with a store of its own."""
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(library))
    forget()
    yield lambda **query: open_page("mix", query)
    forget()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """The arguments of every desk that is drawn; the first one answers with a desk to be made a run."""
    drawn: Sent = []

    def draw(folder: Path, link: str, engine: Any) -> Any:
        drawn.append({"folder": folder, "link": link, "engine": engine})
        return {"make": DESK, "count": 1}

    monkeypatch.setattr(component, "draw_desk", draw)
    return drawn


def test_the_desk_is_drawn_and_its_files_are_written_once(mix: Any, tmp_path: Path) -> None:
    at = mix(desk="ties;mute:s.b0")
    assert not at.exception and not at.error
    (instance,) = at.get("component_instance")
    args = json.loads(instance.proto.json_args)
    assert args["link"] == "ties;mute:s.b0" and args["engine"] is None
    (folder,) = [path for path in (tmp_path / "store" / component.FOLDER).iterdir() if path.is_dir()]
    assert args["folder"] == f"../app.live.component.desk_{folder.name}/"
    facts = json.loads((folder / "desk.json").read_text("utf-8"))
    assert {name: (folder / name).stat().st_size for name in facts["bytes"]} == facts["bytes"]
    assert [params["name"] for params in facts["merges"][1]["params"]] == ["scaling", "density", "aggregation"]
    written = (folder / "desk.json").stat().st_mtime_ns
    mix()
    assert (folder / "desk.json").stat().st_mtime_ns == written


def test_other_weights_are_another_desk(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    shutil.copytree(library, tmp_path / "own")
    benchmark = Benchmark.load(tmp_path / "own")
    first, second = list(benchmark.experts)[:2]
    folder = component.find_desk(benchmark, "digest")
    assert component.find_desk(benchmark, "digest") == folder
    models = tmp_path / "own" / "models"
    shutil.copy(models / f"{second}.safetensors", models / f"{first}.safetensors")
    assert component.find_desk(benchmark, "digest") != folder


def test_a_desk_is_handed_to_merge_once(mix: Any, sent: Sent) -> None:
    at = mix()
    assert at.title[0].value == "Merge"
    assert at.query_params["chain"] == "lwptv;task_arithmetic"
    at.switch_page("screens/mix.py").run()
    assert at.title[0].value == "Mix"
    scores = sent[-1]["engine"]["scores"]
    assert sent[-1]["engine"]["desk"] == DESK and set(scores) == {task.key for task in Benchmark.load().tasks}
    assert all(0 <= correct <= n == 20 for correct, n in scores.values())


@pytest.mark.parametrize("desk", [None, {}, {"edit": 1}, DESK | {"merge": {"key": "x"}}, DESK | {"experts": 5}])
def test_what_is_no_desk_is_refused(mix: Any, monkeypatch: pytest.MonkeyPatch, desk: Any) -> None:
    monkeypatch.setattr(component, "draw_desk", lambda *args: {"make": desk, "count": 1})
    at = mix()
    assert not at.exception
    assert at.title[0].value == "Mix" and len(at.error) == 1


def test_a_large_tower_has_previews_instead(mix: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MAX_WEIGHTS", 100)
    at = mix()
    assert not at.exception and not at.get("component_instance")
    assert "a browser takes at most 100. Merge previews the same chains on the server" in words(at).replace("\\", "")
    assert [link.value for link in at.page_link if link.value == "Open Merge"]


def test_a_server_that_only_reads_writes_elsewhere(mix: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_MODE", "read")
    at = mix()
    assert not at.exception and len(at.get("component_instance")) == 1
    assert not (tmp_path / "store" / component.FOLDER).exists()
