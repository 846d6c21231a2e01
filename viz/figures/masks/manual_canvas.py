"""A table of factors that is painted by hand: what every expert's task vector is multiplied by, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import TENSOR_COLUMNS, chart, distinct_names
from viz.drawing import Drawing, Picture, Trace, bar, heatmap
from viz.figure_text import identifier, percent, plural, safe_text
from viz.hover import LAYER_TEXT, hover_texts
from viz.parts import axes, heat_maps, series, tensor_columns
from viz.parts.cell_targets import NO_CELL, CellPosition, click_targets, outline

Floats = npt.NDArray[np.float64]
# px: margins, gap above the groups' names, height of these
TOP, BOTTOM, GAP, NAMES_HEIGHT, LONG_NAMES_HEIGHT = 26, 34, 6, 26, 104
ABOVE, BELOW = "above 1", "below 0"
FACTOR_STYLES: dict[str, dict[str, Any]] = {
    ABOVE: {"color": theme.ORANGE, "line": {"width": 0}},
    BELOW: {
        "color": theme.GROUND, "line": {"width": 0},
        "pattern": {"shape": "/", "fgcolor": theme.INK, "bgcolor": theme.GROUND, "size": 6, "solidity": 0.4},
    },
}  # fmt: skip
# px: width of an upright number, and of all columns on a usual and a narrow page
UPRIGHT_PX, WIDE_PX, NARROW_PX = 10, 900, 500
MIN_COLOR_BAR = 56  # px: least height of the color bar
MIXED_VALUE = -0.2  # on the color scale: the row of all experts where their factors differ
FACTOR_COLORS = [[0, theme.GROUND], [0.1, theme.GROUND], [0.1, theme.PRUNED], [1 / 6, theme.PRUNED], [1, theme.KEPT]]
CELL_HOVER = "<b>{tensor:short}</b><br>{expert}: {factor:factor}"
CELL_DETAILS = f"<br>{LAYER_TEXT}, {{numel:count}} scalars"


@chart(
    title="Factors painted by hand",
    question="By which factor is each expert's task vector multiplied, tensor by tensor?",
    columns=(*TENSOR_COLUMNS, "numel", "expert", "factor"),
    rows=("expert", "tensor"),
    picks=("expert", "tensor", "section", "part"),
    empty="There is nothing to paint: no expert has a tensor that merging changes.",
)
def manual_canvas(
    table: pd.DataFrame,
    *,
    group: str = "order",
    brush: float | None = None,
    selected: CellPosition = NO_CELL,
    small: bool = False,
) -> Picture:
    """A heat map of the factors, and a row for all experts; names of rows and of groups of columns can be clicked.

    Columns: factor (of the expert's task vector in that tensor; no unit). ``group`` orders the columns as in
    ``saliency_matrix``; ``brush`` is the factor that a click paints, None if clicks paint nothing. ``small`` is for a
    picture next to other controls.
    """
    experts, columns = distinct_names(table["expert"]), tensor_columns.TensorColumns.from_table(table, group)
    cells = columns.complete_cells(table, "expert", experts)
    factors = np.nan_to_num(cells["factor"].to_numpy(np.float64), nan=1.0).reshape(len(experts), -1)
    same = np.asarray((factors == factors[:1]).all(axis=0))
    shown = np.vstack([factors, np.where(same, factors[0], np.nan)])  # the last row: factors that all experts share
    rows = len(shown)
    height = rows * (14 if small else 24 if rows <= 9 else 18)
    strip = LONG_NAMES_HEIGHT if group == "part" else NAMES_HEIGHT
    inner = height + GAP + strip
    click = "" if brush is None else f"<br>a click paints {brush:g}"

    fig = Drawing([
        _draw_heat_map(shown, height),
        *_draw_large_factors(shown),
        _make_cell_targets(cells, columns, shown, click),
        _make_row_targets(experts, click),
        _make_group_targets(columns, click),
        _draw_row_names(experts),
    ])  # fmt: skip
    _lay_out(fig, columns, experts, (strip / inner, (strip + GAP) / inner))
    # (a) and (b) are the guides above, see ``saliency_matrix``
    caption = [] if small else [theme.caption("(c) Factors, painted by hand", 1)]
    rule = axes.horizontal_line(rows - 1.5, {"color": theme.FADED, "width": 1}, xref="paper", layer="above")
    frame = outline([*experts, ""], columns.names, selected, xref="x", yref="y")
    left = heat_maps.left_margin(experts) - tensor_columns.NAMES_SHARE * tensor_columns.NARROW_PX
    fig.update_layout(
        annotations=[*caption, *_make_group_labels(columns)], barmode="overlay", showlegend=True,
        shapes=[*columns.separators(), rule, *frame],
        margin={"l": left, "r": 92, "t": TOP, "b": BOTTOM},
        legend={
            "orientation": "h", "x": 1, "y": 1, "xanchor": "right", "yanchor": "bottom", "itemclick": False,
            "itemdoubleclick": False,
        },
    )  # fmt: skip
    # the brush is in the zoom key: the front end forgets the last click with it, so that a cell can be clicked again
    return Picture(fig, _describe_canvas(factors, columns), inner + TOP + BOTTOM, zoom_key=f"{group}:{brush}")


def _draw_heat_map(factors: Floats, height: float) -> Trace:
    shown = np.where((factors >= 0) & (factors <= 1), factors, MIXED_VALUE)  # ``_draw_large_factors`` shows the others
    return heatmap(
        z=shown.astype(np.float32), zmin=MIXED_VALUE, zmax=1, colorscale=FACTOR_COLORS, xaxis="x", yaxis="y", ygap=1,
        name="Factors", hoverinfo="skip",
        colorbar={
            **heat_maps.panel_color_bar((0, 1)), "lenmode": "pixels", "len": min(max(height, MIN_COLOR_BAR), 110),
            "thickness": 12,
            "outlinewidth": 1, "outlinecolor": theme.GRID, "tickvals": [-0.14, 0.02, 0.5, 0.98],
            "ticktext": ["differ", "0 pruned", "0.5", "1 kept"],
        },
    )  # fmt: skip


def _draw_large_factors(factors: Floats) -> list[Trace]:
    """Bars over neighboring cells with one factor above 1, with the number in them, or below 0, hatched.

    A number that does not fit across its bar on a narrow page stands upright; one that does not fit at all is left out.
    """
    columns, runs = factors.shape[1], []
    for row, values in enumerate(factors):
        starts = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1), columns]
        runs += [(row, first, end, values[first]) for first, end in pairwise(starts)]
    table = pd.DataFrame(runs, columns=["row", "first", "end", "factor"])
    width, above = table["end"] - table["first"], table["factor"] > 1
    number = table["factor"].map("{:g}".format)
    does_fit = width * NARROW_PX / columns >= number[above].map(theme.text_width).max()
    table = table.assign(
        width=width, middle=(table["first"] + table["end"] - 1) / 2,
        text=number.where(width >= UPRIGHT_PX * columns / WIDE_PX, ""),
    )  # fmt: skip
    kinds = ((ABOVE, above & does_fit, 0), (ABOVE, above & ~does_fit, -90), (BELOW, table["factor"] < 0, 0))
    return [
        bar(
            x=series.numbers(table[chosen], "middle"), y=np.full(chosen.sum(), 0.94, np.float32),
            marker=FACTOR_STYLES[name],
            base=series.numbers(table[chosen], table["row"][chosen] - 0.47),
            width=series.numbers(table[chosen], "width"),
            name=name, text=table["text"][chosen].tolist(), textangle=angle, insidetextanchor="middle",
            textposition="inside" if name == ABOVE else "none", hoverinfo="skip", xaxis="x", yaxis="y",
            textfont={"size": theme.SMALL_SIZE, "color": theme.ON_LIGHT},
            showlegend=not (angle and (above & does_fit).any()),
        )
        for name, chosen, angle in kinds
        if chosen.any()
    ]  # fmt: skip


def _make_cell_targets(
    cells: pd.DataFrame, columns: tensor_columns.TensorColumns, factors: Floats, click: str
) -> Trace:
    """Invisible marks that take clicks on every cell; those of the last row have no expert."""
    all_experts = columns.tensors.assign(expert="all experts")
    shown = pd.concat([cells, all_experts]).assign(factor=factors.ravel())
    template = CELL_HOVER if len(cells) > tensor_columns.LARGE_CELL_COUNT else CELL_HOVER + CELL_DETAILS + click
    targets = click_targets(
        [*distinct_names(cells["expert"]), ""],
        columns.names,
        hover_texts(shown, template, factor=_factor_in_words),
        "Cells",
    )
    return targets | {
        "customdata": [[*names, "", ""] for names in targets["customdata"]], "showlegend": False,
        "meta": {"columns": {"Factors": factors.ravel().tolist()}},  # the map draws only those up to 1
    }  # fmt: skip


def _factor_in_words(factor: float) -> str:
    if np.isnan(factor):
        return "their factors differ"
    return {0.0: "factor 0, pruned", 1.0: "factor 1, kept"}.get(factor, f"factor {factor:g}")


def _make_row_targets(experts: Sequence[str], click: str) -> Trace:
    """Invisible marks that take clicks on the names of rows; that of the last row has no expert."""
    texts = [*(f"The whole row of {safe_text(name, 40)}{click}" for name in experts), f"Everything{click}"]
    targets = click_targets([*experts, ""], [""], texts, "Names of rows")
    return targets | {
        "x": np.full(len(texts), 0.5, np.float32), "xaxis": "x2", "showlegend": False,
        "customdata": [[*names, "", ""] for names in targets["customdata"]],
    }  # fmt: skip


def _draw_row_names(experts: Sequence[str]) -> Trace:
    """The names of the rows, which may extend into the margin."""
    rows = len(experts) + 1
    texts = [*(safe_text(name, 24) for name in experts), "<b>all</b>"]
    position = {"xaxis": "x2", "yaxis": "y", "textposition": "middle left", "cliponaxis": False}
    font = {"size": theme.SMALL_SIZE, "color": theme.INK}
    return series.text_trace(np.full(rows, 0.94), range(rows), texts, "Rows", **position, textfont=font)


def _make_group_targets(columns: tensor_columns.TensorColumns, click: str) -> Trace:
    """A bar under every group of columns."""
    spans, sections, picks = columns.spans, columns.tensors["section"].tolist(), []
    for span in spans:
        name = identifier(span.label)
        by_part = columns.group == "part" and tensor_columns.is_block(sections[span.first])
        picks.append(["", "", "", name] if by_part else ["", "", name, ""])
    numbers = [span.last - span.first + 1 for span in spans]
    tensors = [f"{plural(number, 'tensor')} of every expert{click}" for number in numbers]
    return bar(
        x=np.array([span.middle for span in spans], np.float32), y=np.ones(len(spans), np.float32),
        width=np.array(numbers, np.float32) - np.float32(0.2), name="Names of groups", showlegend=False, xaxis="x",
        yaxis="y3", hovertemplate="%{text}<extra></extra>", textposition="none", customdata=picks,
        text=[f"{safe_text(span.label, 40)}: {words}" for span, words in zip(spans, tensors, strict=True)],
        marker={"color": theme.PANEL, "line": {"width": 1, "color": theme.FADED}},
    )  # fmt: skip


def _make_group_labels(columns: tensor_columns.TensorColumns) -> list[dict[str, Any]]:
    """Names in the bars of groups that fit on a narrow page; names of sections at the ends may be wider than theirs."""
    by_part, labels = columns.group == "part", []
    column_width = tensor_columns.NARROW_PX * (1 - tensor_columns.NAMES_SHARE) / len(columns.tensors)  # px of a column
    for span in columns.spans:
        text = safe_text(tensor_columns.short_section(span.label), 16)
        label_length = theme.SMALL_SIZE + 2 if by_part else theme.text_width(text)
        if (by_part or tensor_columns.is_block(span.label)) and label_length <= column_width * (
            span.last - span.first + 1
        ):
            labels.append({"text": text, "x": span.middle, "textangle": -90 if by_part else 0, "xref": "x"})
    ends = [] if by_part else columns.end_labels()
    labels += [label | {"xshift": 3 if label["xanchor"] == "left" else -3} for label in ends]
    position = {"y": 0.5, "yref": "y3", "yanchor": "middle", "yshift": 0}
    return [label | position for label in labels]


def _lay_out(
    fig: Drawing, columns: tensor_columns.TensorColumns, experts: Sequence[str], heights: tuple[float, float]
) -> None:
    names = tensor_columns.NAMES_SHARE
    plain = {"showgrid": False, "showticklabels": False, "ticks": "", "fixedrange": True}
    outside = axes.names_width(experts) + 8 - names * tensor_columns.NARROW_PX  # px of the names outside the plot
    fig.update_layout(
        xaxis={**columns.bare_axis(), "anchor": "y3"},
        xaxis2={
            **plain, "domain": [0, names], "range": [0, 1], "anchor": "y",
            "title": {"text": "Expert", "font": {"color": theme.CLEAR}},
        },
        yaxis={
            **plain, "domain": [heights[1], 1], "range": [len(experts) + 0.5, -0.5], "anchor": "x2",
            "title": {"text": "Expert", "standoff": max(outside, 8)},
        },
        yaxis3={**plain, "domain": [0, heights[0]], "range": [0, 1], "anchor": "x"},
    )  # fmt: skip


def _describe_canvas(factors: Floats, columns: tensor_columns.TensorColumns) -> str:
    numel = columns.tensors["numel"].to_numpy(np.float64)
    kept = np.asarray((factors != 0).any(axis=0))
    share = float(numel[kept].sum() / numel.sum()) if numel.sum() else float("nan")
    other = int(((factors != 0) & (factors != 1)).sum())
    tensors = plural(len(numel), "tensor")
    return (
        f"Factors of {plural(len(factors), 'expert')} for {tensors}, painted by hand. {int(kept.sum())} of {tensors}, "
        f"{percent(share)} of the scalars, are kept for at least one expert. {plural(other, 'cell')} of "
        f"{factors.size:,} {'has' if other == 1 else 'have'} another factor than 0 or 1."
    )
