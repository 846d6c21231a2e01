"""How many sessions of a class gave which answer, and which of them was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, bar, scatter
from viz.parts import guesses
from viz.text import clean_text, count, plural, safe_text

ROW, TOP, BOTTOM, NAME = 30, 16, 52, 44  # px, and the characters of an answer
ROOM = 1.3  # of the axis, so that the longest bar's number has room


@chart(
    title="Answers of the class",
    question="What does the class say?",
    columns=("answer", "sessions"),
    optional=("truth",),
    rows=("answer",),
    empty="No session has answered yet.",
)
def class_answers(table: pd.DataFrame, *, withheld: bool = True, code: str = "", present: bool = False) -> go.Figure:
    """A bar for each answer, in the order of the rows, and a mark on what was measured.

    answer (in words), sessions (that gave it), truth (whether it holds what was measured). The mark is not drawn
    while the truth is ``withheld``. ``code`` is the class's.
    """
    answers = [str(answer) for answer in table["answer"]]
    sessions = np.nan_to_num(table["sessions"].to_numpy(np.float64)).clip(0)
    places = np.arange(len(table))
    fig = Drawing()
    fig.add_trace(bar(
        x=guesses.numbers(sessions), y=guesses.numbers(places), orientation="h", name="Sessions",
        marker={"color": theme.FADED, "line": {"color": theme.INK, "width": 1}},
        text=[plural(int(number), "session") for number in sessions], textposition="outside", cliponaxis=False,
        hovertemplate="%{text}<extra></extra>",
    ))  # fmt: skip
    of_class = f" of class {safe_text(code, 20)}" if code else ""
    most = max(1.0, float(sessions.max(initial=0.0)))
    measured = np.flatnonzero(_truth(table, withheld))
    if len(measured):
        fig.add_trace(scatter(
            x=guesses.numbers(np.full(len(measured), 0.03 * most)), y=guesses.numbers(places[measured]), mode="markers",
            name=guesses.MEASURED, marker=guesses.marker(guesses.TRUTH, 15), cliponaxis=False,
            text=[guesses.MEASURED] * len(measured), hovertemplate="%{text}<extra></extra>",
        ))  # fmt: skip
    ticks = [safe_text(answer, NAME) for answer in answers]
    shown = [f"<b>{tick}</b>" if place in measured else tick for place, tick in enumerate(ticks)]
    fig.update_xaxes(
        title={"text": f"Sessions{of_class}, not people; n = {count(float(sessions.sum()))}"},
        range=[0, ROOM * most],
        dtick=max(1, round(most / 6)),
        tickformat=",d",
        fixedrange=True,
    )
    fig.update_yaxes(
        title={"text": "Answer"}, tickmode="array", tickvals=guesses.numbers(places), ticktext=shown,
        range=[len(table) - 0.4, -0.6], fixedrange=True, showgrid=False,
    )  # fmt: skip
    left = max(map(theme.text_width, ticks), default=0) + 56
    fig.update_layout(showlegend=False, bargap=0.3, margin={"l": left, "r": 26, "t": TOP, "b": BOTTOM})
    return theme.finish(fig, "class_answers", _alt(table, withheld), TOP + BOTTOM + ROW * max(len(table), 4), present)


def _truth(table: pd.DataFrame, withheld: bool) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if withheld or "truth" not in table:
        return np.zeros(len(table), bool)
    return table["truth"].fillna(False).to_numpy(bool)


def _alt(table: pd.DataFrame, withheld: bool) -> str:
    known = table.assign(sessions=table["sessions"].fillna(0))
    most = known.sort_values("sessions", ascending=False, kind="stable").head(3).to_dict("records")
    said = "; ".join(f"{clean_text(row['answer'], 40)} {plural(int(row['sessions']), 'session')}" for row in most)
    measured = table.loc[_truth(table, withheld), "answer"]
    truth = f" Measured: {clean_text(measured.iloc[0], 60)}." if len(measured) else ""
    return f"Answers of the class: {said}.{truth}"
