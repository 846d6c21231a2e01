"""The network as a map: every tensor as a rectangle along the residual line, colored by a quantity of the merge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import TENSOR_COLUMNS, Names, chart, check_option, distinct_names, sort_forward
from viz.drawing import Drawing, Picture, Trace, bar
from viz.figure_text import clean_text, identifier, plural, safe_text
from viz.figures.network import update_streams
from viz.figures.network.quantities import MASK_SCALE, QUANTITIES
from viz.hover import LAYER_TEXT, hover_texts
from viz.parts import axes, heat_maps, series
from viz.parts.network_layout import ELSEWHERE, Box, Heights, PlacedRow, Row, find_neighbor, lay_out_network
from viz.parts.tensor_columns import is_block

Numbers = npt.NDArray[np.float64]
UNIT, PX = 80, 4  # coordinates in a unit and in a px: whole numbers, so that figures stay small
FULL, COMPACT = Heights(6, 56), Heights(4, 36)
LANE_PX, MIN_LANES_PX = 10, 40  # height of an expert's stream, and of all streams together
LINE_PX = 3.0  # half the height of the residual line in a compact map
ROW_GAP, LABEL_PX, TITLE_PX = 8, 16, 18  # px: between rows, under a row for its labels, and over it for its name
LAYERS_PX, MAX_LAYERS = 18, 10  # px under all rows for the names of layers; with more layers there are no names
END_SHARE = 0.01  # of the width, before and after a map without streams
END_SHARES = {"full": (END_SHARE, END_SHARE), "low": (END_SHARE, END_SHARE), "small": (0.12, 0.12)}  # room for words
COLOR_BAR_PX, RESULT_PX = 56, 92  # px: above the map for its color bar, and at its right for the merged model
COLOR_STEPS = 10_000  # of the color scale: colors are whole numbers, so that figures stay small
MAX_LABELS, MAX_PRESENTED, MAX_COMPACT_TICKS = 16, 8, 4  # blocks named under a row, and ticks of a low color bar
FAINT = {"color": theme.FADED, "size": theme.SMALL_SIZE}  # of labels
ALL_BLOCKS = "all blocks"
LONG_TEXT_CELLS = 1000  # cells above which hover texts leave out what the map shows, so that a figure stays small
HEADER, SHORT_HEADER = f"<b>{{tensor:short}}</b><br>{LAYER_TEXT}, {{numel:count}} scalars", "<b>{tensor:short 60}</b>"
NUMBER_FORMATS = {"percent": ".1%", "real": ".3g", "decimal": ".2f", "kept": "d"}  # of d3, for hover texts
NAMES_IN_LINE = 2  # experts in a line of the hover text
# What is selected -> the column that its tensors share.
EXTENTS = {"tensor": "tensor", "block": "section", "layer": "part", "kind": "role"}


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
    quantity: str = "saliency",
    difference: bool = False,
    experts: Names = None,
    selected: str | None = None,
    extent: str = "tensor",
    by_area: bool = False,
    size: str = "full",
    result: str = "",
    present: bool = False,
) -> Picture:
    """A schematic of the network in the direction of the data, with a rectangle for each tensor.

    Columns: value (of the tensor, or of each expert's lane in it if there is a column expert), square and weight_square
    (squared L2 norms of the expert's task vector and of the pretrained weights), kept (whether the expert's mask keeps
    the tensor), opposed (share of the scalars at which another expert's sign is opposed, averaged over the others). The
    last four draw the experts' streams: as wide as their relative update, gray where pruned, split where signs are
    opposed. ``quantity`` is a key of ``QUANTITIES``; ``by_area`` draws areas by the number of scalars. ``size`` is
    full, low (no streams) or small (no names of layers, too). ``result`` is a text at the end of the streams.
    Outlined is the tensor ``selected``, its block, its layer in all blocks, or all of its role, as ``extent`` states.
    """
    shown = QUANTITIES[check_option("quantity", quantity, tuple(QUANTITIES))]
    compact = check_option("size", size, tuple(END_SHARES)) != "full"
    drawn_names = distinct_names(table["expert"]) if "expert" in table else []
    names = [name for name in experts or drawn_names if name in drawn_names]
    has_streams = not compact and bool(names) and {"square", "weight_square"} <= set(table)
    lanes = max(LANE_PX * len(names), MIN_LANES_PX) / 2 if has_streams else LINE_PX
    tensors = sort_forward(table.drop_duplicates("tensor")).reset_index(drop=True)
    heights = COMPACT if compact else FULL
    layers = [] if size == "small" or present else _list_layers(tensors)
    towers = lay_out_network(tensors, heights._replace(gap=heights.gap + lanes), by_area)
    rows = _stack_rows(towers, lanes, bool(layers))
    ends = {box.tensor: _scale_box(box, placed.line) for placed in rows for box in placed.row.boxes}
    boxes = np.array([ends[str(name)] for name in tensors["tensor"]])
    lane_names = names if shown.per_expert and names else [""]
    values = _spread_lanes(table, tensors, lane_names)
    scale = shown.color_scale(difference)
    frames = _draw_frames(tensors, _Lanes(lane_names, values), boxes, scale.title, shown.format)
    fig = Drawing([frames, _draw_lanes(values, boxes, scale, compact and not present)])
    shapes = [shape for placed in rows for shape in _draw_lines(placed, has_streams)]
    if has_streams:
        streams = update_streams.draw_streams(table, names, theme.mark_styles(experts or names), rows, (UNIT, PX))
        fig.add_traces(streams.targets)
        fig.update_layout(annotations=streams.labels)
        shapes += streams.shapes
    fig.add_trace(_draw_targets(tensors, rows, layers, has_streams))
    shapes += _outline(tensors, boxes, selected, extent)
    shares = (update_streams.FAN_SHARE, update_streams.TAIL_SHARE) if has_streams else END_SHARES[size]
    _lay_out(fig, rows, result if has_streams else "", shares, present)
    _name_layers(fig, rows, layers, has_streams)
    sides: dict[str, float] = {**axes.DEPTH_MARGINS} if compact and not present else {"l": 8, "r": 12}
    if has_streams:
        sides = {"l": update_streams.label_width(names, ALL_BLOCKS), "r": RESULT_PX if result else 12}
    top, height = 8 if compact and not present else COLOR_BAR_PX, rows[0].top + (TITLE_PX if rows[0].row.name else 2)
    fig.update_layout(shapes=shapes, barmode="overlay", showlegend=False, margin={**sides, "t": top, "b": 8, "pad": 0})
    fig.update_yaxes(visible=False, title={"text": "Branches"}, range=[0, height * PX], fixedrange=True)
    alt = _describe(tensors, lane_names, values, scale.title)
    return Picture(fig, alt, height + top + 8, f"{len(tensors)}:{compact}:{by_area}")


def find_depth_range(table: pd.DataFrame) -> tuple[float, float]:
    """The ends of a low map's axis as depths: after the first block the depth is 1, at the middle of that block."""
    rows = lay_out_network(sort_forward(table.drop_duplicates("tensor")), COMPACT)
    middles = [(section.x0 + section.x1) / 2 for section in rows[0].sections if is_block(section.name)]
    width = max(row.width for row in rows)
    pitch = middles[1] - middles[0] if len(middles) > 1 else width
    return 1 - (middles[0] + END_SHARE * width) / pitch, 1 + (width * (1 + END_SHARE) - middles[0]) / pitch


def find_next_tensor(table: pd.DataFrame, tensor: str, direction: str) -> str:
    """The tensor next to ``tensor`` on the map of a table, to the left or right, up or down; see ``network_map``."""
    tensors = sort_forward(table.drop_duplicates("tensor"))
    return find_neighbor(lay_out_network(tensors, COMPACT), tensor, direction)


class _Lanes(NamedTuple):
    """The experts' names and the values (tensors, lanes) that a map shows; one lane without a name for all experts."""

    names: Sequence[str]
    values: Numbers


def _list_layers(tensors: pd.DataFrame) -> list[str]:
    """The layers of the blocks, in forward order; none if there are more than the map has room for."""
    layers = tensors.loc[tensors["section"].astype(str).map(is_block), "part"].astype(str).unique().tolist()
    return layers if len(layers) <= MAX_LAYERS else []


def _stack_rows(rows: Sequence[Row], lanes: float, has_layers: bool) -> list[PlacedRow]:
    """The rows from top to bottom."""
    placed, start = [], float(LAYERS_PX * has_layers)
    for row in reversed(rows):
        at_zero = PlacedRow(row, 0.0, 0.0 if row.name == ELSEWHERE else lanes)
        placed.append(at_zero._replace(line=start + LABEL_PX - at_zero.bottom))
        start = placed[-1].top + ROW_GAP + (TITLE_PX if row.name else 0)
    return placed[::-1]


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


def _draw_frames(tensors: pd.DataFrame, lanes: _Lanes, boxes: npt.NDArray[np.int64], title: str, format: str) -> Trace:
    """The frames of all tensors, which take clicks and have the hover texts and the table's numbers."""
    x0, x1, y0, y1 = _to_small_numbers(boxes).T
    is_large = lanes.values.size > LONG_TEXT_CELLS
    texts = hover_texts(tensors, SHORT_HEADER if is_large else HEADER)
    numbers = [
        f"{f'{safe_text(name, 24)} ' if name else ''}%{{customdata[{index + 2}]:{NUMBER_FORMATS[format]}}}"
        for index, name in enumerate(lanes.names)
    ]
    lines = [" · ".join(numbers[i : i + NAMES_IN_LINE]) for i in range(0, len(numbers), NAMES_IN_LINE)]
    values = [
        [float(f"{number:.4g}") if np.isfinite(number) else None for number in row] for row in lanes.values.tolist()
    ]
    columns = [safe_text(f"{title}, {name}" if name else title) for name in lanes.names]
    names = map(identifier, tensors["tensor"])
    return bar(
        x=_to_small_numbers((x0 + x1) / 2), width=x1 - x0, base=y0, y=y1 - y0, name="Tensor",
        text=texts, textposition="none",
        customdata=[[name, "", *row] for name, row in zip(names, values, strict=True)],
        hovertemplate=f"%{{text}}<br>{safe_text(title)}<br>{'<br>'.join(lines)}<extra></extra>", **series.NO_POINTER,
        marker={"color": theme.GROUND, "line": {"color": theme.REFERENCE, "width": 0.8}},
        meta={"after_picks": columns, "without_positions": True},
    )  # fmt: skip


def _to_small_numbers(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values as the smallest whole numbers that hold them, for a small figure."""
    return np.round(values).astype(np.int16 if np.abs(values).max(initial=0) < 2**15 else np.int32)


def _draw_lanes(values: Numbers, boxes: npt.NDArray[np.int64], scale: heat_maps.ColorScale, compact: bool) -> Trace:
    """The colored lanes inside the frames: one above the other, or side by side in a low frame."""
    colors, fields = heat_maps.color_values(np.where(np.isfinite(values), values, np.nan), scale)
    rows, lanes = np.nonzero(np.isfinite(values))
    x0, x1, y0, y1 = boxes[rows].T.astype(np.float64)
    count = values.shape[1]
    is_low = (y1 - y0) / PX < 2.2 * count
    first, last = lanes / count, (lanes + 1) / count
    left, right = (np.where(is_low, x0 + (x1 - x0) * share, x) for share, x in ((first, x0), (last, x1)))
    high, low = (np.where(is_low, y, y1 - (y1 - y0) * share) for share, y in ((first, y1), (last, y0)))
    marker = _step_colors(colors[rows, lanes], fields) | {
        "colorscale": scale.colors or theme.color_scale(scale.diverging), "showscale": True, "line": {"width": 0},
        "colorbar": _place_color_bar(_step_ticks(fields), scale, compact),
    }  # fmt: skip
    return bar(
        x=_to_small_numbers((left + right) / 2), width=_to_small_numbers(right - left),
        base=_to_small_numbers(low), y=_to_small_numbers(high - low), hoverinfo="skip", name="Lane",
        marker=marker, **series.NO_POINTER,
    )  # fmt: skip


def _step_colors(colors: npt.NDArray[np.float32], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The colored values (n,) in steps of their range, with the range."""
    low, high = fields["zmin"], fields["zmax"]
    steps = _to_small_numbers(COLOR_STEPS * (colors.clip(low, high) - low) / (high - low))
    return {"color": steps, "cmin": 0, "cmax": COLOR_STEPS}


def _step_ticks(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the color bar with its ticks in steps of the range."""
    low, span = fields["zmin"], fields["zmax"] - fields["zmin"]
    color_bar: dict[str, Any] = fields["colorbar"]
    return color_bar | {"tickvals": [COLOR_STEPS * (value - low) / span for value in color_bar["tickvals"]]}


def _place_color_bar(fields: dict[str, Any], scale: heat_maps.ColorScale, compact: bool) -> dict[str, Any]:
    """The color bar: above the map, or at its right if it is compact."""
    if scale.colors is MASK_SCALE:
        fields |= {
            "tickmode": "array",
            "tickvals": [COLOR_STEPS / 4, 3 * COLOR_STEPS / 4],
            "ticktext": ["pruned", "kept"],
        }
    if compact:  # the page states the quantity
        every = 2 if len(fields["tickvals"]) > MAX_COMPACT_TICKS else 1
        fields |= {"tickvals": fields["tickvals"][::every], "ticktext": fields["ticktext"][::every]}
        return fields | {"x": 1.0, "xpad": 8, "y": 0.5, "len": 1, "lenmode": "fraction", "thickness": 10, "title": {}}
    title = {"text": scale.title, "side": "top", "font": {"size": theme.SMALL_SIZE}}
    return fields | {
        "orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "lenmode": "pixels", "len": 300,
        "thickness": 10, "xpad": 4, "ypad": 2, "title": title,
    }  # fmt: skip


def _draw_lines(placed: PlacedRow, has_streams: bool) -> list[dict[str, Any]]:
    """The branches of a row, and its residual line where no streams take its place."""
    row = placed.row
    if not row.sections:
        return []
    path = "" if has_streams else f"M0,{placed.line * PX:.0f}H{row.width * UNIT:.0f}"
    for branch in row.branches:
        edge = placed.line + (0.0 if not has_streams else placed.lanes if branch.y > 0 else -placed.lanes)
        ends = f"{branch.x0 * UNIT:.0f},{edge * PX:.0f}", f"H{branch.x1 * UNIT:.0f}V{edge * PX:.0f}"
        path += f"M{ends[0]}V{(placed.line + branch.y) * PX:.0f}{ends[1]}"
    line = {"color": theme.FADED, "width": 1.2}
    return [{"type": "path", "path": path, "line": line, "layer": "below", "fillcolor": theme.CLEAR}]


def _draw_targets(tensors: pd.DataFrame, rows: Sequence[PlacedRow], layers: Sequence[str], has_streams: bool) -> Trace:
    """Invisible bars that take clicks: on blocks' labels and their part of the line (if it is no stream), on layers."""
    targets = [("layer", layer, *ends, 0.0, float(LAYERS_PX)) for layer, ends in _spread_layers(rows, layers).items()]
    for placed in rows:
        bands = [(placed.bottom - LABEL_PX, placed.bottom), (placed.line - 2 * LINE_PX, placed.line + 2 * LINE_PX)]
        for section in placed.row.sections:
            targets += [("block", section.name, section.x0, section.x1, *band) for band in bands[: 2 - has_streams]]
    members: dict[tuple[str, str], list[str]] = {}
    for extent in ("layer", "block"):
        for value, name in zip(tensors[EXTENTS[extent]], tensors["tensor"], strict=True):
            members.setdefault((extent, str(value)), []).append(str(name))
    facts, words = [], []
    for extent, value, *_ in targets:
        names = members[extent, value]
        facts.append([identifier(names[0]), "", extent])
        words.append(f"Choose {safe_text(value, 40)}, {plural(len(names), 'tensor')}")
    x0, x1, y0, y1 = np.array([ends for _, _, *ends in targets], np.float64).reshape(-1, 4).T
    return bar(
        x=_to_small_numbers((x0 + x1) / 2 * UNIT), width=_to_small_numbers((x1 - x0) * UNIT),
        base=_to_small_numbers(y0 * PX), y=_to_small_numbers((y1 - y0) * PX), name="Choice",
        customdata=facts, text=words, textposition="none", hovertemplate="%{text}<extra></extra>",
        marker={"opacity": 0, "line": {"width": 0}}, meta={"is_control": True, "after_picks": ["extent"]},
    )  # fmt: skip


def _spread_layers(rows: Sequence[PlacedRow], layers: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The ends across, in units, of the names of layers under the map."""
    width = max(placed.row.width for placed in rows) / max(len(layers), 1)
    return {layer: (index * width, (index + 1) * width) for index, layer in enumerate(layers)}


def _outline(tensors: pd.DataFrame, boxes: npt.NDArray[np.int64], selected: str | None, extent: str) -> Iterator[Trace]:
    """An outline in each section around the selected tensor and those of the same extent."""
    column = EXTENTS[check_option("extent", extent, tuple(EXTENTS))]
    is_selected = tensors[column].isin(tensors.loc[tensors["tensor"] == selected, column])
    for _, rows in tensors[is_selected].groupby("section", sort=False):
        x0, _, y0, _ = boxes[rows.index].min(axis=0).tolist()
        _, x1, _, y1 = boxes[rows.index].max(axis=0).tolist()
        ends = {"x0": x0 - UNIT / 10, "x1": x1 + UNIT / 10, "y0": y0 - 1.5 * PX, "y1": y1 + 1.5 * PX}
        yield {"type": "rect", **ends, "line": {"color": theme.ACCENT, "width": 3}, "name": "selected"}


def _lay_out(fig: Drawing, rows: Sequence[PlacedRow], result: str, shares: Sequence[float], present: bool) -> None:
    """The axis along the network, the labels of sections (words on a projector), the names of rows, and the result."""
    width = max(placed.row.width for placed in rows)
    fig.update_xaxes(
        visible=False,
        title={"text": "Depth, in the direction of the data"},
        range=[-shares[0] * width * UNIT, width * (1 + shares[1]) * UNIT],
        fixedrange=True,
    )
    font = {"color": theme.INK, "size": theme.FONT_SIZE} if present else FAINT
    limit = MAX_PRESENTED if present else MAX_LABELS
    for placed in rows:
        blocks = [section for section in placed.row.sections if section.label.isdecimal()]
        hidden = {section.name for index, section in enumerate(blocks) if index % -(-len(blocks) // limit)}
        for section in placed.row.sections:
            if section.name not in hidden:
                label = f"block {section.label}" if present and section.label.isdecimal() else section.label
                words = {"embeddings": "input"}.get(label, label)
                # beside the blocks' numbers, also where columns are narrow
                share, anchor = {"input": (1, "right"), "output": (0, "left")}.get(words, (0.5, "center"))
                fig.add_annotation(
                    x=(section.x0 + share * (section.x1 - section.x0)) * UNIT, y=placed.bottom * PX, yanchor="top",
                    text=safe_text(words, 16), xanchor=anchor, font=font,
                )  # fmt: skip
        if name := placed.row.name:
            bold = f"<b>{safe_text(name, 40)}</b>"
            fig.add_annotation(x=0, y=placed.top * PX, text=bold, xanchor="left", yanchor="bottom")
    if result:
        lines = "<br>".join(safe_text(line, 24) for line in result.splitlines())
        fig.add_annotation(
            x=1, xref="paper", y=rows[0].line * PX, text=lines, xanchor="left", align="left", name="result"
        )


def _name_layers(fig: Drawing, rows: Sequence[PlacedRow], layers: Sequence[str], has_streams: bool) -> None:
    """The names of layers under the map, and beside them, if there is room, that each stands for all blocks."""
    fields: dict[str, Any] = {"y": LAYERS_PX / 2 * PX, "font": FAINT}
    for layer, ends in _spread_layers(rows, layers).items():
        text = safe_text(layer.rpartition(".")[2], 72 // len(layers))
        text = text if has_streams else f"all {text}"
        fig.add_annotation(x=sum(ends) / 2 * UNIT, text=text, name="layer", **fields)
    if layers and has_streams:
        fig.add_annotation(x=0, xref="paper", xanchor="right", xshift=-4, text=ALL_BLOCKS, **fields)


def _describe(tensors: pd.DataFrame, names: Sequence[str], values: Numbers, title: str) -> str:
    finite = np.isfinite(values)
    counts = finite.sum(axis=1)
    blocks = tensors["section"].astype(str).map(is_block)
    experts = f" for {plural(len(names), 'expert')}" if names != [""] else ""
    words = (
        f"Schematic of {plural(len(tensors), 'tensor')}, {plural(tensors.loc[blocks, 'section'].nunique(), 'block')}, "
        f"colored by {clean_text(title)}{experts}."
    )
    if not counts.any():
        return words
    means = np.where(counts > 0, np.where(finite, values, 0).sum(axis=1) / np.maximum(counts, 1), np.nan)
    extremes = (clean_text(tensors["tensor"].iloc[int(find(means))], 60) for find in (np.nanargmax, np.nanargmin))
    return "{} Largest on average in {}, smallest in {}.".format(words, *extremes)
