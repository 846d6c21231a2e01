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
    "<b>depth {first:count} and depth {second:count}</b><br>debiased {debiased:decimal 3}, linear {linear:decimal 3}"
    "[<br>{n:count} images]"
)
CELL_PX = 34  # px, of a row


@chart(
    title="Similarity of features by depth",
    question="At which depth do two models see the same?",
    columns=("first", "second", "linear", "debiased"),
    optional=("n",),
    rows=("first", "second"),
    empty="These two models have not been compared.",
)
def cka_depths(
    table: pd.DataFrame, *, value: str = "debiased", labels: tuple[str, str] = ("first model", "second model")
) -> Picture:
    """A map of CKA, depths of the first model upward by depths of the second one, from 0 to 1.

    Columns: first, second (0: before block 0, b: after b blocks; the last is the embedding), linear, debiased (CKA),
    n (images). Kornblith et al. 2019; debiased: Nguyen et al. 2021.
    """
    check_option("value", value, tuple(FORMS))
    depths = [sorted(table[side].astype(int).unique().tolist()) for side in ("first", "second")]
    cells = every_cell(table.astype({"first": int, "second": int}), dict(zip(("first", "second"), depths, strict=True)))
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
    same = cells[cells["first"] == cells["second"]]
    words = f"{value.capitalize()} CKA of {clean_text(labels[0], 60)} and {clean_text(labels[1], 60)}."
    words += describe_extreme(
        same, value, f" At equal depth it is least at depth {{first:count}}, {{{value}:decimal 2}}.", smallest=True
    )
    height = heat_maps.TOP + 60 + CELL_PX * max(len(depths[0]), 5)
    return Picture(fig, words, height, zoom_key=f"{value}:{len(cells)}")
