"""One run on the Drift page, layer by layer: isolated drift, LOT's objective, ablation, and what CAT removes."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import text
from app.reading import data, measurements, samples
from app.reading.measurements import Pairs
from app.session import address, pages, selection
from app.session.clicks import fragment
from app.views.drift import of_networks
from app.widgets import chart, page, paper_line, put_back_panel, run_picker, selected
from app.widgets.jobs import measure_button
from app.widgets.run_picker import pick_one
from merging.study.analysis.stored import Measured
from merging.study.runs.run import Run
from viz.text import clean_text, span

# Label in pickers and links -> name in tables and charts.
CELLS = {"share of the output": "relative", "mean square": "mean_square"}
CONFLICTS = {"share of squared norm": "removed", "conflict, summed": "conflict_sum", "worst conflict": "conflict_top"}
HOW = "Click a cell, or choose"
ISOLATED = (
    "Each cell replaces only that tensor of the expert by the merged one, and keeps the expert's own inputs (LOT, Eq. "
    "4): the tensor's drift if nothing before it drifted."
)
MINIMIZED = (
    "LOT minimizes Σₖ ‖Xₖ(T − Tₖ)‖² of each layer over one merged task vector T for all tasks (Eq. 6); before the "
    "merge T is zero. LOT's own solution, without its scaling coefficient, is the minimum on the input directions "
    "above its cut-off; a merge that also moves in the others can be lower."
)
REMOVED = (
    "For every task CAT finds output directions of a matrix, or single scalars, in which the other task vectors "
    "disturb the task's outputs more than they serve their own; those are removed. A conflict is the eigenvalue of "
    "such a direction or the score of such a scalar, in squared units of the layer's output. The share is that of each "
    "task vector's squared norm."
)
ABLATED = "Accuracy with each kind of parameter reset to the pretrained model has not been measured for"


def view(pairs: Pairs) -> None:
    """One run in detail; the chart of a single layer shows the others, too."""
    run = pick_one([run for run, _ in pairs])
    measurement = next(one for other, one in pairs if other.id == run.id)
    pictures(run, measurement, pairs)
    if not run.network:
        ablation(run)
    page.open_page(pages.COMPARE, "Compare with another run", "compare", run=run.id)


def unmeasured(runs: Sequence[Run]) -> None:
    """One tensor of a run whose drift is not measured: its picker, its other views, and what putting back does."""
    run = pick_one(runs)
    if run.network:
        return
    tensors = list(data.table(run.id, "tensors")["tensor"])
    tensor = selected.pick(address.TENSOR, tensors, "Tensor", placeholder="Choose a tensor", width=380)
    selected.doors("Drift", address.TENSOR, run=run.id)
    put_back_panel.show(run, tensor, "drift")


def choose_cell() -> None:
    """Callback of a click: the cell's task and tensor go into their pickers."""
    if cell := chart.clicked("drift_layers"):
        selection.choose(address.TENSOR, cell["tensor"])
        selection.choose(address.EXPERT, cell["task"])


def pick_kind() -> str:
    """The picker of one of ``measurements.KINDS``."""
    return str(st.selectbox("Tensors", measurements.KINDS, key=address.TENSOR_KIND, bind=address.BIND, width=200))


@fragment
def pictures(run: Run, measurement: Measured, pairs: Pairs) -> None:
    """Isolated drift, one layer of it, and the objective; a click redraws only them."""
    with st.container(horizontal=True, gap="medium"):
        kind = pick_kind()
        value = CELLS[st.selectbox("Color", CELLS, key=address.DRIFT_METRIC, bind=address.BIND, width=210)]
    table = measurements.layers(run, measurement)
    tasks, tensors = (list(dict.fromkeys(table[name])) for name in ("task", "tensor"))
    picture = st.container()  # the pickers are read before the picture above them is drawn
    with st.container(horizontal=True, gap="medium"):
        tensor = selected.pick(address.TENSOR, tensors, "Tensor", placeholder=HOW, width=380)
        task = selected.pick(address.EXPERT, tasks, "Task", width=220)
    selected.doors("Drift", address.TENSOR, run=run.id)
    with picture:
        name, rows = f"drift_layers_{run.id[:8]}", measurements.of_kind(table, kind)
        chart.chart(
            "drift_layers", rows, name=name, on_click=choose_cell, value=value, selected=(task, tensor),
            caption=f"{ISOLATED} {_exemplars(run, measurement)}", of=[run],
        )  # fmt: skip
    if tensor:
        one, colors = measurements.one_tensor(pairs, tensor), [other.id for other, _ in pairs]
        counts, exemplars = sorted({other.notes.get("exemplars", 0) for _, other in pairs}), ""
        if len(counts) > 1:  # the chart compares them nevertheless
            exemplars = f"Every run on the exemplars of its own recipe: n = {counts[0]} to {counts[-1]} per task."
        chart.chart(
            "drift_tensor", one, name="drift_tensor", tensor=tensor, selected=task, runs=colors, caption=exemplars,
            description=text.safe_text(tensor), of=[other for other, _ in pairs],
        )  # fmt: skip
        if not run.network and st.button("Does putting it back help?", icon=":material/undo:", on_click=show_put_back):
            st.rerun()  # the whole page
    objective(run, measurement, pairs, kind, tensor)


def show_put_back() -> None:
    """Callback: the same tensor in the view of what putting back gives."""
    st.session_state[address.DRIFT_VIEW] = "put back"


def objective(run: Run, measurement: Measured, pairs: Pairs, kind: str, tensor: str | None) -> None:
    """LOT's objective for any run."""
    table = measurements.of_kind(measurements.objective(run, measurement), kind)
    options = {"label": clean_text(run.name, 60), "run": run.id, "runs": [other.id for other, _ in pairs]}
    chart.chart(
        "drift_objective", table, name=f"drift_objective_{run.id[:8]}", selected=tensor, **options,
        caption=f"{MINIMIZED} {_exemplars(run, measurement)} {measurements.spectrum(run)}".strip(), of=[run],
    )  # fmt: skip


def _exemplars(run: Run, measurement: Measured) -> str:
    if measurement.key == measurements.LAYER_DRIFT:
        return of_networks.rows(measurement)
    most, seed = measurement.notes["exemplars"], measurement.notes["exemplar_seed"]
    n = span((measurement.notes.get("fewest_exemplars", most), most))
    seen = ", the ones that the merge used" if run.recipe and run.recipe.exemplars else ""
    return f"n = {n} exemplars per task (training images), seed {seed}{seen}. {measure_button.origin([measurement])}"


def ablation(run: Run) -> None:
    """LOT's Table 7 for this run, measured on request."""
    st.header("Which kind of parameter carries the merge?", anchor=False)
    measurement = measurements.find(measurements.ABLATION, run.id)
    if measurement is None:
        measure_button.missing(measurements.ABLATION, [run], ABLATED)
        return
    table = measurements.ablation(measurement)
    numbers = {name: st.column_config.NumberColumn(name, format="%.1f%%") for name in table.columns if name != "kind"}
    first = {"kind": st.column_config.TextColumn("Left as pretrained", pinned=True)}
    st.dataframe(table, hide_index=True, column_config=first | numbers, alt="Accuracy by what is left as pretrained")
    images = span(measurements.table(measurement, measurements.ABLATION)["n"])
    st.caption(
        f"In-domain accuracy on the {samples.part()}, n = {images} images per task (LOT, Table 7, "
        f"which does not state where it counts embeddings). {measure_button.origin([measurement])}"
    )
    paper_line.show(paper_line.of("drift/ablation"), [run])


def removed(runs: Sequence[Run]) -> None:
    """What CAT removed from the task vectors of one run."""
    run = pick_one(runs)
    with st.container(horizontal=True, gap="medium"):
        kind = pick_kind()
        value = CONFLICTS[st.selectbox("Color", CONFLICTS, key=address.CONFLICT_METRIC, bind=address.BIND, width=210)]
    table = measurements.of_kind(measurements.conflicts(run), kind)
    given = run.recipe.exemplars if run.recipe else None
    images = f"n = {given.per_task} exemplars per task (training images), seed {given.seed}. " if given else ""
    caption = f"{REMOVED} {images}Recorded while the run was merged. {run_picker.badges(run)}"
    chart.chart("drift_removed", table, name=f"cat_{run.id[:8]}", value=value, caption=caption, of=[run])
