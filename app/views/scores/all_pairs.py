"""The section of Scores on the runs that can be distinguished: every pair of them, on the same images."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data, samples
from app.session import address
from app.widgets import chart_view, page_parts
from merging.images.benchmarks import paired_scores
from merging.images.benchmarks.answers import Correctness
from merging.images.benchmarks.paired_scores import H_SCORE, IN_DOMAIN, OUT_OF_DOMAIN, AllPairs
from merging.images.benchmarks.resampled_tasks import DRAWS, SEED
from merging.study.runs.run import Run
from merging.study.runs.run_answers import has_answers, join_experts
from viz.figure_text import percent, plural

if TYPE_CHECKING:
    import pandas as pd

Parts = Mapping[str, Run]  # the run of a model under an empty key; of "individual experts", each task's expert
AVERAGES = {"Mean in domain": IN_DOMAIN, "Mean out of domain": OUT_OF_DOMAIN, "H-score": H_SCORE}
LEFT_OUT = "Left out of this comparison, because the answers to each image are not stored: {}."
NOTHING_SHARED = "There is no data set that all of these runs answer, so they are not compared."
REFERENCES_NOTE = " The reference models are compared, too."
MARKS_NOTE = " What is marked † or ‡ is explained at the top."
NOTE = (
    "On the {part}. Paired: all answer the same {n:,} images, which are drawn again {draws:,} times within each data "
    "set (seed {seed}), the same ones for all. The family-wise intervals hold for {pairs} at once with 95%; two "
    "runs are distinguished if theirs excludes zero. The pairwise interval is that of one pair alone, for a data set "
    "Newcombe's.{more}"
)
POINTS_COLUMNS = {
    "difference": "Difference", "low": "Pair: low", "high": "Pair: high", "family_low": "Family: low",
    "family_high": "Family: high",
}  # fmt: skip


def draw_all_pairs(runs: Sequence[Run], averages: pd.DataFrame, stored: Sequence[Run]) -> None:
    """Draw the figure and the table of all pairs of two or more runs and, unless there are two, the reference models.

    ``averages`` has a row for each run and each reference, as ``score_tables.averages_table``.
    """
    if len(runs) < 2:
        return
    chart_view.draw_question("score_letters")
    models = _find_models(runs, averages, stored)
    if missing := [page_text.safe_text(run.name, 60) for run in runs if run.id not in models]:
        st.info(LEFT_OUT.format(page_text.join_words(missing)))
    compared_runs = [run for run in runs if run.id in models]
    if len(compared_runs) < 2:
        return
    if len(compared_runs) == 2:
        models = {run.id: models[run.id] for run in compared_runs}
    score, over = _pick_score(runs[0], _list_shared_tasks(models))
    if not over:
        return
    ids = tuple((name, *(run.id for run in parts.values())) for name, parts in models.items())
    comparison, n = _compare_models(ids, tuple(runs[0].experts), over, page_data.current_digest(), models)
    rows = averages.drop(columns="n_in").merge(comparison.scores, left_on="run", right_on="model")
    rows = rows.assign(letters=rows["run"].map(comparison.letters), n=n)
    names = _name_models(rows)
    sentence = _describe_best(
        comparison, [run.id for run in compared_runs], names, score if over in AVERAGES.values() else ""
    )
    sentence += MARKS_NOTE if page_text.marks_in_words(compared_runs) else ""
    more = REFERENCES_NOTE if len(models) > len(compared_runs) else ""
    note = NOTE.format(
        part=samples.scored_part(), n=n, draws=DRAWS, seed=SEED, pairs=plural(len(comparison.pairs), "pair"), more=more
    )
    st.markdown(sentence)
    chart_view.draw_chart(
        "score_letters", rows, name="scores_pairs", question_drawn=True, score=score, sources=list(runs),
        description=f"{sentence} {note}",
    )  # fmt: skip
    _draw_pairs(comparison.pairs, names, n)
    st.caption(note)


def _find_models(runs: Sequence[Run], averages: pd.DataFrame, stored: Sequence[Run]) -> dict[str, Parts]:
    """The runs that answer for each row of ``averages``, for the rows whose answers are stored."""
    references = page_data.references(runs[0].benchmark, stored)
    models: dict[str, Parts] = {
        kind: {"": references[kind]} if kind != "individual" else {task: references[task] for task in runs[0].experts}
        for kind in averages["run"]
        if kind in ("pretrained", "individual", "multitask")
    } | {run.id: {"": run} for run in runs}
    benchmark = page_data.benchmark()
    return {name: parts for name, parts in models.items() if all(has_answers(run, benchmark) for run in parts.values())}


def _list_shared_tasks(models: Mapping[str, Parts]) -> list[str]:
    """The tasks with images that all models answer."""
    first, *others = (_read_correctness(parts) for parts in models.values())
    return [task for task in first if len(first[task]) and all(task in other for other in others)]


def _pick_score(run: Run, shared: Collection[str]) -> tuple[str, str]:
    """A picker of the score by which runs are compared: its name, and what ``compare_all`` calls it.

    Scores are offered for ``shared`` tasks. Both are empty if there are none.
    """
    table = page_data.scores(run)
    assert table is not None  # only evaluated runs are on the page
    titles = {title: task for title, task in zip(table["title"], table["task"], strict=True) if task in shared}
    groups = paired_scores.group_tasks(titles.values(), run.experts)
    groups[H_SCORE] = groups[IN_DOMAIN] and groups[OUT_OF_DOMAIN]
    scores = {title: over for title, over in AVERAGES.items() if groups[over]} | titles
    if not scores:
        st.info(NOTHING_SHARED)
        return "", ""
    over = page_parts.pick_label("Score", scores, address.COMPARED_SCORE, width=260)
    return next(title for title, key in scores.items() if key == over), over


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner="Comparing all pairs …")
def _compare_models(
    ids: tuple[tuple[str, ...], ...], experts: tuple[str, ...], over: str, digest: str, _models: Mapping[str, Parts]
) -> tuple[AllPairs, int]:
    """All pairs of the models, and the number of images of the score."""
    correctness = {name: _read_correctness(parts) for name, parts in _models.items()}
    sizes = {task: len(next(iter(correctness.values()))[task]) for task in _list_shared_tasks(_models)}
    groups = paired_scores.group_tasks(sizes, experts) | {H_SCORE: list(sizes)}
    return paired_scores.compare_all(correctness, experts, over), sum(sizes[task] for task in groups.get(over, [over]))


def _read_correctness(parts: Parts) -> Correctness:
    by_task = {task: right for task, run in parts.items() if (right := page_data.correctness(run)) is not None}
    return by_task[""] if "" in by_task else dict(join_experts(by_task))


def _name_models(rows: pd.DataFrame) -> dict[str, str]:
    """The label of each model by its run, with † and ‡; equal labels are distinguished by the runs' ids."""
    names = rows["label"] + page_text.look_up_names(rows["adapts_on_test"], {True: " †"}, "")
    names += page_text.look_up_names(rows["kind"], {"per_task": " ‡", "task_modules": " ‡"}, "")
    names = names.where(~names.duplicated(keep=False), names + " (" + rows["run"].str[:6] + ")")
    return dict(zip(rows["run"], names, strict=True))


def _describe_best(comparison: AllPairs, run_ids: Collection[str], names: Mapping[str, str], score: str) -> str:
    """A sentence on the best of the runs ``run_ids``, how many cannot be distinguished from it, and the next one."""
    pairs = comparison.pairs[comparison.pairs["first"].isin(run_ids) & comparison.pairs["second"].isin(run_ids)]
    best = paired_scores.tell_from_best(
        replace(comparison, order=tuple(name for name in comparison.order if name in run_ids), pairs=pairs)
    )
    first, second = (f"**{page_text.safe_text(names[name], 60)}**" for name in (best.best, best.second))
    value = percent(comparison.scores.set_index("model")["value"][best.best])
    ties, others = len(best.ties), len(run_ids) - 1
    if others == 1:
        verdict = f"the other run {'cannot' if ties else 'can'} be distinguished from it"
    elif ties == others:
        verdict = "no other run can be distinguished from it"
    elif ties:
        verdict = f"{ties:,} of the {others:,} others cannot be distinguished from it"
    else:
        verdict = "all others can be distinguished from it"
    points, low, high = (page_text.format_signed(100 * end) for end in (best.difference, best.low, best.high))
    score = score[0].lower() + score[1:] if score.startswith("Mean") else score or "accuracy"
    return (
        f"{first} has the highest {score} of these runs, {value}; {verdict}. Its difference to the next, {second}, is "
        f"{points} points (family-wise 95% interval {low} to {high})."
    )


def _draw_pairs(pairs: pd.DataFrame, names: Mapping[str, str], n: int) -> None:
    """The sortable table of all pairs, differences in percentage points."""
    table = pairs.assign(first=pairs["first"].map(names), second=pairs["second"].map(names), n=n)
    table[list(POINTS_COLUMNS)] *= 100
    table["differs"] = pairs["differs"].map({True: "yes", False: "no"})
    number = st.column_config.NumberColumn
    columns = {
        "first": st.column_config.TextColumn("Higher", pinned=True),
        "second": "Lower",
        **{key: number(title, format="%+.1f", help="Percentage points") for key, title in POINTS_COLUMNS.items()},
        "differs": "Distinguished",
        "n": number("n", format="localized"),
    }
    page_parts.draw_table(table, "Differences of all pairs with intervals", columns, "auto")
