"""Settings of fine-tuning by the size of their task vectors: accuracy of the experts and of a merge."""

from __future__ import annotations

import pandas as pd

from viz import theme
from viz.chart import chart, distinct_names
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, percent, plural
from viz.parts import legends, series

HOVER = "<b>{setting}</b><br>{label}: {value:percent}<br>norm {norm:percent} of the pretrained weights"


@chart(
    title="Settings of fine-tuning",
    question="Do smaller task vectors merge better?",
    columns=("run", "label", "setting", "norm", "value"),
    rows=("run", "setting"),
    empty="No setting of fine-tuning has been measured.",
)
def tuning_settings(table: pd.DataFrame) -> Picture:
    """Accuracies over the size of task vectors, a mark for each setting of fine-tuning and each kind of accuracy.

    Columns: run (the kind of accuracy), label (its name), setting (the setting's name), norm (the norm of the task
    vectors relative to that of the pretrained weights, a share, the mean over experts), value (the accuracy, a share).
    """
    rows = series.require_finite_rows(table, "value", "norm", empty_reason="no setting has an accuracy")
    styles, fig = theme.mark_styles(distinct_names(rows["run"])), Drawing()
    for run, of_run, entry in series.rows_by_name(rows.sort_values("norm", kind="stable"), "run"):
        fig.add_trace(series.marks(
            of_run, "norm", "value", styles[run], HOVER, size=11, **entry,
        ))  # fmt: skip
    fig.update_layout(
        xaxis={"title": {"text": "Norm of the task vectors, of the pretrained weights (%)"}, "tickformat": ".1%"},
        yaxis={"title": {"text": "Accuracy (%)"}, "tickformat": ".0%"},
    )
    return legends.add_legend(fig, _describe(rows), 380, left=70, below=60)


def _describe(rows: pd.DataFrame) -> str:
    """How many settings, and the least and the largest task vectors with one accuracy of each."""
    first = rows[rows["run"] == rows["run"].iloc[0]].sort_values("norm")
    ends = (
        f"{clean_text(row['setting'], 40)} ({percent(row['norm'])} of the weights, {percent(row['value'])})"
        for _, row in first.iloc[[0, -1]].iterrows()
    )
    settings = plural(rows["setting"].nunique(), "setting")
    return f"{settings}. {clean_text(first['label'].iloc[0], 40)}: from {' to '.join(ends)}."
