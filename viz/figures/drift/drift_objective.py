"""The drift that LOT minimizes, layer by layer: before the merge, after it, and for LOT's solution (LOT, Eq. 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, Trace, scatter
from viz.parts import depth, legends
from viz.text import clean_text, identifier, layer_name, percent, plural, real, short_name

HEIGHT, BOTTOM, LEFT = 330, 56, 84
MEAN, LEAST = "Mean of the experts", "LOT's own solution"
Floats = npt.NDArray[np.float64]


@chart(
    title="LOT's objective",
    question="How much of the drift between pretrained and experts does the merge remove, layer by layer?",
    columns=("tensor", "order", "section", "role", "part", "merged", "pretrained", "mean", "least"),
    rows=("tensor",),
    picks=("tensor",),
    empty="The objective has not been computed.",
)
def drift_objective(
    table: pd.DataFrame,
    *,
    label: str = "This merge",
    selected: str | None = None,
    run: str = "",
    runs: list[str] | None = None,
    present: bool = False,
) -> go.Figure:
    """For every tensor the sum of squared drifts over all tasks, as a multiple of the pretrained layer's sum.

    tensor, order (model order), section, role, part, merged, pretrained, mean and least: Σ_k ‖X_k (T - T_k)‖² for the
    merged tensor, the pretrained one, the mean of the experts and LOT's own solution. ``label`` is the run's name;
    ``selected`` is the marked tensor; ``run`` is the run's id and ``runs`` the full ordered list that
    fixes the colors.
    """
    columns = depth.Columns.of(table)
    rows = columns.tensors
    before = rows["pretrained"].to_numpy(np.float64)
    moved = before > 0
    if not moved.any():
        return theme.notice("drift_objective", "Nothing to draw: no expert moved any of these tensors.", present)
    x = np.flatnonzero(moved).astype(np.float32)
    rows, scale = rows[moved], before[moved]
    ratio = {name: rows[name].to_numpy(np.float64) / scale for name in ("merged", "mean", "least")}
    hover = [_hover(row) for row in rows.to_dict("records")]
    stroke = {"symbol": "line-ew", "size": 9, "line": theme.edge(2)}
    open_circle = {"symbol": "circle-open", "size": 7, "line": {"width": 1.6}, "color": theme.FADED}
    look = theme.looks(runs or [run]).get(run, theme.KINDS["merge"])
    filled = {"symbol": look.symbol, "size": 8, "color": look.color, "line": theme.edge(0.8), "opacity": 1}
    clicks = {"customdata": [[identifier(n)] for n in rows["tensor"]], "unselected": {"marker": {"opacity": 1}}}
    fig = Drawing([
        _stems(x, ratio["least"], ratio["merged"]),
        _marks(x, ratio["least"], LEAST, stroke, hover),
        _marks(x, ratio["mean"], MEAN, open_circle, hover),
        _marks(x, ratio["merged"], legends.entry(label), filled, hover) | clicks,
    ])  # fmt: skip
    _lay_out(fig, columns, selected, float(max(values.max() for values in ratio.values())))
    legend, top = legends.above([LEAST, MEAN, label])
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 26, "t": top + 30, "b": BOTTOM})
    alt = _alt(rows, ratio["merged"], label)
    return theme.finish(fig, "drift_objective", alt, HEIGHT + top, present, str(len(columns.names)))


def _marks(x: npt.NDArray[np.float32], y: Floats, name: str, marker: dict[str, Any], hover: list[str]) -> Trace:
    return scatter(
        x=x, y=y.astype(np.float32), mode="markers", name=name, marker=marker, text=hover,
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _stems(x: npt.NDArray[np.float32], least: Floats, merged: Floats) -> Trace:
    """Thin lines from LOT's solution to the merge: the drift that a better merge of the layer could still remove."""
    gap = np.full(len(x), np.nan)
    return scatter(
        x=np.repeat(x, 3), y=np.stack([least, merged, gap], 1).ravel().astype(np.float32), mode="lines",
        line={"color": theme.FADED, "width": 1.2}, hoverinfo="skip", showlegend=False, name="Distance",
    )  # fmt: skip


def _lay_out(fig: Drawing, columns: depth.Columns, selected: str | None, high: float) -> None:
    fig.update_xaxes(**columns.axis())
    fig.update_yaxes(
        title={"text": "Squared drift, all tasks<br>(multiple of the pretrained layer's)"},
        range=[0, max(1.1, 1.06 * high)],
    )
    shapes = columns.separators(theme.GRID, 1)
    if (place := columns.place(selected)) is not None:
        shapes.append({
            "type": "rect", "xref": "x", "yref": "y domain", "x0": place - 0.5, "x1": place + 0.5, "y0": 0, "y1": 1,
            "line": {"color": theme.ACCENT, "width": 2}, "name": "selected",
        })  # fmt: skip
    shapes.append(theme.across(1, {"color": theme.INK, "width": 1.4, "dash": "dash"}))
    fig.update_layout(shapes=shapes, annotations=columns.end_labels())
    fig.add_annotation(
        text="pretrained", x=1, xref="paper", xanchor="right", y=1, yref="y", yanchor="bottom", showarrow=False,
        font={"size": theme.SMALL, "color": theme.INK},
    )  # fmt: skip


def _hover(row: dict[Any, Any]) -> str:
    before = row["pretrained"]
    lines = [
        f"<b>{short_name(row['tensor'])}</b>",
        layer_name(row),
        f"merge {percent(row['merged'] / before)} of pretrained's {real(before)}",
        f"mean of the experts {percent(row['mean'] / before)}, LOT's own solution {percent(row['least'] / before)}",
    ]
    return "<br>".join(lines)


def _alt(rows: pd.DataFrame, merged: Floats, label: str) -> str:
    worse = int((merged > 1).sum())
    least = rows["least"].to_numpy(np.float64).sum() / rows["pretrained"].to_numpy(np.float64).sum()
    return (
        f"Squared drift of {plural(len(rows), 'tensor')} after {clean_text(label, 60)}: median "
        f"{percent(float(np.median(merged)))} of the pretrained layer's; {plural(worse, 'tensor')} drift more. "
        f"LOT's own solution leaves {percent(least)} over all."
    )
