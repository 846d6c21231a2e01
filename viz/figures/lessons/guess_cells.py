"""Marked cells beside those that were measured."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, heatmap, scatter
from viz.parts import guesses
from viz.parts.cells import click_targets
from viz.text import plural, safe_text

ROW, TOP, BOTTOM = 30, 36, 62  # px
WIDE = 16  # columns whose names fit side by side
BLOCK = re.compile(r"blocks\.(\d{1,3})\.")  # in a tensor's name


@chart(
    title="Marked cells",
    question="Are the marked cells the ones that were measured?",
    columns=("row", "column", "guess"),
    optional=("truth",),
    rows=("row", "column"),
    picks=("row", "column"),
    empty="There is no cell to mark.",
)
def guess_cells(
    table: pd.DataFrame,
    *,
    withheld: bool = False,
    unit: str = "",
    across: str = "Column",
    down: str = "Row",
    present: bool = False,
) -> go.Figure:
    """Cells in rows and columns: a diamond on each marked one; the shade is what was measured.

    row, column (names), guess (whether it is marked), truth (a number). Where the truth is ``withheld`` cells are
    blank. ``across`` and ``down`` say what columns and rows are.
    """
    rows, columns = in_order(table["row"]), in_order(table["column"])
    known = "truth" in table and not withheld
    values = np.full((len(rows), len(columns)), np.nan)
    marked = []
    for record in table.to_dict("records"):
        place = rows.index(str(record["row"])), columns.index(str(record["column"]))
        values[place] = float(record["truth"]) if known else 0.0
        if record["guess"]:
            marked.append(place)
    fig = Drawing([_map(values, known, unit, len(columns)), _marks(marked, rows, columns)])
    texts = [
        _words(row, column, values[i, j], known, unit) for i, row in enumerate(rows) for j, column in enumerate(columns)
    ]
    fig.add_trace(click_targets(rows, columns, texts, "Cells") | {"showlegend": False})
    if known and _is_yes_or_no(values):
        fig.add_trace(_key())
    fig.update_xaxes(
        title={"text": across}, tickmode="array", tickvals=guesses.numbers(range(len(columns))),
        ticktext=_ticks(columns), range=[-0.5, len(columns) - 0.5], showgrid=False,
    )  # fmt: skip
    ticks = [safe_text(row, guesses.FEW) for row in rows]
    fig.update_yaxes(
        title={"text": down}, tickmode="array", tickvals=guesses.numbers(range(len(rows))), ticktext=ticks,
        range=[len(rows) - 0.5, -0.5], showgrid=False, fixedrange=True,
    )  # fmt: skip
    left = max(map(theme.text_width, ticks)) + 44
    fig.update_layout(
        barmode="overlay", legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        margin={"l": left, "r": 24, "t": TOP, "b": BOTTOM},
    )  # fmt: skip
    height = TOP + BOTTOM + ROW * max(len(rows), 4)
    return theme.finish(fig, "guess_cells", _alt(len(marked), len(table), known), height, present)


def _ticks(columns: list[str]) -> list[str]:
    """Names of the columns; of many tensors only where a block begins."""
    if len(columns) <= WIDE:
        return [safe_text(column, 14) for column in columns]
    blocks = [found[1] if (found := BLOCK.search(column)) else "" for column in columns]
    begins = [block and block != before for block, before in zip(blocks, ["", *blocks], strict=False)]
    return [f"block {block}" if begin else "" for block, begin in zip(blocks, begins, strict=True)]


def _map(values: np.ndarray, known: bool, unit: str, columns: int) -> Trace:
    shown = values if np.isfinite(values).all() else np.nan_to_num(values, nan=float(np.nanmin(values, initial=0)))
    yes_or_no = _is_yes_or_no(values)
    scale = theme.SEQUENTIAL if known else [[0, theme.PANEL], [1, theme.PANEL]]
    scale = [[0, theme.PRUNED], [1, theme.KEPT]] if known and yes_or_no else scale
    return heatmap(
        z=shown.astype(np.float32), showscale=known and not yes_or_no, hoverinfo="skip", name="Truth", ygap=2,
        colorscale=scale, zmin=0 if yes_or_no else None,
        zmax=1 if yes_or_no else None, xgap=2 if columns <= WIDE else 0.5,
        colorbar={"title": {"text": safe_text(unit, 20) or "measured"}},
    )  # fmt: skip


def _is_yes_or_no(values: np.ndarray) -> bool:
    return bool(np.isin(values, (0, 1)).all())


def _key() -> Trace:
    """The entry of the legend for cells in which it holds."""
    nothing = guesses.numbers([])
    mark = {"color": theme.KEPT, "symbol": "square", "size": 12}
    return scatter(x=nothing, y=nothing, mode="markers", name=guesses.MEASURED, marker=mark, hoverinfo="skip")


def _marks(marked: list[tuple[int, int]], rows: list[str], columns: list[str]) -> Trace:
    y, x = np.array(marked, np.float32).reshape(-1, 2).T
    look = guesses.marker(guesses.GUESS, 12) | {"line": {"color": "white", "width": 1.5}}
    texts = [f"{guesses.GUESSED}: {safe_text(rows[i])}, {safe_text(columns[j])}" for i, j in marked]
    return scatter(
        x=x, y=y, mode="markers", name=guesses.GUESSED, marker=look, text=texts, hovertemplate="%{text}<extra></extra>"
    )


def _words(row: str, column: str, value: float, known: bool, unit: str) -> str:
    measured = f": {guesses.amount(value, unit)}" if value not in (0, 1) else f": measured {'yes' if value else 'no'}"
    return f"{safe_text(row)}, {safe_text(column)}{measured if known else ''}"


def _alt(marked: int, cells: int, known: bool) -> str:
    measured = "The shades are what was measured." if known else "What was measured is withheld."
    return f"{plural(marked, 'marked cell')} of {cells}. {measured}"
