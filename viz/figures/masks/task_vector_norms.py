"""How far each expert moved from the pretrained model, section by section."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.drawing import Drawing, heatmap
from viz.parts import tensor_columns
from viz.parts.cells import click_targets
from viz.text import clean_text, percent, real, safe_text


@chart(
    title="Task vector norms",
    question="Where in the network did each expert move, and how far?",
    columns=("expert", "section", "norm", "relative"),
    rows=("expert", "section"),
    picks=("expert", "section"),
    empty="There is no expert to measure.",
)
def task_vector_norms(
    table: pd.DataFrame,
    *,
    value: str = "relative",
    selected: tuple[str | None, str | None] = (None, None),
    limits: tuple[float, float] | None = None,
    present: bool = False,
) -> go.Figure:
    """A heat map, experts by sections, of the norm of the task vector.

    expert, section (in model order), norm (Euclidean norm of the section's task vector, in units of the weights),
    relative (norm over the pretrained section's norm, a fraction). ``value`` is relative or norm; ``limits`` fixes the
    color range, so that two figures compare.
    """
    one_of("value", value, ("relative", "norm"))
    experts, sections = in_order(table["expert"]), in_order(table["section"])
    table = table.assign(expert=table["expert"].astype(str), section=table["section"].astype(str))
    cells = table.set_index(["expert", "section"]).reindex(pd.MultiIndex.from_product([experts, sections]))
    z = cells[value].to_numpy(np.float64).reshape(len(experts), len(sections))
    z = np.where(np.isfinite(z), z, np.nan)
    low, high = limits or (0.0, float(np.nanmax(np.nan_to_num(z))) or 1.0)
    form: dict[str, Any] = {"tickformat": ".1%"} if value == "relative" else {"exponentformat": "power"}
    form["title"] = {"text": "share of<br>pretrained" if value == "relative" else "norm", "side": "top"}
    heat = heatmap(
        z=z.astype(np.float32), zmin=low, zmax=high, colorscale=theme.SEQUENTIAL, xgap=1, ygap=1, name="Norm",
        hoverinfo="skip", colorbar={"thickness": 12, "outlinewidth": 0, **form},
    )  # fmt: skip
    hover = [
        f"<b>{safe_text(expert)}, {safe_text(section)}</b><br>norm {real(cells['norm'].loc[expert, section])}, "
        f"{percent(cells['relative'].loc[expert, section], 2)} of the pretrained norm"
        for expert in experts
        for section in sections
    ]
    rows, columns = len(experts), len(sections)
    short = [safe_text(tensor_columns.short(section), 14) for section in sections]
    labels = [safe_text(expert, 24) for expert in experts]
    fig = Drawing([heat, click_targets(experts, sections, hover, "Cells")])
    fig.update_xaxes(
        title={"text": "Section in model order; numbers are blocks"}, tickmode="array", tickvals=np.arange(columns),
        ticktext=short, range=[-0.5, columns - 0.5], showgrid=False, ticks="",
        tickangle=-40 if max(map(len, short)) > 3 else 0,
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": "Expert"}, tickmode="array", tickvals=np.arange(rows), ticktext=labels,
        range=[rows - 0.5, -0.5], showgrid=False,
    )  # fmt: skip
    shapes = _outline(experts, sections, *selected)
    left = max(map(theme.text_width, labels)) + 40
    fig.update_layout(shapes=shapes, margin={"l": left, "r": 92, "t": 38, "b": 92}, showlegend=False, barmode="overlay")
    return theme.finish(fig, "task_vector_norms", _alt(table), 158 + 26 * max(rows, 3), present, value)


def _outline(
    experts: list[str], sections: list[str], expert: str | None, section: str | None
) -> list[dict[str, object]]:
    if expert not in experts or section not in sections:
        return []
    row, column = experts.index(expert), sections.index(section)
    return [
        {
            "type": "rect", "x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5,
            "line": {"color": theme.ACCENT, "width": 3}, "name": "selected",
        }
    ]  # fmt: skip


def _alt(table: pd.DataFrame) -> str:
    finite = table[np.isfinite(table["relative"].to_numpy(np.float64))]
    if finite.empty:
        return "No relative norm could be computed."
    most = finite.loc[finite["relative"].idxmax()]
    return (
        f"The largest move is {clean_text(most['expert'])} in {clean_text(most['section'])}: "
        f"{percent(most['relative'], 2)} of the pretrained norm."
    )
