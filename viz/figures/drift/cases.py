"""Two tasks on one layer: how LOT weighs their task vectors, and the drift that each way to merge them leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Picture, scatter
from viz.parts import axes, legends, series
from viz.text import clean_text, percent, plural

WEIGHT_HOVER = (
    "<b>direction {direction}</b><br>{task}: weight {weight:percent}<br>energy of its inputs there {energy:real}"
)
DRIFT_HOVER = "<b>{merge}</b><br>{task}: {drift:percent} of the pretrained layer's drift"


def _stacked(table: pd.DataFrame, x: str, y: str, hover: str, **fields: Any) -> Drawing:
    """Stacked bars, a color and a pattern for each task, so that a gray print can be read."""
    traces = [
        series.bars(
            rows, x, y, theme.PALETTE[index % 2], hover, name=entry["name"],
            marker={
                "line": theme.edge(0.8),
                "pattern": {
                    "shape": ("", "/")[index % 2], "fgcolor": "white", "fillmode": "overlay", "size": 6,
                    "solidity": 0.2,
                },
            }, **fields,
        )
        for index, (_, rows, entry) in enumerate(series.each(table, "task", label="task"))
    ]  # fmt: skip
    fig = Drawing(traces)
    fig.update_layout(barmode="stack", bargap=0.3, legend={"traceorder": "normal"})
    return fig


@chart(
    title="Weights by direction",
    question="Which task vector does LOT follow in each direction?",
    columns=("direction", "task", "weight", "energy"),
    rows=("direction", "task"),
    empty="There is no direction to show.",
)
def drift_case_weights(table: pd.DataFrame) -> Picture:
    """A stacked bar for each direction; its parts are the weights of the tasks' vectors: LOT, Eq. 16.

    direction (number from 1), weight (in [0, 1]), energy (of the task's inputs along the direction).
    """
    fig = _stacked(table.sort_values("direction", kind="stable"), "direction", "weight", WEIGHT_HOVER)
    directions = sorted({int(direction) for direction in table["direction"]})
    fig.update_xaxes(
        title={"text": "Direction of the layer's inputs"}, tickmode="array", tickvals=directions, showgrid=False,
        ticktext=[str(direction) for direction in directions], range=[directions[0] - 0.6, directions[-1] + 0.6],
    )  # fmt: skip
    fig.update_yaxes(title={"text": "Weight in LOT's solution"}, tickformat=".0%", range=[0, 1.02])
    mixed = table[(table["weight"] > 0) & (table["weight"] < 1)]["direction"].nunique()
    alt = (
        f"{plural(len(directions), 'direction')}, {plural(table['task'].nunique(), 'task')}: {mixed} of the directions "
        "average the task vectors, the others follow one of them."
    )
    return legends.with_legend(fig, alt, 250, left=62, right=20, gap=30)


@chart(
    title="Remaining drift",
    question="How much drift does each way to merge leave?",
    columns=("merge", "task", "drift"),
    rows=("merge", "task"),
    empty="There is no merge to show.",
)
def drift_case_objective(table: pd.DataFrame) -> Picture:
    """A stacked bar for each merge; its length is the squared drift that remains on the tasks: LOT, Eq. 17.

    drift (‖X_k (T - T_k)‖² over its sum for the pretrained layer, a fraction).
    """
    merges = in_order(table["merge"])
    placed = table.assign(place=table["merge"].map(merges.index))
    fig = _stacked(placed, "drift", "place", DRIFT_HOVER, orientation="h")
    totals = table.groupby("merge", sort=False)["drift"].sum()
    shares = [percent(total, 0) for total in totals]
    fig.add_trace(
        scatter(
            x=totals.to_numpy(np.float32), y=np.arange(len(merges), dtype=np.float32), mode="text", name="Sum",
            text=[f"\xa0{share}" for share in shares], textposition="middle right", cliponaxis=False,
            hoverinfo="skip", showlegend=False, textfont={"size": theme.SMALL},
        )
    )  # fmt: skip
    title = {"text": "Squared drift, both tasks (% of the pretrained layer's)"}
    fig.update_xaxes(title=title, tickformat=".0%", range=[0, max(1.0, float(totals.max())) * 1.12])
    fig.update_yaxes(**axes.of_names("Merge", merges, down=True))
    words = ", ".join(f"{clean_text(merge, 24)} {share}" for merge, share in zip(merges, shares, strict=True))
    alt = f"Squared drift as a share of the pretrained layer's: {words}."
    return legends.with_legend(fig, alt, 40 * len(merges) + 86, left=axes.room(merges) + 40, right=40, gap=30)
