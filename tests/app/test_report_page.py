"""From "Add to report" under a chart to the Report page and its file."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import tiny_library
import viz_tables
from page_harness import charts, find_buttons, words
from streamlit.testing.v1 import AppTest

from app import page_text
from app.reading import report_sources
from app.session import report_draft
from app.session.report_draft import ReportDraft
from merging.recipes.recipe import Recipe
from merging.study.runs.run_store import Store
from viz.report import render
from viz.report.report_contents import ReportView, Source

ADD, IN = "Add to report", "In the report"


def button(at: AppTest, label: str, place: int = 0) -> Any:
    return find_buttons(at, label)[place]


def draft(at: AppTest) -> ReportDraft:
    found: ReportDraft = at.session_state["_report_keeper"].read_draft()
    return found


def go(at: AppTest, page: str) -> AppTest:
    return at.switch_page(f"screens/{page}.py").run()


def with_three(open_app: Any, library: Any) -> AppTest:
    """A report of both charts of averages and one of masks."""
    at = open_app("scores", library)
    button(at, ADD).click().run()
    button(at, ADD).click().run()
    go(at, "masks")
    button(at, ADD).click().run()
    return go(at, "report")


# The page


def test_an_empty_report_says_where_charts_are(open_app: Any, library: Any) -> None:
    at = open_app("report", library)
    assert not at.exception
    assert "The report is empty" in words(at)
    assert {"Scores", "Masks", "Drift"} <= {link.value for link in at.page_link}
    assert not at.get("download_button")


@pytest.mark.full
def test_views_are_kept_moved_titled_and_removed(open_app: Any, library: Any) -> None:
    at = with_three(open_app, library)
    assert not at.exception and not at.error
    keys = ["id_ood_scatter", "task_accuracy", "saliency_matrix"]
    assert [kept.view.key for kept in draft(at).views] == keys
    button(at, "Up", 2).click().run()
    button(at, "Down", 0).click().run()
    assert [kept.view.key for kept in draft(at).views] == ["saliency_matrix", "id_ood_scatter", "task_accuracy"]
    assert button(at, "Up", 0).disabled and button(at, "Down", 2).disabled
    at.text_input(key="report_title").set_value("What I saw").run()
    at.text_area(key="report_introduction").set_value("First.\n\nSecond.").run()
    number = draft(at).views[1].number
    at.text_input(key=f"view_title_{number}").set_value("In and out").run()
    at.text_area(key=f"view_note_{number}").set_value("Look at <b>this</b>.").run()
    go(at, "masks")
    go(at, "report")
    assert at.text_input(key="report_title").value == "What I saw"
    assert at.text_input(key=f"view_title_{number}").value == "In and out"
    assert at.text_area(key=f"view_note_{number}").value == "Look at <b>this</b>."
    assert "**2. In and out**" in words(at)
    button(at, "Remove", 0).click().run()
    assert [kept.view.key for kept in draft(at).views] == ["id_ood_scatter", "task_accuracy"]
    made = draft(at).report(())
    assert (made.title, made.views[0].note) == ("What I saw", "Look at <b>this</b>.")


@pytest.mark.full
def test_a_view_is_looked_at_on_the_page(open_app: Any, library: Any) -> None:
    at = open_app("scores", library)
    button(at, ADD).click().run()
    go(at, "report")
    number = draft(at).views[0].number
    assert charts(at) == 0
    at.toggle(key=f"show_{number}").set_value(True).run()
    assert not at.exception and charts(at) == 1


@pytest.mark.full
def test_the_button_knows_the_very_view(open_app: Any, library: Any) -> None:
    at = open_app("masks", library)
    assert [found.label for found in find_buttons(at, ADD, IN)] == [ADD, ADD]
    assert charts(at) == 2
    button(at, ADD).click().run()
    assert [found.label for found in find_buttons(at, ADD, IN)] == [IN, ADD]
    at.slider(key="ratio").set_value(0.31).run()
    assert [found.label for found in find_buttons(at, ADD, IN)] == [ADD, ADD]
    button(at, ADD).click().run()
    assert len(draft(at).views) == 2
    button(at, IN).click().run()
    assert [kept.view.place.count("ratio=0.31") for kept in draft(at).views] == [0]


@pytest.mark.full
def test_what_belongs_to_a_run_is_added_by_one_click(open_app: Any, library: Any) -> None:
    at = open_app("report", library)
    runs = {run.title: run for run in Store(libraries=(library / "runs",)).list_runs()}
    pruned, plain = (runs[title] for title in ("Task Arithmetic w/ LwPTV", "Ties"))
    for run in (pruned, plain):
        at.selectbox(key="starter_run").set_value(run.id).run()
        for _ in range(2):  # what is there already is not added again
            at.button(key="starter_add").click().run()
    assert not at.exception and not at.error
    scores = ["id_ood_scatter", "task_accuracy"]
    views = [kept.view for kept in draft(at).views]
    assert [view.key for view in views] == [*scores, "saliency_matrix", "kept_share", *scores, "kept_share"]
    assert all(view.caption and view.place and view.sources for view in views)
    assert set(draft(at).sources) == {pruned.id, plain.id}
    go(at, "masks")
    at.selectbox(key="picker").set_value(pruned.id).run()
    assert [found.label for found in find_buttons(at, ADD, IN)] == [IN, IN]  # as the page shows them


@pytest.mark.full
def test_what_a_view_tells(open_app: Any, library: Any) -> None:
    at = with_three(open_app, library)
    scatter, _, masks = (kept.view for kept in draft(at).views)
    runs = {run.id: run for run in Store(libraries=(library / "runs",)).list_runs()}
    assert set(scatter.sources) == {run_id for run_id, run in runs.items() if run.kind == "merge"}
    assert "n = " in scatter.caption and "95% intervals" in scatter.caption
    assert masks.place.startswith("masks?") and f"run={masks.sources[0]}" in masks.place and len(masks.sources) == 1
    assert masks.caption.startswith("At prune ratio 0.7, as in this run:") and "*" not in masks.caption
    source = draft(at).sources[masks.sources[0]]
    facts = dict(source.facts)
    run = runs[source.id]
    assert facts["Seed"] == "none, because nothing in it is random"
    digests = dict(source.digests)
    assert digests["Benchmark, sha-256"] == run.benchmark
    assert digests["pretrained, sha-256"] == run.inputs["pretrained"]
    assert "torch " in facts["Versions"] and "mergescope " in facts["Versions"]
    assert str(library) not in source.recipe and "pretrained: pretrained.safetensors" in source.recipe


@pytest.mark.full
def test_the_file_holds_what_was_chosen(open_app: Any, library: Any) -> None:
    at = with_three(open_app, library)
    made, private = draft(at).report(report_sources.program_versions()), report_sources.private_words()
    document = render(made, private)
    assert document == render(made, private)
    assert document.count("<figure>") == 3
    assert str(library) not in document and "<img" not in document.split("<script")[0]
    assert tiny_library.NASTY in {source.title for source in made.sources}


def test_what_is_private_keeps_the_file_back(open_app: Any, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    at = with_three(open_app, library)
    assert not at.error
    number = draft(at).views[0].number
    at.text_area(key=f"view_note_{number}").set_value(f"Made in {library}.").run()
    assert "note of view 1" in at.error[0].value and "folder on this machine" in at.error[0].value
    assert at.get("download_button")[0].proto.disabled
    monkeypatch.setattr("socket.gethostname", lambda: "fisher")
    at.text_area(key=f"view_note_{number}").set_value("Fisher merging is left out.").run()
    assert "fisher" in at.error[0].value
    at.button(key="report_allow").click().run()
    assert not at.error
    assert not at.get("download_button")[0].proto.disabled


# The draft


def view(number: int = 0) -> ReportView:
    return ReportView("saliency_tensor", viz_tables.saliency_tensor(2, number), {"fit": (float("nan"), 1.0)})


def source(name: str) -> Source:
    return Source(name, "Run", name, ())


def test_the_very_view_is_found_again() -> None:
    draft = ReportDraft()
    draft.add(view(), 10, [])
    assert draft.find("saliency_tensor", viz_tables.saliency_tensor(2, 0), {"fit": (float("nan"), 1.0)})
    assert not draft.find("saliency_tensor", viz_tables.saliency_tensor(2, 1), {"fit": (float("nan"), 1.0)})
    assert not draft.find("saliency_tensor", viz_tables.saliency_tensor(2, 0), {})
    frame = pd.DataFrame({"a": [1]})
    draft.add(ReportView("kept_share", frame, {"rank": frame}), 10, [])
    assert draft.find("kept_share", frame.copy(), {"rank": frame.copy()})


def test_a_report_is_bounded_in_words() -> None:
    draft = ReportDraft()
    assert not draft.refusal(10)
    assert "4.5 MB in the report; at most 4 MB" in draft.refusal(4_500_000)
    for number in range(8):
        draft.add(view(number), 3_900_000, [])
    assert "the report would take 31.2 MB" in draft.refusal(1)
    for number in range(report_draft.MAX_VIEWS - 8):
        draft.add(view(number), 0, [])
    assert draft.full and "holds 30 views" in draft.refusal(1)


def test_sources_leave_with_their_last_view() -> None:
    draft = ReportDraft()
    draft.add(ReportView("a", pd.DataFrame(), sources=("x", "y")), 1, [source("x"), source("y")])
    draft.add(ReportView("b", pd.DataFrame(), sources=("y",)), 1, [source("y")])
    assert [found.id for found in draft.report(()).sources] == ["x", "y"]
    draft.remove(draft.views[0].number)
    assert [found.id for found in draft.report(()).sources] == ["y"]
    draft.move(99, 1)  # a click that came twice
    draft.set_text(99, title="x")


# Words and recipes


@pytest.mark.parametrize(
    ("markdown", "plain"),
    [
        (page_text.safe_text("a *b* [c](d) :red[e] $f$"), "a *b* [c](d) :red[e] $f$"),
        ("**10 of 32** kept, *these*, `x`", "10 of 32 kept, these, x"),
        (":gray-badge[:material/inventory_2: precomputed on CPU] :gray-badge[:material/casino: seed 3]",
         "(precomputed on CPU) (seed 3)"),
        ("at [0, 1]: half", "at [0, 1]: half"),
    ],
)  # fmt: skip
def test_markdown_becomes_plain_text(markdown: str, plain: str) -> None:
    assert page_text.plain_text(markdown) == plain


def test_files_in_recipes_lose_their_folders(tmp_path: Any) -> None:
    recipe = Recipe.build(
        "ties", {}, [], str(tmp_path / "base.safetensors"),
        {"a": "/home/ann/a.pt", "b": "bundled:flags", "c": r"C:\models\c.pt", "d": "folder/model/"},
    )  # fmt: skip
    found = Recipe.from_yaml(report_sources.portable_recipe(recipe.to_yaml()))
    assert found.pretrained == "base.safetensors"
    assert dict(found.experts) == {"a": "a.pt", "b": "bundled:flags", "c": "c.pt", "d": "model"}
    assert found.merge == recipe.merge
    assert report_sources.portable_recipe("") == "" == report_sources.portable_recipe("{")
    unknown = "merge: of_tomorrow\npretrained: /x/y.pt\n"
    assert "y.pt" in report_sources.portable_recipe(unknown) and "/x" not in report_sources.portable_recipe(unknown)
