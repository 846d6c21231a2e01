"""A chosen answer beside the measured one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, scatter
from viz.parts import guesses
from viz.text import clean_text, safe_text

ROW, TOP, BOTTOM, NAME = 34, 16, 52, 44  # px, and the characters of an option


@chart(
    title="A chosen answer",
    question="Is the chosen answer what was measured?",
    columns=("option", "guess", "truth"),
    rows=("option",),
    empty="There is nothing to choose from.",
)
def guess_choice(table: pd.DataFrame, *, withheld: bool = False, present: bool = False) -> go.Figure:
    """A row for each option, with a mark under "Your guess" and one under "Measured".

    option, guess and truth (whether it was chosen, and whether it is what was measured). Where the truth is
    ``withheld`` a "?" stands in its column.
    """
    options = [str(option) for option in table["option"]]
    fig = Drawing()
    for column, (name, look) in enumerate((("guess", guesses.GUESS), ("truth", guesses.TRUTH))):
        places = np.flatnonzero(table[name].to_numpy(bool)) if name == "guess" or not withheld else np.array([], int)
        title = guesses.GUESSED if name == "guess" else guesses.MEASURED
        fig.add_trace(scatter(
            x=guesses.numbers(np.full(len(places), column)), y=guesses.numbers(places), mode="markers", name=title,
            marker=guesses.marker(look, 15), hovertemplate="%{text}<extra></extra>",
            text=[f"{title}: {safe_text(options[place])}" for place in places],
        ))  # fmt: skip
    if withheld:
        fig.add_annotation(guesses.hidden() | {"x": 1, "xref": "x"})
    ticks = [safe_text(option, NAME) for option in options]
    fig.update_xaxes(
        title={"text": "Guess and measurement"}, tickmode="array", tickvals=guesses.numbers([0, 1]),
        ticktext=[guesses.GUESSED, guesses.MEASURED], range=[-0.6, 1.6], fixedrange=True, showgrid=False,
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": "Answer"}, tickmode="array", tickvals=guesses.numbers(range(len(options))), ticktext=ticks,
        range=[len(options) - 0.4, -0.6], fixedrange=True,
    )  # fmt: skip
    left = max(map(theme.text_width, ticks)) + 44
    fig.update_layout(showlegend=False, margin={"l": left, "r": 24, "t": TOP, "b": BOTTOM})
    height = TOP + BOTTOM + ROW * max(len(options), 3)
    return theme.finish(fig, "guess_choice", _alt(table, withheld), height, present)


def _alt(table: pd.DataFrame, withheld: bool) -> str:
    def first(name: str) -> str:
        chosen = table.loc[table[name].to_numpy(bool), "option"]
        return clean_text(chosen.iloc[0], 60) if len(chosen) else "nothing"

    measured = "is withheld" if withheld else first("truth")
    return f"Your guess: {first('guess')}. Measured: {measured}."
