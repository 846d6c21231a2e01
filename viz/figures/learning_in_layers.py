"""Charts of the coefficients and masks that merges learn for each tensor."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import TENSOR_COLUMNS, Names, chart, distinct_names
from viz.drawing import Drawing, Picture
from viz.figure_text import plural
from viz.hover import LAYER_TEXT, describe_extreme, describe_extremes
from viz.parts import heat_maps, matrix, series, tensor_columns
from viz.parts.cell_targets import NO_CELL, CellPosition
from viz.parts.legends import add_legend

COEFFICIENT_HOVER = f"<b>{{tensor:short}}</b><br>{{expert}}: {{coefficient:learned}}<br>{LAYER_TEXT}"
EXTREME_WORDS = "{expert:plain 40} in {tensor:plain}, {coefficient:decimal}"
PRUNED_CAPTION = theme.caption(
    "gray: pruned before the merge, no coefficient", 1, yshift=4, font={"color": theme.FADED}
)
TOTAL_HOVER = f"<b>{{tensor:short}}</b><br>{{label}}: {{total:real}} in sum<br>{LAYER_TEXT}"
KEPT_HOVER = (
    "<b>{tensor:short}</b><br>{expert} keeps {share:percent 2}: {kept:count} of {numel:count} scalars"
    f"<br>{LAYER_TEXT}"
)
SHARED_HOVER = "<b>{first} and {second}</b><br>{share:percent} of what {first} keeps is kept by {second} as well"
MOST_SHARED_SENTENCE = (
    "It is largest for {first:plain 40}, of whose mask {second:plain 40} keeps {share:percent} as well."
)


@chart(
    title="Learned coefficients",
    question="In which layers are learned coefficients large, and in which small?",
    columns=(*TENSOR_COLUMNS, "expert", "coefficient"),
    optional=("pruned",),
    rows=("expert", "tensor"),
    picks=("expert", "tensor"),
    empty="This merge learned no coefficient for each tensor.",
)
def coefficient_map(
    table: pd.DataFrame, *, selected: CellPosition = NO_CELL, limits: heat_maps.Limits = None, step: int | None = None
) -> Picture:
    """A heat map, experts by tensors in forward order; tensors that an edit pruned are gray.

    Columns: coefficient (λ, by which the expert's task vector is multiplied), pruned (bool: the tensor is not merged,
    so it has no coefficient). ``step`` is the table's step of learning, if it is not the last.
    """
    pruned = table["pruned"].to_numpy(bool) if "pruned" in table else np.zeros(len(table), bool)
    table = table.assign(coefficient=table["coefficient"].mask(pruned))
    learned = series.require_finite_rows(table, "coefficient", empty_reason="every tensor was pruned")
    mean, span = learned["coefficient"].mean(), (min(0.0, learned["coefficient"].min()), learned["coefficient"].max())
    counts = f"{plural(table['tensor'].nunique(), 'tensor')} for {plural(table['expert'].nunique(), 'expert')}"
    most, least = describe_extremes(learned, "coefficient", EXTREME_WORDS)
    picture = heat_maps.heat_map(
        table, "expert", "coefficient", heat_maps.ColorScale("coefficient", log=False, limits=limits or span),
        COEFFICIENT_HOVER,
        selected, formats={"learned": _describe_coefficient}, alt=f"Learned coefficients of {counts}"
        f"{f' at step {step:,}' if step is not None else ''}. Largest for {most}; smallest for {least}. "
        f"Their mean is {mean:.2f}.",
    )  # fmt: skip
    if pruned.any():
        picture.drawing.update_layout(plot_bgcolor=theme.PRUNED)
        picture.drawing.add_annotation(PRUNED_CAPTION)
    return picture


def _describe_coefficient(value: float) -> str:
    return f"coefficient {value:.3f}".replace("-", "−") if np.isfinite(value) else "pruned, no coefficient"


@chart(
    title="Summed coefficients by depth",
    question="Where in the network do the experts' coefficients add up to most?",
    columns=("run", "label", *TENSOR_COLUMNS, "total"),
    rows=("run", "tensor"),
    picks=("tensor",),
    empty="No run has learned a coefficient for each tensor.",
)
def coefficient_sums(table: pd.DataFrame, *, runs: Names = None, selected: str | None = None) -> Picture:
    """A dotted line for each run of Σ λ over its experts by tensor; a pruned tensor (NaN) is a gap (LwPTV, Fig. 8)."""
    columns, names = tensor_columns.TensorColumns.from_table(table), distinct_names(table["run"])
    plotted = columns.set_positions(series.require_finite_rows(table, "total", empty_reason="every tensor was pruned"))
    mark_styles = theme.mark_styles(runs or names)
    fig = Drawing([
        series.marks(
            rows, "tensor_index", "total", mark_styles[name], TOTAL_HOVER, picks=("tensor",), size=7,
            line={"width": 1, "dash": "dot"}, marker={"opacity": 1}, **legend_fields,
        )
        for name, rows, legend_fields in series.rows_by_name(plotted, "run", names)
    ])  # fmt: skip
    fig.update_yaxes(title={"text": "Sum of the coefficients<br>over the experts"})
    columns.lay_out(fig, selected)
    sentence = f"Summed coefficients of {plural(len(names), 'run')} in {plural(plotted['tensor'].nunique(), 'tensor')}."
    most = describe_extreme(plotted, "total", " The largest, {total:real}, is {label:plain 40}'s in {tensor:plain}.")
    return add_legend(fig, sentence + most, 350, zoom_key=str(len(columns.names)))


@chart(
    title="Sparsity of the masks",
    question="What share of each tensor does an expert's mask keep?",
    columns=(*TENSOR_COLUMNS, "expert", "kept", "numel"),
    rows=("expert", "tensor"),
    picks=("expert", "tensor"),
    empty="This merge has no masks of scalars.",
)
def localization_map(table: pd.DataFrame, *, selected: CellPosition = NO_CELL) -> Picture:
    """A heat map, experts by tensors in forward order, of the share of scalars that each expert's mask keeps."""
    table = table.assign(share=(table["kept"] / table["numel"]).where(table["numel"] > 0, 0.0))
    sums = table.groupby("expert", as_index=False)[["kept", "numel"]].sum()
    sums["share"] = sums["kept"] / sums["numel"].clip(lower=1)
    sentence = f"Masks of {plural(len(sums), 'expert')} over {plural(table['tensor'].nunique(), 'tensor')}."
    most, least = describe_extremes(sums, "share", "{share:percent 2} ({expert:plain 40})")
    return heat_maps.heat_map(
        table, "expert", "share", heat_maps.ColorScale("kept share", log=False, percent=True),
        KEPT_HOVER, selected,
        alt=f"{sentence} They keep from {least} to {most} of the scalars.",
    )  # fmt: skip


@chart(
    title="Overlap of the masks",
    question="Which experts' masks keep the same scalars?",
    columns=("first", "second", "share"),
    rows=("first", "second"),
    picks=("first", "second"),
    empty="There are no two masks to compare.",
)
def localization_overlap(table: pd.DataFrame) -> Picture:
    """A matrix of experts: the share of the scalars in the first one's mask that are in the second one's as well."""
    pairs = series.require_finite_rows(
        table[table["first"] != table["second"]], "share", empty_reason="there are no two masks to compare"
    )
    names = distinct_names([*table["first"], *table["second"]])
    rows, columns = (matrix.MatrixSide(title, names, names) for title in ("Mask of", "Also kept by"))
    scale = heat_maps.ColorScale("shared of the<br>row's mask", log=False, percent=True)
    fig = matrix.draw_table_matrix(pairs, rows, columns, ("first", "second"), "share", SHARED_HOVER, scale)
    sentence = f"Overlap of the masks of {plural(len(names), 'expert')}. "
    sentence += describe_extreme(pairs, "share", MOST_SHARED_SENTENCE)
    return Picture(fig, sentence, matrix.matrix_height(fig, len(names)), zoom_key=str(len(names)))
