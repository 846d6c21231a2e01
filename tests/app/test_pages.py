"""Every page in the states full, empty and bad link, and what its links restore."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny_library
from page_harness import charts, press, words

from app import page_text
from merging.study.runs.run_store import Store

PAGES = ("home", "merge", "masks", "scores")


# Pages


@pytest.mark.parametrize(("page", "drawn"), [("home", 0), ("merge", 1), ("masks", 2), ("scores", 4)])
def test_page_with_a_library(look: Any, library: Path, page: str, drawn: int) -> None:
    at = look(page, library)
    assert not at.exception
    assert not at.error
    assert charts(at) == drawn
    assert at.title[0].value in {"Mergescope", "Merge", "Masks", "Scores"}


@pytest.mark.parametrize("page", PAGES)
def test_page_without_runs(look: Any, tiny_folder: Path, page: str) -> None:
    at = look(page, tiny_folder)
    assert not at.exception
    assert charts(at) == 0
    if page != "merge":
        assert "Merge some experts" in words(at)
        assert [link.value for link in at.page_link if link.value == "Merge experts"]


@pytest.mark.parametrize("page", PAGES)
def test_page_without_a_benchmark(open_app: Any, tmp_path: Path, page: str) -> None:
    at = open_app(page, tmp_path / "nothing")
    assert not at.exception
    assert page != "merge" or "There is no benchmark here" in at.error[0].value


BAD_LINKS = [
    ("masks", {"run": "000000000000"}, "does not have"),
    ("masks", {"run": "../../etc/passwd"}, "does not have"),
    ("scores", {"runs": "000000000000,ffffffffffff"}, "does not have"),
    ("merge", {"chain": "no_such_edit;ties"}, "cannot be used"),
    ("merge", {"chain": "ties:density=1e400"}, "cannot be used"),
    ("merge", {"chain": "ties:density="}, "cannot be used"),
    ("merge", {"chain": ";;;"}, "cannot be used"),
    ("merge", {"chain": "exemplars:per_task=0;lot"}, "cannot be used"),
    ("merge", {"chain": "exemplars"}, "cannot be used"),
    ("merge", {"chain": "activation:relu;ties"}, "cannot be used"),
    ("merge", {"chain": "activation:gelu"}, "cannot be used"),
    ("merge", {"chain": "ties", "experts": "nobody,../x"}, ""),
    ("home", {"presentation": "maybe", "run": "x"}, ""),
    ("masks", {"ratio": "7", "tensor_order": "EVIL", "tensor": "none", "shared_mask": "x", "grouping": "1"}, ""),
]


@pytest.mark.parametrize(("page", "query", "says"), BAD_LINKS)
def test_page_with_a_bad_link(look: Any, library: Path, page: str, query: dict[str, str], says: str) -> None:
    at = look(page, library, **query)
    assert not at.exception
    assert says in words(at)


def test_a_run_that_is_not_here_can_be_left_behind(open_app: Any, library: Path) -> None:
    at = open_app("masks", library, run="000000000000")
    assert charts(at) == 0
    press(at, "Show an available run")
    assert not at.exception
    assert charts(at) == 2


def test_a_link_restores_the_masks(open_app: Any, library: Path) -> None:
    run = next(run.id for run in Store(libraries=(library / "runs",)).list_runs() if "saliency" in run.tables)
    tensor = "visual.proj"
    at = open_app("masks", library, run=run, ratio="0.5", tensor=tensor, expert="flags", tensor_order="kind of layer")
    assert at.slider(key="ratio").value == 0.5
    assert at.selectbox(key="tensor_order").value == "kind of layer"
    assert charts(at) == 3  # the chosen tensor has a chart of its own
    assert "At prune ratio 0.5; this run used 0.7" in words(at)


def test_a_run_without_masks_says_so(open_app: Any, library: Path) -> None:
    run = next(run.id for run in Store(libraries=(library / "runs",)).list_runs() if run.title == "Weight Averaging")
    at = open_app("masks", library, run=run)
    assert "did not prune" in at.info[0].value
    assert charts(at) == 2


@pytest.mark.full
def test_a_run_whose_checkpoints_changed_says_so(open_app: Any, tmp_path: Path) -> None:
    folder = tiny_library.write(tmp_path / "library")  # its own, because it is changed
    run = next(run.id for run in Store(libraries=(folder / "runs",)).list_runs() if run.title == "Weight Averaging")
    expert = folder / "models" / "flags.safetensors"
    shutil.copy(folder / "models" / "pretrained.safetensors", expert)
    at = open_app("masks", folder, run=run)
    assert not at.exception
    assert charts(at) == 0
    assert "not the ones that this run merged: flags" in at.info[0].value.replace("\\", "")
    expert.unlink()
    at = open_app("masks", folder, run=run)
    assert not at.exception
    assert charts(at) == 0
    assert "cannot be measured" in at.info[0].value


def test_a_link_with_many_missing_runs_names_a_few(look: Any, library: Path) -> None:
    at = look("scores", library, runs=",".join(f"{number:012x}" for number in range(10)))
    assert "and 7 more" in at.warning[0].value


@pytest.mark.parametrize("page", PAGES)
def test_a_page_reads_the_runs_once(open_app: Any, library: Path, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = open_app(page, library)
    reads = []
    whole = Store.list_runs
    monkeypatch.setattr(Store, "list_runs", lambda self: reads.append(1) or whole(self))
    at.run()
    assert not at.exception
    assert len(reads) == 1


def test_the_run_button_stands_above_the_formulas(look: Any, library: Path) -> None:
    at = look("merge", library)
    order = [element.key if element.type == "button" else element.type for element in at.main]
    assert order.index("run_button") < order.index("latex")


def test_picking_another_run_starts_from_its_own_ratio(open_app: Any, library: Path) -> None:
    runs = {run.title: run.id for run in Store(libraries=(library / "runs",)).list_runs()}
    at = open_app("masks", library, run=runs["Task Arithmetic w/ LwPTV"], ratio="0.2")
    at.selectbox(key="picker").select(runs["Weight Averaging"]).run()
    at.selectbox(key="picker").select(runs["Task Arithmetic w/ LwPTV"]).run()
    assert at.slider(key="ratio").value == 0.7
    assert at.query_params["run"] == runs["Task Arithmetic w/ LwPTV"]


def test_scores_compare_the_chosen_runs(open_app: Any, library: Path) -> None:
    at = open_app("scores", library)
    chosen = at.multiselect(key="compare").value
    assert len(chosen) == 4
    at.multiselect(key="compare").unselect(chosen[0]).run()
    assert at.query_params["runs"] == ",".join(chosen[1:])
    table = at.dataframe[0].value
    assert set(table["kind"]) == {"pretrained", "individual", "multitask", "merge"}
    assert (table["in_low"] <= table["in_domain"]).all()
    for run in chosen[1:]:
        at.multiselect(key="compare").unselect(run)
    at.run()
    assert not at.exception
    assert "Choose at least one run" in at.info[0].value


def test_names_are_shown_as_they_are(look: Any, library: Path) -> None:
    for page in ("home", "scores"):
        at = look(page, library)
        assert not re.search(r"(?<!\\)<img", words(at))
        listed = list(at.dataframe[0].value["title"]) if page == "home" else []  # a table shows plain text
        assert page_text.safe_text(tiny_library.NASTY) in words(at) or tiny_library.NASTY in listed
