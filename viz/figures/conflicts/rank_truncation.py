"""Accuracy against the share of ranks that remain when small singular values are cut (DRM, Fig. 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import clean_text, count, percent, safe_text

INNER, BOTTOM, LEFT = 340, 56, 66
DASHES = ("solid", "dot", "dash", "longdash")


@chart(
    title="Rank truncation",
    question="How many ranks does DRM need?",
    columns=("method", "group", "cut", "kept", "accuracy"),
    optional=("kept_low", "kept_high", "low", "high", "n"),
    rows=("method", "group", "cut"),
    empty="The effect of rank truncation has not been measured on this benchmark.",
)
def rank_truncation(table: pd.DataFrame, *, present: bool = False) -> go.Figure:
    """A line for each method and group of tasks; it is solid for the first group and dashed for the others.

    method, group (of tasks), cut (singular values up to this share of the largest are dropped), kept (mean share of
    ranks that remain; kept_low and kept_high are the least and the most of any matrix), accuracy with its interval
    low to high, n (images).
    """
    methods, groups = in_order(table["method"]), in_order(table["group"])
    look, traces, names = theme.looks(methods), list[Trace](), []
    for method in methods:
        for place, group in enumerate(groups):
            rows = table[(table["method"].astype(str) == method) & (table["group"].astype(str) == group)]
            rows = rows[np.isfinite(rows["accuracy"])].sort_values("kept")
            if len(rows):
                names.append(f"{method}, {group}")
                traces.append(_line(rows, names[-1], look[method], DASHES[place % len(DASHES)]))
    if not names:
        return theme.notice("rank_truncation", "No cut has an accuracy to draw.", present)
    fig = Drawing(traces)
    fig.update_xaxes(title={"text": "Ranks kept, mean over matrices (%)"}, tickformat=".0%", range=[-0.03, 1.03])
    fig.update_yaxes(title={"text": "Accuracy,<br>mean over tasks (%)"}, tickformat=".0%")
    legend, top = legends.above(names)
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 26, "t": top + 12, "b": BOTTOM})
    return theme.finish(fig, "rank_truncation", _alt(table, methods, groups), INNER + top + 12 + BOTTOM, present)


def _line(rows: pd.DataFrame, name: str, look: theme.Look, dash: str) -> Trace:
    text = [_hover(name, row) for row in rows.to_dict("records")]
    bars = {}
    if {"low", "high"} <= set(rows):
        above, below = rows["high"] - rows["accuracy"], rows["accuracy"] - rows["low"]
        bars = {
            "error_y": {
                "array": above.to_numpy(np.float32), "arrayminus": below.to_numpy(np.float32), "thickness": 1,
                "width": 3, "color": look.color,
            }
        }  # fmt: skip
    return scatter(
        x=rows["kept"].to_numpy(np.float32), y=rows["accuracy"].to_numpy(np.float32), mode="lines+markers",
        name=legends.entry(name), legendgroup=safe_text(name), line={"color": look.color, "width": 2.5, "dash": dash},
        marker={"symbol": look.symbol, "color": look.color, "size": 9, "line": theme.edge(0.8)},
        text=text, hovertemplate="%{text}<extra></extra>", **bars,
    )  # fmt: skip


def _hover(name: str, row: Mapping[Any, Any]) -> str:
    text = f"<b>{safe_text(name)}</b><br>cut at {row['cut']:g} of the largest singular value"
    text += f"<br>{percent(row['kept'])} of the ranks kept"
    if "kept_low" in row and "kept_high" in row:
        text += f" ({percent(row['kept_low'])} to {percent(row['kept_high'])} by matrix)"
    text += f"<br>accuracy {percent(row['accuracy'])}"
    if "low" in row and "high" in row and np.isfinite(row["low"]):
        text += f" (95% interval {percent(row['low'])} to {percent(row['high'])})"
    return text + (f"<br>{count(row['n'])} images" if "n" in row else "")


def _alt(table: pd.DataFrame, methods: list[str], groups: list[str]) -> str:
    parts = []
    for method in methods[:4]:
        rows = table[(table["method"].astype(str) == method) & (table["group"].astype(str) == groups[0])]
        rows = rows[np.isfinite(rows["accuracy"])].sort_values("kept")
        if len(rows):
            few, most = rows.iloc[0], rows.iloc[-1]
            accuracies = f"{percent(most['accuracy'])} with {percent(most['kept'], 0)} of the ranks"
            accuracies += f", {percent(few['accuracy'])} with {percent(few['kept'], 0)}"
            parts.append(f"{clean_text(method, 24)} {accuracies}")
    return f"Accuracy {clean_text(groups[0], 24)} by share of ranks kept: {'; '.join(parts)}."
