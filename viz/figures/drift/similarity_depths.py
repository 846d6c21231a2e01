"""Similarity of two models' features, depth by depth."""

from __future__ import annotations

import pandas as pd

from viz.chart import chart, check_option
from viz.drawing import Picture
from viz.figure_text import clean_text, safe_text
from viz.hover import describe_extreme
from viz.parts import heat_maps, matrix, series

FORMS = {"debiased": "debiased<br>CKA", "linear": "linear<br>CKA"}
HOVER = (
    "<b>depth {depth:count} and depth {other_depth:count}</b><br>debiased {debiased:decimal 3}, linear "
    "{linear:decimal 3}[<br>{n:count} images]"
)
SIDES = ("depth", "other_depth")


@chart(
    title="Similarity of features by depth",
    question="At which depth do two models see the same?",
    columns=("depth", "other_depth", "linear", "debiased"),
    optional=("n",),
    rows=("depth", "other_depth"),
    picks=("depth", "other_depth"),
    empty="These two models have not been compared.",
)
def cka_depths(
    table: pd.DataFrame, *, value: str = "debiased", labels: tuple[str, str] = ("first model", "second model")
) -> Picture:
    """A map of CKA, depths of the first model upward by depths of the second one, from 0 to 1.

    Columns: depth (of the first model), other_depth (of the second one; the last is the embedding), linear, debiased
    (CKA), n (images). Kornblith et al. 2019; debiased: Nguyen et al. 2021.
    """
    check_option("value", value, tuple(FORMS))
    cells = series.require_finite_rows(table, value, empty_reason="these features have no CKA")
    upward, across = (_make_side(table[side], label) for side, label in zip(SIDES, labels, strict=True))
    rows = upward._replace(names=upward.names[::-1], titles=upward.titles[::-1])  # a matrix begins at the top
    scale = heat_maps.ColorScale(FORMS[value], log=False, limits=(0.0, 1.0))
    fig = matrix.draw_table_matrix(table, rows, across, SIDES, value, HOVER, scale)
    words = f"{value.capitalize()} CKA of {clean_text(labels[0], 60)} and {clean_text(labels[1], 60)}."
    words += describe_extreme(
        cells[cells["depth"] == cells["other_depth"]], value,
        f" At equal depth it is least at depth {{depth:count}}, {{{value}:decimal 2}}.", smallest=True,
    )  # fmt: skip
    return Picture(fig, words, matrix.matrix_height(fig, len(rows.names)), zoom_key=f"{value}:{len(table)}")


def _make_side(depths: pd.Series[int], label: str) -> matrix.MatrixSide:
    """The depths of a model in ascending order; the last is its embedding."""
    names = [str(depth) for depth in sorted(depths.unique())]
    return matrix.MatrixSide(f"Depth in {safe_text(label, 44)}", names, [*names[:-1], "embedding"])
