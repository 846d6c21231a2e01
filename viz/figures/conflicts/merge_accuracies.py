"""What more experts, or fewer ranks of their matrices, cost a merge in accuracy."""

from __future__ import annotations

from itertools import cycle

import pandas as pd

from viz import theme
from viz.chart import NothingToDraw, chart, check_option, distinct_names
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, plural, safe_text
from viz.hover import hover_texts
from viz.parts import axes, legends, series
from viz.parts.legends import add_legend

VALUE_TITLES = {  # -> title of the axis, and how the alt text begins
    "accuracy": ("Accuracy, mean over merged tasks (%)", "Accuracy"),
    "normalized": (
        "Accuracy relative to the experts',<br>mean over merged tasks (%)",
        "Accuracy relative to the experts'",
    ),
}
# Here ``meta`` has the true sizes for ``viz.marks``, because marks are shifted sideways.
SPREAD = 0.56  # share of the distance between two sizes that the methods take side by side
SUBSET_HOVER = (
    "<b>{method}, {size:plural expert}</b><br>{members:text 120}<br>{accuracy:percent}, {normalized:percent} of the "
    "experts'[<br>{n:count} images]"
)
MEAN_HOVER = (
    "<b>{method}, {size:plural expert}</b><br>mean {mean:percent} over {count:plural subset} "
    "({min:percent} to {max:percent})"
)
DASHES = ("solid", "dot", "dash", "longdash")
CUT_HOVER = (
    "<b>{method}, {group}</b><br>cut at {cut:general} of the largest singular value<br>{kept:percent} of the ranks kept"
    "[ ({kept_low:percent} to {kept_high:percent} by matrix)]<br>accuracy {accuracy:percent}"
    "[ (95% interval {low:percent} to {high:percent})][<br>{n:count} images]"
)


@chart(
    title="Number of tasks",
    question="How does accuracy fall with the number of experts that are merged?",
    columns=("method", "size", "subset", "accuracy", "normalized"),
    optional=("tasks", "n"),
    rows=("method", "size", "subset"),
    empty="Accuracy by number of tasks has not been measured on this benchmark.",
)
def task_counts(table: pd.DataFrame, *, value: str = "accuracy") -> Picture:
    """Dots are subsets, lines join their means (DRM, Fig. 2); methods are side by side at each size.

    Columns: size (experts merged), subset (its number), accuracy and normalized (means over the merged tasks, the
    second relative to the experts' own), tasks (their names).
    """
    title, beginning = VALUE_TITLES[check_option("value", value, list(VALUE_TITLES))]
    members = table["tasks"] if "tasks" in table else [f"subset {subset}" for subset in table["subset"]]
    table = series.finite_rows(table.assign(members=members), value)
    methods = distinct_names(table["method"])
    if not methods:
        raise NothingToDraw("No subset has an accuracy to draw.")
    mark_styles, fig, parts = theme.mark_styles(methods), Drawing(), []
    for index, (method, rows, _) in enumerate(series.rows_by_name(table, "method", label="method")):
        mark_style, shift = mark_styles[method], SPREAD * ((index + 0.5) / len(methods) - 0.5)
        means = rows.groupby("size")[value].agg(["mean", "count", "min", "max"]).reset_index().assign(method=method)
        fig.add_traces([
            series.marks(
                rows, rows["size"] + shift, value, mark_style, SUBSET_HOVER, size=6,
                name=legends.legend_name(f"{method}, subsets"), legendgroup=safe_text(method), showlegend=False,
                meta={"x": rows["size"].tolist()},
                marker={"color": theme.tint(mark_style.color, 0.55), "line": {"width": 0.5, "color": theme.FADED}},
            ),
            series.marks(
                means, means["size"] + shift, "mean", mark_style, MEAN_HOVER, name=legends.legend_name(method), size=10,
                legendgroup=safe_text(method), line={"width": 2.5}, meta={"x": means["size"].tolist()},
            ),
        ])  # fmt: skip
        ends = hover_texts(means.iloc[[0, -1]], "{mean:percent} with {size}")
        parts.append(f"{clean_text(method, 28)} {', '.join(ends)}")
    sizes = sorted({int(size) for size in table["size"]})
    fig.update_xaxes(**axes.number_axis("Experts merged", sizes, range=[sizes[0] - 0.5, sizes[-1] + 0.5]))
    fig.update_yaxes(title={"text": title}, tickformat=".0%")
    remaining = [f"{plural(len(methods) - 7, 'method')} more"] if len(methods) > 7 else []
    alt = f"{beginning} by number of experts merged, mean over subsets: {'; '.join([*parts[:7], *remaining])}."
    return add_legend(fig, alt, 468, zoom_key=value, left=66, gap=12)


@chart(
    title="Rank truncation",
    question="How many ranks does DRM need?",
    columns=("method", "group", "cut", "kept", "accuracy"),
    optional=("kept_low", "kept_high", "low", "high", "n"),
    rows=("method", "group", "cut"),
    empty="The effect of rank truncation has not been measured on this benchmark.",
)
def rank_truncation(table: pd.DataFrame) -> Picture:
    """A line for each method and group of tasks (DRM, Fig. 6); solid for the first group and dashed for the others.

    Columns: cut (singular values up to this share of the largest are dropped), kept (mean share of ranks that remain;
    kept_low and kept_high are the least and the most of any matrix).
    """
    mark_styles, groups = theme.mark_styles(distinct_names(table["method"])), distinct_names(table["group"])
    fig, parts = Drawing(), []
    for method in mark_styles:
        for group, dash in zip(groups, cycle(DASHES), strict=False):
            rows = series.finite_rows(table[(table["method"] == method) & (table["group"] == group)], "accuracy")
            if rows.empty:
                continue
            rows, name, mark_style = rows.sort_values("kept"), f"{method}, {group}", mark_styles[method]
            fig.add_trace(series.marks(
                rows, "kept", "accuracy", mark_style, CUT_HOVER, name=legends.legend_name(name),
                legendgroup=safe_text(name), line={"width": 2.5, "dash": dash},
                error_y=series.interval(rows, "accuracy", mark_style.color, thickness=1, width=3),
            ))  # fmt: skip
            if group == groups[0]:
                with_fewest, with_most = hover_texts(rows.iloc[[0, -1]], "{accuracy:percent} with {kept:percent 0}")
                parts.append(f"{clean_text(method, 24)} {with_most} of the ranks, {with_fewest}")
    if not fig.data:
        raise NothingToDraw("No cut has an accuracy to draw.")
    fig.update_xaxes(title={"text": "Ranks kept, mean over matrices (%)"}, tickformat=".0%", range=[-0.03, 1.03])
    fig.update_yaxes(title={"text": "Accuracy,<br>mean over tasks (%)"}, tickformat=".0%")
    alt = f"Accuracy {clean_text(groups[0], 24)} by share of ranks kept: {'; '.join(parts[:4])}."
    return add_legend(fig, alt, 408, left=66, gap=12)
