"""Grids of patches over a picture, many side by side: cells that are never smoothed, with one color bar."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import ChartError
from viz.drawing import Drawing, Trace, heatmap
from viz.figure_text import safe_text
from viz.hover import hover_texts
from viz.parts import heat_maps
from viz.parts.matrix import MatrixSide

GRID_PX, CAPTION, PAD = 132, 24, 5  # px of a grid: its side with its note, the note over it, and the space around it
TOP, RIGHT, BOTTOM, MAX_TITLE = 62, 110, 16, 22
GRID_OPACITY = 0.68  # opacity of the cells over the picture
PNG_PATTERN = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]+=*")


class GridCells(NamedTuple):
    """One grid: its numbers (rows, columns), their hover texts, and a note over it; texts are escaped."""

    values: npt.NDArray[np.float64]
    texts: list[list[str]]
    note: str = ""


def draw_model_grids(
    table: pd.DataFrame,
    by: str,
    rows: MatrixSide,
    columns: str,
    value: str,
    hover: str,
    scale: heat_maps.ColorScale,
    picture: str = "",
    wide: bool = False,
    *,
    notes: Mapping[tuple[str, str], str],
    **formats: Callable[[Any], str],
) -> tuple[Drawing, float]:
    """A grid of patches for each of ``rows`` and each model of a table with row and column, and the height in px.

    The column ``by`` names the rows. ``picture`` is the image as a PNG (data URI). ``notes`` by (row, model) are over
    the grids; ``columns`` is the title of the models. ``wide`` swaps rows and columns, for a projector. Raises
    ChartError if a grid lacks a number.
    """
    models = table.drop_duplicates("model")
    texts = pd.Series(hover_texts(table, hover, **formats), table.index)
    positions = {name: index for index, name in enumerate(models["model"])}
    grids = {
        (rows.names.index(str(row)), positions[str(model)]): _make_cells(
            patches, value, texts[patches.index], notes.get((str(row), str(model)), "")
        )
        for (row, model), patches in table.groupby([table[by].astype(str), "model"], sort=False)
    }
    fig = _draw_grids(grids, rows, MatrixSide(columns, list(positions), models["title"].tolist()), scale, picture, wide)
    return fig, TOP + BOTTOM + GRID_PX * max(len(rows.names), 1)


def _make_cells(patches: pd.DataFrame, value: str, texts: pd.Series[str], note: str) -> GridCells:
    """One grid from a table with a row for each patch. Raises ChartError unless every patch has one number."""
    y, x = (patches[name].to_numpy(int) for name in ("row", "column"))
    side = int(max(y.max(), x.max())) + 1
    values, words = np.full((side, side), np.nan), np.full((side, side), "", object)
    values[y, x], words[y, x] = patches[value], texts
    if not np.isfinite(values).all():
        raise ChartError(f"a picture needs one finite number for each of its {side} × {side} patches")
    return GridCells(values, words.tolist(), note)


def check_picture(picture: str) -> str:
    """A picture's data, if it is a PNG in base64 or empty. Raises ChartError."""
    if picture and not PNG_PATTERN.fullmatch(picture):
        raise ChartError("a picture is a PNG as a data URI in base64")
    return picture


def _draw_grids(
    grids: Mapping[tuple[int, int], GridCells],
    rows: MatrixSide,
    columns: MatrixSide,
    scale: heat_maps.ColorScale,
    picture: str,
    wide: bool,
) -> Drawing:
    """Grids by (row, column) of a plane, each over the picture; all have the same colors."""
    if wide and len(rows.names) > len(columns.names):
        grids, rows, columns = {(column, row): grid for (row, column), grid in grids.items()}, columns, rows
    all_values = np.concatenate([grid.values.ravel() for grid in grids.values()])
    _, colors = heat_maps.color_values(all_values, scale)
    traces: list[Trace] = []
    notes, pictures = [], []
    for index, ((row, column), grid) in enumerate(grids.items()):
        left, top, size = column + PAD / GRID_PX, row + CAPTION / GRID_PX, 1 - (CAPTION + PAD) / GRID_PX
        traces.append(_draw_heat(grid, (left, top), size, scale, colors, index == 0))
        notes.append(theme.caption(grid.note, top, x=left, xref="x", yref="y", yshift=0))
        if picture:
            pictures.append(_make_image(picture, left, top, size))
    fig = Drawing(traces)
    _lay_out(fig, rows, columns)
    fig.update_layout(annotations=notes, images=pictures)
    return fig


def _draw_heat(
    grid: GridCells,
    corner: tuple[float, float],
    size: float,
    scale: heat_maps.ColorScale,
    colors: dict[str, Any],
    first: bool,
) -> Trace:
    centers = [(np.arange(count) + 0.5) / count * size for count in grid.values.shape]
    return heatmap(
        x=(corner[0] + centers[1]).astype(np.float32), y=(corner[1] + centers[0]).astype(np.float32),
        z=grid.values.astype(np.float32), text=grid.texts, hovertemplate="%{text}<extra></extra>", name="Patches",
        opacity=GRID_OPACITY, xgap=1, ygap=1, showscale=first,
        colorscale=theme.DIVERGING if scale.diverging else theme.SEQUENTIAL, **colors,
    )  # fmt: skip


def _make_image(picture: str, left: float, top: float, size: float) -> dict[str, Any]:
    return {
        "source": check_picture(picture), "xref": "x", "yref": "y", "x": left, "y": top, "sizex": size, "sizey": size,
        "xanchor": "left", "yanchor": "top", "sizing": "stretch", "layer": "below",
    }  # fmt: skip


def _lay_out(fig: Drawing, rows: MatrixSide, columns: MatrixSide) -> None:
    column_titles, row_titles = ([_wrap_title(title) for title in side.titles] for side in (columns, rows))
    ticks = {"tickmode": "array", "showgrid": False, "fixedrange": True, "ticks": "", "zeroline": False}
    middle = (1 + CAPTION / GRID_PX) / 2
    fig.update_xaxes(
        title={"text": columns.title}, side="top", range=[0, len(column_titles)], tickangle=0, ticktext=column_titles,
        tickvals=[column + 0.5 for column in range(len(column_titles))], constrain="domain", constraintoward="center",
        **ticks,
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": rows.title}, range=[len(row_titles), 0], ticktext=row_titles, scaleanchor="x",
        constrain="domain", constraintoward="top", tickvals=[row + middle for row in range(len(row_titles))], **ticks,
    )  # fmt: skip
    lines = [line for title in row_titles for line in title.split("<br>")]
    left = max(*map(theme.text_width, lines), 30) + 40
    fig.update_layout(showlegend=False, margin={"l": left, "r": RIGHT, "t": TOP, "b": BOTTOM})


def _wrap_title(title: str) -> str:
    """A title in at most two lines."""
    words, lines = str(title).split(" "), [""]
    for word in words:
        if lines[-1] and len(lines) < 2 and len(lines[-1]) + len(word) >= MAX_TITLE:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(safe_text(line, MAX_TITLE) for line in lines)
