"""Occluding: by how much the right class's margin changes where one patch is replaced by the data set's mean patch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.parts import picture_grid
from viz.parts.depth import Scale
from viz.text import clean_text, real, safe_text


@chart(
    title="Occluding patches",
    question="Which patches does each model's answer need?",
    columns=("model", "title", "token", "row", "column", "followed", "before", "margin", "change"),
    rows=("model", "token"),
    empty="No patch has been occluded yet.",
)
def image_occlude(table: pd.DataFrame, *, picture: str = "", sentence: str = "", present: bool = False) -> go.Figure:
    """A grid for each model: the change of the margin where a patch is replaced by the data set's mean patch.

    model (key), title, token, row and column of a patch, followed (the class whose margin it is), before and margin
    (cosine minus the largest other one), change. ``picture`` is the image as a PNG (data URI). ``sentence`` says in
    words what the image's page says.
    """
    table = table.assign(model=table["model"].astype(str))
    models = in_order(table["model"])
    titles = picture_grid.titles_of(table)
    grids: dict[tuple[int, int], picture_grid.Cells] = {}
    for model, own in table.groupby("model", sort=False):
        note = f"margin {real(float(own['before'].iloc[0]))}".replace("-", "−")
        grids[0, models.index(str(model))] = picture_grid.cells(own, "change", _hover, note)
    rows = picture_grid.picked({}, ["\xa0"], "One patch occluded")
    scale = Scale("Change of<br>the margin", log=False, diverging=True)
    columns = picture_grid.picked(titles, models, "Model")
    fig = picture_grid.draw(grids, rows, columns, scale, picture)
    alt = f"{sentence} {_alt(table)}".strip()
    return theme.finish(fig, "image_occlude", alt, picture_grid.height(rows) + 40, present, ",".join(models))


def _hover(row: Mapping[Any, Any]) -> str:
    words = f"<b>{safe_text(row['title'], 40)}</b> without patch {row['row']}, {row['column']} (row, column)"
    words += f"<br>margin of {safe_text(row['followed'], 40)}: {real(row['before'])} → {real(row['margin'])}"
    change = f"{row['change']:+.3f}".replace("-", "−")
    return f"{words}<br>change {change}"


def _alt(table: pd.DataFrame) -> str:
    most = table.nsmallest(1, "change").iloc[0]
    return (
        f"Change of the margin of {clean_text(most['followed'], 40)} with single patches occluded: the largest loss is "
        f"{real(most['change'])}, at row {most['row']}, column {most['column']} of {clean_text(most['title'], 40)}."
    )
