"""The charts of the pages on one run, drawn for two runs: A, B and their difference, in one range of colors.

A ``ComparisonChart`` states its number, the measurement that it needs, and the function of one run's cells (see
``chart_cells``); all charts share the drawing code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import measurements
from app.session import address, pages, selection
from app.views.compare import chart_cells, feature_changes, other_charts
from app.views.compare.chart_cells import ChartCells
from app.views.compare.run_pair import RunPair
from app.views.compare.score_changes import make_file_suffix
from app.widgets import chart_view, page_parts
from app.widgets.jobs import measure_button
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run, have_same_models
from viz.figure_text import plural

if TYPE_CHECKING:
    import pandas as pd

MAX_DIFFERENCES = 10  # differences in the table


@dataclass(frozen=True, kw_only=True)
class ComparisonChart:
    """A heat map of two runs.

    ``needed_measurement`` is the key of a measurement, or empty if the runs' tables suffice.
    """

    make_cells: Callable[[Run, StoredMeasurement | None], ChartCells]
    value_title: str  # the name of the number in a cell
    row_title: str
    note: str
    page: tuple[str, str]  # path and name of the page with the same chart of one run
    needed_measurement: str = ""
    columns_title: str = "Tensors"
    in_percent: bool = True
    log_scale: bool = False
    limits: tuple[float, float] | None = None  # the range of colors; None for the range of the values
    depends_on_experts_only: bool = False  # whether all runs on the same experts have the same chart
    # Makes the cells of B from A's measurement, if B is the pretrained model.
    make_pretrained_cells: Callable[[Run, StoredMeasurement | None], ChartCells] | None = None


HEAT_MAPS = {  # name in the picker and in links -> the chart
    "kept share": ComparisonChart(
        make_cells=chart_cells.kept_cells, value_title="share of scalars", row_title="Model", limits=(0.0, 1.0),
        page=(pages.MASKS, "Masks"),
        note="The share of each tensor's scalars in which the merged model differs from the pretrained one, before "
        "rounding to the checkpoint's data type.",
    ),
    "change of the weights": ComparisonChart(
        make_cells=chart_cells.changed_cells, value_title="change of the norm", row_title="Model", log_scale=True,
        page=(pages.MASKS, "Masks"),
        note="The norm of merged minus pretrained weights over that of the pretrained ones, tensor by tensor.",
    ),
    "masks": ComparisonChart(
        make_cells=chart_cells.mask_cells, value_title="merged", row_title="Expert", limits=(0.0, 1.0),
        in_percent=False, page=(pages.MASKS, "Masks"),
        note="1 where an expert's tensor is merged, 0 where it is dropped.",
    ),
    "saliency": ComparisonChart(
        make_cells=chart_cells.saliency_cells, value_title="saliency", row_title="Expert", log_scale=True,
        in_percent=False, page=(pages.MASKS, "Masks"),
        note="Saliency of the task vectors as the run scored them when it pruned; for runs that prune no tensors, by "
        "LwPTV's score.",
    ),
    "drift by depth": ComparisonChart(
        make_cells=chart_cells.drift_cells, value_title="1 − cosine", row_title="Task", columns_title="Places",
        in_percent=False,
        needed_measurement=measurements.DRIFT, make_pretrained_cells=chart_cells.pretrained_drift_cells,
        page=(pages.DRIFT, "Drift"),
        note="1 − cosine between the class token of the model and that of the task's own expert after every part of "
        "the network.",
    ),
    "layer-isolated drift": ComparisonChart(
        make_cells=chart_cells.isolated_cells, value_title="share of the output", row_title="Task", log_scale=True,
        needed_measurement=measurements.DRIFT, page=(pages.DRIFT, "Drift"),
        note="How far a tensor's output moves if only that tensor of the expert is replaced by the merged one (LOT, "
        "Eq. 4).",
    ),
    "LOT's objective": ComparisonChart(
        make_cells=chart_cells.objective_cells, value_title="share of the value before", row_title="Model",
        log_scale=True, needed_measurement=measurements.DRIFT,
        page=(pages.DRIFT, "Drift"),
        note="What LOT minimizes (Eq. 6) after the merge, over its value for the pretrained weights; above 100% the "
        "merge is farther from the experts than the pretrained model is.",
    ),
    "what CAT removes": ComparisonChart(
        make_cells=chart_cells.removed_cells, value_title="share of squared norm", row_title="Expert",
        limits=(0.0, 1.0), page=(pages.DRIFT, "Drift"),
        note="The share of each task vector's squared norm that the edit CAT projects out.",
    ),
    "sign agreement": ComparisonChart(
        make_cells=chart_cells.sign_cells, value_title="excess over random signs", row_title="Space",
        needed_measurement=measurements.SIGNS, depends_on_experts_only=True, page=(pages.CONFLICTS, "Conflicts"),
        note="Agreement of the experts' signs in excess of random signs, each matrix trimmed to its largest 20%.",
    ),
    "who wins the election": ComparisonChart(
        make_cells=chart_cells.election_cells, value_title="share that survives", row_title="Expert", limits=(0.0, 1.0),
        needed_measurement=measurements.SIGNS, depends_on_experts_only=True, page=(pages.CONFLICTS, "Conflicts"),
        note="The share of an expert's entries whose sign is elected (as in TIES), each matrix trimmed to its largest "
        "20%.",
    ),
    "experts against experts": ComparisonChart(
        make_cells=chart_cells.pair_cells, value_title="cosine", row_title="Pair", in_percent=False,
        needed_measurement=measurements.EXPERT_PAIRS, depends_on_experts_only=True,
        page=(pages.CONFLICTS, "Conflicts"),
        note="Cosine of the task vectors of every two experts, tensor by tensor.",
    ),
}  # fmt: skip
DISTANCE = "distance to pretrained"
OWN_FIGURES = {  # charts with a figure of their own: name -> function
    "saliency of one tensor": other_charts.draw_tensor,
    "drift against accuracy": other_charts.draw_drift_and_accuracy,
    "joint space of DRM": other_charts.draw_joint_space,
}
FEATURE_CHARTS = {  # charts of features: name -> function
    DISTANCE: feature_changes.draw_distance,
    "feature maps": feature_changes.draw_maps,
}


def list_offered_charts(pair: RunPair) -> tuple[str, ...]:
    """The names of the charts that A and B both have; a model that was not merged has no masks or merged tensors."""
    if not pair.is_reference:
        return (*HEAT_MAPS, *OWN_FIGURES, *FEATURE_CHARTS)
    if pair.b.kind != measurements.PRETRAINED:
        return tuple(FEATURE_CHARTS)
    names = (name for name, comparison in HEAT_MAPS.items() if comparison.make_pretrained_cells)
    return (
        *names,
        *(name for name in FEATURE_CHARTS if name != DISTANCE),
    )  # the pretrained model's distance to itself is zero


def draw_view(pair: RunPair) -> None:
    """Draw the chosen chart."""
    name = st.selectbox("Chart", list_offered_charts(pair), key=address.CHART, bind=address.BIND, width=320)
    if draw := (OWN_FIGURES | FEATURE_CHARTS).get(name):
        draw(pair)
    else:
        draw_heat_maps(pair, name, HEAT_MAPS[name])


def draw_heat_maps(pair: RunPair, name: str, comparison: ComparisonChart) -> None:
    """Draw three heat maps and the largest differences, or a notice of what is missing for them."""
    if comparison.depends_on_experts_only and have_same_models(pair.a, pair.b):
        st.info("Both runs merge the same experts, and this chart depends only on these, so it shows no difference.")
        return
    measurable = (pair.a,) if pair.is_reference else pair.runs  # only merges; B may be a reference model
    measured_by_run = (
        other_charts.find_measurements(comparison.needed_measurement, measurable)
        if comparison.needed_measurement
        else {}
    )
    if measured_by_run is None:
        return
    cells_a = comparison.make_cells(pair.a, measured_by_run.get(pair.a.id))
    if pair.is_reference and comparison.make_pretrained_cells:
        cells_b = comparison.make_pretrained_cells(pair.a, measured_by_run.get(pair.a.id))
    else:
        cells_b = comparison.make_cells(pair.b, measured_by_run.get(pair.b.id))
    if cells_a.table is None or cells_b.table is None:
        draw_missing(pair, cells_a, cells_b)
        return
    table, left_out = join_cells(cells_a.table, cells_b.table)
    options = {
        "unit": comparison.row_title,
        "over": comparison.columns_title,
        "percents": comparison.in_percent,
        "log": comparison.log_scale,
    }
    limits = comparison.limits or find_value_range(table, comparison.log_scale)
    caption = " ".join(
        [
            comparison.note,
            colors_in_words(limits, comparison),
            *origin_in_words(measured_by_run),
            *missing_cells_in_words(left_out),
        ]
    )
    chart_view.draw_chart(
        "compare_cells", table, name=f"{name}_{make_file_suffix(pair)}", labels=pair.labels,
        what=comparison.value_title, limits=limits, caption=caption, sources=pair.runs,
        selected=selection.mark_value(selection.TENSOR),
        heading=f"{name[0].upper()}{name[1:]}: where do the two runs differ?", **options,
    )  # fmt: skip
    draw_largest(table, comparison)
    with st.container(horizontal=True):
        for letter, run in zip("AB", measurable, strict=False):
            query = {"runs": run.id} if comparison.page[0] == pages.DRIFT else {"run": run.id}
            page_parts.draw_page_link(comparison.page[0], f"{comparison.page[1]} of {letter}", "open_in_new", **query)


def draw_missing(pair: RunPair, cells_a: ChartCells, cells_b: ChartCells) -> None:
    """Draw a notice of why a run has no cells, with a link to merge another one."""
    reasons = {
        run.id: f"**{letter}, {page_text.safe_text(run.name, 60)}**, {page_text.safe_text(rows.reason, 400)}."
        for letter, run, rows in zip("AB", pair.runs, (cells_a, cells_b), strict=True)
        if rows.table is None
    }
    page_parts.draw_empty(" ".join(reasons.values()), "Merge experts", pages.MERGE)


def join_cells(cells_a: pd.DataFrame, cells_b: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The cells that both runs have, with columns a and b, and the number of cells that only one run has."""
    keys = ["row", "tensor"]
    common_cells = cells_a.rename(columns={"value": "a"}).merge(
        cells_b[[*keys, "value"]].rename(columns={"value": "b"}), on=keys
    )
    return common_cells.assign(difference=common_cells["b"] - common_cells["a"]), len(cells_a) + len(cells_b) - 2 * len(
        common_cells
    )


def find_value_range(table: pd.DataFrame, log: bool) -> tuple[float, float]:
    """The range of both runs' values: smallest to largest on a logarithmic scale, else including zero."""
    import numpy as np

    values = table[["a", "b"]].to_numpy(float)
    finite_values = values[np.isfinite(values)]
    positive_values = finite_values[finite_values > 0]
    if log:
        return (float(positive_values.min()), float(positive_values.max())) if len(positive_values) else (0.0, 1.0)
    return min(0.0, float(finite_values.min(initial=0.0))), float(finite_values.max(initial=0.0)) or 1.0


def colors_in_words(limits: tuple[float, float], comparison: ComparisonChart) -> str:
    """A sentence on the meaning of the colors."""
    low, high = (f"{100 * end:.3g}%" if comparison.in_percent else f"{end:.3g}" for end in limits)
    scale = ", on a logarithmic scale" if comparison.log_scale else ""
    return f"A and B share one range of colors, {low} to {high}{scale}; in the difference white is zero."


def origin_in_words(measured_by_run: Mapping[str, StoredMeasurement]) -> list[str]:
    """Sentences on the origin of measured numbers, and on the numbers of exemplars if those of A and B differ."""
    all_measured = list(measured_by_run.values())
    counts = [str(measurement.notes["exemplars"]) for measurement in all_measured if "exemplars" in measurement.notes]
    exemplars = [f"n = {' and '.join(counts)} exemplars per task for A and B."] if len(set(counts)) > 1 else []
    return [*exemplars, measure_button.origin_in_words(all_measured)] if all_measured else []


def missing_cells_in_words(count: int) -> list[str]:
    """A list with one sentence on the cells that are left out; empty if none is."""
    return [f"{plural(count, 'cell')} that only one run has {'is' if count == 1 else 'are'} left out."] if count else []


def draw_largest(table: pd.DataFrame, comparison: ComparisonChart) -> None:
    """Draw the cells in which the runs differ most."""
    differences = table["difference"].abs()
    rows = table.loc[differences[differences > 0].nlargest(MAX_DIFFERENCES).index]
    if rows.empty:
        st.markdown("**The two runs do not differ in any cell.**")
        return
    higher, lower = (int((sign * table["difference"] > 0).sum()) for sign in (1, -1))
    st.markdown(
        f"They differ in {higher + lower:,} of {len(table):,} cells: B is higher in {higher:,} and lower in {lower:,}. "
        "The largest differences:"
    )
    shown_rows = rows.assign(
        **{key: (100 if comparison.in_percent else 1) * rows[key] for key in ("a", "b", "difference")}
    )
    number_format = "%.2f%%" if comparison.in_percent else "%.3g"
    number = st.column_config.NumberColumn
    st.dataframe(
        shown_rows[["title", "difference", "a", "b", "tensor"]],
        hide_index=True,
        column_config={
            "title": comparison.row_title,
            "tensor": st.column_config.TextColumn(comparison.columns_title.removesuffix("s"), width="large"),
            "a": number("A", format=number_format),
            "b": number("B", format=number_format),
            "difference": number(
                "B − A, points" if comparison.in_percent else "B − A",
                format="%+.2f" if comparison.in_percent else "%+.3g",
            ),
        },
        alt="Cells in which the two runs differ most",
    )
