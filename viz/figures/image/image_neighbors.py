"""Neighbors: the images with the nearest features in each model, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import picture_grid
from viz.text import clean_text, plural, real, safe_text

UNIT, TOP, BOTTOM, RIGHT = 108, 62, 16, 16  # px: a row, and margins
LETTERS = {1: 40, 2: 28, 3: 18}  # of a class under its picture, by models; with more of them 11
PLACE = 0.64  # share of a row that the picture takes


@chart(
    title="Neighbors",
    question="Which images does each model take for the nearest?",
    columns=("model", "title", "rank", "image", "class", "cosine"),
    optional=("task", "shared"),
    rows=("model", "rank"),
    empty="No model's neighbors of the image are known yet.",
)
def image_neighbors(
    table: pd.DataFrame, *, pictures: Mapping[str, str] | None = None, sentence: str = "", present: bool = False
) -> go.Figure:
    """A column of pictures for each model, the nearest first, with class and cosine; one in several has a frame.

    model (key), title, rank (from 1), image (its name), class, cosine of unit features, shared (whether another model
    has it among its own). ``pictures`` are PNGs (data URIs) by image. ``sentence`` says in words what the image's page
    says.
    """
    table = table.assign(model=table["model"].astype(str))
    models, ranks = in_order(table["model"]), sorted(int(rank) for rank in table["rank"].unique())
    titles = picture_grid.titles_of(table)
    fig = Drawing()
    for column, model in enumerate(models):
        own = table[table["model"] == model]
        fig.add_trace(_places(own, column, titles[model]))
        for row in own.to_dict("records"):
            cosine = f"{row['cosine']:.2f}".replace("-", "−")
            words = f"{safe_text(row['class'], LETTERS.get(len(models), 11))}<br>{cosine}"
            picture = picture_grid.checked((pictures or {}).get(str(row["image"]), ""))
            _tile(fig, (column, row["rank"] - min(ranks)), words, picture, bool(row.get("shared")))
    labels = [safe_text(titles[model], 22) for model in models]
    ticks = {"tickmode": "array", "showgrid": False, "fixedrange": True, "ticks": "", "zeroline": False}
    fig.update_xaxes(
        title={"text": "Model; under each picture its class and cosine"}, tickvals=list(range(len(models))),
        ticktext=labels, range=[-0.5, len(models) - 0.5], side="top", tickangle=0, **ticks,
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": "Rank: 1 is the nearest"}, range=[len(ranks), 0], ticktext=[str(rank) for rank in ranks],
        tickvals=[rank - min(ranks) + PLACE / 2 for rank in ranks], **ticks,
    )  # fmt: skip
    fig.update_layout(showlegend=False, margin={"l": 60, "r": RIGHT, "t": TOP, "b": BOTTOM})
    alt = f"{sentence} {_alt(table, models, titles)}".strip()
    return theme.finish(fig, "image_neighbors", alt, TOP + BOTTOM + UNIT * len(ranks), present, ",".join(models))


def _tile(fig: Drawing, at: tuple[int, int], words: str, picture: str, framed: bool) -> None:
    """One picture at a (column, row), with words under it."""
    column, row = at
    if picture:
        fig.add_image(
            source=picture, xref="x", yref="y", x=column, y=row + 0.04, sizex=0.9, sizey=PLACE - 0.04,
            xanchor="center", yanchor="top", sizing="contain", layer="below",
        )  # fmt: skip
    if framed:
        fig.add_shape(
            type="rect", x0=column - 0.46, x1=column + 0.46, y0=row + 0.01, y1=row + PLACE + 0.02, xref="x", yref="y",
            line={"color": theme.ACCENT, "width": 2},
        )  # fmt: skip
    fig.add_annotation(
        text=words, x=column, y=row + PLACE, xref="x", yref="y", yanchor="top", showarrow=False,
        font={"size": theme.SMALL, "color": theme.INK},
    )  # fmt: skip


def _places(own: pd.DataFrame, column: int, title: str) -> Trace:
    """Invisible marks over the pictures, which have the hover texts."""
    ranks = own["rank"].to_numpy(np.float32)
    return scatter(
        x=np.full(len(own), column, np.float32), y=ranks - ranks.min() + np.float32(PLACE / 2), mode="markers",
        name=safe_text(title, 40), text=[_hover(row) for row in own.to_dict("records")],
        hovertemplate="%{text}<extra></extra>", marker={"symbol": "square", "size": 60, "opacity": 0},
        meta={"columns": {"Cosine": own["cosine"].tolist()}},
    )  # fmt: skip


def _hover(row: Mapping[Any, Any]) -> str:
    words = f"<b>{safe_text(row['class'], 40)}</b><br>{safe_text(row['image'], 60)}<br>{safe_text(row['title'], 40)}, "
    words += f"rank {row['rank']}, cosine {real(row['cosine'])}"
    return words + ("<br>also near in another model" if row.get("shared") else "")


def _alt(table: pd.DataFrame, models: list[str], titles: Mapping[str, str]) -> str:
    nearest = table[table["rank"] == table["rank"].min()].set_index("model")["class"]
    parts = [f"{clean_text(nearest[model], 30)} in {clean_text(titles[model], 40)}" for model in models[:4]]
    return f"Nearest images of {plural(len(models), 'model')}: first {', '.join(parts)}."
