"""Charts of scores over the values of a sweep: in and out of domain, by task, from other programs, and as a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import ChartError, Names, NothingToDraw, chart, check_option, distinct_names
from viz.drawing import Drawing, Picture, Trace, heatmap
from viz.figure_text import clean_text, plural, safe_text
from viz.hover import describe_extreme
from viz.parts import axes, legends, series, sweep_panels
from viz.parts.series import finite_rows, require_finite_rows
from viz.parts.sweep_panels import (
    LOSS_COLUMNS,
    LOSSES,
    POINT_COLUMNS,
    POINT_HOVER,
    SCORES,
    PanelGrid,
    SweepDrawing,
    SweepPanel,
)

SCORE_DETAILS = {"in_domain": ("in_low", "in_high", "n_in"), "out_of_domain": ("out_low", "out_high", "n_out")}
DETAIL_TEXT = "[{{{0}:known}} ({{{1}:percent}} to {{{2}:percent}})][{{{0}:known}}, {{{3}:count}} images]"
BEST_TEXT = "{label:plain 40}: highest H-score {h_score:percent} at {x:general}"
TASK_HOVER = (
    "<b>{title}</b>, {label} at {x:real}<br>accuracy {accuracy:percent}[ ({low:percent} to {high:percent})]"
    f"[<br>{{correct:count}} of {{n:count}} images]{POINT_HOVER}"
)
LOSS_HOVER = "<b>{{label}}</b> at {{x:real}}<br>loss {{{0}:real}}[ ({{{0}_low:real}} to {{{0}_high:real}})]"
EXTREME_TEXT = "{{score:{}}} at {{first:plain 40}} {{x:general}}, {{second:plain 40}} {{y:general}}"
KNOWN_HOVER = "<b>{label}</b><br>at ({x:real}, {y:real})"
VALUE_NAMES = {score: f"{name} (%)" for score, name in SCORES.items()} | LOSSES
REPEATED_SYMBOLS = ("triangle-up", "pentagon", "star")  # of the second known model of a kind, and later ones
KnownModel = tuple[str, float, float, str]  # label, x, y, kind


def _scores_hover(plotted: str, detailed: bool) -> str:
    """A hover template of all scores, the ``plotted`` one in bold; ``detailed`` with intervals and images."""
    lines = ""
    for score, name in (SCORES | LOSSES).items():
        text = f"{name} {{{score}:{'real' if score in LOSSES else 'percent'}}}"
        details = DETAIL_TEXT.format(score, *SCORE_DETAILS[score]) if detailed and score in SCORE_DETAILS else ""
        lines += f"<br><b>{text}{details}</b>" if score == plotted else f"[<br>{text}]{details}"
    return lines


@chart(
    title="Scores along a sweep",
    question="Which value should I use, and what does it cost out of domain?",
    columns=("line", "label", "x", "point", *SCORES),
    optional=("in_low", "in_high", "out_low", "out_high", "n_in", "n_out", "run", *LOSS_COLUMNS, *POINT_COLUMNS),
    rows=("line", "x"),
    picks=("point",),
    empty="No point of this sweep has been computed yet.",
)
def sweep_lines(
    table: pd.DataFrame,
    *,
    title: str = "Value",
    values: list[float] | None = None,
    lines: Names = None,
    selected: str | None = None,
    required: tuple[str, float] | None = None,
    pinned: Sequence[str] = (),
    note: str = "",
) -> Picture:
    """A panel for each score and loss, with a line and the band of its 95 % interval for every recipe (LwPTV, Fig. 5).

    Columns: line (id of a recipe), x (the value), point (id), loss_in and loss_out (losses in and out of domain).
    ``selected`` is a point, ``required`` a score and its required minimum; for the other options see
    ``sweep_panels.SweepDrawing``.
    """
    table = table.sort_values(["line", "x"], kind="stable")
    panels = [
        SweepPanel(
            score, rows, score,
            f"<b>{{label}}</b> at {{x:real}}{_scores_hover(score, detailed=True)}{POINT_HOVER}",
            {"title": {"text": f"{name} (%)"}, "tickformat": ".1~%", "nticks": 5}, SCORE_DETAILS.get(score, ())[:2],
        )
        for score, name in SCORES.items() if len(rows := finite_rows(table, score))
    ]  # fmt: skip
    panels += [
        SweepPanel(
            loss, rows, loss, LOSS_HOVER.format(loss), {"title": {"text": name}, "nticks": 5},
            (f"{loss}_low", f"{loss}_high"),
        )
        for loss, name in LOSSES.items() if loss in table and len(rows := finite_rows(table, loss))
    ]  # fmt: skip
    if not panels:
        raise NothingToDraw("Nothing to draw: no point has a score.")
    parts = [describe_extreme(rows, "h_score", BEST_TEXT) for _, rows in list(table.groupby("line", sort=False))[:4]]
    words = f"Scores against {clean_text(title, 60)}, {plural(len(table), 'point')}."
    words += f" {'; '.join(filter(None, parts))}." if any(parts) else ""
    return sweep_panels.draw(
        table, panels, PanelGrid(columns=1, height=150, gap=26, left=66),
        SweepDrawing(title, values, lines, note, selected, required, pinned), words,
        lambda rows, color: {"line": {"width": 2.5}},
    )  # fmt: skip


@chart(
    title="Every task along a sweep",
    question="Which task pays as the value changes?",
    columns=("line", "label", "x", "point", "task", "title", "in_domain", "accuracy"),
    optional=("low", "high", "n", "correct", "run", *POINT_COLUMNS),
    rows=("line", "x", "task"),
    picks=("point",),
    empty="No point of this sweep has been computed yet.",
)
def sweep_tasks(
    table: pd.DataFrame,
    *,
    title: str = "Value",
    values: list[float] | None = None,
    lines: Names = None,
    selected: str | None = None,
    required: tuple[str, float] | None = None,
    pinned: Sequence[str] = (),
    note: str = "",
) -> Picture:
    """A small panel for each task, in-domain ones first; ``required`` has a task's minimum. See ``sweep_lines``."""
    table = require_finite_rows(table, "accuracy", empty_reason="no task has an accuracy").sort_values(
        ["line", "x"], kind="stable"
    )
    tasks = distinct_names(table.sort_values("in_domain", ascending=False, kind="stable")["task"])
    axis = {"title": {"text": "Accuracy<br>(%)"}, "tickformat": ".0%", "range": [-0.02, 1.02], "nticks": 4}
    panels = []
    for task, rows, _ in series.rows_by_name(table, "task", tasks):
        caption = safe_text(rows["title"].iloc[0], sweep_panels.LINE_CHARACTERS // min(4, len(tasks)))
        caption = f"<b>{caption}</b>" if rows["in_domain"].any() else caption
        panels.append(SweepPanel(task, rows, "accuracy", TASK_HOVER, axis, caption=caption))
    spread = 100 * table.groupby(["task", "title", "line"])["accuracy"].agg(np.ptp)
    most = describe_extreme(spread.reset_index(), "accuracy", "{title:plain 40}, by {accuracy:decimal 1} points")
    return sweep_panels.draw(
        table, panels, PanelGrid(columns=4, height=104, gap=34, left=66),
        SweepDrawing(title, values, lines, note, selected, required, pinned),
        f"Accuracy on {plural(len(tasks), 'task')} against {clean_text(title, 60)}. It changes most on {most}.",
        lambda rows, color: {
            "size": 6, "line": {"width": 1.8}, "meta": {"columns": {"task": list(map(safe_text, rows["title"]))}},
        },
    )  # fmt: skip


@chart(
    title="Imported scores along a sweep",
    question="What did the program measure as the value changes?",
    columns=("series", "label", "x", "point", "metric", "value", "low", "high", "origin"),
    optional=("n", "better", "proportion", "mean", "source"),
    rows=("series", "x", "metric"),
    picks=("point",),
    empty="No point of this sweep has been measured yet.",
)
def sweep_given(
    table: pd.DataFrame,
    *,
    title: str = "Value",
    values: list[float] | None = None,
    series: Names = None,
    note: str = "",
) -> Picture:
    """A panel for each metric on its own scale, with a line of open diamonds for each series.

    Columns: series (id: a task, or a mean over tasks, of a recipe), mean (bool: over tasks, dashed), metric and its
    columns as in ``given_scores``. ``series`` fixes the colors; other options are as in ``sweep_lines``.
    """
    table = require_finite_rows(table, "value", empty_reason="no score is a number").sort_values("x", kind="stable")
    panels, largest = [], []
    for metric in distinct_names(table["metric"]):
        rows = table[table["metric"] == metric]
        is_share = "proportion" in rows and rows["proportion"].astype(bool).any()
        number_format = "percent" if is_share else "real"
        hover = (
            f"<b>{{label}}</b> at {{x:real}}<br>{{metric}} {{value:{number_format}}}"
            f"[ ({{low:{number_format}}} to {{high:{number_format}}})]"
            "[, n = {n:count}]<br>from {origin}"
        )
        better = next((word for word in rows.get("better", ()) if word in ("higher", "lower")), "")
        words = safe_text(metric, 24) + (" (%)" if is_share else "") + (f"<br>{better} is better" if better else "")
        axis = {"title": {"text": words}, "tickformat": ".1~%" if is_share else "", "nticks": 5}
        panels.append(SweepPanel(metric, rows, "value", hover, axis))
        largest_template = (
            f" Largest {{metric:plain 30}}: {{value:{number_format}}}, {{label:plain 30}} at {{x:general}}."
        )
        largest.append(describe_extreme(rows, "value", largest_template))
    words = f"Imported scores in {plural(len(panels), 'metric')} against {clean_text(title, 60)}."
    return sweep_panels.draw(
        table, panels, PanelGrid(columns=1, height=190, gap=30, left=76), SweepDrawing(title, values, series, note),
        words + "".join(largest[:3]),
        _diamond_style, "series",
    )  # fmt: skip


def _diamond_style(rows: pd.DataFrame, color: str) -> dict[str, Any]:
    """Open marks with their intervals; a mean is dashed."""
    mean = "mean" in rows and bool(rows["mean"].iloc[0])
    return {
        "line": {"width": 2.5, "dash": "dash"} if mean else {"width": 1.5, "dash": "solid"},
        "marker": {"symbol": "diamond-open", "size": 11, "line": {"width": 2}, "opacity": 1},
        "error_y": series.interval(rows, "value", color, thickness=1.2),
    }


@chart(
    title="Scores over two values",
    question="Where is the best combination, and how wide is the basin?",
    columns=("x", "y", "point", "in_domain"),
    optional=("out_of_domain", "h_score", "n_in", "n_out", "required", "run", *LOSS_COLUMNS, *POINT_COLUMNS),
    rows=("x", "y"),
    picks=("point",),
    empty="No point of this sweep has been computed yet.",
)
def sweep_contour(
    table: pd.DataFrame,
    *,
    value: str = "in_domain",
    titles: tuple[str, str] = ("First value", "Second value"),
    values: tuple[list[float], list[float]] | None = None,
    marks: Sequence[KnownModel] = (),
    selected: str | None = None,
    required: tuple[str, float] | None = None,
    pinned: Sequence[str] = (),
    note: str = "",
) -> Picture:
    """Contour lines between the computed points, which are dots that take clicks; missing points leave holes.

    Columns: x, y (values, or positions in the plane through three models), point (id). ``value`` names the score or the
    loss of the map, ``marks`` are (label, x, y, kind) of known models, ``values`` all values of both axes. ``required``
    is the name of a score and its required minimum; the column required has that score. The map is shaded where the
    interpolated score is too low, and points whose score is too low are crosses.
    """
    check_option("value", value, (*SCORES, *LOSSES))
    if value not in table:
        raise ChartError(f"sweep_contour draws {value!r}, which the table lacks")
    table = require_finite_rows(table, value, empty_reason="no point has this score")
    counts = table[[name for name in ("n_in", "n_out") if name in table]].sum(axis=1)
    table = table.assign(score=table[value], first=titles[0], second=titles[1], images=counts.where(counts > 0))
    points = _draw_points(table, value)
    failing = sweep_panels.failing_marks(points, table, symbol="x-thin", size=8, line={"color": theme.INK, "width": 2})
    known_models = pd.DataFrame(list(marks), columns=["label", "x", "y", "kind"])
    repeats = known_models.groupby("kind").cumcount()  # 1 for the second expert
    shaded, pins = _shade_failing(table, required), series.pinned_marks(table, "x", "y", pinned, showlegend=False)
    fig = Drawing([_draw_map(table, value), *shaded, points, *failing, *pins, *sweep_panels.tie_rings(table, "y")])
    fig.add_traces(_draw_known_model(known_models.iloc[[index]], repeat) for index, repeat in enumerate(repeats))
    selected_rows = table[table["point"] == selected]
    if len(selected_rows):
        fig.add_trace(series.ring(selected_rows["x"], selected_rows["y"], "Chosen point"))
    for index, (name, update) in enumerate((("x", fig.update_xaxes), ("y", fig.update_yaxes))):
        ends = [*sweep_panels.axis_range(values[index] if values else None, table[name]), *known_models[name]]
        update(title={"text": safe_text(titles[index], 60)}, range=[min(ends), max(ends)], showgrid=False)
    notes, note_height = axes.make_note(note, 56)
    fig.update_layout(annotations=notes, plot_bgcolor=theme.PANEL)
    is_loss = value in LOSSES
    text = EXTREME_TEXT.format("real" if is_loss else "percent")
    best = f"{'lowest' if is_loss else 'highest'} {describe_extreme(table.iloc[::-1], 'score', text, smallest=is_loss)}"
    words = f"{VALUE_NAMES[value]} at {plural(len(table), 'point')}: {best}. {clean_text(note, 300)}".strip()
    return legends.add_legend(
        fig, words, 502 + note_height, zoom_key=value, left=66, right=30, below=56 + note_height, gap=26
    )


def _make_grid(table: pd.DataFrame, value: str) -> dict[str, Any]:
    """The fields of a trace with the numbers of a column over x and y."""
    grid = table.pivot(index="y", columns="x", values=value).sort_index().sort_index(axis=1)
    x, y = (np.asarray(values, np.float32) for values in (grid.columns, grid.index))
    return {"x": x, "y": y, "z": grid.to_numpy(np.float32)}


def _draw_map(table: pd.DataFrame, value: str) -> Trace:
    low, high = float(table[value].min()), float(table[value].max())
    pad = 0 if high > low else 0.01
    common = _make_grid(table, value) | {
        "colorscale": theme.SEQUENTIAL, "zmin": low - pad, "zmax": high + pad, "hoverinfo": "skip",
        "name": VALUE_NAMES[value], "showlegend": False, "reversescale": value in LOSSES,
        "colorbar": {"title": {"text": VALUE_NAMES[value].replace(" (%)", "<br>(%)")}, "thickness": 12}
        | ({} if value in LOSSES else {"tickformat": ".1~%"}),
    }  # fmt: skip
    if min(common["z"].shape) < 2:
        return heatmap(**common)
    lines = {"coloring": "heatmap", "showlabels": True,
             "labelfont": {"size": theme.SMALL_SIZE, "color": theme.ON_LIGHT},
             "labelformat": ".2g" if value in LOSSES else ".0%"}  # fmt: skip
    line = {"color": theme.tint(theme.INK, 0.55), "width": 1}
    return common | {"type": "contour", "contours": lines, "line": line, "ncontours": 9}


def _shade_failing(table: pd.DataFrame, required: tuple[str, float] | None) -> list[Trace]:
    """A shade over the part of the map that does not meet the requirement, interpolated like the map."""
    grid = _make_grid(table, "required") if required is not None and "required" in table else None
    if required is None or grid is None or min(grid["z"].shape) < 2 or not np.isfinite(grid["z"]).any():
        return []
    return [{
        "type": "contour", **grid, "contours": {"type": "constraint", "operation": ">", "value": required[1]},
        "fillcolor": theme.SHADE, "line": {"color": theme.INK, "width": 2, "dash": "dash"}, "name": "Requirement",
        "hoverinfo": "skip", "showlegend": False,
    }]  # fmt: skip


def _draw_points(table: pd.DataFrame, value: str) -> Trace:
    """The computed points."""
    position = "{first:text 40} {x:real}<br>{second:text 40} {y:real}"
    return series.marks(
        table, "x", "y", theme.MarkStyle(theme.GLASS, "circle"),
        f"{position}{_scores_hover(value, detailed=False)}[<br>{{images:count}} images]{POINT_HOVER}",
        picks=("point",),
        formats=sweep_panels.TEXT_FORMATS, marker={"line": theme.edge(0.6)}, name="Computed points", showlegend=False,
        meta={"columns": {VALUE_NAMES[value]: ((1 if value in LOSSES else 100) * table[value]).tolist()}},
    )  # fmt: skip


def _draw_known_model(row: pd.DataFrame, repeat: int) -> Trace:
    """A known model, edged in white to be visible on every color; ``repeat`` marks of its kind are there already."""
    mark_style = theme.KINDS.get(row["kind"].iloc[0], theme.KINDS["merge"])
    name = legends.legend_name(row["label"].iloc[0])
    symbols = (mark_style.symbol.removesuffix("-open"), *REPEATED_SYMBOLS)
    mark_style = mark_style._replace(symbol=symbols[repeat % len(symbols)])
    return series.marks(
        row, "x", "y", mark_style, KNOWN_HOVER, size=13, marker={"line": {"color": theme.GROUND, "width": 2}},
        name=name, legendgroup=name, **series.NO_POINTER,
    )  # fmt: skip
