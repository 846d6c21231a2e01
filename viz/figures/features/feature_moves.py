"""Arrows on a joint map of features, from where the pretrained model has an image to where a merged one has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import Names, chart, distinct_names
from viz.drawing import Drawing, Picture, Trace, scatter
from viz.figure_text import clean_text, first_few, plural
from viz.figures.features.feature_map_figure import (
    CAPTION,
    LEFT,
    PANEL_HEIGHTS,
    SPACE_ABOVE,
    SPACE_BELOW,
    Panel,
    lay_out_panel,
    name_groups,
    rows_by_group,
    square_ranges,
)
from viz.hover import hover_texts
from viz.parts import axes, legends, series

LONGEST_SHARE = 0.1  # of the arrows, which are emphasized
HEADS_PX, PANEL_PX = (5, 12), 300  # px: sizes of the heads of short and of long arrows, and about the width of a map
TURNED_RIGHT, TURNED_WRONG, STAYED = "turned right", "turned wrong", "stayed right or wrong"
ANSWER_STYLES = {
    TURNED_RIGHT: theme.MarkStyle(theme.BLUE, "circle"),
    TURNED_WRONG: theme.MarkStyle(theme.VERMILION, "diamond"),
    STAYED: theme.MarkStyle(theme.OTHER_COLOR, "circle"),
}
HOVER = (
    "<b>{truth:text 40}</b>, {title:text 40}<br>{label:text 40}: {predicted:text 40}<br>pretrained: {before:text 40}"
    "<br>moved {move:share} of the map's width<br>1 − cosine of the features {displacement:real}"
)


@chart(
    title="Moves on the joint map of features",
    question="Where do images move when models are merged?",
    columns=(
        "run", "label", "image", "x0", "y0", "x", "y", "title", "truth", "predicted", "before", "group", "move",
        "displacement",
    ),
    rows=("run", "image"),
    picks=("run", "image"),
    empty="No image is left to show: choose other data sets or classes.",
)  # fmt: skip
def feature_moves(
    table: pd.DataFrame,
    *,
    groups: Names = None,
    notes: Mapping[str, str] | None = None,
    selected: Sequence[str] = (),
    present: bool = False,
) -> Picture:
    """A panel for each merged run, an arrow for each image; the longest tenth is emphasized.

    Columns: image (id), x0 and y0 (of the pretrained model), x and y, title (of the data set), truth, predicted and
    before (class names), group (what colors stand for; the names of ``ANSWER_STYLES`` have colors of their own), move
    (as a share of the map's width), displacement (1 - cosine of the features). For the options see ``feature_map``.
    """
    table = table.assign(_hover=hover_texts(table, HOVER, share=lambda move: f"{100 * float(move):.1f}%"))
    names, all_groups = distinct_names(table["run"]), groups or distinct_names(table["group"])
    is_answer = set(all_groups) <= set(ANSWER_STYLES)
    mark_styles: Mapping[str, theme.MarkStyle] = ANSWER_STYLES if is_answer else theme.mark_styles(all_groups)
    plotted = [group for group in all_groups if (table["group"] == group).any()]
    columns = min(2, len(names))
    legend, top = legends.legend_above(plotted, "Answer" if is_answer else name_groups(table))
    rows, inner = -(-len(names) // columns), float(PANEL_HEIGHTS[columns])
    if present:
        inner = max((theme.PRESENTED_HEIGHT - top) / rows - CAPTION - SPACE_BELOW, 60)
    across = axes.panel_domains(columns, SPACE_ABOVE / 1100)
    down, height = axes.stack_panels([inner] * rows, CAPTION + SPACE_BELOW, top + CAPTION, SPACE_BELOW)
    both_ends = pd.concat([table[["x", "y"]], table[["x0", "y0"]].set_axis(["x", "y"], axis=1)])
    fig, ranges = Drawing(), square_ranges(both_ends)
    for index, name in enumerate(names):
        number, domains = str(index + 1) if index else "", (across[index % columns], down[index // columns])
        panel = Panel(table[table["run"] == name], number, *ranges, *domains)
        _add_arrows(fig, panel, plotted, mark_styles, selected)
        lay_out_panel(fig, panel, "t-SNE", (notes or {}).get(name, ""))
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 12, "t": 0, "b": 0}, dragmode="lasso")
    labels = first_few([clean_text(label, 40) for label in table.drop_duplicates("run")["label"]], 4)
    images = plural(int(table["image"].nunique()), "image")
    alt = f"Arrows on a joint map of the features of {images}, from the pretrained model to {labels}."
    return Picture(fig, alt, height, zoom_key=f"moves:{len(names)}:{len(table)}")


def _add_arrows(
    fig: Drawing, panel: Panel, groups: list[str], mark_styles: Mapping[str, theme.MarkStyle], selected: Sequence[str]
) -> None:
    """Add the arrows of a panel: faint lines, a mark at the end of each, then the longest ones with their heads."""
    placed: dict[str, Any] = {"xaxis": f"x{panel.number}", "yaxis": f"y{panel.number}"}
    longest = panel.rows["move"] >= panel.rows["move"].quantile(1 - LONGEST_SHARE)
    lines: dict[bool, list[Trace]] = {False: [], True: []}
    for is_long, traces in lines.items():
        for _, rows, entry in rows_by_group(panel.rows[longest == is_long], groups):
            color = mark_styles[rows["group"].iloc[0]].color
            traces.append(_join_ends(rows, color, is_long, legendgroup=entry["legendgroup"], **placed))
    fig.add_traces(lines[False])
    for _, rows, entry in rows_by_group(panel.rows, groups):
        marks = series.marks(
            rows, "x", "y", mark_styles[rows["group"].iloc[0]], "{_hover:as_is}", picks=("run", "image"), size=4,
            formats={"as_is": str}, marker={"line": theme.edge(0.3)}, **entry, showlegend=not panel.number, **placed,
        )  # fmt: skip
        fig.add_trace(marks)
    fig.add_traces(lines[True])
    rings = panel.rows[panel.rows["image"].isin(list(selected))]
    fig.add_trace(series.ring(rings["x"], rings["y"], "Selected", 11, 2, legendgroup="Selected", **placed))


def _join_ends(rows: pd.DataFrame, color: str, is_long: bool, **fields: Any) -> Trace:
    """A line from the start to the end of every row's move, with a gap between two lines."""
    gap = np.full(len(rows), np.nan)
    x, y = (
        np.stack([rows[f"{axis}0"].to_numpy(float), rows[axis].to_numpy(float), gap], axis=1).ravel().astype(np.float32)
        for axis in "xy"
    )
    line = {"color": color, "width": 1.2 if is_long else 0.8}
    is_end = np.tile([0, 1, 0], len(rows))
    sizes = np.clip(PANEL_PX * rows["move"].to_numpy(float), *HEADS_PX).repeat(3) * is_end
    edge = {"color": theme.INK, "width": is_end}
    heads = {"symbol": "arrow", "angleref": "previous", "color": color, "opacity": 1, "size": sizes, "line": edge}
    style = {"mode": "lines+markers", "marker": heads} if is_long else {"mode": "lines", "opacity": 0.4}
    return scatter(x=x, y=y, name="Moves", line=line, hoverinfo="skip", showlegend=False, **style, **fields)
