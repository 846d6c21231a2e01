"""Grids of patches over a picture, many side by side: hard cells that are never smoothed, with one color bar."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import ChartError
from viz.drawing import Drawing, Trace, heatmap
from viz.parts import depth
from viz.parts.matrix import Side
from viz.text import safe_text

UNIT, CAPTION, PAD = 132, 24, 5  # px of a place: its side, the line over its grid, and the space around it
TOP, RIGHT, BOTTOM, LONGEST = 62, 110, 16, 22
VEIL = 0.68  # opacity of the cells over the picture
PNG = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]+=*")


class Cells(NamedTuple):
    """One grid: its numbers (rows, columns), their hover texts, and a line over it; texts are escaped."""

    values: npt.NDArray[np.float64]
    texts: list[list[str]]
    note: str = ""


def titles_of(table: pd.DataFrame) -> dict[str, str]:
    """The titles of a table's models by their keys."""
    return {str(key): str(title) for key, title in zip(table["model"], table["title"], strict=True)}


def cells(patches: pd.DataFrame, value: str, hover: Callable[[dict[Any, Any]], str], note: str = "") -> Cells:
    """One grid from a row for each patch. Raises ChartError if they are not one number for each place."""
    side = int(patches[["row", "column"]].to_numpy().max()) + 1
    values, texts = np.full((side, side), np.nan), [[""] * side for _ in range(side)]
    for row in patches.to_dict("records"):
        values[row["row"], row["column"]] = row[value]
        texts[row["row"]][row["column"]] = hover(row)
    if not np.isfinite(values).all():
        raise ChartError(f"a picture needs one finite number for each of its {side} × {side} patches")
    return Cells(values, texts, note)


def checked(picture: str) -> str:
    """A picture's data, if it is a PNG in base64 or empty. Raises ChartError."""
    if picture and not PNG.fullmatch(picture):
        raise ChartError("a picture is a PNG as a data URI in base64")
    return picture


def draw(
    grids: Mapping[tuple[int, int], Cells],
    rows: Side,
    columns: Side,
    scale: depth.Scale,
    picture: str = "",
    wide: bool = False,
) -> Drawing:
    """Grids by (row, column) of a plane, each over the picture; all have the same colors.

    ``wide`` lets rows and columns change places where there are more rows.
    """
    if wide and len(rows.names) > len(columns.names):
        grids, rows, columns = {(column, row): grid for (row, column), grid in grids.items()}, columns, rows
    every = np.concatenate([grid.values.ravel() for grid in grids.values()])
    _, colors = depth.colored(every, scale)
    traces: list[Trace] = []
    notes, pictures = [], []
    for place, ((row, column), grid) in enumerate(grids.items()):
        left, top, size = column + PAD / UNIT, row + CAPTION / UNIT, 1 - (CAPTION + PAD) / UNIT
        traces.append(_heat(grid, (left, top), size, scale, colors, place == 0))
        notes.append(_note(grid.note, left, top))
        if picture:
            pictures.append(_picture(picture, left, top, size))
    fig = Drawing(traces)
    _lay_out(fig, rows, columns)
    fig.update_layout(annotations=notes, images=pictures)
    return fig


def height(rows: Side) -> float:
    """Height in px of a figure with this many rows of grids."""
    return TOP + BOTTOM + UNIT * max(len(rows.names), 1)


def _heat(
    grid: Cells, corner: tuple[float, float], size: float, scale: depth.Scale, colors: dict[str, Any], first: bool
) -> Trace:
    centers = [(np.arange(count) + 0.5) / count * size for count in grid.values.shape]
    return heatmap(
        x=(corner[0] + centers[1]).astype(np.float32), y=(corner[1] + centers[0]).astype(np.float32),
        z=grid.values.astype(np.float32), text=grid.texts, hovertemplate="%{text}<extra></extra>", name="Patches",
        opacity=VEIL, xgap=1, ygap=1, showscale=first,
        colorscale=theme.DIVERGING if scale.diverging else theme.SEQUENTIAL, **colors,
    )  # fmt: skip


def _note(note: str, left: float, top: float) -> dict[str, Any]:
    return {
        "text": note, "x": left, "y": top, "xref": "x", "yref": "y", "xanchor": "left", "yanchor": "bottom",
        "showarrow": False, "font": {"size": theme.SMALL, "color": theme.INK},
    }  # fmt: skip


def _picture(picture: str, left: float, top: float, size: float) -> dict[str, Any]:
    return {
        "source": checked(picture), "xref": "x", "yref": "y", "x": left, "y": top, "sizex": size, "sizey": size,
        "xanchor": "left", "yanchor": "top", "sizing": "stretch", "layer": "below",
    }  # fmt: skip


def _lay_out(fig: Drawing, rows: Side, columns: Side) -> None:
    across, down = ([_wrapped(title) for title in side.titles] for side in (columns, rows))
    ticks = {"tickmode": "array", "showgrid": False, "fixedrange": True, "ticks": "", "zeroline": False}
    middle = (1 + CAPTION / UNIT) / 2
    fig.update_xaxes(
        title={"text": columns.title}, side="top", range=[0, len(across)], tickangle=0, ticktext=across,
        tickvals=[column + 0.5 for column in range(len(across))], constrain="domain", constraintoward="center", **ticks,
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": rows.title}, range=[len(down), 0], ticktext=down, scaleanchor="x", constrain="domain",
        constraintoward="top", tickvals=[row + middle for row in range(len(down))], **ticks,
    )  # fmt: skip
    lines = [line for title in down for line in title.split("<br>")]
    left = max(*map(theme.text_width, lines), 30) + 40
    fig.update_layout(showlegend=False, margin={"l": left, "r": RIGHT, "t": TOP, "b": BOTTOM})


def _wrapped(title: str) -> str:
    """A title in at most two lines."""
    words, lines = str(title).split(" "), [""]
    for word in words:
        if lines[-1] and len(lines) < 2 and len(lines[-1]) + len(word) >= LONGEST:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(safe_text(line, LONGEST) for line in lines)


def picked(titles: Mapping[str, str], keys: Sequence[str], title: str) -> Side:
    """One side of the plane: keys, with their titles."""
    return Side(title, list(keys), [titles.get(key, key) for key in keys])
