"""Settings of fine-tuning by the size of their task vectors: accuracy of the experts and of a merge."""

from __future__ import annotations

import pandas as pd

from viz import theme
from viz.chart import chart, distinct_names
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, percent, plural
from viz.parts import axes, legends, series

HOVER = (
    "<b>{setting}</b><br>{label}: {value:percent} ({low:percent} to {high:percent})<br>"
    "norm {norm:percent} of the pretrained weights[<br>{n:count} images]"
)
NOTE = "95% intervals over images."


@chart(
    title="Settings of fine-tuning",
    question="Do smaller task vectors merge better?",
    columns=("run", "label", "setting", "norm", "value", "low", "high"),
    optional=("n",),
    rows=("run", "setting"),
    empty="No setting of fine-tuning has been measured.",
)
def tuning_settings(table: pd.DataFrame) -> Picture:
    """Accuracies over the size of task vectors: a mark with its interval for each setting and each kind of accuracy.

    Columns: run (the kind of accuracy), label (its name), setting (the setting's name), norm (the norm of the task
    vectors relative to that of the pretrained weights, a share, the mean over experts), value (the accuracy, a share),
    low and high (the ends of its interval), n (the number of images).
    """
    rows = series.require_finite_rows(table, "value", "norm", empty_reason="no setting has an accuracy")
    styles, fig = theme.mark_styles(distinct_names(rows["run"])), Drawing()
    for run, of_run, entry in series.rows_by_name(rows.sort_values("norm", kind="stable"), "run"):
        fig.add_trace(series.marks(
            of_run, "norm", "value", styles[run], HOVER, size=11,
            error_y=series.interval(of_run, "value", styles[run].color), **entry,
        ))  # fmt: skip
    fig.update_layout(
        xaxis={"title": {"text": "Norm of the task vectors, of the pretrained weights (%)"}, "tickformat": ".1%"},
        yaxis={"title": {"text": "Accuracy (%)"}, "tickformat": ".0%"},
        annotations=axes.make_note(NOTE, 48)[0],
    )
    return legends.add_legend(fig, _describe(rows), 400, left=70, below=80)


def _describe(rows: pd.DataFrame) -> str:
    """How many settings, and the least and the largest task vectors with one accuracy of each and its interval."""
    first = rows[rows["run"] == rows["run"].iloc[0]].sort_values("norm")
    ends = (
        f"{clean_text(row['setting'], 60)} ({percent(row['norm'])} of the weights, {percent(row['value'])}, "
        f"95% interval {percent(row['low'])} to {percent(row['high'])})"
        for _, row in first.iloc[[0, -1]].iterrows()
    )
    settings = plural(rows["setting"].nunique(), "setting")
    return f"{settings}. {clean_text(first['label'].iloc[0], 40)}: from {' to '.join(ends)}."
