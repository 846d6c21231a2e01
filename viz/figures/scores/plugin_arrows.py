"""An arrow for each merge, from the run without an edit to the run with it in front (LwPTV, Fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import ChartError, chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends, plane
from viz.parts.labels import PlotArea, place_labels
from viz.parts.plane import LEFT, RIGHT, Pixels
from viz.text import clean_text, identifier, percent, plural, safe_text

PLAIN, PLUGGED = "plain", "plugged"  # the two ends of a pair
REFERENCES = {"pretrained": "Pretrained", "individual": "Individual experts", "multitask": "Trained on all tasks"}
RISES, FALLS = theme.Look("#0072B2", "circle"), theme.Look("#D55E00", "diamond")  # the end with the edit, by H-score
ALONE = theme.Look("#5F6B7A", "circle-open")
FAINT = "rgba(95, 107, 122, 0.35)"  # intervals: two for every merge
INNER, BOTTOM = 500, 82
WIDTHS = (500, 1200)  # px: labels do not overlap on a page of either width
FAR = 0.5  # share of the range of all ends; starts farther outside would squeeze the others into a corner
MOST = 3  # starts outside that are named


@chart(
    title="An edit in front of a merge",
    question="Which merges does the edit help, and at what cost?",
    columns=("pair", "kind", "run", "label", "in_domain", "out_of_domain", "h_score"),
    optional=("in_low", "in_high", "out_low", "out_high", "n_in", "n_out"),
    rows=("pair", "kind"),
    picks=("run",),
    empty="No merge has been run both without and with this edit.",
)
def plugin_arrows(table: pd.DataFrame, *, edit: str = "the edit", present: bool = False) -> go.Figure:
    """An arrow per pair over curves of equal H-score, with an open mark at its start and a filled one at its end.

    pair (the merge's name, drawn beside its end), kind (plain and plugged, the ends of a pair; pretrained, individual,
    multitask), run (id), label, in_domain, out_of_domain, h_score (fractions), in_low … out_high (intervals), n_in,
    n_out (images). References have open marks. A pair without both ends is left out; a note says so, and names the
    arrows that start far outside. ``edit`` is the edit's name in the description.
    """
    if unknown := sorted(set(table["kind"].astype(str)) - {PLAIN, PLUGGED, *REFERENCES}):
        raise ChartError(f"plugin_arrows does not know the kind {unknown[0]!r}")
    drawn, left_out = _whole_pairs(table)
    if drawn.empty:
        return theme.notice("plugin_arrows", f"Nothing to draw: {plane.left_out_note(left_out)}", present)
    pairs = _pairs(drawn)
    far = _far(drawn)
    x_range, y_range = (plane.window(drawn[~far], side) for side in ("in", "out"))
    scales = [Pixels(x_range, y_range, width - LEFT - RIGHT, INNER) for width in WIDTHS]

    curves, curve_labels = plane.iso_curves(x_range, y_range)
    traces = [*curves, *_marks(drawn, pairs)]
    ends = drawn[drawn["kind"].astype(str) != PLAIN].reset_index(drop=True)
    views = [_view(drawn, ends, pairs, curve_labels, to_pixel) for to_pixel in scales]
    points = list(zip(ends["in_domain"], ends["out_of_domain"], strict=True))
    labels = place_labels([safe_text(name, 26) for name in ends["pair"]], points, views)
    arrows = [
        plane.arrow(_entering(start, end, x_range, y_range), end, _look(start, end).color)
        for start, end in pairs.values()
    ]
    outside = _outside(drawn[far])
    notes = plane.footnote(left_out, len(ends) - len(labels), outside)
    fig = Drawing(traces)
    plane.axes(fig, x_range, y_range, drawn)
    legend, top = legends.above([str(trace["name"]) for trace in traces if trace.get("showlegend", True)])
    fig.update_layout(
        annotations=[*curve_labels, *arrows, *labels, *notes],
        legend=legend,
        margin={"l": LEFT, "r": RIGHT, "t": top + 10, "b": BOTTOM + theme.LINE_HEIGHT * len(outside)},
    )
    height = INNER + top + 10 + BOTTOM + theme.LINE_HEIGHT * len(outside)
    return theme.finish(fig, "plugin_arrows", _alt(pairs, left_out, edit), height, present, edit)


Row = Mapping[Any, Any]


def _whole_pairs(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows that are drawn, and the others, which lack scores or the other end."""
    complete, left_out = plane.split(table)
    kind = complete["kind"].astype(str)
    ends = complete[kind.isin([PLAIN, PLUGGED])]
    both = ends.groupby(ends["pair"].astype(str))["kind"].nunique()
    single = kind.isin([PLAIN, PLUGGED]) & ~complete["pair"].astype(str).isin(both[both == 2].index)
    return complete[~single].reset_index(drop=True), pd.concat([left_out, complete[single]])


def _pairs(drawn: pd.DataFrame) -> dict[str, tuple[Row, Row]]:
    """Pair -> its row without and its row with the edit."""
    rows = {(str(row["pair"]), str(row["kind"])): row for row in drawn.to_dict("records")}
    names = in_order(drawn[drawn["kind"].astype(str) == PLUGGED]["pair"])
    return {name: (rows[name, PLAIN], rows[name, PLUGGED]) for name in names}


def _far(drawn: pd.DataFrame) -> pd.Series[bool]:
    """Which rows are starts far outside the range of all ends."""
    starts = drawn["kind"].astype(str) == PLAIN
    far = pd.Series(False, drawn.index)
    for name in ("in_domain", "out_of_domain"):
        ends = drawn[~starts][name]
        room = FAR * max(float(ends.max() - ends.min()), 0.1)
        far |= starts & ~drawn[name].between(ends.min() - room, ends.max() + room)
    return far


def _entering(start: Row, end: Row, x_range: list[float], y_range: list[float]) -> Row:
    """The point where an arrow's visible part begins: its start, or where it enters the plot."""
    x, y, dx, dy = (
        end["in_domain"], end["out_of_domain"], start["in_domain"] - end["in_domain"],
        start["out_of_domain"] - end["out_of_domain"],
    )  # fmt: skip
    limits = [(bound - at) / step for at, step, ends in ((x, dx, x_range), (y, dy, y_range)) if step for bound in ends]
    share = min([1.0, *(limit for limit in limits if limit > 0)])
    return {"in_domain": x + share * dx, "out_of_domain": y + share * dy}


def _outside(far: pd.DataFrame) -> list[str]:
    """Lines that say where arrows from outside the plot start."""
    lines = [
        f"{safe_text(row['pair'], 26)} starts outside, at {percent(row['in_domain'])} in, "
        f"{percent(row['out_of_domain'])} out"
        for row in far.to_dict("records")
    ]
    rest = len(lines) - MOST
    return lines if rest <= 0 else [*lines[:MOST], f"and {rest} more"]


def _look(start: Row, end: Row) -> theme.Look:
    return RISES if end["h_score"] >= start["h_score"] else FALLS


def _marks(drawn: pd.DataFrame, pairs: Mapping[str, tuple[Row, Row]]) -> list[Trace]:
    """A trace for the starts, one for the ends where the H-score rises and one where it falls, one per reference."""
    kind = drawn["kind"].astype(str)
    falls = drawn["pair"].astype(str).isin([name for name, ends in pairs.items() if _look(*ends) is FALLS])
    ends = kind == PLUGGED
    groups = [
        (drawn[kind == PLAIN], "Without the edit", ALONE),
        (drawn[ends & ~falls], "With it, H-score not lower", RISES),
        (drawn[ends & falls], "With it, H-score lower", FALLS),
        *((drawn[kind == name], title, theme.KINDS[name]) for name, title in REFERENCES.items()),
    ]
    return [_trace(rows, name, look, pairs) for rows, name, look in groups if len(rows)]


def _trace(rows: pd.DataFrame, name: str, look: theme.Look, pairs: Mapping[str, tuple[Row, Row]]) -> Trace:
    filled = not look.symbol.endswith("open")
    return scatter(
        x=rows["in_domain"].to_numpy(np.float32), y=rows["out_of_domain"].to_numpy(np.float32), mode="markers",
        name=name, legendgroup=name, customdata=[[identifier(run)] for run in rows["run"]],
        marker={
            "symbol": look.symbol, "color": look.color, "size": 11,
            "line": theme.edge(0.8) if filled else {"color": look.color, "width": 2},
        },
        unselected={"marker": {"opacity": 1}}, text=[_hover(row, pairs) for row in rows.to_dict("records")],
        hovertemplate="%{text}<extra></extra>",
        error_x=plane.bars(rows, "in", FAINT), error_y=plane.bars(rows, "out", FAINT),
    )  # fmt: skip


def _hover(row: Row, pairs: Mapping[str, tuple[Row, Row]]) -> str:
    lines = [f"<b>{safe_text(row['label'])}</b>", *plane.scores_in_words(row)]
    if row["kind"] == PLUGGED:
        start, end = pairs[str(row["pair"])]
        gains = (100 * (end[name] - start[name]) for name in ("in_domain", "out_of_domain", "h_score"))
        lines.append("change: in-domain {:+.1f}, out-of-domain {:+.1f}, H-score {:+.1f} points".format(*gains))
    return "<br>".join(lines)


def _view(
    drawn: pd.DataFrame,
    ends: pd.DataFrame,
    pairs: Mapping[str, tuple[Row, Row]],
    curve_labels: list[dict[str, Any]],
    to_pixel: Pixels,
) -> PlotArea:
    """The labeled marks in px, and the boxes that labels must leave free: curves' labels, arrows, marks at starts."""
    taken = [plane.label_box(to_pixel(label["x"], label["y"])) for label in curve_labels]
    for start, end in pairs.values():
        visible = (_entering(start, end, to_pixel.x_range, to_pixel.y_range), end)
        taken += plane.arrow_boxes(*(to_pixel(row["in_domain"], row["out_of_domain"]) for row in visible))
    taken += [plane.mark_box(row, to_pixel) for row in drawn[drawn["kind"].astype(str) == PLAIN].to_dict("records")]
    marks = [to_pixel(row["in_domain"], row["out_of_domain"]) for row in ends.to_dict("records")]
    return PlotArea(marks, (to_pixel.width, to_pixel.height), taken)


def _alt(pairs: Mapping[str, tuple[Row, Row]], left_out: pd.DataFrame, edit: str) -> str:
    gains = {name: end["h_score"] - start["h_score"] for name, (start, end) in pairs.items()}
    sentence = f"{plural(len(pairs), 'merge')} without and with {clean_text(edit, 40)} in front."
    if gains:
        best = max(gains, key=lambda name: gains[name])
        rises = sum(gain >= 0 for gain in gains.values())
        sentence += f" The H-score does not fall for {rises}; the largest change is {clean_text(best)}'s, "
        sentence += f"{100 * gains[best]:+.1f} points."
    return sentence + (f" {plural(len(left_out), 'row')} left out." if len(left_out) else "")
