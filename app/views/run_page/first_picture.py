"""The picture with which Home begins: the map of one merge under sliders, which stored merges answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data, recipes, sweeps
from app.reading.runs import network_values
from app.session import pages
from app.session.click_errors import guarded_fragment
from app.views.run_page import run_pictures
from app.widgets import page_parts
from app.widgets.panels import network_panel
from merging.base.errors import MergingError
from merging.study.runs.run import Run
from viz.figure_text import percent, plural

if TYPE_CHECKING:
    import pandas as pd

PRESETS = ("task_arithmetic_lwptv",)  # presets of the run that is shown, if such a run is stored
QUANTITY, SLIDER_KEY = "final_mask", "first_value"
LABEL = "Share of tensors that each expert prunes (prune ratio)"


def draw_picture(runs: Sequence[Run], stored: Sequence[Run]) -> None:
    """Draw the map of the first of these runs that pruned tensors; draws nothing if there is none."""
    candidates = recipes.preset_runs(PRESETS, runs) or [run for run in runs if page_data.SALIENCY in run.tables]
    if candidates:
        _draw_map(candidates[0], list(stored))


@guarded_fragment
def _draw_map(run: Run, stored_runs: list[Run]) -> None:
    """The sliders, the map with the masks at their values, and what is seen; nothing is computed but the masks."""
    from merging.methods.shared.saliency import apply_ratio, join_thirds
    from merging.recipes.presets import read_settings

    try:
        stored, _ = page_data.saliency(run, stored_runs)
        grid = sweeps.find_grid(run)
    except MergingError:  # the list below names what is damaged
        return
    own_ratio, shares_masks = read_settings(run.recipe)
    if grid:
        point = _pick_point(grid)
        ratio, _ = read_settings(grid.find_plan(point).point.recipe)
        result, answers = run_pictures.describe_averages(grid.scores[point]), _describe_scores(grid, point)
    else:
        ratio = st.slider(LABEL, 0.0, 1.0, own_ratio, 0.05, key=SLIDER_KEY, width=420)
        result = run_pictures.describe_result(run, stored_runs) if ratio == own_ratio else "merged"
        answers = "Move the slider."
    masks = join_thirds(apply_ratio(stored, ratio, shares_masks)).set_index(["tensor", "expert"])["final"]
    table = network_values.read_map_of(run, masks).fillna({"value": 0.0})
    table = table.assign(kept=table["value"].astype(bool))
    st.markdown(f"{_describe_masks(table, len(run.experts))} {answers}")
    network_panel.draw_map(run, table, QUANTITY, result=result)
    page_parts.draw_page_link(pages.RUN, f"Open this run: {page_text.run_label(run)}", "hub", run=run.id)


def _pick_point(grid: sweeps.SweepResults) -> str:
    """Draw a slider for each axis of a grid of merges; returns the name of the chosen point."""
    steps, chosen = grid.sweep.recipes[0].steps, []
    first = next(one.point.values for one in grid.planned_points if one.point.recipe.steps == steps)
    with st.container(horizontal=True, gap="medium"):
        for label, axis, value in zip(grid.sweep.labels, grid.sweep.axes, first, strict=True):
            key = f"{SLIDER_KEY}_{axis.target}"
            chosen.append(st.select_slider(label, axis.values, value, "{:g}".format, key=key, width=320))
    return next(one.name for one in grid.planned_points if one.point.values == tuple(chosen))


def _describe_scores(grid: sweeps.SweepResults, point: str) -> str:
    """The averages of a point of the grid, in a sentence; Markdown."""
    scores = grid.scores[point]
    return (
        f"It answers **{percent(scores['in_domain'])}** of the images right in domain and "
        f"**{percent(scores['out_of_domain'])}** out of domain (n = {scores['n_in']:,} and {scores['n_out']:,}, "
        f"choosing half, seed {grid.sweep.seed}). Move the sliders: {grid.total} merges are stored."
    )


def _describe_masks(table: pd.DataFrame, experts: int) -> str:
    """What the masks keep of the network, in a sentence; Markdown."""
    tensors = table.groupby("tensor", sort=False).agg(
        numel=("numel", "first"), kept=("kept", "any"), section=("section", "first")
    )
    kept = tensors[tensors["kept"]]
    share = kept["numel"].sum() / tensors["numel"].sum()
    whole = tensors.groupby("section", sort=False)["kept"].any()
    pruned = [page_text.safe_text(section, 40) for section in whole.index[~whole.to_numpy(bool)]]
    end = f" Nothing is kept of {page_text.join_words(pruned)}." if pruned else ""
    return (
        f"{plural(experts, 'expert')} become one model. Of their updates it takes over **{len(kept)} of "
        f"{plural(len(tensors), 'tensor')}**, {percent(share)} of the scalars; gray ones stay pretrained.{end}"
    )
