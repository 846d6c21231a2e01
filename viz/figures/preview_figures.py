"""The effect of a change on accuracy: hatched bars from a sample, plain ones from stored scores of all images."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import chart, distinct_names
from viz.drawing import Drawing, Picture, Trace
from viz.figure_text import clean_text, count, safe_text
from viz.hover import hover_texts
from viz.parts import axes, series

ROW_PX, TOP, BOTTOM = 22, 34, 54  # px; a group's heading takes as much as a row
GAIN_COLOR, LOSS_COLOR, UNCLEAR_COLOR = theme.BLUE, theme.VERMILION, theme.FADED
HOVER = (
    "<b>{title}</b> ({kind})<br>{accuracy:percent}, reference {reference:percent}<br>change {difference:points}"
    "[ ({low:points} to {high:points})][<br>no significant difference with n = {unclear_n:count}]<br>{n:count} images"
)


@chart(
    title="Preview of a change",
    question="What would this change do, in and out of domain?",
    columns=("over", "title", "group", "n", "accuracy", "reference", "difference", "low", "high", "kind"),
    optional=("half", "seed", "against"),
    rows=("over",),
    empty="There is no image to preview on.",
)
def preview_change(table: pd.DataFrame) -> Picture:
    """A bar for each average and each data set: the difference in percentage points and its 95 % interval.

    Columns: over (key), group (its heading), reference, kind ("preview", which is hatched, or "stored"), half, seed,
    against (the reference's name). Bars whose interval holds zero are gray. Without stored answers, stored scores have
    no intervals.
    """
    kind = "Stored scores" if _are_stored(table) else "Preview (sampled)"
    groups = distinct_names(table["group"])
    table = table.sort_values("group", key=lambda group: group.map(groups.index), kind="stable")
    table = table.assign(y=np.arange(len(table)) + table["group"].map(groups.index) + 1)  # each heading takes a row
    fig = Drawing([_draw_bars(table)])
    fig.update_xaxes(**axes.points_axis("Change", table[["difference", "low", "high"]]))
    rows = len(table) + len(groups)
    positions = {"tickvals": series.numbers(table, "y"), "range": [rows - 0.4, -0.6]}
    fig.update_yaxes(**axes.name_axis("Data set or average", list(table["title"]), 28) | positions)
    for group, y in table.groupby("group", sort=False)["y"].min().items():
        fig.add_annotation(axes.heading(str(group).capitalize(), y - 1))
    inside = {"x": 1, "xref": "x domain", "xanchor": "right", "yref": "y domain"}
    fig.add_annotation(theme.caption(f"<b>{kind}</b>: {_describe_sample(table)}", 1, **inside, yshift=6))
    left = axes.names_width(list(table["title"]), 28, min_width=axes.names_width(groups, 40)) + 44
    fig.update_layout(showlegend=False, bargap=0.3, margin={"l": left, "r": 26, "t": TOP, "b": BOTTOM})
    reference_words = f" against {clean_text(table['against'].iloc[0], 40)}" if "against" in table else ""
    changes = "; ".join(hover_texts(table.head(3), "{title:plain 40} {difference:points}"))
    known = table["low"].notna()
    significance = f"{int(series.excludes_zero(table).sum())} of {int(known.sum())} intervals exclude zero"
    significance = significance if known.any() else "No intervals"
    alt = f"{kind}{reference_words}, change in points: {changes}. {significance}."
    return Picture(fig, alt, TOP + BOTTOM + ROW_PX * max(rows, 4))


def _draw_bars(table: pd.DataFrame) -> Trace:
    unclear = (table["low"] <= 0) & (table["high"] >= 0)
    signs = np.where(table["difference"] > 0, GAIN_COLOR, LOSS_COLOR)
    colors = np.where(unclear, UNCLEAR_COLOR, signs).tolist()
    hatching = {"shape": "/", "fgcolor": colors, "bgcolor": theme.GROUND, "size": 6, "solidity": 0.35}
    is_stored = _are_stored(table)
    return series.bars(
        table.assign(unclear_n=table["n"].where(unclear)), 100 * table["difference"].fillna(0), "y",
        colors if is_stored else theme.GROUND, HOVER, orientation="h", name="Change",
        error_x=series.interval(table, "difference", theme.INK, factor=100, thickness=1.3, width=3)
        if table["low"].notna().any() else None,
        marker={"line": {"color": colors, "width": 1.4}} | ({} if is_stored else {"pattern": hatching}),
    )  # fmt: skip


def _are_stored(table: pd.DataFrame) -> bool:
    return bool((table["kind"] == "stored").all())


def _describe_sample(table: pd.DataFrame) -> str:
    """Images, half and seed; each task is counted once."""
    n = table.loc[table["group"] != "average", "n"].sum() or table["n"].max()
    words = [f"n = {count(float(n))}"]
    words += [f"{safe_text(table['half'].iloc[0], 20)} half"] if "half" in table else []
    return ", ".join([*words, f"seed {count(float(table['seed'].iloc[0]))}"] if "seed" in table else words)
