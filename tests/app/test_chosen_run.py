"""The chosen run stays chosen from page to page, and what pages open on names runs of the library."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import learned_runs
import pytest
import streamlit as st
import tiny_library
from app_places import ROOT, constants
from compared_runs import EMR, LWPTV, TIES
from daily import some_of
from page_harness import AddressBar, charts, go, named, own, press, runs, shown, words

from app.session import run_choice, view_state
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.run_store import Store

SECTIONS = constants(ROOT / "app" / "main.py")["SECTIONS"]
PAGES = [entry[0] for entries in SECTIONS.values() for entry in entries]  # type: ignore[attr-defined]
SHOW_ONE, SHOW_SEVERAL = {"masks", "conflicts", "compare"}, {"drift", "features", "image", "scores"}
DRIFT_VIEWS = ("by depth", "layer by layer", "put back", "exemplars", "what CAT removes")
OPENED = {  # page -> the key of the address that names what it opens on
    "masks": "run", "compare": "run", "conflicts": "run", "drift": "runs", "features": "runs", "image": "runs",
}  # fmt: skip


# The chosen run


@pytest.mark.full
def test_every_page_keeps_the_run_in_the_address_of_another(open_app: Any, compared: Path) -> None:
    run = runs(compared)[EMR].id  # none that a page opens on, and some cannot show it
    at = open_app("masks", compared, run=run)
    for page in PAGES:
        go(at, page)
        assert page not in SHOW_ONE or named(at, "run") == [run], page
        if page in SHOW_SEVERAL:
            assert run in shown(at, "runs") or EMR.replace("-", "\\-") in words(at), page
            assert not any("does not have" in str(warning.value) for warning in at.warning), page
        assert named(go(at, "masks"), "run") == [run], page


@pytest.mark.full
def test_every_page_after_the_other_keeps_it(open_app: Any, compared: Path) -> None:
    run = runs(compared)[TIES].id
    at = open_app("masks", compared, run=run)
    for page in [*PAGES, *reversed(PAGES)]:
        go(at, page)
        assert page not in SHOW_ONE or named(at, "run") == [run], page
        assert page not in SHOW_SEVERAL or shown(at, "runs")[0] == run, page


@pytest.mark.parametrize("view", some_of(DRIFT_VIEWS, "by depth", "put back"))
def test_no_view_of_drift_replaces_it(open_app: Any, compared: Path, view: str) -> None:
    run = runs(compared)[LWPTV].id
    others = ",".join(one.id for one in runs(compared).values() if one.kind == "merge" and one.id != run)
    at = open_app("masks", compared, run=run)
    go(at, "drift", drift_view=view)
    if at.multiselect:
        at.multiselect(key="drifting").set_value(others.split(",")).run()
        assert run not in named(at, "runs") and named(at, "run") in ([run], [""])  # a reload keeps it, too
    assert named(go(at, "masks"), "run") == [run]


@pytest.mark.full
def test_a_run_chosen_later_joins_those_of_a_page(open_app: Any, compared: Path) -> None:
    known = runs(compared)
    at = go(open_app("scores", compared), "masks")
    at.selectbox(key="picker").set_value(known[EMR].id).run()
    several = shown(go(at, "scores"), "runs")
    assert several[0] == known[EMR].id and known[TIES].id in several
    assert named(at, "run") == [known[EMR].id] and "runs" not in at.query_params
    at.multiselect(key="compare").set_value([known[TIES].id]).run()  # who takes it away there keeps it elsewhere
    assert named(go(at, "scores"), "runs") == [known[TIES].id]
    assert named(go(at, "masks"), "run") == [known[EMR].id]


@pytest.mark.full
def test_the_run_of_a_page_with_several_is_that_of_pages_with_one(open_app: Any, compared: Path) -> None:
    known = runs(compared)
    at = open_app("scores", compared, runs=known[TIES].id[:8])
    assert named(go(at, "masks"), "run") == [known[TIES].id]
    go(at, "scores", runs=f"{known[EMR].id},{known[TIES].id}")  # it is among those of this link
    assert shown(go(at, "compare"), "run") == [known[TIES].id]
    go(at, "scores", runs=known[EMR].id)
    assert named(go(at, "masks"), "run") == [known[EMR].id]


@pytest.mark.full
def test_a_page_says_that_it_cannot_show_the_chosen_run(open_app: Any, compared: Path) -> None:
    known = runs(compared)
    at = go(open_app("masks", compared, run=known[EMR].id), "features")
    assert f"**{EMR}** is not among these runs. Features shows merges" in words(at).replace("\\", "")
    assert shown(go(at, "scores"), "runs")[0] == known[EMR].id and charts(at)


@pytest.mark.full
def test_links_to_a_chosen_tensor_name_the_chosen_run(open_app: Any, compared: Path) -> None:
    run = runs(compared)[TIES].id
    at = go(open_app("masks", compared, run=run), "scores", tensor="visual.proj")
    links = [link.proto for link in at.get("page_link") if link.proto.label in ("Masks", "Drift")]
    assert links and all(f"run={run}" in link.query_string for link in links if "tensor" in link.query_string)


@pytest.mark.full
def test_a_run_that_was_not_chosen_is_not_chosen_by_a_reload(open_app: Any, compared: Path) -> None:
    known = runs(compared)
    at = open_app("masks", compared)
    (opened,) = shown(at, "run")
    again = open_app("masks", compared, **{key: ",".join(value) for key, value in at.query_params.items()})
    assert "run" not in again.query_params and "_chosen_run" not in again.session_state
    assert shown(again, "run") == [opened] and again.session_state["_implied"] == {"run": opened}
    again.selectbox(key="picker").set_value(known[EMR].id).run()
    assert named(again, "run") == [known[EMR].id] and again.session_state["_implied"] == {}


@pytest.mark.parametrize("page", some_of(sorted(SHOW_SEVERAL), "drift", "scores"))
def test_the_runs_that_a_page_opens_on_are_not_chosen_by_a_reload(open_app: Any, compared: Path, page: str) -> None:
    at = open_app(page, compared)
    opened = shown(at, "runs")
    again = open_app(page, compared, **{key: ",".join(value) for key, value in at.query_params.items()})
    assert shown(again, "runs") == opened and opened[0] and "runs" not in again.query_params
    assert not [key for key in ("_chosen_run", "_named_run", "_runs") if key in again.session_state]


def test_a_link_names_what_its_page_shows_and_the_address_only_what_was_chosen(monkeypatch: Any) -> None:
    monkeypatch.setattr(st, "session_state", {"_page": "masks"})
    monkeypatch.setattr(st, "query_params", AddressBar(run="a", ratio="0.5"))
    view_state.imply_parameter("run", "b")
    assert st.query_params == {"ratio": "0.5"}
    assert (
        view_state.view_query() == {"run": "b", "ratio": "0.5"}
        and view_state.relative_address() == "masks?run=b&ratio=0.5"
    )
    view_state.enter_page("masks")
    assert view_state.view_query() == {"ratio": "0.5"}


def test_a_deleted_run_is_chosen_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, left = "0123456789ab", "abcdef012345"
    kept = {"_chosen_run": gone[:8], "_run": gone, "_other": left, "_runs": [gone, left], "_chosen": [gone]}
    monkeypatch.setattr(st, "session_state", kept)
    monkeypatch.setattr(st, "query_params", AddressBar(run=gone[:6], selected_runs=f"{left},{gone}", run_b=left))
    run_choice.drop_runs([gone])
    assert kept == {"_other": left, "_runs": [left], "_chosen": []}
    assert st.query_params == {"selected_runs": left, "run_b": left}


@pytest.mark.parametrize("page", ["compare", "masks"])
def test_a_run_that_was_deleted_elsewhere_is_no_longer_available(
    open_app: Any, compared: Path, tmp_path: Path, page: str
) -> None:
    few = tuple(list(Benchmark.load(compared).experts.items())[:2])
    run = own(compared, tmp_path / "store", "ties", title="Mine", experts=few)
    at = open_app("conflicts", compared, run=run.id)
    assert shown(at, "run") == [run.id]
    shutil.rmtree(run.path)
    assert [one.value for one in go(at, page).warning] == ["The chosen run is no longer available."]
    press(at, "Show an available run")
    assert not at.warning


@pytest.mark.full
def test_learning_opens_on_a_run_that_learned_unless_one_was_chosen(open_app: Any, learned: Path) -> None:
    at = open_app("masks", learned)
    assert shown(at, "run")[0] not in learned_runs.TITLES
    assert "learned nothing" not in words(go(at, "learning")) and shown(at, "run")[0] in learned_runs.TITLES
    chosen = run_ids(learned) - set(learned_runs.TITLES)
    at = go(open_app("masks", learned, run=min(chosen)), "learning")
    assert "learned nothing" in words(at)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_library.write(tmp_path_factory.mktemp("learned"), ("ties",))
    learned_runs.add(folder)
    return folder


def run_ids(folder: Path) -> set[str]:
    """The ids of the merges in a library."""
    return {run.id for run in Store(libraries=(folder / "runs",)).list_runs() if run.kind == "merge"}


# What pages open on


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with all that pages open on."""
    keys = ("weight_averaging", "task_arithmetic_lwptv", "ties", "ties_mean", "cat", "lot")
    return tiny_library.write(tmp_path_factory.mktemp("shelf"), keys)


@pytest.fixture(scope="module")
def own_runs(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store with runs of the library's chains: other values, other experts, another order, and equal ones."""
    root, experts = tmp_path_factory.mktemp("own"), Benchmark.load(shelf).experts
    other = Recipe.build("task_arithmetic", {"scaling": 0.5}, [], "", {}).merge
    own(shelf, root, "task_arithmetic", merge=other)
    own(shelf, root, "lot", experts=tuple(list(experts.items())[:2]))
    own(shelf, root, "ties", experts=tuple(reversed(experts.items())))
    for key in ("ties_mean", "task_arithmetic_lwptv", "weight_averaging"):
        own(shelf, root, key, title="Mine")
    yield root


@pytest.mark.parametrize("page", some_of(OPENED, "masks", "drift"))
def test_own_runs_take_no_place_of_the_library(
    open_app: Any, shelf: Path, own_runs: Path, tmp_path: Path, page: str
) -> None:
    opened = shown(open_app(page, shelf), OPENED[page])
    shutil.copytree(own_runs, tmp_path / "store", dirs_exist_ok=True)
    assert shown(open_app(page, shelf), OPENED[page]) == opened
    assert page != "drift" or len(opened) == 6


def test_an_equal_run_of_ones_own_stands_where_the_library_has_it(
    open_app: Any, shelf: Path, own_runs: Path, tmp_path: Path
) -> None:
    before = open_app("masks", shelf).selectbox(key="picker").options
    shutil.copytree(own_runs, tmp_path / "store", dirs_exist_ok=True)
    at = open_app("masks", shelf)
    ids = [option[-6:] for option in at.selectbox(key="picker").options]
    assert len(before) == 7 and ids[-7:] == [option[-6:] for option in before]
