"""A guessed order beside the measured one, a line for each name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, Trace, scatter
from viz.parts import guesses
from viz.text import clean_text, safe_text

ROW, TOP, BOTTOM = 36, 16, 52  # px


@chart(
    title="A guessed order",
    question="Is the guessed order what was measured?",
    columns=("option", "guess", "truth"),
    optional=("value",),
    rows=("option",),
    empty="There is nothing to order.",
)
def guess_order(table: pd.DataFrame, *, unit: str = "", withheld: bool = False, present: bool = False) -> go.Figure:
    """A line for each option from its guessed rank to its measured one; 1 is the first.

    option, guess and truth (ranks), value (what was measured). Where the truth is ``withheld`` lines are not drawn.
    """
    looks = theme.looks([str(option) for option in table["option"]])
    records = table.to_dict("records")
    fig = Drawing([_line(row, looks[str(row["option"])], unit, withheld) for row in records])
    if withheld:
        fig.add_annotation(guesses.hidden() | {"x": 1, "xref": "x"})
    ranks, ordered = range(1, len(table) + 1), table.sort_values("guess", kind="stable")
    names = [safe_text(option, guesses.FEW) for option in ordered["option"]]
    fig.update_xaxes(
        title={"text": "Guess and measurement"}, tickmode="array", tickvals=guesses.numbers([0, 1]),
        ticktext=[guesses.GUESSED, guesses.MEASURED], range=[-0.2, 1.2], fixedrange=True, showgrid=False,
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": "Rank"}, tickmode="array", tickvals=guesses.numbers(ranks),
        ticktext=[f"{name}  {rank}" for rank, name in zip(ranks, names, strict=True)],
        range=[len(table) + 0.6, 0.4], fixedrange=True,
    )  # fmt: skip
    left = max(map(theme.text_width, names)) + 60
    fig.update_layout(showlegend=False, margin={"l": left, "r": 24, "t": TOP, "b": BOTTOM})
    height = TOP + BOTTOM + ROW * max(len(table), 3)
    return theme.finish(fig, "guess_order", _alt(table, withheld), height, present)


def _line(row: dict[object, object], look: theme.Look, unit: str, withheld: bool) -> Trace:
    ranks = [row["guess"]] if withheld else [row["guess"], row["truth"]]
    value = float(str(row.get("value", "nan")))
    measured = f", measured {guesses.amount(value, unit)}" if np.isfinite(value) and not withheld else ""
    words = f"{safe_text(row['option'])}{measured}"
    return scatter(
        x=guesses.numbers([0, 1][: len(ranks)]), y=guesses.numbers(ranks), mode="lines+markers",
        name=safe_text(row["option"]), marker=guesses.marker(look, 12),
        line={"color": look.color, "width": 2}, text=[words] * len(ranks), hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _alt(table: pd.DataFrame, withheld: bool) -> str:
    def order(name: str) -> str:
        return ", ".join(clean_text(option, 40) for option in table.sort_values(name, kind="stable")["option"].head(5))

    return f"Guessed order: {order('guess')}. Measured: {'withheld' if withheld else order('truth')}."
