"""Charts of a tuning beside random search and a grid: history, front, importances, slices, and all values at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from viz import theme
from viz.chart import chart, distinct_names
from viz.drawing import Drawing, Picture, Trace
from viz.figure_text import clean_text, plural, safe_text
from viz.hover import describe_extreme
from viz.parts import axes, legends, series

SEARCH_STYLES: Mapping[str, tuple[str, theme.MarkStyle]] = {  # drawn in this order
    "grid": ("Grid", theme.MarkStyle(theme.REFERENCE, "square")),
    "random": ("Random search", theme.MarkStyle(theme.ORANGE, "triangle-up")),
    "tune": ("Tuning", theme.MarkStyle(theme.BLUE, "circle")),
}
NAMED_SEARCH: dict[str, Callable[[Any], str]] = {
    "search": lambda key: SEARCH_STYLES[key][0] if key in SEARCH_STYLES else safe_text(key)
}
VALUES_TEXT = "[<br>{values}][<br>run {run}]"
DIMENSION_HOVER = (
    f"<b>{{label}}</b> {{text}}<br>{{search:search}}, trial {{trial:count}}: {{value:percent}}{VALUES_TEXT}"
)
EMPTY = "No point of this tuning has been computed yet."
MAX_PANELS, PANELS_IN_ROW, PANEL_HEIGHT, PANEL_GAP = 24, 3, 130, 62  # px
MAX_PARALLEL = 24
BEST_SHARE = 0.1  # of the trials that are drawn in color


def _mark_searches(table: pd.DataFrame, x: str, y: str, hover: str, size: float = 8, **fields: Any) -> list[Trace]:
    """Marks of the trials of each search, which share the search's entry in the legend."""
    return [
        series.marks(
            rows, x, y, style, hover, picks=("point",), formats=NAMED_SEARCH, size=size, name=name,
            legendgroup=name, **fields,
        )
        for search, (name, style) in SEARCH_STYLES.items()
        if len(rows := table[table["search"] == search])
    ]  # fmt: skip


@chart(
    title="Best so far",
    question="Does the search find better points than chance, and how soon?",
    columns=("search", "trial", "value", "best", "point"),
    optional=("values", "run"),
    rows=("search", "trial"),
    picks=("point",),
    empty=EMPTY,
)
def tune_history(table: pd.DataFrame, *, title: str = "Score", selected: str | None = None, note: str = "") -> Picture:
    """Every trial of each search as a mark, and its best score so far as a line of steps.

    Columns: search (tune, random or grid), trial (from 1), value and best (fractions), point, values (in words).
    """
    table = series.require_finite_rows(table, "value", empty_reason="no trial has a score")
    hover = "<b>{search:search}</b>, trial {trial:count}<br>{value:percent}, best so far {best:percent}" + VALUES_TEXT
    fig = Drawing(_mark_searches(table, "trial", "value", hover, 6, opacity=0.55))
    for search, (name, style) in SEARCH_STYLES.items():
        rows = table[table["search"] == search].sort_values("trial")
        if len(rows):
            fig.add_trace(series.line(
                rows["trial"], rows["best"], name, {"color": style.color, "width": 3, "shape": "hv"}, legendgroup=name,
                showlegend=False,
            ))  # fmt: skip
    fig.update_xaxes(title={"text": "Trial"})
    fig.update_yaxes(title={"text": f"{safe_text(title, 40)} (%)"}, tickformat=".1~%")
    ends = [
        f"{SEARCH_STYLES[search][0]} {describe_extreme(rows, 'value', '{value:percent} at trial {trial:count}')}"
        for search in SEARCH_STYLES if len(rows := table[table["search"] == search])
    ]  # fmt: skip
    return _finish(fig, table, "trial", "value", selected, note, f"{clean_text(title, 40)}: {'; '.join(ends)}.")


@chart(
    title="Front of the objectives",
    question="Which points are best if both objectives count?",
    columns=("search", "trial", "x", "y", "on_front", "point"),
    optional=("z", "values", "run"),
    rows=("search", "trial"),
    picks=("point",),
    empty=EMPTY,
)
def tune_front(
    table: pd.DataFrame, *, titles: Sequence[str] = ("First", "Second"), selected: str | None = None, note: str = ""
) -> Picture:
    """Every trial by two objectives, those of the front larger and with their names.

    Columns: x, y, z (objectives, fractions), on_front (bool: no trial is at least as good by all, and better by one).
    ``titles`` are those of x, y and z.
    """
    table = series.require_finite_rows(table, "x", "y", empty_reason="no trial has both scores")
    third = f"[<br>{safe_text(titles[2], 40)} {{z:percent}}]" if len(titles) > 2 else ""
    hover = (
        f"<b>{{search:search}}</b>, trial {{trial:count}}<br>{safe_text(titles[0], 40)} {{x:percent}}"
        f"<br>{safe_text(titles[1], 40)} {{y:percent}}{third}{VALUES_TEXT}"
    )
    front = table[table["on_front"].astype(bool)].sort_values(["x", "y"])
    fig = Drawing(_mark_searches(table.drop(front.index), "x", "y", hover, 6, opacity=0.45))
    named = {str(trace["name"]) for trace in fig.data}
    for trace in _mark_searches(front, "x", "y", hover, 12):
        fig.add_trace(trace | {"showlegend": trace["name"] not in named, "meta": {"front": True}})
    if len(titles) < 3:
        line = {"color": theme.INK, "width": 1.2, "dash": "dot", "shape": "vh"}
        fig.add_trace(series.line(front["x"], front["y"], "Front", line, legendgroup="Front"))
    for axis, label in ((fig.update_xaxes, titles[0]), (fig.update_yaxes, titles[1])):
        axis(title={"text": f"{safe_text(label, 40)} (%)"}, tickformat=".1~%")
    words = f"{plural(len(front), 'trial')} of {len(table):,} on the front of {clean_text(' and '.join(titles), 90)}."
    return _finish(fig, table, "x", "y", selected, note, words)


@chart(
    title="Importances",
    question="Which of the values matters most?",
    columns=("objective", "label", "importance"),
    rows=("objective", "label"),
    empty="The importances appear as soon as two trials differ in their scores.",
)
def tune_importances(table: pd.DataFrame, *, note: str = "") -> Picture:
    """A bar for each dimension and objective; those of an objective add up to 1.

    Columns: objective (its name), label (of the dimension), importance (a fraction).
    """
    sums = table.groupby("label", sort=False)["importance"].sum().sort_values(ascending=False)
    names = distinct_names(sums.index[:MAX_PANELS])
    table = table[table["label"].astype(str).isin(names)]
    styles = theme.mark_styles(distinct_names(table["objective"]))
    fig = Drawing([
        series.bars(
            rows.assign(row=rows["label"].astype(str).map(names.index)), "importance", "row", styles[objective].color,
            "<b>{label}</b>, {objective}<br>{importance:percent} of the importance", orientation="h",
            name=safe_text(objective, 40), legendgroup=safe_text(objective, 40), showlegend=len(styles) > 1,
        )
        for objective in styles if len(rows := table[table["objective"].astype(str) == objective])
    ])  # fmt: skip
    fig.update_layout(barmode="group", bargap=0.3)
    fig.update_xaxes(title={"text": "Importance (%)"}, tickformat=".0%", rangemode="tozero")
    fig.update_yaxes(**axes.name_axis("Value", names, 30, down=True))
    top = describe_extreme(table, "importance", "{label:plain 60} has the largest, {importance:percent}")
    left = axes.names_width(names, 30, 60) + 44
    notes, below = axes.make_note(note, 50)
    fig.update_layout(annotations=notes)
    height = 80 + max(34, 18 * len(styles)) * max(3, len(names)) + below
    return legends.add_legend(fig, f"Importances: {top}.", height, left=left, below=56 + below)


@chart(
    title="Slices",
    question="Where in each range are the good points?",
    columns=("search", "trial", "name", "label", "number", "text", "value", "point"),
    optional=("values", "run"),
    rows=("search", "trial", "name"),
    picks=("point",),
    empty=EMPTY,
)
def tune_slices(table: pd.DataFrame, *, title: str = "Score", selected: str | None = None, note: str = "") -> Picture:
    """A panel for each dimension: the score of every trial against its value there.

    Columns: name and label (of the dimension), number (the value, or the position of a choice), text (the value).
    """
    table = series.require_finite_rows(table, "value", "number", empty_reason="no trial has a score")
    names = distinct_names(table["name"])[:MAX_PANELS]
    row_count = -(-len(names) // PANELS_IN_ROW)
    across = axes.panel_domains(min(PANELS_IN_ROW, len(names)), 0.08)
    down, inner = axes.stack_panels([PANEL_HEIGHT] * row_count, PANEL_GAP)
    low, high = float(table["value"].min()), float(table["value"].max())
    pad = 0.06 * max(high - low, 0.01)
    fig = Drawing()
    for index, name in enumerate(names):
        rows, number = table[table["name"].astype(str) == name], "" if not index else str(index + 1)
        for trace in _mark_searches(rows, "number", "value", DIMENSION_HOVER, 6, opacity=0.7):
            fig.add_trace(trace | {"xaxis": f"x{number}", "yaxis": f"y{number}"})
        picked = rows[rows["point"] == selected]
        fig.add_trace(
            series.ring(picked["number"], picked["value"], "selected", 14, xaxis=f"x{number}", yaxis=f"y{number}")
        )
        choices = rows.drop_duplicates("number").sort_values("number") if _is_choice(rows) else rows.head(0)
        ticks = {"tickmode": "array", "tickvals": choices["number"].tolist(),
                 "ticktext": [safe_text(text, 12) for text in choices["text"]]}  # fmt: skip
        fig.update_layout({
            f"xaxis{number}": {"domain": across[index % PANELS_IN_ROW], "anchor": f"y{number}",
                               "title": {"text": safe_text(rows["label"].iloc[0], 26)},
                               **(ticks if len(choices) else {"nticks": 4})},
            f"yaxis{number}": {"domain": down[index // PANELS_IN_ROW], "anchor": f"x{number}", "nticks": 4,
                               "range": [low - pad, high + pad], "tickformat": ".0~%",
                               "title": {"text": f"{safe_text(title, 14)} (%)"}},
        })  # fmt: skip
    legends.merge_entries(fig)
    notes, below = axes.make_note(note, 50)
    fig.update_layout(annotations=notes)
    best = describe_extreme(table, "value", "the best trial has {value:percent}")
    words = f"{clean_text(title, 40)} against {plural(len(names), 'value')}; {best}."
    return legends.add_legend(fig, words, inner + 90 + below, left=60, below=56 + below)


def _is_choice(rows: pd.DataFrame) -> bool:
    """Whether the values of a dimension are choices: texts, or numbers of other texts."""
    return bool(pd.to_numeric(rows["text"], errors="coerce").isna().any())


@chart(
    title="All values of every trial",
    question="What do the best trials have in common?",
    columns=("search", "trial", "name", "label", "text", "x", "value", "point"),
    optional=("values", "run"),
    rows=("search", "trial", "name"),
    picks=("point",),
    empty=EMPTY,
)
def tune_parallel(table: pd.DataFrame, *, title: str = "Score", selected: str | None = None, note: str = "") -> Picture:
    """A line for each trial across its values, each between 0 and 1 of its range; the best tenth is in color.

    Columns: x (the position of the value in its range, or among its choices), text (the value).
    """
    table = series.require_finite_rows(table, "value", "x", empty_reason="no trial has a score")
    names = distinct_names(table["name"])[:MAX_PARALLEL]
    table = table[table["name"].astype(str).isin(names)].assign(column=table["name"].astype(str).map(names.index))
    trials = table.drop_duplicates(["search", "trial"])
    limit = float(trials["value"].nlargest(max(1, round(BEST_SHARE * len(trials)))).iloc[-1])
    groups = [
        ("Other trials", table["value"] < limit, theme.MarkStyle(theme.LEVEL_COLOR, "circle"), 0.8),
        ("Best tenth", table["value"] >= limit, theme.MarkStyle(theme.BLUE, "circle"), 1.8),
    ]
    fig = Drawing()
    for group, mask, style, width in groups:
        ordered = table[mask].sort_values("column", kind="stable")
        for index, (_, rows) in enumerate(ordered.groupby(["search", "trial"], sort=False)):
            fig.add_trace(series.marks(
                rows, "column", "x", style, DIMENSION_HOVER, picks=("point",), formats=NAMED_SEARCH,
                size=5, line={"width": width}, name=group, legendgroup=group, showlegend=index == 0,
                meta={"columns": {"score": (100 * rows["value"]).tolist()}},
            ))  # fmt: skip
    labels = table.drop_duplicates("name").set_index("column")["label"]
    fig.update_xaxes(**axes.name_axis("Value", [labels[index] for index in range(len(names))], 22, tickangle=-35))
    fig.update_yaxes(title={"text": "Position in the range (%)"}, range=[-0.05, 1.05], tickformat=".0%")
    words = f"{plural(len(trials), 'trial')} across {plural(len(names), 'value')}; the best tenth has at least "
    words += f"{100 * limit:.1f} % {clean_text(title, 40)}."
    return _finish(fig, table, "column", "x", selected, note, words, below=120)


def _finish(
    fig: Drawing, table: pd.DataFrame, x: str, y: str, selected: str | None, note: str, words: str, below: float = 56
) -> Picture:
    """The picture with a ring around the selected point, and a note."""
    picked = table[table["point"] == selected]
    fig.add_trace(series.ring(picked[x], picked[y], "selected"))
    notes, space = axes.make_note(note, below - 6)
    fig.update_layout(annotations=notes)
    return legends.add_legend(fig, words, 320 + below + space, left=66, below=below + space)
