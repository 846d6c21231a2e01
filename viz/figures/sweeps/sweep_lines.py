"""Accuracy in and out of domain, and H-score, against the value that a sweep varies (LwPTV, Fig. 5)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing
from viz.parts import axes, legends, sweep
from viz.text import clean_text, count, identifier, percent, plural, real, safe_text

PANEL, GAP, BOTTOM, LEFT = 150, 26, 52, 66
INTERVALS = {"in_domain": ("in_low", "in_high"), "out_of_domain": ("out_low", "out_high")}
IMAGES = {"in_domain": "n_in", "out_of_domain": "n_out"}


@chart(
    title="Scores along a sweep",
    question="Which value should I use, and what does it cost out of domain?",
    columns=("line", "label", "x", "point", "in_domain", "out_of_domain", "h_score"),
    optional=("in_low", "in_high", "out_low", "out_high", "n_in", "n_out", *sweep.REQUIRED),
    rows=("line", "x"),
    picks=("point",),
    empty="No point of this sweep has been computed yet.",
)
def sweep_lines(
    table: pd.DataFrame,
    *,
    title: str = "Value",
    values: list[float] | None = None,
    lines: list[str] | None = None,
    selected: str | None = None,
    required: tuple[str, float] | None = None,
    note: str = "",
    present: bool = False,
) -> go.Figure:
    """A panel for each score, with a line for every recipe in the band of its 95 % interval.

    line (id of a recipe), label, x (the value), point (id), in_domain, out_of_domain, h_score, in_low, in_high,
    out_low, out_high (fractions), n_in, n_out (images). ``values`` are all values of the sweep, also those that are not
    computed yet; ``lines`` is the full ordered list that fixes the colors; ``selected`` is the chosen point; ``note``
    stands below. ``required`` is a score and what it has to be at least: smaller values of it are shaded, and points
    that do not meet it (meets, certainty: the share of draws of the images in which they do) are white marks.
    """
    table = table.assign(line=table["line"].astype(str)).sort_values("x", kind="stable")
    names = in_order(table.sort_values("line", kind="stable")["line"])
    look = theme.looks(lines or names)
    labels = dict(zip(table["line"], table["label"], strict=True))
    scores = [score for score in sweep.SCORES if np.isfinite(table[score].to_numpy(np.float64)).any()]
    if not scores:
        return theme.notice("sweep_lines", "Nothing to draw: no point has a score.", present)
    fig = Drawing()
    traces: list[dict[str, Any]] = []
    for place, score in enumerate(scores):
        axis = "y" if place == 0 else f"y{place + 1}"
        for name in names:
            rows = table[(table["line"] == name) & np.isfinite(table[score].to_numpy(np.float64))]
            if len(rows):
                traces += _line(rows, score, labels[name], look[name], axis)
        chosen = table[(table["point"].astype(str) == str(selected)) & np.isfinite(table[score].to_numpy(np.float64))]
        if len(chosen):
            traces.append(sweep.ring(chosen["x"].tolist(), chosen[score].tolist(), yaxis=axis))
    fig.add_traces(traces)
    legends.one_entry_each(fig)
    inner = len(scores) * PANEL + (len(scores) - 1) * GAP
    legend, top = legends.above([labels[name] for name in names])
    annotations, more = axes.note(note, BOTTOM)
    _lay_out(fig, scores, inner, title, sweep.stretch(values, table["x"].tolist()))
    chosen_values = table.loc[table["point"].astype(str) == str(selected), "x"].drop_duplicates()
    shapes = [axes.upright(float(x), sweep.CHOSEN) for x in chosen_values]
    if required is not None and required[0] in scores:
        shapes += _shade(fig, table, *required, scores.index(required[0]))
    fig.update_layout(
        legend=legend, annotations=annotations, shapes=shapes,
        margin={"l": LEFT, "r": 24, "t": top + 14, "b": BOTTOM + more},
    )  # fmt: skip
    return theme.finish(
        fig, "sweep_lines", _alt(table, names, labels, title, note), inner + top + 14 + BOTTOM + more, present, title
    )


def _shade(fig: Drawing, table: pd.DataFrame, score: str, at_least: float, place: int) -> list[dict[str, Any]]:
    """Fix the range of a panel, so that the shade does not stretch it, and return the shapes of the shade."""
    columns = [name for name in (score, *INTERVALS.get(score, ())) if name in table]
    ends = [at_least, float(np.nanmin(table[columns])), float(np.nanmax(table[columns]))]
    pad = 0.06 * (max(ends) - min(ends)) or 0.01
    span = [min(ends) - pad, max(ends) + pad]
    fig.update_layout({f"yaxis{place + 1 if place else ''}": {"range": span}})
    return sweep.shade(at_least, span[0], ("x", f"y{place + 1 if place else ''}"))


def _line(rows: pd.DataFrame, score: str, label: str, look: theme.Look, axis: str) -> list[dict[str, Any]]:
    """The band of the intervals, if there are any, and the line."""
    group = {"type": "scatter", "name": legends.entry(label), "legendgroup": legends.entry(label), "yaxis": axis}
    traces = []
    low, high = INTERVALS.get(score, ("", ""))
    if low in rows and high in rows:
        finite = rows[np.isfinite(rows[[low, high]].to_numpy(np.float64)).all(axis=1)]
        red, green, blue = (int(look.color[i : i + 2], 16) for i in (1, 3, 5))
        x = np.concatenate([finite["x"], finite["x"][::-1]]).astype(np.float32)
        y = np.concatenate([finite[low], finite[high][::-1]]).astype(np.float32)
        traces.append(
            group | {
                "x": x, "y": y, "mode": "lines", "line": {"width": 0}, "fill": "toself", "hoverinfo": "skip",
                "showlegend": False, "fillcolor": f"rgba({red},{green},{blue},0.13)",
            }
        )  # fmt: skip
    traces.append(
        group | {
            "x": rows["x"].to_numpy(np.float32), "y": rows[score].to_numpy(np.float32), "mode": "lines+markers",
            "line": {"color": look.color, "width": 2.5}, "unselected": {"marker": {"opacity": 1}},
            "marker": {"symbol": look.symbol, "color": look.color, "size": 9, "line": theme.edge(0.8)},
            "customdata": [[identifier(point)] for point in rows["point"]], "hovertemplate": "%{text}<extra></extra>",
            "text": [_hover(row, score) for row in rows.to_dict("records")],
        }
    )  # fmt: skip
    return [*traces, *sweep.hollow(traces[-1], rows)]


def _hover(row: dict[object, float], score: str) -> str:
    text = f"<b>{safe_text(row['label'])}</b> at {real(row['x'])}"
    for other, name in sweep.SCORES.items():
        if not math.isfinite(row[other]):
            continue
        line = f"{name} {percent(row[other])}"
        if other in INTERVALS and all(math.isfinite(row.get(end, math.nan)) for end in INTERVALS[other]):
            low, high = (percent(row[end]) for end in INTERVALS[other])
            line += f" ({low} to {high})"
        if math.isfinite(n := row.get(IMAGES.get(other, ""), math.nan)):
            line += f", {count(n)} images"
        text += f"<br><b>{line}</b>" if other == score else f"<br>{line}"
    return text + sweep.met(row)


def _lay_out(fig: Drawing, scores: list[str], inner: float, title: str, span: list[float]) -> None:
    last = "y" if len(scores) == 1 else f"y{len(scores)}"
    fig.update_xaxes(title={"text": safe_text(title, 90)}, range=span, anchor=last)
    for place, score in enumerate(scores):
        top = inner - place * (PANEL + GAP)
        fig.update_layout({
            f"yaxis{place + 1 if place else ''}": {
                "domain": [max(0.0, (top - PANEL) / inner), top / inner], "tickformat": ".1~%", "anchor": "x",
                "title": {"text": f"{sweep.SCORES[score]} (%)"}, "nticks": 5,
            }
        })  # fmt: skip


def _alt(table: pd.DataFrame, names: list[str], labels: dict[str, str], title: str, note: str) -> str:
    parts = []
    for name in names[:4]:
        rows = table[(table["line"] == name) & np.isfinite(table["h_score"].to_numpy(np.float64))]
        if len(rows):
            best = rows.loc[rows["h_score"].idxmax()]
            at = f"highest H-score {percent(best['h_score'])} at {best['x']:g}"
            parts.append(f"{clean_text(labels[name], 40)}: {at}")
    best_points = f" {'; '.join(parts)}." if parts else ""
    words = f"Scores against {clean_text(title, 60)}, {plural(len(table), 'point')}.{best_points}"
    return f"{words} {clean_text(note, 300)}".strip()
