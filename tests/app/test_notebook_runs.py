"""Stored runs in a notebook: found by id and by name, with scores, tables and the charts that pages draw."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from compared_runs import EMR, LWPTV, PRETRAINED, TIES
from page_harness import forget, own, runs
from tiny_library import NASTY

from app.notebook.page_view import VIEWS
from merging.base.errors import MergingError, StoreError


def test_the_list_has_every_merge_with_scores_n_and_seed(mergescope: ModuleType, notebook_place: Path) -> None:
    listed = mergescope.runs()
    stored = {run.id: run for run in runs(notebook_place).values() if run.kind == "merge"}
    assert {run.id for run in listed} == set(stored) and len(listed) == len(stored)
    assert [run.id for run in mergescope.runs("ties")] == [runs(notebook_place)[TIES].id]
    assert listed[:2]._repr_html_().startswith("<b>2 runs</b>") and listed[0] is listed[:2][0]
    html = listed._repr_html_()
    row = next(row for row in re.findall(r"<tr>(.*?)</tr>", html) if f"<td>{runs(notebook_place)[TIES].id}</td>" in row)
    name, inside, outside, h_score, n, seed, _ = re.findall(r"<td>(.*?)</td>", row)
    assert name.startswith("TIES") and all(re.match(r"\d+\.\d % \[", cell) for cell in (inside, outside))
    assert re.fullmatch(r"\d+\.\d%", h_score) and re.fullmatch(r"\d+ \+ \d+", n) and seed == "nothing random"
    assert "†" not in html and "‡. One model per task" in html  # EMR is among them


def test_a_folder_without_a_benchmark_is_named(
    mergescope: ModuleType, notebook_place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tmp_path))
    for read in (mergescope.runs, lambda: mergescope.run(LWPTV), lambda: mergescope.view("scores")):
        with pytest.raises(MergingError, match=f"{tmp_path} has no tasks.json. Set MERGESCOPE_BENCHMARK to a"):
            read()


def test_own_runs_come_first_and_their_names_stay_text(
    mergescope: ModuleType, notebook_place: Path, tmp_path: Path
) -> None:
    mine = own(notebook_place, tmp_path / "store", "weight_averaging", title=NASTY)
    assert mergescope.runs()[0].id == mine.id
    for html in (mergescope.runs()._repr_html_(), mergescope.run(mine.id)._repr_html_()):
        assert "<img" not in html and "&lt;img" in html


def test_a_run_is_found_by_id_by_its_beginning_and_by_name(mergescope: ModuleType, notebook_place: Path) -> None:
    stored = runs(notebook_place)[LWPTV]
    named = {mergescope.run(text).id for text in (stored.id, stored.id[:6], LWPTV, LWPTV.upper())}
    assert named == {stored.id} and mergescope.run(PRETRAINED).stored.kind == "pretrained"
    with pytest.raises(StoreError, match=r"no run 'Task Arithmetic w/ LwPT' .* Did you mean '.*LwPTV"):
        mergescope.run("Task Arithmetic w/ LwPT")


def test_a_run_has_its_scores_its_recipe_and_its_tables(mergescope: ModuleType, notebook_place: Path) -> None:
    stored, run = runs(notebook_place)[LWPTV], mergescope.run(LWPTV)
    pd.testing.assert_frame_equal(run.scores, stored.scores)
    pd.testing.assert_frame_equal(run.table("saliency"), stored.table("saliency"))
    assert run.recipe == stored.recipe and run.tables == list(stored.tables) and "n" in run.scores
    with pytest.raises(StoreError, match=r"no table 'saliencies'; its tables are: tensors, saliency"):
        run.table("saliencies")
    html = run._repr_html_()
    assert "nothing random" in html and "LwPTV" in html and "<td>n</td>" in html


@pytest.mark.full
def test_a_chart_of_a_run_is_the_one_of_its_page(mergescope: ModuleType, notebook_place: Path) -> None:
    run = mergescope.run(LWPTV)
    view = mergescope.view(f"masks?run={run.id}&ratio=0.5&shared_mask=false")
    assert run.plot("saliency_matrix", ratio=0.5, shared_mask=False).to_json() == view["saliency_matrix"].to_json()
    assert run.plot("saliency_matrix").to_json() != view["saliency_matrix"].to_json()


@pytest.mark.full
@pytest.mark.parametrize(
    ("chart", "settings", "message"),
    [
        ("saliency", {}, r"No page draws a chart 'saliency' of a run; there are: network_map, saliency_matrix"),
        ("saliency_matrix", {"prune_ratio": 0.5}, r"masks has no setting 'prune_ratio'; it has: .*ratio, shared_mask"),
        ("pair_depth", {}, r"draws no chart 'pair_depth'; its charts are: network_map, .*\. .*choose two experts"),
        ("saliency_matrix", {"ratio": 7}, r"On the page masks the setting ratio cannot be 7; it can be: 0 to 1\."),
        ("saliency_matrix", {"ratio": "abc"}, r"the setting ratio cannot be abc; it can be: 0 to 1\."),
        ("saliency_matrix", {"shared_mask": "yes"}, r"shared_mask cannot be yes; it can be: true, false\."),
        ("saliency_matrix", {"tensor_order": "up"}, r"tensor_order cannot be up; it can be: forward order, block"),
        ("drift_removed", {}, r"the chart drift_removed does not show run"),
    ],
)
def test_a_chart_that_cannot_be_drawn_is_refused_in_a_sentence(
    mergescope: ModuleType, notebook_place: Path, chart: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(MergingError, match=message):
        mergescope.run(TIES).plot(chart, **settings)


@pytest.mark.full
def test_runs_in_a_list_are_those_of_the_address(mergescope: ModuleType, notebook_place: Path) -> None:
    run, other = mergescope.run(LWPTV), mergescope.run(TIES)
    listed = run.plot("id_ood_scatter", runs=[run.id, other.id]).to_json()
    assert listed == run.plot("id_ood_scatter", runs=f"{run.id},{other.id}").to_json()
    assert listed != run.plot("id_ood_scatter").to_json()


@pytest.mark.full
def test_two_runs_are_compared_as_on_the_page(mergescope: ModuleType, notebook_place: Path) -> None:
    a, b = mergescope.run(TIES), mergescope.run(LWPTV)
    compared = mergescope.compare(a, LWPTV)
    page = mergescope.view(f"compare?run={a.id}&run_b={b.id}")
    pd.testing.assert_frame_equal(compared.changes, page.table("compare_scores"))
    changes = compared.changes.set_index("scope")
    reporting = [run.scores[run.scores["split"] == "reporting"].set_index("task")["accuracy"] for run in (a, b)]
    for task in reporting[0].index:
        assert changes.loc[task, "difference"] == pytest.approx(reporting[1][task] - reporting[0][task])
        assert changes.loc[task, "low"] <= changes.loc[task, "difference"] <= changes.loc[task, "high"]
    assert compared.plot().layout.meta["key"] == "compare_scores"
    assert compared.plot("compare_agreement").layout.meta["key"] == "compare_agreement"
    assert repr(compared) == f"Comparison(a={a!r}, b={b!r})"
    html = compared._repr_html_()
    assert "seed 0" in html and "<th>n</th>" in html and html.count("<tr>") == len(changes)


def test_a_reference_model_is_no_first_run_of_a_comparison(mergescope: ModuleType, notebook_place: Path) -> None:
    with pytest.raises(MergingError, match="draws no chart 'compare_scores'"):
        mergescope.compare(PRETRAINED, EMR)


TENSOR = "visual.transformer.resblocks.3.mlp.c_fc.weight"
SETTINGS = {  # chart -> the settings that it needs
    "saliency_tensor": {"tensor": TENSOR}, "drift_tensor": {"tensor": TENSOR}, "feature_moves": {"map": "arrows"},
    "pair_depth": {"first_expert": "digits", "second_expert": "flags"},
    "compare_tensor": {"chart": "saliency of one tensor"},
    "compare_distance": {"chart": "distance to pretrained"},
}  # fmt: skip
SHOWN = {  # page and view, or chart -> a run of the bundled library that has it; others are drawn of LWPTV
    "partners?what each brings": "Task Arithmetic", "partners?leave one out": "Task Arithmetic",
    "conflicts?spectra": "Weight Averaging", "drift?what CAT removes": "CAT Merging",
    "drift?put back": "Task Arithmetic",
    "learning?coefficients": "LW AdaMerging, quick", "learning?loss and gain": "LW AdaMerging, quick",
    "learning?modules": "WEMoE, quick", "feature_shift": "Surgery Merging", "learning?storage": "WEMoE, quick",
    "learning?masks": "Localize-and-Stitch",
}  # fmt: skip
NOT_IN_LIBRARY = {"routing_image", "compare_spectrum"}  # one needs weights, one a run of other experts


@pytest.mark.full
@pytest.mark.parametrize("place", VIEWS)
def test_every_chart_is_drawn_on_its_page(
    mergescope: ModuleType, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))  # on the bundled library
    forget()
    for chart in set(VIEWS[place].split()) - NOT_IN_LIBRARY:
        run = mergescope.run(SHOWN.get(chart, SHOWN.get(place, LWPTV)))
        shown = mergescope.compare("Task Arithmetic", run) if place.startswith("compare") else run
        assert shown.plot(chart, **SETTINGS.get(chart, {})).layout.meta["key"] == chart
    forget()
