"""Neighbors: the images with the nearest features in each model, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.parts import picture_grid
from viz.text import clean_text, plural, real, safe_text

UNIT, TOP, BOTTOM, RIGHT = 124, 30, 46, 16  # px: a row, and margins
LETTERS = 13  # of a class under its picture


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
    """A row of pictures for each model, the nearest first, with class and cosine; one in several rows has a frame.

    model (key), title, rank (from 1), image (its name), class, cosine of unit features, shared (whether another model
    has it among its own). ``pictures`` are PNGs (data URIs) by image. ``sentence`` says in words what the image's page
    says.
    """
    table = table.assign(model=table["model"].astype(str))
    models, ranks = in_order(table["model"]), sorted(int(rank) for rank in table["rank"].unique())
    titles = picture_grid.titles_of(table)
    shown = pictures or {}
    fig = go.Figure()
    for place, model in enumerate(models):
        own = table[table["model"] == model]
        fig.add_trace(_frames(own, place, titles[model]))
        for row in own.to_dict("records"):
            if source := picture_grid.checked(shown.get(str(row["image"]), "")):
                fig.add_layout_image(
                    source=source, xref="x", yref="y", x=row["rank"], y=place + 0.06, sizex=0.86, sizey=0.58,
                    xanchor="center", yanchor="top", sizing="contain", layer="below",
                )  # fmt: skip
            words = f"{safe_text(row['class'], LETTERS)}<br>{row['cosine']:.2f}".replace("-", "−")
            fig.add_annotation(
                text=words, x=row["rank"], y=place + 0.66, xref="x", yref="y", yanchor="top", showarrow=False,
                font={"size": theme.SMALL, "color": theme.INK},
            )  # fmt: skip
    labels = [safe_text(titles[model], 20) for model in models]
    ticks = {"tickmode": "array", "showgrid": False, "fixedrange": True, "ticks": "", "zeroline": False}
    fig.update_xaxes(
        title={"text": "Rank: 1 is the nearest; under each picture its class and cosine"}, tickvals=ranks,
        ticktext=[str(rank) for rank in ranks], range=[min(ranks) - 0.5, max(ranks) + 0.5], **ticks,
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": "Model"}, range=[len(models), 0], tickvals=[place + 0.35 for place in range(len(models))],
        ticktext=labels, **ticks,
    )  # fmt: skip
    left = max(map(theme.text_width, labels)) + 40
    fig.update_layout(showlegend=False, margin={"l": left, "r": RIGHT, "t": TOP, "b": BOTTOM})
    alt = f"{sentence} {_alt(table, models, titles)}".strip()
    return theme.finish(fig, "image_neighbors", alt, TOP + BOTTOM + UNIT * len(models), present, ",".join(models))


def _frames(own: pd.DataFrame, place: int, title: str) -> go.Scatter:
    """A frame round each picture, which has its hover text."""
    shared = own["shared"].astype(bool).tolist() if "shared" in own else [False] * len(own)
    return go.Scatter(
        x=own["rank"].to_numpy(np.float32), y=np.full(len(own), place + 0.35, np.float32), mode="markers",
        name=safe_text(title, 40), text=[_hover(row) for row in own.to_dict("records")],
        hovertemplate="%{text}<extra></extra>",
        marker={
            "symbol": "square-open", "size": 80, "color": [theme.ACCENT if one else theme.GRID for one in shared],
            "line": {"width": 3},
        },
    )  # fmt: skip


def _hover(row: Mapping[Any, Any]) -> str:
    words = f"<b>{safe_text(row['class'], 40)}</b><br>{safe_text(row['image'], 60)}<br>{safe_text(row['title'], 40)}, "
    words += f"rank {row['rank']}, cosine {real(row['cosine'])}"
    return words + ("<br>also near in another model" if row.get("shared") else "")


def _alt(table: pd.DataFrame, models: list[str], titles: Mapping[str, str]) -> str:
    nearest = table[table["rank"] == table["rank"].min()].set_index("model")["class"]
    parts = [f"{clean_text(nearest[model], 30)} in {clean_text(titles[model], 40)}" for model in models[:4]]
    return f"Nearest images of {plural(len(models), 'model')}: first {', '.join(parts)}."
