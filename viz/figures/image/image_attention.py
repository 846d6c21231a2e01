"""Where the class token looks: its row of attention, rollout and contributions as cells over the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import ChartError, chart, in_order, one_of
from viz.parts import picture_grid
from viz.parts.depth import Scale
from viz.text import clean_text, percent, plural, safe_text

STAYS = "Model; over each grid: share on the class token"
BY = {"view": "View", "block": "Block"}  # what the rows of the figure are


@chart(
    title="Where models look",
    question="Where does each model look?",
    columns=("model", "title", "block", "view", "token", "row", "column", "share"),
    optional=("weight",),
    rows=("model", "block", "view", "token"),
    empty="No model's attention to the image is known yet.",
)
def image_attention(
    table: pd.DataFrame,
    *,
    by: str = "view",
    picture: str = "",
    sentence: str = "",
    wide: bool = False,
    present: bool = False,
) -> go.Figure:
    """A column for each model and a row for each view of one block, or for each block in one view.

    model (key), title, block (from 0), view ("head 0", "mean of heads", "rollout", "contribution"), token (0: the class
    token), row and column of a patch (-1 for the class token), share (of the view, sums to 1 over the tokens).
    ``picture`` is the image as a PNG (data URI). ``sentence`` says in words what the image's page says;
    ``wide`` lets rows and columns change places, as a projector needs it.
    """
    fixed = "block" if one_of("by", by, tuple(BY)) == "view" else "view"
    if table[fixed].nunique() > 1:
        raise ChartError(f"with by {by!r} the table has one {fixed}; it has {table[fixed].nunique()}")
    table = table.assign(model=table["model"].astype(str))
    models, kept = in_order(table["model"]), in_order(table[by])
    titles = picture_grid.titles_of(table)
    grids: dict[tuple[int, int], picture_grid.Cells] = {}
    for (model, name), own in table.groupby(["model", table[by].astype(str)], sort=False):
        grids[kept.index(str(name)), models.index(str(model))] = _cells(own)
    rows = picture_grid.picked({key: f"block {key}" if by == "block" else key for key in kept}, kept, BY[by])
    columns = picture_grid.picked(titles, models, STAYS)
    high = max(float(grid.values.max()) for grid in grids.values())
    scale = Scale("Share of<br>the row", log=False, limits=(0.0, high or 1.0), percent=True)
    fig = picture_grid.draw(grids, rows, columns, scale, picture, wide)
    alt = f"{sentence} {_alt(table, models, len(kept))}".strip()
    return theme.finish(fig, "image_attention", alt, picture_grid.height(rows), present, f"{by}:{','.join(kept)}")


def _cells(own: pd.DataFrame) -> picture_grid.Cells:
    """One grid, with the share that stays on the class token over it."""
    stays = own.loc[own["token"] == 0, "share"]
    note = percent(float(stays.iloc[0]), 0) if len(stays) else ""
    return picture_grid.cells(own[own["token"] > 0], "share", _hover, note)


def _hover(row: Mapping[Any, Any]) -> str:
    words = f"<b>{safe_text(row['title'], 40)}</b><br>block {row['block']}, {safe_text(row['view'], 40)}"
    return f"{words}<br>patch {row['row']}, {row['column']} (row, column): {percent(row['share'])} of the row"


def _alt(table: pd.DataFrame, models: list[str], kept: int) -> str:
    stays = table[table["token"] == 0].groupby("model")["share"].mean()
    words = f"Where {plural(len(models), 'model')} look, {plural(kept, 'grid')} each; on average "
    titles = table.drop_duplicates("model").set_index("model")["title"]
    shares = [f"{percent(float(stays[model]), 0)} stay on the class token in {clean_text(titles[model], 40)}"
              for model in models[:4] if model in stays]  # fmt: skip
    return words + (", ".join(shares) or "nothing is known of the class token") + "."
