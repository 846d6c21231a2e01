"""Experts against experts on the Conflicts page: which agree, pair by pair, and where in the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import text
from app.reading import data, measurements
from app.reading import names as expert_names
from app.session import address, selection
from app.session.clicks import fragment
from app.views.conflicts import layers as conflict_layers
from app.views.conflicts import signs
from app.widgets import chart
from app.widgets.jobs import measure_button
from merging.study.analysis.stored import Measured
from merging.study.runs.run import Run
from viz.text import percent

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from merging.study.measurements.pairs import Pairs

# Label in pickers and links -> name in tables and charts.
VALUES = {"cosine of task vectors": "cosine", "sign conflict": "conflict", "overlap of masks": "overlap"}
WHOLE, LAYER = "whole model", "one layer"
NOT_MEASURED = "Pairs of experts have not been compared for"
PRUNING = "Each expert keeps this share of the largest entries of each of its tensors."
READING = {
    "cosine": "0 means that two task vectors are unrelated, as random vectors in so many dimensions are; "
    "1 that they are the same up to a factor. All entries count, at any density.",
    "conflict": "The share of the entries that both experts keep in which their signs differ; one half if signs "
    "are independent.",
    "overlap": "Entries that both experts keep, as a share of those that either keeps (Jaccard index).",
}
DISTANCES = {"cosine": "1 − cosine", "conflict": "the share in conflict", "overlap": "1 − overlap"}


@st.cache_resource(max_entries=8, show_spinner=False)
def _counts(entry: str, _found: Measured) -> Pairs:
    from merging.study.measurements.pairs import from_tables

    return from_tables({name: _found.table(name) for name in _found.tables})


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def compared(
    entry: str, _found: Measured, layer: str | None, value: str, density: float
) -> tuple[pd.DataFrame, list[str]]:
    """The table of the matrix, of the whole model or of one layer, and the experts in clustered order."""
    from merging.study.measurements.pairs import cluster_order, distances, matrix

    pairs = _counts(entry, _found)
    rows: NDArray[np.bool_] | slice = slice(None) if layer is None else (pairs.tensors["tensor"] == layer).to_numpy()
    one = pairs.summed(rows)
    order = cluster_order(distances(one, value, density))
    return matrix(one, density), [pairs.experts[at] for at in order]


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def depth(entry: str, _found: Measured, pair: tuple[str, str], value: str, density: float) -> pd.DataFrame:
    """One pair, tensor by tensor."""
    from merging.study.measurements.pairs import by_depth

    return by_depth(_counts(entry, _found), pair, value, density)


@st.cache_data(max_entries=data.KEPT, show_spinner=False)
def by_tensor(entry: str, _found: Measured, value: str, density: float) -> pd.DataFrame:
    """Every pair, tensor by tensor."""
    from merging.study.measurements.pairs import by_tensor

    return by_tensor(_counts(entry, _found), value, density)


def view(run: Run) -> None:
    """The matrix and one pair, or the button that measures them."""
    measurement = measurements.find(measurements.PAIRS, run.id)
    if measurement is None:
        measure_button.missing(measurements.PAIRS, [run], NOT_MEASURED)
    else:
        pictures(run, measurement)


def choose_pair() -> None:
    """Callback of a click on the matrix: the pair goes into its pickers."""
    if cell := chart.clicked("pair_matrix"):
        st.session_state[address.FIRST_EXPERT], st.session_state[address.SECOND_EXPERT] = cell["first"], cell["second"]


def choose_tensor(layers: Sequence[str]) -> None:
    """Callback of a click on the pair's tensors: a linear layer goes into the page's picker."""
    if (mark := chart.clicked("pair_depth")) and mark["tensor"] in layers:
        selection.choose(address.TENSOR, mark["tensor"])


@fragment
def pictures(run: Run, measurement: Measured) -> None:
    """The matrix and the chosen pair; a click redraws only them."""
    with st.container(horizontal=True, gap="medium"):
        value = VALUES[st.selectbox("Compare by", VALUES, key=address.PAIR_METRIC, bind=address.BIND, width=220)]
        density = st.select_slider(
            "Density", signs.DENSITIES, signs.DENSITY, key=address.DENSITY, bind=address.BIND,
            help=PRUNING, width=260, disabled=value == "cosine",
        )  # fmt: skip
        scope = st.segmented_control(
            "Compare", (WHOLE, LAYER), default=WHOLE, key=address.SCOPE, bind=address.BIND, required=True
        )
    layer = conflict_layers.choose(run, conflict_layers.middle(run)) if scope == LAYER else None
    table, order = compared(str(measurement.path), measurement, layer, value, density)
    picture = st.container()  # the pickers are read before the picture above them is drawn
    with st.container(horizontal=True, gap="medium"):
        pair = [
            st.selectbox(label, run.experts, None, key=key, bind=address.BIND, placeholder=placeholder, width=260)
            for label, key, placeholder in (
                ("First expert", address.FIRST_EXPERT, "Click a pair, or choose"),
                ("Second expert", address.SECOND_EXPERT, "None"),
            )
        ]
    with picture:
        name = f"pairs_{value}_{run.id[:8]}"
        chart.chart(
            "pair_matrix", table, name=name, on_click=choose_pair, value=value, order=order, selected=tuple(pair),
            caption=f"{explained(value, density, layer)} {measure_button.origin([measurement])}", of=[run],
        )  # fmt: skip
    one_pair(run, measurement, pair, value, density, layer)


def explained(value: str, density: float, layer: str | None) -> str:
    """What the numbers mean; Markdown."""
    of = "the whole model" if layer is None else f"the layer {text.safe_text(layer)}"
    kept = "" if value == "cosine" else f" Density {density:g} in every tensor."
    if value == "overlap" and density < 1:
        kept += f" Independent masks share {percent(density / (2 - density))}."
    return (
        f"Task vectors of {of}. {READING[value]}{kept} Experts are ordered by average-linkage clustering on "
        f"{DISTANCES[value]}, so that similar experts stand side by side."
    )


def one_pair(
    run: Run, measurement: Measured, pair: Sequence[str | None], value: str, density: float, layer: str | None
) -> None:
    """The chosen pair by depth."""
    first, second = pair
    if not first or not second:
        st.info("Choose two experts, or click a cell of the matrix, to see where in the network they agree.")
        return
    if first == second:
        st.info("Choose two different experts.")
        return
    table = depth(str(measurement.path), measurement, (first, second), value, density)
    layers = tuple(conflict_layers.linear(run)["tensor"])
    names = " and ".join(f"**{text.safe_text(expert_names.expert(name), 40)}**" for name in (first, second))
    chart.ask("pair_depth")
    words = f"{names}, tensor by tensor."
    st.markdown(words)
    chart.chart(
        "pair_depth", table, name=f"pair_{value}_{run.id[:8]}", headed=True, on_click=lambda: choose_tensor(layers),
        value=value, pair=(first, second), selected=layer, description=f"{words} {READING[value]}", of=[run],
    )  # fmt: skip
