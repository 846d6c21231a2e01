"""Numbers of two runs and their difference: scores, agreement, a tensor, its joint space, distances of images.

The fields ``meta`` of traces are for ``viz.marks``, which writes a figure's numbers as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import chart, distinct_names
from viz.drawing import Drawing, Picture, Trace, scatter
from viz.figure_text import clean_text, count, plural, real, safe_text, short_name
from viz.hover import hover_texts
from viz.parts import axes, legends, series
from viz.parts.cell_targets import click_targets

ROW, CELL = 24, 96  # px: heights of a row of dots (or a heading), and of a cell of agreement
SIDES = {"a": "A", "b": "B", "difference": "B − A"}
SIDE_COLORS = (theme.RUN_A, theme.RUN_B)
DIFFERENCE_HOVER = (
    "<b>{title}</b><br>A, {label_a:text 40}: {a:percent}<br>B, {label_b:text 40}: {b:percent}<br>B − A: "
    "{difference:points}[ ({low:points} to {high:points})]<br>{n:count} images"
)

ANSWER_ORDER = ("right", "wrong")
AGREEMENT = {  # where only one run is right, its side of the diverging scale, as in all charts
    ("right", "right"): ("both right", theme.BOTH_RIGHT),
    ("right", "wrong"): ("only A right", theme.ONLY_A),
    ("wrong", "right"): ("only B right", theme.ONLY_B),
    ("wrong", "wrong"): ("both wrong", theme.BOTH_WRONG),
}
CELL_HOVER = "<b>{name:capitalized}</b><br>{count:images} images, {share:percent} of all"
CELL_TEXT = "<b>{count:images}</b> ({share:percent})<br>{name}"
IMAGE_FORMATS: Mapping[str, Callable[[Any], str]] = {  # a count has a fraction if a run has several models
    "images": lambda number: f"{number:,.0f}" if number.is_integer() else f"{number:,.1f}",
    "capitalized": str.capitalize,
}
TENSOR_HOVER = (
    "<b>{expert}</b><br>A: {a:real}, {merged_a:fate}<br>B: {b:real}, {merged_b:fate}<br>B − A: {difference:real}"
)
BIN_HOVER = "<b>{title}</b><br>{low:real} to {high:real}: {count:count} of {n:count} images ({share:percent})"
GAP = 0.06  # share of the width, between panels of a tensor
Labels = tuple[str, str]  # names, or colors, of the runs


@chart(
    title="Difference of scores",
    question="Which run is more accurate, and on which data sets?",
    columns=("scope", "title", "group", "a", "b", "difference", "low", "high", "n"),
    rows=("scope",),
    picks=("scope",),
    empty="These runs were not evaluated on any common data set.",
)
def compare_scores(table: pd.DataFrame, *, labels: Labels = ("A", "B"), colors: Labels = SIDE_COLORS) -> Picture:
    """A dot for each average and each data set, B − A in percentage points, with its 95 % interval, largest on top.

    Columns: scope (key), group (its heading), a and b (accuracies or H-scores). A filled dot has an interval without
    zero.
    """
    headings = distinct_names(table["group"])
    first, *others = (table[table["group"] == group] for group in headings)  # averages keep the table's order
    groups = [first, *(rows.sort_values("difference", ascending=False, kind="stable") for rows in others)]
    heading_rows = np.cumsum([0, *(len(rows) + 1 for rows in groups)])
    positions = np.concatenate(
        [heading_row + 1 + np.arange(len(rows)) for heading_row, rows in zip(heading_rows[:-1], groups, strict=True)]
    )
    table = pd.concat(groups).assign(label_a=labels[0], label_b=labels[1])
    significant, end = series.excludes_zero(table), int(heading_rows[-1])
    fills = np.where(significant, np.where(table["difference"] > 0, colors[1], colors[0]), theme.TIE_COLOR).tolist()
    dots = series.marks(
        table, 100 * table["difference"], positions, theme.MarkStyle(theme.FADED, "circle"), DIFFERENCE_HOVER,
        picks=("scope",), size=11, marker={"color": fills, "line": theme.edge(1.2)}, name="Difference",
        error_x=series.interval(table, "difference", theme.FADED, factor=100, thickness=1.6, width=3),
    )  # fmt: skip
    fig = Drawing([dots])
    fig.update_xaxes(**axes.points_axis("B − A", table[["difference", "low", "high"]]), ticksuffix="")
    titles = list(table["title"])
    names = axes.name_axis("Data set or average", titles, 28, showgrid=True)
    fig.update_yaxes(**names | {"tickvals": positions.astype(np.float32), "range": [end - 0.4, -0.6]})
    for heading_row, group in zip(heading_rows.tolist(), headings, strict=False):
        fig.add_annotation(axes.heading(group, heading_row))
    frames = [{"bordercolor": color, "borderwidth": 2, "borderpad": 2} for color in colors]
    fig.add_annotation(theme.caption("← A is better", 1), **frames[0])
    fig.add_annotation(theme.caption("B is better →", 1), x=1, xanchor="right", **frames[1])
    left = max(axes.names_width(titles, 28), axes.names_width(headings, 40)) + 44
    fig.update_layout(showlegend=False, margin={"l": left, "r": 26, "t": 34, "b": 54})
    words = f"Accuracy of B, {clean_text(labels[1], 40)}, minus that of A, {clean_text(labels[0], 40)}, in points:"
    first_texts = "; ".join(hover_texts(table.head(3), "{title:plain 40} {difference:points}"))
    alt = f"{words} {first_texts}. {int(significant.sum())} of {len(table)} intervals exclude zero."
    return Picture(fig, alt, 88 + ROW * max(end, 4))


@chart(
    title="Agreement",
    question="On which images does only one of the two runs find the class?",
    columns=("a", "b", "count", "share"),
    rows=("a", "b"),
    picks=("a", "b"),
    empty="There is no image to compare on.",
)
def compare_agreement(
    table: pd.DataFrame, *, labels: Labels = ("A", "B"), colors: Labels = SIDE_COLORS, selected: Labels | None = None
) -> Picture:
    """A square of four cells: A right or wrong, against B right or wrong.

    Columns: a and b ("right" or "wrong"), count (images, fractions where a run has several models), share (of all
    images). ``selected`` outlines a cell (a, b).
    """
    names = [AGREEMENT[pair][0] for pair in zip(table["a"], table["b"], strict=True)]
    table = table.assign(name=names, count=table["count"].astype(float), percents=100 * table["share"])
    words = ", ".join(hover_texts(table, "{name} {count:images} ({share:percent})", **IMAGE_FORMATS))
    cells = table.sort_values(["a", "b"])  # right before wrong
    pairs = list(zip(cells["a"], cells["b"], strict=True))
    corners = [(ANSWER_ORDER.index(a), ANSWER_ORDER.index(b)) for a, b in pairs]
    fig = Drawing(
        [
            click_targets(
                ANSWER_ORDER, ANSWER_ORDER, hover_texts(cells, CELL_HOVER, **IMAGE_FORMATS), "Cells", cells=corners
            )
        ]
    )
    numbers = {"images": cells["count"].tolist(), "share (%)": cells["percents"].tolist()}
    fig.update_traces("Cells", meta={"columns": numbers})
    for axis, label, name in (("xaxis", labels[1], "B"), ("yaxis", labels[0], "A")):
        title, ends = f"{name}: {safe_text(label, 34)}", [f"{name} {word}" for word in ANSWER_ORDER]
        fig.update_layout({axis: axes.name_axis(title, ends, down=name == "A", ticks="")})
    boxes = [{"type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5} for y, x in corners]
    white = {"color": theme.GROUND, "width": 3}
    for pair, (y, x), box, text in zip(
        pairs, corners, boxes, hover_texts(cells, CELL_TEXT, **IMAGE_FORMATS), strict=True
    ):
        is_own = pair[0] != pair[1] and tuple(colors) != SIDE_COLORS  # only one run is right, and it has its own color
        fill = theme.tint(colors[pair[0] == "wrong"], 0.3) if is_own else AGREEMENT[pair][1]
        fig.add_shape(box, fillcolor=fill, layer="below", line=white)
        fig.add_annotation(text=text, x=x, y=y, xref="x", yref="y", font={"size": theme.FONT_SIZE})
    if selected in pairs:
        fig.add_shape(boxes[pairs.index(selected)], line={"color": theme.ACCENT, "width": 3}, name="selected")
    margin = {"l": 110, "r": 10, "t": 54, "b": 16}
    fig.update_layout(barmode="overlay", showlegend=False, margin=margin, xaxis={"side": "top"})
    return Picture(fig, clean_text(f"Images by which run finds their class: {words}.", 300), 2 * CELL + 70)


@chart(
    title="One tensor in two runs",
    question="How salient is this tensor in either run?",
    columns=("expert", "a", "b", "difference", "threshold_a", "threshold_b", "merged_a", "merged_b"),
    rows=("expert",),
    empty="The two runs have no common expert whose saliency of this tensor is known.",
)
def compare_tensor(
    table: pd.DataFrame, *, tensor: str = "", labels: Labels = ("A", "B"), colors: Labels = SIDE_COLORS
) -> Picture:
    """Dots of A, of B and of the difference in three panels; A and B have the same range and a tick at the threshold.

    Columns: a and b (saliency, units of the weights), threshold_a and threshold_b, merged_a and merged_b (whether the
    run merges the expert's tensor; filled dots).
    """
    table = series.finite_rows(table, *SIDES)
    names = distinct_names(table["expert"])
    numbers = table[["a", "b", "threshold_a", "threshold_b"]].to_numpy(np.float64)
    high = 1.1 * float(np.nanmax(numbers, initial=0)) or 1.0
    largest = 1.25 * float(table["difference"].abs().max()) or high
    fig = Drawing()
    for side, name, shift in zip("AB", labels, (38, 22), strict=True):  # one above the other, to fit on narrow pages
        fig.add_annotation(theme.caption(f"<b>{side}</b>: {safe_text(name, 60)}", 1.0), yshift=shift)
    for axis, (side, title), domain, color in zip(
        ("x", "x2", "x3"), SIDES.items(), axes.panel_domains(3, GAP), (*colors, theme.REFERENCE), strict=True
    ):
        ends = [-largest, largest] if side == "difference" else [0.0, high]
        fig.add_traces(_draw_dots(table, side, axis, color))
        fig.add_annotation(theme.caption(f"<b>{title}</b>", 1.0, x=domain[0]))
        fig.layout[axis.replace("x", "xaxis")] = {
            "domain": domain, "range": ends, "nticks": 4, "exponentformat": "power",
            "title": {"text": f"Saliency, {title}"}, "zeroline": side == "difference", "zerolinecolor": theme.INK,
        }  # fmt: skip
    fig.update_yaxes(**axes.name_axis("Expert", names, down=True) | {"showgrid": True})
    fig.update_layout(showlegend=False, margin={"l": axes.names_width(names) + 44, "t": 74, "r": 24, "b": 64})
    subject = f"Saliency of {clean_text(short_name(tensor), 60)}" if tensor else "Saliency"
    higher, lower = (int((sign * table["difference"] > 0).sum()) for sign in (1, -1))
    alt = f"{subject} for {plural(len(table), 'expert')} in both runs: B is higher for {higher} and lower for {lower}."
    return Picture(fig, alt, 138 + ROW * max(len(names), 3), zoom_key=tensor)


def _draw_dots(table: pd.DataFrame, side: str, axis: str, color: str) -> list[Trace]:
    """The thresholds of a panel, if it has any, and its dots."""
    rows, traces = np.arange(len(table), dtype=np.float32), []
    filled = [True] * len(table)
    if side != "difference":
        filled, ticks = table[f"merged_{side}"].tolist(), table[f"threshold_{side}"].to_numpy(np.float64)
        finite, mark = np.isfinite(ticks), {"symbol": "line-ns", "size": 16, "line": {"color": theme.INK, "width": 2.5}}
        traces.append(scatter(
            x=ticks[finite].astype(np.float32), y=rows[finite], mode="markers", marker=mark, hoverinfo="skip",
            name=f"Threshold of {SIDES[side]}", meta={"numbers": True}, xaxis=axis, yaxis="y",
        ))  # fmt: skip
    marker = {
        "color": [color if full else theme.GROUND for full in filled],
        "line": {"width": 2, "color": [theme.INK if full else color for full in filled]},
    }
    fate = {"fate": lambda merged: "merged" if merged else "dropped"}
    dots = series.marks(
        table, side, rows, theme.MarkStyle(color, "circle"), TENSOR_HOVER, formats=fate, size=12, marker=marker,
        name=SIDES[side], xaxis=axis, yaxis="y",
    )  # fmt: skip
    return [*traces, dots]


@chart(
    title="Two joint spaces",
    question="How many directions do the experts of either run fill?",
    columns=("direction", "a", "b", "difference"),
    rows=("direction",),
    empty="No expert changed this layer.",
)
def compare_spectrum(table: pd.DataFrame, *, labels: Labels = ("A", "B"), colors: Labels = SIDE_COLORS) -> Picture:
    """Singular values of A and of B (NaN where a space has no such direction), largest first, and B − A below."""
    fig = Drawing()
    for side, name, color, symbol, axis in (
        ("a", f"A: {labels[0]}", colors[0], "circle", "y"),
        ("b", f"B: {labels[1]}", colors[1], "square", "y"),
        ("difference", "B − A", theme.FADED, "circle", "y2"),
    ):
        fig.add_trace(series.marks(
            series.finite_rows(table, side), "direction", side, theme.MarkStyle(color, symbol),
            f"<b>direction {{direction:count}}</b><br>{SIDES[side]}: {{{side}:real}}",
            marker={"size": 5, "line": {"width": 0}}, name=legends.legend_name(name), legendgroup=side, yaxis=axis,
        ))  # fmt: skip
    values = table[["a", "b"]].to_numpy(np.float64)
    positive = values[np.isfinite(values) & (values > 0)]
    low, high = (positive.min() / 1.3, 1.3 * positive.max()) if len(positive) else (0.1, 1.0)
    largest = 1.1 * float(np.nanmax(np.abs(table["difference"].to_numpy(np.float64)), initial=0)) or 1.0
    last = int(table["direction"].max())
    fig.update_layout(
        xaxis={"title": {"text": "Direction, largest first"}, "anchor": "y2", "range": [0.5 - 0.01 * last, last + 0.5]},
        yaxis={"title": {"text": "Singular value"}, "domain": [0.45, 1], **axes.log_axis(low, high)},
        yaxis2={"title": {"text": "B − A"}, "domain": [0, 0.35], "range": [-largest, largest], "zeroline": True,
                "nticks": 4, "zerolinecolor": theme.INK},
        showlegend=True,
    )  # fmt: skip
    a, b = (plural(int(table[side].notna().sum()), "direction") for side in ("a", "b"))
    alt = f"Singular values of {a} of A and {b} of B; B is larger in {int((table['difference'] > 0).sum())}."
    return legends.add_legend(fig, alt, 420, zoom_key=str(last), left=84, gap=24)


@chart(
    title="Two distances to the pretrained features",
    question="Which run stays closer to the pretrained features?",
    columns=("panel", "low", "high", "count", "share", "mean", "n"),
    rows=("panel", "low"),
    empty="There is no image whose features both runs have.",
)
def compare_distance(
    table: pd.DataFrame, *, labels: Labels = ("A", "B"), colors: Labels = SIDE_COLORS, what: str = "Distance"
) -> Picture:
    """Histograms one below the other: of A, of B, and of the difference for the same image.

    Columns: panel ("a", "b" or "difference"), mean (of the panel). A and B have the same bins, range and height.
    ``what`` is the name of the distance.
    """
    table = series.finite_rows(table, "low", "high", "share")
    run_panels, names = table[table["panel"] != "difference"], dict(zip("ab", labels, strict=True))
    panels = [side for side in SIDES if side in set(table["panel"])]
    by_side = dict(zip(SIDES, (*colors, theme.REFERENCE), strict=True))
    domains, inner = axes.stack_panels([112] * len(panels), 72)
    fig = Drawing()
    for side, domain in zip(panels, domains, strict=True):
        rows, axis = table[table["panel"] == side], {"a": "", "b": "2", "difference": "3"}[side]
        title = SIDES[side] + ", image by image" * (side == "difference")
        largest = float(np.abs(rows[["low", "high"]].to_numpy()).max())
        ends, peak = (
            ([-largest, largest], rows) if side == "difference" else ([0, float(run_panels["high"].max())], run_panels)
        )
        top = 1.15 * float(peak["share"].max())
        fig.add_traces(series.histogram(
            rows.assign(title=title), by_side[side], BIN_HOVER, "mean {mean:real}", (0, top),
            (title, f"Mean of {title}"), xaxis=f"x{axis}", yaxis=f"y{axis}",
        ))  # fmt: skip
        name = f": {safe_text(names[side], 50)}" if names.get(side) else ""
        summary = f"mean {real(rows['mean'].iloc[0])}, n = {count(rows['n'].iloc[0])} images"
        fig.add_annotation(theme.caption(f"<b>{title}{name}</b>, {summary}", domain[1]))
        axis_title = {"text": safe_text(f"{what}, {title}", 90), "standoff": 4}
        fig.update_layout({
            f"xaxis{axis}": {"anchor": f"y{axis}", "range": ends, "showgrid": False, "title": axis_title},
            f"yaxis{axis}": {
                "anchor": f"x{axis}", "domain": domain, "range": [0, top], "tickformat": ".0%", "nticks": 4,
                "fixedrange": True, "title": {"text": "Images"},
            },
        })  # fmt: skip
    if "difference" in panels:
        fig.add_shape(axes.vertical_line(0, theme.edge(1), "x3", "y3 domain", layer="above"))
    fig.update_layout(barmode="overlay", showlegend=False, margin={"l": 70, "r": 20, "t": 36, "b": 50})
    side_names = {side: f"{SIDES[side]}, {clean_text(name, 40)}" for side, name in names.items()} | {
        "difference": "B − A"
    }
    means = table[table["panel"].isin(panels)].drop_duplicates("panel").set_index("panel")["mean"]
    words = "; ".join(f"{side_names[str(side)]} {real(mean)}" for side, mean in means.items())
    alt = f"Histograms of the distance to the pretrained features. Means: {words}."
    return Picture(fig, alt, inner + 86, zoom_key=what)
