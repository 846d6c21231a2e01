"""Actions on chosen runs: open them on other pages, drop their weights or delete them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from app import page_text
from app.permissions import requires
from app.reading import listed_models, page_data
from app.session import click_errors, pages, run_choice
from app.views.runs import packs
from app.widgets import page_parts, run_picker
from merging.base.errors import MergingError
from merging.base.modes import VisitorAction
from merging.base.text import size_text
from merging.study.runs.run import THIS_MACHINE, Run
from viz.figure_text import plural

PROBLEM_KEY, SUCCESS_KEY = "runs_problem", "runs_done"
MAX_NAMED_RUNS = 8  # runs named in a confirmation


def draw_notices() -> None:
    """Draw the result of the last click."""
    if problem := st.session_state.pop(PROBLEM_KEY, ""):
        st.error(page_text.safe_text(problem, 500), icon=":material/error:")
    if success := st.session_state.pop(SUCCESS_KEY, ""):
        st.success(page_text.safe_text(success, 300))


def draw_actions(runs: Sequence[Run]) -> None:
    """Draw links to other pages, and the buttons that drop weights or delete runs."""
    ids = ",".join(run.id for run in runs)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if len(runs) == 2:
            page_parts.draw_page_link(pages.COMPARE, "Compare", "compare", run=runs[0].id, run_b=runs[1].id)
        if any(run.has_scores for run in runs):
            page_parts.draw_page_link(pages.SCORES, "Scores", "monitoring", runs=ids)
        page_parts.draw_page_link(pages.RUN, "Open the run", "hub", run=runs[0].id)
        if len(runs) == 1:
            run_picker.draw_recipe_button(runs[0], "shelf")  # a part of the button's key
        packs.draw_pack_button(runs)
        if listed_models.is_local():
            _draw_drop(runs)
            _draw_delete(runs)
        page_parts.draw_link()
    if not listed_models.is_local():
        st.caption("Several people use this server, so runs cannot be deleted here.")


def _find_busy_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs that a job uses."""
    live_subjects = {job.subject for job in page_data.job_queue().list_jobs() if job.is_live}
    return [run for run in runs if run.id in live_subjects]


def _find_own_runs(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.provenance == THIS_MACHINE]


def _titles_in_words(runs: Sequence[Run]) -> str:
    lines = [f"- {page_text.safe_text(run.name, 60)}, {run.id[:8]}" for run in runs[:MAX_NAMED_RUNS]]
    remaining_line = [f"- and {len(runs) - MAX_NAMED_RUNS} more"] if len(runs) > MAX_NAMED_RUNS else []
    return "\n".join([*lines, *remaining_line])


def _draw_drop(runs: Sequence[Run]) -> None:
    """Draw a popover that drops the weights of the user's own runs; tables and scores stay."""
    runs_with_weights = [run for run in _find_own_runs(runs) if run.has_model]
    if not runs_with_weights:
        return
    freed_bytes = sum(path.stat().st_size for run in runs_with_weights for path in _list_model_files(run))
    with st.popover("Drop weights", icon=":material/compress:", type="tertiary"):
        st.markdown(
            f"Drops the merged weights of {plural(len(runs_with_weights), 'run')} and frees "
            f"**{size_text(freed_bytes)}**. Recipes, tables and scores stay, and a recipe makes the same weights again."
            f"\n\n{_titles_in_words(runs_with_weights)}"
        )
        _draw_button("Drop the weights", "drop", runs_with_weights, _drop_weights)


def _list_model_files(run: Run) -> list:  # type: ignore[type-arg]
    """Paths of the existing files of the merged model."""
    return [path for name in run.models.values() if (path := run.path / name).is_file()]


def _draw_delete(runs: Sequence[Run]) -> None:
    """Draw a popover that lists the user's own runs and the bytes that they take, and deletes them on confirmation."""
    from app.views.runs.disk_usage import run_size

    own_runs = _find_own_runs(runs)
    with st.popover("Delete", icon=":material/delete:", type="tertiary", disabled=not own_runs,
                    help=None if own_runs else "Precomputed runs come with the program and cannot be "
                    "deleted."):  # fmt: skip
        freed = size_text(sum(run_size(run) for run in own_runs))
        precomputed_count = len(runs) - len(own_runs)
        stored_note = f" {plural(precomputed_count, 'precomputed run')} stay." if precomputed_count else ""
        st.markdown(
            f"Deletes {plural(len(own_runs), 'run')} with recipe, tables, scores and weights, and frees **{freed}**."
            f"{stored_note} Exports stay, too.\n\n{_titles_in_words(own_runs)}"
        )
        _draw_button(f"Delete {plural(len(own_runs), 'run')}", "delete", own_runs, _delete_runs)


def _draw_button(label: str, key: str, runs: Sequence[Run], action: Callable[[list[str]], None]) -> None:
    """Draw the button that confirms, or a notice if a job needs one of the runs."""
    if busy := _find_busy_runs(runs):
        names = page_text.join_words([page_text.safe_text(run.name, 40) for run in busy])
        st.caption(f":material/hourglass_top: A job is using {names}. Cancel it, or wait until it ends.")
        return
    st.button(label, type="primary", key=f"{key}_runs", on_click=action, args=([run.id for run in runs],))


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _drop_weights(run_ids: list[str]) -> None:
    """Callback: drop the weights of runs that no job needs."""
    _apply_to_idle_runs(run_ids, page_data.store().delete_models, "The weights of {} were dropped.")


@click_errors.guard_callback
@requires(VisitorAction.DELETE)
def _delete_runs(run_ids: list[str]) -> None:
    """Callback: delete runs that no job needs."""
    _apply_to_idle_runs(run_ids, page_data.store().delete, "{} deleted.")
    run_choice.drop_runs([run_id for run_id in run_ids if page_data.store().find(run_id) is None])


def _apply_to_idle_runs(run_ids: list[str], action: Callable[[str], None], success: str) -> None:
    """Apply an action to every run that no job uses; the notices report successes, skipped runs and errors."""
    live_subjects, changed_count = {job.subject for job in page_data.job_queue().list_jobs() if job.is_live}, 0
    try:
        for run_id in run_ids:
            if run_id in live_subjects:
                st.session_state[PROBLEM_KEY] = f"A job has started to use run {run_id[:8]}, so it was not changed."
            else:
                action(run_id)
                changed_count += 1
    except MergingError as error:
        st.session_state[PROBLEM_KEY] = str(error)
    if changed_count:
        st.session_state[SUCCESS_KEY] = success.format(plural(changed_count, "run"))
