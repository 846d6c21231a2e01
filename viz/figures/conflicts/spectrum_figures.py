"""Singular values of a layer's task vectors, ranks of all layers, and alignment of experts with the merge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import TENSOR_COLUMNS, Names, chart, check_option, distinct_names
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, plural
from viz.hover import LAYER_TEXT, describe_extreme
from viz.parts import axes, heat_maps, legends, series
from viz.parts.cell_targets import NO_CELL, CellPosition

SPECTRUM_HOVER = "<b>{label}</b><br>direction {direction:count}: {value:real}, {share:percent 2} of the energy"
OTHER_STYLES = {"sum": theme.MarkStyle(theme.FADED, "x"), "merged": theme.MarkStyle(theme.INK, "diamond")}
RANK_SCALES = {
    "effective": heat_maps.ColorScale("effective<br>rank"),
    "stable": heat_maps.ColorScale("stable<br>rank"),
}
RANK_HOVER = (
    "<b>{tensor:short}</b><br>{title}: effective rank {effective:decimal 1}, stable rank {stable:decimal 1} of "
    f"{{full:count}}[<br>norm {{norm:real}}]<br>{LAYER_TEXT}"
)
ALIGNMENT_SCALE = heat_maps.ColorScale("alignment<br>ratio", log=False, limits=(0.0, 1.0))
ALIGNMENT_HOVER = (
    "<b>{tensor:short}</b><br>{title}: {ratio:decimal 3} of its norm lies in the merge's subspace[, of rank "
    f"{{rank:count}}]<br>{LAYER_TEXT}"
)
KEPT_HOVER = (
    "<b>{title}</b>, {label:text 40}<br>alignment {alignment:decimal 3}<br>accuracy kept {kept:percent}"
    "[ ({low:percent} to {high:percent})][<br>{n:count} images]"
)


@chart(
    title="Singular values of a layer",
    question="How many directions does each expert change, and the merge?",
    columns=("matrix", "label", "kind", "direction", "value", "share"),
    rows=("matrix", "direction"),
    empty="Nothing changed this layer.",
)
def layer_spectrum(table: pd.DataFrame, *, experts: Names = None) -> Picture:
    """A line for each expert's task vector, for their sum and for the merged change, on a logarithmic axis.

    Columns: matrix (an id), label, kind (expert, sum or merged), direction (from 1), value (the singular value), share
    (of the squares of the matrix's own values).
    """
    rows = table[table["value"] > 0]
    rows = series.require_finite_rows(rows, "value", empty_reason="nothing changed this layer")
    names = distinct_names(rows.loc[rows["kind"] == "expert", "matrix"])
    styles, fig = theme.mark_styles(experts or names), Drawing()
    for matrix, own, entry in series.rows_by_name(rows.sort_values("direction", kind="stable"), "matrix"):
        kind = str(own["kind"].iloc[0])
        style = OTHER_STYLES.get(kind, styles[matrix])
        fig.add_trace(series.marks(
            own, "direction", "value", style, SPECTRUM_HOVER, size=4 if kind == "expert" else 6,
            marker={"line": {"width": 0}}, line={"width": 1.4 if kind == "expert" else 2.4}, **entry,
        ))  # fmt: skip
    low, high = float(rows["value"].min()), float(rows["value"].max())
    fig.update_layout(
        xaxis={"title": {"text": "Direction, largest first"}},
        yaxis={"title": {"text": "Singular value"}, **axes.log_axis(max(low, high * 1e-5) / 1.3, 1.3 * high)},
    )
    top = rows[rows["direction"] == 1]
    also = "their sum and the merged change" if (rows["kind"] == "merged").any() else "and their sum"
    alt = f"Singular values of {plural(len(names), 'task vector')}, {also}."
    alt += describe_extreme(
        top, "value", " The largest: {label:plain 40}, {value:real}, {share:percent} of its energy."
    )
    return legends.add_legend(fig, alt, 380, left=84, zoom_key=str(len(rows)))


@chart(
    title="Ranks by depth",
    question="Where are changes spread over many directions, and where on few?",
    columns=(*TENSOR_COLUMNS, "matrix", "title", "effective", "stable", "full"),
    optional=("norm",),
    rows=("matrix", "tensor"),
    picks=("matrix", "tensor"),
    empty="No spectra have been measured.",
)
def rank_depth(table: pd.DataFrame, *, value: str = "effective", selected: CellPosition = NO_CELL) -> Picture:
    """A heat map, task vectors, their sum and the merged change by linear maps in forward order, on a log scale.

    Columns: effective (exp of the entropy of σ² / Σσ²), stable (Σσ² / σ₁²), full (the largest possible rank), norm.
    """
    scale = RANK_SCALES[check_option("value", value, tuple(RANK_SCALES))]
    layers = plural(table["tensor"].nunique(), "layer")
    words = f"The {value} rank of {plural(table['matrix'].nunique(), 'change')} in {layers}."
    words += describe_extreme(table, value, f" Largest: {{title:plain 40}} in {{tensor:plain}}, {{{value}:decimal 1}}.")
    picture = heat_maps.heat_map(table, "matrix", value, scale, RANK_HOVER, selected, alt=words, zoom_key=value)
    picture.drawing.update_yaxes(title={"text": "Change"})
    return picture


@chart(
    title="Subspace alignment by depth",
    question="Which experts' directions does the merge keep, and where?",
    columns=(*TENSOR_COLUMNS, "expert", "title", "ratio"),
    optional=("rank",),
    rows=("expert", "tensor"),
    picks=("expert", "tensor"),
    empty="No spectra have been measured.",
)
def alignment_depth(table: pd.DataFrame, *, selected: CellPosition = NO_CELL) -> Picture:
    """A heat map, experts by linear maps in forward order: Marczak et al. 2025 (Iso-C), eq. 6.

    Columns: ratio (the norm of the expert's task vector inside the merge's top left singular vectors over its whole
    norm), rank (the number of these vectors).
    """
    layers = plural(table["tensor"].nunique(), "layer")
    words = f"Alignment of {plural(table['expert'].nunique(), 'expert')} in {layers}."
    words += describe_extreme(
        table, "ratio", " Least: {title:plain 40} in {tensor:plain}, {ratio:decimal 2}.", smallest=True
    )
    return heat_maps.heat_map(table, "expert", "ratio", ALIGNMENT_SCALE, ALIGNMENT_HOVER, selected, alt=words)


@chart(
    title="Alignment against accuracy kept",
    question="Do tasks that the merge spans better keep more accuracy?",
    columns=("run", "label", "task", "title", "alignment", "kept"),
    optional=("low", "high", "n"),
    rows=("run", "task"),
    picks=("run", "task"),
    empty="No run has both: measured spectra, and its own and its experts' accuracy.",
)
def alignment_accuracy(
    table: pd.DataFrame, *, fit: Sequence[float] | None = None, runs: Names = None, note: str = ""
) -> Picture:
    """A mark for each run (color) and task, and a dashed line: Marczak et al. 2025 (Iso-C), figure 1.

    Columns: alignment (mean ratio over layers), kept (the run's accuracy over the expert's), low and high (ends of its
    95% interval), n (images). ``fit`` is the line's slope and intercept.
    """
    rows = series.require_finite_rows(table, "alignment", "kept", empty_reason="no task has both numbers")
    styles, fig = theme.mark_styles(runs or distinct_names(rows["run"])), Drawing()
    for run, own, entry in series.rows_by_name(rows, "run", runs):
        interval = {"error_y": series.interval(own, "kept", styles[run].color, thickness=1)} if "low" in own else {}
        fig.add_trace(series.marks(
            own, "alignment", "kept", styles[run], KEPT_HOVER, picks=("run", "task"), size=10, **interval, **entry
        ))  # fmt: skip
    tasks = plural(rows["task"].nunique(), "task")
    words = f"{plural(len(rows), 'point')}: {plural(rows['run'].nunique(), 'run')} on {tasks}."
    if fit is not None and np.isfinite(fit[0]):
        x = np.array([rows["alignment"].min(), rows["alignment"].max()], float)
        style = {"color": theme.FADED, "dash": "dash"}
        fig.add_trace(series.line(x, fit[0] * x + fit[1], "Line of least squares", style, legendgroup="fit"))
    words += describe_extreme(rows, "kept", " Least kept: {title:plain 40}, {kept:percent}.", smallest=True)
    notes, note_height = axes.make_note(note, 52)
    fig.update_layout(
        xaxis={"title": {"text": "Subspace alignment ratio, mean over layers"}},
        yaxis={"title": {"text": "Accuracy kept, of the expert's (%)"}, "tickformat": ".0%"},
        annotations=notes,
    )
    return legends.add_legend(fig, clean_text(words, 500), 400 + note_height, left=76, below=56 + note_height)
