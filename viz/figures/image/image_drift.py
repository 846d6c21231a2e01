"""Drift by patch: how far each token of an image is from the reference's, at every depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, scatter
from viz.parts import matrix, picture_grid
from viz.parts.depth import BLOCKS_PASSED, Scale
from viz.text import clean_text, plural, real, safe_text

TALLEST, SPARSE = 640, 40  # px of all rows; tokens above which not every one is named
PAST = "Past 90% of the data set"


@chart(
    title="Drift by patch",
    question="Which tokens of the image drift, and from which depth?",
    columns=("model", "title", "against", "depth", "token", "row", "column", "drift"),
    optional=("mean", "high", "past", "reference"),
    rows=("model", "depth", "token"),
    empty="No run's drift on the image is known yet.",
)
def image_drift(table: pd.DataFrame, *, sentence: str = "", present: bool = False) -> go.Figure:
    """A row for each token, the class token apart, and a column for each depth of each run.

    model (key), title, against (title of the reference), depth (0: before block 0), token (0: the class token), row and
    column of a patch, drift (1 − cosine to the reference's token). mean and high are the data set's mean and 90 %
    quantile for the same depth, and past whether the drift is above the quantile, which a cross marks. ``sentence``
    says in words what the image's page says.
    """
    table = table.assign(model=table["model"].astype(str))
    models = in_order(table["model"])
    titles = picture_grid.titles_of(table)
    depths, tokens = (sorted(int(number) for number in table[name].unique()) for name in ("depth", "token"))
    columns = [(model, depth) for model in models for depth in depths]
    known = {(row["token"], row["model"], row["depth"]): row for row in table.to_dict("records")}
    ordered = [[known[token, *column] for column in columns] for token in tokens]
    values = np.array([[row["drift"] for row in rows] for rows in ordered], np.float64)
    names = [_token(ordered[place][0]) for place in range(len(tokens))]
    across = [str(depth) for _, depth in columns]
    scale = Scale("Drift,<br>1 − cosine", log=False, limits=(0.0, max(float(np.nanmax(values)), 1e-6)))
    fig = matrix.draw(
        matrix.Side("Token: class token, patches by row and column", names, names),
        matrix.Side(BLOCKS_PASSED, across, across),
        values,
        [_hover(row) for rows in ordered for row in rows],
        scale,
    )
    fig.update_traces("Cells", customdata=None)
    _marks(fig, ordered)
    matrix.group(fig, [titles[model] for model in models], len(depths), len(tokens))
    line = {"color": theme.INK, "width": 2}
    fig.add_shape(type="line", xref="x domain", yref="y", x0=0, x1=1, y0=0.5, y1=0.5, line=line)
    height = matrix.height(fig, len(tokens))
    if matrix.ROW * len(tokens) > TALLEST:
        height += TALLEST - matrix.ROW * len(tokens)
    if len(tokens) > SPARSE:
        _few_names(fig, names)
    alt = f"{sentence} {_alt(table, models)}".strip()
    return theme.finish(fig, "image_drift", alt, height, present, ",".join(models))


def _token(row: Mapping[Any, Any] | pd.Series) -> str:
    return f"{row['row']}, {row['column']}" if row["token"] else "class token"


def _hover(row: Mapping[Any, Any]) -> str:
    words = (
        f"<b>{_token(row)}, depth {row['depth']}: {real(row['drift'])}</b><br>{safe_text(row['title'], 40)} against "
    )
    words += safe_text(row["against"], 40)
    if "high" in row and np.isfinite(row["high"]):
        words += f"<br>data set: mean {real(row['mean'])}, 90% of its images below {real(row['high'])}"
    return words


def _marks(fig: Drawing, ordered: Sequence[Sequence[Mapping[Any, Any]]]) -> None:
    """A cross over the cells that drift more than 90 % of the data set."""
    past = [(x, y) for y, rows in enumerate(ordered) for x, row in enumerate(rows) if row.get("past") is True]
    if not past:
        return
    x, y = np.array(past, np.float32).T
    fig.add_trace(
        scatter(
            x=x + np.float32(0.36), y=y - np.float32(0.3), mode="markers", name=PAST, hoverinfo="skip",
            marker={"symbol": "x", "size": 6, "color": theme.ACCENT, "line": {"width": 0.8, "color": "white"}},
        )
    )  # fmt: skip


def _few_names(fig: Drawing, names: Sequence[str]) -> None:
    places = [0, *range(1, len(names), max(1, len(names) // 16))]
    fig.update_yaxes(tickvals=places, ticktext=[names[place] for place in places])


def _alt(table: pd.DataFrame, models: list[str]) -> str:
    most = table.nlargest(1, "drift").iloc[0]
    words = f"Drift of {plural(table['token'].nunique(), 'token')} by depth for {plural(len(models), 'run')}: most, "
    words += f"{real(most['drift'])}, at {_token(most)}, depth {most['depth']} of {clean_text(most['title'], 40)}"
    past = int(table["past"].eq(True).sum()) if "past" in table else 0
    return words + (f"; {plural(past, 'cell')} past 90% of the data set." if past else ".")
