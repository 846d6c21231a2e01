"""Heat maps over an axis through the network, with tensors in forward order and blocks as ticks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import distinct_names
from viz.drawing import Drawing, Picture, Trace, heatmap
from viz.hover import hover_texts
from viz.parts import axes
from viz.parts.cell_targets import NO_CELL, CellPosition, click_targets, outline
from viz.parts.tensor_columns import TensorColumns

ROW, TOP, BOTTOM, RIGHT = 26, 38, 56, 96  # px: height of a row, and margins of a heat map
BLOCKS_PASSED = "Depth: 0 is before block 0, b after b blocks"  # the depth in every chart of one image
Limits = tuple[float, float] | None  # of the colored numbers; if None, their own range


class ColorScale(NamedTuple):
    """The colors of a heat map's numbers. A ``diverging`` scale is linear, with zero in its middle.

    ``colors`` replaces the usual color scale.
    """

    title: str
    log: bool = True
    limits: Limits = None
    percent: bool = False
    diverging: bool = False
    colors: list[Any] | None = None


def heat_map(
    table: pd.DataFrame,
    rows: str,
    value: str,
    scale: ColorScale,
    hover: str,
    selected: CellPosition = NO_CELL,
    *,
    alt: str,
    zoom_key: str = "",
    formats: Mapping[str, Callable[[Any], str]] | None = None,
) -> Picture:
    """A heat map of the column ``value`` over tensors, a row for each name in the column ``rows``; cells take clicks.

    ``hover`` is a template of ``viz.hover``, with its ``formats``. ``selected`` outlines a (row, tensor), a row or a
    column. A column "title", if there is one, has the titles of the rows.
    """
    columns, names = TensorColumns.from_table(table), distinct_names(table[rows])
    titles = table.drop_duplicates(rows)["title"].tolist() if "title" in table else names
    cells = columns.complete_cells(table, rows, names)
    texts = hover_texts(cells, hover, **(formats or {}))
    fig = Drawing([
        heat(cells[value].to_numpy(np.float64).reshape(len(names), -1), scale, ygap=1),
        click_targets(names, columns.names, texts, "Cells"),
    ])  # fmt: skip
    fig.update_xaxes(**columns.axis())
    fig.update_yaxes(**axes.name_axis(rows.capitalize(), titles, down=True))
    fig.update_layout(
        annotations=columns.end_labels(),
        shapes=[*columns.separators(), *outline(names, columns.names, selected)],
        margin={"l": left_margin(titles), "r": RIGHT, "t": TOP, "b": BOTTOM},
        showlegend=False,
        barmode="overlay",
    )
    return Picture(fig, alt, map_height(len(names)), zoom_key=f"{zoom_key}:{len(columns.names)}".removeprefix(":"))


def set_title_and_note(picture: Picture, unit: str, note: str) -> Picture:
    """A heat map with another title of its rows, and a note above it."""
    picture.drawing.update_yaxes(title={"text": unit})
    picture.drawing.add_annotation(theme.caption(note, 1))
    return picture


def heat(values: npt.NDArray[np.float64], scale: ColorScale, **fields: Any) -> Trace:
    """A map of ``values`` (rows, columns), where NaN has no color; ``fields`` are those of plotly's trace."""
    z, colors = color_values(np.where(np.isfinite(values), values, np.nan), scale)
    name = scale.title.replace("<br>", " ")
    return heatmap(
        **{
            "z": z,
            "colorscale": scale.colors or theme.color_scale(scale.diverging),
            "name": name,
            "hoverinfo": "skip",
            **colors,
            **fields,
        }
    )


def panel_color_bar(domain: Sequence[float]) -> dict[str, Any]:
    """Settings of a panel's color bar: at the right of the panel, and as high as the panel."""
    return {
        "x": 1.01, "xpad": 4, "y": domain[1], "yanchor": "top", "lenmode": "fraction", "ypad": 0,
        "len": domain[1] - domain[0],
    }  # fmt: skip


def left_margin(names: Sequence[object]) -> float:
    """Width in px on the left of a heat map: names of rows and title, and the tick "embeddings" under the axis."""
    return axes.names_width(names, min_width=70) + 38


def map_height(rows: int) -> float:
    """Height in px of a heat map with ``rows`` rows, at least that of the color bar."""
    return TOP + BOTTOM + max(rows * ROW, 110)


def color_values(values: npt.NDArray[np.float64], scale: ColorScale) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
    """The colored values (rows, columns), logarithms on a log scale, and the fields of range and color bar."""
    low, high = scale.limits or _color_range(values, scale)
    low = max(low, high * 1e-6) if scale.log else low
    bar: dict[str, Any] = {"title": {"text": scale.title, "side": "top"}, "thickness": 12, "outlinewidth": 0}
    z, meta = values, dict[str, Any]()
    if scale.log and 0 < low < high:
        # zero has no logarithm: it takes the scale's lowest color, and the hover gives the number
        z, marks = np.log10(np.maximum(values, low)), theme.ticks(low, high, log=True)
        low, high, meta = float(np.log10(low)), float(np.log10(high)), {"meta": {"log": ["z"]}}
    else:
        low, high = (low, high) if low < high else (min(low, 0.0), high or 1.0)
        marks = theme.ticks(low, high)
    if scale.percent:
        exact = [10**value if z is not values else value for value in marks["tickvals"]]
        marks |= {"ticktext": [f"{100 * value:.3g}%" for value in exact]}
    return z.astype(np.float32), {"zmin": low, "zmax": high, "colorbar": bar | marks, **meta}


def _color_range(values: npt.NDArray[np.float64], scale: ColorScale) -> tuple[float, float]:
    """On a log scale from the smallest positive to the largest number, otherwise from zero or around zero."""
    finite = values[np.isfinite(values)]
    if scale.diverging:
        largest = float(np.abs(finite).max(initial=0)) or 1.0
        return -largest, largest
    positive = finite[finite > 0]
    return (float(positive.min(initial=np.inf)) if scale.log else 0.0), float(positive.max(initial=0))
