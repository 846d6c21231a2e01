"""Two tasks on one layer: the weight of each task vector in LOT's solution, by input direction (LOT, Eq. 16)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, bar
from viz.parts import legends
from viz.text import percent, plural, real, safe_text

HEIGHT, BOTTOM, LEFT = 250, 56, 62
SHAPES = ("", "/")  # in addition to color, so that a gray print can be read
COLORS = (theme.PALETTE[0], theme.PALETTE[1])


@chart(
    title="Weights by direction",
    question="Which task vector does LOT follow in each direction?",
    columns=("direction", "task", "weight", "energy"),
    rows=("direction", "task"),
    empty="There is no direction to show.",
)
def drift_case_weights(table: pd.DataFrame, *, present: bool = False) -> go.Figure:
    """A stacked bar for each direction; its parts are the weights of the tasks' vectors.

    direction (number from 1), task, weight (in [0, 1]), energy (of the task's inputs along the direction).
    """
    tasks = in_order(table["task"])
    traces: list[Trace] = []
    for index, task in enumerate(tasks):
        rows = table[table["task"].astype(str) == task].sort_values("direction")
        traces.append(
            bar(
                x=rows["direction"].to_numpy(np.float32), y=rows["weight"].to_numpy(np.float32),
                name=legends.entry(task), text=[_hover(row) for row in rows.to_dict("records")], textposition="none",
                hovertemplate="%{text}<extra></extra>",
                marker={
                    "color": COLORS[index % 2], "line": theme.edge(0.8),
                    "pattern": {"shape": SHAPES[index % 2], "fgcolor": "white", "fillmode": "overlay", "size": 6,
                                "solidity": 0.2},
                },
            )
        )  # fmt: skip
    legend, top = legends.above(tasks)
    directions = sorted({int(d) for d in table["direction"]})
    fig = Drawing(traces)
    fig.update_xaxes(
        title={"text": "Direction of the layer's inputs"}, tickmode="array", tickvals=directions, showgrid=False,
        ticktext=[str(d) for d in directions], range=[directions[0] - 0.6, directions[-1] + 0.6],
    )  # fmt: skip
    fig.update_yaxes(title={"text": "Weight in LOT's solution"}, tickformat=".0%", range=[0, 1.02])
    fig.update_layout(
        barmode="stack",
        bargap=0.3,
        legend=legend | {"traceorder": "normal"},
        margin={"l": LEFT, "r": 20, "t": top + 30, "b": BOTTOM},
    )
    return theme.finish(fig, "drift_case_weights", _alt(table, tasks), HEIGHT + top, present)


def _hover(row: dict[Any, Any]) -> str:
    return (
        f"<b>direction {row['direction']}</b><br>{safe_text(row['task'])}: weight {percent(row['weight'])}"
        f"<br>energy of its inputs there {real(row['energy'])}"
    )


def _alt(table: pd.DataFrame, tasks: list[str]) -> str:
    mixed = table[(table["weight"] > 0) & (table["weight"] < 1)]["direction"].nunique()
    return (
        f"{plural(table['direction'].nunique(), 'direction')}, {plural(len(tasks), 'task')}: {mixed} of the directions "
        "average the task vectors, the others follow one of them."
    )
