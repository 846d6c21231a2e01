"""A chart of the imported scores of runs of one kind of network, on the tasks that their files name.

``run.network`` is the name of a network other than CLIP, and empty for CLIP.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import page_text
from app.reading import page_data
from app.reading.runs import imported_runs
from app.session import address, pages, run_choice
from app.widgets import chart_view, page_parts
from merging.study.runs.run import Run
from viz.figure_text import plural

KIND_KEY, RUNS_KEY, METRICS_KEY = "given_kind", "given_runs", "given_metrics"
MAX_RUNS, MAX_METRICS = 6, 4  # that are shown before the visitor chooses others
CAPTION = (
    "Open diamonds are scores from files and other programs; no average of measured scores includes them. Proportions "
    "with a known n have Wilson 95% intervals, other scores have none. Each metric has its own scale."
)


def find_linked_runs(stored_runs: Sequence[Run]) -> list[Run]:
    """The runs that the address names, if all are of networks other than CLIP; else none."""
    ids = [run_id for run_id in st.query_params.get(address.RUNS, "").split(",") if run_id]
    other_network_runs = {run.id: run for run in page_data.list_merges(stored_runs) if run.network}
    return [other_network_runs[run_id] for run_id in ids] if set(ids) <= other_network_runs.keys() else []


def draw_linked(runs: Sequence[Run]) -> None:
    """Draw the linked runs without scores, and buttons that upload scores or show other runs."""
    unscored = [run for run in runs if imported_runs.find_scores(run.id) is None]
    for run in unscored:
        st.info(
            f"**{page_text.safe_text(run.name, 60)}**, of {page_text.safe_text(run.network, 60)}: "
            f"{imported_runs.NO_SCORES}"
        )
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if unscored:
            page_parts.draw_page_link(
                pages.MODELS, "Upload a file of scores", "upload", models_view="runs", selected_runs=unscored[0].id
            )
        st.button("Show other runs", on_click=run_choice.clear_link)


def draw_section(stored_runs: Sequence[Run], linked_runs: Sequence[Run] = ()) -> None:
    """Draw the chart of runs with imported scores, those of ``linked_runs`` preselected; no chart if no run has any."""
    runs = imported_runs.runs_with_scores(page_data.list_merges(stored_runs))
    if not runs:
        _draw_unscored_count(stored_runs)
        return
    kinds = list(
        dict.fromkeys(imported_runs.network_kind(run) for run in [*imported_runs.runs_with_scores(linked_runs), *runs])
    )
    chart_view.draw_question("given_scores")
    chosen_kind = kinds[0]
    if len(kinds) > 1:
        chosen_kind = st.segmented_control(
            "Runs of", kinds, default=kinds[0], key=KIND_KEY, required=True, format_func=page_text.safe_text
        )
    by_id = {run.id: run for run in runs if imported_runs.network_kind(run) == chosen_kind}
    preselected = [run.id for run in linked_runs if run.id in by_id]
    key = f"{RUNS_KEY}_{chosen_kind}_{'_'.join(preselected)}"
    chosen_ids = st.multiselect(
        "Runs with imported scores", list(by_id), default=preselected or list(by_id)[:MAX_RUNS], key=key,
        format_func=lambda run_id: page_text.run_label(by_id[run_id]), placeholder="Choose runs to compare",
    )  # fmt: skip
    draw_runs([by_id[run_id] for run_id in chosen_ids], list(by_id))
    _draw_unscored_count(stored_runs)


def draw_runs(runs: Sequence[Run], colors: Sequence[str]) -> None:
    """Draw the chart of runs of one kind of network; ``colors`` are the ids whose order fixes the colors."""
    if not runs:
        st.info("Choose at least one run above.")
        return
    table = imported_runs.imported_table(runs)
    metrics = list(dict.fromkeys(table["metric"]))
    if len(metrics) > MAX_METRICS:
        shown_metrics = st.multiselect("Metrics", metrics, default=metrics[:MAX_METRICS], key=METRICS_KEY)
        table = table[table["metric"].isin(shown_metrics)]
    sources = page_text.join_words([f"**{page_text.safe_text(name, 90)}**" for name in dict.fromkeys(table["origin"])])
    chart_view.draw_chart(
        "given_scores", table, name="scores_given", question_drawn=True, runs=list(colors), sources=list(runs),
        caption=f"From {sources}. {CAPTION}",
    )  # fmt: skip


def _draw_unscored_count(stored_runs: Sequence[Run]) -> None:
    """Draw a caption with the number of runs of other networks that have no scores."""
    other_network_runs = [run for run in page_data.list_merges(stored_runs) if run.network]
    scored_ids = {run.id for run in imported_runs.runs_with_scores(other_network_runs)}
    if count := len(other_network_runs) - len(scored_ids):
        networks = page_text.join_words(
            sorted({page_text.safe_text(run.network, 60) for run in other_network_runs if run.id not in scored_ids})
        )
        verb = "has" if count == 1 else "have"
        st.caption(
            f"{plural(count, 'run')} of {networks} {verb} no scores. Upload a file of scores on Models & runs, or "
            "start the app with MERGESCOPE_EVALUATOR."
        )
