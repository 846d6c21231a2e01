"""Accuracy against the number of exemplars (LOT, Fig. 3a; CAT, Table 3), and the rank of the Gram matrices."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import clean_text, percent, plural, safe_text, span

UPPER, LOWER, GAP, BOTTOM, LEFT = 330, 120, 44, 56, 66
RANK = "Full rank"
PRINTED = ("diamond-open", "diamond-cross-open", "diamond-x-open")  # marks of published values, one for each table
CLOSE = 0.05  # accuracies closer than this have no room for a label each


@chart(
    title="Exemplar sensitivity",
    question="How many exemplars does each method need?",
    columns=("method", "exemplars", "seed", "accuracy"),
    optional=("tasks", "n"),
    rows=("method", "exemplars", "seed"),
    empty="The exemplar sensitivity of this benchmark has not been measured.",
)
def drift_exemplars(
    table: pd.DataFrame,
    *,
    rank: pd.DataFrame | None = None,
    references: Mapping[str, float] | None = None,
    published: pd.DataFrame | None = None,
    present: bool = False,
) -> go.Figure:
    """A line for each method, the mean over draws of the exemplars, with a band from the worst draw to the best.

    method, exemplars (per task), seed (of the draw), accuracy (mean over in-domain tasks, a fraction), tasks, n
    (images). ``rank`` has exemplars, seed and full: the share of the input directions that LOT's Gram matrices span,
    drawn below. ``references`` are accuracies that need no exemplars, by name, as dotted lines. ``published`` has
    method, exemplars, accuracy and source: what papers print for other models, with marks of their own.
    """
    methods = in_order(table["method"])
    look = theme.looks(methods)
    traces: list[Trace] = []
    for method in methods:
        rows = table[table["method"].astype(str) == method]
        traces.append(_band(rows, "accuracy", method, look[method].color))
        traces.append(_line(rows, "accuracy", method, look[method]))
    if rank is not None and len(rank):
        grey = theme.Look(theme.FADED, "circle")
        traces.append(_band(rank, "full", RANK, grey.color, "y2"))
        traces.append(_line(rank, "full", RANK, grey, "y2"))
    printed = (
        []
        if published is None
        else [
            _printed(rows, str(name), symbol)
            for (name, rows), symbol in zip(published.groupby("source"), cycle(PRINTED), strict=False)
        ]
    )
    traces += printed
    legend, top = legends.above([*methods, *(str(trace["name"]) for trace in printed)])
    inner = UPPER + (GAP + LOWER if rank is not None and len(rank) else 0)
    fig = Drawing(traces)
    _refer(fig, references or {})
    _lay_out(fig, table, inner, rank is not None and len(rank) > 0)
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 26, "t": top + 30, "b": BOTTOM})
    return theme.finish(fig, "drift_exemplars", _alt(table, methods), inner + top + 30 + BOTTOM, present)


def _refer(fig: Drawing, references: Mapping[str, float]) -> None:
    """Add a dotted line for each reference; references close to each other share a label."""
    at: float = np.inf
    words: list[str] = []
    for name, value in sorted(references.items(), key=lambda item: -item[1]):
        fig.add_shape(theme.across(value, {"color": theme.INK, "width": 1.2, "dash": "dot"}))
        at, words = (at, words) if at - value < CLOSE else (value, [])
        words.append(f"{safe_text(name, 40)} {percent(value)}")
        if len(words) > 1:
            fig.annotations[-1]["text"] = ", ".join(words)
            continue
        fig.add_annotation(
            text=words[0], x=1, xref="paper", xanchor="right", y=value, yref="y", yanchor="bottom", showarrow=False,
            font={"size": theme.SMALL},
        )  # fmt: skip


def _printed(rows: pd.DataFrame, source: str, symbol: str) -> Trace:
    """What one paper prints for one method, in the color and with the marks of published numbers."""
    method, look = str(rows["method"].iloc[0]), theme.KINDS["paper"]
    name = legends.entry(f"◇ {method}: {source}")
    return scatter(
        x=np.log2(rows["exemplars"].to_numpy(np.float64)).astype(np.float32), y=rows["accuracy"].to_numpy(np.float32),
        mode="lines+markers", name=name, legendgroup=name, line={"color": look.color, "width": 1.2, "dash": "dot"},
        marker={"symbol": symbol, "color": look.color, "size": 9, "line": {"color": look.color, "width": 1.6}},
        text=[
            f"<b>◇ {safe_text(method)}, {plural(int(n), 'exemplar')} a task</b><br>{percent(value, 2)}, as printed"
            f"<br>{safe_text(source, 80)}: other models, other images"
            for n, value in zip(rows["exemplars"], rows["accuracy"], strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _lay_out(fig: Drawing, table: pd.DataFrame, inner: float, ranked: bool) -> None:
    counts = sorted({int(n) for n in table["exemplars"]})
    places = np.log2(counts)
    fig.update_xaxes(
        title={"text": "Exemplars per task"}, tickmode="array", tickvals=places, ticktext=[str(n) for n in counts],
        range=[places[0] - 0.25, places[-1] + 0.25], anchor="y2" if ranked else "y",
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": "In-domain accuracy,<br>mean over tasks (%)"}, tickformat=".0%", domain=[1 - UPPER / inner, 1]
    )
    if ranked:
        fig.update_layout(
            yaxis2={
                "title": {"text": "Rank<br>(% of full)"}, "tickformat": ".0%", "range": [0, 1.05], "anchor": "x",
                "domain": [0, LOWER / inner],
            }
        )  # fmt: skip
        fig.add_annotation(theme.caption("<b>Input directions that the Gram matrices span, mean over layers</b>",
                                         LOWER / inner))  # fmt: skip


def _line(rows: pd.DataFrame, value: str, name: str, look: theme.Look, axis: str = "y") -> Trace:
    counts = rows.groupby("exemplars", sort=True)
    means = counts[value].mean()
    return scatter(
        x=np.log2(means.index.to_numpy(np.float64)).astype(np.float32), y=means.to_numpy(np.float32),
        mode="lines+markers", name=legends.entry(name), legendgroup=safe_text(name), yaxis=axis,
        showlegend=axis == "y", line={"color": look.color, "width": 2.5},
        marker={"symbol": look.symbol, "color": look.color, "size": 9, "line": theme.edge(0.8)},
        text=[_hover(name, int(str(n)), group, value) for n, group in counts], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _band(rows: pd.DataFrame, value: str, name: str, color: str, axis: str = "y") -> Trace:
    """The band from the worst draw to the best, as one closed outline."""
    counts = rows.groupby("exemplars", sort=True)[value]
    low, high = counts.min(), counts.max()
    x = np.log2(np.concatenate([low.index, high.index[::-1]]).astype(np.float64)).astype(np.float32)
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return scatter(
        x=x, y=np.concatenate([low, high[::-1]]).astype(np.float32), mode="lines", line={"width": 0}, fill="toself",
        fillcolor=f"rgba({red},{green},{blue},0.15)", hoverinfo="skip", showlegend=False, yaxis=axis,
        name=legends.entry(f"{name}, all draws"), legendgroup=safe_text(name),
    )  # fmt: skip


def _hover(name: str, exemplars: int, group: pd.DataFrame, value: str) -> str:
    text = f"<b>{safe_text(name)}, {plural(exemplars, 'exemplar')} a task</b><br>mean {percent(group[value].mean())}"
    text += f" over {plural(len(group), 'draw')} ({percent(group[value].min())} to {percent(group[value].max())})"
    return text + (f"<br>{span(group['n'])} images" if "n" in group else "")


def _alt(table: pd.DataFrame, methods: list[str]) -> str:
    means = table.groupby(["method", "exemplars"])["accuracy"].mean()
    parts = []
    for method in methods[:6]:
        own = means[method].sort_index()
        least, most = own.index[0], own.index[-1]
        parts.append(f"{clean_text(method, 24)} {percent(own[least])} with {least}, {percent(own[most])} with {most}")
    rest = f"; {plural(len(methods) - 6, 'method')} more" if len(methods) > 6 else ""
    return f"In-domain accuracy by exemplars per task: {'; '.join(parts)}{rest}."
