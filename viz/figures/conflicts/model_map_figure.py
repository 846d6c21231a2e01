"""Experts and merges on a map of their distances in the space of weights."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from viz import theme
from viz.chart import Names, chart, distinct_names
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, percent, plural, short_name
from viz.hover import describe_extreme
from viz.parts import axes, legends, series

HOVER = (
    "<b>{label}</b> at ({x:real}, {y:real})<br>length of its change {length:real}<br>nearest: {nearest:text 40}, at "
    "{distance:real}"
)
MERGE_STYLE = theme.MarkStyle(theme.REFERENCE, "circle")
NEAREST_TEXT = " Most alike: {label:plain 40} and {nearest:plain 40}, at a distance of {distance:real}."


@chart(
    title="Map of models",
    question="Which merges are alike, and how far do they go toward each expert?",
    columns=("run", "label", "kind", "x", "y", "length", "nearest", "distance"),
    rows=("run",),
    picks=("run",),
    empty="No model of these experts has been placed.",
)
def model_map(
    table: pd.DataFrame,
    *,
    shares: tuple[float, float] = (0.0, 0.0),
    experts: Names = None,
    selected: str | None = None,
    pinned: Sequence[str] = (),
    note: str = "",
) -> Picture:
    """A mark for each model, at equal scales, so that distances on the map can be compared in every direction.

    Columns: run (a run's id, an expert's name or "pretrained"), kind (merge, expert or pretrained), x and y, length (of
    the change from the pretrained weights), nearest (the label of the nearest other model) and distance (to it), all in
    units of the weights. ``shares`` are the shares of the variance along both axes; ``experts`` are as in run.
    """
    table = series.require_finite_rows(table, "x", "y", empty_reason="no model has a position")
    merges, others = table[table["kind"] == "merge"], table[table["kind"] != "merge"]
    styles, fig = theme.mark_styles(experts or distinct_names(others["run"])), Drawing()
    if len(merges):
        fig.add_trace(series.marks(
            merges, "x", "y", MERGE_STYLE, HOVER, picks=("run",), size=8, name="Merges", legendgroup="Merges",
            marker={"opacity": 0.75},
        ))  # fmt: skip
    for _, rows, entry in series.rows_by_name(others, "run"):
        is_expert = rows["kind"].iloc[0] == "expert"
        style = styles[str(rows["run"].iloc[0])]._replace(symbol="square") if is_expert else theme.KINDS["pretrained"]
        fig.add_trace(series.marks(rows, "x", "y", style, HOVER, picks=("run",), size=12, **entry))
    fig.add_traces(series.pinned_marks(table, "x", "y", pinned, showlegend=False))
    own = table[table["run"] == selected]
    if len(own):
        fig.add_trace(series.ring(own["x"], own["y"], "Chosen run"))
        texts = [short_name(label, 40) for label in own["label"]]
        fig.add_trace(series.text_trace(own["x"], own["y"], texts, "Names", textposition="top center"))
    for number, (update, share) in enumerate(zip((fig.update_xaxes, fig.update_yaxes), shares, strict=True), 1):
        update(title={"text": f"Axis {number}: {percent(share)} of the variance"})
    notes, note_height = axes.make_note(note, 52)
    fig.update_layout(annotations=notes, yaxis={"scaleanchor": "x"})
    return legends.add_legend(
        fig, _describe(table, shares), 520 + note_height, zoom_key=str(len(table)), below=54 + note_height
    )


def _describe(table: pd.DataFrame, shares: tuple[float, float]) -> str:
    merges = table[table["kind"] == "merge"]
    words = f"{plural(len(table), 'model')}, of them {plural(len(merges), 'merge')}; two axes show "
    words += f"{percent(sum(shares))} of the variance of the weights."
    if len(merges):
        words += describe_extreme(merges, "distance", NEAREST_TEXT, smallest=True)
        words += describe_extreme(merges, "length", " The longest change: {label:plain 40}, {length:real}.")
    return clean_text(words, 600)
