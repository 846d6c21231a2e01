"""Every run's in-domain against its out-of-domain accuracy, over curves of equal H-score (LwPTV, Fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import ChartError, chart
from viz.drawing import Drawing, Trace, scatter
from viz.parts import plane
from viz.parts.labels import PlotArea, place_labels
from viz.parts.plane import LEFT, RIGHT, WIDTHS, Pixels
from viz.text import clean_text, identifier, percent, plural, safe_text

KIND_NAMES: Mapping[str, str] = {
    "pretrained": "Pretrained",
    "individual": "Individual experts",
    "multitask": "Trained on all tasks",
    "merge": "Merge",
    "per_task": "Merge that gives one model per task ‡",
    "modules": "Merge with a module per task ‡",
    "paper": "Quoted from a paper, not measured here",
}
MERGES, REFERENCES, PAPER = ("merge", "per_task", "modules"), ("pretrained", "individual", "multitask"), "paper"
SIGNS = {"per_task": " ‡", "modules": " ‡", "paper": " (paper)"}  # beside the label
ADAPTS = "Merge that adapts on test data †"
HEIGHT, TOP, BOTTOM = 560, 50, 56
LABEL = 36  # characters of a label beside a mark
LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "tracegroupgap": 0}
SET = ("experts", "tasks_in", "tasks_out")  # whose tasks are in domain, and how many tasks are in and out of it


@chart(
    title="In-domain against out-of-domain",
    question="Which merge is good in-domain without losing out-of-domain?",
    columns=("run", "label", "kind", "in_domain", "out_of_domain", "h_score"),
    optional=("in_low", "in_high", "out_low", "out_high", "n_in", "n_out", "adapts_on_test", "source", *SET),
    rows=("run",),
    picks=("run",),
    empty="No run has been evaluated yet.",
)
def id_ood_scatter(
    table: pd.DataFrame,
    *,
    selected: str | None = None,
    arrows: pd.DataFrame | Sequence[tuple[str, str]] = (),
    present: bool = False,
) -> go.Figure:
    """A mark for each run: open for references, filled for merges, a cross with its own legend for a paper's numbers.

    run (id), label, kind (pretrained, individual, multitask, merge, per_task, modules, paper), in_domain,
    out_of_domain, h_score (fractions; a row without one of them is left out, and a note says so), in_low … out_high
    (interval, fractions), n_in, n_out (images), tasks_in, tasks_out (numbers of tasks), experts (whose tasks are in
    domain, with commas; one set of them, or the marks could not be compared), adapts_on_test (bool), source (of a
    paper's row). ``arrows`` are pairs (from run, to run).
    """
    _check_kinds(table)
    _check_experts(table)
    drawn, left_out = plane.split(table)
    if drawn.empty:
        return theme.notice("id_ood_scatter", f"Nothing to draw: {plane.left_out_note(left_out)}", present)
    x_range, y_range = plane.window(drawn, "in"), plane.window(drawn, "out")
    pairs = _pairs(arrows, table, drawn)
    bottom = BOTTOM + 26
    quoted = bool((drawn["kind"].astype(str) == "paper").any())
    top = TOP + (20 if quoted else 0)
    scales = [Pixels(x_range, y_range, width - LEFT - RIGHT, HEIGHT - top - bottom) for width in WIDTHS]

    curves, curve_labels = plane.iso_curves(x_range, y_range)
    traces = [*curves, *_marks(drawn)]
    views = [_view(drawn, pairs, curve_labels, to_pixel) for to_pixel in scales]
    labels = _direct_labels(drawn, views, {end for pair in pairs for end in pair})
    records = drawn.to_dict("records")
    drawn_arrows = [plane.arrow(records[start], records[end]) for start, end in pairs]
    annotations = [*curve_labels, *drawn_arrows, *labels, *plane.footnote(left_out, len(drawn) - len(labels))]
    fig = Drawing(traces)
    plane.axes(fig, x_range, y_range, drawn)
    fig.update_layout(
        annotations=annotations,
        shapes=_ring(drawn, selected),
        legend=LEGEND | {"y": 1, "yanchor": "bottom"},
        legend2=LEGEND | {"y": 1, "yanchor": "top", "yref": "container"},
        margin={"l": LEFT, "r": RIGHT, "t": top, "b": bottom},
    )
    return theme.finish(fig, "id_ood_scatter", _alt(drawn, left_out), HEIGHT, present)


def _check_kinds(table: pd.DataFrame) -> None:
    if unknown := sorted(set(table["kind"].astype(str)) - set(KIND_NAMES)):
        raise ChartError(f"id_ood_scatter does not know the kind {unknown[0]!r}; it takes {', '.join(KIND_NAMES)}")


def _check_experts(table: pd.DataFrame) -> None:
    """Averages over the tasks of different experts are of different images, and no picture of both can be read."""
    if "experts" in table:
        sets = {frozenset(str(names).split(", ")) for names in table["experts"].dropna()}
        if len(sets) > 1:
            raise ChartError(f"id_ood_scatter takes runs of one set of experts; the table has {len(sets)} sets")


def _marks(drawn: pd.DataFrame) -> list[Trace]:
    """One trace for each kind of run, merges that adapt on test data apart."""
    adapts = _adapts(drawn)
    traces = []
    for kind, look in theme.KINDS.items():
        for adapted in (False, True):
            rows = drawn[(drawn["kind"].astype(str) == kind) & (adapts == adapted)]
            if rows.empty:
                continue
            name = ADAPTS if adapted and kind == "merge" else KIND_NAMES[kind] + (" †" if adapted else "")
            filled = kind in MERGES
            line = theme.edge(3.5 if adapted else 1) if filled else {"color": look.color, "width": 2.5}
            traces.append(
                scatter(
                    x=rows["in_domain"].to_numpy(np.float32), y=rows["out_of_domain"].to_numpy(np.float32),
                    mode="markers", name=name, **_legend_group(kind),
                    marker={"symbol": look.symbol, "color": look.color, "size": 12, "line": line, "opacity": 1},
                    unselected={"marker": {"opacity": 1}}, customdata=[[identifier(run)] for run in rows["run"]],
                    text=[_hover(row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
                    error_x=plane.bars(rows, "in", look.color), error_y=plane.bars(rows, "out", look.color),
                )
            )  # fmt: skip
    return traces


def _legend_group(kind: str) -> dict[str, Any]:
    if kind == "paper":
        return {"legend": "legend2", "legendgroup": "papers"}
    return {"legend": "legend"}


def _adapts(drawn: pd.DataFrame) -> npt.NDArray[np.bool_]:
    if "adapts_on_test" not in drawn:
        return np.zeros(len(drawn), bool)
    return (drawn["adapts_on_test"] == True).to_numpy(bool)  # noqa: E712 - a missing value is not True


def _hover(row: Mapping[Any, Any]) -> str:
    lines = [f"<b>{safe_text(row['label'])}</b>", *plane.scores_in_words(row)]
    lines.append(KIND_NAMES[str(row["kind"])])
    if isinstance(experts := row.get("experts"), str) and experts:
        lines.append(f"in domain: {safe_text(experts, 100)}")
    if row.get("adapts_on_test") is True or row.get("adapts_on_test") is np.True_:
        lines.append("† adapts on test data")
    if isinstance(source := row.get("source"), str) and source:
        lines.append(f"source: {safe_text(source)}")
    return "<br>".join(lines)


def _pairs(
    arrows: pd.DataFrame | Sequence[tuple[str, str]], table: pd.DataFrame, drawn: pd.DataFrame
) -> list[tuple[int, int]]:
    """Pairs of rows of ``drawn`` that arrows join, without pairs that contain a left-out run."""
    pairs = arrows[["from", "to"]].itertuples(index=False) if isinstance(arrows, pd.DataFrame) else arrows
    run_ids, row_of = set(table["run"].astype(str)), {str(run): i for i, run in enumerate(drawn["run"])}
    joined = []
    for start, end in pairs:
        if unknown := {str(start), str(end)} - run_ids:
            raise ChartError(f"an arrow names the run {clean_text(min(unknown))!r}, which is not in the table")
        if str(start) in row_of and str(end) in row_of:
            joined.append((row_of[str(start)], row_of[str(end)]))
    return joined


def _view(
    drawn: pd.DataFrame, pairs: list[tuple[int, int]], curve_labels: list[dict[str, Any]], to_pixel: Pixels
) -> PlotArea:
    """The marks in px, and the boxes that labels must leave free: labels of curves, intervals, arrows."""
    marks = [to_pixel(row["in_domain"], row["out_of_domain"]) for row in drawn.to_dict("records")]
    taken = [plane.label_box(to_pixel(label["x"], label["y"])) for label in curve_labels]
    taken += plane.bar_boxes(drawn, to_pixel)
    for start, end in pairs:
        taken += plane.arrow_boxes(marks[start], marks[end])
    return PlotArea(marks, (to_pixel.width, to_pixel.height), taken)


def _direct_labels(drawn: pd.DataFrame, views: list[PlotArea], joined: set[int]) -> list[dict[str, Any]]:
    """Labels of the marks; those that arrows join choose their places first."""
    texts = [
        safe_text(label, LABEL) + (" †" if adapted else "") + SIGNS.get(kind, "")
        for label, kind, adapted in zip(drawn["label"], drawn["kind"].astype(str), _adapts(drawn), strict=True)
    ]
    points = list(zip(drawn["in_domain"], drawn["out_of_domain"], strict=True))
    return place_labels(texts, points, views, joined)


def _ring(drawn: pd.DataFrame, selected: str | None) -> list[dict[str, Any]]:
    """A circle around the selected run, sized in pixels so that it stays round."""
    return [
        {
            "type": "circle", "xsizemode": "pixel", "ysizemode": "pixel", "xanchor": row["in_domain"],
            "yanchor": row["out_of_domain"], "x0": -12, "x1": 12, "y0": -12, "y1": 12,
            "line": {"color": theme.ACCENT, "width": 3}, "name": "selected",
        }
        for row in drawn.to_dict("records") if str(row["run"]) == selected
    ]  # fmt: skip


def _alt(drawn: pd.DataFrame, left_out: pd.DataFrame) -> str:
    merges = drawn[drawn["kind"].astype(str) == "merge"]
    candidates = merges if len(merges) else drawn
    best = candidates.iloc[int(candidates["h_score"].to_numpy(np.float64).argmax())]
    kinds = drawn["kind"].astype(str)
    counts = {"run": kinds.isin(MERGES), "reference": kinds.isin(REFERENCES), "published result": kinds == PAPER}
    marks = [plural(int(of_kind.sum()), noun) for noun, of_kind in counts.items() if of_kind.any()]
    sentence = (
        f"{', '.join(marks)}. Highest H-score{' of a merge' if len(merges) else ''}: "
        f"{clean_text(best['label'])}, {percent(best['h_score'])} "
        f"(in-domain {percent(best['in_domain'])}, out-of-domain {percent(best['out_of_domain'])})."
    )
    return sentence + (f" {len(left_out):,} left out." if len(left_out) else "")
