"""A guessed curve beside the measured one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, Trace, scatter
from viz.parts import guesses
from viz.text import clean_text, real, safe_text

HEIGHT = 300  # px


@chart(
    title="A guessed curve",
    question="Does the guessed curve follow what was measured?",
    columns=("x", "guess"),
    optional=("truth", "low", "high"),
    rows=("x",),
    empty="There is no guess yet.",
)
def guess_curve(
    table: pd.DataFrame,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    axis: str = "Value",
    what: str = "Value",
    guessed: str = guesses.GUESSED,
    present: bool = False,
) -> go.Figure:
    """The guess as a dashed line, what was measured as a line with intervals; without ``truth`` a "?" stands there.

    x, guess, truth (with low and high of its interval). ``axis`` names x, ``what`` is what is guessed, ``low`` and
    ``high`` are the ends of its axis. ``guessed`` says whose guess it is, for others than the reader's: then it is in
    the legend even while there is no guess.
    """
    table = table.sort_values("x", kind="stable")
    known = "truth" in table and bool(np.isfinite(table["truth"].to_numpy(np.float64)).any())
    others = guessed != guesses.GUESSED
    fig = Drawing()
    if others or np.isfinite(table["guess"].to_numpy(np.float64)).any():
        fig.add_trace(_curve(table, "guess", safe_text(guessed), guesses.GUESS, unit, "dash"))
    if known:
        measured = table[np.isfinite(table["truth"].to_numpy(np.float64))]
        fig.add_trace(_curve(measured, "truth", guesses.MEASURED, guesses.TRUTH, unit, "solid"))
    else:
        fig.add_annotation(guesses.hidden() | {"y": 0.88})
    title = f"{safe_text(what, 50)} ({safe_text(unit, 20)})" if unit else safe_text(what, 50)
    x = table["x"].to_numpy(np.float64)
    fig.update_xaxes(
        title={"text": safe_text(axis, 60)},
        tickmode="array",
        tickvals=guesses.numbers(x),
        ticktext=[real(v) for v in x],
    )
    span = (
        {"range": [low - 0.03 * (high - low), high + 0.03 * (high - low)]}
        if low is not None and high is not None
        else {}
    )
    fig.update_yaxes(title={"text": title}, **span)
    fig.update_layout(
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}, margin={"l": 64, "r": 24, "t": 36, "b": 52}
    )
    if others:
        fig.update_layout(showlegend=True)
    return theme.finish(fig, "guess_curve", _alt(table, known, unit, clean_text(guessed)), HEIGHT, present)


def _curve(rows: pd.DataFrame, column: str, title: str, look: theme.Look, unit: str, dash: str) -> Trace:
    values = rows[column].to_numpy(np.float64)
    errors: dict[str, Any] = {}
    if column == "truth" and {"low", "high"} <= set(rows):
        above = np.nan_to_num(rows["high"].to_numpy(np.float64) - values).clip(0)
        below = np.nan_to_num(values - rows["low"].to_numpy(np.float64)).clip(0)
        errors["error_y"] = {
            "type": "data", "symmetric": False, "array": guesses.numbers(above), "arrayminus": guesses.numbers(below),
            "color": look.color, "thickness": 1.5, "width": 5,
        }  # fmt: skip
    words = [
        f"{title} at {real(row['x'])}: {guesses.amount(float(row[column]), unit)}"
        + (guesses.between(row, unit) if errors else "")
        for row in rows.to_dict("records")
    ]
    return scatter(
        x=guesses.numbers(rows["x"]), y=guesses.numbers(values), mode="lines+markers", name=title,
        line={"color": look.color, "width": 2.4, "dash": dash}, marker=guesses.marker(look, 9), text=words,
        hovertemplate="%{text}<extra></extra>", **errors,
    )  # fmt: skip


def _alt(table: pd.DataFrame, known: bool, unit: str, guessed: str) -> str:
    def ends(column: str) -> str:
        values = table[column].to_numpy(np.float64)
        values = values[np.isfinite(values)]
        return f"from {values[0]:.4g} to {values[-1]:.4g} {clean_text(unit, 20)}".strip() if len(values) else "nowhere"

    measured = f"Measured, it goes {ends('truth')}" if known else "The truth is withheld"
    return f"{guessed} goes {ends('guess')}. {measured}."
