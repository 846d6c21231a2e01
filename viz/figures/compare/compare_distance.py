"""How far two runs moved the features of the same images: histograms over the same bins, and of the difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, Trace, bar, scatter
from viz.text import clean_text, count, percent, real, safe_text

PANELS = ("a", "b", "difference")
TITLES = {"a": "A", "b": "B", "difference": "B − A, image by image"}
COLORS = {"a": "#E08214", "b": "#8073AC", "difference": "#8A94A3"}
AXES = {"a": ("x", "y"), "b": ("x2", "y2"), "difference": ("x3", "y3")}
PANEL, GAP, TOP, BOTTOM = 112, 72, 36, 50  # px


@chart(
    title="Two distances to the pretrained features",
    question="Which run stays closer to the pretrained features?",
    columns=("panel", "low", "high", "count", "share", "mean", "n"),
    rows=("panel", "low"),
    empty="There is no image whose features both runs have.",
)
def compare_distance(
    table: pd.DataFrame, *, labels: tuple[str, str] = ("A", "B"), what: str = "Distance", present: bool = False
) -> go.Figure:
    """Histograms one below the other: of A, of B, and of the difference for the same image.

    panel ("a", "b" or "difference"), low and high (ends of the bin), count and share (of images), mean (of the panel),
    n (images). A and B have the same bins, range and height. ``labels`` are the names of the runs, ``what`` is the name
    of the distance.
    """
    table = table[np.isfinite(table[["low", "high", "share"]].to_numpy(np.float64)).all(axis=1)]
    panels = [panel for panel in PANELS if (table["panel"].astype(str) == panel).any()]
    inner = len(panels) * PANEL + (len(panels) - 1) * GAP
    both = table[table["panel"].astype(str) != "difference"]
    tallest = 1.15 * float(both["share"].max()) if len(both) else 1.0
    fig, captions = Drawing(), []
    for place, panel in enumerate(panels):
        rows = table[table["panel"].astype(str) == panel]
        upper = (inner - place * (PANEL + GAP)) / inner
        bottom = max(0.0, upper - PANEL / inner)
        name = {"a": labels[0], "b": labels[1]}.get(panel, "")
        fig.add_trace(_bars(rows, panel))
        fig.add_trace(_mean(rows, panel, tallest if panel != "difference" else 1.15 * float(rows["share"].max())))
        captions.append(_caption(rows, panel, name, upper))
        x, y = (axis.replace(axis[0], f"{axis[0]}axis", 1) for axis in AXES[panel])
        far = max(abs(float(rows["low"].min())), abs(float(rows["high"].max())))
        span = [-far, far] if panel == "difference" else [0, float(both["high"].max())]
        height = tallest if panel != "difference" else 1.15 * float(rows["share"].max())
        fig.update_layout({
            x: {"anchor": AXES[panel][1], "range": span, "showgrid": False, "title": {
                "text": safe_text(f"{what}, {TITLES[panel]}", 90), "standoff": 4}},
            y: {"anchor": AXES[panel][0], "domain": [bottom, upper], "range": [0, height], "tickformat": ".0%",
                "nticks": 4, "fixedrange": True, "title": {"text": "Images"}},
        })  # fmt: skip
    if "difference" in panels:
        fig.add_shape(type="line", xref="x3", yref="y3 domain", x0=0, x1=0, y0=0, y1=1, line=theme.edge(1))
    margin = {"l": 70, "r": 20, "t": TOP, "b": BOTTOM}
    fig.update_layout(barmode="overlay", showlegend=False, margin=margin, annotations=captions)
    return theme.finish(fig, "compare_distance", _alt(table, labels), inner + TOP + BOTTOM, present, what)


def _bars(rows: pd.DataFrame, panel: str) -> Trace:
    hover = [
        f"<b>{TITLES[panel]}</b><br>{real(row['low'])} to {real(row['high'])}: {count(row['count'])} of "
        f"{count(row['n'])} images ({percent(row['share'])})"
        for row in rows.to_dict("records")
    ]
    x, y = AXES[panel]
    return bar(
        x=((rows["low"] + rows["high"]) / 2).to_numpy(np.float32), y=rows["share"].to_numpy(np.float32),
        width=(rows["high"] - rows["low"]).to_numpy(np.float32), name=TITLES[panel], xaxis=x, yaxis=y, text=hover,
        marker={"color": COLORS[panel], "line": theme.edge(0.5)}, textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _mean(rows: pd.DataFrame, panel: str, height: float) -> Trace:
    mean, (x, y) = float(rows["mean"].iloc[0]), AXES[panel]
    return scatter(
        x=np.array([mean, mean], np.float32), y=np.array([0, height], np.float32), mode="lines", xaxis=x, yaxis=y,
        line={"color": theme.INK, "width": 2, "dash": "dash"}, name=f"Mean of {TITLES[panel]}",
        text=[f"mean {real(mean)}"] * 2, hovertemplate="%{text}<extra></extra>", meta={"upright": True},
    )  # fmt: skip


def _caption(rows: pd.DataFrame, panel: str, name: str, top: float) -> dict[str, Any]:
    first = rows.iloc[0]
    title = f"<b>{TITLES[panel]}{f': {safe_text(name, 50)}' if name else ''}</b>"
    return theme.caption(f"{title}, mean {real(first['mean'])}, n = {count(first['n'])} images", top)


def _alt(table: pd.DataFrame, labels: tuple[str, str]) -> str:
    means = table.drop_duplicates("panel").set_index("panel")["mean"]
    names = {"a": f"A, {clean_text(labels[0], 40)}", "b": f"B, {clean_text(labels[1], 40)}", "difference": "B − A"}
    mean_texts = [f"{names[str(panel)]} {real(float(mean))}" for panel, mean in means.items() if str(panel) in names]
    return f"Histograms of the distance to the pretrained features. Means: {'; '.join(mean_texts)}."
