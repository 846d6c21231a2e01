"""Restoring: what the right class's probability becomes with the reference's tokens put in before a block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, scatter
from viz.parts import matrix, picture_grid
from viz.parts.depth import Scale
from viz.text import clean_text, percent, plural, safe_text

KINDS = {"class": "class token", "patches": "patches", "all": "all tokens"}


@chart(
    title="Restoring tokens",
    question="Which tokens, put in from the reference before which block, bring the answer back?",
    columns=("model", "title", "against", "depth", "tokens", "followed", "probability", "change", "answer", "right"),
    optional=("donor",),
    rows=("model", "depth", "tokens"),
    empty="Nothing has been restored yet.",
)
def image_restore(table: pd.DataFrame, *, sentence: str = "", present: bool = False) -> go.Figure:
    """A row for each block, a column for each kind of tokens that is put in before it; the last row is the output.

    model (key), title, against (title of the model whose tokens are put in), depth (before the block of that number),
    tokens ("class", "patches", "all"), followed (class whose probability it is), probability, change of it, answer, and
    right (whether the answer is the class followed), which a ring marks. ``sentence`` says in words what the image's
    page says.
    """
    table = table.assign(model=table["model"].astype(str), tokens=table["tokens"].astype(str))
    models, kinds = in_order(table["model"]), in_order(table["tokens"])
    titles = picture_grid.titles_of(table)
    depths = sorted(int(depth) for depth in table["depth"].unique())
    columns = [(model, kind) for model in models for kind in kinds]
    known = {(row["depth"], row["model"], row["tokens"]): row for row in table.to_dict("records")}
    ordered = [[known[depth, *column] for column in columns] for depth in depths]
    values = np.array([[row["probability"] for row in rows] for rows in ordered], np.float64)
    names = [f"output ({depth})" if depth == depths[-1] else str(depth) for depth in depths]
    across = [KINDS.get(kind, kind) for _, kind in columns]
    fig = matrix.draw(
        matrix.Side("Before block", names, names), matrix.Side("Tokens put in", across, across), values,
        [_hover(row) for rows in ordered for row in rows],
        Scale("Probability of<br>the right class", log=False, limits=(0.0, 1.0), percent=True),
    )  # fmt: skip
    fig.update_traces("Cells", customdata=None)
    matrix.group(fig, [titles[model] for model in models], len(kinds), len(depths))
    mark(fig, ordered)
    alt = f"{sentence} {_alt(table, titles)}".strip()
    return theme.finish(fig, "image_restore", alt, matrix.height(fig, len(depths)), present, ",".join(models))


def mark(fig: Drawing, ordered: list[list[dict[Any, Any]]]) -> None:
    """A ring in the corner of the cells in which the answer is the class followed."""
    places = [(x, y) for y, rows in enumerate(ordered) for x, row in enumerate(rows) if row["right"]]
    if places:
        x, y = np.array(places, np.float32).T
        fig.add_trace(
            scatter(
                x=x + np.float32(0.36), y=y - np.float32(0.26), mode="markers", name="Right", hoverinfo="skip",
                marker={"symbol": "circle", "size": 7, "color": theme.ACCENT, "line": {"width": 1, "color": "white"}},
            )
        )  # fmt: skip


def _hover(row: Mapping[Any, Any]) -> str:
    words = (
        f"<b>{safe_text(row['title'], 40)}</b> with the {KINDS.get(row['tokens'], safe_text(row['tokens'], 30))} of "
    )
    words += f"{safe_text(row['against'], 40)} before block {row['depth']}<br>{safe_text(row['followed'], 40)}: "
    return f"{words}{percent(row['probability'])} ({_points(row['change'])})<br>says {safe_text(row['answer'], 40)}"


def _points(change: float) -> str:
    return f"{100 * change:+.1f} points".replace("-", "−")


def _alt(table: pd.DataFrame, titles: Mapping[str, str]) -> str:
    right = int(table["right"].astype(bool).sum())
    most = table.nlargest(1, "probability").iloc[0]
    return (
        f"Probability of {clean_text(most['followed'], 40)} with tokens put in, for {plural(len(titles), 'run')}: "
        f"right in {right} of {len(table)} cells, at most {percent(most['probability'], 0)} "
        f"({clean_text(KINDS.get(most['tokens'], most['tokens']), 30)} before block {most['depth']})."
    )
