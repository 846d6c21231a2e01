"""A guessed number beside the measured one with its interval, on one axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, Trace, scatter
from viz.parts import guesses
from viz.text import clean_text, safe_text

ROW, TOP, BOTTOM = 34, 16, 52  # px
KINDS = {"guess": guesses.GUESS, "truth": guesses.TRUTH}


@chart(
    title="A guessed number",
    question="How close is the guess to what was measured?",
    columns=("label", "kind", "value"),
    optional=("low", "high"),
    rows=("label",),
    empty="There is no guess yet.",
)
def guess_number(
    table: pd.DataFrame,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    what: str = "Value",
    present: bool = False,
) -> go.Figure:
    """A mark for each row, with an interval where there is one; a "?" in place of a value that is withheld.

    label (its name), kind ("guess" or "truth"), value, low and high (of the interval). ``low`` and ``high`` are the
    ends of the axis, ``what`` is its name.
    """
    labels = [str(label) for label in table["label"]]
    values = table["value"].to_numpy(np.float64)
    shown = np.isfinite(values)
    places = np.arange(len(table), dtype=np.float64)
    fig = Drawing()
    for kind, look in KINDS.items():
        chosen = (table["kind"].astype(str) == kind).to_numpy(bool) & shown
        if chosen.any():
            fig.add_trace(_marks(table[chosen], places[chosen], kind, look, unit))
    for place in places[~shown]:
        fig.add_annotation(
            guesses.hidden() | {"y": float(place), "yref": "y", "font": {"size": 22, "color": theme.FADED}}
        )
    if not shown.any():
        fig.add_trace(scatter(
            x=guesses.numbers([]), y=guesses.numbers([]), mode="markers", name="Nothing", hoverinfo="skip"
        ))  # fmt: skip
    ticks = [safe_text(label, guesses.FEW) for label in labels]
    title = f"{safe_text(what, 60)} ({safe_text(unit, 20)})" if unit else safe_text(what, 60)
    fig.update_xaxes(title={"text": title}, range=_span(table, low, high))
    fig.update_yaxes(
        title={"text": "Origin"}, tickmode="array", tickvals=guesses.numbers(places), ticktext=ticks,
        range=[len(table) - 0.4, -0.6], fixedrange=True,
    )  # fmt: skip
    left = max(map(theme.text_width, ticks)) + 44
    fig.update_layout(showlegend=False, margin={"l": left, "r": 24, "t": TOP, "b": BOTTOM})
    height = TOP + BOTTOM + ROW * max(len(table), 3)
    return theme.finish(fig, "guess_number", _alt(table, unit), height, present)


def _marks(rows: pd.DataFrame, places: Any, kind: str, look: theme.Look, unit: str) -> Trace:
    records = rows.to_dict("records")
    value = rows["value"].to_numpy(np.float64)
    ends = [rows[name].to_numpy(np.float64) if name in rows else value for name in ("low", "high")]
    above, below = np.nan_to_num(ends[1] - value).clip(0), np.nan_to_num(value - ends[0]).clip(0)
    return scatter(
        x=guesses.numbers(value), y=guesses.numbers(places), mode="markers", marker=guesses.marker(look), name=kind,
        error_x={
            "type": "data", "symmetric": False, "array": guesses.numbers(above), "arrayminus": guesses.numbers(below),
            "color": look.color, "thickness": 2, "width": 6,
        },
        text=[_words(row, unit) for row in records], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _words(row: Mapping[Any, Any], unit: str) -> str:
    return f"{safe_text(row['label'])}: {guesses.amount(float(row['value']), unit)}{guesses.between(row, unit)}"


def _span(table: pd.DataFrame, low: float | None, high: float | None) -> list[float]:
    values = table[[name for name in ("value", "low", "high") if name in table]].to_numpy(np.float64)
    finite = values[np.isfinite(values)]
    ends = [*([] if low is None else [low]), *([] if high is None else [high]), *finite.tolist()] or [0.0, 1.0]
    first, last = min(ends), max(ends)
    room = 0.03 * ((last - first) or 1.0)
    return [first - room, last + room]


def _alt(table: pd.DataFrame, unit: str) -> str:
    parts = [
        f"{clean_text(row['label'], 40)} "
        + (f"{row['value']:.4g} {unit}".strip() if np.isfinite(row["value"]) else "is withheld")
        for row in table.head(4).to_dict("records")
    ]
    return f"{'; '.join(parts)}."
