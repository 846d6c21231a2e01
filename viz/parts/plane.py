"""The plane of in-domain and out-of-domain accuracy: axes, curves of equal H-score, intervals and arrows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.drawing import Drawing, Trace, scatter
from viz.parts.labels import Box
from viz.text import clean_text, count, first_few, percent, plural

LEFT, RIGHT = 62, 30  # px: margins
WIDTHS = (700, 1300)  # px: labels do not overlap on a page of either width


class Pixels:
    """Converts data coordinates to pixels from the lower left corner of a plot of that size."""

    def __init__(self, x_range: list[float], y_range: list[float], width: float, height: float) -> None:
        self.x_range, self.y_range, self.width, self.height = x_range, y_range, width, height

    def __call__(self, x: float, y: float) -> tuple[float, float]:
        (x0, x1), (y0, y1) = self.x_range, self.y_range
        return (x - x0) / (x1 - x0) * self.width, (y - y0) / (y1 - y0) * self.height


def label_box(corner: tuple[float, float]) -> Box:
    """The box of a curve's label, given its lower right corner."""
    return Box(corner[0] - 23, corner[1] + 8, 46, 16)


def bar_boxes(rows: pd.DataFrame, to_pixel: Pixels) -> list[Box]:
    """The boxes of the intervals."""
    if not {"in_low", "in_high", "out_low", "out_high"} <= set(rows):
        return []
    boxes = []
    for row in rows.to_dict("records"):
        left, low = to_pixel(row["in_low"], row["out_low"])
        right, high = to_pixel(row["in_high"], row["out_high"])
        x, y = to_pixel(row["in_domain"], row["out_of_domain"])
        if np.isfinite([left, right, low, high]).all():
            boxes += [Box((left + right) / 2, y, right - left, 2), Box(x, (low + high) / 2, 2, high - low)]
    return boxes


def mark_box(row: Mapping[Any, Any], to_pixel: Pixels) -> Box:
    """The box of a run's mark."""
    return Box(*to_pixel(row["in_domain"], row["out_of_domain"]), 12, 12)


def split(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows that have all three scores, and the others."""
    complete = np.isfinite(table[["in_domain", "out_of_domain", "h_score"]].to_numpy(np.float64)).all(axis=1)
    return table[complete].reset_index(drop=True), table[~complete]


def left_out_note(left_out: pd.DataFrame) -> str:
    """A note that names the rows that are not drawn."""
    short = [clean_text(label, 28) for label in left_out["label"]]
    return f"Left out, no accuracy or H-score ({len(left_out)}): {first_few(short, 2)}"


def window(rows: pd.DataFrame, side: str) -> list[float]:
    """The range of every mark and interval, inside 0 to 1 and never so narrow that noise looks large."""
    middle = rows[{"in": "in_domain", "out": "out_of_domain"}[side]].to_numpy(np.float64)
    ends = [middle] + [rows[f"{side}_{end}"].to_numpy(np.float64) for end in ("low", "high") if f"{side}_{end}" in rows]
    low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
    pad = max(0.1 * (high - low), (0.1 - (high - low)) / 2, 0.01)
    return [max(0.0, low - pad), min(1.0 + 0.2 * pad, high + pad)]


def iso_curves(x_range: list[float], y_range: list[float]) -> tuple[list[Trace], list[dict[str, Any]]]:
    """Thin curves of equal H = 2·in·out/(in + out), each labeled where it leaves the plot."""
    lowest, highest = (_harmonic(x_range[i], y_range[i]) for i in (0, 1))
    step = next((s for s in (0.01, 0.02, 0.05, 0.1) if (highest - lowest) / s <= 7), 0.2)
    curves, labels = [], []
    for level in np.arange(np.ceil(lowest / step), np.floor(highest / step) + 1) * step:
        x = np.linspace(max(x_range[0], level / 2 + 1e-6), x_range[1], 80)
        y = level * x / (2 * x - level)
        inside = (y >= y_range[0]) & (y <= y_range[1])
        if inside.sum() < 3:
            continue
        x, y = x[inside], y[inside]
        curves.append(
            scatter(
                x=x.astype(np.float32), y=y.astype(np.float32), mode="lines", hoverinfo="skip", showlegend=False,
                name=f"H = {percent(level, 0)}", line={"color": "#C7CED6", "width": 1.2, "dash": "dot"},
            )
        )  # fmt: skip
        labels.append({
            "text": f"H {percent(level, 0)}", "x": float(x[-1]), "y": float(y[-1]), "xanchor": "right",
            "yanchor": "bottom", "font": {"size": theme.SMALL, "color": theme.FADED}, "showarrow": False,
        })  # fmt: skip
    return curves, labels


def bars(rows: pd.DataFrame, side: str, color: str) -> dict[str, Any] | None:
    """Error bars of one side ("in", "out"), None if the table has no intervals."""
    middle = {"in": "in_domain", "out": "out_of_domain"}[side]
    if f"{side}_low" not in rows or f"{side}_high" not in rows:
        return None
    below = (rows[middle] - rows[f"{side}_low"]).to_numpy(np.float32)
    above = (rows[f"{side}_high"] - rows[middle]).to_numpy(np.float32)
    return {
        "type": "data", "symmetric": False, "array": np.nan_to_num(above).clip(0),
        "arrayminus": np.nan_to_num(below).clip(0), "color": color, "thickness": 1, "width": 0,
    }  # fmt: skip


def arrow(start: Mapping[Any, Any], end: Mapping[Any, Any], color: str = theme.INK) -> dict[str, Any]:
    """Annotation that draws an arrow from one run to another."""
    return {
        "x": end["in_domain"], "y": end["out_of_domain"], "ax": start["in_domain"], "ay": start["out_of_domain"],
        "xref": "x", "yref": "y", "axref": "x", "ayref": "y", "text": "", "showarrow": True, "arrowhead": 2,
        "arrowsize": 1, "arrowwidth": 1.6, "arrowcolor": color, "opacity": 0.65, "standoff": 8, "startstandoff": 8,
        "name": "arrow",
    }  # fmt: skip


def arrow_boxes(start: tuple[float, float], end: tuple[float, float]) -> list[Box]:
    """The boxes of an arrow, given its ends in px."""
    (x0, y0), (x1, y1) = start, end
    return [Box(x0 + t * (x1 - x0), y0 + t * (y1 - y0), 6, 6) for t in np.linspace(0.1, 0.9, 12)]


def scores_in_words(row: Mapping[Any, Any]) -> list[str]:
    """Lines of a hover text: a run's accuracies with their intervals and numbers of images, and its H-score."""
    lines = []
    for name, value, side in (("in-domain", "in_domain", "in"), ("out-of-domain", "out_of_domain", "out")):
        line = f"{name} {percent(row[value])}"
        low, high = (row.get(f"{side}_{end}", np.nan) for end in ("low", "high"))
        if np.isfinite(low) and np.isfinite(high):
            line += f" ({percent(low)} to {percent(high)})"
        if np.isfinite(n := row.get(f"n_{side}", np.nan)):
            line += f", n = {count(n)}"
        lines.append(line)
    return [*lines, f"H-score {percent(row['h_score'])}"]


def footnote(left_out: pd.DataFrame, unlabeled: int, lines: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Annotation that counts the rows without scores and the marks without room for a label.

    Further ``lines`` follow, each on its own line.
    """
    notes = [left_out_note(left_out)] if len(left_out) else []
    if unlabeled:
        notes.append(f"{plural(unlabeled, 'mark')} unlabeled for lack of room")
    text = "<br>".join(filter(None, (". ".join(notes), *lines)))
    if not text:
        return []
    return [{
        "text": text, "x": 0, "xref": "paper", "xanchor": "left", "y": 0, "yref": "paper",
        "yanchor": "top", "yshift": -50, "font": {"size": theme.SMALL, "color": theme.FADED}, "align": "left",
    }]  # fmt: skip


def axes(fig: Drawing, x_range: list[float], y_range: list[float], rows: pd.DataFrame) -> None:
    """Set titles, ranges and ticks of both axes; the titles count the tasks if all rows have the same."""
    ticks, inside, outside = {"tickformat": ".0%"}, _tasks(rows, "tasks_in"), _tasks(rows, "tasks_out")
    fig.update_xaxes(title={"text": f"In-domain accuracy, mean over {inside} (%)"}, range=x_range, **ticks)
    fig.update_yaxes(title={"text": f"Out-of-domain accuracy, mean over {outside} (%)"}, range=y_range, **ticks)


def _tasks(rows: pd.DataFrame, name: str) -> str:
    counts = set(rows[name].dropna()) if name in rows else set()
    return plural(int(counts.pop()), "task") if len(counts) == 1 else "tasks"


def _harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b > 0 else 0.0
