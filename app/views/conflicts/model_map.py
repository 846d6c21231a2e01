"""The map of models on the Conflicts page: experts, merges and the pretrained model by their distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app.reading import measurements, page_data
from app.reading.figures import cache_shared
from app.reading.runs import run_names
from app.session import address, benchmark_choice, pages
from app.widgets import chart_view, page_parts
from app.widgets.jobs import measure_button
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import percent, plural

if TYPE_CHECKING:
    import pandas as pd

OPENED = "opened_on_map"  # the run whose mark was clicked
NOT_MEASURED = "There is no map of models with"
MAP_NOTE = (
    "Distances are Euclidean, over all {scalars:,} weights that merges may change, and exact; the map is classical "
    "scaling (Torgerson, 1952), without a seed. Its two axes show {shares} of the variance, so models that are close "
    "on it may be far apart: point at a mark for its nearest model. A click on a merge opens its run."
)
LEFT_OUT = "Not on it: {}, whose weights are not stored and would have to be learned again."
FAILED = "Not on it: {} that could not be merged again."
CHOSEN_LEFT_OUT = "The chosen run is left out: its weights are not stored, and it would have to learn again."
CHOSEN_NO_MODEL = "The chosen run is not on it: it is no single model without modules."
NEAR_MODELS, ALL_MODELS = "near the experts", "all models"
FAR_NOTE = "Left out of this map: {}, whose change is longer than {} times the longest expert's."
NEWER_RUNS = "{} {} made after this map, which shows {}."


def draw_view(run: Run) -> None:
    """Draw the map of all stored runs of these experts, or the button that measures it."""
    from merging.study.weight_space.model_map import NEAR, is_mappable, is_quick, list_mapped

    measurement = measurements.find_measurement(measurements.MODEL_MAP, run.id)
    if not is_mappable(run, run):
        st.caption(CHOSEN_NO_MODEL)
    elif not is_quick(run):
        st.caption(CHOSEN_LEFT_OUT)
    if measurement is None:
        measure_button.draw_missing(measurements.MODEL_MAP, [run], NOT_MEASURED)
        return
    peers = [one for one in page_data.stored_runs() if is_mappable(one, run)]
    measured = set(measurements.measured_table(measurement, "models")["model"])
    failed = {one.id for one in peers} & set(measurement.notes["failed"])
    if newer := {one.id for one in list_mapped(peers)} - measured - failed:
        shown = plural(len([one for one in peers if one.id in measured]), "merge")
        words = NEWER_RUNS.format(plural(len(newer), "run"), "was" if len(newer) == 1 else "were", shown)
        measure_button.draw_missing(measurements.MODEL_MAP, [run], f"{words} Measure it again with the experts of")
    chart_view.draw_question("model_map")
    shows_all = page_parts.pick_button("Models", (NEAR_MODELS, ALL_MODELS), address.MAPPED_MODELS) == ALL_MODELS
    table, shares, far = _build_map(measurement, run_names.name_runs(peers), "" if shows_all else run.id)
    note = MAP_NOTE.format(
        scalars=measurement.notes["scalars"], shares=f"{percent(shares[0])} and {percent(shares[1])}"
    )
    counts = ((FAR_NOTE, far, "merge"), (LEFT_OUT, measurement.notes["left_out"], "run"),
              (FAILED, len(failed), "run"))  # fmt: skip
    note = " ".join([note, *(text.format(plural(count, noun), NEAR) for text, count, noun in counts if count)])
    chart_view.draw_chart(
        "model_map", table, name=f"models_{run.id[:8]}", question_drawn=True, on_click=_note_opened,
        shares=shares, experts=list(run.experts), selected=run.id,
        caption=f"{note} {measure_button.origin_in_words([measurement])}", sources=[run],
    )  # fmt: skip
    if run_id := st.session_state.pop(OPENED, ""):
        st.switch_page(pages.RUN, query_params={address.RUN: run_id} | benchmark_choice.link_query())


def _note_opened() -> None:
    """Callback of a click: note the run of the mark, which is opened after the page is drawn."""
    mark = chart_view.read_clicked_mark("model_map")
    if mark and page_data.store().find(mark["run"]) is not None:
        st.session_state[OPENED] = mark["run"]


@cache_shared(page_data.MAX_CACHED)
def _build_map(
    measurement: StoredMeasurement, names: dict[str, str], near: str
) -> tuple[pd.DataFrame, tuple[float, float], int]:
    """The table of the models that are still stored, the shares of its axes, and the number of models left out as far.

    With ``near``, a run's id, it is of this run and of models near the experts; without, of all.
    """
    import numpy as np

    from app.reading import expert_names
    from merging.study.weight_space.model_map import MERGE, find_near, tabulate_map

    models, gram = measurement.table("models"), measurement.array("gram")
    is_stored = ((models["kind"] != MERGE) | models["model"].isin(names)).to_numpy()
    models, gram = models[is_stored].reset_index(drop=True), gram[np.ix_(is_stored, is_stored)]
    labels = {"pretrained": "Pretrained"} | names
    labels |= {name: expert_names.expert_name(name) for name in models.loc[models["kind"] == "expert", "model"]}
    is_shown = find_near(models, gram, near) if near else np.ones(len(gram), bool)
    table, shares = tabulate_map(models, gram, labels, is_shown)
    return table, (float(shares[0]), float(shares[1])), int((~is_shown).sum())
