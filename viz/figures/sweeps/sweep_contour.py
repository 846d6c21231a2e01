"""A score over two values, or over the plane that two experts span, as a map with contour lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import ChartError, chart, one_of
from viz.drawing import Drawing, Trace, heatmap, scatter
from viz.parts import axes, legends, sweep
from viz.text import clean_text, count, identifier, percent, plural, real, safe_text

SIDE, BOTTOM, LEFT = 420, 56, 66
VEIL = "rgba(255,255,255,0.62)"  # over what does not meet the requirement
NUMBERS = ("x", "y", *sweep.SCORES, "n_in", "n_out", *sweep.REQUIRED)  # that the words on a point give
Mark = tuple[str, float, float, str]  # label, x, y, kind


@chart(
    title="Scores over two values",
    question="Where is the best combination, and how wide is the basin?",
    columns=("x", "y", "point", "in_domain"),
    optional=("out_of_domain", "h_score", "n_in", "n_out", "required", *sweep.REQUIRED),
    rows=("x", "y"),
    picks=("point",),
    empty="No point of this sweep has been computed yet.",
)
def sweep_contour(
    table: pd.DataFrame,
    *,
    value: str = "in_domain",
    titles: tuple[str, str] = ("First value", "Second value"),
    values: tuple[list[float], list[float]] | None = None,
    marks: Sequence[Mark] = (),
    selected: str | None = None,
    required: tuple[str, float] | None = None,
    note: str = "",
    present: bool = False,
) -> go.Figure:
    """Contour lines between the computed points, which are dots that take clicks; missing points leave holes.

    x, y (values), point (id), in_domain, out_of_domain, h_score (fractions), n_in, n_out (images). ``value`` says which
    score is drawn, ``marks`` are (label, x, y, kind) of known models, ``values`` all values of both axes. ``required``
    is the name of a score and what it has to be at least; the column required has that score, meets and certainty are
    as in sweep_lines. Where it is smaller between the points, the map is shaded, and its points are crosses.
    """
    one_of("value", value, tuple(sweep.SCORES))
    if value not in table:
        raise ChartError(f"sweep_contour draws {value!r}, which the table lacks")
    table = table[np.isfinite(table[value].to_numpy(np.float64))]
    if table.empty:
        return theme.notice("sweep_contour", "Nothing to draw: no point has this score.", present)
    points = _points(table, value, titles)
    fig = Drawing([_map(table, value), *_shade(table, required), points, *_crosses(points, table)])
    for place, (label, x, y, kind) in enumerate(marks):
        again = any(kind == other for *_, other in marks[:place])  # true for the second expert
        fig.add_trace(_mark(label, x, y, theme.KINDS.get(kind, theme.KINDS["merge"]), again))
    chosen = table[table["point"].astype(str) == str(selected)]
    if len(chosen):
        fig.add_trace(sweep.ring(chosen["x"].tolist(), chosen["y"].tolist()))
    legend, top = legends.above([label for label, *_ in marks]) if marks else ({}, 0.0)
    annotations, more = axes.note(note, BOTTOM)
    spans = [sweep.stretch(values[i] if values else None, table[name].tolist()) for i, name in enumerate("xy")]
    for span, ends in zip(spans, ([mark[1] for mark in marks], [mark[2] for mark in marks]), strict=True):
        span[:] = [min([span[0], *ends]), max([span[1], *ends])]
    fig.update_xaxes(title={"text": safe_text(titles[0], 60)}, range=spans[0], showgrid=False)
    fig.update_yaxes(title={"text": safe_text(titles[1], 60)}, range=spans[1], showgrid=False)
    fig.update_layout(
        legend=legend, annotations=annotations, plot_bgcolor=theme.PANEL,
        margin={"l": LEFT, "r": 30, "t": top + 26, "b": BOTTOM + more},
    )  # fmt: skip
    height = SIDE + top + 26 + BOTTOM + more
    return theme.finish(fig, "sweep_contour", _alt(table, value, titles, note), height, present, value)


def _map(table: pd.DataFrame, value: str) -> Trace:
    grid = table.pivot(index="y", columns="x", values=value).sort_index().sort_index(axis=1)
    z = grid.to_numpy(np.float32)
    low, high = float(np.nanmin(z)), float(np.nanmax(z))
    pad = 0 if high > low else 0.01
    common: dict[str, Any] = {
        "x": grid.columns.to_numpy(np.float32), "y": grid.index.to_numpy(np.float32), "z": z,
        "colorscale": theme.SEQUENTIAL, "zmin": low - pad, "zmax": high + pad, "hoverinfo": "skip",
        "name": f"{sweep.SCORES[value]} score", "showlegend": False,
        "colorbar": {"title": {"text": f"{sweep.SCORES[value]}<br>(%)"}, "tickformat": ".1~%", "thickness": 12},
    }  # fmt: skip
    if min(z.shape) < 2:
        return heatmap(**common)
    lines = {"coloring": "heatmap", "showlabels": True, "labelfont": {"size": theme.SMALL, "color": theme.ON_LIGHT},
             "labelformat": ".0%"}  # fmt: skip
    line = {"color": "rgba(31,41,51,0.55)", "width": 1}
    return common | {"type": "contour", "contours": lines, "line": line, "ncontours": 9}


def _shade(table: pd.DataFrame, required: tuple[str, float] | None) -> list[Trace]:
    """A veil over the part of the map that does not meet the requirement, interpolated as the map is."""
    if required is None or "required" not in table:
        return []
    grid = table.pivot(index="y", columns="x", values="required").sort_index().sort_index(axis=1)
    z = grid.to_numpy(np.float32)
    if min(z.shape) < 2 or not np.isfinite(z).any():
        return []
    return [
        {
            "type": "contour", "x": grid.columns.to_numpy(np.float32), "y": grid.index.to_numpy(np.float32), "z": z,
            "contours": {"type": "constraint", "operation": ">", "value": required[1]}, "fillcolor": VEIL,
            "showlegend": False, "line": {"color": theme.INK, "width": 2, "dash": "dash"}, "name": "Requirement",
            "hoverinfo": "skip",
        }
    ]  # fmt: skip


def _crosses(points: dict[str, Any], table: pd.DataFrame) -> list[dict[str, Any]]:
    return sweep.hollow(points, table, symbol="x-thin", size=8, line={"color": theme.INK, "width": 2})


def _points(table: pd.DataFrame, value: str, titles: tuple[str, str]) -> dict[str, Any]:
    names = safe_text(titles[0], 40), safe_text(titles[1], 40)
    columns = tuple(name for name in NUMBERS if name in table)
    texts = [_hover(columns, row, value, names) for row in table[[*columns]].itertuples(index=False, name=None)]
    return {
        "type": "scatter", "x": table["x"].to_numpy(np.float32), "y": table["y"].to_numpy(np.float32),
        "mode": "markers", "name": "Computed points", "showlegend": False, "unselected": {"marker": {"opacity": 1}},
        "marker": {"size": 9, "color": "rgba(255,255,255,0.5)", "line": theme.edge(0.6)},
        "customdata": [[identifier(point)] for point in table["point"].tolist()], "text": texts,
        "hovertemplate": "%{text}<extra></extra>",
        "meta": {"columns": {f"{sweep.SCORES[value]} (%)": (100 * table[value]).tolist()}},
    }  # fmt: skip


def _mark(label: str, x: float, y: float, look: theme.Look, again: bool) -> Trace:
    """A known model, edged in white to be visible on every color; ``again`` says that its kind has a mark already."""
    symbol = "triangle-up" if again else look.symbol.removesuffix("-open")
    return scatter(
        x=np.array([x], np.float32), y=np.array([y], np.float32), mode="markers", name=legends.entry(label),
        legendgroup=legends.entry(label), unselected={"marker": {"opacity": 1}},
        marker={"symbol": symbol, "size": 13, "color": look.color, "line": {"color": "white", "width": 2}},
        text=[f"<b>{safe_text(label)}</b><br>at ({real(x)}, {real(y)})"], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


@lru_cache(maxsize=20_000)  # while points come in, a map is drawn again with thousands of the same ones
def _hover(columns: tuple[str, ...], numbers: tuple[float, ...], value: str, names: tuple[str, str]) -> str:
    row = dict(zip(columns, numbers, strict=True))
    text = f"{names[0]} {real(row['x'])}<br>{names[1]} {real(row['y'])}"
    for other, name in sweep.SCORES.items():
        if math.isfinite(row.get(other, math.nan)):
            line = f"{name} {percent(row[other])}"
            text += f"<br><b>{line}</b>" if other == value else f"<br>{line}"
    images = sum(n for column in ("n_in", "n_out") if math.isfinite(n := row.get(column, math.nan)))
    return text + (f"<br>{count(images)} images" if images else "") + sweep.met(row)


def _alt(table: pd.DataFrame, value: str, titles: tuple[str, str], note: str) -> str:
    best = table.sort_values(value, kind="stable").iloc[-1]
    words = f"{sweep.SCORES[value]} at {plural(len(table), 'point')}: highest {percent(best[value])} at "
    words += f"{clean_text(titles[0], 40)} {best['x']:g}, {clean_text(titles[1], 40)} {best['y']:g}."
    return f"{words} {clean_text(note, 300)}".strip()
