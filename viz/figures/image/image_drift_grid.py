"""The drift of every patch as cells over the image, a grid for each depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.parts import picture_grid
from viz.parts.depth import BLOCKS_PASSED, Scale
from viz.text import clean_text, plural, real, safe_text


@chart(
    title="Drift over the image",
    question="Where on the image do patches drift?",
    columns=("model", "title", "against", "depth", "token", "row", "column", "drift"),
    optional=("mean", "high", "past", "reference"),
    rows=("model", "depth", "token"),
    empty="No run's drift on the image is known yet.",
)
def image_drift_grid(
    table: pd.DataFrame, *, picture: str = "", sentence: str = "", wide: bool = False, present: bool = False
) -> go.Figure:
    """A column for each run and a row for each depth; over each grid stands the drift of the class token.

    model (key), title, against (title of the reference), depth (0: before block 0), token (0: the class token), row and
    column of a patch, drift (1 − cosine to the reference's token); mean, high and past as in the chart by token.
    ``picture`` is the image as a PNG (data URI). ``sentence`` says in words what the image's page says;
    ``wide`` lets rows and columns change places, as a projector needs it.
    """
    table = table.assign(model=table["model"].astype(str))
    models, depths = in_order(table["model"]), sorted(int(depth) for depth in table["depth"].unique())
    titles = picture_grid.titles_of(table)
    grids: dict[tuple[int, int], picture_grid.Cells] = {}
    for (model, depth), own in table.groupby(["model", "depth"], sort=False):
        grids[depths.index(int(str(depth))), models.index(str(model))] = _cells(own)
    rows = picture_grid.picked({}, [str(depth) for depth in depths], BLOCKS_PASSED)
    columns = picture_grid.picked(titles, models, "Run; over each grid: drift of the class token")
    high = max(float(grid.values.max()) for grid in grids.values())
    fig = picture_grid.draw(
        grids, rows, columns, Scale("Drift,<br>1 − cosine", log=False, limits=(0.0, high or 1.0)), picture, wide
    )
    alt = f"{sentence} {_alt(table, models, depths)}".strip()
    return theme.finish(fig, "image_drift_grid", alt, picture_grid.height(rows), present, ",".join(models))


def _cells(own: pd.DataFrame) -> picture_grid.Cells:
    """One grid, with the drift of the class token over it."""
    token = own.loc[own["token"] == 0, "drift"]
    note = f"{float(token.iloc[0]):.2f}" if len(token) else ""
    return picture_grid.cells(own[own["token"] > 0], "drift", _hover, note)


def _hover(row: Mapping[Any, Any]) -> str:
    words = f"<b>{safe_text(row['title'], 40)}</b>, depth {row['depth']}<br>patch {row['row']}, {row['column']} "
    return f"{words}(row, column): {real(row['drift'])} from {safe_text(row['against'], 40)}"


def _alt(table: pd.DataFrame, models: list[str], depths: list[int]) -> str:
    patches = table[table["token"] > 0]
    most = patches.nlargest(1, "drift").iloc[0]
    return (
        f"Drift of the patches of {plural(len(models), 'run')} at {plural(len(depths), 'depth')}: most, "
        f"{real(most['drift'])}, in row {most['row']}, column {most['column']} at depth {most['depth']} of "
        f"{clean_text(most['title'], 40)}."
    )
