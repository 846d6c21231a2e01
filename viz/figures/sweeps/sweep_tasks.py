"""Accuracy on every task against the value that a sweep varies, as small multiples on one scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing
from viz.parts import legends, sweep
from viz.parts.axes import note as note_below
from viz.text import clean_text, count, identifier, percent, plural, real, safe_text

COLUMNS, PANEL, GAP, BOTTOM, LEFT = 4, 104, 34, 52, 66  # px, except the number of columns
BOUNDS = (-0.02, 1.02)  # of every y axis
BETWEEN = 0.03  # share of the width between two columns
CHARACTERS = 76  # of captions and titles in all columns together on a narrow page


@chart(
    title="Every task along a sweep",
    question="Which task pays as the value changes?",
    columns=("line", "label", "x", "point", "task", "title", "in_domain", "accuracy"),
    optional=("low", "high", "n", "correct", *sweep.REQUIRED),
    rows=("line", "x", "task"),
    picks=("point",),
    empty="No point of this sweep has been computed yet.",
)
def sweep_tasks(
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
    """A small panel for each task, in-domain ones first and in bold, all on one scale; a line for every recipe.

    line (id of a recipe), label, x (the value), point (id), task, title, in_domain (bool), accuracy, low, high
    (fractions), n, correct (images). ``values``, ``lines``, ``selected``, ``note`` and the columns meets and certainty
    are as in sweep_lines; ``required`` is a task and what its accuracy has to be at least.
    """
    table = table.assign(line=table["line"].astype(str), task=table["task"].astype(str))
    table = table[np.isfinite(table["accuracy"].to_numpy(np.float64))].sort_values("x", kind="stable")
    if table.empty:
        return theme.notice("sweep_tasks", "Nothing to draw: no task has an accuracy.", present)
    names = in_order(table.sort_values("line", kind="stable")["line"])
    look, labels = theme.looks(lines or names), dict(zip(table["line"], table["label"], strict=True))
    inside = table.groupby("task", sort=False)["in_domain"].any()
    tasks = [*(str(task) for task in inside.index[inside]), *(str(task) for task in inside.index[~inside])]
    rows_of = -(-len(tasks) // COLUMNS)
    fig, traces = Drawing(), []
    by_line = dict(iter(table.groupby(["task", "line"], sort=False)))
    by_task = dict(iter(table[table["point"].astype(str) == str(selected)].groupby("task", sort=False)))
    for place, task in enumerate(tasks):
        row, column = divmod(place, COLUMNS)
        axes = {"xaxis": _axis("x", column), "yaxis": _axis("y", row)}
        for name in names:
            if (task, name) in by_line:
                rows = by_line[task, name]
                line = _line(rows, labels[name], look[name], axes)
                traces += [line, *sweep.hollow(line, rows, size=6)]
        if task in by_task:
            chosen = by_task[task]
            traces.append(sweep.ring(chosen["x"].tolist(), chosen["accuracy"].tolist(), 12, 2.5, **axes))
    fig.add_traces(traces)
    legends.one_entry_each(fig)
    inner = rows_of * PANEL + (rows_of - 1) * GAP
    legend, top = legends.above([labels[name] for name in names])
    annotations, more = note_below(note, BOTTOM)
    columns = min(COLUMNS, len(tasks))
    _lay_out(fig, columns, rows_of, inner, title, sweep.stretch(values, table["x"].tolist()))
    titles = table.drop_duplicates("task").set_index("task")["title"]
    captions = [
        _caption(place, safe_text(titles[task], CHARACTERS // columns), bool(inside[task]), inner)
        for place, task in enumerate(tasks)
    ]
    fig.update_layout(
        legend=legend, annotations=[*captions, *annotations], shapes=_shade(tasks, required),
        margin={"l": LEFT, "r": 24, "t": top + 30, "b": BOTTOM + more},
    )  # fmt: skip
    return theme.finish(
        fig, "sweep_tasks", _alt(table, tasks, titles, title, note), inner + top + 30 + BOTTOM + more, present, title
    )


def _shade(tasks: list[str], required: tuple[str, float] | None) -> list[dict[str, Any]]:
    """The shade in the panel of the required task, if it is one."""
    if required is None or required[0] not in tasks:
        return []
    row, column = divmod(tasks.index(required[0]), COLUMNS)
    return sweep.shade(required[1], BOUNDS[0], (_axis("x", column), _axis("y", row)))


def _axis(letter: str, number: int) -> str:
    return letter if number == 0 else f"{letter}{number + 1}"


def _line(rows: pd.DataFrame, label: str, look: theme.Look, axes: dict[str, str]) -> dict[str, Any]:
    return axes | {
        "type": "scatter", "x": rows["x"].to_numpy(np.float32), "y": rows["accuracy"].to_numpy(np.float32),
        "mode": "lines+markers", "name": legends.entry(label), "legendgroup": legends.entry(label),
        "line": {"color": look.color, "width": 1.8}, "unselected": {"marker": {"opacity": 1}},
        "marker": {"symbol": look.symbol, "color": look.color, "size": 6, "line": theme.edge(0.5)},
        "customdata": [[identifier(point)] for point in rows["point"]], "hovertemplate": "%{text}<extra></extra>",
        "text": [_hover(row) for row in rows.to_dict("records")],
        "meta": {"columns": {"task": list(map(safe_text, rows["title"]))}},
    }  # fmt: skip


def _hover(row: dict[object, float]) -> str:
    text = f"<b>{safe_text(row['title'])}</b>, {safe_text(row['label'])} at {real(row['x'])}"
    text += f"<br>accuracy {percent(row['accuracy'])}"
    if np.isfinite(row.get("low", np.nan)) and np.isfinite(row.get("high", np.nan)):
        text += f" ({percent(row['low'])} to {percent(row['high'])})"
    if np.isfinite(row.get("n", np.nan)) and np.isfinite(row.get("correct", np.nan)):
        text += f"<br>{count(row['correct'])} of {count(row['n'])} images"
    return text + sweep.met(row)


def _lay_out(fig: Drawing, columns: int, rows: int, inner: float, title: str, span: list[float]) -> None:
    width, short = (1 - BETWEEN * (columns - 1)) / columns, (title.partition(": ")[2] or title).partition(" (")[0]
    for column in range(columns):
        start = column * (width + BETWEEN)
        fig.update_layout({
            f"xaxis{column + 1 if column else ''}": {
                "domain": [start, min(1.0, start + width)], "range": span, "anchor": _axis("y", rows - 1), "nticks": 4,
                "title": {"text": safe_text(short, CHARACTERS // columns), "font": {"size": theme.SMALL}},
            }
        })  # fmt: skip
    for row in range(rows):
        top = inner - row * (PANEL + GAP)
        fig.update_layout({
            f"yaxis{row + 1 if row else ''}": {
                "domain": [max(0.0, (top - PANEL) / inner), top / inner], "tickformat": ".0%", "range": list(BOUNDS),
                "title": {"text": "Accuracy<br>(%)"}, "anchor": "x", "nticks": 4,
            }
        })  # fmt: skip


def _caption(place: int, title: str, inside: bool, inner: float) -> dict[str, object]:
    row, column = divmod(place, COLUMNS)
    return {
        "text": f"<b>{title}</b>" if inside else title, "x": 0, "xref": f"{_axis('x', column)} domain",
        "xanchor": "left", "y": (inner - row * (PANEL + GAP)) / inner, "yref": "paper", "yanchor": "bottom",
        "yshift": 3, "showarrow": False, "font": {"size": theme.SMALL},
    }  # fmt: skip


def _alt(table: pd.DataFrame, tasks: list[str], titles: pd.Series, title: str, note: str) -> str:
    spread = table.groupby(["line", "task"])["accuracy"].agg(lambda values: values.max() - values.min())
    most = str(spread.groupby("task").max().idxmax())
    words = f"Accuracy on {plural(len(tasks), 'task')} against {clean_text(title, 60)}. It changes most on "
    return f"{words}{clean_text(titles[most], 40)}, by {100 * spread.max():.1f} points. {clean_text(note, 300)}".strip()
