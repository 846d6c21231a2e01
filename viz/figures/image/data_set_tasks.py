"""Data set by data set: at which depth a run's answers turn, and before which block restoring fixes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.figures.image.data_set_depths import hover
from viz.parts import depth, matrix
from viz.text import clean_text, percent, plural

VALUES = {  # -> title of the scale, of the axis, and the share in a sentence
    "turns": ("answer stays<br>from here", depth.BLOCKS_PASSED, "images whose answer stays from there"),
    "parts": ("parts here", depth.BLOCKS_PASSED, "images that part from the reference there"),
    "mended": ("right again", "Before which block tokens are put in", "broken images that are fixed there"),
}


@chart(
    title="Every data set by depth",
    question="On which data sets, and where in the network, does it happen?",
    columns=("task", "title", "depth", "share"),
    optional=("low", "high", "n", "label"),
    rows=("task", "depth"),
    picks=("task", "depth"),
    empty="No data set has been measured by depth.",
)
def data_set_tasks(table: pd.DataFrame, *, value: str = "turns", present: bool = False) -> go.Figure:
    """A matrix of data sets and depths of one run, whose cells take clicks.

    task (key), title, depth (0: before block 0), share (a fraction), low and high (its interval), n (images), label
    (the run's). ``value`` says of what; of restoring a depth is the block before which tokens are put in.
    """
    one_of("value", value, tuple(VALUES))
    if not np.isfinite(table["share"].to_numpy(np.float64)).any():
        return theme.notice("data_set_tasks", "Nothing to draw: no data set has such images.", present)
    table = table.assign(depth=table["depth"].astype(int).astype(str), task=table["task"].astype(str))
    tasks, depths = in_order(table["task"]), sorted(in_order(table["depth"]), key=int)
    titles = table.drop_duplicates("task").set_index("task")["title"]
    last = depths[-1]
    names = ["out" if value == "mended" and at == last else at for at in depths]
    rows = {(str(row["task"]), str(row["depth"])): row for row in table.to_dict("records")}
    values = matrix.grid({place: float(row["share"]) for place, row in rows.items()}, tasks, depths)
    places = [(tasks[y], depths[x]) for y, x in zip(*np.nonzero(np.isfinite(values)), strict=True)]
    texts = [_hover(rows[place], value, int(last)) for place in places]
    scale = depth.Scale(VALUES[value][0], log=False, limits=(0.0, max(0.01, float(np.nanmax(values)))), percent=True)
    fig = matrix.draw(
        matrix.Side("Data set", tasks, [titles[task] for task in tasks]), matrix.Side(VALUES[value][1], depths, names),
        values, texts, scale,
    )  # fmt: skip
    return theme.finish(
        fig, "data_set_tasks", _alt(table, titles, value), matrix.height(fig, len(tasks)), present, value
    )


def _hover(row: dict[Any, Any], value: str, last: int) -> str:
    name = {"label": row["title"]}
    return hover({**row, **name}, before=value == "mended", last=last)


def _alt(table: pd.DataFrame, titles: pd.Series, value: str) -> str:
    top = table.iloc[int(np.nanargmax(table["share"].to_numpy(np.float64)))]
    run = f" of {clean_text(table['label'].iloc[0], 60)}" if "label" in table else ""
    place = f"before block {top['depth']}" if value == "mended" else f"at depth {top['depth']}"
    return (
        f"Share of {VALUES[value][2]}{run}, for {plural(len(titles), 'data set')}. It is highest for "
        f"{clean_text(top['title'], 40)} {place}, {percent(top['share'])}."
    )
