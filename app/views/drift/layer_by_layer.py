"""One run on the Drift page, layer by layer: isolated drift, LOT's objective, ablation, and the share CAT removes."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import page_text
from app.reading import measurements, page_data, samples
from app.reading.measurements import MeasuredRuns
from app.session import address, pages
from app.session.click_errors import guarded_fragment
from app.views.drift import other_networks
from app.widgets import chart_view, page_parts, paper_line, run_picker, selection_pickers
from app.widgets.jobs import measure_button
from app.widgets.panels import network_panel, put_back_panel
from app.widgets.run_picker import pick_one
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import clean_text, span

# Label in pickers and links -> name in tables and charts.
DRIFT_METRICS = {"share of the output": "relative", "mean square": "mean_square"}
CONFLICT_METRICS = {
    "share of squared norm": "removed",
    "conflict, summed": "conflict_sum",
    "worst conflict": "conflict_top",
}
ISOLATED_NOTE = (
    "Each cell replaces only that tensor of the expert by the merged one, with the expert's own inputs (LOT, Eq. 4): "
    "the tensor's drift if no layer before it drifted."
)
OBJECTIVE_NOTE = (
    "LOT minimizes Σₖ ‖Xₖ(T − Tₖ)‖² of each layer over one merged task vector T for all tasks (Eq. 6); before the "
    "merge T is zero. LOT's own solution, without its scaling coefficient, is the minimum on the input directions "
    "above its cut-off; a merge that also moves in the others can be lower."
)
REMOVED_NOTE = (
    "For every task, CAT finds output directions of a matrix, or single scalars, in which the other task vectors "
    "disturb the task's outputs more than they serve their own tasks, and removes them. A conflict is the eigenvalue "
    "of such a direction or the score of such a scalar, in squared units of the layer's output. The share is of each "
    "task vector's squared norm."
)
FIRST_QUANTITIES = ("drift", "moved")  # of the map, the first one that is stored
ABLATION_OFFER = "Accuracy with each kind of parameter reset to the pretrained model has not been measured for"


def draw_view(pairs: MeasuredRuns) -> None:
    """Draw one run in detail; the chart of a single layer shows the other runs, too."""
    runs = [run for run, _ in pairs]
    run = pick_one(runs, ready=[run for run in runs if measurements.find_measurement(measurements.ABLATION, run.id)])
    network_panel.draw_panel(run, FIRST_QUANTITIES)
    measurement = next(measured for other_run, measured in pairs if other_run.id == run.id)
    draw_pictures(run, measurement, pairs)
    if not run.network:
        draw_ablation(run)
    page_parts.draw_page_link(pages.COMPARE, "Compare with another run", "compare", run=run.id)


def draw_unmeasured(runs: Sequence[Run]) -> None:
    """Draw one tensor of a run without measured drift: its picker, its other views, and the effect of restoring."""
    run = pick_one(runs)
    network_panel.draw_panel(run, FIRST_QUANTITIES)
    if run.network:
        return
    tensors = list(page_data.run_table(run.id, "tensors")["tensor"])
    tensor = selection_pickers.pick_selected(address.TENSOR, tensors, "Tensor", width=380)
    selection_pickers.draw_view_links("Drift", address.TENSOR, run=run.id)
    put_back_panel.draw_panel(run, tensor, "drift")


def pick_kind() -> str:
    """Draw the picker of one of ``measurements.TENSOR_KINDS``; returns its label."""
    return str(
        st.selectbox("Tensors", measurements.TENSOR_KINDS, key=address.TENSOR_KIND, bind=address.BIND, width=200)
    )


@guarded_fragment
def draw_pictures(run: Run, measurement: StoredMeasurement, pairs: MeasuredRuns) -> None:
    """Draw isolated drift, one layer of it, and the objective; a click redraws only them."""
    with st.container(horizontal=True, gap="medium"):
        kind = pick_kind()
        value = page_parts.pick_label("Color", DRIFT_METRICS, address.DRIFT_METRIC, width=210)
    table = measurements.layer_drift_table(run, measurement)
    tasks, tensors = (list(dict.fromkeys(table[name])) for name in ("task", "tensor"))
    picture = st.container()  # above the pickers, but drawn after them, because the chart needs their values
    with st.container(horizontal=True, gap="medium"):
        tensor = selection_pickers.pick_selected(address.TENSOR, tensors, "Tensor", width=380)
        task = selection_pickers.pick_selected(address.EXPERT, tasks, "Task", width=220)
    selection_pickers.draw_view_links("Drift", address.TENSOR, run=run.id)
    with picture:
        name, rows = f"drift_layers_{run.id[:8]}", measurements.tensors_of_kind(table, kind)
        chart_view.draw_chart(
            "drift_layers", rows, name=name, value=value, selected=(task, tensor),
            caption=f"{ISOLATED_NOTE} {_origin_in_words(run, measurement)}", sources=[run],
        )  # fmt: skip
    if tensor:
        layer_table, run_ids = measurements.one_tensor(pairs, tensor), [other_run.id for other_run, _ in pairs]
        counts, exemplars = sorted({other_run.notes.get("exemplars", 0) for _, other_run in pairs}), ""
        if len(counts) > 1:  # the chart compares these runs nevertheless
            exemplars = f"Every run uses the exemplars of its own recipe: n = {counts[0]} to {counts[-1]} per task."
        chart_view.draw_chart(
            "drift_tensor", layer_table, name="drift_tensor", tensor=tensor, selected=task, runs=run_ids,
            caption=exemplars, description=page_text.safe_text(tensor), sources=[other_run for other_run, _ in pairs],
        )  # fmt: skip
        if not run.network and st.button("Does putting it back help?", icon=":material/undo:", on_click=open_restoring):
            st.rerun()  # the whole page
    draw_objective(run, measurement, pairs, kind, tensor)


def open_restoring() -> None:
    """Callback: open the view "put back" with the same tensor."""
    st.session_state[address.DRIFT_VIEW] = "put back"


def draw_objective(
    run: Run, measurement: StoredMeasurement, pairs: MeasuredRuns, kind: str, tensor: str | None
) -> None:
    """Draw LOT's objective, which is defined for any run."""
    table = measurements.tensors_of_kind(measurements.lot_objective_table(run, measurement), kind)
    options = {"label": clean_text(run.name, 60), "run": run.id, "runs": [other.id for other, _ in pairs]}
    chart_view.draw_chart(
        "drift_objective", table, name=f"drift_objective_{run.id[:8]}", selected=tensor, **options,
        caption=f"{OBJECTIVE_NOTE} {_origin_in_words(run, measurement)} "
        f"{measurements.lot_spectrum_in_words(run)}".strip(),
        sources=[run],
    )  # fmt: skip


def _origin_in_words(run: Run, measurement: StoredMeasurement) -> str:
    if measurement.key == measurements.LAYER_DRIFT:  # of a network other than CLIP
        return other_networks.rows_in_words(measurement)
    exemplar_count, seed = measurement.notes["exemplars"], measurement.notes["exemplar_seed"]
    n = span((measurement.notes.get("fewest_exemplars", exemplar_count), exemplar_count))
    reuse_note = ", those that the merge used" if run.recipe and run.recipe.exemplars else ""
    return (
        f"n = {n} exemplars per task (training images), seed {seed}{reuse_note}. "
        f"{measure_button.origin_in_words([measurement])}"
    )


def draw_ablation(run: Run) -> None:
    """Draw LOT's Table 7 for this run, which is measured on request."""
    st.header("Which kind of parameter carries the merge?", anchor=False)
    measurement = measurements.find_measurement(measurements.ABLATION, run.id)
    if measurement is None:
        measure_button.draw_missing(measurements.ABLATION, [run], ABLATION_OFFER)
        return
    table = measurements.ablation_table(measurement)
    number_columns = {
        name: st.column_config.NumberColumn(name, format="%.1f%%") for name in table.columns if name != "kind"
    }
    label_column = {"kind": st.column_config.TextColumn("Reset to pretrained", pinned=True)}
    page_parts.draw_table(
        table, "Accuracy by the parameters that are reset to pretrained", label_column | number_columns
    )
    images = span(measurements.measured_table(measurement, measurements.ABLATION)["n"])
    st.caption(
        f"In-domain accuracy on the {samples.scored_part()}, n = {images} images per task (LOT, Table 7, "
        f"which does not state in which group it counts embeddings). {measure_button.origin_in_words([measurement])}"
    )
    paper_line.draw_claims(paper_line.claims_in_words("drift/ablation"), [run])


def draw_removed(runs: Sequence[Run]) -> None:
    """Draw the parts of one run's task vectors that CAT removed."""
    run = pick_one(runs)
    with st.container(horizontal=True, gap="medium"):
        kind = pick_kind()
        value = page_parts.pick_label("Color", CONFLICT_METRICS, address.CONFLICT_METRIC, width=210)
    table = measurements.tensors_of_kind(measurements.removed_conflicts(run), kind)
    exemplars = run.recipe.exemplars if run.recipe else None
    images = (
        f"n = {exemplars.per_task} exemplars per task (training images), seed {exemplars.seed}. " if exemplars else ""
    )
    caption = f"{REMOVED_NOTE} {images}Recorded while the run was merged. {run_picker.run_badges(run)}"
    chart_view.draw_chart(
        "drift_removed", table, name=f"cat_{run.id[:8]}", value=value, caption=caption, sources=[run]
    )  # fmt: skip
