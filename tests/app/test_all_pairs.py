"""Scores: which of the chosen runs can be distinguished, against numpy on the stored answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_library
from compared_runs import EMR
from compared_runs import TIES_NAMED as TIES
from page_harness import runs, words

from app import page_text
from app.reading import page_data
from merging.base.files.atomic import MANIFEST, seal
from merging.base.files.tables import read_unpacked
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.paired_scores import newcombe_interval
from merging.images.benchmarks.resampled_tasks import DRAWS
from merging.recipes.presets import find_preset
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_answers import read_correctness
from merging.study.runs.run_store import Store

LWPTV, AVERAGED = "Task Arithmetic w/ LwPTV", "Weight Averaging"
REFERENCES = {"pretrained": "Pretrained", "individual": "Individual experts", "multitask": "Trained on all tasks"}


def named(library: Path) -> dict[str, Run]:
    """The stored runs of a library by the name that pages show."""
    return {run.name: run for run in runs(library).values()}


def said(at: Any) -> str:
    return words(at).replace("\\", "")


def open_scores(look: Any, library: Path, *titles: str, **query: str) -> Any:
    known = named(library)
    at = look("scores", library, runs=",".join(known[title].id for title in titles), **query)
    assert not at.exception
    return at


def pairs_table(at: Any) -> Any:
    (shown,) = (frame.value for frame in at.dataframe if "differs" in frame.value)
    return shown


def figure(at: Any) -> dict[str, Any]:
    (chart,) = (chart for chart in at.get("plotly_chart") if chart.proto.id.endswith("chart_score_letters"))
    return dict(json.loads(chart.proto.spec))


def mean_in_domain(library: Path, title: str) -> tuple[float, np.ndarray]:
    """A run's mean in domain, and the variance of it when each data set's images are sampled again."""
    right = read_correctness(named(library)[title], Benchmark.load(library))
    assert right is not None
    return float(np.mean([right[task].mean() for task in tiny.EXPERTS])), np.array([right[t] for t in tiny.EXPERTS])


def test_two_runs_are_one_pair_with_the_numbers_of_their_answers(look: Any, library: Path) -> None:
    at = open_scores(look, library, TIES, LWPTV)
    (row,) = pairs_table(at).to_dict("records")
    means = {title: mean_in_domain(library, title) for title in (TIES, LWPTV)}
    first, second = sorted(means, key=lambda title: -means[title][0])
    assert (row["first"], row["second"]) == (first, second)
    changes = means[first][1] - means[second][1]
    assert row["difference"] == pytest.approx(100 * changes.mean())
    assert row["n"] == changes.size == tiny.REPORTING * len(tiny.EXPERTS)
    drawn = np.random.default_rng(7).integers(changes.shape[1], size=(len(changes), DRAWS, changes.shape[1]))
    again = np.mean([of_task[images].mean(axis=1) for of_task, images in zip(changes, drawn, strict=True)], axis=0)
    low, high = np.percentile(100 * again, (2.5, 97.5))
    assert (row["low"], row["high"]) == pytest.approx((low, high), abs=0.1 * (high - low))
    assert row["family_low"] + row["family_high"] == pytest.approx(2 * row["difference"])
    assert row["differs"] == ("yes" if row["family_low"] > 0 else "no")
    text = said(at)
    assert f"**{first}** has the highest mean in domain of these runs, {100 * means[first][0]:.1f}%" in text
    assert f"Its difference to the next, **{second}**, is {row['difference']:+.1f} points" in text
    assert "hold for 1 pair at once with 95%;" in text and "reference models are compared" not in text


def test_more_runs_are_compared_with_the_references(look: Any, library: Path) -> None:
    at = open_scores(look, library, TIES, LWPTV, AVERAGED)
    shown, drawn = pairs_table(at), figure(at)
    names = {TIES, LWPTV, AVERAGED, *REFERENCES.values()}
    assert {*shown["first"], *shown["second"]} == names and len(shown) == 15
    assert {*drawn["layout"]["yaxis"]["ticktext"]} == names
    best = max((TIES, LWPTV, AVERAGED), key=lambda name: mean_in_domain(library, name)[0])
    of_best = shown[(shown["first"] == best) & shown["second"].isin([TIES, LWPTV, AVERAGED])]
    ties = (of_best["differs"] == "no").sum()
    verdicts = ("all others can be", "1 of the 2 others cannot be", "no other run can be")
    assert len(of_best) == 2 and f"; {verdicts[ties]} distinguished from it." in said(at)
    assert "The reference models are compared, too." in said(at)
    lines = [trace for trace in drawn["data"] if trace["name"].startswith("Letter")]
    tied = {frozenset(pair) for pair in shown.loc[shown["differs"] == "no", ["first", "second"]].to_numpy().tolist()}
    titles = {run.id: name for name, run in named(library).items()} | REFERENCES
    connected = {
        frozenset((titles[one[0]], titles[other[0]]))
        for line in lines
        for one in line["customdata"]
        for other in line["customdata"]
        if one != other
    }
    assert connected == tied


def test_the_score_is_in_the_address(look: Any, library: Path) -> None:
    at = open_scores(look, library, TIES, LWPTV, compared_score="H-score")
    assert at.selectbox(key="compared_score").value == "H-score"
    assert "has the highest H-score of these runs" in said(at)
    options = at.selectbox(key="compared_score").options
    assert options[:3] == ["Mean in domain", "Mean out of domain", "H-score"]
    right = {name: read_correctness(named(library)[name], Benchmark.load(library)) or {} for name in (TIES, LWPTV)}
    tasks = [*tiny.EXPERTS, *tiny.OUTSIDE]
    place, task = max(enumerate(tasks), key=lambda one: abs((right[TIES][one[1]] - right[LWPTV][one[1]]).mean()))
    at = open_scores(look, library, TIES, LWPTV, compared_score=options[3 + place])
    (row,) = pairs_table(at).to_dict("records")
    difference = (right[row["first"]][task] - right[row["second"]][task]).mean()
    assert row["n"] == tiny.REPORTING and row["difference"] == pytest.approx(100 * difference) and difference > 0
    ours, theirs = (right[row[name]][task] == 1 for name in ("first", "second"))
    low, high = newcombe_interval(
        *(int(each.sum()) for each in (ours & theirs, ours & ~theirs, ~ours & theirs, ~ours & ~theirs))
    )
    assert (row["low"], row["high"]) == (pytest.approx(100 * low), pytest.approx(100 * high))
    assert f"{options[3 + place]} (%)" in figure(at)["layout"]["xaxis"]["title"]["text"]


@pytest.mark.full
def test_a_run_with_one_model_per_task_counts_their_mean_out_of_domain(look: Any, compared: Path) -> None:
    at = open_scores(look, compared, TIES, EMR, compared_score="Mean out of domain")
    (row,) = pairs_table(at).to_dict("records")
    means = {}
    for title, name in ((TIES, TIES), (EMR, f"{EMR} ‡")):
        scores = named(compared)[title].scores
        assert scores is not None
        rows = scores[(scores["split"] == "reporting") & scores["task"].isin(tiny.OUTSIDE)]
        means[name] = rows["accuracy"].mean()
    assert {row["first"], row["second"]} == set(means)
    assert row["difference"] == pytest.approx(100 * (means[row["first"]] - means[row["second"]]))


@pytest.mark.full
def test_runs_without_answers_are_named_and_left_out(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = named(library)
    monkeypatch.setattr("app.views.scores.all_pairs.has_answers", lambda run, benchmark: run.name not in without)
    ids = ",".join(known[title].id for title in (TIES, LWPTV, AVERAGED))
    without: tuple[str, ...] = (AVERAGED,)
    at = open_app("scores", library, runs=ids)
    assert len(pairs_table(at)) == 1
    assert [info.value.replace("\\", "") for info in at.info] == [
        f"Left out of this comparison, because the answers to each image are not stored: {AVERAGED}."
    ]
    without = (AVERAGED, TIES)
    at = open_app("scores", library, runs=ids)
    assert not at.exception and not any("differs" in frame.value for frame in at.dataframe)
    assert f"{TIES} and {AVERAGED}." in at.info[0].value.replace("\\", "")


@pytest.mark.full
def test_only_data_sets_of_all_models_are_compared(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = named(library)
    ids, lacking, shared = ",".join(known[title].id for title in (TIES, LWPTV)), tiny.OUTSIDE[0], page_data.correctness

    def read(run: Run) -> Any:
        right = dict(shared(run) or {})
        if run.name == LWPTV:
            right = {} if empty else {task: right[task] for task in right if task != lacking}
        return right

    monkeypatch.setattr("app.reading.page_data.correctness", read)
    empty = False
    at = open_app("scores", library, runs=ids, compared_score="Mean out of domain")
    assert not at.exception
    options = at.selectbox(key="compared_score").options
    assert len(options) == 3 + len(tiny.EXPERTS) + len(tiny.OUTSIDE) - 1
    assert set(pairs_table(at)["n"]) == {tiny.REPORTING * (len(tiny.OUTSIDE) - 1)}
    empty = True
    at = open_app("scores", library, runs=ids)
    assert not at.exception and not any("differs" in frame.value for frame in at.dataframe)
    assert any("no data set that all of these runs answer" in info.value for info in at.info)


def test_equal_names_are_distinguished_by_ids_and_stay_text(open_app: Any, library: Path, tmp_path: Path) -> None:
    benchmark = Benchmark.load(library)
    recipe = replace(find_preset("iso_c").recipe(benchmark.pretrained, benchmark.experts), title=tiny_library.NASTY)
    run = execute(recipe, Store(tmp_path / "store", libraries=()), benchmark=benchmark, keep_model=False)
    other = runs(library)[tiny_library.NASTY]
    at = open_app("scores", library, runs=f"{run.id},{other.id}")
    (row,) = pairs_table(at).to_dict("records")
    names = {f"{tiny_library.NASTY} ({one.id[:6]})" for one in (run, other)}
    assert {row["first"], row["second"]} == names
    assert page_text.safe_text(row["first"], 60) in words(at)


@pytest.mark.full
def test_a_benchmark_without_tasks_out_of_domain_offers_no_such_average(
    open_app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "OUTSIDE", ())
    folder = tiny_library.write(tmp_path / "inside", ("ties", "weight_averaging"))
    at = open_app("scores", folder, runs=",".join(named(folder)[title].id for title in (TIES, AVERAGED)))
    options = at.selectbox(key="compared_score").options
    assert not at.exception and options[0] == "Mean in domain" and len(options) == 1 + len(tiny.EXPERTS)
    assert len(pairs_table(at)) == 1


@pytest.mark.full
def test_damaged_answers_are_reported(open_app: Any, tmp_path: Path) -> None:
    folder = tiny_library.write(tmp_path / "damaged", ("ties", "weight_averaging"))
    run = named(folder)[TIES]
    (packed,) = (run.path / "tables").glob("answers.*")
    text = read_unpacked(packed).decode()
    packed.unlink()
    (run.path / "tables" / "answers.csv").write_text(text.replace("eN", "eM"))
    (run.path / MANIFEST).unlink()
    seal(run.path)
    at = open_app("scores", folder, runs=f"{run.id},{named(folder)[AVERAGED].id}")
    (error,) = at.error
    assert not at.exception and error.value.startswith("Stored answers are damaged")
    assert "in_low" in at.dataframe[0].value  # averages of stored scores stay
