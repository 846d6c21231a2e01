"""Scores: accuracy in and out of domain, run by run and task by task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import expert_names, page_data, samples, score_tables
from app.session import address, pages, run_choice, selection
from app.views.scores import (
    ablation_views,
    all_pairs,
    claim_counts,
    experiment_link,
    imported_chart,
    plugin_matrix,
    robustness_view,
    stored_size,
    training_view,
    unknown_task,
)
from app.widgets import chart_view, page_parts, paper_line, run_picker
from merging.study.runs.run import Run
from viz.figure_text import plural

if TYPE_CHECKING:
    import pandas as pd

RUNS, PLUGIN, ABLATIONS, CORRUPTED, TRAINING = "runs", "plug-in matrix", "ablations", "corrupted images", "training"
VIEWS = (RUNS, PLUGIN, ABLATIONS, CORRUPTED, TRAINING)
MAX_FIRST_RUNS = 6  # runs shown at first if none is chosen
WHAT_IS_OFFERED = "Scores compares runs that were evaluated on the same version of the benchmark."
RUN_WIDTH, KIND_WIDTH, PER_TASK_KIND_WIDTH, COUNT_WIDTH, RUN_ID_WIDTH = 175, 80, 145, 52, 103  # of the columns, px
PERCENT_COLUMNS = {  # title and px
    "in_domain": ("In-domain", 76),
    "in_low": ("In: low", 62),
    "in_high": ("In: high", 66),
    "out_of_domain": ("Out-of-domain", 104),
    "out_low": ("Out: low", 70),
    "out_high": ("Out: high", 72),
    "h_score": ("H-score", 66),
    "normalized": ("Norm.", 60),
}
CORRUPTED_COLUMNS = {
    "corrupted": ("Corrupted", 84),
    "corrupted_low": ("Corr.: low", 76),
    "corrupted_high": ("Corr.: high", 80),
    "relative_loss": ("Rel. loss", 76),
    "loss_low": ("Loss: low", 74),
    "loss_high": ("Loss: high", 78),
}


def draw_numbers(table: pd.DataFrame) -> None:
    """The sortable table of the scatter."""
    st.header("Every average, with its interval", anchor=False)
    corrupted = robustness_view.find_losses(list(table["run"]))
    percent = PERCENT_COLUMNS | (CORRUPTED_COLUMNS if len(corrupted) else {})
    rows = table.join(corrupted, on="run")[["label", "kind", *percent, "n_in", "n_out", "run"]].copy()
    rows[list(percent)] *= 100
    kind = PER_TASK_KIND_WIDTH if rows["kind"].isin(["per_task", "task_modules"]).any() else KIND_WIDTH
    rows["kind"] = rows["kind"].replace(
        {"per_task": f"{page_text.ONE_PER_TASK} ‡", "task_modules": f"{page_text.MODULE_PER_TASK} ‡"}
    )
    rows["label"] += page_text.look_up_names(table["adapts_on_test"], {True: " †"}, "")
    number = st.column_config.NumberColumn
    columns = {
        "label": st.column_config.TextColumn("Run", width=RUN_WIDTH, pinned=True),
        "kind": st.column_config.TextColumn("Kind", width=kind),
        **{key: number(title, width=width, format="%.1f%%") for key, (title, width) in percent.items()},
        "n_in": number("n, in", width=COUNT_WIDTH, format="localized", help="Images of all in-domain data sets."),
        "n_out": number("n, out", width=COUNT_WIDTH, format="localized", help="Images of all out-of-domain data sets."),
        "run": st.column_config.TextColumn("Id", width=RUN_ID_WIDTH),
    }
    page_parts.draw_table(rows, "Averages of every run with intervals", columns, "auto")
    st.caption(
        f"{score_tables.describe_means()}{samples.sampling_sentence()} Norm. is accuracy relative to each task's "
        f"own expert.{robustness_view.LOSSES_NOTE if len(corrupted) else ''}"
    )


def draw_recipes(runs: list[Run]) -> None:
    """A sentence about each run, and its recipe."""
    st.header("The recipes", anchor=False)
    for run in runs:
        with st.container(border=True, gap="xsmall"):
            run_picker.draw_run(run)
            with st.container(horizontal=True, vertical_alignment="center"):
                run_picker.draw_recipe_button(run, run.id)
                page_parts.draw_page_link(pages.MASKS, "Masks", "grid_on", run=run.id)


def draw_runs(groups: list[list[Run]], stored: list[Run]) -> None:
    """Charts and tables of the first group of runs, which merge the same experts; a list of the other groups."""
    runs = groups[0]
    for sentence in page_text.marks_in_words(runs):
        page_parts.draw_caution(sentence, st.info)
    averages = score_tables.averages_table(runs, stored)
    sentence = score_tables.describe_averages(averages)
    claims = paper_line.claims_in_words("scores/runs")
    chart_view.draw_chart(
        "id_ood_scatter", averages, name="scores_in_out", description=sentence, claims=claims, sources=runs
    )
    run_picker.draw_other_groups(groups)
    chart_view.draw_question("task_accuracy")
    relative = st.toggle("Relative to each task's own expert", key=address.RELATIVE_ACCURACY, bind=address.BIND)
    ids = [run.id for run in runs]
    accuracies = score_tables.accuracies_table(runs, stored)
    chart_view.draw_chart(
        "task_accuracy",
        accuracies,
        name="scores_tasks",
        question_drawn=True,  # above the toggle
        normalized=relative,
        runs=ids,  # also those without a row, so that colors stay
        selected=selection.mark_value(selection.EXPERT),
        description=score_tables.describe_accuracies(accuracies),
        sources=runs,
    )
    unknown_task.draw_unknown_task(runs)
    draw_numbers(averages)
    all_pairs.draw_all_pairs(runs, averages, stored)
    stored_size.draw_stored_size(runs)
    draw_recipes(runs)


def pick_runs(scored: list[Run], stored: list[Run]) -> None:
    """The picker of runs, and their scores."""
    by_id = {run.id: run for run in scored}
    chosen, missing = run_choice.resolve_runs(list(by_id), list(by_id)[:MAX_FIRST_RUNS])
    if missing:
        run_picker.draw_missing_runs(missing, offers=WHAT_IS_OFFERED)
    run_picker.draw_runs_picker(by_id, chosen, "compare")
    if chosen:
        groups = run_picker.group_by_models([by_id[run_id] for run_id in chosen])
        experts = page_text.safe_text(expert_names.experts_in_words(groups[0][0].experts), 120)
        st.markdown(
            f"You see **{plural(len(groups[0]), 'merge')}** of {experts}, and the reference models, all "
            f"measured by this program on the {samples.scored_part_of_each()}."
        )
        if len(chosen) == 2:
            page_parts.draw_page_link(pages.COMPARE, "Compare these two", "compare", run=chosen[0], run_b=chosen[1])
        draw_runs(groups, stored)
    elif not missing:
        st.info("Choose at least one run above.")


page_parts.draw_heading(
    "Scores", "What merging gained in domain, what it cost out of domain, and which tasks lost accuracy."
)
stored = page_data.stored_runs()
counts_slot = st.container()  # filled last: comparing all claims takes seconds the first time
experiment_link.draw_link()
if imported_runs := imported_chart.find_linked_runs(stored):
    imported_chart.draw_linked(imported_runs)
elif scored := page_data.scored_runs(stored):
    view = page_parts.pick_button("View", VIEWS[: None if training_view.has_tables() else -1], address.SCORES_VIEW)
    if view == PLUGIN:
        plugin_matrix.draw_view(scored, stored)
    elif view == ABLATIONS:
        ablation_views.draw_view(scored, stored)
    elif view == CORRUPTED:
        robustness_view.draw_view(scored)
    elif view == TRAINING:
        training_view.draw_view()
    else:
        pick_runs(scored, stored)
    if other_count := sum(run.has_scores for run in page_data.list_merges(stored)) - len(scored):
        st.caption(f"{plural(other_count, 'run')} left out: evaluated on another version of the benchmark.")
else:
    sentence = "No run has been evaluated yet. Merge some experts and their accuracy appears here."
    page_parts.draw_empty(sentence, "Merge experts", pages.MERGE)
imported_chart.draw_section(stored, imported_runs)
with counts_slot:
    claim_counts.draw_counts()
