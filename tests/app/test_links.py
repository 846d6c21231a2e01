"""What links may name: the beginning of an id, one run twice, and a run that is deleted while a page shows it."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import learned_runs
import pytest
import small_sweeps
import streamlit as st
from compared_runs import LWPTV, TIES
from daily import some_of
from page_harness import MAIN, charts, press, runs, words
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData
from streamlit.testing.v1 import AppTest, local_script_runner

from app import process_values
from merging.base.errors import StoreError
from merging.base.files import atomic
from merging.base.files.short_digest import match_prefix, resolve_prefix
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_storage

AGAIN = "Draw the page again"


def missing(at: AppTest) -> bool:
    return "which this machine does not have" in words(at)


def twin(folder: Path, run_id: str) -> str:
    """A copy of a run whose id has the same first eight digits."""
    other = run_id[:8] + ("0000" if run_id[8:] != "0000" else "1111")
    shutil.copytree(folder / "runs" / run_id, folder / "runs" / other)
    facts = json.loads((folder / "runs" / other / "run.json").read_text())
    (folder / "runs" / other / "run.json").write_text(json.dumps(facts | {"id": other, "title": "The twin"}))
    (folder / "runs" / other / atomic.MANIFEST).unlink()
    atomic.seal(folder / "runs" / other)
    return other


@pytest.fixture
def twins(compared: Path, tmp_path: Path) -> tuple[Path, str, str]:
    """A library in which two runs have ids with the same first eight digits."""
    folder = tmp_path / "twins"
    shutil.copytree(compared, folder)
    run_id = runs(folder)[TIES].id
    return folder, run_id, twin(folder, run_id)


# Beginnings of ids


def test_a_beginning_of_six_digits_is_one_id_or_stays_what_it_is() -> None:
    ids = ["0123456789ab", "0123459999ab", "abcdef012345"]
    assert resolve_prefix("abcdef", ids) == "abcdef012345" == resolve_prefix("abcdef012345", ids)
    assert [resolve_prefix(written, ids) for written in ("abcde", "012345", "ffffff", "", "new", "../../")] == [
        "abcde", "012345", "ffffff", "", "new", "../../"
    ]  # fmt: skip
    assert match_prefix("012345", ids) == ids[:2] and resolve_prefix("0123456", ids) == ids[0]


@pytest.mark.parametrize(
    ("page", "key", "digits"),
    [("masks", "run", 6), ("scores", "runs", 8), ("models", "selected_runs", 8), ("compare", "run_b", 6)],
)
def test_every_link_opens_with_the_digits_that_pages_print(
    open_app: Any, compared: Path, page: str, key: str, digits: int
) -> None:
    run = runs(compared)[LWPTV]
    more = (
        {"models_view": "runs"}
        if page == "models"
        else {"run": runs(compared)[TIES].id[:digits]}
        if key == "run_b"
        else {}
    )
    at = open_app(page, compared, **{key: run.id[:digits]}, **more)
    assert not at.exception and not at.error and not missing(at)
    assert run.id in str(at.query_params[key])


def test_too_few_digits_and_unknown_ones_are_said(open_app: Any, compared: Path) -> None:
    run_id = runs(compared)[TIES].id
    for written in (run_id[:5], "../x000000"):
        at = open_app("masks", compared, run=written)
        assert not at.exception and missing(at)


@pytest.mark.full
def test_an_ambiguous_beginning_lists_the_runs(open_app: Any, twins: tuple[Path, str, str]) -> None:
    folder, one, other = twins
    for page, key in (("masks", "run"), ("scores", "runs"), ("compare", "run_b")):
        at = open_app(page, folder, **{key: one[:6]})
        assert not at.exception and not missing(at)
        assert f"Several runs begin with “{one[:6]}”" in words(at)
        at.button(key=f"several_{one[:6]}_{other}").click().run()
        assert not at.exception and "Several runs" not in words(at) and str(at.query_params[key]).strip("[]'") == other
    at = open_app("scores", folder, runs=f"{one},{one[:6]}")
    at.button(key=f"several_{one[:6]}_{one}").click().run()
    assert at.multiselect(key="compare").value == [one]


def test_a_sweep_opens_by_six_digits(open_app: Any, library: Path, tmp_path: Path) -> None:
    sweep = small_sweeps.sweep(Benchmark.load(library), images=8)
    sweep_storage.store_sweep(sweep, Store(tmp_path / "store", libraries=()))
    at = open_app("sweeps", library, sweep=sweep.id[:6])
    assert not at.exception and not missing(at) and sweep.id in str(at.query_params["sweep"])
    other, listed = sweep.id[:6] + "000000", sweep_storage.list_sweeps
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep_storage, "list_sweeps", lambda store: {**listed(store), other: replace(sweep, title="B")})
        at = open_app("sweeps", library, sweep=sweep.id[:6])
        assert not at.exception and "Several sweeps begin with" in words(at)
        at.button(key=f"several_{sweep.id}").click().run()
        assert "Several sweeps" not in words(at) and sweep.id in str(at.query_params["sweep"])


def test_the_store_names_a_run_by_its_beginning(twins: tuple[Path, str, str]) -> None:
    folder, one, other = twins
    store = Store(folder / "nothing", libraries=(folder / "runs",))
    assert store.resolve_id(one) == one and store.resolve_id(one[:9]) == one and store.resolve_id("zz") == "zz"
    with pytest.raises(StoreError, match=rf"2 runs have ids that begin with {one[:6]}: .*{other}.*Write more digits"):
        store.resolve_id(one[:6])


# A part of the network


@pytest.fixture(scope="module")
def learned(compared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with runs that learned, too."""
    folder = tmp_path_factory.mktemp("learned") / "library"
    shutil.copytree(compared, folder)
    learned_runs.add(folder)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("page", ["conflicts", "compare", "learning", "image", "run"])
def test_a_link_names_the_chosen_part_of_the_network(open_app: Any, learned: Path, page: str) -> None:
    scope, run = "this layer in all blocks", learned_runs.LAYERWISE if page == "learning" else runs(learned)[TIES].id
    part = {"tensor": "visual.transformer.resblocks.0.mlp.c_fc.weight", "action_scope": scope}
    at = open_app(page, learned, run=run, run_b=runs(learned)[LWPTV].id, **part)
    spec = next(chart.proto.spec for chart in at.get("plotly_chart") if chart.proto.id.endswith("chart_network_map"))
    outlines = [shape for shape in json.loads(spec)["layout"]["shapes"] if shape.get("name") == "selected"]
    assert not at.exception and len(outlines) == 2  # in both blocks
    assert scope in str(at.query_params["action_scope"])


# One run twice


@pytest.mark.parametrize("page", ["scores", "drift", "features"])
def test_a_run_that_is_named_twice_is_shown_once(open_app: Any, compared: Path, page: str) -> None:
    run = runs(compared)[TIES].id
    at = open_app(page, compared, runs=f"{run},{run},{run[:6]},,{run}")
    assert not at.exception and not at.error and charts(at)
    assert str(at.query_params["runs"]).strip("[]'") == run


def test_a_chosen_run_that_is_named_twice_is_chosen_once(open_app: Any, compared: Path) -> None:
    run = runs(compared)[TIES].id
    at = open_app("models", compared, models_view="runs", selected_runs=f"{run},{run}")
    assert not at.exception and at.multiselect(key="chosen_runs").value == [run]


# A run that is deleted meanwhile


def fragments() -> Iterator[str]:
    """Module and name of every function of the app that is redrawn alone, and of those that only Streamlit guards."""
    for path in sorted(set(MAIN.parent.rglob("*.py")) - {MAIN.parent / "session" / "click_errors.py"}):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            place = ".".join(path.relative_to(MAIN.parents[1]).with_suffix("").parts)
            if isinstance(node, ast.FunctionDef):
                yield from (f"{place} {node.name}" for mark in node.decorator_list if named(mark) == "guarded_fragment")
            elif isinstance(node, ast.Call) and named(node.func) == "guarded_fragment":
                yield f"{place} {named(node.args[0])}"
            if isinstance(node, ast.Attribute) and node.attr == "fragment":
                yield f"{place}: st.fragment"


def named(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


VIEWS: dict[str, tuple[str, dict[str, str]]] = {  # fragment -> a page that draws it, and its query
    "app.screens.masks draw_masks": ("masks", {"run": TIES}),
    "app.screens.partners draw_team": ("partners", {}),
    "app.views.run_page.first_picture _draw_map": ("home", {}),
    "app.views.compare.image_agreement draw_pictures": (
        "compare",
        {"run": TIES, "run_b": LWPTV, "compare_view": "images"},
    ),
    "app.views.conflicts.joint_space draw_view": ("conflicts", {"run": TIES, "conflicts_view": "joint space"}),
    "app.views.conflicts.expert_pairs draw_pictures": (
        "conflicts",
        {"run": TIES, "conflicts_view": "experts against experts"},
    ),
    "app.views.conflicts.spectra _draw_charts": ("conflicts", {"run": TIES, "conflicts_view": "spectra"}),
    "app.views.drift.similarity _draw_map": ("drift", {"drift_view": "model against model"}),
    "app.views.conflicts.sign_agreement draw_pictures": ("conflicts", {"run": TIES, "conflicts_view": "signs"}),
    "app.views.drift.layer_by_layer draw_pictures": ("drift", {"runs": TIES, "drift_view": "layer by layer"}),
    "app.views.drift.lot_cases draw_cases": ("drift", {"drift_view": "two extreme cases"}),
    "app.views.drift.restoring draw_partial_map": ("drift", {"drift_view": "put back"}),
    "app.views.drift.restoring draw_maps": ("drift", {"runs": TIES, "drift_view": "put back"}),
    "app.views.image.image_search draw_view": ("image", {}),
    "app.views.image.data_set_view draw_depths": ("image", {"runs": TIES, "image_view": "whole data sets"}),
    "app.views.image.data_set_view draw_data_sets": ("image", {"runs": TIES, "image_view": "whole data sets"}),
    "app.views.image.frame_of_page _poll": ("image", {}),
    "app.views.learning.coefficients draw_view": ("learning", {}),
    "app.views.learning.learned_masks draw_view": ("learning", {}),
    "app.views.learning.task_modules _draw_routing": ("learning", {}),
    "app.views.learning.live_learning _draw_jobs": ("learning", {}),
    "app.views.masks.paint draw_canvas": ("masks", {"run": TIES, "painting": "true"}),
    "app.views.lessons.class_poll _draw_answers_now": ("masks", {}),
    "app.widgets.panels.preview_panel _draw_panel": ("merge", {}),
    "app.views.merge.started_run _draw_progress": ("merge", {}),
    "app.views.features.feature_maps draw_maps": ("features", {"runs": TIES}),
    "app.views.features.joint_maps draw_arrows": ("features", {}),
    "app.views.features.joint_maps _draw_list": ("features", {}),
    "app.views.features.joint_maps _draw_step": ("features", {}),
    "app.views.models.benchmark_form _draw_jobs_now": ("models", {"models_view": "data"}),
    "app.views.models.published_job _draw_progress": ("models", {"models_view": "data"}),
    "app.views.scores.claim_counts draw_counts": ("scores", {}),
    "app.views.sweeps.sweep_view _draw_sweep_now": ("sweeps", {}),
    "app.views.sweeps.tuning_view _draw_tuning_now": ("sweeps", {}),
    "app.widgets.jobs.tray _draw_tray": ("home", {}),
}

GONE = "The chosen run is no longer available."
ASKING = {"app.screens.masks draw_masks"}  # fragments that read the run itself


def test_every_fragment_is_guarded_and_in_the_list() -> None:
    assert set(fragments()) == set(VIEWS)


GUARDED = """
import streamlit as st
from app.session.click_errors import guarded_fragment
from merging.images.benchmarks.benchmark import Benchmark
from merging.base.errors import StoreError

def draw(name):
    st.button("Press", key="press")
    if st.session_state.get("press"):
        raise StoreError(f"There is no run {name} **here**.")
    st.caption("drawn")

guarded_fragment(draw)("1234")
"""


def test_an_error_in_a_fragment_is_a_sentence_and_a_way_on() -> None:
    at = AppTest.from_string(GUARDED).run()
    at.button(key="press").click().run()
    assert not at.exception and at.error[0].value == r"There is no run 1234 \*\*here\*\*\."
    press(at, AGAIN)
    assert not at.exception and not at.error and at.caption[0].value == "drawn"


def alone(at: AppTest, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """Redraw the fragments of a page without the page, as a click in each of them does."""
    parts = list(at._fragment_storage._fragments)  # type: ignore[attr-defined]
    assert parts
    with monkeypatch.context() as patch:
        patch.setattr(local_script_runner, "RerunData", partial(RerunData, fragment_id_queue=parts))
        patch.setattr(st, "page_link", lambda *given, **options: None)  # here, unlike in a server, no page is known
        return at.run()


OF_RUNS = [view for view, (_, query) in VIEWS.items() if {"run", "runs"} & set(query)]


@pytest.mark.parametrize("view", some_of(OF_RUNS, *ASKING, "app.views.drift.restoring draw_maps"))
def test_a_run_that_is_deleted_while_its_page_is_open(
    open_app: Any, compared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    page, query = VIEWS[view]
    folder = tmp_path / "library"
    shutil.copytree(compared, folder)
    known = {title: run.id for title, run in runs(folder).items()}
    at = open_app(page, folder, **{key: known.get(value, value) for key, value in query.items()})
    assert not at.exception and not at.error
    shutil.rmtree(folder / "runs" / known[TIES])
    st.cache_data.clear()  # as in a server that has shown much else since
    st.cache_resource.clear()
    process_values.forget_results()
    assert not alone(at, monkeypatch).exception
    if view in ASKING:
        assert f"There is no run '{known[TIES]}'" in at.error[0].value.replace("\\", "")
        assert AGAIN in [button.label for button in at.button]
    at.run()
    assert not at.exception and not at.error and GONE in words(at)
    press(at, "Show an available run")
    assert not at.exception and not at.error and GONE not in words(at) and known[TIES] not in str(at.query_params)
