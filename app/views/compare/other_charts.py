"""Charts of the pages on one run other than heat maps, for two runs on the Compare page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import expert_names, measurements, page_data
from app.session import address
from app.views.compare.run_pair import RunPair
from app.views.compare.score_changes import make_file_suffix
from app.views.conflicts import joint_space, linear_layers, sign_agreement
from app.views.drift import by_depth
from app.widgets import chart_view, selection_pickers
from app.widgets.jobs import measure_button
from app.widgets.panels import put_back_panel
from merging.base.errors import CheckpointError, MergingError
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run, have_same_models
from viz.figure_text import plural, span

if TYPE_CHECKING:
    import pandas as pd

NOT_MEASURED = {
    measurements.DRIFT: "Feature drift has not been measured for",
    measurements.EXPERT_PAIRS: "Cosines have not been computed for the experts of",
    measurements.SIGNS: "Sign agreement has not been counted for the experts of",
}
NO_ACCURACY = "There is no task on which both runs and the expert were evaluated, so no difference is listed."
TENSOR_CAPTION = (
    "Dots are the saliency of each expert's task vector by the run's own score, or by LwPTV's if the run prunes no "
    "tensors; ticks are the thresholds of the experts' own masks. A filled dot: the run merges the expert's tensor. A "
    "and B share one axis."
)
SAME_SPACE = "Both runs merge the same experts, and the joint space depends on the experts only, so it is shown once."
TOO_FEW_EXPERTS = "A joint space needs several experts, and one of the runs has only one."


def find_measurements(key: str, runs: Sequence[Run]) -> dict[str, StoredMeasurement] | None:
    """{run id: measurement} with the key ``key``. If one is missing, draws a button that measures, and returns None."""
    results = {run.id: measurements.find_measurement(key, run.id) for run in runs}
    measured_by_run = {run_id: result for run_id, result in results.items() if result is not None}
    if unmeasured := {run.id: run for run in runs if run.id not in measured_by_run}:
        measure_button.draw_missing(key, list(unmeasured.values()), NOT_MEASURED[key], list(measured_by_run.values()))
        return None
    return measured_by_run


# Drift against accuracy lost


def draw_drift_and_accuracy(pair: RunPair) -> None:
    """Draw both runs in the same axes with an arrow from A to B for every task, and a table of the differences."""
    if (measured_by_run := find_measurements(measurements.DRIFT, pair.runs)) is None:
        return
    distance = by_depth.pick_distance()
    points = build_drift_points(pair, measured_by_run)
    images = "" if points.empty else by_depth.HALVES_NOTE.format(span(points["n"]), span(points["n_scored"]))
    chart_view.draw_chart(
        "drift_accuracy", points, name=f"drift_against_accuracy_{make_file_suffix(pair)}", value=distance, arrows=True,
        runs=list(measured_by_run), tasks=list(measurements.titles_by_task()), sources=pair.runs,
        caption=f"Every arrow points from A to B on one task. {images} "
        f"{measure_button.origin_in_words(list(measured_by_run.values()))}",
        heading="Drift against accuracy: where do the two runs differ?",
    )  # fmt: skip
    if (table := compare_drift(pair, points, distance)).empty:
        st.info(NO_ACCURACY)
    else:
        draw_changes(table)


def build_drift_points(pair: RunPair, measured_by_run: dict[str, StoredMeasurement]) -> pd.DataFrame:
    """A row for each run and task, for ``drift_accuracy``, labeled with the run's letter."""
    runs = {run.id: (run, measured_by_run[run.id]) for run in pair.runs}  # one entry if A is B
    points = measurements.drift_and_accuracy(list(runs.values()), page_data.stored_runs())
    letters = {pair.b.id: "B", pair.a.id: "A"} if pair.a.id != pair.b.id else {pair.a.id: "A and B"}
    return points.assign(label=points["run"].map(letters) + ": " + points["label"])


def compare_drift(pair: RunPair, points: pd.DataFrame, distance: str) -> pd.DataFrame:
    """Drift and points lost of both runs on their common tasks, and B − A; the largest change in loss first."""
    a, b = (points[points["run"] == run.id].set_index("task") for run in pair.runs)
    table = a[["title"]].copy()
    for name, value, scale in (("drift", distance, 1), ("lost", "lost", 100)):
        table[f"{name}_a"], table[f"{name}_b"] = scale * a[value], scale * b[value]
        table[name] = table[f"{name}_b"] - table[f"{name}_a"]
    order = table["lost"].abs().sort_values(ascending=False, kind="stable").index
    return table.loc[order].dropna().reset_index(drop=True)


def draw_changes(table: pd.DataFrame) -> None:
    """Draw the differences in words and as a table."""
    drifts_more, drifts_less = ((table["drift"] * sign > 0) for sign in (1, -1))
    loses_more, loses_less = ((table["lost"] * sign > 0) for sign in (1, -1))
    st.markdown(
        f"Of {plural(len(table), 'task')}, B drifts more than A on {int(drifts_more.sum())} and less on "
        f"{int(drifts_less.sum())}; it "
        f"loses more accuracy on {int(loses_more.sum())} and less on {int(loses_less.sum())}. Drift and loss change "
        f"in the same direction on {int(((drifts_more & loses_more) | (drifts_less & loses_less)).sum())}."
    )
    number = st.column_config.NumberColumn
    columns = {
        "title": st.column_config.TextColumn("Task", pinned=True),
        "drift": number("Drift, B − A", format="%+.3g"),
        "drift_a": number("Drift of A", format="%.3g"),
        "drift_b": number("Drift of B", format="%.3g"),
        "lost": number("Points lost, B − A", format="%+.1f"),
        "lost_a": number("Points lost by A", format="%.1f"),
        "lost_b": number("Points lost by B", format="%.1f"),
    }
    st.dataframe(
        table[list(columns)],
        hide_index=True,
        column_config=columns,
        alt="Drift and accuracy lost of both runs, task by task",
    )


# One tensor


def draw_tensor(pair: RunPair) -> None:
    """Draw the saliency of one tensor for every expert that both runs have: A, B, and B − A."""
    results = [read_saliency(run) for run in pair.runs]
    saliency_tables = [rows for rows in results if rows is not None]
    if len(saliency_tables) < 2:
        return
    tensors = [
        name for name in dict.fromkeys(saliency_tables[0]["tensor"]) if name in set(saliency_tables[1]["tensor"])
    ]
    tensor = selection_pickers.pick_selected(
        address.TENSOR, tensors, "Tensor", first=tensors[0] if tensors else None, width=380
    )
    if tensor is None:
        st.info("The two runs have no tensor in common.")
        return
    selection_pickers.draw_view_links("Compare", address.TENSOR, run=pair.a.id)
    table = compare_tensor(*(rows[rows["tensor"] == tensor] for rows in saliency_tables))
    chart_view.draw_chart(
        "compare_tensor", table, name=f"tensor_{make_file_suffix(pair)}", tensor=tensor, **pair.sides,
        sources=pair.runs, description=page_text.safe_text(tensor, 200), caption=TENSOR_CAPTION,
    )  # fmt: skip
    if len(table) and not table["difference"].any():
        st.markdown("Both runs give this tensor the same score for every expert.")
    number, check = st.column_config.NumberColumn, st.column_config.CheckboxColumn
    columns = {
        "expert": st.column_config.TextColumn("Expert", pinned=True),
        "difference": number("B − A", format="%.3e"),
        "a": number("A", format="%.3e"),
        "b": number("B", format="%.3e"),
        "merged_a": check("A merges it"),
        "merged_b": check("B merges it"),
    }
    alt = "Saliency of the chosen tensor for every expert in both runs"
    table_with_titles = table[list(columns)].replace({"expert": expert_names.data_set_titles()})
    st.dataframe(table_with_titles, hide_index=True, column_config=columns, alt=alt)
    side = st.segmented_control("Change it in", ("A", "B"), default="A", key="changed_side", required=True)
    put_back_panel.draw_panel(pair.runs["AB".index(side)], tensor, "compare")


def read_saliency(run: Run) -> pd.DataFrame | None:
    """A run's saliency and masks; without pruning, all tensors count as merged. None, and a notice, if unmeasurable."""
    try:
        table, has_pruned = page_data.saliency(run, page_data.stored_runs())
    except CheckpointError as error:
        st.info(
            f"The task vectors of {page_text.safe_text(run.name, 60)} cannot be measured: "
            f"{page_text.safe_text(error, 300)}"
        )
        return None
    return table if has_pruned else table.assign(final=True, threshold=float("nan"))


def compare_tensor(rows_a: pd.DataFrame, rows_b: pd.DataFrame) -> pd.DataFrame:
    """One tensor in both runs for every expert of both, for ``compare_tensor``."""
    stems = {"saliency": "", "threshold": "threshold_", "final": "merged_"}
    a, b = (
        rows[["expert", *stems]].rename(columns={name: f"{stem}{side}" for name, stem in stems.items()})
        for side, rows in (("a", rows_a), ("b", rows_b))
    )
    table = a.merge(b, on="expert")
    return table.assign(difference=table["b"] - table["a"])


# DRM's joint space


def draw_joint_space(pair: RunPair) -> None:
    """Draw the joint space of one layer: once if both runs merge the same experts, else both spectra and B − A."""
    if any(len(run.experts) < 2 for run in pair.runs):
        st.info(TOO_FEW_EXPERTS)
        return
    try:
        if have_same_models(pair.a, pair.b):
            st.info(SAME_SPACE)
            joint_space.draw_view(pair.a)
        else:
            draw_spectra(pair)
    except MergingError as error:
        st.error(page_text.safe_text(error, 1000), icon=":material/error:")


def draw_spectra(pair: RunPair) -> None:
    """Draw the singular values of both runs' experts in one layer, in the same axes, and their difference."""
    with st.container(horizontal=True, gap="medium"):
        layer = linear_layers.pick_layer(pair.a, linear_layers.find_middle_layer(pair.a))
        vertical = joint_space.pick_direction()
    if not layer or layer not in set(linear_layers.list_linear_layers(pair.b)["tensor"]):
        st.info("Choose a layer that both runs have.")
        return
    tables = []
    for run in pair.runs:
        if (decomposition := joint_space.decompose_or_offer(run, layer, vertical)) is None:
            return
        tables.append(
            joint_space.build_spectrum((run.id, layer, vertical), sign_agreement.DEFAULT_RANK_CUT, decomposition)
        )
    a, b = (
        rows[["direction", "value"]].rename(columns={"value": side}) for side, rows in zip("ab", tables, strict=True)
    )
    table = a.merge(b, on="direction", how="outer").sort_values("direction", ignore_index=True)
    counts = " and ".join(str(len(run.experts)) for run in pair.runs)
    chart_view.draw_chart(
        "compare_spectrum", table.assign(difference=table["b"] - table["a"]), name=f"spectra_{make_file_suffix(pair)}",
        **pair.sides, sources=pair.runs, description=page_text.safe_text(layer, 200),
        caption=f"Singular values of the matrices of {counts} experts of A and B, "
        f"{'stacked vertically' if vertical else 'side by side'}, in the same axes.",
    )  # fmt: skip
