"""The network as a map: every tensor as a rectangle along the residual line, colored by a quantity of the merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import TENSOR_COLUMNS, Names, chart, check_option, distinct_names, sort_forward
from viz.drawing import Drawing, Picture, Trace, bar
from viz.figure_text import clean_text, identifier, plural, safe_text
from viz.figures.network import update_streams
from viz.hover import LAYER_TEXT, VALUE_FORMATS, hover_texts
from viz.parts import heat_maps
from viz.parts.network_layout import ELSEWHERE, Box, Heights, Row, lay_out_network

Numbers = npt.NDArray[np.float64]
SCALES = ("linear", "log", "diverging", "mask")
UNIT, PX = 40, 4  # coordinates in a unit and in a px: whole numbers, so that figures stay small
FULL, COMPACT = Heights(6, 46), Heights(4, 36)
LANE_PX, MIN_LANES_PX = 10, 40  # height of an expert's stream, and of the streams together
LINE_PX = 3.0  # half the height of the residual line in a compact map
ROW_GAP, LABEL_PX, TITLE_PX = 8, 16, 16  # px: between rows, under a row for its labels, and over it for its name
BAR_PX = 54  # px above the full map for its color bar
MAX_LABELS = 16  # numbers of blocks under a row
MASK_SCALE = [[0, theme.PRUNED], [0.5, theme.PRUNED], [0.5, theme.KEPT], [1, theme.KEPT]]
HEADER = f"<b>{{tensor:short}}</b><br>{LAYER_TEXT}, {{numel:count}} scalars"
HOVER_NAMES = 2  # experts in a line of the hover text


class PlacedRow(NamedTuple):
    """A row of the map with the height of its line, in px above the bottom, and half the height of its streams."""

    row: Row
    line: float
    lanes: float


@chart(
    title="The network as a map",
    question="Where in the network did the merge change what?",
    columns=(*TENSOR_COLUMNS, "numel", "value"),
    optional=("expert", "square", "weight_square", "kept", "opposed"),
    picks=("tensor", "expert"),
    empty="Nothing of this quantity is stored for this run.",
)
def network_map(
    table: pd.DataFrame,
    *,
    title: str = "Value",
    scale: str = "linear",
    percent: bool = False,
    format: str = "real",
    experts: Names = None,
    selected: str | None = None,
    by_area: bool = False,
    compact: bool = False,
    result: str = "",
    limits: heat_maps.Limits = None,
    present: bool = False,
) -> Picture:
    """A schematic of the network in the direction of the data, with a rectangle for each tensor.

    Columns: value (of the tensor, or of each expert's lane in it if there is a column expert), square and weight_square
    (squared L2 norms of the expert's task vector and of the pretrained weights), kept (whether the expert's mask keeps
    the tensor), opposed (share of the scalars at which another expert's sign is opposed, averaged over the others). The
    last four draw the experts' streams: as wide as their relative update, gray where pruned, split where signs are
    opposed. ``title`` is the quantity with its unit, ``scale`` one of linear, log, diverging and mask, ``format`` that
    of hover texts. ``by_area`` draws areas by the number of scalars; a ``compact`` map is low and has no streams;
    ``result`` is a text about the merged model at the end of the line.
    """
    check_option("scale", scale, SCALES)
    names = [name for name in experts or _list_experts(table) if name in set(_list_experts(table))] or [""]
    tensors = sort_forward(table.drop_duplicates("tensor")).reset_index(drop=True)
    streams = not compact and {"square", "weight_square"} <= set(table)
    lanes = max(LANE_PX * len(names), MIN_LANES_PX) / 2 if streams else LINE_PX
    rows = _stack_rows(lay_out_network(tensors, _heights(compact, lanes), by_area), lanes, compact)
    width = max(placed.row.width for placed in rows)
    values = _spread_lanes(table, tensors, names)
    fig = Drawing()
    bounds = {box.tensor: _scale_box(box, placed.line) for placed in rows for box in placed.row.boxes}
    ordered = [bounds[str(name)] for name in tensors["tensor"]]
    fig.add_trace(_draw_frames(tensors, names, values, ordered, title, percent, format))
    fig.add_trace(_draw_lanes(values, ordered, _color_scale(title, scale, percent, limits), compact))
    shapes = [shape for placed in rows for shape in _draw_lines(placed)]
    start = 0.0
    if streams:
        drawn = update_streams.draw_streams(table, names, theme.mark_styles(experts or names), rows, (UNIT, PX))
        start = update_streams.FAN_UNITS * width
        fig.add_traces(drawn.targets)
        shapes += drawn.shapes
        fig.update_layout(annotations=drawn.labels)
    _lay_out(fig, rows, width, start, result)
    if selected in bounds:
        shapes.append(_frame(bounds[selected]))
    bottom, top = 10.0, 8.0 if compact else BAR_PX
    height = _total_height(rows, compact)
    fig.update_layout(
        shapes=shapes, barmode="overlay", showlegend=False,
        margin={"l": 8, "r": 92 if compact else 12, "t": top, "b": bottom, "pad": 0},
    )  # fmt: skip
    fig.update_yaxes(visible=False, range=[0, height * PX], fixedrange=True)
    alt = _describe(tensors, names, values, title, rows)
    return Picture(fig, alt, height + top + bottom, f"{len(tensors)}:{compact}:{by_area}")


def _list_experts(table: pd.DataFrame) -> list[str]:
    return [name for name in distinct_names(table["expert"]) if name and name != "nan"] if "expert" in table else []


def _heights(compact: bool, lanes: float) -> Heights:
    heights = COMPACT if compact else FULL
    return heights._replace(gap=heights.gap + lanes)


def _row_sides(row: Row) -> tuple[float, float]:
    """How far the boxes of a row reach above its line and below it, in px."""
    return max([box.y1 for box in row.boxes] + [0]), -min([box.y0 for box in row.boxes] + [0])


def _stack_rows(rows: Sequence[Row], lanes: float, compact: bool) -> list[PlacedRow]:
    """The rows from top to bottom."""
    placed, bottom = [], 0.0
    for row in reversed(rows):
        above, below = (max(side, lanes) for side in _row_sides(row))
        line = bottom + LABEL_PX + below
        placed.append(PlacedRow(row, line, 0.0 if row.name == ELSEWHERE else lanes))
        bottom = line + above + ROW_GAP + (TITLE_PX if row.name else 0)
    return placed[::-1]


def _total_height(rows: Sequence[PlacedRow], compact: bool) -> float:
    first = rows[0]
    return first.line + max(_row_sides(first.row)[0], first.lanes) + (TITLE_PX if first.row.name else 2)


def _scale_box(box: Box, line: float) -> tuple[int, int, int, int]:
    """The ends x0, x1, y0, y1 of a box in the figure's coordinates."""
    return round(box.x0 * UNIT), round(box.x1 * UNIT), round((line + box.y0) * PX), round((line + box.y1) * PX)


def _spread_lanes(table: pd.DataFrame, tensors: pd.DataFrame, names: Sequence[str]) -> Numbers:
    """The values (tensors, lanes) of a table; NaN where there is none."""
    rows = {name: index for index, name in enumerate(tensors["tensor"].astype(str))}
    columns = {name: index for index, name in enumerate(names)}
    values = np.full((len(rows), len(columns)), np.nan)
    lanes = table["expert"].astype(str).map(columns) if names != [""] else pd.Series(0, index=table.index)
    known = lanes.notna()
    row = table["tensor"].astype(str).map(rows)[known].to_numpy(int)
    values[row, lanes[known].to_numpy(int)] = table.loc[known, "value"].to_numpy(np.float64)
    return values


def _color_scale(title: str, scale: str, percent: bool, limits: heat_maps.Limits) -> heat_maps.ColorScale:
    if scale == "mask":
        return heat_maps.ColorScale(title, False, (0.0, 1.0), colors=MASK_SCALE)
    return heat_maps.ColorScale(title, scale == "log", limits, percent, scale == "diverging")


def _draw_frames(
    tensors: pd.DataFrame, names: Sequence[str], values: Numbers, boxes: Sequence[tuple[int, ...]], title: str,
    percent: bool, format: str,
) -> Trace:  # fmt: skip
    """The frames of all tensors, which take clicks and have the hover texts and the table's numbers."""
    x0, x1, y0, y1 = np.array(boxes).T
    write = VALUE_FORMATS[format]
    texts = hover_texts(tensors, HEADER)
    for index, row in enumerate(values):
        words = [
            f"{safe_text(name, 24)} {write(number)}" if name else write(number)
            for name, number in zip(names, row.tolist(), strict=True)
        ]
        lines = [" · ".join(words[start : start + HOVER_NAMES]) for start in range(0, len(words), HOVER_NAMES)]
        texts[index] += f"<br>{safe_text(title.replace('<br>', ' '))}: " + "<br>".join(lines)
    unit = title.replace("<br>", " ")
    columns = {
        clean_text(f"{unit}, {name}" if name else unit): _rounded(column)
        for name, column in zip(names, values.T, strict=True)
    }
    return bar(
        x=((x0 + x1) / 2).astype(np.int16), width=(x1 - x0).astype(np.int16), base=y0, y=(y1 - y0).astype(np.int16),
        customdata=[[identifier(name), ""] for name in tensors["tensor"]], text=texts, textposition="none",
        hovertemplate="%{text}<extra></extra>", name="Tensor",
        marker={"color": theme.GROUND, "line": {"color": theme.REFERENCE, "width": 0.8}},
        unselected={"marker": {"opacity": 1}}, meta={"columns": columns, "without_positions": True},
    )  # fmt: skip


def _rounded(column: Numbers) -> list[float | None]:
    return [float(f"{number:.4g}") if np.isfinite(number) else None for number in column]


def _draw_lanes(values: Numbers, boxes: Sequence[tuple[int, ...]], scale: heat_maps.ColorScale, compact: bool) -> Trace:
    """The colored lanes inside the frames, along the longer side of each."""
    colors, fields = heat_maps.color_values(np.where(np.isfinite(values), values, np.nan), scale)
    rows, lanes = np.nonzero(np.isfinite(values))
    x0, x1, y0, y1 = np.array(boxes)[rows].T.astype(np.float64) if len(rows) else np.zeros((4, 0))
    count = values.shape[1]
    is_flat = (y1 - y0) / PX < 2.2 * count  # too low for lanes one above the other
    share = lanes / count
    left, right = (
        np.where(is_flat, x0 + (x1 - x0) * share, x0),
        np.where(is_flat, x0 + (x1 - x0) * (share + 1 / count), x1),
    )
    high, low = (
        np.where(is_flat, y1, y1 - (y1 - y0) * share),
        np.where(is_flat, y0, y1 - (y1 - y0) * (share + 1 / count)),
    )
    bar_fields = fields.pop("colorbar")
    low_color, high_color = fields.pop("zmin"), fields.pop("zmax")
    default = theme.DIVERGING if scale.diverging else theme.SEQUENTIAL
    return bar(
        x=((left + right) / 2).astype(np.float32), width=(right - left).astype(np.float32),
        base=np.round(low).astype(int), y=np.round(high - low).astype(np.int16), hoverinfo="skip", name="Lane",
        marker={
            "color": colors[rows, lanes], "colorscale": scale.colors or default, "cmin": low_color, "cmax": high_color,
            "showscale": True, "colorbar": _place_color_bar(bar_fields, scale, compact), "line": {"width": 0},
        },
        unselected={"marker": {"opacity": 1}},
    )  # fmt: skip


def _place_color_bar(fields: dict[str, Any], scale: heat_maps.ColorScale, compact: bool) -> dict[str, Any]:
    """The color bar: above the map, or at its right if it is compact."""
    if scale.colors is MASK_SCALE:
        fields |= {"tickmode": "array", "tickvals": [0.25, 0.75], "ticktext": ["pruned", "kept"]}
    if compact:
        return fields | {"x": 1.0, "xpad": 8, "y": 0.5, "len": 1, "lenmode": "fraction", "thickness": 10}
    return fields | {
        "orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "lenmode": "pixels", "len": 300,
        "thickness": 10, "xpad": 8, "ypad": 2, "title": {"text": fields["title"]["text"].replace("<br>", " "), "side": "top"},
    }  # fmt: skip


def _draw_lines(placed: PlacedRow) -> list[dict[str, Any]]:
    """The residual line of a row and its branches."""
    row, line = placed.row, placed.line * PX
    if not row.sections:
        return []
    style = {"color": theme.FADED, "width": 1.2}
    steps = "".join(
        f"M{branch.x0 * UNIT:.0f},{line:.0f}V{line + branch.y * PX:.0f}H{branch.x1 * UNIT:.0f}V{line:.0f}"
        for branch in row.branches
    )
    path = steps + f"M0,{line:.0f}H{row.width * UNIT:.0f}"
    return [{"type": "path", "path": path, "line": style, "layer": "below", "fillcolor": theme.CLEAR}]


def _frame(box: tuple[int, ...]) -> dict[str, Any]:
    x0, x1, y0, y1 = box
    line = {"color": theme.ACCENT, "width": 3}
    pad = (0.1 * UNIT, 1.5 * PX)
    return {"type": "rect", "x0": x0 - pad[0], "x1": x1 + pad[0], "y0": y0 - pad[1], "y1": y1 + pad[1], "line": line,
            "name": "selected"}  # fmt: skip


def _lay_out(fig: Drawing, rows: Sequence[PlacedRow], width: float, start: float, result: str) -> None:
    """The axis along the network, the labels under the sections, and the names of the rows."""
    end = width * (1 + (update_streams.TAIL_SHARE if result or start else 0.01))
    fig.update_xaxes(visible=False, range=[-(start + 0.3) * UNIT, end * UNIT], fixedrange=True)
    for placed in rows:
        low = placed.line - max(_row_sides(placed.row)[1], placed.lanes)
        blocks = [section for section in placed.row.sections if section.label.isdecimal()]
        step = -(-len(blocks) // MAX_LABELS)
        hidden = {section.name for index, section in enumerate(blocks) if index % step}
        for section in placed.row.sections:
            if section.name not in hidden:
                words = {"embeddings": "input"}.get(section.label, section.label)
                fig.add_annotation(
                    x=(section.x0 + section.x1) / 2 * UNIT, y=low * PX, text=safe_text(words, 16), yanchor="top",
                    font={"color": theme.FADED, "size": theme.SMALL_SIZE},
                )  # fmt: skip
        if placed.row.name:
            top = placed.line + max(_row_sides(placed.row)[0], placed.lanes)
            fig.add_annotation(
                x=0, y=top * PX, text=f"<b>{safe_text(placed.row.name, 40)}</b>", xanchor="left", yanchor="bottom"
            )
    if result:
        first = rows[0]
        fig.add_annotation(
            x=first.row.width * (1 + update_streams.TAIL_SHARE / 3) * UNIT + UNIT / 4,
            y=first.line * PX,
            text=result,
            xanchor="left",
            align="left",
        )


def _describe(
    tensors: pd.DataFrame, names: Sequence[str], values: Numbers, title: str, rows: Sequence[PlacedRow]
) -> str:
    means = np.array([row[np.isfinite(row)].mean() if np.isfinite(row).any() else np.nan for row in values])
    blocks = sum(section.label.isdecimal() for placed in rows for section in placed.row.sections)
    quantity = clean_text(title.replace("<br>", " "))
    experts = f" for {plural(len(names), 'expert')}" if names != [""] else ""
    words = (
        f"Schematic of {plural(len(tensors), 'tensor')} in {plural(blocks, 'block')}, colored by {quantity}{experts}."
    )
    if not np.isfinite(means).any():
        return words
    largest, smallest = (
        str(tensors["tensor"].iloc[int(index)]) for index in (np.nanargmax(means), np.nanargmin(means))
    )
    return f"{words} Largest on average in {clean_text(largest, 60)}, smallest in {clean_text(smallest, 60)}."
