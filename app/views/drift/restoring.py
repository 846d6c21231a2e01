"""Restoring tensors on the Drift page ("put back"): the effect of giving a tensor its pretrained weights again.

The true map shows measured changes of accuracy, the first-order map their prediction from one gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import measurements, page_data, restored_tensors
from app.session import address, selection
from app.session.click_errors import guarded_fragment
from app.widgets import chart_view, page_parts, selection_pickers
from app.widgets.jobs import measure_button
from app.widgets.panels import network_panel, put_back_panel
from app.widgets.run_picker import pick_one
from merging.images.benchmarks.paired_scores import IN_DOMAIN, OUT_OF_DOMAIN
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import count, plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

FIRST_QUANTITIES = ("put_back_out", "first_order_out", "drift")  # of the map, the first one that is stored
POLL_SECONDS = 3.0  # between two updates of a running measurement
MAX_TENSORS = 5  # tensors in the table
NOT_MEASURED = "The effect of putting each layer back has not been measured for"
PREDICTION_OFFER = (
    "The first-order map needs one gradient, which takes about as long as a few evaluations of the sample. It has not "
    "been measured for"
)
NO_DRIFT = "The comparison with drift needs feature drift, which has not been measured for"
PREDICTION_NOTE = (
    "One gradient predicts the change of the mean margin, which is the cosine of the right class minus the largest "
    "other one. Its unit differs from that of accuracy, and the prediction is good only for small steps."
)
WEIGHT_NOTE = "λ of each tensor is the weight with which the sum of the task vectors fits the merged one best."


def draw_view(runs: Sequence[Run]) -> None:
    """Draw the effect of restoring each tensor of one run."""
    run = pick_one(
        runs, ready=[run for run in runs if measurements.find_measurement(measurements.RESET_TO_PRETRAINED, run.id)]
    )
    network_panel.draw_panel(run, FIRST_QUANTITIES)
    if run.recipe is None:
        st.info("This run is not a merge, so there is nothing to put back.")
        return
    measurement = measurements.find_measurement(measurements.RESET_TO_PRETRAINED, run.id)
    # Exactly one element is above the fragment, with or without the measurement. Otherwise Streamlit would identify
    # the fragment differently once the measurement is stored, and would lose a click made in the meantime.
    offer_slot = st.container()
    if measurement is None:
        with offer_slot:
            draw_offer(run)
    draw_maps(run, measurement)


def draw_offer(run: Run) -> None:
    """Draw the button that measures, and the map so far while the job is running."""
    measure_button.draw_missing(measurements.RESET_TO_PRETRAINED, [run], NOT_MEASURED)
    if any(
        job.is_live and (job.kind, job.subject) == (measurements.RESET_TO_PRETRAINED, run.id)
        for job in page_data.job_queue().list_benchmark_jobs()
    ):
        guarded_fragment(draw_partial_map, POLL_SECONDS)(run)


def draw_partial_map(run: Run) -> None:
    """Draw the map so far of a running measurement."""
    partial = restored_tensors.partial_result(run)
    if partial is None or partial.tables["changes"].empty:
        st.caption("The first results appear after the embeddings were put back.")
        return
    changes = partial.tables["changes"]
    tensor_count = int((changes.drop_duplicates(["level", "name"])["level"] == "tensor").sum())
    caption = f"So far, {plural(tensor_count, 'tensor')}. {images_in_words(partial.notes, changes)}"
    chart_view.draw_chart(
        "revert_map",
        restored_tensors.revert_cells(run, changes),
        name=f"put_back_{run.id[:8]}",
        caption=caption,
        sources=[run],
    )


@guarded_fragment
def draw_maps(run: Run, measurement: StoredMeasurement | None) -> None:
    """Draw the maps with the picker of one tensor, and its panel; a click redraws only them."""
    tensors = list(page_data.run_table(run.id, "tensors")["tensor"])
    changes = None if measurement is None else measurements.measured_table(measurement, "changes")
    picture = st.container()  # above the picker, but drawn after it, because the chart needs its value
    tensor = selection_pickers.pick_selected(address.TENSOR, tensors, "Tensor", width=380)
    selection_pickers.draw_view_links("Drift", address.TENSOR, run=run.id)
    if measurement is not None and changes is not None:
        with picture:
            draw_true_map(run, measurement, changes, tensor)
    put_back_panel.draw_panel(run, tensor, "drift")
    if changes is not None:
        draw_ranks(run, changes, tensor)
    draw_predicted_map(run, changes, tensor)


def draw_true_map(run: Run, measurement: StoredMeasurement, changes: pd.DataFrame, tensor: str | None) -> None:
    """Draw the map, and tables of whole blocks, kinds, and the largest gains."""
    caption = f"{images_in_words(measurement.notes, changes)} {measure_button.origin_in_words([measurement])}"
    chart_view.draw_chart(
        "revert_map", restored_tensors.revert_cells(run, changes), name=f"put_back_{run.id[:8]}",
        selected=(None, tensor), caption=caption, sources=[run],
    )  # fmt: skip
    with st.grid(2, min_column_width=380):
        with st.container():
            st.markdown("**Whole blocks and kinds put back**, points (95% interval)")
            draw_changes(
                restored_tensors.change_averages(changes, ("block", "kind")), "Accuracy with blocks and kinds put back"
            )
        with st.container():
            st.markdown(f"**The {MAX_TENSORS} tensors with the largest gain**, points (95% interval)")
            draw_changes(
                restored_tensors.change_averages(changes, ("tensor",), MAX_TENSORS),
                "The tensors with the largest gain when put back",
            )


def draw_changes(table: pd.DataFrame, alt: str) -> None:
    """Draw a table of changes in points with their intervals."""
    columns = {"name": st.column_config.TextColumn("Put back", width="medium")}
    height = page_parts.table_height(len(table), 480)
    page_parts.draw_table(table, alt, columns, height)


def images_in_words(notes: Mapping[str, Any], changes: pd.DataFrame) -> str:
    """The images, the seed, and the number of intervals that exclude zero by chance."""
    intervals = len(changes)
    return (
        f"Each change is made and evaluated. n = {count(notes['n_in'])} images in domain and {count(notes['n_out'])} "
        f"out of domain of the {notes['split']} half, sampled with seed {notes['sample_seed']}, the same for every "
        f"change; paired bootstrap with {count(notes['resamples'])} resamples. Of {count(intervals)} intervals, about "
        f"{count(intervals / 20)} would exclude zero by chance alone."
    )


def pick_domain(changes: pd.DataFrame) -> str:
    """Draw the picker of a domain; returns the chosen domain."""
    domains = [domain for domain in (OUT_OF_DOMAIN, IN_DOMAIN) if domain in set(changes["over"])]
    return page_parts.pick_button("Accuracy", domains, address.DOMAIN)


def draw_ranks(run: Run, changes: pd.DataFrame, tensor: str | None) -> None:
    """Draw ranks by drift against ranks by the gain of restoring, and the first tensor of both."""
    from merging.study.analysis.correlation import fit_line

    chart_view.draw_question("drift_and_put_back")
    drift = measurements.find_measurement(measurements.DRIFT, run.id)
    if drift is None:
        measure_button.draw_missing(measurements.DRIFT, [run], NO_DRIFT)
        return
    domain = pick_domain(changes)
    table = restored_tensors.drift_and_change(run, drift, changes, domain)
    if table.empty:
        return
    fit = fit_line(table["drift"].to_numpy(float), table["change"].to_numpy(float))
    draw_first_tensors(table, domain)
    chart_view.draw_chart(
        "drift_and_put_back", table, name=f"drift_and_put_back_{run.id[:8]}", question_drawn=True,
        correlation=(fit.spearman, fit.n), over=domain, selected=tensor, sources=[run],
        caption="Isolated drift of a layer, a mean over tasks, is a correlation; putting back is an intervention. "
        f"n = {count(table['n'].max())} images {domain}. {measure_button.origin_in_words([drift])}",
    )  # fmt: skip


def draw_first_tensors(table: pd.DataFrame, domain: str) -> None:
    """Draw the tensor that drifts most and the one that helps most, with their ranks and buttons that choose them."""
    most_drifting, most_helpful = table.loc[table["drift"].idxmax()], table.loc[table["change"].idxmax()]
    tensor_count = plural(len(table), "tensor")
    st.markdown(
        f"**{page_text.safe_text(most_drifting['tensor'], 100)}** drifts most; by the gain {domain} of putting it "
        f"back, its rank is {most_drifting['change_rank']:g} of {tensor_count}. "
        f"**{page_text.safe_text(most_helpful['tensor'], 100)}** helps most if it is "
        f"put back; by drift, its rank is {most_helpful['drift_rank']:g}. Equal numbers share a mean rank."
    )
    with st.container(horizontal=True):
        for label, key, row in (("drifts", "drifts_most", most_drifting), ("helps", "helps_most", most_helpful)):
            st.button(
                f"Choose the one that {label} most", key=key, on_click=selection.choose_value,
                args=(address.TENSOR, row["tensor"]),
            )  # fmt: skip


def draw_predicted_map(run: Run, changes: pd.DataFrame | None, tensor: str | None) -> None:
    """Draw the first-order map, and its rank correlation with the true map if that is known."""
    chart_view.draw_question("first_order_map")
    measurement = measurements.find_measurement(measurements.RESET_FIRST_ORDER, run.id)
    if measurement is None:
        measure_button.draw_missing(measurements.RESET_FIRST_ORDER, [run], PREDICTION_OFFER)
        return
    prediction = st.selectbox(
        "Predict", restored_tensors.PREDICTIONS, key=address.PREDICTION, bind=address.BIND, width=420
    )
    table = restored_tensors.predicted_cells(run, measurement, prediction)
    if changes is not None:
        st.markdown(correlations_in_words(restored_tensors.rank_correlations(measurement, changes)))
    notes = measurement.notes
    chart_view.draw_chart(
        "first_order_map", table, name=f"first_order_{run.id[:8]}", question_drawn=True,
        selected=(None, tensor), sources=[run], description=f"Predicted for {prediction}.",
        caption=f"{PREDICTION_NOTE} {WEIGHT_NOTE} n = {count(notes['n_in'])} images in domain and "
        f"{count(notes['n_out'])} out of domain of the {notes['split']} half, seed {notes['sample_seed']}. "
        f"{measure_button.origin_in_words([measurement])}",
    )  # fmt: skip


def correlations_in_words(correlations: Sequence[restored_tensors.RankCorrelation]) -> str:
    """A sentence on the rank correlation of the first-order map with the true map; Markdown."""
    parts = [
        f"**{rho.accuracy:.2f}** with accuracy and **{rho.margin:.2f}** with the mean margin {rho.over}"
        for rho in correlations
        if math.isfinite(rho.accuracy) and math.isfinite(rho.margin)
    ]
    if not parts:
        return "The ranks of both maps cannot be compared: one of them does not vary."
    n = plural(correlations[0].n, "tensor")
    return f"Rank correlation (Spearman's ρ) of the first-order map with the measured one over {n}: {'; '.join(parts)}."
