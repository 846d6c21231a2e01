"""What a change would do to accuracy, on a sample: hatched bars, which cannot be taken for scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, bar
from viz.text import clean_text, count, percent, safe_text

ROW, TOP, BOTTOM = 22, 34, 54  # px; a group's heading takes as much as a row
GAIN, LOSS, NEITHER = "#0072B2", "#D55E00", "#5F6B7A"


@chart(
    title="Preview of a change",
    question="What would this change do, in and out of domain?",
    columns=("over", "title", "group", "n", "accuracy", "reference", "difference", "low", "high", "kind"),
    optional=("half", "seed", "against"),
    rows=("over",),
    empty="There is no image to preview on.",
)
def preview_change(table: pd.DataFrame, *, present: bool = False) -> go.Figure:
    """A hatched bar for each average and each data set: the difference in percentage points and its 95 % interval.

    over (key), title, group (its heading), n (images), accuracy and reference (fractions), difference, low and high,
    kind (always "preview"), half, seed, against (the reference's name). Bars whose interval holds zero are gray.
    """
    groups = in_order(table["group"])
    places, headings, parts = [], [], []
    at = 0
    for group in groups:
        members = table[table["group"].astype(str) == group]
        headings.append((at, group))
        parts.append(members)
        places += [at + 1 + k for k in range(len(members))]
        at += 1 + len(members)
    table = pd.concat(parts)
    fig = Drawing([_bars(table, np.array(places, np.float32))])
    far = 100 * max(0.01, 1.06 * float(np.nanmax(np.abs(table[["difference", "low", "high"]].to_numpy(np.float64)))))
    ticks = [safe_text(title, 28) for title in table["title"]]
    fig.update_xaxes(
        title={"text": "Change in percentage points, paired 95% interval"}, range=[-far, far], zeroline=True,
        zerolinecolor=theme.INK, zerolinewidth=1.2,
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": "Data set or average"}, tickmode="array", tickvals=np.array(places, np.float32), ticktext=ticks,
        range=[at - 0.4, -0.6], fixedrange=True, showgrid=False,
    )  # fmt: skip
    left = max(map(theme.text_width, [*ticks, *(safe_text(group, 40) for group in groups)])) + 44
    stamp = {"text": f"<b>PREVIEW (sampled)</b>: {_about(table)}", "y": 1, "yref": "y domain", "yshift": 6}
    fig.update_layout(
        annotations=[
            *(_heading(*one) for one in headings),
            stamp | {"x": 1, "xref": "x domain", "xanchor": "right", "yanchor": "bottom", "showarrow": False},
        ],
        showlegend=False, bargap=0.3, margin={"l": left, "r": 26, "t": TOP, "b": BOTTOM},
    )  # fmt: skip
    return theme.finish(fig, "preview_change", _alt(table), TOP + BOTTOM + ROW * max(at, 4), present)


def sure(table: pd.DataFrame) -> np.ndarray:
    """Whether each interval leaves zero out."""
    return ((table["low"] > 0) | (table["high"] < 0)).to_numpy(bool)


def _bars(table: pd.DataFrame, places: np.ndarray) -> Trace:
    difference, low, high = (100 * table[name].to_numpy(np.float64) for name in ("difference", "low", "high"))
    colors = [
        NEITHER if not one else GAIN if value > 0 else LOSS for one, value in zip(sure(table), difference, strict=True)
    ]
    ends = np.nan_to_num(np.stack([high - difference, difference - low])).clip(0).astype(np.float32)
    return bar(
        x=np.nan_to_num(difference).astype(np.float32), y=places, orientation="h", name="Preview",
        marker={
            "color": "white", "line": {"color": colors, "width": 1.4},
            "pattern": {"shape": "/", "fgcolor": colors, "bgcolor": "white", "size": 6, "solidity": 0.35},
        },
        error_x={
            "type": "data", "symmetric": False, "array": ends[0], "arrayminus": ends[1], "color": theme.INK,
            "thickness": 1.3, "width": 3,
        },
        text=[_hover(row) for row in table.to_dict("records")], textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _hover(row: Mapping[Any, Any]) -> str:
    words = f"<b>{safe_text(row['title'])}</b> (preview)<br>{percent(row['accuracy'])}, "
    words += f"reference {percent(row['reference'])}<br>change {_points(row['difference'])}"
    if np.isfinite(row["low"]) and np.isfinite(row["high"]):
        words += f" ({_points(row['low'])} to {_points(row['high'])})"
        if row["low"] <= 0 <= row["high"]:
            words += f"<br>no significant difference with n = {count(row['n'])}"
    return f"{words}<br>{count(row['n'])} images"


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}" if np.isfinite(difference) else "—"


def _about(table: pd.DataFrame) -> str:
    """Images, half and seed; each task is counted once."""
    n = table.loc[table["group"].astype(str) != "average", "n"].sum() or table["n"].max()
    words = [f"n = {count(float(n))}"]
    words += [f"{safe_text(table['half'].iloc[0], 20)} half"] if "half" in table else []
    return ", ".join([*words, f"seed {count(float(table['seed'].iloc[0]))}"] if "seed" in table else words)


def _heading(at: int, group: str) -> dict[str, Any]:
    return {
        "text": f"<b>{safe_text(group.capitalize(), 40)}</b>", "x": 0, "xref": "x domain", "xanchor": "right",
        "xshift": -6, "y": at, "yref": "y", "yanchor": "middle", "showarrow": False, "font": {"size": theme.SMALL},
    }  # fmt: skip


def _alt(table: pd.DataFrame) -> str:
    against = f" against {clean_text(table['against'].iloc[0], 40)}" if "against" in table else ""
    rows = table.head(3).to_dict("records")
    changes = "; ".join(f"{clean_text(row['title'], 40)} {_points(row['difference'])}" for row in rows)
    seen = f"{int(sure(table).sum())} of {len(table)} intervals leave zero out"
    return f"Preview (sampled){against}, change in points: {changes}. {seen}."
