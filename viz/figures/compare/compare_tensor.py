"""One tensor's saliency for every expert in two runs, and the difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.text import clean_text, plural, real, safe_text, short_name

PANELS = {"a": "A", "b": "B", "difference": "B − A"}
ROW, TOP, BOTTOM, GAP = 24, 74, 64, 0.06  # px, px, px, share of the width
COLORS = {"a": "#E08214", "b": "#8073AC", "difference": "#8A94A3"}


@chart(
    title="One tensor in two runs",
    question="How salient is this tensor in either run?",
    columns=("expert", "a", "b", "difference", "threshold_a", "threshold_b", "merged_a", "merged_b"),
    rows=("expert",),
    empty="The two runs have no common expert whose saliency of this tensor is known.",
)
def compare_tensor(
    table: pd.DataFrame, *, tensor: str = "", labels: tuple[str, str] = ("A", "B"), present: bool = False
) -> go.Figure:
    """Dots of A, of B and of the difference in three panels; A and B have the same range and a tick at the threshold.

    expert, a and b (saliency, units of the weights), difference, threshold_a and threshold_b, merged_a and merged_b
    (whether the run merges the expert's tensor; filled dots). ``tensor`` and ``labels`` are names.
    """
    table = table[np.isfinite(table[["a", "b", "difference"]].to_numpy(np.float64)).all(axis=1)]
    names = in_order(table["expert"])
    both = table[["a", "b", "threshold_a", "threshold_b"]].to_numpy(np.float64)
    high = 1.1 * float(np.nanmax(both, initial=0)) or 1.0
    far = 1.25 * float(table["difference"].abs().max()) or high
    ticks = [safe_text(name, 24) for name in names]
    fig, captions, width = Drawing(), _names(labels), (1 - 2 * GAP) / 3
    for place, panel in enumerate(PANELS):
        left, number = place * (width + GAP), str(place + 1) if place else ""
        for trace in _traces(table, panel):
            fig.add_trace(trace | {"xaxis": f"x{number}", "yaxis": "y"})
        low = -far if panel == "difference" else 0.0
        captions.append(theme.caption(f"<b>{PANELS[panel]}</b>", 1.0) | {"x": left})
        fig.layout[f"xaxis{number}"] = {
            "domain": [left, left + width], "range": [low, far if low else high], "nticks": 4,
            "exponentformat": "power", "title": {"text": f"Saliency, {PANELS[panel]}"}, "zeroline": bool(low),
            "zerolinecolor": theme.INK,
        }  # fmt: skip
    fig.update_yaxes(
        title={"text": "Expert"}, tickmode="array", tickvals=list(range(len(names))), ticktext=ticks,
        range=[len(names) - 0.5, -0.5], fixedrange=True,
    )  # fmt: skip
    margin = {"l": max(map(theme.text_width, ["", *ticks])) + 44, "t": TOP, "r": 24, "b": BOTTOM}
    fig.update_layout(showlegend=False, annotations=captions, margin=margin)
    height = TOP + BOTTOM + ROW * max(len(names), 3)
    return theme.finish(fig, "compare_tensor", _alt(table, tensor), height, present, tensor)


def _traces(table: pd.DataFrame, panel: str) -> list[Trace]:
    """The thresholds of a panel, if it has any, and its dots."""
    rows, traces = np.arange(len(table), dtype=np.float32), []
    filled = np.full(len(table), True)
    if panel != "difference":
        filled, ticks = table[f"merged_{panel}"].to_numpy(bool), table[f"threshold_{panel}"].to_numpy(np.float64)
        finite, mark = np.isfinite(ticks), {"symbol": "line-ns", "size": 16, "line": {"color": theme.INK, "width": 2.5}}
        traces.append(
            scatter(
                x=ticks[finite].astype(np.float32), y=rows[finite], mode="markers", marker=mark, hoverinfo="skip",
                name=f"Threshold of {PANELS[panel]}", meta={"numbers": True},
            )
        )  # fmt: skip
    color = COLORS[panel]
    dots = {
        "size": 12, "color": [color if full else "white" for full in filled],
        "line": {"width": 2, "color": [theme.INK if full else color for full in filled]},
    }  # fmt: skip
    hover = [_hover(row) for row in table.to_dict("records")]
    dot = scatter(
        x=table[panel].to_numpy(np.float32), y=rows, mode="markers", name=PANELS[panel], marker=dots, text=hover,
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    return [*traces, dot]


def _hover(row: Mapping[Any, Any]) -> str:
    lines = [
        f"{side.upper()}: {real(row[side])}, {'merged' if row[f'merged_{side}'] else 'dropped'}" for side in ("a", "b")
    ]
    return f"<b>{safe_text(row['expert'])}</b><br>{'<br>'.join(lines)}<br>B − A: {real(row['difference'])}"


def _names(labels: tuple[str, str]) -> list[dict[str, Any]]:
    """The names of the runs, a line each above the panels: side by side they do not fit on narrow pages."""
    lines = [f"<b>{side}</b>: {safe_text(name, 60)}" for side, name in zip("AB", labels, strict=True)]
    return [theme.caption(line, 1.0) | {"yshift": 38 - 16 * place} for place, line in enumerate(lines)]


def _alt(table: pd.DataFrame, tensor: str) -> str:
    what = f"Saliency of {clean_text(short_name(tensor), 60)}" if tensor else "Saliency"
    higher, lower = (int((sign * table["difference"] > 0).sum()) for sign in (1, -1))
    return f"{what} for {plural(len(table), 'expert')} in both runs: B is higher for {higher} and lower for {lower}."
