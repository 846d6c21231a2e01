"""Drift of every tensor by itself, the parts of task vectors that CAT removes, and the drift that LOT minimizes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import TENSOR_COLUMNS, Names, NothingToDraw, chart, check_option
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, percent, plural
from viz.hover import LAYER_TEXT, describe_extreme
from viz.parts import axes, heat_maps, legends, series, tensor_columns
from viz.parts.cell_targets import NO_CELL, CellPosition

DRIFT_SCALES = {
    "relative": heat_maps.ColorScale("share of the<br>output", percent=True),
    "mean_square": heat_maps.ColorScale("mean<br>square"),
}
DRIFT_HOVER = (
    "<b>{tensor:short}</b><br>{title}: its output moves by {relative:percent 2}<br>mean square {mean_square:real}<br>"
) + LAYER_TEXT
LARGEST_SENTENCE = " It is largest in {tensor:plain} on {title:plain}: {relative:percent} of the output."

REMOVED_SCALES = {
    "removed": heat_maps.ColorScale("share of<br>squared norm", log=False, percent=True),
    "conflict_sum": heat_maps.ColorScale("conflict,<br>summed"),
    "conflict_top": heat_maps.ColorScale("worst<br>conflict"),
}
REMOVED_HOVER = (
    "<b>{tensor:short}</b><br>{title} loses {removed:percent 2} of its squared norm<br>conflicts with the others: "
    f"{{conflicts:count}}, worst {{conflict_top:real}}, sum {{conflict_sum:real}}<br>{LAYER_TEXT}"
)
MOST_SENTENCE = " Most in {tensor:plain}: {title:plain} loses {removed:percent} of its squared norm there."

MEAN_NAME, LEAST_NAME = "Mean of the experts", "LOT's own solution"
OBJECTIVE_HOVER = (
    f"<b>{{tensor:short}}</b><br>{LAYER_TEXT}<br>merge {{merged_share:percent}} of pretrained's {{pretrained:real}}<br>"
    "mean of the experts {mean_share:percent}, LOT's own solution {least_share:percent}"
)


@chart(
    title="Layer-isolated drift",
    question="Which layers drift by themselves, and on which tasks?",
    columns=(*TENSOR_COLUMNS, "task", "title", "relative", "mean_square"),
    rows=("task", "tensor"),
    picks=("task", "tensor"),
    empty="No drift has been measured layer by layer.",
)
def drift_layers(table: pd.DataFrame, *, value: str = "relative", selected: CellPosition = NO_CELL) -> Picture:
    """A heat map, tasks by tensors in forward order, on a logarithmic scale: LOT, Eq. 4.

    Columns: relative (norm of the change of the layer's output over the norm of the expert's output, a fraction),
    mean_square (squared change per output). Only this tensor is merged, and its inputs are the expert's.
    """
    scale = DRIFT_SCALES[check_option("value", value, tuple(DRIFT_SCALES))]
    tensors, tasks = plural(table["tensor"].nunique(), "tensor"), plural(table["task"].nunique(), "task")
    words = f"Layer-isolated drift of {tensors} on {tasks}." + describe_extreme(table, "relative", LARGEST_SENTENCE)
    return heat_maps.heat_map(table, "task", value, scale, DRIFT_HOVER, selected, alt=words, zoom_key=value)


@chart(
    title="What CAT removes",
    question="How much of each task vector does CAT remove, and where is the conflict?",
    columns=(*TENSOR_COLUMNS, "expert", "removed", "conflicts", "conflict_sum", "conflict_top"),
    optional=("title",),
    rows=("expert", "tensor"),
    picks=("expert", "tensor"),
    empty="This run did not remove conflicts.",
)
def drift_removed(table: pd.DataFrame, *, value: str = "removed", selected: CellPosition = NO_CELL) -> Picture:
    """A heat map, experts by tensors in forward order.

    Columns: removed (share of the squared norm of the expert's task vector that is projected out), conflicts
    (directions or scalars of the others' vectors that disturb the expert's task), conflict_sum and conflict_top (sum
    and largest of their eigenvalues: by how much they disturb that task more than they help their own, in squared
    output units). Conflicts are on a logarithmic scale.
    """
    scale = REMOVED_SCALES[check_option("value", value, tuple(REMOVED_SCALES))]
    table = table if "title" in table else table.assign(title=table["expert"])
    tensors, vectors = plural(table["tensor"].nunique(), "tensor"), plural(table["expert"].nunique(), "task vector")
    words = f"What is removed from {vectors} in {tensors}." + describe_extreme(table, "removed", MOST_SENTENCE)
    return heat_maps.heat_map(table, "expert", value, scale, REMOVED_HOVER, selected, alt=words, zoom_key=value)


@chart(
    title="LOT's objective",
    question="How much of the drift between pretrained and experts does the merge remove, layer by layer?",
    columns=(*TENSOR_COLUMNS, "merged", "pretrained", "mean", "least"),
    rows=("tensor",),
    picks=("tensor",),
    empty="The objective has not been computed.",
)
def drift_objective(
    table: pd.DataFrame, *, label: str = "This merge", selected: str | None = None, run: str = "", runs: Names = None
) -> Picture:
    """For every tensor the sum of squared drifts over all tasks, as a multiple of the pretrained layer's: LOT, Eq. 6.

    Columns: merged, pretrained, mean and least: Σ_k ‖X_k (T - T_k)‖² for the merged tensor, the pretrained one, the
    mean of the experts and LOT's own solution. X_k are the layer's inputs for task k, T_k is the change of the tensor
    in its expert, and T the one in the compared model. ``label`` is the name of the run whose id is ``run``.
    """
    columns = tensor_columns.TensorColumns.from_table(table)
    rows = columns.tensors[columns.tensors["pretrained"] > 0]
    if rows.empty:
        raise NothingToDraw("Nothing to draw: no expert moved any of these tensors.")
    shares = {f"{name}_share": rows[name] / rows["pretrained"] for name in ("merged", "mean", "least")}
    rows, x = rows.assign(**shares), rows.index.to_numpy()
    stems = np.stack([rows["least_share"], rows["merged_share"], np.full(len(x), np.nan)], axis=1).ravel()
    stem_style = {"color": theme.FADED, "width": 1.2}  # the drift that a better merge of the layer could still remove
    fig = Drawing([series.line(np.repeat(x, 3), stems, "Distance", stem_style, showlegend=False)])
    mark_style = theme.mark_styles(runs or [run])[run]
    for value, name, mark_look, marker in (
        ("least", LEAST_NAME, theme.MarkStyle(theme.INK, "line-ew"), {"size": 9, "line": theme.edge(2)}),
        ("mean", MEAN_NAME, theme.MarkStyle(theme.FADED, "circle-open"), {"size": 7, "line": {"width": 1.6}}),
        ("merged", legends.legend_name(label), mark_style, {"size": 8}),
    ):
        picks = ("tensor",) if value == "merged" else ()
        fig.add_trace(
            series.marks(rows, x, f"{value}_share", mark_look, OBJECTIVE_HOVER, picks=picks, name=name, marker=marker)
        )
    high = max(1.1, 1.06 * float(rows[list(shares)].to_numpy().max()))
    fig.update_yaxes(
        title={"text": "Squared drift, all tasks<br>(multiple of the pretrained layer's)"}, range=[0, high]
    )
    columns.lay_out(fig, selected)
    fig.add_shape(axes.horizontal_line(1, {"color": theme.INK, "width": 1.4, "dash": "dash"}))
    fig.add_annotation(theme.caption("pretrained", 1), x=1, xanchor="right", yref="y", yshift=0)
    merged, (before, least) = rows["merged_share"], rows[["pretrained", "least"]].to_numpy(np.float64).sum(axis=0)
    alt = (
        f"Squared drift of {plural(len(rows), 'tensor')} after {clean_text(label, 60)}: median "
        f"{percent(float(merged.median()))} of the pretrained layer's; {plural(int((merged > 1).sum()), 'tensor')} "
        f"drift more. LOT's own solution leaves {percent(least / before)} overall."
    )
    return legends.add_legend(fig, alt, 330, zoom_key=str(len(columns.names)), left=84, gap=30)
