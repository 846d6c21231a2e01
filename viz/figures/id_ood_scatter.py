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
from viz.labels import Box, View, place_labels
from viz.text import clean_text, count, first_few, identifier, percent, plural, safe_text

KIND_NAMES: Mapping[str, str] = {
    "pretrained": "Pretrained",
    "individual": "Individual experts",
    "multitask": "Trained on all tasks",
    "merge": "Merge",
    "per_task": "Merge that gives one model per task ‡",
    "paper": "Quoted from a paper, not measured here",
}
SIGNS = {"per_task": " ‡", "paper": " (paper)"}  # beside the label
ADAPTS = "Merge that adapts on test data †"
HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 62, 30, 50, 56
LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "tracegroupgap": 0}
WIDTHS = (700, 1300)  # px: labels keep apart on a page of either width


@chart(
    title="In-domain against out-of-domain",
    question="Which merge is good in-domain without losing out-of-domain?",
    columns=("run", "label", "kind", "in_domain", "out_of_domain", "h_score"),
    optional=("in_low", "in_high", "out_low", "out_high", "n_in", "n_out", "adapts_on_test", "source"),
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
    """A mark for each run; reference points open, merges filled, a paper's numbers as crosses in a legend of their own.

    run (id), label, kind (pretrained, individual, multitask, merge, per_task, paper), in_domain, out_of_domain, h_score
    (fractions; a row without one of them is left out, and a note says so), in_low … out_high (interval, fractions),
    n_in, n_out (images), adapts_on_test (bool), source (of a paper's row). ``arrows`` are pairs (from run, to run).
    """
    _check_kinds(table)
    shown, left_out = _split(table)
    if shown.empty:
        return theme.notice("id_ood_scatter", f"Nothing to draw: {_left_out_note(left_out)}", present)
    x_range, y_range = _window(shown, "in"), _window(shown, "out")
    pairs = _pairs(arrows, table, shown)
    bottom = BOTTOM + 26
    quoted = bool((shown["kind"].astype(str) == "paper").any())
    top = TOP + (20 if quoted else 0)
    scales = [_Pixels(x_range, y_range, width - LEFT - RIGHT, HEIGHT - top - bottom) for width in WIDTHS]

    fig = go.Figure()
    curves, curve_labels = _iso_curves(x_range, y_range)
    fig.add_traces(curves)
    fig.add_traces(_marks(shown))
    labels = _direct_labels(shown, [_view(shown, pairs, curve_labels, to_pixel) for to_pixel in scales])
    annotations = [*curve_labels, *_arrow_annotations(pairs, shown), *labels]
    if note := _note(left_out, len(shown) - len(labels)):
        annotations.append({
            "text": note, "x": 0, "xref": "paper", "xanchor": "left", "y": 0, "yref": "paper", "yanchor": "top",
            "yshift": -50, "font": {"size": theme.SMALL, "color": theme.FADED}, "align": "left",
        })  # fmt: skip
    ticks = {"tickformat": ".0%"}
    fig.update_xaxes(title={"text": "In-domain accuracy, mean over tasks (%)"}, range=x_range, **ticks)
    fig.update_yaxes(title={"text": "Out-of-domain accuracy, mean over tasks (%)"}, range=y_range, **ticks)
    fig.update_layout(
        annotations=annotations,
        shapes=_ring(shown, selected),
        legend=LEGEND | {"y": 1, "yanchor": "bottom"},
        legend2=LEGEND | {"y": 1, "yanchor": "top", "yref": "container"},
        margin={"l": LEFT, "r": RIGHT, "t": top, "b": bottom},
    )
    return theme.finish(fig, "id_ood_scatter", _alt(shown, left_out), HEIGHT, present)


class _Pixels:
    """Data coordinates to pixels from the lower left corner of a plot of that size."""

    def __init__(self, x_range: list[float], y_range: list[float], width: float, height: float) -> None:
        self.x_range, self.y_range, self.width, self.height = x_range, y_range, width, height

    def __call__(self, x: float, y: float) -> tuple[float, float]:
        (x0, x1), (y0, y1) = self.x_range, self.y_range
        return (x - x0) / (x1 - x0) * self.width, (y - y0) / (y1 - y0) * self.height


def _label_box(corner: tuple[float, float]) -> Box:
    """What a curve's label covers, given its lower right corner."""
    return Box(corner[0] - 23, corner[1] + 8, 46, 16)


def _bar_boxes(shown: pd.DataFrame, to_pixel: _Pixels) -> list[Box]:
    """What the intervals cover."""
    if not {"in_low", "in_high", "out_low", "out_high"} <= set(shown):
        return []
    boxes = []
    for row in shown.to_dict("records"):
        left, low = to_pixel(row["in_low"], row["out_low"])
        right, high = to_pixel(row["in_high"], row["out_high"])
        x, y = to_pixel(row["in_domain"], row["out_of_domain"])
        if np.isfinite([left, right, low, high]).all():
            boxes += [Box((left + right) / 2, y, right - left, 2), Box(x, (low + high) / 2, 2, high - low)]
    return boxes


def _check_kinds(table: pd.DataFrame) -> None:
    if unknown := sorted(set(table["kind"].astype(str)) - set(KIND_NAMES)):
        raise ChartError(f"id_ood_scatter does not know the kind {unknown[0]!r}; it takes {', '.join(KIND_NAMES)}")


def _split(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows that have all three scores, and the others."""
    complete = np.isfinite(table[["in_domain", "out_of_domain", "h_score"]].to_numpy(np.float64)).all(axis=1)
    return table[complete].reset_index(drop=True), table[~complete]


def _left_out_note(left_out: pd.DataFrame) -> str:
    short = [clean_text(label, 28) for label in left_out["label"]]
    return f"Left out, no accuracy or H-score ({len(left_out)}): {first_few(short, 2)}"


def _note(left_out: pd.DataFrame, unlabeled: int) -> str:
    """What the reader would otherwise miss: rows without scores, marks without room for a label."""
    notes = [_left_out_note(left_out)] if len(left_out) else []
    if unlabeled:
        notes.append(f"{plural(unlabeled, 'mark')} unlabeled for want of room")
    return ". ".join(notes)


def _window(shown: pd.DataFrame, side: str) -> list[float]:
    """Range that holds every mark and interval, inside 0 to 1 and never so tight that noise looks large."""
    middle = shown[{"in": "in_domain", "out": "out_of_domain"}[side]].to_numpy(np.float64)
    ends = [middle] + [
        shown[f"{side}_{end}"].to_numpy(np.float64) for end in ("low", "high") if f"{side}_{end}" in shown
    ]
    low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
    pad = max(0.1 * (high - low), (0.1 - (high - low)) / 2, 0.01)
    return [max(0.0, low - pad), min(1.0 + 0.2 * pad, high + pad)]


def _iso_curves(x_range: list[float], y_range: list[float]) -> tuple[list[go.Scatter], list[dict[str, Any]]]:
    """Thin curves of equal H = 2·in·out/(in + out), each labeled where it leaves the plot."""
    lowest, highest = (_harmonic(x_range[i], y_range[i]) for i in (0, 1))
    step = next((s for s in (0.01, 0.02, 0.05, 0.1) if (highest - lowest) / s <= 7), 0.2)
    curves, labels = [], []
    for level in np.arange(np.ceil(lowest / step), np.floor(highest / step) + 1) * step:
        x = np.linspace(max(x_range[0], level / 2 + 1e-6), x_range[1], 80)
        y = level * x / (2 * x - level)
        inside = (y >= y_range[0]) & (y <= y_range[1])
        if inside.sum() < 3:
            continue
        x, y = x[inside], y[inside]
        curves.append(
            go.Scatter(
                x=x.astype(np.float32), y=y.astype(np.float32), mode="lines", hoverinfo="skip", showlegend=False,
                name=f"H = {percent(level, 0)}", line={"color": "#C7CED6", "width": 1.2, "dash": "dot"},
            )
        )  # fmt: skip
        labels.append({
            "text": f"H {percent(level, 0)}", "x": float(x[-1]), "y": float(y[-1]), "xanchor": "right",
            "yanchor": "bottom", "font": {"size": theme.SMALL, "color": theme.FADED}, "showarrow": False,
        })  # fmt: skip
    return curves, labels


def _harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b > 0 else 0.0


def _marks(shown: pd.DataFrame) -> list[go.Scatter]:
    """One trace for each kind of run, merges that adapt on test data apart."""
    adapts = _adapts(shown)
    traces = []
    for kind, look in theme.KINDS.items():
        for adapted in (False, True):
            rows = shown[(shown["kind"].astype(str) == kind) & (adapts == adapted)]
            if rows.empty:
                continue
            name = ADAPTS if adapted and kind == "merge" else KIND_NAMES[kind] + (" †" if adapted else "")
            filled = kind in ("merge", "per_task")
            line = theme.edge(3.5 if adapted else 1) if filled else {"color": look.color, "width": 2.5}
            traces.append(
                go.Scatter(
                    x=rows["in_domain"].to_numpy(np.float32), y=rows["out_of_domain"].to_numpy(np.float32),
                    mode="markers", name=name, **_legend_group(kind),
                    marker={"symbol": look.symbol, "color": look.color, "size": 12, "line": line, "opacity": 1},
                    unselected={"marker": {"opacity": 1}}, customdata=[[identifier(run)] for run in rows["run"]],
                    text=[_hover(row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
                    error_x=_bars(rows, "in", look.color), error_y=_bars(rows, "out", look.color),
                )
            )  # fmt: skip
    return traces


def _legend_group(kind: str) -> dict[str, Any]:
    if kind == "paper":
        return {"legend": "legend2", "legendgroup": "papers"}
    return {"legend": "legend"}


def _adapts(shown: pd.DataFrame) -> npt.NDArray[np.bool_]:
    if "adapts_on_test" not in shown:
        return np.zeros(len(shown), bool)
    return (shown["adapts_on_test"] == True).to_numpy(bool)  # noqa: E712 - a missing value is not True


def _bars(rows: pd.DataFrame, side: str, color: str) -> dict[str, Any] | None:
    middle = {"in": "in_domain", "out": "out_of_domain"}[side]
    if f"{side}_low" not in rows or f"{side}_high" not in rows:
        return None
    below = (rows[middle] - rows[f"{side}_low"]).to_numpy(np.float32)
    above = (rows[f"{side}_high"] - rows[middle]).to_numpy(np.float32)
    return {
        "type": "data", "symmetric": False, "array": np.nan_to_num(above).clip(0),
        "arrayminus": np.nan_to_num(below).clip(0), "color": color, "thickness": 1, "width": 0,
    }  # fmt: skip


def _hover(row: Mapping[Any, Any]) -> str:
    lines = [f"<b>{safe_text(row['label'])}</b>"]
    for name, value, side in (("in-domain", "in_domain", "in"), ("out-of-domain", "out_of_domain", "out")):
        line = f"{name} {percent(row[value])}"
        low, high = (row.get(f"{side}_{end}", np.nan) for end in ("low", "high"))
        if np.isfinite(low) and np.isfinite(high):
            line += f" ({percent(low)} to {percent(high)})"
        if np.isfinite(n := row.get(f"n_{side}", np.nan)):
            line += f", n = {count(n)}"
        lines.append(line)
    lines.append(f"H-score {percent(row['h_score'])}")
    lines.append(KIND_NAMES[str(row["kind"])])
    if row.get("adapts_on_test") is True or row.get("adapts_on_test") is np.True_:
        lines.append("† adapts on test data")
    if isinstance(source := row.get("source"), str) and source:
        lines.append(f"source: {safe_text(source)}")
    return "<br>".join(lines)


def _pairs(
    arrows: pd.DataFrame | Sequence[tuple[str, str]], table: pd.DataFrame, shown: pd.DataFrame
) -> list[tuple[int, int]]:
    """Rows of ``shown`` to be joined; a pair with a left-out run is left out with it."""
    pairs = arrows[["from", "to"]].itertuples(index=False) if isinstance(arrows, pd.DataFrame) else arrows
    known, row_of = set(table["run"].astype(str)), {str(run): i for i, run in enumerate(shown["run"])}
    joined = []
    for start, end in pairs:
        if unknown := {str(start), str(end)} - known:
            raise ChartError(f"an arrow names the run {clean_text(min(unknown))!r}, which is not in the table")
        if str(start) in row_of and str(end) in row_of:
            joined.append((row_of[str(start)], row_of[str(end)]))
    return joined


def _arrow_annotations(pairs: list[tuple[int, int]], shown: pd.DataFrame) -> list[dict[str, Any]]:
    x, y = (shown[name].to_numpy(np.float64) for name in ("in_domain", "out_of_domain"))
    return [
        {
            "x": x[end], "y": y[end], "ax": x[start], "ay": y[start], "xref": "x", "yref": "y", "axref": "x",
            "ayref": "y", "text": "", "showarrow": True, "arrowhead": 2, "arrowsize": 1, "arrowwidth": 1.6,
            "arrowcolor": theme.INK, "opacity": 0.65, "standoff": 8, "startstandoff": 8, "name": "arrow",
        }
        for start, end in pairs
    ]  # fmt: skip


def _view(
    shown: pd.DataFrame, pairs: list[tuple[int, int]], curve_labels: list[dict[str, Any]], to_pixel: _Pixels
) -> View:
    """The marks in px, and what labels keep off: labels of curves, intervals, arrows."""
    marks = [to_pixel(row["in_domain"], row["out_of_domain"]) for row in shown.to_dict("records")]
    taken = [_label_box(to_pixel(label["x"], label["y"])) for label in curve_labels] + _bar_boxes(shown, to_pixel)
    for start, end in pairs:
        (x0, y0), (x1, y1) = marks[start], marks[end]
        taken += [Box(x0 + t * (x1 - x0), y0 + t * (y1 - y0), 6, 6) for t in np.linspace(0.1, 0.9, 12)]
    return View(marks, (to_pixel.width, to_pixel.height), taken)


def _direct_labels(shown: pd.DataFrame, views: list[View]) -> list[dict[str, Any]]:
    texts = [
        safe_text(label, 26) + (" †" if adapted else "") + SIGNS.get(kind, "")
        for label, kind, adapted in zip(shown["label"], shown["kind"].astype(str), _adapts(shown), strict=True)
    ]
    return place_labels(texts, list(zip(shown["in_domain"], shown["out_of_domain"], strict=True)), views)


def _ring(shown: pd.DataFrame, selected: str | None) -> list[dict[str, Any]]:
    """A circle round the selected run, measured in pixels so that it stays round."""
    return [
        {
            "type": "circle", "xsizemode": "pixel", "ysizemode": "pixel", "xanchor": row["in_domain"],
            "yanchor": row["out_of_domain"], "x0": -12, "x1": 12, "y0": -12, "y1": 12,
            "line": {"color": theme.ACCENT, "width": 3}, "name": "selected",
        }
        for row in shown.to_dict("records") if str(row["run"]) == selected
    ]  # fmt: skip


def _alt(shown: pd.DataFrame, left_out: pd.DataFrame) -> str:
    merges = shown[shown["kind"].astype(str) == "merge"]
    pool = merges if len(merges) else shown
    best = pool.iloc[int(pool["h_score"].to_numpy(np.float64).argmax())]
    sentence = (
        f"{plural(len(shown), 'run')}. Highest H-score{' of a merge' if len(merges) else ''}: "
        f"{clean_text(best['label'])}, {percent(best['h_score'])} "
        f"(in-domain {percent(best['in_domain'])}, out-of-domain {percent(best['out_of_domain'])})."
    )
    return sentence + (f" {plural(len(left_out), 'run')} left out." if len(left_out) else "")
