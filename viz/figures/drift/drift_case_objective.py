"""Two tasks on one layer: the drift that each way to merge them leaves (LOT, Eq. 17)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, bar, scatter
from viz.figures.drift.drift_case_weights import COLORS, SHAPES
from viz.parts import legends
from viz.text import clean_text, percent, safe_text

LANE, BOTTOM = 40, 56


@chart(
    title="Remaining drift",
    question="How much drift does each way to merge leave?",
    columns=("merge", "task", "drift"),
    rows=("merge", "task"),
    empty="There is no merge to show.",
)
def drift_case_objective(table: pd.DataFrame, *, present: bool = False) -> go.Figure:
    """A stacked bar for each merge; its length is the squared drift that remains on the tasks.

    merge, task, drift (‖X_k (T - T_k)‖² over its sum for the pretrained layer, a fraction).
    """
    tasks, merges = in_order(table["task"]), in_order(table["merge"])
    traces: list[Trace] = []
    places = {merge: row for row, merge in enumerate(merges)}
    for index, task in enumerate(tasks):
        rows = table[table["task"].astype(str) == task]
        traces.append(
            bar(
                x=rows["drift"].to_numpy(np.float32),
                y=np.array([places[str(merge)] for merge in rows["merge"]], np.float32), orientation="h",
                name=legends.entry(task), textposition="none", hovertemplate="%{text}<extra></extra>",
                text=[
                    f"<b>{safe_text(merge)}</b><br>{safe_text(task)}: {percent(drift)} of the pretrained layer's drift"
                    for merge, drift in zip(rows["merge"], rows["drift"], strict=True)
                ],
                marker={
                    "color": COLORS[index % 2], "line": theme.edge(0.8),
                    "pattern": {"shape": SHAPES[index % 2], "fgcolor": "white", "fillmode": "overlay", "size": 6,
                                "solidity": 0.2},
                },
            )
        )  # fmt: skip
    totals = table.assign(merge=table["merge"].astype(str)).groupby("merge", sort=False)["drift"].sum()[merges]
    traces.append(
        scatter(
            x=totals.to_numpy(np.float32), y=np.arange(len(merges), dtype=np.float32), mode="text", name="Sum",
            text=[f"\xa0{percent(total, 0)}" for total in totals], textposition="middle right", cliponaxis=False,
            hoverinfo="skip", showlegend=False, textfont={"size": theme.SMALL},
        )
    )  # fmt: skip
    legend, top = legends.above(tasks)
    labels = [safe_text(merge, 24) for merge in merges]
    fig = Drawing(traces)
    fig.update_xaxes(
        title={"text": "Squared drift, both tasks (% of the pretrained layer's)"}, tickformat=".0%",
        range=[0, max(1.0, float(totals.max())) * 1.12],
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": "Merge"}, tickmode="array", tickvals=list(range(len(merges))), ticktext=labels,
        range=[len(merges) - 0.5, -0.5], showgrid=False, fixedrange=True,
    )  # fmt: skip
    left = max(map(theme.text_width, labels)) + 40
    fig.update_layout(
        barmode="stack",
        bargap=0.3,
        legend=legend | {"traceorder": "normal"},
        margin={"l": left, "r": 40, "t": top + 30, "b": BOTTOM},
    )
    alt = "Squared drift as a share of the pretrained layer's: "
    alt += ", ".join(f"{clean_text(merge, 24)} {percent(total, 0)}" for merge, total in totals.items())
    return theme.finish(fig, "drift_case_objective", f"{alt}.", LANE * len(merges) + top + 30 + BOTTOM, present)
