"""Accuracy on corrupted images by severity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import Names, chart, distinct_names
from viz.drawing import Picture
from viz.figure_text import clean_text, plural, safe_text
from viz.hover import describe_extreme
from viz.parts import series, sweep_panels
from viz.parts.sweep_panels import PanelGrid, SweepDrawing, SweepPanel

HOVER = (
    "<b>{label}</b><br>{corruption}, severity {severity:count}<br>accuracy {accuracy:percent}"
    "[ ({low:percent} to {high:percent})][<br>{n:count} images]"
)
MERGE = "merge"  # the kind of models that are compared; all others are there for comparison
NOTE = "Severity 0: intact images. 95% intervals over images."


@chart(
    title="Accuracy on corrupted images",
    question="Which merges keep their accuracy when images are corrupted?",
    columns=("run", "label", "kind", "corruption", "severity", "accuracy"),
    optional=("low", "high", "n"),
    rows=("run", "corruption", "severity"),
    empty="No run has been measured on corrupted images.",
)
def corrupted_accuracy(table: pd.DataFrame, *, runs: Names = None) -> Picture:
    """A panel for each kind of corruption: a line for each model over the severity, dashed for reference models.

    Columns: run (id, or the reference), kind ("merge", "pretrained" or "individual"), corruption, severity (0 to 5),
    accuracy (a share) with its 95 % interval low to high, n (the number of images). ``runs`` fixes the colors.
    """
    rows = series.require_finite_rows(table, "accuracy", empty_reason="no model has an accuracy")
    rows = rows.assign(x=rows["severity"].astype(float), point="")
    ends = rows[[name for name in ("accuracy", "low", "high") if name in rows]].to_numpy(np.float64)
    span = [float(np.nanmin(ends)) - 0.02, float(np.nanmax(ends)) + 0.02]
    axis = {"title": {"text": "Accuracy (%)"}, "tickformat": ".0%", "range": span, "nticks": 5}
    panels = [
        SweepPanel(kind, of_kind, "accuracy", HOVER, axis, caption=f"<b>{safe_text(kind, 24)}</b>")
        for kind, of_kind, _ in series.rows_by_name(rows, "corruption")
    ]
    names = runs or distinct_names(rows.loc[rows["kind"] == MERGE, "run"])
    picture = sweep_panels.draw(
        rows, panels, PanelGrid(columns=3, height=150, gap=36, left=66),
        SweepDrawing("Severity", None, list(names), NOTE), _describe(rows), _draw_style, "run",
    )  # fmt: skip
    picture.drawing.update_xaxes(dtick=1)
    return picture


def _draw_style(rows: pd.DataFrame, color: str) -> dict[str, Any]:
    """Lines with intervals, dashed and in the color of their kind for reference models."""
    style, fields = theme.KINDS[str(rows["kind"].iloc[0])], {"picks": (), "size": 6}
    if rows["kind"].iloc[0] == MERGE:
        return fields | {"line": {"width": 1.8}, "error_y": series.interval(rows, "accuracy", color, thickness=1)}
    return fields | {
        "line": {"width": 1.8, "dash": "dash", "color": style.color},
        "marker": {"symbol": style.symbol, "color": style.color},
        "error_y": series.interval(rows, "accuracy", style.color, thickness=1),
    }


def _describe(rows: pd.DataFrame) -> str:
    """How many models and kinds, and which model is best and worst at the highest severity of the first panel."""
    first = rows[rows["corruption"] == rows["corruption"].iloc[0]]
    worst = first[first["severity"] == first["severity"].max()]
    words = (
        f"{plural(rows['run'].nunique(), 'model')} on {plural(rows['corruption'].nunique(), 'panel')} of corrupted "
        f"images. {clean_text(first['corruption'].iloc[0], 24)}, severity {int(worst['severity'].iloc[0])}: highest"
    )
    words += describe_extreme(worst, "accuracy", " {accuracy:percent}, {label:plain 40}")
    return (
        words
        + describe_extreme(worst, "accuracy", "; lowest {accuracy:percent}, {label:plain 40}", smallest=True)
        + "."
    )
