"""A heat map of one list of names against another, with numbers in cells that are large enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import ChartError
from viz.drawing import Drawing, Trace
from viz.figure_text import safe_text
from viz.hover import hover_texts
from viz.parts import axes, heat_maps, series
from viz.parts.cell_targets import click_targets

MAX_NUMBERED_COLUMNS = 12  # columns up to which numbers are written into the cells
ROW, TOP, RIGHT, TILT, MAX_TITLE = 34, 26, 110, 30, 20  # px, px, px, degrees, characters


class MatrixSide(NamedTuple):
    """One side of a matrix: the title of its axis, its names, and their titles."""

    title: str
    names: Sequence[str]
    titles: Sequence[str]


def draw(
    rows: MatrixSide,
    columns: MatrixSide,
    values: npt.NDArray[np.float64],
    texts: Sequence[str],
    scale: heat_maps.ColorScale,
    words: Sequence[str] = (),
) -> Drawing:
    """The matrix with ``values`` (rows, columns), in which a missing number is a gray cell; cells take clicks.

    ``texts`` are the hover texts of the cells that have numbers, row by row, and ``words`` what they show, by default
    the numbers.
    """
    y, x = np.nonzero(np.isfinite(values))
    numbers = values[y, x]
    positions = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    heat = heat_maps.heat(numbers, scale, **positions, xgap=2, ygap=2)
    heat["colorbar"]["title"]["text"] += "<br>\xa0"  # an empty line above the highest number
    traces = [heat]
    if len(columns.names) <= MAX_NUMBERED_COLUMNS:
        share = (heat["z"] - heat["zmin"]) / (heat["zmax"] - heat["zmin"])
        dark = abs(share - 0.5) > 0.3 if scale.diverging else share < 0.5
        shown = words or [_format_number(number, scale.percent) for number in numbers]
        traces.append(write_numbers(x, y, shown, dark))
    cells = list(zip(y.tolist(), x.tolist(), strict=True))
    traces.append(click_targets(rows.names, columns.names, texts, "Cells", cells=cells))
    fig = Drawing(traces)
    _lay_out(fig, rows, columns)
    return fig


def write_numbers(x: Any, y: Any, texts: Sequence[str], dark: Iterable[bool]) -> Trace:
    """Numbers in the cells, in a light color on cells that are ``dark`` and in a dark one on the others."""
    colors = [theme.ON_DARK if on_dark else theme.ON_LIGHT for on_dark in dark]
    return series.text_trace(x, y, texts, "Values", textfont={"size": theme.SMALL_SIZE, "color": colors})


def draw_table_matrix(
    table: pd.DataFrame,
    rows: MatrixSide,
    columns: MatrixSide,
    by: tuple[str, str],
    value: str,
    hover: str,
    scale: heat_maps.ColorScale,
    words: str = "",
) -> Drawing:
    """The matrix of a table with a row for each cell; its columns ``by`` name the cell's row and column.

    ``hover`` is a template of ``viz.hover``; cells show the column ``words``, by default their numbers. Raises
    ChartError if no cell has a number.
    """
    cells = table[np.isfinite(table[value].to_numpy(np.float64))]
    if cells.empty:
        raise ChartError("no cell of this matrix has a number")
    names = list(zip(cells[by[0]].astype(str), cells[by[1]].astype(str), strict=True))
    shown = cells[words] if words else [""] * len(cells)
    numbers, texts, shown_words = (
        dict(zip(names, column_values, strict=True))
        for column_values in (cells[value], hover_texts(cells, hover), shown)
    )
    values = np.array([[numbers.get((row, column), np.nan) for column in columns.names] for row in rows.names], float)
    positions = [(rows.names[y], columns.names[x]) for y, x in np.argwhere(np.isfinite(values)).tolist()]
    ordered_words = [shown_words[position] for position in positions] if words else ()
    return draw(rows, columns, values, [texts[position] for position in positions], scale, ordered_words)


def draw_model_matrices(
    table: pd.DataFrame,
    rows: tuple[str, str],
    columns: tuple[str, str],
    value: str,
    hover: str,
    scale: heat_maps.ColorScale,
    names: Sequence[str] | None = None,
    across: Sequence[str] | None = None,
    grouped: bool = True,
    **formats: Callable[[Any], str],
) -> tuple[Drawing, list[list[dict[Any, Any]]], str]:
    """The matrix of a table with a row for each cell of each model, the cells row by row, and the models as one text.

    ``rows`` and ``columns`` are titles of axes and columns of the table; each model has all columns, under its title if
    they are ``grouped``. ``names`` and ``across`` replace the numbers of rows and columns. Cells take no clicks.
    """
    models = table.drop_duplicates("model")
    down, side = (_sort_names(table[name]) for _, name in (rows, columns))
    cell_index = pd.MultiIndex.from_product([down, models["model"], side])
    cells = table.set_index([rows[1], "model", columns[1]], drop=False).loc[cell_index].reset_index(drop=True)
    shape = (len(down), len(models) * len(side))
    row_names, titles = list(names or map(str, down)), list(across or map(str, side)) * len(models)
    fig = draw(
        MatrixSide(rows[0], row_names, row_names), MatrixSide(columns[0], titles, titles),
        cells[value].to_numpy(np.float64).reshape(shape),
        hover_texts(cells, hover, **formats), scale,
    )  # fmt: skip
    fig.update_traces("Cells", customdata=None)
    if grouped:
        draw_groups(fig, models["title"].tolist(), len(side), len(down))
    records = cells.to_dict("records")
    by_row = [records[start : start + shape[1]] for start in range(0, len(records), shape[1])]
    return fig, by_row, ",".join(models["model"])


def _sort_names(values: pd.Series[Any]) -> list[Any]:
    """The distinct numbers, sorted, or the distinct names in the order of their first occurrence."""
    distinct = list(dict.fromkeys(values))
    return sorted(distinct) if pd.api.types.is_numeric_dtype(values) else distinct


def _format_number(number: float, percent: bool) -> str:
    return f"{100 * number:.0f}" if percent else f"{number:.2f}".replace("-", "−")


def draw_groups(fig: Drawing, titles: Sequence[str], size: int, rows: int) -> None:
    """Write titles over groups of ``size`` columns each, and draw lines between them."""
    for number, title in enumerate(titles):
        first = number * size - 0.5
        position = {"x": first + size / 2, "xref": "x", "y": 1, "yref": "paper", "yanchor": "bottom", "yshift": 2}
        fig.add_annotation(position, text=safe_text(title, 30))
        if number:
            line = theme.edge(2)
            fig.add_shape(type="line", xref="x", yref="y", x0=first, x1=first, y0=-0.5, y1=rows - 0.5, line=line)


def matrix_height(fig: Drawing, rows: int) -> float:
    """Height in px of a matrix with this many rows; few rows still leave room for the color bar."""
    return TOP + ROW * max(rows, 4) + float(fig.layout["margin"]["b"])


def _lay_out(fig: Drawing, rows: MatrixSide, columns: MatrixSide) -> None:
    column_titles = [safe_text(title, MAX_TITLE) for title in columns.titles]
    is_short = max(map(len, column_titles)) <= 3  # such as numbers of blocks, which need no tilt
    tilt = 0 if is_short else -TILT
    fig.update_xaxes(**axes.name_axis(columns.title, columns.titles, MAX_TITLE, tickangle=tilt, ticks=""))
    fig.update_yaxes(**axes.name_axis(rows.title, rows.titles, MAX_TITLE, down=True))
    bottom = 56 if is_short else max(map(theme.text_width, column_titles)) * float(np.sin(np.radians(TILT))) + 50
    margin = {"l": axes.names_width(rows.titles, MAX_TITLE, 30) + 40, "r": RIGHT, "t": TOP, "b": round(bottom)}
    fig.update_layout(barmode="overlay", showlegend=False, margin=margin, plot_bgcolor=theme.PANEL)
