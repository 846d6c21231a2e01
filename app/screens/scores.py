"""Scores: what merging cost, in and out of domain, run by run and task by task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import text
from app.reading import data, names, samples, score_tables
from app.session import address, pages, run_choice
from app.views.scores import ablations, experiment, imported_chart, plugin_matrix, stored_size, unknown_task
from app.widgets import chart, page, paper_line, run_picker
from merging.study.runs.run import Run
from viz.text import plural

if TYPE_CHECKING:
    import pandas as pd

RUNS, PLUGIN, ABLATIONS = "runs", "plug-in matrix", "ablations"
DEFAULT = 6  # runs shown at first
OFFERS = "Scores compares runs that were evaluated on the same version of the benchmark."
RUN, KIND, PER_TASK_KIND, COUNT, RUN_ID = 175, 80, 145, 52, 103  # px
PERCENT = {  # title and px
    "in_domain": ("In-domain", 76),
    "in_low": ("In: low", 62),
    "in_high": ("In: high", 66),
    "out_of_domain": ("Out-of-domain", 104),
    "out_low": ("Out: low", 70),
    "out_high": ("Out: high", 72),
    "h_score": ("H-score", 66),
    "normalized": ("Norm.", 60),
}


def numbers(table: pd.DataFrame) -> None:
    """The sortable table of the scatter."""
    st.header("Every average, with its interval", anchor=False)
    rows = table[["label", "kind", *PERCENT, "n_in", "n_out", "run"]].copy()
    rows[list(PERCENT)] *= 100
    kind = PER_TASK_KIND if rows["kind"].isin(["per_task", "modules"]).any() else KIND
    rows["kind"] = rows["kind"].replace({"per_task": f"{text.ONE_PER_TASK} ‡", "modules": f"{text.MODULE_PER_TASK} ‡"})
    rows["label"] += text.look_up(table["adapts_on_test"], {True: " †"}, "")
    number = st.column_config.NumberColumn
    st.dataframe(
        rows,
        hide_index=True,
        column_config={
            "label": st.column_config.TextColumn("Run", width=RUN, pinned=True),
            "kind": st.column_config.TextColumn("Kind", width=kind),
            **{key: number(title, width=width, format="%.1f%%") for key, (title, width) in PERCENT.items()},
            "n_in": number("n, in", width=COUNT, format="localized", help="Images of all in-domain data sets."),
            "n_out": number("n, out", width=COUNT, format="localized", help="Images of all out-of-domain data sets."),
            "run": st.column_config.TextColumn("Id", width=RUN_ID),
        },
        alt="Averages of every run with intervals",
    )
    st.caption(f"{score_tables.means()}{samples.sentence()} Norm. is accuracy relative to each task's own expert.")


def recipes(runs: list[Run]) -> None:
    """A sentence about each run, and its recipe."""
    st.header("The recipes", anchor=False)
    for run in runs:
        with st.container(border=True, gap="xsmall"):
            run_picker.about(run)
            with st.container(horizontal=True, vertical_alignment="center"):
                run_picker.recipe_buttons(run, run.id)
                page.open_page(pages.MASKS, "Masks", "grid_on", run=run.id)


def compare(groups: list[list[Run]], stored: list[Run]) -> None:
    """Charts and tables of the first group of runs, which merge the same experts; the others are listed."""
    runs = groups[0]
    for sentence in text.marks(runs):
        page.caution(sentence, st.info)
    averages = score_tables.averages(runs, stored)
    sentence = score_tables.averages_in_words(averages)
    paper = paper_line.of("scores/runs")
    chart.chart("id_ood_scatter", averages, name="scores_in_out", description=f"{sentence} {paper}", of=runs)
    paper_line.show(paper, runs)
    run_picker.other_sets(groups)
    chart.ask("task_accuracy")
    relative = st.toggle("Relative to each task's own expert", key=address.RELATIVE_ACCURACY, bind=address.BIND)
    colors = [run.id for run in runs]
    accuracies = score_tables.accuracies(runs, stored)
    chart.chart(
        "task_accuracy",
        accuracies,
        name="scores_tasks",
        headed=True,
        normalized=relative,
        runs=colors,
        description=score_tables.accuracies_in_words(accuracies),
        of=runs,
    )
    unknown_task.section(runs)
    numbers(averages)
    stored_size.section(runs)
    recipes(runs)


def choose(scored: list[Run], stored: list[Run]) -> None:
    """The picker of runs, and their scores."""
    by_id = {run.id: run for run in scored}
    chosen, missing = run_choice.picked_runs(list(by_id), list(by_id)[:DEFAULT])
    if missing:
        run_picker.missing_runs(missing, offers=OFFERS)
    run_picker.draw_several(by_id, chosen, "compare")
    if chosen:
        groups = run_picker.one_set([by_id[run_id] for run_id in chosen])
        experts = text.safe_text(names.of_experts(groups[0][0].experts), 120)
        st.markdown(
            f"You see **{plural(len(groups[0]), 'merge')}** of {experts}; beside them the reference models, all "
            f"measured by this program on the {samples.of_each()}."
        )
        if len(chosen) == 2:
            page.open_page(pages.COMPARE, "Compare these two", "compare", run=chosen[0], run_b=chosen[1])
        compare(groups, stored)
    elif not missing:
        st.info("Choose at least one run above.")


page.heading("Scores", "What merging gained in domain, what it cost out of domain, and which tasks lost accuracy.")
stored = data.stored()
experiment.link()
if asked := imported_chart.linked(stored):
    imported_chart.view(asked)
elif scored := data.scored_runs(stored):
    show = st.segmented_control(
        "View", (RUNS, PLUGIN, ABLATIONS), default=RUNS, key=address.SCORES_VIEW, bind=address.BIND, required=True
    )
    if show == PLUGIN:
        plugin_matrix.view(scored, stored)
    elif show == ABLATIONS:
        ablations.view(scored, stored)
    else:
        choose(scored, stored)
    if others := sum(run.has_scores for run in data.runs(stored)) - len(scored):
        st.caption(f"{plural(others, 'run')} left out: evaluated on another version of the benchmark.")
else:
    sentence = "No run has been evaluated yet. Merge some experts and their accuracy appears here."
    page.empty(sentence, "Merge experts", pages.MERGE)
imported_chart.section(stored, asked)
