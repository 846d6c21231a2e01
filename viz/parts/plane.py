"""The plane of in-domain and out-of-domain accuracy: marks with intervals, labels and arrows over curves of equal H."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import NothingToDraw
from viz.drawing import Drawing, Trace
from viz.figure_text import clean_text, first_few, percent, plural
from viz.parts import axes, series

LEFT, RIGHT = 62, 30  # px: margins
IN, OUT = "in_domain", "out_of_domain"
SCORE_COLUMNS = {"in": IN, "out": OUT}
SCORES = (
    "in-domain {in_domain:percent}[ ({in_low:percent} to {in_high:percent})][, n = {n_in:count}]"
    "<br>out-of-domain {out_of_domain:percent}[ ({out_low:percent} to {out_high:percent})][, n = {n_out:count}]"
    "<br>H-score {h_score:percent}"
)
Point = tuple[float, float]
# Possible positions of a label, nearest first: (horizontal side, vertical side, distance in px); far ones get a thin
# line. Corners come first, because a mark's own intervals leave them free.
CORNERS, EDGES = ((1, 1), (1, -1), (-1, 1), (-1, -1)), ((1, 0), (-1, 0), (0, 1), (0, -1))
LABEL_POSITIONS = (
    *((h, v, 6) for h, v in CORNERS),
    *((h, v, gap) for gap in (18, 26, 40, 58) for h, v in (*EDGES, *CORNERS)),
)
MAX_UNLINED_GAP = 15  # px: a label farther from its mark than this gets a line to it


class PlotWindow(NamedTuple):
    """The ranges of both axes."""

    x: list[float]
    y: list[float]

    @classmethod
    def around_rows(cls, rows: pd.DataFrame) -> PlotWindow:
        """The ranges of every mark and interval, inside 0 to 1 and never so narrow that noise looks large."""
        return cls(_axis_range(rows, "in"), _axis_range(rows, "out"))

    def pixel_position(self, point: Point, size: Point) -> Point:
        """Position of a point in a plot of ``size``, in px from its lower left corner."""
        (x, y), (x0, x1), (y0, y1) = point, self.x, self.y
        return (x - x0) / (x1 - x0) * size[0], (y - y0) / (y1 - y0) * size[1]


class Labels(NamedTuple):
    """Texts at the marks of ``rows``.

    They do not cover ``other_marks``, nor the marks' intervals if ``avoid_intervals`` is True. The rows whose
    numbers are in ``first`` choose their positions first. Labels do not overlap on pages of these ``widths`` with a
    plot of this ``height``, px.
    """

    rows: pd.DataFrame
    texts: Sequence[str]
    widths: tuple[float, ...]
    height: float
    avoid_intervals: bool = False
    other_marks: Sequence[Point] = ()
    first: Collection[int] = ()


def split_complete(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows that have all three scores, and the others."""
    complete = np.isfinite(table[[*SCORE_COLUMNS.values(), "h_score"]].to_numpy(np.float64)).all(axis=1)
    return table[complete].reset_index(drop=True), table[~complete]


def require_rows(complete: pd.DataFrame, left_out: pd.DataFrame) -> None:
    """Raise NothingToDraw with the names of the ``left_out`` rows if there is no row to draw."""
    if complete.empty:
        raise NothingToDraw(f"Nothing to draw: {_describe_left_out(left_out)}")


def points(rows: pd.DataFrame) -> list[Point]:
    """Both accuracies of every row."""
    return list(zip(*(rows[side] for side in SCORE_COLUMNS.values()), strict=True))


def marks(rows: pd.DataFrame, mark_style: theme.MarkStyle, hover: str, error: str, **fields: Any) -> Trace:
    """The marks of the runs in ``rows``, with intervals in the color ``error``; see ``series.marks``."""
    x, y = (
        series.interval(rows, middle, error, f"{side}_low", f"{side}_high", thickness=1)
        for side, middle in SCORE_COLUMNS.items()
    )
    return series.marks(rows, IN, OUT, mark_style, hover, picks=("run",), error_x=x, error_y=y, **fields)


def draw(
    traces: Iterable[Trace],
    window: PlotWindow,
    labels: Labels,
    arrows: Sequence[dict[str, Any]],
    left_out: pd.DataFrame,
    notes: Sequence[str] = (),
) -> Drawing:
    """The ``traces`` over curves of equal H-score, with ``arrows`` (see ``arrow``) and as many labels as fit.

    A note counts the rows without scores and the marks without a label; ``notes`` follow, a line each.
    """
    curves, names = _draw_curves(window)
    fitting_labels = _arrange_labels(window, labels, arrows, [(name["x"], name["y"]) for name in names])
    fig = Drawing([*curves, *traces])
    for update, side, title, ends in (
        (fig.update_xaxes, "in", "In-domain", window.x),
        (fig.update_yaxes, "out", "Out-of-domain", window.y),
    ):
        tasks = _tasks_in_words(labels.rows, f"tasks_{side}")
        update(title={"text": f"{title} accuracy, mean over {tasks} (%)"}, range=ends, tickformat=".0%")
    unlabeled = len(labels.rows) - len(fitting_labels)
    first = [_describe_left_out(left_out)] if len(left_out) else []
    first += [f"{plural(unlabeled, 'mark')} unlabeled for lack of room"] if unlabeled else []
    text = "<br>".join(filter(None, (". ".join(first), *notes)))
    fig.update_layout(
        annotations=[*names, *arrows, *fitting_labels, *([axes.annotate_below(text, 50)] if text else [])]
    )
    return fig


def arrow(start: Point, end: Point, color: str = theme.INK) -> dict[str, Any]:
    """Annotation that draws an arrow from one mark to another."""
    return {
        "x": end[0], "y": end[1], "ax": start[0], "ay": start[1], "xref": "x", "yref": "y", "axref": "x", "ayref": "y",
        "text": "", "showarrow": True, "arrowhead": 2, "arrowsize": 1, "arrowwidth": 1.6, "arrowcolor": color,
        "opacity": 0.65, "standoff": 8, "startstandoff": 8, "name": "arrow",
    }  # fmt: skip


def _axis_range(rows: pd.DataFrame, side: str) -> list[float]:
    columns = [name for name in (SCORE_COLUMNS[side], f"{side}_low", f"{side}_high") if name in rows]
    ends = rows[columns].to_numpy(np.float64)
    low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
    pad = max(0.1 * (high - low), (0.1 - (high - low)) / 2, 0.01)
    return [max(0.0, low - pad), min(1.0 + 0.2 * pad, high + pad)]


def _draw_curves(window: PlotWindow) -> tuple[list[Trace], list[dict[str, Any]]]:
    """Thin curves of equal H = 2·in·out/(in + out), each labeled where it leaves the plot."""
    lowest, highest = (_harmonic_mean(window.x[end], window.y[end]) for end in (0, 1))
    step = next((s for s in (0.01, 0.02, 0.05, 0.1) if (highest - lowest) / s <= 7), 0.2)
    curves, labels = [], []
    for level in np.arange(np.ceil(lowest / step), np.floor(highest / step) + 1) * step:
        x = np.linspace(max(window.x[0], level / 2 + 1e-6), window.x[1], 80)
        y = level * x / (2 * x - level)
        inside = (y >= window.y[0]) & (y <= window.y[1])
        if inside.sum() < 3:
            continue
        x, y = x[inside], y[inside]
        style = {"color": theme.LEVEL_COLOR, "width": 1.2, "dash": "dot"}
        curves.append(series.line(x, y, f"H = {percent(level, 0)}", style, showlegend=False))
        text, position = f"H {percent(level, 0)}", {"x": float(x[-1]), "y": float(y[-1])}
        labels.append(
            {"text": text, **position, "xanchor": "right", "yanchor": "bottom", "font": {"color": theme.FADED}}
        )
    return curves, labels


def _harmonic_mean(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b > 0 else 0.0


def _arrange_labels(
    window: PlotWindow, labels: Labels, arrows: Sequence[dict[str, Any]], corners: list[Point]
) -> list[dict[str, Any]]:
    """The labels that fit on narrow and wide pages; ``corners`` are the lower right ones of the curves' labels."""
    positions, views = points(labels.rows), []
    for width in labels.widths:
        size = (width - LEFT - RIGHT, labels.height)
        occupied = [Box(x - 23, y + 8, 46, 16) for x, y in (window.pixel_position(corner, size) for corner in corners)]
        occupied += [Box(*window.pixel_position(point, size), 12, 12) for point in labels.other_marks]
        occupied += _interval_boxes(labels.rows, window, size) if labels.avoid_intervals else []
        for pointer in arrows:
            (x0, y0), (x1, y1) = (
                window.pixel_position(end, size)
                for end in ((pointer["ax"], pointer["ay"]), (pointer["x"], pointer["y"]))
            )
            occupied += [Box(x0 + t * (x1 - x0), y0 + t * (y1 - y0), 6, 6) for t in np.linspace(0.1, 0.9, 12)]
        views.append(PlotArea([window.pixel_position(point, size) for point in positions], size, occupied))
    return place_labels(labels.texts, positions, views, labels.first)


def _interval_boxes(rows: pd.DataFrame, window: PlotWindow, size: Point) -> list[Box]:
    ends = ["in_low", "in_high", "out_low", "out_high"]
    if not set(ends) <= set(rows):
        return []
    boxes = []
    for point, (left, right, low, high) in zip(points(rows), rows[ends].to_numpy(np.float64).tolist(), strict=True):
        (x, y), (x0, y0) = window.pixel_position(point, size), window.pixel_position((left, low), size)
        x1, y1 = window.pixel_position((right, high), size)
        if np.isfinite([x0, x1, y0, y1]).all():
            boxes += [Box((x0 + x1) / 2, y, x1 - x0, 2), Box(x, (y0 + y1) / 2, 2, y1 - y0)]
    return boxes


def _tasks_in_words(rows: pd.DataFrame, name: str) -> str:
    """The number of tasks of an average, in words, if it is the same for all rows."""
    counts = set(rows[name].dropna()) if name in rows else set()
    return plural(int(counts.pop()), "task") if len(counts) == 1 else "tasks"


def _describe_left_out(rows: pd.DataFrame) -> str:
    short = [clean_text(label, 28) for label in rows["label"]]
    return f"Left out, no accuracy or H-score ({len(rows)}): {first_few(short, 2)}"


class Box(NamedTuple):
    """Rectangle by its center and size, in px, y upward."""

    x: float
    y: float
    width: float
    height: float

    def is_outside(self, size: tuple[float, float]) -> bool:
        """Whether any part of the box is outside (0, 0, *size)."""
        half_w, half_h = self.width / 2, self.height / 2
        return not (half_w <= self.x <= size[0] - half_w and half_h <= self.y <= size[1] - half_h)


class PlotArea(NamedTuple):
    """A plot's size and marks, in px from its lower left corner, and the boxes that labels must not cover."""

    marks: Sequence[tuple[float, float]]
    size: tuple[float, float]
    taken: Sequence[Box] = ()


def place_labels(
    texts: Sequence[str],
    positions: Sequence[tuple[float, float]],
    views: Sequence[PlotArea],
    first: Collection[int] = (),
) -> list[dict[str, Any]]:
    """Annotations that label the marks at ``positions`` (axis units) without overlap on narrow and wide pages.

    The marks ``first`` choose first, then crowded ones. A label with no free position is left out: overlapping labels
    are unreadable, and the hover has the text.
    """
    obstacles = [np.array([*view.taken, *(Box(x, y, 12, 12) for x, y in view.marks)]).reshape(-1, 4) for view in views]
    crowd = [sum(abs(x - a) < 90 and abs(y - b) < 30 for a, b in views[0].marks) for x, y in views[0].marks]
    annotations = []
    for index in sorted(range(len(texts)), key=lambda i: (i not in first, -crowd[i], i)):
        width, height = theme.text_width(texts[index]), theme.SMALL_SIZE + 3
        for side, vertical, gap in LABEL_POSITIONS:
            boxes = [_label_box(view.marks[index], side, vertical, gap, width, height) for view in views]
            if all(_has_room(*case) for case in zip(boxes, views, obstacles, strict=True)):
                obstacles = [np.vstack([occupied, box]) for occupied, box in zip(obstacles, boxes, strict=True)]
                annotations.append(_label_annotation(texts[index], positions[index], side, vertical, gap))
                break
    return annotations


def _has_room(box: Box, view: PlotArea, obstacles: npt.NDArray[np.float64]) -> bool:
    """Whether a box is inside the view, and no row (x, y, width, height) of ``obstacles`` (n, 4) overlaps it."""
    if box.is_outside(view.size):
        return False
    distances, sizes = np.abs(obstacles[:, :2] - box[:2]), obstacles[:, 2:] + box[2:]
    return not bool((distances < sizes / 2).all(axis=1).any())


def _label_box(point: tuple[float, float], side: int, vertical: int, gap: float, width: float, height: float) -> Box:
    # a diagonal label is moved by the same distance along each axis
    return Box(point[0] + side * (gap + width / 2), point[1] + vertical * (gap + height / 2), width, height)


def _label_annotation(text: str, data: tuple[float, float], side: int, vertical: int, gap: float) -> dict[str, Any]:
    common = {
        "text": text, "x": data[0], "y": data[1], "name": "label",
        "xanchor": {1: "left", 0: "center", -1: "right"}[side],
        "yanchor": {1: "bottom", 0: "middle", -1: "top"}[vertical],
    }  # fmt: skip
    if gap < MAX_UNLINED_GAP:
        return common | {"xshift": side * gap, "yshift": vertical * gap}
    return common | {
        "showarrow": True, "arrowhead": 0, "arrowwidth": 1, "arrowcolor": theme.FADED, "standoff": 7,
        "ax": side * gap, "ay": -vertical * gap, "axref": "pixel", "ayref": "pixel",
    }  # fmt: skip
