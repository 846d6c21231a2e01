"""Models from the best to the worst, and which of them cannot be distinguished: a compact letter display."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, first_few, percent, plural, safe_text
from viz.figures.score_plane import KIND_NAMES, KIND_SIGNS
from viz.hover import hover_texts
from viz.parts import axes, lanes, legends, series

LETTER = re.compile(r"[a-zA-Z][₀-₉]*")
HOVER = (
    "<b>{name:markup}</b><br>{score}: {value:percent}[ ({low:percent} to {high:percent})][<br>{n:count} images]"
    "<br>letters: {letters}[<br>cannot be distinguished from {ties:markup}]"
)
FORMATS = {"markup": str}  # of texts that are escaped
MAX_NAMED = 5  # models that a hover text names
MAX_NAME = 34  # characters at the axis
ROW, LETTER_SHARE, MIN_SHARE, MAX_SHARE = 26, 0.035, 0.08, 0.45  # px; shares of the width for letters
NOTE = "Models with a dot on the same line cannot be distinguished."


@chart(
    title="Runs that cannot be distinguished",
    question="Which of these runs can be distinguished?",
    columns=("run", "label", "kind", "value", "low", "high", "letters"),
    optional=("adapts_on_test", "n"),
    rows=("run",),
    picks=("run",),
    empty="No two runs have stored answers to the same images.",
)
def score_letters(table: pd.DataFrame, *, score: str = "Score") -> Picture:
    """A dot with its interval for each model, the best on top, and a line with dots for each letter of the models.

    Columns: value (the score), letters (one after another, some with an index; models share one if and only if they
    cannot be distinguished). ``score`` is the score's name.
    """
    rows = series.require_finite_rows(table, "value", empty_reason="no model has a score")
    rows = rows.sort_values("value", ascending=False, kind="stable").reset_index(drop=True)
    own_letters = [LETTER.findall(str(letters)) for letters in rows["letters"]]
    letters = sorted({letter for own in own_letters for letter in own}, key=lambda one: (one[1:], one[0].swapcase()))
    adapts = rows["adapts_on_test"].eq(True) if "adapts_on_test" in rows else pd.Series(False, rows.index)
    names = hover_texts(
        rows.assign(adapts=np.where(adapts, "†", "")), f"{{label:text {MAX_NAME}}}[ {{adapts}}]{{kind:sign}}",
        sign=lambda kind: KIND_SIGNS.get(kind, ""),
    )  # fmt: skip
    rows = rows.assign(row=range(len(rows)), name=names, score=score, ties=_name_ties(rows, own_letters))
    fig, title = Drawing(), f"{safe_text(score, 40)} (%), 95% interval"
    for kind, style in theme.KINDS.items():
        if len(of_kind := rows[rows["kind"] == kind]):
            fig.add_trace(series.marks(
                of_kind, "value", "row", style, HOVER, picks=("run",), formats=FORMATS, size=7, name=KIND_NAMES[kind],
                legendgroup=kind, error_x=series.interval(of_kind, "value", style.color),
            ))  # fmt: skip
    for place, letter in enumerate(letters):
        members = rows[[letter in own for own in own_letters]]
        fig.add_trace(series.marks(
            members, np.full(len(members), place), "row", theme.MarkStyle(theme.INK, "circle"), HOVER, picks=("run",),
            formats=FORMATS, size=8, line={"color": theme.FADED, "width": 2}, name=f"Letter {letter}", xaxis="x2",
            showlegend=False, meta={"columns": {title: (100 * members["value"]).tolist()}},
        ))  # fmt: skip
    share = float(np.clip(LETTER_SHARE * len(letters), MIN_SHARE, MAX_SHARE))
    fig.update_layout(
        xaxis={"title": {"text": title}, "tickformat": ".1~%", "nticks": 7, "domain": [0, 0.97 - share]},
        xaxis2=axes.name_axis("Letter", letters, domain=[1 - share, 1], anchor="y", showline=False),
        yaxis=axes.name_axis("Model", names, down=True) | {"ticktext": names},
        shapes=[tint | {"xref": "paper"} for tint in lanes.tints(len(rows))],
        annotations=axes.make_note(NOTE, 50)[0],
    )  # fmt: skip
    alt, left = _describe_ends(rows, score, len(letters)), max(map(theme.text_width, names)) + 30
    return legends.add_legend(fig, alt, len(rows) * ROW + 110, zoom_key=score, left=left, below=76, wide=True)


def _name_ties(rows: pd.DataFrame, own_letters: list[list[str]]) -> list[str]:
    """For each row the models that share a letter with it, escaped; empty if there are none."""
    letter_sets, labels = [set(own) for own in own_letters], list(rows["label"])
    ties = [
        [label for other, label in enumerate(labels) if other != row and own & letter_sets[other]]
        for row, own in enumerate(letter_sets)
    ]
    return [first_few(others, MAX_NAMED) for others in ties]


def _describe_ends(rows: pd.DataFrame, score: str, lines: int) -> str:
    best, worst = (
        f"{clean_text(row['label'], 40)} ({percent(row['value'])}, letters {row['letters']})"
        for row in (rows.iloc[0], rows.iloc[-1])
    )
    words = f"{plural(len(rows), 'model')} by {clean_text(score, 40)}, the best first, from {best} to {worst}, joined"
    return f"{words} by {plural(lines, 'line')} where they cannot be distinguished."
