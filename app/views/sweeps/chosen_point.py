"""The chosen point of a sweep: its scores, its run, and the positions of known models in a plane."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from app import page_text
from app.reading import page_data, samples, sweeps
from app.reading.expert_names import expert_name
from app.reading.sweeps import SweepResults
from app.session import pages, polled_pickers, selection, view_state
from app.views.sweeps.best_point import BestPoint, draw_verdict
from app.widgets import page_parts, run_picker
from app.widgets.jobs import refused_action, tray
from app.widgets.panels import preview_panel
from merging.base.errors import StoreError
from merging.models.model_references import PRETRAINED
from merging.recipes.recipe import Recipe
from merging.study.runs.run import Run
from merging.study.sweeps.points import Point
from merging.study.sweeps.sweep import PLANE, Model, NamedPoint
from viz.figure_text import percent, plural
from viz.figures.sweep_figures import KnownModel


def draw_panel(results: SweepResults, best_point: BestPoint, point_name: str, stored_runs: Sequence[Run]) -> None:
    """Draw the picker of points, the scores of the point ``point_name``, and a link to its run."""
    points = [str(point) for point in results.averages["point"].drop_duplicates()]
    # The key contains the sweep's id because two sweeps may have points of the same name.
    key = polled_pickers.picker_key(f"chosen_point_{results.sweep.id}", point_name)
    with st.container(border=True, key="chosen"):
        st.selectbox(
            selection.PICK_HINT.format("a point"), points, key=key,
            format_func=results.names.__getitem__, on_change=view_state.pick_point_from, args=(key,),
        )  # fmt: skip
        is_best = point_name == best_point.point_name
        if is_best and best_point.is_met:
            condition = " that meets the bound" if best_point.requirement else ""
            st.caption(f"The best point{condition}{'' if results.complete else ' so far'}.")
        elif not is_best:
            st.button("Show the best point", icon=":material/star:", type="tertiary", key="show_best",
                      on_click=view_state.pick_point, args=("",))  # fmt: skip
        draw_verdict(best_point, point_name)
        _draw_scores(results.scores[point_name], f"On the {samples.scored_part(results.sweep.split)}, as in the charts")
        draw_run(results.find_plan(point_name), stored_runs)


def _draw_scores(row: Mapping[str, Any], heading: str) -> None:
    st.markdown(f"**{heading}**")
    with st.grid(3, min_column_width=130):
        for name, score, low, high, task_count, image_count in (
            ("In-domain", "in_domain", "in_low", "in_high", "tasks_in", "n_in"),
            ("Out-of-domain", "out_of_domain", "out_low", "out_high", "tasks_out", "n_out"),
        ):
            if row[image_count]:  # zero if the sweep has no tasks in this domain
                with st.container(gap="xsmall"):
                    st.metric(name, percent(row[score]))
                    counts = f"{plural(int(row[task_count]), 'task')}, n = {int(row[image_count]):,}"
                    st.caption(f"{percent(row[low])} to {percent(row[high])}, {counts}")
        if not math.isnan(row["h_score"]):
            with st.container(gap="xsmall"):
                st.metric("H-score", percent(row["h_score"]))
                st.caption("harmonic mean of the two")


def draw_run(point: NamedPoint, stored_runs: Sequence[Run]) -> None:
    """Draw the scores of the point's run on the reporting half, or a button that computes the run."""
    if not point.run_id:
        st.caption(f"{_describe_model(point.point.model)}, so it cannot be opened as a run.")
        return
    run = page_data.store().find(point.run_id)
    summary = page_data.summary(run, stored_runs) if run is not None and run.has_scores else None
    if run is not None and summary is not None:
        fields = ("in_domain", "in_low", "in_high", "out_of_domain", "out_low", "out_high", "h_score")
        counts = ("tasks_in", "tasks_out", "n_in", "n_out")
        _draw_scores(
            {name: getattr(summary, name) for name in (*fields, *counts)}, f"As a run, on the {samples.scored_part()}"
        )
        with st.container(horizontal=True, vertical_alignment="center"):
            page_parts.draw_page_link(pages.SCORES, "Open in Scores", "monitoring", runs=run.id)
            page_parts.draw_page_link(pages.MASKS, "Masks", "grid_on", run=run.id)
            run_picker.draw_recipe_button(run, "chosen")
        return
    recipe = point.point.merge or point.point.recipe
    preview_panel.draw_preview(recipe, None, "sweeps")
    try:
        job = page_data.job_queue().get(point.run_id)
    except StoreError:
        job = None
    if job is not None and job.is_live:
        st.markdown(":material/hourglass_top: Its run is being computed; the tray on the left shows the progress.")
        return
    if job is not None and job.error:
        tray.draw_job(job, "sweep")
    if refused_action.draw_recipe_refusal(recipe, "point"):
        return
    clicked = st.button(
        "Open as a run", icon=":material/open_in_new:", type="primary", key="open_run",
        help=f"Stores the merged model and evaluates it on all images, including those of the {samples.scored_part()}.",
    )  # fmt: skip
    if clicked:
        page_data.job_queue().submit(replace(recipe, title=page_text.chain_title(recipe)))
        st.rerun()  # the whole page, so that the tray shows the job from now on


def _describe_model(model: Model | None) -> str:
    """What a point without a recipe is, as the beginning of a sentence in Markdown."""
    if not isinstance(model, str):
        return "This point interpolates weights and has no recipe"
    if model == PRETRAINED:
        return "This point is the pretrained model"
    return f"This point is the expert {page_text.safe_text(expert_name(model), 60)}"


def list_known_models(results: SweepResults) -> list[KnownModel]:
    """Marks (label, x, y, kind) of the models at known positions in a plane; empty for other sweeps.

    These are the models that it goes through; in the plane of two experts' task vectors, also their merge by the
    sweep's recipe once it is computed.
    """
    sweep = results.sweep
    if sweep.kind != PLANE:
        return []
    kinds = [
        "merge" if isinstance(model, Recipe) else "pretrained" if model == PRETRAINED else "individual"
        for model in sweep.list_models(0)
    ]
    corners = zip(sweeps.model_names(sweep), ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)), kinds, strict=True)
    marks: list[KnownModel] = [(f"{'Expert ' * (kind == 'individual')}{name}", *at, kind) for name, at, kind in corners]
    merge = _find_merge_point(results)
    if merge is not None and (position := merge.notes.get("at")):
        title = sweeps.recipe_titles(sweep)[0]
        marks.append((f"Merge: {title}", *(position[name] for name in sweep.through[1:]), "merge"))
    return marks


def _find_merge_point(results: SweepResults) -> Point | None:
    """The computed merge of both experts of a plane, which is the planned point without coordinates; None so far."""
    planned = next((point for point in results.planned_points if not point.point.values), None)
    return results.points.get(planned.name) if planned is not None else None


def off_plane_in_words(results: SweepResults) -> str:
    """A caption on how far the merge of both experts is from their plane, and on its accuracy; empty until computed."""
    merge = _find_merge_point(results)
    if merge is None or not merge.notes:
        return ""
    own = merge.scores[merge.scores["task"].isin(results.sweep.through)]
    return (
        "The mark of the merge is the point of the plane nearest to the recipe's merge of these two experts; "
        f"{percent(merge.notes['off_plane'])} of the length of the merge's change is off the plane. The merge scores "
        f"{percent(float(own['accuracy'].mean()))} on the two tasks."
    )
