"""The picture with which Home begins: the map of one merge under a slider for the prune ratio, and what is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import page_data, recipes
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
QUANTITY, SLIDER_KEY = "final_mask", "first_ratio"


def draw_picture(runs: Sequence[Run], stored: Sequence[Run]) -> None:
    """Draw the map of the first of these runs that pruned tensors; draws nothing if there is none."""
    candidates = recipes.preset_runs(PRESETS, runs) or [run for run in runs if page_data.SALIENCY in run.tables]
    if candidates:
        _draw_map(candidates[0], list(stored))


@guarded_fragment
def _draw_map(run: Run, stored_runs: list[Run]) -> None:
    """The slider, the map with the masks at its ratio, and a sentence; nothing is computed but the masks."""
    from merging.methods.shared.saliency import apply_ratio, join_thirds
    from merging.recipes.presets import read_settings

    ratio, shares_masks = read_settings(run.recipe)
    try:
        stored, _ = page_data.saliency(run, stored_runs)
    except MergingError:  # the list below names what is damaged
        return
    chosen = st.slider(
        "Share of tensors that each expert prunes (prune ratio)", 0.0, 1.0, ratio, 0.05, key=SLIDER_KEY, width=420
    )
    masks = join_thirds(apply_ratio(stored, chosen, shares_masks)).set_index(["tensor", "expert"])["final"]
    table = network_values.read_map_of(run, masks).fillna({"value": 0.0})
    table = table.assign(kept=table["value"].astype(bool))
    st.markdown(_describe_masks(table, len(run.experts)))
    result = (
        run_pictures.describe_result(run, stored_runs) if chosen == ratio else "merged"
    )  # scores are those of the run
    network_panel.draw_map(run, table, QUANTITY, result=result)
    page_parts.draw_page_link(pages.RUN, f"Open this run: {page_text.run_label(run)}", "hub", run=run.id)


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
        f"{plural(len(tensors), 'tensor')}**, {percent(share)} of the scalars; gray ones stay pretrained.{end} Move "
        "the slider."
    )
