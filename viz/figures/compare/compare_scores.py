"""How much more accurate one run is than another: every average and every data set, with paired intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.text import clean_text, count, percent, safe_text

ROW, HEAD, TOP, BOTTOM = 24, 24, 34, 54  # px; a group's heading takes as much as a row
FOR_A, FOR_B, TIE = "#E08214", "#8073AC", "#F7F7F7"  # the sides of the diverging scale


@chart(
    title="Difference of scores",
    question="Which run is more accurate, and on which data sets?",
    columns=("scope", "title", "group", "a", "b", "difference", "low", "high", "n"),
    rows=("scope",),
    picks=("scope",),
    empty="These runs were not evaluated on any common data set.",
)
def compare_scores(table: pd.DataFrame, *, labels: tuple[str, str] = ("A", "B"), present: bool = False) -> go.Figure:
    """A dot for each average and each data set, B − A in percentage points, with its 95 % interval, largest on top.

    scope (key), title, group (its heading), a and b (accuracies or H-scores, fractions), difference,
    low and high (its interval, NaN where there is none), n (images). ``labels`` are the names of the runs. A filled
    dot has an interval without zero.
    """
    groups = in_order(table["group"])
    places, headings, rows = [], [], []
    at = 0.0
    for group in groups:
        headings.append((at, group))
        members = table[table["group"].astype(str) == group]
        members = members if group == groups[0] else members.sort_values("difference", ascending=False, kind="stable")
        rows.append(members)
        places += [at + 1 + k for k in range(len(members))]
        at += 1 + len(members)
    table = pd.concat(rows)
    fig = Drawing([_dots(table, np.array(places, np.float32), labels)])
    far = max(0.01, 1.06 * float(np.nanmax(np.abs(table[["difference", "low", "high"]].to_numpy(np.float64)))))
    ticks = [safe_text(title, 28) for title in table["title"]]
    fig.update_xaxes(
        title={"text": "B − A in percentage points, paired 95% interval"}, range=[-100 * far, 100 * far], zeroline=True,
        zerolinecolor=theme.INK, zerolinewidth=1.2, ticksuffix="",
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": "Data set or average"}, tickmode="array", tickvals=np.array(places, np.float32), ticktext=ticks,
        range=[at - 0.4, -0.6], showgrid=True, fixedrange=True,
    )  # fmt: skip
    left = max(map(theme.text_width, [*ticks, *(f"{safe_text(group, 40)}" for _, group in headings)])) + 44
    fig.update_layout(
        annotations=[*(_heading(*one) for one in headings), *_sides(labels)], showlegend=False,
        margin={"l": left, "r": 26, "t": TOP, "b": BOTTOM},
    )  # fmt: skip
    return theme.finish(fig, "compare_scores", _alt(table, labels), TOP + BOTTOM + ROW * max(at, 4), present)


def _dots(table: pd.DataFrame, places: np.ndarray, labels: tuple[str, str]) -> Trace:
    differences = 100 * table["difference"].to_numpy(np.float64)
    low, high = (100 * table[end].to_numpy(np.float64) for end in ("low", "high"))
    sure = (low > 0) | (high < 0)
    colors = [TIE if not it else FOR_B if value > 0 else FOR_A for it, value in zip(sure, differences, strict=True)]
    ends = np.nan_to_num(np.stack([high - differences, differences - low])).clip(0).astype(np.float32)
    return scatter(
        x=differences.astype(np.float32), y=places, mode="markers", name="Difference",
        marker={"color": colors, "size": 11, "symbol": "circle", "line": theme.edge(1.2)},
        error_x={
            "type": "data", "symmetric": False, "array": ends[0], "arrayminus": ends[1], "color": theme.FADED,
            "thickness": 1.6, "width": 3,
        },
        customdata=[[str(scope)] for scope in table["scope"]], unselected={"marker": {"opacity": 1}},
        text=[_hover(row, labels) for row in table.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _hover(row: Mapping[Any, Any], labels: tuple[str, str]) -> str:
    words = f"<b>{safe_text(row['title'])}</b><br>A, {safe_text(labels[0], 40)}: {percent(row['a'])}<br>"
    words += f"B, {safe_text(labels[1], 40)}: {percent(row['b'])}<br>B − A: {points(row['difference'])}"
    if np.isfinite(row["low"]) and np.isfinite(row["high"]):
        words += f" ({points(row['low'])} to {points(row['high'])})"
    return f"{words}<br>{count(row['n'])} images"


def points(difference: float) -> str:
    """A difference of shares in percentage points, with its sign; "—" where there is none."""
    return f"{100 * difference:+.1f}" if np.isfinite(difference) else "—"


def _heading(at: float, group: str) -> dict[str, Any]:
    return {
        "text": f"<b>{safe_text(group, 40)}</b>", "x": 0, "xref": "x domain", "xanchor": "right", "xshift": -6,
        "y": at, "yref": "y", "yanchor": "middle", "showarrow": False, "font": {"size": theme.SMALL},
    }  # fmt: skip


def _sides(labels: tuple[str, str]) -> list[dict[str, Any]]:
    """Labels that say which side is better for which run."""
    common = {"y": 1, "yref": "y domain", "yanchor": "bottom", "showarrow": False, "yshift": 2}
    font = {"size": theme.SMALL, "color": theme.INK}
    return [
        common | {"x": 0, "xref": "x domain", "xanchor": "left", "font": font, "text": "← A is better"},
        common | {"x": 1, "xref": "x domain", "xanchor": "right", "font": font, "text": "B is better →"},
    ]


def _alt(table: pd.DataFrame, labels: tuple[str, str]) -> str:
    words = f"Accuracy of B, {clean_text(labels[1], 40)}, minus that of A, {clean_text(labels[0], 40)}, in points:"
    first = [f"{clean_text(row['title'], 40)} {points(row['difference'])}" for row in table.head(3).to_dict("records")]
    sure = (table["low"] > 0) | (table["high"] < 0)
    return f"{words} {'; '.join(first)}. {int(sure.sum())} of {len(table)} intervals leave zero out."
