"""How far every image's features moved from the pretrained model's: a histogram for each run (LwPTV, Fig. 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, bar, scatter
from viz.text import clean_text, count, percent, plural, real, safe_text

# px: height of a lane, of its caption with the gap above, of that gap; margins below and above the plot
LANE, CAPTION, GAP, BOTTOM, TOP = 130, 38, 14, 54, 0


@chart(
    title="Distance to the pretrained features",
    question="How far does each merge move the features of out-of-domain images from the pretrained ones?",
    columns=("run", "label", "low", "high", "count", "share", "mean", "n"),
    rows=("run", "low"),
    empty="Nothing to compare: choose a run beside the pretrained model.",
)
def feature_distance(
    table: pd.DataFrame, *, normalized: bool = False, runs: list[str] | None = None, present: bool = False
) -> go.Figure:
    """A histogram for each run over one axis, with a line at its mean.

    run (id), label, low and high (edges of a bin), count and share (of the images), mean (distance), n (images). Bins
    are the same for all runs. ``runs`` is the full ordered list that fixes the colors.
    """
    table = table[np.isfinite(table[["low", "high", "share"]].to_numpy(np.float64)).all(axis=1)]
    names = in_order(table["run"])
    looks, tallest = theme.looks(runs or names), max(float(table["share"].max()), 0.01)
    step = tallest * LANE / (LANE - CAPTION)
    fig, captions = Drawing(), []
    for place, name in enumerate(names):
        rows = table[table["run"].astype(str) == name]
        base = (len(names) - 1 - place) * step
        look = looks.get(name, theme.KINDS["merge"])
        fig.add_trace(_bars(rows, look, base))
        fig.add_trace(_mean(rows, base, tallest))
        captions.append(_caption(rows, base + step))
    what = "of features scaled to unit length" if normalized else "of raw features"
    high = float(table["high"].max())
    fig.update_xaxes(
        title={"text": f"Distance to the pretrained features ‖f(x) − f₀(x)‖, {what}"}, range=[0, high], showgrid=False
    )
    half = tallest / 2
    fig.update_yaxes(
        title={"text": "Share of images"}, tickmode="array", range=[0, len(names) * step], fixedrange=True,
        tickvals=[place * step + at for place in range(len(names)) for at in (0, half)],
        ticktext=[percent(at, 0) for _ in names for at in (0, half)],
    )  # fmt: skip
    margin = {"l": 66, "r": 20, "t": TOP, "b": BOTTOM}
    fig.update_layout(barmode="overlay", showlegend=False, margin=margin, annotations=captions)
    height = LANE * len(names) + TOP + BOTTOM
    return theme.finish(fig, "feature_distance", _alt(table, names), height, present, str(normalized))


def _bars(rows: pd.DataFrame, look: theme.Look, base: float) -> Trace:
    hover = [
        f"<b>{safe_text(row['label'])}</b><br>{real(row['low'])} to {real(row['high'])}: {count(row['count'])} of "
        f"{count(row['n'])} images ({percent(row['share'])})"
        for row in rows.to_dict("records")
    ]
    return bar(
        x=((rows["low"] + rows["high"]) / 2).to_numpy(np.float32), y=rows["share"].to_numpy(np.float32),
        base=np.full(len(rows), base, np.float32), width=(rows["high"] - rows["low"]).to_numpy(np.float32),
        name=safe_text(rows["label"].iloc[0], 40), marker={"color": look.color, "line": theme.edge(0.5)}, text=hover,
        textposition="none", hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _mean(rows: pd.DataFrame, base: float, tallest: float) -> Trace:
    first = rows.iloc[0]
    hover = f"<b>{safe_text(first['label'])}</b><br>mean {real(first['mean'])}, {count(first['n'])} images"
    return scatter(
        x=np.array([first["mean"]] * 2, np.float32), y=np.array([base, base + tallest], np.float32), mode="lines",
        line={"color": theme.INK, "width": 2, "dash": "dash"}, name="Mean", text=[hover] * 2,
        hovertemplate="%{text}<extra></extra>", meta={"upright": True},
    )  # fmt: skip


def _caption(rows: pd.DataFrame, top: float) -> dict[str, Any]:
    first: Mapping[Any, Any] = rows.iloc[0].to_dict()
    return {
        "text": f"<b>{safe_text(first['label'], 40)}</b>: mean {real(first['mean'])}, n = {count(first['n'])} images",
        "x": 0, "xref": "x domain", "xanchor": "left", "y": top, "yref": "y", "yanchor": "top", "yshift": -GAP,
        "name": "lane", "font": {"size": theme.SMALL, "color": theme.INK}, "showarrow": False,
    }  # fmt: skip


def _alt(table: pd.DataFrame, names: list[str]) -> str:
    first = table.assign(run=table["run"].astype(str)).drop_duplicates("run")
    means = list(zip(first["label"], first["mean"].to_numpy(np.float64), strict=True))
    means_text = [f"{clean_text(label, 40)} {real(float(mean))}" for label, mean in means[:5]]
    what = f"Histograms of the distance to the pretrained features for {plural(len(names), 'run')}."
    return f"{what} Means: {'; '.join(means_text)}."
