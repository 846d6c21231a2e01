"""Experts against experts on the Conflicts page: how far each pair agrees, and in which part of the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import expert_names, measurements, page_data
from app.session import address, selection
from app.session.click_errors import guarded_fragment
from app.views.conflicts import linear_layers as conflict_layers
from app.views.conflicts import sign_agreement
from app.widgets import chart_view, page_parts
from app.widgets.jobs import measure_button
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import percent

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from merging.study.measurements.pairs import PairSums

# Label in pickers and links -> name in tables and charts.
PAIR_METRICS = {"cosine of task vectors": "cosine", "sign conflict": "conflict", "overlap of masks": "overlap"}
WHOLE_MODEL, ONE_LAYER = "whole model", "one layer"
NOT_MEASURED = "Pairs of experts have not been compared for"
DENSITY_HELP = "Each expert keeps this share of the largest entries of each of its tensors."
METRIC_NOTES = {
    "cosine": "0 means that two task vectors are unrelated, like random vectors with as many entries; 1 means that "
    "they are the same up to a factor. All entries count, at any density.",
    "conflict": "Among the entries that both experts keep, the share in which their signs differ; one half if signs "
    "are independent.",
    "overlap": "Entries that both experts keep, as a share of those that at least one keeps (Jaccard index).",
}
DISTANCE_NAMES = {"cosine": "1 − cosine", "conflict": "the share in conflict", "overlap": "1 − overlap"}


@st.cache_resource(max_entries=8, show_spinner=False)
def _read_pair_sums(path: str, _measurement: StoredMeasurement) -> PairSums:
    from merging.study.measurements.pairs import read_tables

    return read_tables({name: _measurement.table(name) for name in _measurement.tables})


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def build_matrix(
    path: str, _measurement: StoredMeasurement, layer: str | None, value: str, density: float
) -> tuple[pd.DataFrame, list[str]]:
    """The table of the matrix for the whole model or one layer, and the experts in clustered order."""
    from merging.study.measurements.pairs import cluster_order, expert_distances, matrix_table

    pairs = _read_pair_sums(path, _measurement)
    rows: NDArray[np.bool_] | slice = slice(None) if layer is None else (pairs.tensors["tensor"] == layer).to_numpy()
    total = pairs.sum_rows(rows)
    order = cluster_order(expert_distances(total, value, density))
    return matrix_table(total, density), [pairs.experts[index] for index in order]


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def read_pair_by_depth(
    path: str, _measurement: StoredMeasurement, pair: tuple[str, str], value: str, density: float
) -> pd.DataFrame:
    """The values of one pair, tensor by tensor."""
    from merging.study.measurements.pairs import pair_by_depth

    return pair_by_depth(_read_pair_sums(path, _measurement), pair, value, density)


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def read_pairs_by_tensor(path: str, _measurement: StoredMeasurement, value: str, density: float) -> pd.DataFrame:
    """The values of every pair, tensor by tensor."""
    from merging.study.measurements.pairs import pairs_by_tensor

    return pairs_by_tensor(_read_pair_sums(path, _measurement), value, density)


def draw_view(run: Run) -> None:
    """Draw the matrix and one pair, or the button that measures them."""
    measurement = measurements.find_measurement(measurements.EXPERT_PAIRS, run.id)
    if measurement is None:
        measure_button.draw_missing(measurements.EXPERT_PAIRS, [run], NOT_MEASURED)
    else:
        draw_pictures(run, measurement)


def choose_pair() -> None:
    """Callback of a click on the matrix: set the pickers to the pair."""
    if cell := chart_view.read_clicked_mark("pair_matrix"):
        st.session_state[address.FIRST_EXPERT], st.session_state[address.SECOND_EXPERT] = cell["first"], cell["second"]


@guarded_fragment
def draw_pictures(run: Run, measurement: StoredMeasurement) -> None:
    """Draw the matrix and the chosen pair; a click redraws only them."""
    with st.container(horizontal=True, gap="medium"):
        value = page_parts.pick_label("Compare by", PAIR_METRICS, address.PAIR_METRIC, width=220)
        density = st.select_slider(
            "Density", sign_agreement.DENSITIES, sign_agreement.DEFAULT_DENSITY, key=address.DENSITY, bind=address.BIND,
            help=DENSITY_HELP, width=260, disabled=value == "cosine",
        )  # fmt: skip
        scope = page_parts.pick_button("Compare", (WHOLE_MODEL, ONE_LAYER), address.SCOPE)
    layer = conflict_layers.pick_layer(run, conflict_layers.find_middle_layer(run)) if scope == ONE_LAYER else None
    table, order = build_matrix(str(measurement.path), measurement, layer, value, density)
    picture = st.container()  # above the pickers, but drawn after them, because the chart needs their values
    with st.container(horizontal=True, gap="medium"):
        pair = [
            st.selectbox(label, run.experts, None, key=key, bind=address.BIND, placeholder=placeholder, width=260)
            for label, key, placeholder in (
                ("First expert", address.FIRST_EXPERT, selection.PICK_HINT.format("a pair")),
                ("Second expert", address.SECOND_EXPERT, "None"),
            )
        ]
    with picture:
        name = f"pairs_{value}_{run.id[:8]}"
        chart_view.draw_chart(
            "pair_matrix", table, name=name, on_click=choose_pair, value=value, order=order, selected=tuple(pair),
            caption=f"{metric_in_words(value, density, layer)} {measure_button.origin_in_words([measurement])}",
            sources=[run],
        )  # fmt: skip
    draw_pair(run, measurement, pair, value, density, layer)


def metric_in_words(value: str, density: float, layer: str | None) -> str:
    """The meaning of the numbers, in sentences; Markdown."""
    subject = "the whole model" if layer is None else f"the layer {page_text.safe_text(layer)}"
    density_note = "" if value == "cosine" else f" Density {density:g} in every tensor."
    if value == "overlap" and density < 1:
        density_note += f" Independent masks share {percent(density / (2 - density))}."
    return (
        f"Task vectors of {subject}. {METRIC_NOTES[value]}{density_note} Experts are ordered by average-linkage "
        f"clustering on {DISTANCE_NAMES[value]}, so that similar experts are side by side."
    )


def draw_pair(
    run: Run, measurement: StoredMeasurement, pair: Sequence[str | None], value: str, density: float, layer: str | None
) -> None:
    """Draw the chosen pair by depth."""
    first_expert, second_expert = pair
    if not first_expert or not second_expert:
        st.info(f"{selection.PICK_HINT.format('a pair')} two experts, to see where in the network they agree.")
        return
    if first_expert == second_expert:
        st.info("Choose two different experts.")
        return
    table = read_pair_by_depth(str(measurement.path), measurement, (first_expert, second_expert), value, density)
    names = " and ".join(
        f"**{page_text.safe_text(expert_names.expert_name(name), 40)}**" for name in (first_expert, second_expert)
    )
    chart_view.draw_question("pair_depth")
    subtitle = f"{names}, tensor by tensor."
    st.markdown(subtitle)
    chart_view.draw_chart(
        "pair_depth", table, name=f"pair_{value}_{run.id[:8]}", question_drawn=True,
        value=value, pair=(first_expert, second_expert), selected=layer,
        description=f"{subtitle} {METRIC_NOTES[value]}", sources=[run],
    )  # fmt: skip
