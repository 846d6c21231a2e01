"""Sign agreement on the Conflicts page: in the weights, in DRM's joint spaces, and projected back; the election.

A joint space is spanned by the singular vectors of a layer's task vectors, joined side by side (H) or stacked (V).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import expert_names, measurements, page_data
from app.reading.figures import cache_shared, cache_table
from app.session import address
from app.session.click_errors import guarded_fragment
from app.views.conflicts import linear_layers
from app.widgets import chart_view, page_parts, paper_line, selection_pickers
from app.widgets.jobs import measure_button
from merging.base.errors import CheckpointError
from merging.base.text import duration_text
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import clean_text

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from merging.study.analysis.drm_joint_space import JointSpace
    from merging.study.measurements.signs import LayerSigns

DENSITIES = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05)  # the measured ones
DEFAULT_DENSITY, DEFAULT_RANK_CUT = 0.2, 0.01
AGREEMENT_METRICS = {"excess over random signs": "excess", "mean agreement": "mean", "density": "kept"}
ELECTION_METRICS = {"share of its entries that survive": "survived", "share of what survives": "taken"}
DENSITY_HELP = "Each expert keeps this share of the largest entries of its own matrix, in the space shown."
RANK_CUT_HELP = (
    "DRM leaves out directions of the joint space whose singular value is at most this share of the largest."
)
NOT_MEASURED = "Sign agreement of every layer has not been counted for the experts of"
READING_NOTE = (
    "Agreement at a position is the share of the majority sign among the experts whose entry is not zero; positions "
    "without such an entry do not count. A single vote agrees with itself, so agreement rises as density falls: marks "
    "show the agreement of random signs with the same numbers of votes. Projected back, nearly every entry votes, so "
    "most of the drop from a joint space is due to density."
)
ELECTION_NOTE = (
    "Each expert's matrix is trimmed to {:.0%} by itself (TIES with the scope of one tensor). The sign of the sum of "
    "the remaining entries is elected, and entries of the other sign are dropped. If the sum is zero, the sign that "
    "wins more often in the whole model is elected."
)
ELECTION_COLUMNS = {
    "expert": st.column_config.TextColumn("Expert", pinned=True),
    "kept": st.column_config.NumberColumn("Kept", format="localized", help="Entries that remain after the trim."),
    "won": st.column_config.NumberColumn("Survive", format="localized", help="Kept entries of the elected sign."),
    "survived": st.column_config.NumberColumn("Share of its entries", format="percent"),
    "taken": st.column_config.NumberColumn("Share of what survives", format="percent"),
}


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner=False)
def count_signs_at_density(
    run_id: str, name: str, density: float, cut: float, _spaces: Sequence[JointSpace]
) -> LayerSigns:
    """The signs of one linear layer, pruned to one density."""
    from merging.study.measurements.signs import inspect_layer

    return inspect_layer(linear_layers.read_task_matrices(run_id, name), (density,), cut, spaces=_spaces)


def count_layer_signs(run: Run, name: str, density: float, cut: float) -> list[LayerSigns]:
    """The signs of one linear layer before and after pruning; cached spaces and counts are not computed again."""
    from merging.study.measurements.signs import estimated_seconds

    densities = sorted({1.0, density})
    seconds = sum(linear_layers.estimate_seconds(run, name, vertical) for vertical in (False, True))
    seconds += len(densities) * estimated_seconds(linear_layers.read_task_matrices(run.id, name).shape)
    with st.spinner(f"Counting signs of this layer, about {duration_text(seconds)} …"):
        spaces = [linear_layers.decompose_layer(run, name, vertical) for vertical in (False, True)]  # H and V
        return [count_signs_at_density(run.id, name, share, cut, spaces) for share in densities]


def build_histogram(counts: dict[tuple[str, float], NDArray[np.int64]], density: float) -> pd.DataFrame:
    """The histogram's table: one row for each space, state and bin, with the totals of its space."""
    import pandas as pd

    from merging.study.measurements.signs import EDGES, SPACES, agreement_histogram, mean_agreement

    rows: list[tuple[Any, ...]] = []
    for space, title in SPACES.items():
        for state, kept_share in {"before": 1.0, "after": density}.items():
            if state == "after" and density == 1.0:
                continue
            totals, (shares, chances) = (  # chances: the shares of random signs
                mean_agreement(counts[space, kept_share]),
                agreement_histogram(counts[space, kept_share]),
            )
            rows += [
                (space, title, state, kept_share, low, high, share, chance, *totals)
                for low, high, share, chance in zip(EDGES, EDGES[1:], shares, chances, strict=False)
            ]
    bin_columns = ["space", "title", "state", "density", "low", "high", "share", "random"]
    return pd.DataFrame(rows, columns=[*bin_columns, "mean", "null", "kept", "positions"])


@cache_shared(8)
def read_votes(measurement: StoredMeasurement) -> dict[tuple[str, float], NDArray[np.int64]]:
    """{(space, density): votes} of all linear layers together; shared, so never changed."""
    from merging.study.measurements.signs import read_counts

    return read_counts(measurements.measured_table(measurement, "votes"), measurement.notes["tasks"])


@cache_table
def read_agreement(measurement: StoredMeasurement, density: float) -> pd.DataFrame:
    """Agreement at one density, one row for each space and layer."""
    from merging.study.measurements.signs import SPACES

    rows = _read_rows_at_density(measurement, "agreement", density)
    return rows.assign(title=rows["space"].map(SPACES), excess=rows["mean"] - rows["null"])


@cache_table
def read_elections(measurement: StoredMeasurement, density: float) -> pd.DataFrame:
    """Elections at one density, one row for each layer and expert."""
    return add_election_shares(_read_rows_at_density(measurement, "elections", density))


def _read_rows_at_density(measurement: StoredMeasurement, name: str, density: float) -> pd.DataFrame:
    """The rows of a table at one density, with the facts of their layers."""
    rows, layers = (measurements.measured_table(measurement, table) for table in (name, "layers"))
    return rows[rows["density"] == density].merge(layers, on="order", validate="many_to_one")


def add_election_shares(rows: pd.DataFrame) -> pd.DataFrame:
    """Elections with their shares; these are NaN for layers whose experts keep no entry."""
    survivors = rows.groupby("tensor")["won"].transform("sum")
    return rows.assign(
        survived=rows["won"] / rows["kept"].where(rows["kept"] > 0), taken=rows["won"] / survivors.where(survivors > 0)
    )


def draw_view(run: Run) -> None:
    """Draw sign agreement of a run's experts, and a button that measures all layers if that is missing."""
    measurement = measurements.find_measurement(measurements.SIGNS, run.id)
    if measurement is None:
        measure_button.draw_missing(measurements.SIGNS, [run], NOT_MEASURED)
    draw_pictures(run, measurement)


@guarded_fragment
def draw_pictures(run: Run, measurement: StoredMeasurement | None) -> None:
    """Draw heat map, histogram and election; a click redraws only them."""
    with st.container(horizontal=True, gap="medium"):
        density = st.select_slider(
            "Density", DENSITIES, DEFAULT_DENSITY, key=address.DENSITY, bind=address.BIND, help=DENSITY_HELP, width=300
        )
        if measurement is not None:
            value = page_parts.pick_label("Color", AGREEMENT_METRICS, address.SIGN_METRIC, width=240)
    picture = st.container()  # the pickers are read before the picture above them is drawn
    with st.container(horizontal=True, gap="medium"):
        layer = linear_layers.pick_layer(run, None if measurement else linear_layers.find_middle_layer(run))
        cut = DEFAULT_RANK_CUT
        if layer:
            cut = st.slider(
                "Rank cut of this layer", 0.0, 0.1, DEFAULT_RANK_CUT, 0.005, format="%.3f", key=address.RANK_CUT,
                bind=address.BIND, help=RANK_CUT_HELP, width=240,
            )  # fmt: skip
    selection_pickers.draw_view_links("Conflicts", address.TENSOR, run=run.id)
    if measurement is not None:
        with picture:
            draw_heat_map(run, measurement, density, value, layer)
    draw_histogram(run, measurement, layer, density, cut)
    if measurement is not None:
        draw_election(run, measurement, density, layer)


def draw_heat_map(run: Run, measurement: StoredMeasurement, density: float, value: str, layer: str | None) -> None:
    """Draw agreement layer by layer."""
    table, selected = read_agreement(measurement, density), (None, layer)
    pruning_note = (
        f"Linear layers, pruned to {density:.0%}; rank cut of the joint spaces {measurement.notes['rank_tol']}."
    )
    chart_view.draw_chart(
        "sign_layers", table, name=f"signs_{density:g}", value=value, selected=selected,
        caption=f"{pruning_note} {measure_button.origin_in_words([measurement])}", sources=[run],
    )  # fmt: skip


def draw_histogram(
    run: Run, measurement: StoredMeasurement | None, layer: str | None, density: float, cut: float
) -> None:
    """Draw the histogram of one layer, or of all layers."""
    if layer:
        try:
            states = count_layer_signs(run, layer, density, cut)
        except CheckpointError as error:  # caught in this function, because a click redraws this fragment alone
            st.error(page_text.safe_text(error, 1000), icon=":material/error:")
            return
        ranks = " and ".join(
            f"{rank} ({direction})" for rank, direction in zip(states[0].ranks, ("H", "V"), strict=True)
        )
        counts, subject = {key: votes for state in states for key, votes in state.votes.items()}, layer
        rank_note = f"The joint spaces of this layer have {ranks} directions at rank cut {cut:g}. "
    elif measurement is not None:
        counts = read_votes(measurement)
        subject = f"all {measurement.notes['layers']} linear layers"
        rank_note = ""
    else:
        return
    short_subject = clean_text(subject.removeprefix("visual.transformer.resblocks."), 60)
    chart_view.draw_chart(
        "sign_histogram", build_histogram(counts, density), name=f"sign_agreement_{density:g}", what=short_subject,
        caption=f"{rank_note}{READING_NOTE}", sources=[run],
        claims=paper_line.claims_in_words("conflicts/signs"),
    )  # fmt: skip


def draw_election(run: Run, measurement: StoredMeasurement, density: float, layer: str | None) -> None:
    """Draw the experts' surviving entries layer by layer, and a table for the chosen layer or all layers."""
    chart_view.draw_question("election_layers")
    value = page_parts.pick_label("Show", ELECTION_METRICS, address.ELECTION_METRIC, width=300)
    table = read_elections(measurement, density)
    chart_view.draw_chart(
        "election_layers", table, name=f"election_{density:g}", question_drawn=True, value=value,
        selected=layer, experts=list(run.experts), caption=ELECTION_NOTE.format(density), sources=[run],
    )  # fmt: skip
    rows = sum_elections(table, layer).replace({"expert": expert_names.data_set_titles()})
    page_parts.draw_table(rows, "Entries that survive the election, by expert", ELECTION_COLUMNS)


def sum_elections(table: pd.DataFrame, layer: str | None) -> pd.DataFrame:
    """Kept and surviving entries by expert, for one layer or all layers together."""
    rows = table[table["tensor"] == layer] if layer else table
    shares = add_election_shares(
        rows.groupby("expert", sort=False)[["kept", "won"]].sum().reset_index().assign(tensor="")
    )
    return shares[["expert", "kept", "won", "survived", "taken"]]
