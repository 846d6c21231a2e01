"""How far features of images moved, and how well classes stay separated in them (LwPTV, Fig. 10)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import Names, chart, check_option, distinct_names
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, percent, plural, real
from viz.hover import hover_texts
from viz.parts import axes, legends, series

# px: height of a lane, of its caption with the gap above, of that gap, of the margin below
LANE, CAPTION, GAP, BOTTOM = 130, 38, 14, 54
VALUE_TITLES = {
    "knn": "k-nearest-neighbor accuracy, leave one out (%)",
    "silhouette": "Silhouette, cosine distance (−1 to 1)",
    "scatter": "Scatter between classes over scatter within them",
}
BIN_HOVER = "<b>{label}</b><br>{low:real} to {high:real}: {count:count} of {n:count} images ({share:percent})"
MEAN_HOVER = "<b>{label}</b><br>mean {mean:real}, {n:count} images"
ROW, SPREAD = 40, 0.5  # px, and the share of a row that the models' marks take


@chart(
    title="Distance to the pretrained features",
    question="How far does each merge move the features of images from the pretrained ones?",
    columns=("run", "label", "low", "high", "count", "share", "mean", "n"),
    rows=("run", "low"),
    empty="Nothing to compare: choose a run to compare with the pretrained model.",
)
def feature_distance(table: pd.DataFrame, *, normalized: bool = False, runs: Names = None) -> Picture:
    """A histogram for each run over one axis, with a line at its mean distance; all runs have the same bins."""
    table = series.finite_rows(table, "low", "high", "share")
    names = distinct_names(table["run"])
    mark_styles, tallest = theme.mark_styles(runs or names), max(float(table["share"].max()), 0.01)
    step = tallest * LANE / (LANE - CAPTION)
    fig = Drawing()
    for index, (name, rows, entry) in enumerate(series.rows_by_name(table, "run", names)):
        base, color = (len(names) - 1 - index) * step, mark_styles[name].color
        bars, line = series.histogram(
            rows, color, BIN_HOVER, MEAN_HOVER, (base, base + tallest), (entry["name"], "Mean")
        )
        fig.add_traces([bars | {"base": np.full(len(rows), base, np.float32)}, line])
        words = hover_texts(rows.head(1), "<b>{label:text 40}</b>: mean {mean:real}, n = {n:count} images")[0]
        top = {"xref": "x domain", "yref": "y", "yanchor": "top", "yshift": -GAP}
        fig.add_annotation(theme.caption(words, base + step, **top, name="lane"))
    feature_kind = "of features scaled to unit length" if normalized else "of raw features"
    title = {"text": f"Distance to the pretrained features ‖f(x) − f₀(x)‖, {feature_kind}"}
    fig.update_xaxes(title=title, range=[0, float(table["high"].max())], showgrid=False)
    ticks = (0, tallest / 2)
    fig.update_yaxes(
        title={"text": "Share of images"}, tickmode="array", range=[0, len(names) * step], fixedrange=True,
        tickvals=[index * step + tick for index in range(len(names)) for tick in ticks],
        ticktext=[percent(tick, 0) for _ in names for tick in ticks],
    )  # fmt: skip
    fig.update_layout(barmode="overlay", showlegend=False, margin={"l": 66, "r": 20, "t": 0, "b": BOTTOM})
    means = hover_texts(table.drop_duplicates("run").head(5), "{label:plain 40} {mean:real}")
    alt = f"Histograms of the distance to the pretrained features for {plural(len(names), 'run')}."
    return Picture(fig, f"{alt} Means: {'; '.join(means)}.", LANE * len(names) + BOTTOM, zoom_key=str(normalized))


@chart(
    title="Separability",
    question="On which data sets are classes well separated?",
    columns=("run", "label", "task", "title", "silhouette", "knn", "scatter"),
    optional=("low", "high", "n", "classes"),
    rows=("run", "task"),
    empty="No data set has features yet.",
)
def feature_separability(table: pd.DataFrame, *, value: str = "knn", runs: Names = None) -> Picture:
    """A dot for each model and data set; k-nearest-neighbor accuracy (knn) has its interval."""
    title = VALUE_TITLES[check_option("value", value, tuple(VALUE_TITLES))]
    table = series.require_finite_rows(table, value, empty_reason="this value is undefined for these images")
    names, tasks = distinct_names(table["run"]), table.drop_duplicates("task")
    mark_styles = theme.mark_styles(runs or names)
    lanes = table["task"].map({task: lane for lane, task in enumerate(tasks["task"])})
    fig = Drawing()
    for index, (name, rows, entry) in enumerate(series.rows_by_name(table, "run", names)):
        mark_style, shift = mark_styles[name], SPREAD * ((index + 0.5) / len(names) - 0.5)
        error = series.interval(rows, value, mark_style.color, width=3, thickness=1.4) if value == "knn" else None
        fig.add_trace(series.marks(
            rows, value, lanes[rows.index] + shift, mark_style,
            "<b>{title}</b>, {label}<br>nearest neighbors {knn:percent}[ ({low:percent} to {high:percent})]"
            "<br>silhouette {silhouette:real}, scatter ratio {scatter:real}[<br>{n:count} images]",
            error_x=error, **entry,
        ))  # fmt: skip
    labels = tasks["title"].tolist()
    fig.update_xaxes(title={"text": title}, **({"tickformat": ".0%"} if value == "knn" else {}))
    fig.update_yaxes(**axes.name_axis("Data set", labels, 28, down=True, showgrid=True, fixedrange=None))
    format_value = percent if value == "knn" else real
    means = [f"{clean_text(rows['label'].iloc[0], 40)} {format_value(float(rows[value].mean()))}"
             for _, rows, _ in series.rows_by_name(table, "run", names[:5])]  # fmt: skip
    alt = f"{title} on {plural(len(tasks), 'data set')}. Mean: {'; '.join(means)}."
    inner = ROW * max(len(tasks), 3) + 10 + BOTTOM
    return legends.add_legend(
        fig, alt, inner, zoom_key=value, left=axes.names_width(labels, 28) + 40, right=20, gap=10, below=BOTTOM
    )  # fmt: skip
