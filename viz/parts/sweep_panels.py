"""Parts of the charts of sweeps: a grid of small line plots, the selected point, points that fail a requirement.

A requirement is a score, or the accuracy on a task, that must reach a minimum. Whether it does is only certain to a
degree: the share of random draws of the images in which it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import distinct_names
from viz.drawing import Drawing, Picture, Trace
from viz.figure_text import clean_text, safe_text
from viz.parts import axes, legends, series

FAILING = theme.FAILING  # color of values below the requirement
SELECTED_POINT = {"color": theme.ACCENT, "width": 1.5, "dash": "dot"}  # the line at the selected value
SCORES = {"in_domain": "In-domain", "out_of_domain": "Out-of-domain", "h_score": "H-score"}
LOSSES = {"loss_in": "In-domain loss", "loss_out": "Out-of-domain loss"}
LOSS_COLUMNS = tuple(f"{loss}{end}" for loss in LOSSES for end in ("", "_low", "_high"))
# Columns: whether a point meets the requirement, and the share of draws in which it does; the lead of the best point
# over it with its interval, and whether it cannot be distinguished from the best.
POINT_COLUMNS = ("meets", "certainty", "lead", "lead_low", "lead_high", "is_tie")
POINT_HOVER = (
    "[<br>{meets:verdict} the requirement][, which {certainty:percent 0} of the draws do]"
    "[<br>{lead:points} points to the best ({lead_low:points} to {lead_high:points}), {is_tie:tie} from it]"
)
TIE_NAME = "Cannot be distinguished from the best"
TEXT_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "verdict": lambda meets: "meets" if meets else "does not meet",
    "tie": lambda is_tie: "cannot be distinguished" if is_tie else "can be distinguished",
}
BELOW_PX, GAP_SHARE = 52, 0.03  # px under the plots, and the share of the width between two of them
LINE_CHARACTERS = 76  # of captions and titles in all columns together on a narrow page


class SweepPanel(NamedTuple):
    """A small plot: the key by which a requirement names it, its rows, the plotted column, the hover text, the y axis.

    ``band`` names the columns of intervals; the caption is escaped.
    """

    key: str
    rows: pd.DataFrame
    value: str
    hover: str
    axis: dict[str, Any]
    band: tuple[str, ...] = ()
    caption: str = ""


class PanelGrid(NamedTuple):
    """The layout of small plots: the most columns, and px of a plot's height, of the gap and of the left margin."""

    columns: int
    height: float
    gap: float
    left: float

    def axis(self, letter: str, index: int) -> str:
        """The name of the axis of the small plot number ``index``.

        Plots of one column share x, plots of one row share y.
        """
        number = (index % self.columns if letter == "x" else index // self.columns) + 1
        return f"{letter}{number if number > 1 else ''}"


class SweepDrawing(NamedTuple):
    """Options of all charts along a sweep.

    ``title`` names the value that varies, ``values`` lists all its values, computed or not; ``lines`` is the full
    ordered list that fixes the colors; ``note`` is below the plots; ``selected`` is the selected point. ``required`` is
    the key of a plot and the required minimum: smaller values are shaded, and points that do not meet the requirement
    (columns meets and certainty: the share of draws of the images in which they do) are white marks. Points of the runs
    ``pinned`` (column run) have the color and symbol of their position there.
    """

    title: str
    values: list[float] | None
    lines: list[str] | None
    note: str
    selected: str | None = None
    required: tuple[str, float] | None = None
    pinned: Sequence[str] = ()


def draw(
    table: pd.DataFrame,
    panels: Sequence[SweepPanel],
    grid: PanelGrid,
    sweep: SweepDrawing,
    words: str,
    style: Callable[[pd.DataFrame, str], dict[str, Any]],
    by: str = "line",
) -> Picture:
    """Small plots of a line for each name in the column ``by``, over the value x.

    ``style`` gives fields of ``series.marks`` for the rows of a line with its color; ``words`` begin the alt text.
    """
    names = distinct_names(table[by])
    mark_styles, fig = theme.mark_styles(sweep.lines or names), Drawing()
    for index, panel in enumerate(panels):
        panel_axes: dict[str, Any] = {f"{letter}axis": grid.axis(letter, index) for letter in "xy"}
        for name, rows, entry in series.rows_by_name(panel.rows, by, names):
            fig.add_traces(
                _draw_line(panel, rows, mark_styles[name], style(rows, mark_styles[name].color), **entry, **panel_axes)
            )
        fig.add_traces(series.pinned_marks(panel.rows, "x", panel.value, sweep.pinned, showlegend=False, **panel_axes))
        fig.add_traces(tie_rings(panel.rows, panel.value, showlegend=not index, **panel_axes))
        selected_rows = panel.rows[panel.rows["point"] == sweep.selected]
        if len(selected_rows):
            size = (12, 2.5) if grid.columns > 1 else (17, 3)
            fig.add_trace(
                series.ring(selected_rows["x"], selected_rows[panel.value], "Chosen point", *size, **panel_axes)
            )
    legends.merge_entries(fig)
    notes, note_height = axes.make_note(sweep.note, BELOW_PX)
    inner = _lay_out(fig, panels, grid, sweep.title, axis_range(sweep.values, table["x"]))
    selected_values = table.loc[table["point"] == sweep.selected, "x"].drop_duplicates() if grid.columns == 1 else ()
    shapes = [axes.vertical_line(float(x), SELECTED_POINT) for x in selected_values]
    for index, panel in enumerate(panels):
        if sweep.required is not None and sweep.required[0] == panel.key:
            shapes += _shade_failing(fig, panel, sweep.required[1], grid.axis("x", index), grid.axis("y", index))
    fig.update_layout(shapes=shapes, annotations=[*fig.annotations, *notes])
    gap = 30 if grid.columns > 1 else 14  # with room for a caption
    return legends.add_legend(
        fig, f"{words} {clean_text(sweep.note, 300)}".strip(), inner + gap + BELOW_PX + note_height,
        zoom_key=sweep.title, left=grid.left, right=24, below=BELOW_PX + note_height, gap=gap,
    )  # fmt: skip


def _draw_line(
    panel: SweepPanel, rows: pd.DataFrame, mark_style: theme.MarkStyle, style: dict[str, Any], **fields: Any
) -> list[Trace]:
    """The band of the intervals, if there are any, the line, and white marks on points that fail the requirement."""
    traces = []
    if len(panel.band) == 2 and set(panel.band) <= set(rows):
        known = series.finite_rows(rows, *panel.band)
        low, high = (known[end] for end in panel.band)
        traces.append(
            series.band(known["x"], low, high, theme.tint(mark_style.color, 0.13), showlegend=False, **fields)
        )
    style = {"picks": ("point",), "formats": TEXT_FORMATS, **style}
    line = series.marks(rows, "x", panel.value, mark_style, panel.hover, **style, **fields)
    return [*traces, line, *failing_marks(line, rows)]


def _lay_out(fig: Drawing, panels: Sequence[SweepPanel], grid: PanelGrid, title: str, span: list[float]) -> float:
    """Add axes and captions of the small plots; returns the height of all together in px."""
    columns = min(grid.columns, len(panels))
    rows = -(-len(panels) // columns)
    x_domains = axes.panel_domains(columns, GAP_SHARE)
    (y_domains, inner) = axes.stack_panels([grid.height] * rows, grid.gap)
    x_axis: dict[str, Any] = {"title": {"text": safe_text(title, 90)}}
    if grid.columns > 1:
        short_title = (title.partition(": ")[2] or title).partition(" (")[0]
        x_axis = {
            "title": {"text": safe_text(short_title, LINE_CHARACTERS // columns), "font": {"size": theme.SMALL_SIZE}},
            "nticks": 4,
        }  # fmt: skip
    for index, panel in enumerate(panels):
        row, column = divmod(index, grid.columns)
        x, y = grid.axis("x", index), grid.axis("y", index)
        if row == 0:
            shown = {"range": span, "domain": x_domains[column], "anchor": grid.axis("y", (rows - 1) * grid.columns)}
            fig.update_layout({f"xaxis{x[1:]}": x_axis | shown})
        if column == 0:
            fig.update_layout({f"yaxis{y[1:]}": panel.axis | {"domain": y_domains[row], "anchor": "x"}})
        if panel.caption:
            fig.add_annotation(theme.caption(panel.caption, y_domains[row][1], xref=f"{x} domain", yshift=3))
    return inner


def _shade_failing(fig: Drawing, panel: SweepPanel, minimum: float, x: str, y: str) -> list[dict[str, Any]]:
    """The part of a small plot below the required value, and the line at that value; the axis has a fixed range."""
    numbers = panel.rows[[name for name in (panel.value, *panel.band) if name in panel.rows]].to_numpy(np.float64)
    low, high = min(minimum, float(np.nanmin(numbers))), max(minimum, float(np.nanmax(numbers)))
    pad = 0.06 * (high - low) or 0.01
    bottom, top = panel.axis.get("range", [low - pad, high + pad])  # a fixed range, or the shade would stretch it
    fig.update_layout({f"yaxis{y[1:]}": {"range": [bottom, top]}})
    area = {"xref": f"{x} domain", "x0": 0, "x1": 1, "yref": y, "y1": minimum, "layer": "below"}
    return [
        area | {"type": "rect", "y0": bottom, "fillcolor": FAILING, "line": {"width": 0}},
        area | {"type": "line", "y0": minimum, "line": {"color": theme.FADED, "width": 1.5, "dash": "dash"}},
    ]


def failing_marks(trace: Trace, rows: pd.DataFrame, **marker: Any) -> list[Trace]:
    """White marks over the points of ``trace`` that do not meet the requirement, if ``rows`` say which do (meets)."""
    fails = np.flatnonzero(~rows["meets"].to_numpy(bool)) if "meets" in rows else np.array([], np.int64)
    if not len(fails):
        return []
    points: dict[str, Any] = {name: np.asarray(trace[name], np.float32)[fails] for name in "xy"}
    points |= {name: [trace[name][index] for index in fails] for name in ("customdata", "text")}
    mark_style = (
        trace["marker"] | {"color": theme.GROUND, "line": {"color": trace["marker"]["color"], "width": 2}} | marker
    )
    return [trace | points | {"mode": "markers", "showlegend": False, "marker": mark_style}]


def tie_rings(rows: pd.DataFrame, y: str, **fields: Any) -> list[Trace]:
    """Thin rings around the points that cannot be distinguished from the best (column is_tie), at x and ``y``."""
    ties = rows[rows["is_tie"].eq(True)] if "is_tie" in rows else rows.head(0)
    entry = {"showlegend": True, "legendgroup": TIE_NAME}
    return [series.ring(ties["x"], ties[y], TIE_NAME, 15, 1.5, theme.INK, **entry | fields)] if len(ties) else []


def axis_range(values: Sequence[float] | None, computed: Iterable[float]) -> list[float]:
    """The range of an axis: over the planned ``values``, or over the ``computed`` ones if ``values`` is None."""
    ends = [float(value) for value in (values if values else computed)]
    low, high = min(ends), max(ends)
    pad = 0.03 * (high - low) or 0.5
    return [low - pad, high + pad]
