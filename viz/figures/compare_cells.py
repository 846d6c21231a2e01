"""Two runs and their difference, cell by cell: three heat maps over the network, the first two on one color scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import TENSOR_COLUMNS, chart, distinct_names
from viz.drawing import Drawing, Picture, Trace
from viz.figure_text import clean_text, percent, plural, real, safe_text
from viz.hover import LAYER_TEXT, describe_extreme, hover_texts
from viz.parts import axes, heat_maps, tensor_columns
from viz.parts.cell_targets import click_targets

# px; MIN_PANEL is the least height of a panel, for its color bar
ROW, MIN_PANEL, GAP, TOP, BOTTOM, RIGHT = 21, 88, 34, 42, 62, 104
TICK, TITLE, MAX_TITLE_LETTERS = 15, 18, 11  # px: a tick of a color bar, a line of its title; letters that fit over it
AXES = ("y", "y2", "y3")
TRACE_NAMES = {"a": "Cells of A", "b": "Cells of B", "difference": "Cells of the difference"}
HOVER = (
    "<b>{tensor:short}</b><br>{title}<br>A, {label_a:text 40}: {a:number}<br>B, {label_b:text 40}: {b:number}<br>"
    f"B − A: {{difference:signed}}<br>{LAYER_TEXT}"
)
LARGEST_SENTENCE = " It is largest in {tensor:plain}, {title:plain 40}: {difference:signed}."


@chart(
    title="Two runs, cell by cell",
    question="Where in the network do the two runs differ?",
    columns=("row", "title", *TENSOR_COLUMNS, "a", "b"),
    rows=("row", "tensor"),
    picks=("row", "tensor"),
    empty="Nothing to compare: the two runs have no cell in common.",
)
def compare_cells(
    table: pd.DataFrame,
    *,
    labels: tuple[str, str] = ("A", "B"),
    what: str = "value",
    unit: str = "Row",
    over: str = "Tensors",
    percents: bool = False,
    log: bool = False,
    limits: tuple[float, float] | None = None,
    selected: str | None = None,
) -> Picture:
    """Heat maps of A, of B and of B − A, over tensors in forward order.

    Columns: row (an expert, a task ...) with its title, tensor (or another unit of the network), a and b (numbers).
    ``what`` names the number, ``unit`` names a row and ``over`` names the columns. A and B share one range of
    colors: ``limits``, or else the range of both; with ``log`` it is logarithmic. The difference is linear, with zero
    in the middle; with ``percents`` it is in percentage points.
    """
    table = table.assign(row=table["row"].map(str))  # names, which may be numbers
    rows, columns = distinct_names(table["row"]), tensor_columns.TensorColumns.from_table(table)
    cells = _make_cells(table, rows, columns).assign(label_a=labels[0], label_b=labels[1])
    values = cells[["a", "b"]].to_numpy()
    positive = values[values > 0]
    lowest = positive.min() if log and len(positive) else np.nanmin(values, initial=0)  # a linear scale includes zero
    scale = heat_maps.ColorScale(what, log, limits or (float(lowest), float(np.nanmax(values, initial=0))), percents)
    difference_scale = heat_maps.ColorScale("points" if percents else "B − A", log=False, diverging=True)
    domains, inner = axes.stack_panels([max(len(rows) * ROW, MIN_PANEL)] * 3, GAP)
    bars = [(domains[1][0], domains[0][1]), *domains[1:]]  # the first color bar is that of A and B
    fig = Drawing()
    for index, (side, span) in enumerate(zip(TRACE_NAMES, bars, strict=True)):
        values = cells[side].to_numpy().reshape(len(rows), -1)
        if side == "difference":
            fig.add_trace(_make_map(100 * values if percents else values, difference_scale, index, span, inner))
        else:
            fig.add_trace(_make_map(values, scale, index, span, inner))
    formats: dict[str, Any] = {
        "number": lambda value: percent(value, 2) if percents else real(value),
        "signed": lambda value: _format_difference(value, percents),
    }
    texts = hover_texts(cells, HOVER, **formats)
    for axis, name in zip(AXES, TRACE_NAMES.values(), strict=True):
        fig.add_trace(click_targets(rows, columns.names, texts, name, axis))
    captions = [f"{side}: {safe_text(label, 60)}" for side, label in zip("AB", labels, strict=True)]
    captions.append("B − A" + ", in percentage points" * percents)
    _lay_out(fig, columns, list(cells.drop_duplicates("row")["title"]), domains, captions, unit, over)
    for axis in AXES:
        for frame in axes.selection_frame(columns.column_index(selected)):
            fig.add_shape(frame | {"yref": f"{axis} domain"})
    sentence = (
        f"{clean_text(what, 60)} of A, {clean_text(labels[0], 40)}, and B, {clean_text(labels[1], 40)}, for "
        f"{plural(len(rows), 'row')} and {plural(len(columns.names), 'column')}, and the difference."
    )
    distances = cells.assign(far=cells["difference"].abs())
    extreme = (
        describe_extreme(distances, "far", LARGEST_SENTENCE, **formats)
        if (distances["far"] > 0).any()
        else " The runs do not differ."
    )
    return Picture(fig, sentence + extreme, inner + TOP + BOTTOM, zoom_key=what)


def _make_cells(table: pd.DataFrame, rows: Sequence[str], columns: tensor_columns.TensorColumns) -> pd.DataFrame:
    """A row for each cell of the maps, row by row: both numbers and the difference, NaN where there is none."""
    pairs = pd.MultiIndex.from_product([rows, columns.names], names=["row", "tensor"])
    numbers = table.set_index(["row", "tensor"])[["a", "b"]].astype(np.float64).reindex(pairs)
    numbers = numbers.where(np.isfinite(numbers))
    titles = table.drop_duplicates("row", keep="last").set_index("row")["title"]
    facts = columns.tensors.set_index("tensor")[["section", "role", "part"]]
    cells = numbers.assign(difference=numbers["b"] - numbers["a"]).reset_index()
    return cells.join(titles, on="row").join(facts, on="tensor")


def _make_map(
    values: npt.NDArray[np.float64], scale: heat_maps.ColorScale, index: int, domain: Sequence[float], inner: float
) -> Trace:
    name, shown = ("A", "B", "B − A")[index], index != 1  # B has the color bar of A
    heat = heat_maps.heat(values, scale, xaxis="x", yaxis=AXES[index], ygap=1, showscale=shown, name=name)
    title = {"text": _break_title(scale.title), "side": "top"}
    bar = (
        _fit_ticks(heat["colorbar"], (domain[1] - domain[0]) * inner)
        | heat_maps.panel_color_bar(domain)
        | {"title": title}
    )
    return heat | {"colorbar": bar}


def _fit_ticks(bar: dict[str, Any], length: float) -> dict[str, Any]:
    """The color bar with all ticks, or only both ends and the middle if its length has no room for more."""
    positions, texts = list(bar["tickvals"]), list(bar["ticktext"])
    if len(positions) * TICK <= length - TITLE:
        return bar
    indices = sorted({0, len(positions) // 2, len(positions) - 1})
    return bar | {"tickvals": [positions[k] for k in indices], "ticktext": [texts[k] for k in indices]}


def _break_title(title: str) -> str:
    """A title broken near its middle if it is too long for the width of a color bar."""
    words = title.split()
    index = min(range(1, len(words)), key=lambda k: abs(len(" ".join(words[:k])) - len(title) / 2), default=0)
    lines = [" ".join(words[:index]), " ".join(words[index:])] if index and len(title) > MAX_TITLE_LETTERS else [title]
    return "<br>".join(safe_text(line, 24) for line in lines)


def _lay_out(
    fig: Drawing,
    columns: tensor_columns.TensorColumns,
    titles: list[str],
    domains: list[list[float]],
    captions: list[str],
    unit: str,
    over: str,
) -> None:
    has_one_tensor_sections = columns.tensors["section"].is_unique  # every column is a section of its own
    title = {"text": f"{safe_text(over, 40)} ({len(columns.names)}) in forward order; numbers are blocks"}
    fig.update_xaxes(
        **columns.axis()
        | (_every_column_ticks(columns) if has_one_tensor_sections else {})
        | {"title": title, "anchor": "y3"}
    )
    for axis, domain in zip(AXES, domains, strict=True):
        settings = axes.name_axis(safe_text(unit, 24), titles, down=True, domain=domain, anchor="x")
        fig.update_layout({axis.replace("y", "yaxis"): settings})
    headings = [theme.caption(text, domain[1]) for text, domain in zip(captions, domains, strict=True)]
    fig.update_layout(
        annotations=[*([] if has_one_tensor_sections else columns.end_labels()), *headings],
        shapes=[line | {"yref": f"{axis} domain"} for line in columns.separators() for axis in AXES],
        margin={"l": axes.names_width(titles, min_width=70) + 38, "r": RIGHT, "t": TOP, "b": BOTTOM},
        # room for "embeddings"
        showlegend=False, barmode="overlay",
    )  # fmt: skip


def _every_column_ticks(columns: tensor_columns.TensorColumns) -> dict[str, Any]:
    """A tick for every column; names other than numbers go one line lower, clear of their neighbors."""
    names = [tensor_columns.short_section(name) for name in columns.tensors["section"]]
    names = [safe_text(name, 16) if name.isdigit() else f"<br>{safe_text(name, 16)}" for name in names]
    return {"tickvals": list(range(len(names))), "ticktext": names}


def _format_difference(difference: float, percents: bool) -> str:
    """A difference with its sign, of shares in percentage points; "—" where there is none."""
    if not np.isfinite(difference):
        return "—"
    return f"{100 * difference:+.2f} points" if percents else f"{difference:+.3g}"
