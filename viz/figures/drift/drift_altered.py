"""What merging whole weights loses, split by where it comes from, against the number of exemplars (LOT, Fig. 2)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, Trace, bar, scatter
from viz.parts import legends
from viz.text import percent, plural, safe_text, span

INNER, BOTTOM, LEFT = 300, 56, 74
PARTS = {  # column -> name, color, pattern
    "fused": ("Merging task vectors", theme.PALETTE[4], ""),
    "altered": ("Altering the pretrained weights", theme.PALETTE[5], "/"),
}
TOTAL = "Lost in all"


@chart(
    title="What altering the pretrained weights loses",
    question="How much is lost by merging whole weights in place of task vectors?",
    columns=("exemplars", "seed", "altered", "fused", "lost"),
    optional=("n",),
    rows=("exemplars", "seed"),
    empty="What merging whole weights loses has not been measured on this benchmark.",
)
def drift_altered(table: pd.DataFrame, *, present: bool = False) -> go.Figure:
    """Stacked bars of the accuracy that is lost against the own experts, and a mark at the sum, by exemplars.

    exemplars (per task), seed (of the draw), altered and fused (the parts, fractions: what altering the pretrained
    weights adds, and what merging task vectors loses already), lost (their sum), n (images). Bars are means over draws,
    the sum's bar runs from the best draw to the worst. A part below zero, a gain, hangs below the axis.
    """
    groups = table.groupby("exemplars", sort=True)
    counts = [int(str(count)) for count, _ in groups]
    x = np.arange(len(counts), dtype=np.float32)
    traces: list[Trace] = []
    for column, (name, color, pattern) in PARTS.items():
        traces.append(
            bar(
                x=x, y=groups[column].mean().to_numpy(np.float32), name=legends.entry(name), legendgroup=name,
                text=[_hover(name, int(str(n)), rows, column) for n, rows in groups],
                hovertemplate="%{text}<extra></extra>", textposition="none",
                marker={"color": color, "line": {"color": theme.INK, "width": 0.6}, "pattern": {"shape": pattern}},
            )
        )  # fmt: skip
    traces.append(_sum(x, table))
    fig = Drawing(traces)
    fig.update_xaxes(
        title={"text": "Exemplars per task"}, tickmode="array", tickvals=x, ticktext=[str(n) for n in counts],
        showgrid=False,
    )  # fmt: skip
    fig.update_yaxes(title={"text": "In-domain accuracy lost,<br>mean over tasks (points)"}, tickformat=".0%")
    legend, top = legends.above([*(name for name, _, _ in PARTS.values()), TOTAL])
    margin = {"l": LEFT, "r": 20, "t": top + 12, "b": BOTTOM}
    fig.update_layout(barmode="relative", bargap=0.35, legend=legend, margin=margin)
    return theme.finish(fig, "drift_altered", _alt(table), INNER + top + 12 + BOTTOM, present)


def _sum(x: np.ndarray, table: pd.DataFrame) -> Trace:
    groups = table.groupby("exemplars", sort=True)
    means = groups["lost"].mean().to_numpy(np.float64)
    low, high = groups["lost"].min().to_numpy(np.float64), groups["lost"].max().to_numpy(np.float64)
    return scatter(
        x=x, y=means.astype(np.float32), mode="markers", name=TOTAL, legendgroup=TOTAL,
        text=[_hover(TOTAL, int(str(n)), rows, "lost") for n, rows in groups],
        hovertemplate="%{text}<extra></extra>",
        marker={"symbol": "diamond", "color": theme.INK, "size": 9, "line": {"color": "white", "width": 1}},
        error_y={
            "type": "data", "symmetric": False, "array": (high - means).astype(np.float32),
            "arrayminus": (means - low).astype(np.float32), "color": theme.INK, "thickness": 1.4,
        },
    )  # fmt: skip


def _hover(name: str, exemplars: int, rows: pd.DataFrame, column: str) -> str:
    values = rows[column]
    words = f"<b>{safe_text(name)}, {plural(exemplars, 'exemplar')} a task</b><br>mean {percent(values.mean())}"
    words += f" over {plural(len(rows), 'draw')} ({percent(values.min())} to {percent(values.max())})"
    return words + (f"<br>{span(rows['n'])} images" if "n" in rows else "")


def _alt(table: pd.DataFrame) -> str:
    means = table.groupby("exemplars")[["altered", "fused", "lost"]].mean().sort_index()
    first, last = means.iloc[0], means.iloc[-1]
    return (
        f"Accuracy lost by merging whole weights: {percent(first['lost'])} with {means.index[0]} exemplars per task, "
        f"of which {percent(first['altered'])} by altering the pretrained weights; {percent(last['lost'])} with "
        f"{means.index[-1]}, of which {percent(last['altered'])}."
    )
