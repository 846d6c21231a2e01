"""Merges trained from several seeds: what images leave uncertain beside what the seed does."""

from __future__ import annotations

import pandas as pd

from viz import theme
from viz.chart import chart, distinct_names
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, plural, safe_text
from viz.hover import hover_texts
from viz.parts import axes, lanes, legends, series

HOVER = "<b>{task}</b><br>{label}: {value:percent} ({low:percent} to {high:percent})[<br>{n:count} images]"
MEAN = "mean"
LANE = 12  # px
NOTE = "95% intervals: over images; of the mean, over seeds."


@chart(
    title="Scores of several seeds",
    question="Does the result depend on the seed of training?",
    columns=("run", "label", "task", "value", "low", "high"),
    optional=("n",),
    rows=("run", "task"),
    empty="No merge has scores of several seeds.",
)
def seed_spread(table: pd.DataFrame, *, score: str = "Score") -> Picture:
    """A row for each merge: a mark for each seed with its interval over images, and the mean with that over seeds.

    Columns: run (a seed, or ``MEAN``), label (its name), task (the merge's name), value (the score, a share), n (the
    number of images). ``score`` is the score's name.
    """
    rows = series.require_finite_rows(table, "value", empty_reason="no merge has a score")
    rows = rows.assign(task=rows["task"].astype(str))
    order = list(rows.groupby("task")["value"].mean().sort_values(ascending=False, kind="stable").index)
    runs = distinct_names(rows["run"])
    styles = theme.mark_styles(runs) | {MEAN: theme.MarkStyle(theme.INK, "diamond")}
    lane_heights = lanes.Lanes(runs, LANE, max(34, len(runs) * LANE + 10))
    names = hover_texts(pd.DataFrame({"name": order}), "{name:text 34}")
    fig = Drawing()
    fig.add_traces(lanes.dots(lane_heights, rows, order, "value", styles, HOVER, picks=(), size=8))
    fig.update_layout(
        xaxis={"title": {"text": f"{safe_text(score, 40)} (%)"}, "tickformat": ".0%", "nticks": 8},
        yaxis=axes.name_axis("Merge", names, down=True) | {"ticktext": names},
        shapes=lanes.tints(len(order)),
        annotations=axes.make_note(NOTE, 60)[0],
    )  # fmt: skip
    alt = _describe(rows[rows["run"] != MEAN], score)
    left = max(map(theme.text_width, names)) + 30
    return legends.add_legend(
        fig, alt, len(order) * lane_heights.row + 110, zoom_key=score, left=left, below=76, wide=True
    )  # fmt: skip


def _describe(rows: pd.DataFrame, score: str) -> str:
    """How many merges and seeds, and the largest difference between two seeds of one merge."""
    gaps = rows.groupby("task", sort=False)["value"].agg(lambda values: values.max() - values.min())
    widest = str(gaps.idxmax())
    return (
        f"{plural(len(gaps), 'merge')} of {plural(rows['run'].nunique(), 'seed')}, by {clean_text(score, 40)}. The "
        f"largest difference between seeds: {100 * float(gaps.max()):.1f} points, {clean_text(widest, 40)}."
    )
