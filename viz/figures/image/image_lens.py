"""The answer by depth: what each model would say of an image if its class token were read out after each block."""

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
from viz.parts.depth import BLOCKS_PASSED
from viz.text import clean_text, percent, plural, safe_text, span

ACROSS, PANEL, CAPTION, BELOW, LEFT = 2, 250, 62, 60, 64  # panels in a row; px
NEXT, ACCURACY = 3, "Accuracy on the data set"
GAP = 0.08  # share of the width between panels


@chart(
    title="Answer by depth",
    question="At which depth does each model settle on its answer?",
    columns=("model", "title", "depth", "number", "class", "probability", "rank", "right", "line"),
    optional=("accuracy", "low", "high", "n"),
    rows=("model", "depth", "number"),
    empty="No model has read the image yet.",
)
def image_lens(table: pd.DataFrame, *, sentence: str = "", present: bool = False) -> go.Figure:
    """A panel for each model with a line for the right class, the answer and the next two; dashed is the accuracy.

    model (key), title, depth (0: before block 0), number and class, probability, rank (1: the answer there), right
    (whether it is the image's class), line (whether it is drawn as one). accuracy is that of the same reading over the
    data set's images (with low, high and n), where it is known. ``sentence`` says in words what the image's page says.
    """
    table = table.assign(model=table["model"].astype(str))
    models = in_order(table["model"])
    lines = table[table["line"].astype(bool)]
    looks = theme.looks(_by_weight(lines))
    across = len(models) if present else ACROSS
    fig, rows = Drawing(), -(-len(models) // across)
    named: set[str] = set()
    for place, model in enumerate(models):
        own = table[table["model"] == model].sort_values("depth", kind="stable")
        for trace in _traces(own, looks, named):
            number = str(place + 1) if place else ""
            fig.add_trace(trace | {"xaxis": f"x{number}", "yaxis": f"y{number}"})
    legend, top = legends.above([*looks, ACCURACY])
    height = top + rows * (CAPTION + PANEL + BELOW)
    for place, model in enumerate(models):
        _axes(fig, place, table[table["model"] == model], (top, height), min(len(models), across))
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 16, "t": 0, "b": 0})
    alt = f"{sentence} {_alt(table, models)}".strip()
    return theme.finish(fig, "image_lens", alt, height, present, ",".join(models))


def _by_weight(lines: pd.DataFrame) -> list[str]:
    """The classes that are lines, the right one first and then those with the highest probabilities."""
    order = lines.assign(name=lines["class"].astype(str)).groupby("name").agg({"right": "max", "probability": "max"})
    return [str(name) for name in order.sort_values(["right", "probability"], ascending=False).index]


def _traces(own: pd.DataFrame, looks: Mapping[str, theme.Look], named: set[str]) -> list[Trace]:
    """The lines of one panel; each class is in the legend once."""
    traces = []
    tops = {depth: _top(rows) for depth, rows in own.groupby("depth", sort=True)}
    if "accuracy" in own and own["accuracy"].notna().any():
        known = own.drop_duplicates("depth").dropna(subset="accuracy")
        traces.append(
            scatter(
                x=known["depth"].to_numpy(np.float32), y=known["accuracy"].to_numpy(np.float32), mode="lines",
                name=ACCURACY, legendgroup=ACCURACY, showlegend=ACCURACY not in named,
                line={"color": theme.FADED, "width": 1.6, "dash": "dash"},
                text=[_accuracy(row) for row in known.to_dict("records")], hovertemplate="%{text}<extra></extra>",
            )
        )  # fmt: skip
        named.add(ACCURACY)
    for name, rows in own[own["line"].astype(bool)].groupby(own["class"].astype(str), sort=False):
        label, look = legends.entry(name), looks[str(name)]
        right = bool(rows["right"].any())
        traces.append(
            scatter(
                x=rows["depth"].to_numpy(np.float32), y=rows["probability"].to_numpy(np.float32),
                mode="lines+markers", name=f"{label} (right)" if right else label, legendgroup=label,
                showlegend=label not in named, line={"color": look.color, "width": 3.5 if right else 2},
                marker={"symbol": look.symbol, "color": look.color, "size": 9 if right else 7, "line": theme.edge(0.8)},
                text=[
                    f"<b>{safe_text(name, 40)}: {percent(share)}</b><br>{tops[depth]}"
                    for depth, share in zip(rows["depth"], rows["probability"], strict=True)
                ],
                hovertemplate="%{text}<extra></extra>",
            )
        )  # fmt: skip
        named.add(label)
    return traces


def _top(rows: pd.DataFrame) -> str:
    """The three highest classes at a depth."""
    first = rows.sort_values("rank").head(NEXT).to_dict("records")
    listed = [f"{row['rank']}. {safe_text(row['class'], 40)}, {percent(row['probability'])}" for row in first]
    return f"Depth {rows['depth'].iloc[0]:.0f}:<br>{'<br>'.join(listed)}"


def _accuracy(row: Mapping[Any, Any]) -> str:
    words = f"<b>{percent(row['accuracy'])} of the data set right</b><br>Depth {row['depth']:.0f}"
    if {"low", "high", "n"} <= set(row):
        words += f"<br>95% interval {percent(row['low'])} to {percent(row['high'])}, n = {span([row['n']])}"
    return words


def stays(own: pd.DataFrame) -> int:
    """The depth from which a model's final answer stays."""
    first = own[own["rank"] == 1].sort_values("depth")
    same = (first["number"] == first["number"].iloc[-1]).to_numpy()[::-1]
    run = len(same) if same.all() else int(np.argmin(same))
    return int(first["depth"].iloc[len(first) - run])


def _axes(fig: Drawing, place: int, own: pd.DataFrame, sizes: tuple[float, float], columns: int) -> None:
    """Both axes of a panel, its caption, and a line at the depth from which the answer stays."""
    top, height = sizes
    row, column = divmod(place, columns)
    gap = GAP * ACROSS / max(columns, ACROSS)
    width = (1 - gap * (columns - 1)) / columns
    upper = 1 - (top + row * (CAPTION + PANEL + BELOW) + CAPTION) / height
    number = str(place + 1) if place else ""
    last = int(own["depth"].max())
    left = column * (width + gap)
    fig.layout[f"xaxis{number}"] = {
        "title": {"text": "Depth" if columns > ACROSS else BLOCKS_PASSED}, "range": [-0.3, last + 0.3],
        "dtick": 1 if last < 13 else 4, "showgrid": False, "domain": [left, left + width], "anchor": f"y{number}",
    }  # fmt: skip
    fig.layout[f"yaxis{number}"] = {
        "title": {"text": "Probability" if column == 0 else "\xa0"}, "range": [-0.02, 1.04], "tickformat": ".0%",
        "domain": [max(0.0, upper - PANEL / height), upper], "anchor": f"x{number}",
    }  # fmt: skip
    final = own[(own["depth"] == last) & (own["rank"] == 1)].iloc[0]
    at = stays(own)
    words = f"<b>{safe_text(own['title'].iloc[0], 44)}</b><br>says {safe_text(final['class'], 30)} "
    words += f"({percent(final['probability'], 0)})<br>and stays with it from depth {at}"
    fig.add_annotation(
        text=words, x=0, xref=f"x{number} domain", y=1, yref=f"y{number} domain", xanchor="left", yanchor="bottom",
        yshift=4, align="left", showarrow=False, font={"size": theme.SMALL, "color": theme.INK},
    )  # fmt: skip
    fig.add_shape(
        type="line", xref=f"x{number}", yref=f"y{number} domain", x0=at, x1=at, y0=0, y1=1,
        line={"color": theme.INK, "width": 1.2, "dash": "dot"},
    )  # fmt: skip


def _alt(table: pd.DataFrame, models: list[str]) -> str:
    words = f"Answers of {plural(len(models), 'model')} by depth: "
    parts = []
    for model in models[:4]:
        own = table[table["model"] == model]
        final = own[(own["depth"] == own["depth"].max()) & (own["rank"] == 1)].iloc[0]
        title, name = clean_text(own["title"].iloc[0], 40), clean_text(final["class"], 30)
        parts.append(f"{title} says {name} ({percent(final['probability'], 0)}) from depth {stays(own)}")
    return words + "; ".join(parts) + ("." if len(models) <= 4 else f"; and {len(models) - 4} more.")
