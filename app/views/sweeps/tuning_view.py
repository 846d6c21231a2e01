"""One tuning: its progress, its charts as points arrive, the best of each search, and the chosen point."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial

import streamlit as st

from app import page_text, permissions
from app.permissions import requires
from app.reading import page_data
from app.session import click_errors, polled_pickers, selection, view_state
from app.session.click_errors import guarded_fragment
from app.views.sweeps import chosen_point, tuning_data
from app.views.sweeps.tuning_data import OBJECTIVE_TITLES, SEARCH_NAMES, TuningResults
from app.widgets import chart_view, page_parts
from app.widgets.jobs import sweep_status
from merging.base import settings
from merging.base.errors import MergingError
from merging.base.modes import VisitorAction
from merging.study.runs.run import Run
from merging.study.tuning.searches import GRID, TUNE
from merging.study.tuning.space import write_values
from merging.study.tuning.tuning import Tuning, delete_tuning
from merging.tasks.queue.job_records import Job
from viz.figure_text import clean_text

POLL_SECONDS = 2.0  # seconds between updates while points are being computed
OPTIMISM_NOTE = (
    "Each search chooses its best point on the choosing half, so its score there is too high; the reporting half has "
    "the score on other images. All searches have the same number of points."
)
SMALL_GRID_NOTE = "The grid is smaller: it has every combination of the choices."
HARMONIC_NOTE = "Of several objectives, the best point is that with the highest harmonic mean."
IMPORTANCE_NOTE = (
    "By PED-ANOVA (Watanabe et al., 2023): how much the values of the best tenth of all trials differ from those of "
    "all."
)


def draw_tuning(tuning: Tuning, stored_runs: Sequence[Run]) -> None:
    """Draw everything about a tuning, again every two seconds while points are computed."""
    job = tuning_data.tuning_job(tuning)
    is_live = job is not None and job.is_live
    guarded_fragment(_draw_tuning_now, run_every=POLL_SECONDS if is_live else None)(tuning, stored_runs)


def _draw_tuning_now(tuning: Tuning, stored_runs: Sequence[Run]) -> None:
    job = tuning_data.tuning_job(tuning)
    try:
        results = tuning_data.read_results(tuning, job is not None and job.is_live)
    except MergingError as error:
        st.error(page_text.safe_text(error, 500), icon=":material/error:")
        _draw_manage(tuning)
        return
    trace = results.trace
    sweep_status.draw_progress(
        trace.computed, trace.total, trace.complete, job, "point",
        partial(page_data.job_queue().tune, tuning.id, tuning_data.tuning_title(tuning)),
        lambda: _draw_manage(tuning), "tuning",
    )  # fmt: skip
    if results.trials.empty:
        st.info("No point is computed yet. The first one appears as soon as it is.")
        return
    point = view_state.picked_point(list(results.by_point), results.best_point)
    _draw_best(results)
    _draw_charts(results, point)
    _draw_chosen(results, point, stored_runs, job)
    _draw_table(results)


def _draw_best(results: TuningResults) -> None:
    """Draw the best of each search on both halves."""
    st.header("How good is the best on other images?", anchor=False)
    best, number = results.best, st.column_config.NumberColumn
    shares = ("chosen", "value", "low", "high", "gap", "gap_low", "gap_high")
    rows = best.assign(
        search=best["search"].map(SEARCH_NAMES), objective=best["objective"].map(OBJECTIVE_TITLES),
        **{name: (100 * best[name]).round(1) for name in shares},
    ).drop(columns="point")  # fmt: skip
    columns = {
        "search": "Search", "trials": "Trials", "trial": "Best trial", "objective": "Score",
        "chosen": number("Choosing half (%)"), "value": number("Reporting half (%)"), "low": "Low", "high": "High",
        "gap": number("Too optimistic by"), "gap_low": "Gap: low", "gap_high": "Gap: high",
    }  # fmt: skip
    page_parts.draw_table(rows, "The best of each search", columns)
    counts, notes = results.trace.count_trials(), [OPTIMISM_NOTE]
    if results.trace.total and counts.get(GRID, 0) < counts[TUNE]:
        notes.append(SMALL_GRID_NOTE)
    if len(results.trace.tuning.objectives) > 1:
        notes.append(HARMONIC_NOTE)
    st.caption(" ".join(notes))


def _draw_charts(results: TuningResults, point: str) -> None:
    tuning, name = results.trace.tuning, results.score_name
    shared = {"selected": point, "note": results.note, "sources": ()}

    def draw(key: str, table: object, **options: object) -> None:
        chart_view.draw_chart(
            key, table, name=f"{key}_{tuning.id}", on_click=lambda: _choose_clicked_point(key), **shared | options
        )  # type: ignore[arg-type]

    draw("tune_history", results.trials, title=name)
    if len(tuning.objectives) > 1:
        renamed = dict(zip(tuning.objectives, "xyz", strict=False))
        draw(
            "tune_front",
            results.trials.rename(columns=renamed),
            titles=[OBJECTIVE_TITLES[one] for one in tuning.objectives],
        )
    chart_view.draw_chart(
        "tune_importances", results.importances, name=f"tune_importances_{tuning.id}", note=results.note,
        caption=IMPORTANCE_NOTE, sources=(),
    )  # fmt: skip
    draw("tune_slices", results.dimensions, title=name)
    draw("tune_parallel", results.dimensions, title=name)


def _draw_chosen(results: TuningResults, point: str, stored_runs: Sequence[Run], job: Job | None) -> None:
    """Draw the picker of points, the scores and values of the chosen one, and its run, or a button that computes it."""
    key = polled_pickers.picker_key(f"chosen_trial_{results.trace.tuning.id}", point)
    with st.container(border=True, key="chosen"):
        st.selectbox(
            selection.PICK_HINT.format("a point"), list(results.by_point), key=key,
            format_func=partial(tuning_data.trial_label, results), on_change=view_state.pick_point_from, args=(key,),
        )  # fmt: skip
        if point == results.best_point:
            st.caption(f"The best point of the tuning{'' if results.trace.complete else ' so far'}.")
        else:
            st.button("Show the best point", icon=":material/star:", type="tertiary", key="show_best",
                      on_click=view_state.pick_point, args=("",))  # fmt: skip
        trial = results.by_point[point]
        st.code(clean_text(write_values(trial.values), 400), language=None, wrap_lines=True)
        if trial.planned is not None:
            chosen_point.draw_run(trial.planned, stored_runs)


def _draw_table(results: TuningResults) -> None:
    with st.expander("Every trial as a table", icon=":material/table:"):
        objectives = list(results.trace.tuning.objectives)
        rows = results.trials[["search", "trial", *objectives, "on_front", "values", "run"]]
        rows = rows.assign(search=rows["search"].map(SEARCH_NAMES),
                           **{name: (100 * rows[name]).round(2) for name in objectives})  # fmt: skip
        names = {name: f"{OBJECTIVE_TITLES[name]} (%)" for name in objectives}
        columns = {"search": "Search", "trial": "Trial", "on_front": "On the front", "values": "Values", "run": "Run"}
        page_parts.draw_table(rows, "Every trial", columns | names, "auto")


def _draw_manage(tuning: Tuning) -> None:
    """Draw a popover that deletes and downloads the tuning."""
    with st.popover("Manage", icon=":material/more_horiz:", type="tertiary"):
        if permissions.is_allowed(VisitorAction.DELETE):
            st.button("Delete", icon=":material/delete:", on_click=_delete, args=(tuning,), key="tuning_delete")
        st.download_button("Tuning as YAML", tuning.to_yaml, f"{tuning.id}.yaml", "text/yaml", on_click="ignore")
        words = shlex.join(["tune", "--stored", tuning.id, *settings.store_arguments()])
        st.caption("On a command line:")
        st.code(f"mergescope {words}", language="sh", wrap_lines=True)


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _delete(tuning: Tuning) -> None:
    job = tuning_data.tuning_job(tuning)
    if job is not None and job.is_live:
        page_data.job_queue().cancel(job.id)
    delete_tuning(page_data.store(), tuning.id)
    view_state.pick_sweep("")


def _choose_clicked_point(key: str) -> None:
    if mark := chart_view.read_clicked_mark(key):
        view_state.pick_point(mark["point"])
