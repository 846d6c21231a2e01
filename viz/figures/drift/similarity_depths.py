"""Similarity of two models' features, depth by depth."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz.chart import chart, check_option
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, safe_text
from viz.hover import decimal, describe_extreme, hover_texts
from viz.parts import axes, heat_maps, matrix
from viz.parts.cell_targets import click_targets, every_cell

FORMS = {"debiased": "debiased<br>CKA", "linear": "linear<br>CKA"}
HOVER = (
    "<b>depth {depth:count} and depth {other_depth:count}</b><br>debiased {debiased:decimal 3}, linear "
    "{linear:decimal 3}[<br>{n:count} images]"
)
CELL_PX = 34  # px, of a row


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
    sides = ("depth", "other_depth")
    depths = [sorted(table[side].astype(int).unique().tolist()) for side in sides]
    cells = every_cell(table.astype(dict.fromkeys(sides, int)), dict(zip(sides, depths, strict=True)))
    values = cells[value].to_numpy(np.float64)
    names = [[*map(str, side[:-1]), "embedding"] for side in depths]
    scale = heat_maps.ColorScale(FORMS[value], log=False, limits=(0.0, 1.0))
    y, x = (grid.ravel() for grid in np.indices((len(depths[0]), len(depths[1])), np.float32))
    fig = Drawing([
        heat_maps.heat(values.reshape(len(depths[0]), -1), scale, xgap=1, ygap=1),
        *(
            [matrix.write_numbers(x, y, [decimal(one) for one in values], values < 0.5)]
            if len(depths[1]) <= matrix.MAX_NUMBERED_COLUMNS else []
        ),
        click_targets(names[0], names[1], hover_texts(cells, HOVER), "Depths"),
    ])  # fmt: skip
    for update, side, label in ((fig.update_yaxes, 0, labels[0]), (fig.update_xaxes, 1, labels[1])):
        update(**axes.name_axis("Depth", names[side], 12) | {"title": {"text": f"Depth in {safe_text(label, 44)}"}})
    fig.update_layout(
        barmode="overlay", showlegend=False, margin={"l": 110, "r": heat_maps.RIGHT, "t": heat_maps.TOP, "b": 60}
    )
    same = cells[cells["depth"] == cells["other_depth"]]
    words = f"{value.capitalize()} CKA of {clean_text(labels[0], 60)} and {clean_text(labels[1], 60)}."
    words += describe_extreme(
        same, value, f" At equal depth it is least at depth {{depth:count}}, {{{value}:decimal 2}}.", smallest=True
    )
    height = heat_maps.TOP + 60 + CELL_PX * max(len(depths[0]), 5)
    return Picture(fig, words, height, zoom_key=f"{value}:{len(cells)}")
