"""Means over tasks or draws with their ranges: drift by depth, and the effect of exemplars."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import Names, chart, check_option, distinct_names
from viz.drawing import Drawing, Picture, Trace
from viz.figure_text import clean_text, percent, plural, safe_text, span
from viz.hover import describe_extreme, hover_texts
from viz.parts import axes, legends, series
from viz.parts.legends import legend_name

VALUE_TITLES = {"cosine": "1 − cosine to the expert", "l1": "mean |difference| from the expert, per dimension"}
EVERY_RUN = "every"  # value of ``band``: a band for every run, which is readable for two or three
COMPARISON_KIND = "pretrained"  # the kind of run that is there for comparison, without a band
DEPTH_HOVER = (
    "<b>{label}, {section}</b><br>mean {mean:real} over {number:plural task}<br>least {low:real} ({least}), "
    "most {high:real} ({most})[<br>{images} images a task]"
)
DRAWS_HOVER = (
    "<b>{name}, {exemplars:plural exemplar} a task</b><br>mean {mean:percent} over {number:plural draw} "
    "({low:percent} to {high:percent})[<br>{images} images]"
)
PRINTED_HOVER = (
    "<b>◇ {method}, {exemplars:plural exemplar} a task</b><br>{accuracy:percent 2}, as printed"
    "<br>{source}: other models, other images"
)
RANK_NAME = "Full rank"
ACCURACY_PANEL, RANK_PANEL, GAP = 330, 120, 44  # px: heights of accuracies and ranks, and between them
# Marks of published values, one for each table.
PUBLISHED_SYMBOLS = ("diamond-open", "diamond-cross-open", "diamond-x-open")
MIN_LABEL_DISTANCE = 0.05  # accuracies closer than this have no room for a label each
LOSS_PARTS = {  # column -> name, color, pattern
    "fused": ("Merging task vectors", theme.PALETTE[4], ""),
    "altered": ("Altering the pretrained weights", theme.PALETTE[5], "/"),
}
TOTAL_NAME = "Lost in all"


def _average_by(rows: pd.DataFrame, key_column: str, value: str, **columns: Any) -> pd.DataFrame:
    """A row for each number in ``key_column``: mean, low and high of the value, number of rows, images if known."""
    groups: Any = rows.groupby(key_column, sort=True)
    means = groups[value].agg(mean="mean", low="min", high="max", number="size")
    images = groups["n"].agg(span) if "n" in rows else ""
    return pd.DataFrame(means.assign(images=images, **columns).reset_index())


def _draw_spread(
    means: pd.DataFrame, x: Any, mark_style: theme.MarkStyle, hover: str, extent: str, style: Any = None, **fields: Any
) -> list[Trace]:
    """A line through means, over a band from low to high; ``extent`` names the band, "" for none."""
    traces = [series.marks(means, x, "mean", mark_style, hover, line=style or {"width": 2.5}, **fields)]
    if extent:
        hidden = fields | {"name": f"{fields['name']}, {extent}", "showlegend": False}
        traces.insert(0, series.band(x, means["low"], means["high"], theme.tint(mark_style.color, 0.16), **hidden))
    return traces


@chart(
    title="Drift by depth",
    question="How does feature drift grow with depth?",
    columns=("run", "label", "kind", "task", "title", "section", "position", "cosine", "l1"),
    optional=("n",),
    rows=("run", "task", "position"),
    empty="No run's drift has been measured yet.",
)
def drift_depth(table: pd.DataFrame, *, value: str = "cosine", band: str | None = None, runs: Names = None) -> Picture:
    """A line for each run, the mean over tasks, and a band from the least to the most drifted task (LOT, Fig. 1b).

    Columns: kind (merge, or pretrained for the dashed line), section (a depth's name: stem, "block 0" …, embedding),
    position (its number, from 0), cosine and l1 (drift of features from those of each task's expert, means over
    images). ``band`` is the run with the band, or EVERY_RUN.
    """
    check_option("value", value, tuple(VALUE_TITLES))
    is_comparison = table["kind"] == COMPARISON_KIND
    mark_styles = theme.mark_styles(runs or distinct_names(table[~is_comparison]["run"]))
    fig = Drawing()
    for run, rows, legend in series.rows_by_name(pd.concat([table[~is_comparison], table[is_comparison]]), "run"):
        groups = rows.groupby("position", sort=True)
        least, most = (rows.loc[groups[value].agg(end), "title"].to_numpy() for end in ("idxmin", "idxmax"))
        means = _average_by(rows, "position", value, least=least, most=most, **groups[["label", "section"]].first())
        kind, extent = rows["kind"].iloc[0], "all tasks" if band in (run, EVERY_RUN) else ""
        mark_style, style = mark_styles[run], None
        if kind == COMPARISON_KIND:
            mark_style, style, extent = theme.KINDS[COMPARISON_KIND], {"width": 1.8, "dash": "dash"}, ""
        fig.add_traces(_draw_spread(means, means["position"], mark_style, DEPTH_HOVER, extent, style, **legend))
    depths = table.drop_duplicates("position").sort_values("position")
    names = [safe_text(str(name).removeprefix("block "), 16) for name in depths["section"]]
    fig.update_xaxes(
        title={"text": "Position in the network; numbers are blocks"}, tickmode="array", showgrid=False, tickangle=0,
        tickvals=depths["position"], ticktext=names, range=[-0.25, float(table["position"].max()) + 0.25],
    )  # fmt: skip
    fig.update_yaxes(title={"text": f"Feature drift:<br>{VALUE_TITLES[value]}"}, rangemode="tozero")
    alt = _describe_drift(table if is_comparison.all() else table[~is_comparison], value)
    return legends.add_legend(fig, alt, 430, zoom_key=value, left=84, gap=24)


def _describe_drift(table: pd.DataFrame, value: str) -> str:
    labels = table.groupby("run")["label"].first()
    means = _average_by(table[table["position"] == table["position"].max()], "run", value, label=labels)
    words = f"Feature drift of {plural(len(means), 'run')} by depth. At the embedding it is least for"
    words += describe_extreme(means, "mean", " {label:plain 40}, {mean:real}", smallest=True)
    return (
        words + describe_extreme(means, "mean", ", and most for {label:plain 40}, {mean:real}") * (len(means) > 1) + "."
    )


@chart(
    title="Exemplar sensitivity",
    question="How many exemplars does each method need?",
    columns=("method", "exemplars", "seed", "accuracy"),
    optional=("tasks", "n"),
    rows=("method", "exemplars", "seed"),
    empty="The exemplar sensitivity of this benchmark has not been measured.",
)
def drift_exemplars(
    table: pd.DataFrame,
    *,
    rank: pd.DataFrame | None = None,
    references: Mapping[str, float] | None = None,
    published: pd.DataFrame | None = None,
) -> Picture:
    """A line for each method, the mean over draws of the exemplars, with a band from the worst draw to the best.

    Columns: exemplars (per task), seed (of the draw), accuracy (mean over in-domain tasks), tasks (their number): LOT,
    Fig. 3a; CAT, Table 3. ``rank`` has exemplars, seed and full: the share of the input directions that LOT's Gram
    matrices span, drawn below. ``references`` are accuracies that need no exemplars, by name, as dotted lines.
    ``published`` has method, exemplars, accuracy and source: numbers that papers print for other models, with marks of
    their own.
    """
    mark_styles, fig = theme.mark_styles(distinct_names(table["method"])), Drawing()
    for method, rows, legend in series.rows_by_name(table, "method", label="method"):
        fig.add_traces(_draw_by_exemplars(rows, "accuracy", method, mark_styles[method], **legend))
    has_rank = rank is not None and len(rank) > 0
    if rank is not None and has_rank:
        rank_fields = {"name": RANK_NAME, "legendgroup": RANK_NAME, "yaxis": "y2", "showlegend": False}
        fig.add_traces(
            _draw_by_exemplars(rank, "full", RANK_NAME, theme.MarkStyle(theme.FADED, "circle"), **rank_fields)
        )
    if published is not None:
        sources = published.groupby("source")
        fig.add_traces(
            _draw_published(rows, symbol) for (_, rows), symbol in zip(sources, cycle(PUBLISHED_SYMBOLS), strict=False)
        )
    _add_references(fig, references or {})
    counts = sorted({int(n) for n in series.finite_rows(table, "exemplars")["exemplars"]})
    positions = np.log2(counts)
    axis_range = {"range": [positions[0] - 0.25, positions[-1] + 0.25], "anchor": "y2" if has_rank else "y"}
    fig.update_xaxes(**axes.number_axis("Exemplars per task", counts, positions, **axis_range))
    domains, inner = axes.stack_panels([ACCURACY_PANEL, RANK_PANEL] if has_rank else [ACCURACY_PANEL], GAP)
    fig.update_yaxes(title={"text": "In-domain accuracy,<br>mean over tasks (%)"}, tickformat=".0%", domain=domains[0])
    if has_rank:
        ends = {"range": [0, 1.05], "anchor": "x", "domain": domains[1]}
        fig.update_layout(yaxis2={"title": {"text": "Rank<br>(% of full)"}, "tickformat": ".0%", **ends})
        words = "<b>Input directions that the Gram matrices span, mean over layers</b>"
        fig.add_annotation(theme.caption(words, domains[1][1]))
    return legends.add_legend(fig, _describe_ends(table), inner + 86, left=66, gap=30)


def _draw_by_exemplars(
    rows: pd.DataFrame, value: str, method: str, mark_style: theme.MarkStyle, **fields: Any
) -> list[Trace]:
    means = _average_by(rows, "exemplars", value, name=method)
    return _draw_spread(means, np.log2(means["exemplars"]), mark_style, DRAWS_HOVER, "all draws", **fields)


def _draw_published(rows: pd.DataFrame, symbol: str) -> Trace:
    """The marks of one paper's numbers for one method."""
    name = legend_name(f"◇ {rows['method'].iloc[0]}: {rows['source'].iloc[0]}")
    return series.published_marks(rows, np.log2(rows["exemplars"]), PRINTED_HOVER, symbol, name=name, legendgroup=name)


def _add_references(fig: Drawing, references: Mapping[str, float]) -> None:
    """Add a dotted line for each reference; references close to each other share a label."""
    labels: dict[float, list[str]] = {}
    position = np.inf
    for name, value in sorted(references.items(), key=lambda item: -item[1]):
        fig.add_shape(axes.horizontal_line(value, {"color": theme.INK, "width": 1.2, "dash": "dot"}))
        position = position if position - value < MIN_LABEL_DISTANCE else value
        labels.setdefault(position, []).append(f"{safe_text(name, 40)} {percent(value)}")
    for position, words in labels.items():
        fig.add_annotation(theme.caption(", ".join(words), position), x=1, xanchor="right", yref="y", yshift=0)


def _describe_ends(table: pd.DataFrame) -> str:
    parts = []
    for method, rows, _ in series.rows_by_name(table, "method", label="method"):
        means = _average_by(rows, "exemplars", "accuracy").iloc[[0, -1]]
        parts.append(f"{clean_text(method, 24)} {', '.join(hover_texts(means, '{mean:percent} with {exemplars}'))}")
    remaining = f"; {plural(len(parts) - 6, 'method')} more" if len(parts) > 6 else ""
    return f"In-domain accuracy by exemplars per task: {'; '.join(parts[:6])}{remaining}."


@chart(
    title="What altering the pretrained weights loses",
    question="How much is lost by merging whole weights in place of task vectors?",
    columns=("exemplars", "seed", "altered", "fused", "lost"),
    optional=("n",),
    rows=("exemplars", "seed"),
    empty="What merging whole weights loses has not been measured on this benchmark.",
)
def drift_altered(table: pd.DataFrame) -> Picture:
    """Stacked bars of the accuracy lost relative to the experts, and a mark at the sum, by exemplars (LOT, Fig. 2).

    Columns: exemplars (per task), seed (of the draw), altered and fused (fractions: the loss that altering the
    pretrained weights adds, and the loss of merging task vectors), lost (their sum). Bars are means over draws; the
    sum's error bar extends from the best draw to the worst. A part below zero, a gain, is below the axis.
    """
    fig, counts = Drawing(), sorted({int(n) for n in series.finite_rows(table, "exemplars")["exemplars"]})
    x = np.arange(len(counts), dtype=np.float32)
    for column, (name, color, pattern) in LOSS_PARTS.items():
        means = _average_by(table, "exemplars", column, name=name)
        marker = {"pattern": {"shape": pattern}}
        fig.add_trace(series.bars(means, x, "mean", color, DRAWS_HOVER, name=name, legendgroup=name, marker=marker))
    means = _average_by(table, "exemplars", "lost", name=TOTAL_NAME)
    fig.add_trace(series.marks(
        means, x, "mean", theme.MarkStyle(theme.INK, "diamond"), DRAWS_HOVER, name=TOTAL_NAME, legendgroup=TOTAL_NAME,
        marker={"line": {"color": theme.GROUND, "width": 1}},
        error_y=series.interval(means, "mean", theme.INK, thickness=1.4, width=4),
    ))  # fmt: skip
    fig.update_xaxes(**axes.number_axis("Exemplars per task", counts, x, showgrid=False))
    fig.update_yaxes(title={"text": "In-domain accuracy lost,<br>mean over tasks (points)"}, tickformat=".0%")
    fig.update_layout(barmode="relative", bargap=0.35)
    return legends.add_legend(fig, _describe_losses(table), 368, left=74, right=20, gap=12)


def _describe_losses(table: pd.DataFrame) -> str:
    ends = table.groupby("exemplars")[["altered", "lost"]].mean().reset_index().iloc[[0, -1]]
    first = "{lost:percent} with {exemplars} exemplars per task, of which {altered:percent}"
    last = "{lost:percent} with {exemplars}, of which {altered:percent}"
    words = hover_texts(ends, first)[0], hover_texts(ends, last)[1]
    return "Accuracy lost by merging whole weights: {} by altering the pretrained weights; {}.".format(*words)
