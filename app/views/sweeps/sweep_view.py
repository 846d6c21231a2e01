"""One sweep: its progress, its charts as points arrive, and the chosen point."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from app import page_text, permissions
from app.permissions import requires
from app.reading import page_data, program_sweeps, sweeps
from app.reading.sweeps import SweepPoints, SweepResults
from app.session import address, click_errors, view_state
from app.session.click_errors import guarded_fragment
from app.views.sweeps import chosen_point, program_sweep
from app.views.sweeps.best_point import BestPoint, pick_best
from app.views.sweeps.sweep_form import CHOOSING, make_reporting_caution
from app.widgets import chart_view, page_parts, paper_line
from app.widgets.jobs import sweep_status
from merging.base import settings
from merging.base.modes import VisitorAction
from merging.study.runs.run import Run
from merging.study.sweeps import sweep_storage
from merging.study.sweeps import sweep_target as axes
from merging.study.sweeps.point_losses import explain_barriers, list_barriers
from merging.study.sweeps.sweep import PLANE, VALUES, Sweep
from merging.tasks.queue.job_records import Job
from viz.figure_text import clean_text
from viz.parts.sweep_panels import LOSSES

POLL_SECONDS = 2.0  # seconds between updates while points are being computed
# Label in links -> column.
SCORE_COLUMNS = {"H-score": "h_score", "in-domain": "in_domain", "out-of-domain": "out_of_domain"}
LOSS_COLUMNS = {name.lower(): column for column, name in LOSSES.items()}
BARRIERS_QUESTION = "Is there a barrier of the loss between two models?"
BARRIER_NOTE = (
    "The barrier is max over t of L(t) − (1 − t)·L(0) − t·L(1), over the computed points between two models (Frankle "
    "et al., 2020; Entezari et al., 2022): 0 if the loss nowhere rises above the straight line between its ends. L is "
    "the mean over tasks of the cross-entropy of the zero-shot heads. {}"
)
EXPERT_COUNT_CAUTION = (
    "In domain, a merge of some of the experts is evaluated only on the tasks of these, so averages at different "
    "numbers of experts are over different tasks. Tasks of experts that are left out are in neither average."
)


def draw_sweep(sweep: Sweep, stored_runs: Sequence[Run]) -> None:
    """Draw everything about a sweep, again every two seconds while points are computed."""
    job = sweeps.sweep_job(sweep)
    is_live = job is not None and job.is_live
    guarded_fragment(_draw_sweep_now, run_every=POLL_SECONDS if is_live else None)(sweep, stored_runs)


def _draw_sweep_now(sweep: Sweep, stored_runs: Sequence[Run]) -> None:
    job = sweeps.sweep_job(sweep)
    if network := program_sweeps.network_of_sweep(sweep):
        measured_results = program_sweep.choose_results(sweep)
        _draw_status(measured_results, job)
        program_sweep.draw_results(measured_results, network)
        return
    results = sweeps.sweep_results(sweep)
    _draw_status(results, job)
    if doubt_lines := [f"- {page_text.safe_text(line, 400)}" for line in sweeps.list_checkpoint_doubts(sweep)]:
        st.warning("**Check the models of this sweep:**\n\n" + "\n".join(doubt_lines), icon=":material/warning:")
    if sweep.split != CHOOSING:
        page_parts.draw_caution(make_reporting_caution())
    if results.averages.empty:
        st.info("No point is computed yet. The first one appears as soon as it is.")
        return
    best_point = pick_best(results, job is not None and job.is_live)
    point_name = view_state.picked_point(list(results.names), best_point.point_name)
    if len(sweep.axes) == 1:
        _draw_lines(results, best_point, point_name)
    else:
        _draw_map(results, best_point, point_name)
    if sweep.kind != VALUES:
        _draw_barriers(results)
    chosen_point.draw_panel(results, best_point, point_name, stored_runs)
    _draw_tasks(results, best_point, point_name)
    _draw_table(results, best_point)


def _draw_status(results: SweepPoints, job: Job | None) -> None:
    """Draw the progress with its buttons, and those that manage the sweep."""
    sweep_status.draw_status(
        results, job, can_compute=program_sweep.can_compute(results), draw_more=lambda: _draw_manage(results.sweep)
    )


def _draw_manage(sweep: Sweep) -> None:
    """Draw a popover that renames, deletes and downloads the sweep."""
    with st.popover("Manage", icon=":material/more_horiz:", type="tertiary"):
        is_own = sweep_storage.is_own(page_data.store(), sweep.id)
        if is_own and permissions.is_allowed(VisitorAction.SWEEP):
            st.text_input("Title", sweep.title, key="sweep_rename", max_chars=100, on_change=_rename, args=(sweep,))
        if is_own and permissions.is_allowed(VisitorAction.DELETE):
            st.button("Delete", icon=":material/delete:", on_click=_delete, args=(sweep,), key="sweep_delete")
        st.download_button("Sweep as YAML", sweep.to_yaml, f"{sweep.id}.yaml", "text/yaml", on_click="ignore")
        command_words = shlex.join(["sweep", "--stored", sweep.id, *settings.store_arguments()])
        st.caption("On a command line:")
        st.code(f"mergescope {command_words}", language="sh", wrap_lines=True)


@click_errors.guard_callback
@requires(VisitorAction.SWEEP)
def _rename(sweep: Sweep) -> None:
    sweep_storage.store_sweep(replace(sweep, title=str(st.session_state["sweep_rename"]).strip()), page_data.store())


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _delete(sweep: Sweep) -> None:
    job = sweeps.sweep_job(sweep)
    if job is not None and job.is_live:
        page_data.job_queue().cancel(job.id)
    sweep_storage.delete_sweep(page_data.store(), sweep.id)
    view_state.pick_sweep("")


def _draw_lines(results: SweepResults, best_point: BestPoint, point_name: str) -> None:
    """Draw scores against the single axis."""
    target = results.sweep.axes[0].target
    is_expert_count = results.sweep.kind == VALUES and target == axes.EXPERTS
    chart_view.draw_chart(
        "sweep_lines", best_point.averages, name=f"sweep_{results.sweep.id}",
        on_click=lambda: _choose_clicked_point("sweep_lines"),
        title=sweeps.axis_labels(results.sweep)[0], values=list(results.sweep.axes[0].values), selected=point_name,
        lines=_list_line_ids(results), required=best_point.required_value,
        note=sweeps.images_note(results) + best_point.note,
        sources=[results.sweep],
        caption=EXPERT_COUNT_CAUTION if is_expert_count else "",
        claims=paper_line.claims_in_words(f"sweeps/{target}"),
    )  # fmt: skip


def _draw_map(results: SweepResults, best_point: BestPoint, point_name: str) -> None:
    """Draw a map of one score over both axes."""
    chart_view.draw_question("sweep_contour")
    columns = SCORE_COLUMNS if results.sweep.kind == VALUES else SCORE_COLUMNS | LOSS_COLUMNS
    columns = {name: column for name, column in columns.items() if best_point.averages[column].notna().any()}
    score = columns[page_parts.pick_button("Score", columns, address.SCORE)]
    first, second = results.sweep.axes
    chart_view.draw_chart(
        "sweep_contour", best_point.averages, name=f"sweep_{results.sweep.id}", question_drawn=True,
        on_click=lambda: _choose_clicked_point("sweep_contour"), value=score,
        titles=sweeps.axis_labels(results.sweep),
        values=(list(first.values), list(second.values)), marks=chosen_point.list_known_models(results),
        selected=point_name,
        required=best_point.required_value, note=sweeps.images_note(results) + best_point.note, sources=[results.sweep],
        caption=chosen_point.off_plane_in_words(results) if results.sweep.kind == PLANE else "",
    )  # fmt: skip


def _draw_tasks(results: SweepResults, best_point: BestPoint, point_name: str) -> None:
    """Draw every task along the first axis; for a map, in the row of the chosen point."""
    is_map = len(results.sweep.axes) == 2
    rows = results.tasks_at_same_y(point_name) if is_map else results.tasks
    axis_labels, caption, note = sweeps.axis_labels(results.sweep), "", sweeps.images_note(results) + best_point.note
    if best_point.requirement is not None:
        requirement_table = best_point.averages.drop_duplicates("point").set_index("point")
        rows = rows.assign(**{name: rows["point"].map(requirement_table[name]) for name in ("meets", "certainty")})
    if is_map:
        y = float(results.scores[point_name]["y"])
        caption = f"With {page_text.safe_text(axis_labels[1], 60)} at {y:g}, as for the chosen point."
    chart_view.draw_chart(
        "sweep_tasks", rows, name=f"sweep_tasks_{results.sweep.id}",
        on_click=lambda: _choose_clicked_point("sweep_tasks"),
        title=axis_labels[0], values=list(results.sweep.axes[0].values), lines=_list_line_ids(results),
        selected=point_name, required=best_point.required_value, note=f"{note} In-domain tasks are in bold.",
        caption=caption,
        sources=[results.sweep],
    )  # fmt: skip


def _draw_table(results: SweepResults, best_point: BestPoint) -> None:
    """Draw the numbers of the charts as a table."""
    with st.expander("Every point as a table", icon=":material/table:"):
        columns = [
            "label",
            *(name for name in "xy" if name in results.averages),
            *("in_domain", "out_of_domain", "h_score"),
        ]
        losses = [*LOSSES] if results.sweep.has_losses else []
        required = ["meets", "certainty"] if best_point.requirement is not None else []
        compared = [name for name in ("lead", "lead_low", "lead_high", "is_tie") if name in best_point.averages]
        rows = best_point.averages[[*columns, *losses, "n_in", "n_out", *required, *compared, "run"]].copy()
        for name in ("in_domain", "out_of_domain", "h_score", *required[1:], *compared[:3]):  # shares; "meets" is none
            rows[name] = [round(100 * value, 2) if math.isfinite(value) else None for value in rows[name]]
        rows[losses] = rows[losses].round(4)
        names = dict(zip("xy", sweeps.axis_labels(results.sweep), strict=False)) | LOSSES | {
            "label": "Recipe", "in_domain": "In-domain (%)", "out_of_domain": "Out-of-domain (%)",
            "h_score": "H-score (%)", "n_in": "Images in", "n_out": "Images out", "run": "Run",
            "meets": "Meets the bound", "certainty": "In resamples (%)", "lead": "Lead",
            "lead_low": "Lead: low", "lead_high": "Lead: high", "is_tie": "Cannot be distinguished from the best",
        }  # fmt: skip
        page_parts.draw_table(rows, "Scores of every point", names, "auto")


def _draw_barriers(results: SweepResults) -> None:
    """Draw the barriers between every two models as a table."""
    barriers = list_barriers(results.sweep, results.averages)
    model_names = sweeps.model_names(results.sweep) if results.sweep.through else ()  # else lines differ in them
    explanation = page_text.safe_text(explain_barriers(results.sweep, model_names), 600)
    if barriers.empty:
        if results.complete:
            st.caption(explanation)
        return
    st.header(BARRIERS_QUESTION, anchor=False)
    names = {line: [clean_text(name, 60) for name in sweeps.model_names(results.sweep, line)]
             for line in results.sweep.lines}  # fmt: skip
    domains = {column: name for name, column in LOSS_COLUMNS.items()}
    rows = barriers.assign(
        start=[names[line][first] for line, first in zip(barriers["line"], barriers["first"], strict=True)],
        end=[names[line][second] for line, second in zip(barriers["line"], barriers["second"], strict=True)],
        loss=barriers["loss"].map(domains),
        at=barriers["at"].where(barriers["height"] > 0),
    )
    number = st.column_config.NumberColumn
    columns = {
        "start": "From", "end": "To", "loss": "Of", "height": number("Barrier", format="%.3f"),
        "at": number("At t", format="%.3f"), "points": "Points",
    }  # fmt: skip
    page_parts.draw_table(rows[list(columns)], "Barriers between models", columns)
    st.caption(f"{BARRIER_NOTE.format(sweeps.images_note(results))} {explanation}")


def _list_line_ids(results: SweepResults) -> list[str]:
    """The ids of the lines in the charts: the positions of the recipes."""
    return [str(line) for line in results.sweep.lines]


def _choose_clicked_point(key: str) -> None:
    if mark := chart_view.read_clicked_mark(key):
        view_state.pick_point(mark["point"])
