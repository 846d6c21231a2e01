"""Charts of lessons: a learner's guess, or the answers of a class, and the measurement.

The truth is the measured value. It is withheld until the learner has guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import chart, distinct_names
from viz.drawing import Drawing, Picture, Trace, heatmap, scatter
from viz.figure_text import clean_text, count, plural, real, safe_text
from viz.hover import hover_texts
from viz.parts import axes, series
from viz.parts.cell_targets import click_targets

KIND_STYLES = {"guess": theme.MarkStyle(theme.VERMILION, "diamond"), "truth": theme.MarkStyle(theme.BLUE, "circle")}
GUESS_NAME, TRUTH_NAME = "Your guess", "Measured"
GUESS_AXIS = ("Guess and measurement", (GUESS_NAME, TRUTH_NAME))  # an axis and the names on it
LEGEND_LAYOUT = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}
WITHHELD_SIGN = {  # the sign in the picture while the truth is withheld
    "text": "?", "x": 0.5, "y": 0.5, "xref": "x domain", "yref": "y domain",
    "font": {"size": 34, "color": theme.FADED},
}  # fmt: skip
Values = npt.NDArray[np.float64]
INTERVAL_TEXT = "[ ({low:number} to {high:amount})]"
MAX_ANSWER = 44  # characters of an answer at an axis
MAX_NAMED_COLUMNS = 16  # columns whose names fit side by side
BLOCK_PATTERN = re.compile(r"blocks\.(\d{1,3})\.")  # in a tensor's name


def _number_formats(unit: str) -> Mapping[str, Callable[[float], str]]:
    """Formats of numbers without and with their unit, escaped: "69.4" and "69.4 %"; "—" where there is no number."""

    def number(value: float) -> str:
        return f"{value:.1f}".removesuffix(".0") if abs(value) >= 1 else real(value)

    def amount(value: float) -> str:
        return f"{number(value)} {safe_text(unit, 20)}".strip() if np.isfinite(value) else "—"

    return {"number": number, "amount": amount}


def _title_with_unit(quantity: str, unit: str, limit: int) -> str:
    return f"{safe_text(quantity, limit)} ({safe_text(unit, 20)})" if unit else safe_text(quantity, limit)


def _lay_out_rows(
    fig: Drawing, words: str, title: str, names: Sequence[object], row: float = 34, limit: int = 24, min_rows: int = 3,
    left_px: float = 44, **axis: Any,
) -> Picture:  # fmt: skip
    """The marks in rows of ``row`` px, at least ``min_rows`` of them, with names and ``left_px`` px on the left."""
    defaults = {"range": [len(names) - 0.4, -0.6], "showgrid": True}
    fig.update_yaxes(**axes.name_axis(title, names, limit, down=True, **defaults | axis))
    margin = {"l": axes.names_width(names, limit) + left_px, "r": 24, "t": 16, "b": 52}
    fig.update_layout(showlegend=False, margin=margin)
    return Picture(fig, words, 68 + row * max(len(names), min_rows))


@chart(
    title="Answers of the class",
    question="What does the class answer?",
    columns=("answer", "sessions"),
    optional=("truth",),
    rows=("answer",),
    empty="No session has answered yet.",
)
def class_answers(table: pd.DataFrame, *, withheld: bool = True, code: str = "") -> Picture:
    """A bar for each answer, in the order of the rows, and a mark on the measured one.

    Columns: answer (in words), sessions (number that gave it), truth (whether it contains the measured value). There is
    no mark while the truth is ``withheld``. ``code`` is the class's.
    """
    table = table.assign(sessions=table["sessions"].fillna(0).clip(lower=0), row_index=range(len(table)))
    shown = "truth" in table and not withheld
    measured = table[table["truth"].fillna(False).to_numpy(bool)] if shown else table.head(0)
    largest = max(1.0, table["sessions"].max())
    fig = Drawing([
        series.bars(
            table, "sessions", "row_index", theme.FADED, "{sessions:plural session}", orientation="h", name="Sessions",
            textposition="outside", cliponaxis=False, marker={"line": theme.edge()},
        )
    ])  # fmt: skip
    if len(measured):
        fig.add_trace(series.marks(
            measured.assign(at=0.03 * largest), "at", "row_index", KIND_STYLES["truth"], TRUTH_NAME, size=15,
            name=TRUTH_NAME, cliponaxis=False,
        ))  # fmt: skip
    of_class = f" of class {safe_text(code, 20)}" if code else ""
    fig.update_xaxes(
        title={"text": f"Sessions{of_class}, not people; n = {count(table['sessions'].sum())}"},
        dtick=max(1, round(largest / 6)), tickformat=",d", fixedrange=True,
        range=[0, 1.3 * largest],  # with room for the longest bar's number
    )  # fmt: skip
    fig.update_layout(bargap=0.3)
    ticks = [safe_text(answer, MAX_ANSWER) for answer in table["answer"]]
    for position in measured["row_index"]:
        ticks[position] = f"<b>{ticks[position]}</b>"
    first = table.sort_values("sessions", ascending=False, kind="stable").head(3)
    words = f"Answers of the class: {'; '.join(hover_texts(first, '{answer:plain 40} {sessions:plural session}'))}."
    words += "".join(hover_texts(measured.head(1), " Measured: {answer:plain 60}."))
    return _lay_out_rows(
        fig,
        words,
        "Answer",
        table["answer"].tolist(),
        30,
        MAX_ANSWER,
        min_rows=4,
        left_px=56,
        ticktext=ticks,
        showgrid=False,
    )


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
    table: pd.DataFrame, *, withheld: bool = False, unit: str = "", across: str = "Column", down: str = "Row"
) -> Picture:
    """Cells in rows and columns: a diamond on each marked one; the shade is the measured value.

    Columns: row, column (names), guess (whether it is marked), truth (a number). Where the truth is ``withheld`` cells
    are blank. ``across`` and ``down`` name the columns and the rows.
    """
    rows, columns = distinct_names(table["row"]), distinct_names(table["column"])
    is_known = "truth" in table and not withheld
    table = table.assign(y=table["row"].map(rows.index), x=table["column"].map(columns.index))
    values = np.full((len(rows), len(columns)), np.nan)
    values[table["y"], table["x"]] = table["truth"] if is_known else 0.0
    yes_or_no, marked = bool(np.isin(values, (0, 1)).all()), table[table["guess"].astype(bool)]
    texts = _describe_cells(rows, columns, values, is_known, unit)
    fig = Drawing([
        _draw_shades(values, is_known, yes_or_no, unit),
        series.marks(
            marked, "x", "y", KIND_STYLES["guess"], f"{GUESS_NAME}: {{row}}, {{column}}", size=12, name=GUESS_NAME,
            marker={"line": {"color": theme.GROUND, "width": 1.5}},
        ),
        click_targets(rows, columns, texts, "Cells") | {"showlegend": False},
    ])  # fmt: skip
    if is_known and yes_or_no:  # an entry in the legend for dark cells
        mark_style = {"color": theme.KEPT, "symbol": "square", "size": 12}
        none = np.array([], np.float32)
        fig.add_trace(scatter(x=none, y=none, mode="markers", name=TRUTH_NAME, marker=mark_style, hoverinfo="skip"))
    fig.update_xaxes(**axes.name_axis(across, columns, ticktext=_label_columns(columns), fixedrange=False))
    fig.update_yaxes(**axes.name_axis(down, rows, down=True))
    margin = {"l": axes.names_width(rows) + 44, "r": 24, "t": 36, "b": 62}
    fig.update_layout(barmode="overlay", legend=LEGEND_LAYOUT, margin=margin)
    measured = "The shades are measured values." if is_known else "The measured values are withheld."
    words = f"{plural(len(marked), 'marked cell')} of {len(table)}. {measured}"
    return Picture(fig, words, 98 + 30 * max(len(rows), 4))


def _label_columns(columns: list[str]) -> list[str]:
    """Labels of the columns; with many tensors only where a block begins."""
    if len(columns) <= MAX_NAMED_COLUMNS:
        return [safe_text(column, 14) for column in columns]
    blocks = [match[1] if (match := BLOCK_PATTERN.search(column)) else "" for column in columns]
    is_block_start = [block and block != before for block, before in zip(blocks, ["", *blocks], strict=False)]
    return [f"block {block}" if is_start else "" for block, is_start in zip(blocks, is_block_start, strict=True)]


def _draw_shades(values: Values, is_known: bool, yes_or_no: bool, unit: str) -> Trace:
    """The measured values, missing ones as the least; blank while they are not ``is_known``."""
    shown = np.nan_to_num(values, nan=float(np.nanmin(values, initial=0))).astype(np.float32)
    colors = (theme.PRUNED, theme.KEPT) if is_known else (theme.PANEL, theme.PANEL)
    return heatmap(
        z=shown, name="Truth", hoverinfo="skip", xgap=2 if shown.shape[1] <= MAX_NAMED_COLUMNS else 0.5, ygap=2,
        colorscale=list(enumerate(colors)) if yes_or_no or not is_known else theme.SEQUENTIAL,
        zmin=0 if yes_or_no else None, zmax=1 if yes_or_no else None, showscale=is_known and not yes_or_no,
        colorbar={"title": {"text": safe_text(unit, 20) or "measured"}},
    )  # fmt: skip


def _describe_cells(rows: list[str], columns: list[str], values: Values, is_known: bool, unit: str) -> list[str]:
    amount = _number_formats(unit)["amount"]
    words = []
    for (y, x), value in np.ndenumerate(values):
        measured = f"measured {'yes' if value else 'no'}" if value in (0, 1) else amount(value)
        words.append(f"{safe_text(rows[y])}, {safe_text(columns[x])}" + (f": {measured}" if is_known else ""))
    return words


@chart(
    title="A chosen answer",
    question="Is the chosen answer what was measured?",
    columns=("option", "guess", "truth"),
    rows=("option",),
    empty="There is nothing to choose from.",
)
def guess_choice(table: pd.DataFrame, *, withheld: bool = False) -> Picture:
    """A row for each option, with a mark under "Your guess" and one under "Measured", or a "?" while ``withheld``."""
    table = table.assign(row_index=range(len(table)))
    fig, words = Drawing(), []
    for column, (name, title) in enumerate((("guess", GUESS_NAME), ("truth", TRUTH_NAME))):
        rows = table[table[name].astype(bool) & (name == "guess" or not withheld)].assign(at=column)
        fig.add_trace(
            series.marks(rows, "at", "row_index", KIND_STYLES[name], f"{title}: {{option}}", size=15, name=title)
        )
        words.append(clean_text(rows["option"].iloc[0], 60) if len(rows) else "nothing")
    if withheld:
        fig.add_annotation(WITHHELD_SIGN | {"x": 1, "xref": "x"})
        words[1] = "is withheld"
    fig.update_xaxes(**axes.name_axis(*GUESS_AXIS, range=[-0.6, 1.6]))
    sentence = f"Your guess: {words[0]}. Measured: {words[1]}."
    return _lay_out_rows(fig, sentence, "Answer", table["option"].tolist(), limit=MAX_ANSWER)


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
    guessed: str = GUESS_NAME,
) -> Picture:
    """The guess as a dashed line, the measurement as a line with intervals; without ``truth`` there is a "?" instead.

    Columns: x, guess, truth (with low and high of its interval). ``axis`` names x, ``what`` names the guessed quantity,
    ``low`` and ``high`` are the ends of its axis. ``guessed`` names another person's guess, which is in the legend even
    while there is none.
    """
    table = table.sort_values("x", kind="stable")
    measured = series.finite_rows(table, "truth") if "truth" in table else table.head(0)
    fig, is_others = Drawing(), guessed != GUESS_NAME
    if is_others or len(series.finite_rows(table, "guess")):
        fig.add_trace(_draw_curve(table, "guess", guessed, unit, "", dash="dash"))
    if len(measured):
        bars = series.interval(measured, "truth", KIND_STYLES["truth"].color, width=5)
        fig.add_trace(_draw_curve(measured, "truth", TRUTH_NAME, unit, INTERVAL_TEXT, dash="solid") | {"error_y": bars})
    else:
        fig.add_annotation(WITHHELD_SIGN | {"y": 0.88})
    x = table["x"].tolist()
    fig.update_xaxes(title={"text": safe_text(axis, 60)}, tickmode="array", tickvals=x, ticktext=list(map(real, x)))
    fig.update_yaxes(title={"text": _title_with_unit(what, unit, 50)})
    if low is not None and high is not None:
        fig.update_yaxes(range=_widen_range(low, high))
    fig.update_layout(legend=LEGEND_LAYOUT, margin={"l": 64, "r": 24, "t": 36, "b": 52})
    if is_others:
        fig.update_layout(showlegend=True)
    truth = (
        f"The measurement goes {_ends_in_words(measured['truth'], unit)}" if len(measured) else "The truth is withheld"
    )
    return Picture(fig, f"{clean_text(guessed)} goes {_ends_in_words(table['guess'], unit)}. {truth}.", 300)


def _draw_curve(rows: pd.DataFrame, column: str, name: str, unit: str, interval_text: str, dash: str) -> Trace:
    return series.marks(
        rows.assign(who=name), "x", column, KIND_STYLES[column],
        f"{{who}} at {{x:real}}: {{{column}:amount}}{interval_text}",
        formats=_number_formats(unit), line={"width": 2.4, "dash": dash}, name=safe_text(name),
    )  # fmt: skip


def _ends_in_words(values: pd.Series[float], unit: str) -> str:
    numbers = values.dropna().tolist()
    return f"from {numbers[0]:.4g} to {numbers[-1]:.4g} {clean_text(unit, 20)}".strip() if numbers else "nowhere"


def _format_amount(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}".strip() if np.isfinite(value) else "is withheld"


def _widen_range(low: float, high: float) -> list[float]:
    room = 0.03 * ((high - low) or 1.0)
    return [low - room, high + room]


@chart(
    title="A guessed number",
    question="How close is the guess to what was measured?",
    columns=("label", "kind", "value"),
    optional=("low", "high"),
    rows=("label",),
    empty="There is no guess yet.",
)
def guess_number(
    table: pd.DataFrame, *, unit: str = "", low: float | None = None, high: float | None = None, what: str = "Value"
) -> Picture:
    """A mark for each row, with an interval where there is one; a "?" instead of a withheld value.

    Columns: label (its name), kind ("guess" or "truth"), value. ``low`` and ``high`` are the ends of the axis, ``what``
    is its name.
    """
    table = table.assign(row_index=range(len(table)))
    shown = series.finite_rows(table, "value")
    fig = Drawing()
    for kind, mark_style in KIND_STYLES.items():
        rows = shown[shown["kind"] == kind]
        if len(rows) or shown.empty:
            bars = series.interval(rows, "value", mark_style.color, thickness=2, width=6)
            fig.add_trace(series.marks(
                rows, "value", "row_index", mark_style, f"{{label}}: {{value:amount}}{INTERVAL_TEXT}", size=11,
                name=kind, error_x=bars,
                formats=_number_formats(unit),
            ))  # fmt: skip
    for position in sorted(set(table["row_index"]) - set(shown["row_index"])):
        fig.add_annotation(WITHHELD_SIGN | {"y": position, "yref": "y", "font": {"size": 22, "color": theme.FADED}})
    numbers = table[[name for name in ("value", "low", "high") if name in table]].to_numpy(np.float64)
    ends = [*numbers[np.isfinite(numbers)].tolist(), *(end for end in (low, high) if end is not None)] or [0.0, 1.0]
    fig.update_xaxes(title={"text": _title_with_unit(what, unit, 60)}, range=_widen_range(min(ends), max(ends)))
    parts = hover_texts(
        table.head(4), "{label:plain 40} {value:plainly}", plainly=lambda value: _format_amount(value, unit)
    )
    return _lay_out_rows(fig, f"{'; '.join(parts)}.", "Origin", table["label"].tolist())


@chart(
    title="A guessed order",
    question="Is the guessed order what was measured?",
    columns=("option", "guess", "truth"),
    optional=("value",),
    rows=("option",),
    empty="There is nothing to order.",
)
def guess_order(table: pd.DataFrame, *, unit: str = "", withheld: bool = False) -> Picture:
    """A line for each option from its guessed rank (1 is the first) to its measured one, unless ``withheld``."""
    ends = ["guess"] if withheld else ["guess", "truth"]
    hover = "{option}" if withheld else "{option}[, measured {value:amount}]"
    mark_styles = theme.mark_styles(table["option"].tolist())
    fig = Drawing(
        series.marks(
            rows.iloc[[0] * len(ends)], [0, 1][: len(ends)], rows[ends].iloc[0], mark_styles[option], hover, size=12,
            line={"width": 2}, formats=_number_formats(unit), **entry,
        )
        for option, rows, entry in series.rows_by_name(table, "option", label="option")
    )  # fmt: skip
    if withheld:
        fig.add_annotation(WITHHELD_SIGN | {"x": 1, "xref": "x"})
    fig.update_xaxes(**axes.name_axis(*GUESS_AXIS, range=[-0.2, 1.2]))
    guess, truth = (table.sort_values(name, kind="stable")["option"].tolist() for name in ("guess", "truth"))
    orders = [", ".join(clean_text(option, 40) for option in order[:5]) for order in (guess, truth)]
    words = f"Guessed order: {orders[0]}. Measured: {'withheld' if withheld else orders[1]}."
    ranks = range(1, len(table) + 1)
    return _lay_out_rows(
        fig, words, "Rank", guess, 36, left_px=60, tickvals=list(ranks), range=[len(table) + 0.6, 0.4],
        ticktext=[f"{safe_text(option, 24)}  {rank}" for rank, option in zip(ranks, guess, strict=True)],
    )  # fmt: skip
