"""Spectra on the Conflicts page: singular values, ranks by depth, and how well the merge spans each expert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app.reading import expert_names, measurements, page_data, samples
from app.session import address
from app.session.click_errors import guarded_fragment
from app.views.conflicts import linear_layers
from app.widgets import chart_view, page_parts
from app.widgets.jobs import measure_button
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.runs.run import Run
from viz.figure_text import span

if TYPE_CHECKING:
    import pandas as pd

RANKS = {"effective rank": "effective", "stable rank": "stable"}
NOT_MEASURED = "Spectra have not been measured for"
PER_TASK = "Spectra are of one merged model. This run gives one model per task; choose another run above."
SPECTRUM_NOTE = (
    "Singular values of this layer's task vectors, of their sum, and of what the merge changed. The energy is the sum "
    "of their squares. An in_proj layer holds queries, keys and values in one matrix."
)
RANK_NOTE = (
    "The effective rank is exp of the entropy of σ² / Σσ²; the stable rank is Σσ² / σ₁². Both are 1 for a change in "
    "one direction, and as large as the matrix allows if all directions are changed equally."
)
ALIGNMENT_NOTE = (
    "The ratio ‖Π τ‖ / ‖τ‖ of an expert's task vector, where Π projects on the top left singular vectors of the merged "
    "change that leave out at most {residual:.0%} of its norm (Marczak et al., 2025, “No Task Left Behind”, eq. 6). "
    "1: the merge spans all of the task vector's outputs; 0: none."
)
KEPT_NOTE = (
    "The alignment is the mean over {layers} layers; the accuracy kept is the merge's over the expert's, on the "
    "{part}, n = {n} images per task. Intervals are 95% of the merge's accuracy. As in figure 1 of Marczak et al. "
    "(2025), for other experts: there, alignment and accuracy rise together. Runs: this one, and others of these "
    "experts with measured spectra. {ranks}"
)
CORRELATED = {  # what ``correlations`` is over -> words
    "all points": "over all points, which share runs and tasks",
    "tasks of one run": "over the tasks of one run (mean of {})",
    "runs on one task": "over the runs on one task (mean of {})",
}


def draw_view(run: Run) -> None:
    """Draw the spectra of a run, or the button that measures them."""
    measurement = measurements.find_measurement(measurements.SPECTRA, run.id)
    if run.per_task:
        st.info(PER_TASK)
    else:
        if measurement is None:
            measure_button.draw_missing(measurements.SPECTRA, [run], NOT_MEASURED)
        _draw_charts(run, measurement)
        if measurement is not None:
            _draw_accuracy(run, measurement)


@guarded_fragment
def _draw_charts(run: Run, measurement: StoredMeasurement | None) -> None:
    """Draw the spectrum of a layer, without the merged change if it is not measured, and the charts by depth."""
    layer, origin = linear_layers.pick_layer(run, linear_layers.find_middle_layer(run)), ""
    if measurement is not None:
        origin = measure_button.origin_in_words([measurement])
    if layer:
        titles = dict(expert_names.data_set_titles())
        table = _build_spectrum(str(measurement and measurement.path), measurement, run.id, run.experts, layer, titles)
        chart_view.draw_chart(
            "layer_spectrum", table, sources=[run], name=f"spectrum_{run.id[:8]}", experts=list(run.experts),
            caption=f"{SPECTRUM_NOTE} {origin}".strip(),
        )  # fmt: skip
    if measurement is None:
        return
    chart_view.draw_question("rank_depth")
    value = page_parts.pick_label("Rank", RANKS, address.RANK_METRIC, width=200)
    ranks = measurements.measured_table(measurement, "ranks")
    ranks = ranks.assign(title=[_title(name) for name in ranks["matrix"]])
    chart_view.draw_chart(
        "rank_depth", ranks, name=f"ranks_{run.id[:8]}", question_drawn=True, value=value, selected=(None, layer),
        caption=f"{RANK_NOTE} {origin}", sources=[run],
    )  # fmt: skip
    alignment = measurements.measured_table(measurement, "alignment")
    alignment = alignment.assign(title=[_title(name) for name in alignment["expert"]])
    note = ALIGNMENT_NOTE.format(residual=measurement.notes["residual"])
    chart_view.draw_chart(
        "alignment_depth", alignment, name=f"alignment_{run.id[:8]}", caption=f"{note} {origin}", sources=[run],
    )  # fmt: skip


def _title(matrix: str) -> str:
    from merging.study.weight_space.matrix_spectra import MERGED, SUM

    return {SUM: "Sum of all", MERGED: "Merged"}.get(matrix) or expert_names.expert_name(matrix)


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner="Decomposing the layer …")
def _build_spectrum(
    path: str, _measurement: StoredMeasurement | None, run_id: str, experts: Sequence[str], layer: str,
    titles: dict[str, str],
) -> pd.DataFrame:  # fmt: skip
    """The table of ``layer_spectrum``; without the merged change if it is not measured."""
    import numpy as np
    import pandas as pd
    import torch

    vectors = linear_layers.read_task_matrices(run_id, layer).double()
    values = torch.linalg.svdvals(torch.stack([*vectors, vectors.sum(dim=0)])).numpy()
    rows = [(name, titles.get(name, name), "expert", own) for name, own in zip(experts, values, strict=False)]
    rows.append(("sum", "Sum of all", "sum", values[-1]))
    if _measurement is not None:
        layers = list(dict.fromkeys(_measurement.table("ranks")["tensor"]))
        merged = _measurement.array("merged")[layers.index(layer)].astype(float)
        rows.append(("merged", "Merged", "merged", merged[np.isfinite(merged)]))
    frames = []
    for matrix, label, kind, own in rows:
        energy = np.square(own)
        frames.append(pd.DataFrame({
            "matrix": matrix, "label": label, "kind": kind, "direction": range(1, len(own) + 1), "value": own,
            "share": energy / (energy.sum() or 1),
        }))  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def _draw_accuracy(run: Run, measurement: StoredMeasurement) -> None:
    from merging.study.analysis.correlation import correlations, fit_line
    from merging.study.weight_space.model_map import is_mappable

    stored = page_data.stored_runs()
    runs = [run, *(one for one in stored if one.id != run.id and is_mappable(one, run))]
    pairs = [(one, measurements.find_measurement(measurements.SPECTRA, one.id)) for one in runs if one.has_scores]
    frames = [frame for one, own in pairs if own and (frame := _list_kept(one, own, stored)) is not None]
    if not frames:
        return
    import pandas as pd

    table = pd.concat(frames, ignore_index=True)
    names, ranks, fit = list(dict.fromkeys(table["run"])), correlations(table, "alignment", "kept"), None
    if len(names) > 1:  # the tasks of one run make no line: they differ in more than alignment
        line = fit_line(table["alignment"].to_numpy(float), table["kept"].to_numpy(float))
        fit = line.slope, line.intercept
    else:
        ranks = ranks[ranks["over"] == "tasks of one run"]
    ranks = ranks[ranks["spearman"].notna()]
    parts = [
        f"{row['spearman']:.2f} {CORRELATED[row['over']].format(row['groups'])}" for row in ranks.to_dict("records")
    ]
    note = KEPT_NOTE.format(
        layers=measurement.notes["layers"], part=samples.scored_part(), n=span(table["n"]),
        ranks=f"Spearman's ρ: {', '.join(parts)}." if parts else "",
    )  # fmt: skip
    chart_view.draw_chart(
        "alignment_accuracy", table, name=f"alignment_kept_{run.id[:8]}",
        fit=fit, runs=names, caption=note,
    )  # fmt: skip


def _list_kept(run: Run, measurement: StoredMeasurement, stored: Sequence[Run]) -> pd.DataFrame | None:
    """A row for each task of a run's experts: mean alignment and accuracy kept; None without accuracies."""
    scores, experts = page_data.scores(run), page_data.expert_scores(run.benchmark, stored)
    own = {task: float(row["accuracy"]) for task, row in experts.items() if task in run.experts and row["accuracy"]}
    if scores is None or not own:
        return None
    ratios = measurements.measured_table(measurement, "alignment").groupby("expert")["ratio"].mean()
    rows = scores[scores["task"].isin(own)].reset_index(drop=True)
    best = rows["task"].map(own)
    kept = {name: rows[column] / best for name, column in (("kept", "accuracy"), ("low", "low"), ("high", "high"))}
    titles = [expert_names.expert_name(task) for task in rows["task"]]
    named = rows[["task", "n"]].assign(run=run.id, label=run.name, title=titles, alignment=rows["task"].map(ratios))
    return named.assign(**kept)
