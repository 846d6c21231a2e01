"""Putting layers back in the app: the view on Drift, the panel on three pages, and links that keep the tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest
import tiny_library
from page_harness import charts, click, labels, press, runs, words

from app.reading import restored_tensors
from app.session import address
from app.session.draft import parse_chain as parse_draft
from app.session.job_queue import SessionQueue
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.paired_scores import AVERAGE
from merging.recipes.chain_text import parse_chain
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.analysis import measurement_store, measurement_subject
from merging.study.analysis.measurement_subject import MeasurementResult
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.queue.job_records import Job

BACK = "put back"
TENSOR = "visual.transformer.resblocks.1.mlp.c_fc.weight"


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library in which both maps and drift of the runs are measured, that with the nasty title first."""
    folder = tiny_library.write(tmp_path_factory.mktemp("mapped"), ("task_arithmetic_lwptv",))
    benchmark = Benchmark.load(folder)
    store = Store(folder / "measuring", libraries=(folder / "runs",), dated=False)
    for run in store.list_runs():
        for key in ("put_back", "first_order", "drift") if run.recipe else ():
            measure.measure(key, store, benchmark, run.id, context=Context(device="cpu"))
    (folder / "measuring" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
    return folder


@pytest.fixture
def previewed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Recipe, Any, str]]:
    """What the panel asks to preview."""
    asked: list[tuple[Recipe, Any, str]] = []
    monkeypatch.setattr("app.widgets.panels.preview_panel.draw_preview", lambda *given: asked.append(given))
    return asked


def link(at: Any, label: str) -> dict[str, str]:
    proto = next(one.proto for one in at.get("page_link") if one.proto.label == label)
    return {key: unquote(values[0]) for key, values in parse_qs(proto.query_string).items()}


def picked(at: Any) -> str | None:
    """The tensor in the page's picker."""
    value: str | None = next(box for box in at.selectbox if box.label == "Tensor").value
    return value


@pytest.mark.full
def test_the_view_shows_both_maps_and_the_ranks(open_app: Any, mapped: Path, previewed: list[Any]) -> None:
    run = runs(mapped)[tiny_library.NASTY]
    at = open_app("drift", mapped, drift_view=BACK, run=run.id, runs=run.id)
    assert not at.exception and not at.error
    assert (charts(at), len(at.dataframe)) == (3, 2)
    assert "Measure" not in labels(at, "button")
    shown = words(at)
    assert "n = 80 images in domain and 40 out of domain of the choosing half, sampled with seed 0" in shown
    assert "Rank correlation (Spearman's ρ) of the first-order map with the measured one over 32 tensors" in shown
    assert "drifts most; by the gain out of domain of putting it back, its rank is" in shown
    assert previewed == []  # nothing is chosen
    best = press(at, "Choose the one that helps most")
    changes = measurements_of(mapped, run.id).table("changes")
    rows = changes[(changes["level"] == "tensor") & (changes["over"] == "out of domain")]
    most = rows.loc[rows["change"].idxmax(), "name"]
    assert picked(best) == most and f"**{most}**".replace("_", r"\_").replace(".", r"\.") in words(best)
    assert len(previewed) == 1


def measurements_of(folder: Path, run_id: str) -> Any:
    return measurement_store.find_measurement_result(
        "put_back", Store(folder / "none", libraries=(folder / "runs",)), Benchmark.load(folder), run_id
    )


@pytest.mark.full
def test_a_click_on_a_map_opens_the_panel(open_app: Any, mapped: Path, previewed: list[Any]) -> None:
    run = runs(mapped)[tiny_library.NASTY]
    at = open_app("drift", mapped, drift_view=BACK, run=run.id, runs=run.id)
    for key, fields in (("revert_map", ("in domain", TENSOR)), ("first_order_map", ("flags", TENSOR))):
        at = click(at, key, *fields)
        assert not at.exception
        assert picked(at) == TENSOR
    recipe, reference, _ = previewed[-1]
    assert reference.id == run.id
    (step,) = recipe.edits
    assert (step.key, step.params.when, [rule.text() for rule in step.params.rules]) == (
        "manual",
        "after",
        [f"t.{TENSOR}=0"],
    )
    at.segmented_control(key=address.ACTION_SCOPE).set_value("its block").run()
    assert [rule.text() for rule in previewed[-1][0].edits[0].params.rules] == ["b1=0"]
    at.segmented_control(key=address.ACTION).set_value("scale").run()
    at.slider(key=address.FACTOR).set_value(1.5).run()
    assert [rule.text() for rule in previewed[-1][0].edits[0].params.rules] == ["b1=1.5"]
    query = link(at, "Make it a run")
    chain = parse_chain(query["chain"])
    assert chain.edits[0][0] == "manual" and chain.merge[0] == "task_arithmetic"
    at.segmented_control(key=address.ACTION).set_value("give it back to an expert").run()
    at.selectbox(key=address.ACTION_EXPERT).set_value("flags").run()
    given = previewed[-1][0].edits[0].params
    assert (given.when, [rule.experts for rule in given.rules][1:]) == ("before", [("flags",)])
    assert "This cannot be a factor of the merged weights" in words(at)
    assert not at.exception and not at.error


def test_an_edited_link_still_opens(open_app: Any, mapped: Path, previewed: list[Any]) -> None:
    run = runs(mapped)[tiny_library.NASTY]
    at = open_app(
        "drift",
        mapped,
        drift_view=BACK,
        run=run.id,
        runs=run.id,
        tensor="<b>no</b>",
        action="x",
        action_scope="y",
        action_expert="z",
    )
    assert not at.exception
    assert previewed == []


def test_the_link_carries_the_recipe_that_is_previewed(open_app: Any, mapped: Path, previewed: list[Any]) -> None:
    run, benchmark = runs(mapped)[tiny_library.NASTY], Benchmark.load(mapped)
    at = open_app("drift", mapped, drift_view=BACK, run=run.id, runs=run.id, tensor=TENSOR)
    query = link(at, "Make it a run")
    assert address.MODELS not in query and address.EXPERTS not in query  # all of the benchmark's
    draft = parse_draft(query[address.CHAIN], benchmark.pretrained, list(benchmark.experts))
    carried, shown = open_inputs(draft.recipe(benchmark.experts)), open_inputs(previewed[-1][0])
    assert carried.run_id() == shown.run_id() != run.id


def test_the_view_without_measurements(open_app: Any, library: Path, asked: list[tuple[str, str]]) -> None:
    at = open_app("drift", library, drift_view=BACK)
    assert not at.exception and charts(at) == 0
    for key in ("measure_put_back", "measure_first_order"):
        at.button(key=key).click().run()
    assert [key for key, _ in asked] == ["put_back", "first_order"]


def test_a_map_that_is_being_measured_is_drawn(
    open_app: Any, library: Path, mapped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as it is: the rest of the tensors are left blank."""
    run = runs(library)[tiny_library.NASTY]
    whole = measurements_of(mapped, runs(mapped)[tiny_library.NASTY].id)
    changes = whole.table("changes")
    some = changes[changes["name"].isin(list(dict.fromkeys(changes["name"]))[:7])]
    partial = MeasurementResult({"changes": some}, whole.notes)
    monkeypatch.setattr(measurement_store, "find_partial", lambda *given: partial)
    job = Job("a1", "Putting back", "running", kind="put_back", subject=run.id)
    monkeypatch.setattr(SessionQueue, "list_jobs", lambda self: [job])
    at = open_app("drift", library, drift_view=BACK, runs=run.id, run=run.id)
    assert not at.exception
    assert charts(at) == 1
    assert "So far, 6 tensors" in words(at)


@pytest.mark.full
@pytest.mark.parametrize(("page", "query"), [("masks", {}), ("conflicts", {"conflicts_view": "sign agreement"})])
def test_doors_lead_to_the_same_tensor(
    open_app: Any, mapped: Path, previewed: list[Any], page: str, query: dict[str, str]
) -> None:
    run = runs(mapped)[tiny_library.NASTY]
    at = open_app(page, mapped, run=run.id, tensor=TENSOR, **query)
    assert not at.exception
    drift = link(at, "Drift")
    assert (drift["tensor"], drift["runs"], drift["drift_view"]) == (TENSOR, run.id, "layer by layer")
    back = open_app("drift", mapped, **drift)
    assert not back.exception
    assert picked(back) == TENSOR
    assert link(back, "Masks")["tensor"] == link(back, "Conflicts")["tensor"] == TENSOR
    shown = next(button for button in back.button if button.label == "Does putting it back help?").click().run()
    assert not shown.exception
    assert shown.segmented_control(key="drift_view").value == BACK and picked(shown) == TENSOR


@pytest.mark.full
def test_masks_and_compare_have_the_panel(open_app: Any, mapped: Path, previewed: list[Any]) -> None:
    library = runs(mapped)
    run = library[tiny_library.NASTY]
    at = open_app("masks", mapped, run=run.id, tensor=TENSOR)
    assert not at.exception and len(previewed) == 1
    other = next(one for one in library.values() if one.recipe is not None and one.id != run.id)
    at = open_app(
        "compare",
        mapped,
        run=run.id,
        run_b=other.id,
        compare_view="charts",
        chart="saliency of one tensor",
        tensor=TENSOR,
    )
    assert not at.exception
    assert previewed[-1][1].id == run.id
    at.segmented_control(key="changed_side").set_value("B").run()
    assert previewed[-1][1].id == other.id
    steps = [step.key for step in previewed[-1][0].edits]
    assert steps == ["lwptv", "manual"]


def test_tables_of_what_was_put_back_use_the_words_of_other_pages() -> None:
    import pandas as pd

    rows = [
        {"level": "kind", "name": name, "over": over, "group": AVERAGE, "change": -0.01, "low": -0.02, "high": 0.0}
        for name in ("shift", "norm_scale")
        for over in ("in domain", "out of domain")
    ]
    table = restored_tensors.change_averages(pd.DataFrame(rows), ("kind",))
    assert list(table["name"]) == ["all bias tensors", "all norm scale tensors"]
    assert set(table["In domain"]) == {"\N{MINUS SIGN}1.0 (\N{MINUS SIGN}2.0 to +0.0)"}
