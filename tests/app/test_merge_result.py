"""The result on Merge stands beside its references: pretrained, the experts, and the best stored run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compared_runs import CAT, EMR, LWPTV, TIES
from page_harness import named, press, runs, words
from streamlit.testing.v1 import AppTest

from app.page_text import format_signed
from app.reading import page_data, score_tables
from app.views.merge.merge_result import NO_OTHER_RUN
from merging.study.runs.run import Run
from viz.figure_text import percent

SUM_CHAIN, PRUNED_CHAIN = "ties", "lwptv;task_arithmetic"  # of stored runs
FEW = {"chain": "exemplars:per_task=4;lot", "experts": "circles,digits,flags"}


def rows(at: AppTest) -> dict[str, list[str]]:
    """{name of the row: its cells}."""
    table = at.table[0].value
    return {str(name): list(cells) for name, *cells in table.itertuples(index=False, name=None)}


def result(open_app: Any, folder: Path, **query: str) -> AppTest:
    """The page after a press of Run on a merge that is stored."""
    at = press(open_app("merge", folder, **query), "Run")
    assert not at.exception and not at.error and "is done" in words(at)
    return at


def test_a_result_stands_beside_references_and_the_best_stored_run(open_app: Any, compared: Path) -> None:
    at = result(open_app, compared, chain="ties")
    stored, known = page_data.stored_runs(), runs(compared)
    others = [known[title] for title in known if known[title].kind == "merge" and title not in (TIES, EMR)]
    others = [run for run in others if set(run.experts) == set(known[TIES].experts)]
    best = max(others, key=lambda run: page_data.summary(run, stored).h_score)
    cells = rows(at)
    assert list(cells)[:4] == ["**This run**", "Pretrained", "Individual experts", "Trained on all tasks"]
    (name,) = list(cells)[4:]
    assert name.startswith("Best stored run: ") and best.title[:10] in name.replace("\\", "")
    assert cells[name][2] == percent(page_data.summary(best, stored).h_score)
    table = score_tables.averages_table([known[TIES]], stored).set_index("run")
    for key, row in (("pretrained", cells["Pretrained"]), (known[TIES].id, cells["**This run**"])):
        inside, low, high = (percent(table.loc[key, field]) for field in ("in_domain", "in_low", "in_high"))
        assert row[0].replace("\u00a0", " ") == f"{inside} ({low} to {high})"
    assert f"highest H-score of {len(others)} stored runs that merge the same experts" in words(at)
    link = next(link for link in at.get("page_link") if link.proto.label == "Compare with the best")
    assert f"run_b={best.id}" in link.proto.query_string


@pytest.mark.full
def test_references_are_of_the_merged_experts(open_app: Any, compared: Path) -> None:
    whole, few = (rows(result(open_app, compared, **query)) for query in ({"chain": "ties"}, FEW))
    assert whole["Pretrained"][0] != few["Pretrained"][0]
    assert list(few) == ["**This run**", "Pretrained", "Individual experts", "Trained on all tasks"]


@pytest.mark.full
def test_no_other_run_and_no_reference_are_said(open_app: Any, compared: Path, tmp_path: Path) -> None:
    assert NO_OTHER_RUN in words(result(open_app, compared, **FEW))
    folder = tmp_path / "bare"
    shutil.copytree(compared, folder)
    for title, run in runs(folder).items():
        if run.kind != "merge" or title in (CAT, LWPTV):
            shutil.rmtree(folder / "runs" / run.id)
    at = result(open_app, folder, **FEW)
    assert list(rows(at)) == ["**This run**"]
    assert "Pretrained and Individual experts are not stored for these models and this benchmark." in words(at)


def test_a_merge_with_one_model_per_task_is_held_against_single_models(open_app: Any, compared: Path) -> None:
    at = result(open_app, compared, chain="emr")
    assert "One model per task" in words(at)
    (best,) = [name for name in rows(at) if name.startswith("Best stored run")]
    assert EMR not in best


def test_references_of_other_models_under_the_same_names_are_left_out(
    open_app: Any, compared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = page_data.references

    def other(*given: Any) -> dict[str, Run]:
        pretrained = known(*given)["pretrained"]
        return known(*given) | {"pretrained": replace(pretrained, inputs={"pretrained": "of another model"})}

    monkeypatch.setattr(page_data, "references", other)
    at = result(open_app, compared, chain="ties")
    assert "Pretrained" not in rows(at) and "Individual experts" in rows(at)
    assert "Pretrained is not stored for these models and this benchmark." in words(at)


@pytest.mark.full
def test_the_result_opens_the_run_and_has_its_small_map(open_app: Any, compared: Path) -> None:
    at = result(open_app, compared, chain=PRUNED_CHAIN)
    names = [chart.proto.id.rpartition("_chart_")[2] or chart.proto.id for chart in at.get("plotly_chart")]
    assert len(names) == 2 and names[0].endswith("small_network_map")  # the other one is the preview's
    assert '"text":"all ' not in at.get("plotly_chart")[0].proto.spec  # names of layers would overlap
    assert "Kept by the final mask, tensor by tensor." in words(at)
    run = runs(compared)[LWPTV].id
    press(at, "Open the run")
    assert not at.exception and at.title[0].value == "Run" and at.query_params["run"] in (run, [run])


@pytest.mark.full
def test_the_result_says_what_differs_from_the_last_run(open_app: Any, compared: Path) -> None:
    at = result(open_app, compared, chain=SUM_CHAIN)
    assert "Against the last run" not in words(at)
    at.session_state["_draft"] = None
    at.query_params["chain"] = PRUNED_CHAIN
    at.switch_page("screens/home.py").run()
    at.query_params["chain"] = PRUNED_CHAIN
    at.switch_page("screens/merge.py").run()
    press(at, "Run")
    known, stored = runs(compared), page_data.stored_runs()
    new, old = (page_data.summary(known[title], stored) for title in (LWPTV, TIES))
    changes = [100 * (getattr(new, name) - getattr(old, name)) for name in ("in_domain", "out_of_domain", "h_score")]
    stated = "in {}, out {}, H {} points".format(*map(format_signed, changes))
    kept = int((known[LWPTV].table("tensors")["kept_numel"] > 0).sum())
    (line,) = [one for one in words(at).replace("\\", "").split("\n") if one.startswith("Against the last run")]
    assert f"**{known[TIES].name}**: {stated} (n = {new.n_in:,} in, {new.n_out:,} out)" in line
    assert 0 < kept < 32 and line.endswith(f"it keeps {kept} of 32 tensors, the last one kept 32.")


def test_runs_of_other_experts_are_not_compared(open_app: Any, compared: Path) -> None:
    known = runs(compared)
    few = next(run for run in known.values() if run.kind == "merge" and len(run.experts) == 3)
    started = f"{known[TIES].id},{few.id}"
    at = open_app("merge", compared, started=started)
    assert not at.exception and "is done" in words(at) and "Against the last run" not in words(at)


@pytest.mark.full
def test_a_reload_shows_the_result_again_and_takes_no_run_in_hand(open_app: Any, compared: Path) -> None:
    at = result(open_app, compared, chain=SUM_CHAIN)
    ties, pruned = (runs(compared)[title].id for title in (TIES, LWPTV))
    assert named(at, "started") == [ties]
    again = open_app("merge", compared, started=f"{pruned},{ties}", chain=SUM_CHAIN)
    assert not again.exception and f"Run {pruned[:8]}." in words(again) and "Against the last run, **" in words(again)
    assert named(again, "started") == [pruned, ties] and "run" not in again.query_params
    gone = open_app("merge", compared, started="0123456789ab", chain=SUM_CHAIN)
    assert not gone.exception and not gone.error and "is done" not in words(gone)
