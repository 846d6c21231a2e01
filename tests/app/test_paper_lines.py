"""Paper and measurement: each claim has a view and a fact, each view with a figure has a claim, and pages show them."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from page_harness import press, words

from app.reading.papers import paper_facts, tried_settings
from app.views.scores import claim_counts
from app.widgets import paper_line
from merging.base import settings
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.papers.claims import CLAIMS
from merging.recipes.recipe import Recipe
from merging.study.paper_facts.comparison import (
    COUNTED,
    PAIRED_IMAGES,
    Comparison,
    Verdict,
    compare_pairs,
    judge,
)
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.sweep_target import EXPERTS
from merging.tasks.context import Context

APP = Path(paper_line.__file__).resolve().parents[1]
SOURCES = {path: path.read_text("utf-8") for room in ("views", "screens") for path in (APP / room).rglob("*.py")}
ASKED = re.compile(r"(?:paper_line\.claims_in_words\(|describe_claims\(models,)\s*f?\"([^\"]+)\"")
FIGURE = re.compile(r"(?:LwPTV|LOT|DRM|CAT)(?:'s|,| \()? ?\(?(?:Figs?\.|Figures?|Tables?) ")
SWEEPS = "sweeps/"  # what a sweep varies comes behind it


def asked() -> set[str]:
    """The names by which views ask for their claims."""
    return {name for source in SOURCES.values() for name in ASKED.findall(source)}


def test_every_claim_has_a_view_and_every_view_a_claim() -> None:
    claimed = {view for claim in CLAIMS for view in claim.views}
    fixed = {name for name in asked() if not name.startswith(SWEEPS)}
    assert {view for view in claimed if not view.startswith(SWEEPS)} == fixed
    assert any(name.startswith(SWEEPS) for name in asked())
    assert len(fixed) > 15


def test_every_view_that_names_a_figure_asks_for_claims() -> None:
    naming = [path for path, source in SOURCES.items() if FIGURE.search(source)]
    assert len(naming) > 8
    assert [path.name for path in naming if "paper_line." not in SOURCES[path]] == []


def test_every_fact_exists_and_takes_the_arguments_of_its_claims() -> None:
    for claim in CLAIMS:
        if claim.fact in paper_facts.PAGE_FACTS:
            assert claim.arguments == {}
        else:
            inspect.signature(paper_facts.FACTS[claim.fact]).bind(**claim.arguments)
    assert set(paper_facts.FACTS) | set(paper_facts.PAGE_FACTS) == {claim.fact for claim in CLAIMS}


def claim(key: str) -> Any:
    return next(one for one in CLAIMS if one.key == key)


def test_a_line_has_both_sides_with_their_precision() -> None:
    ours = Comparison(first=67.92, second=67.94, difference=-0.02, low=-2.8, high=2.8, sample="n = 1,920 images, half")
    tried = tried_settings.tried_in_words(claim("lwptv_without_score"), Verdict.NOT_REPRODUCED)
    assert paper_line.claim_in_words(claim("lwptv_without_score"), ours).replace("\\", "").removesuffix(tried) == (
        "**Not reproduced here.** In-domain accuracy of Task Arithmetic with LwPTV: whole against without the saliency "
        "score. ◇ 72.8% against 51.9%, +20.9 (LwPTV, Table 8). ● Bundled library: 67.9% against 67.9%, +0.0 "
        "(95% interval of two samples −2.8 to +2.8; n = 1,920 images, half)."
    )


def test_a_line_says_what_is_read_off_counted_or_missing() -> None:
    swing = Comparison(
        first=39, second=18, difference=21, low=21, high=21, sample="571 vectors", unit="points", interval=COUNTED,
        texts=("29 to 68%", "41 to 59%"),
    )  # fmt: skip
    said = paper_line.claim_in_words(claim("drm_swing"), swing).replace("\\", "")
    assert said.startswith("**Same direction.**") and "0 to 100%" in said and "read off the figure" in said
    assert "Bundled library: 29 to 68% against 41 to 59%, +21.0 (counted in full; 571 vectors)." in said
    assert "● Here: 29 to 68%" in paper_line.claim_in_words(claim("drm_swing"), swing, paper_line.PAGE_ORIGIN).replace(
        "\\", ""
    )
    missing = paper_line.claim_in_words(claim("drm_swing"), None)
    assert missing.startswith("**Not measured here.**") and "● Not measured here" in missing.replace("\\", "")
    assert "without numbers" in paper_line.claim_in_words(claim("lot_depth"), None)


def test_what_is_not_shown_says_what_could_have_been() -> None:
    ours = Comparison(
        first=67.9, second=67.6, difference=0.3, low=-0.54, high=1.14, sample="n = 3,600 images, half",
        interval=PAIRED_IMAGES,
    )  # fmt: skip
    one = replace(claim("lwptv_without_score"), printed=("10.9", "10.5"))
    smaller = "A true difference of 1.2 points would be shown in 80% of samples like this (n = 3,600 images); "
    for in_words in (paper_line.line_in_words, paper_line.claim_in_words):
        assert f" {smaller}the paper's 0.4 is smaller." in in_words(one, ours).replace("\\", "")
        said = in_words(claim("lwptv_without_score"), ours).replace("\\", "")
        assert " A true difference of 1.2 points or more would be shown in 80% of samples like this." in said
    pairs = compare_pairs(np.array([1.0, 2.0, 4.0]), np.array([0.0, 2.0, 5.0]), "3 subsets, n = 480 images each", "")
    assert f"of {pairs.smallest_visible:.1f} or more would be shown" in paper_line.line_in_words(one, pairs).replace(
        "\\", ""
    )
    assert "would be shown" not in paper_line.line_in_words(one, replace(ours, low=0.1))
    assert "would be shown" not in paper_line.line_in_words(one, replace(ours, low=math.nan, high=math.nan))


@pytest.mark.full
def test_a_claim_that_is_not_shown_says_what_was_tried(open_app: Any) -> None:
    open_app("home", settings.BUNDLED_FOLDER)
    claims = {claim.key: claim for claim in CLAIMS}
    table = pd.read_csv(settings.BUNDLED_FOLDER / "gentle_claims.csv").query("setting not in ['stored', 'seed1']")
    shown = table[table["verdict"] == Verdict.SAME].groupby("claim").size()
    (most,) = shown.sort_values().index[-1:]
    tried = f"Of {table['setting'].nunique()} other settings of fine-tuning, tried on four tasks (Scores, training)"
    assert tried_settings.tried_in_words(claims[most], Verdict.OTHER).startswith(f" {tried}, {shown[most]} show it: ")
    (none, *_) = sorted(set(table["claim"]) - set(shown.index))
    assert tried_settings.tried_in_words(claims[none], Verdict.NOT_REPRODUCED) == f" {tried}, none shows it."
    assert tried_settings.tried_in_words(claims[none], Verdict.SAME) == ""
    assert tried_settings.tried_in_words(claims["lwptv_adamerging_layers"], Verdict.OTHER) == ""  # not tried


@pytest.mark.full
def test_what_the_stored_experts_show_too_is_not_credited_to_other_settings(open_app: Any) -> None:
    open_app("home", settings.BUNDLED_FOLDER)
    table = pd.read_csv(settings.BUNDLED_FOLDER / "gentle_claims.csv")
    stored = set(table.query("setting == 'stored' and verdict == @Verdict.SAME")["claim"])
    tried = {one.key: one for one in CLAIMS if one.key in set(table["claim"])}
    said = {key: tried_settings.tried_in_words(one, Verdict.NOT_REPRODUCED) for key, one in tried.items()}
    assert {key for key, text in said.items() if text.endswith("; the four stored experts show it, too.")} == stored
    assert {key for key, text in said.items() if "stored experts" in text} == stored
    assert "lot_consistency" in stored and len(stored) < len(tried)


def test_a_claim_is_one_line_with_a_mark_both_differences_and_the_interval() -> None:
    ours = Comparison(first=67.92, second=67.94, difference=-0.02, low=-2.8, high=2.8, sample="n = 1,920 images, half")
    said = paper_line.line_in_words(claim("lwptv_without_score"), ours).replace("\\", "")
    assert said == (
        "≈ **Not reproduced here** · In-domain accuracy of Task Arithmetic with LwPTV: whole against without the "
        "saliency score · ◇ +20.9 points ● +0.0 points (−2.8 to +2.8)"
    )
    missing = paper_line.line_in_words(claim("lot_depth"), None)
    assert missing.startswith("○ **Not measured here**") and missing.endswith("◇ more ● —")
    assert len(set(paper_line.VERDICT_MARKS.values())) == len(Verdict)


def test_several_claims_are_several_paragraphs_for_the_report() -> None:
    pairs = [(claim("drm_pruning"), None), (claim("drm_election"), None)]
    assert len(paper_line.compare_claims(pairs).split("\n\n")) == 3
    assert paper_line.compare_claims([]) == "" == paper_line.claims_in_words(f"sweeps/{EXPERTS}")


@pytest.mark.full
def test_the_training_view_marks_what_has_changed_and_shows_whole_claims(open_app: Any) -> None:
    table = pd.read_csv(settings.BUNDLED_FOLDER / "gentle_claims.csv")
    verdicts, low, high = (
        table.pivot(index="claim", columns="setting", values=name) for name in ("verdict", "change_low", "change_high")
    )
    changed, same = (low > 0) | (high < 0), verdicts == Verdict.SAME
    turned = same.drop(columns=["stored", "seed1"]).mask(same["stored"], False)
    at = open_app("scores", settings.BUNDLED_FOLDER, scores_view="training")
    assert not at.exception
    assert (
        f"Of {turned.to_numpy().sum()} turned claims in {turned.shape[1]} other settings, "
        f"{(turned & changed[turned.columns]).to_numpy().sum()} have a difference that has changed significantly"
    ) in words(at)
    (shown,) = (one.value for one in at.table if "the stored experts" in one.value)
    one = claim("lot_altered")
    assert f"{one.topic}: {one.first} against {one.second}" in set(shown.iloc[:, 0]) and len(shown) == len(verdicts)
    assert sum(shown[name].str.endswith("Δ").sum() for name in shown.columns[2:]) == changed.to_numpy().sum()


PAGES = [
    ("scores", {}, "with LwPTV against without"),
    ("scores", {"scores_view": "ablations"}, "without the saliency score"),
    ("masks", {}, "if masks were independent"),
    ("features", {"features_view": "saliency by layer kind"}, "in attention against in MLPs"),
    ("drift", {"drift_view": "exemplars"}, ""),  # not measured: no figure, so no line
    ("conflicts", {"conflicts_view": "joint space of DRM"}, "without renormalization against with it"),
    ("methods", {"method": "ties"}, "TATR against LOT"),
]


@pytest.mark.parametrize(("page", "query", "says"), PAGES)
def test_pages_show_their_lines(look: Any, library: Path, page: str, query: dict[str, str], says: str) -> None:
    at = look(page, library, **query)
    assert not at.exception
    said = words(at).replace("\\", "")
    assert ("Paper and measurement." in said) == bool(says)
    assert says in said


def test_the_heading_says_whose_numbers_they_are(look: Any, library: Path) -> None:
    assert "Measured here." in words(look("conflicts", library, conflicts_view="joint space of DRM"))
    said = words(look("masks", library))
    assert "Numbers of the benchmark " in said and "Measured here." not in said


def test_views_with_features_show_their_lines(look: Any, compared: Path) -> None:
    for query, says in (({}, "easier to tell apart"), ({"features_view": "distance to pretrained"}, "come closer")):
        at = look("features", compared, **query)
        assert not at.exception
        assert says in words(at)


@pytest.mark.full
@pytest.mark.parametrize(
    ("title", "says", "points"),
    [
        ("LOT Fig. 3b: scaling of LOT Merging", "scaling 1.5 against scaling 1", (1.5, 1.0)),
        ("DRM Fig. 7: density of DRM-H, DRM-V and TIES at scaling 1", "DRM-H against TIES-Merging", ()),
    ],
)
def test_sweeps_of_the_library_show_their_stored_points(
    open_app: Any, title: str, says: str, points: tuple[float, ...]
) -> None:
    from app.reading import page_data, sweeps

    at = open_app("sweeps", settings.BUNDLED_FOLDER)
    (sweep,) = (one for one in sweep_storage.list_sweeps(page_data.store()).values() if one.title == title)
    at = open_app("sweeps", settings.BUNDLED_FOLDER, sweep=sweep.id)
    assert not at.exception
    said = next(text for text in words(at).replace("\\", "").split("Paper and measurement.") if says in text)
    assert "Not measured" not in said and "n = 1,024 images, choosing half" in said
    averages = sweeps.sweep_results(sweep).averages.set_index("x")["in_domain"]
    if points:
        assert "● Bundled library: {:.1f}% against {:.1f}%".format(*(100 * averages[x] for x in points)) in said
    else:
        by_line = sweeps.sweep_results(sweep).averages.groupby("line")["in_domain"]
        spans = 100 * (by_line.max() - by_line.min())
        assert f"● Bundled library: {spans[0]:.1f} points against {spans[2]:.1f} points" in said


def folded(at: Any) -> list[str]:
    return [one.label for one in at.expander if " about the bundled library" in one.label and not one.proto.expanded]


@pytest.mark.full
def test_under_a_run_of_ones_own_the_librarys_lines_are_folded_and_say_whose_they_are(
    open_app: Any, tmp_path: Path
) -> None:
    models = Benchmark.load(settings.BUNDLED_FOLDER)
    recipe = Recipe.build("ties", {"density": 0.35}, ["lwptv"], models.pretrained, models.experts, "Mine")
    run = execute(recipe, Store(tmp_path / "store", libraries=()), keep_model=False, context=Context(device="cpu"))
    at = open_app("masks", settings.BUNDLED_FOLDER, run=run.id)
    assert not at.exception
    assert folded(at) == ["1 claim about the bundled library"] * 2
    assert "● Bundled library: " in words(at).replace("\\", "")
    library = next(
        one for one in Store(tmp_path / "none", libraries=(settings.LIBRARY_FOLDER,)).list_runs() if one.kind == "merge"
    )
    at = open_app("masks", settings.BUNDLED_FOLDER, run=library.id)
    assert not at.exception
    assert folded(at) == [] and "Paper and measurement." in words(at)
    assert "● Bundled library: " in words(at).replace("\\", "")


def test_on_the_bundled_benchmark_the_users_runs_and_sweeps_are_no_source(open_app: Any, tmp_path: Path) -> None:
    """A sweep of the user's goes before the library's in lists, and is not what lines call the bundled library."""
    store = Store(tmp_path / "store", libraries=(settings.LIBRARY_FOLDER,))
    (sweep,) = (one for one in sweep_storage.list_sweeps(store).values() if one.title.startswith("LOT Fig. 3b"))
    own = replace(sweep, axes=(replace(sweep.axes[0], values=(1.0, 1.5)),), title="Mine")
    sweep_storage.store_sweep(own, store)
    at = open_app("sweeps", settings.BUNDLED_FOLDER, sweep=own.id)
    assert not at.exception
    assert len(folded(at)) == 1 and "n = 1,024 images, choosing half" in words(at).replace("\\", "")
    assert not paper_facts.may_be_source(own) and paper_facts.may_be_source(sweep)


@pytest.mark.full
def test_claims_about_other_runs_than_the_shown_ones_are_folded(look: Any, library: Path) -> None:
    stored = {run.title: run.id for run in Store(libraries=(library / "runs",)).list_runs()}
    for title, count in (("Task Arithmetic w/ LwPTV", 2), ("Weight Averaging", 0)):
        at = look("scores", library, runs=stored[title])
        assert not at.exception and words(at).count("Paper and measurement.") == count  # under two charts
        lines = [one.label for one in at.expander if one.label[0] in paper_line.VERDICT_MARKS.values()]
        folded_lines = [
            line.label
            for box in at.expander
            if re.match(r"\d+ claims? about the benchmark", box.label) and box.label.startswith(f"{len(box.expander)} ")
            for line in box.expander
        ]
        open_lines = set(lines) - set(folded_lines)
        assert len(folded_lines) > 4 and len(open_lines) == count
        assert all("with LwPTV against without" in line for line in open_lines)


@pytest.mark.full
def test_scores_count_the_verdicts_on_all_claims_and_list_them(open_app: Any) -> None:
    at = open_app("scores", settings.BUNDLED_FOLDER)
    label = next(one.label for one in at.expander if "claims of papers" in one.label)
    compared = [(one, paper_facts.compare_claim(one)) for one in CLAIMS]
    verdicts = [judge(one.direction, ours) for one, ours in compared]
    for verdict, said in claim_counts.VERDICTS_IN_WORDS.items():
        assert f"{verdicts.count(verdict)} {said}" in label
    assert label.startswith(f"Of {len(CLAIMS)} claims") and verdicts.count(Verdict.SAME) > len(CLAIMS) / 2
    assert not any("Here" in one.value for one in at.table)  # comparing on the other team takes long
    at.session_state[claim_counts.KEY] = True
    at.run()
    shown = next(one.value for one in at.table if "Here" in one.value)
    assert len(shown) == len(CLAIMS) and shown["Here"].str.startswith("✓").sum() == verdicts.count(Verdict.SAME)


def test_a_line_travels_into_the_report(open_app: Any, library: Path) -> None:
    at = press(open_app("masks", library), "Add to report")
    assert not at.exception
    (kept,) = at.session_state["_report_keeper"].read_draft().views
    assert "Paper and measurement." in kept.view.caption
    assert "if masks were independent" in kept.view.caption
