"""Sign agreement of experts in each space, before and after pruning, beside random signs (DRM, Fig. 5)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, bar, scatter
from viz.figures.conflicts.sign_layers import points
from viz.parts import legends
from viz.text import clean_text, count, percent, plural, safe_text

LANE, CAPTION, BOTTOM = 132, 46, 52  # px: height of a space's lane, of the numbers in it, and of the margin below
STATES = {"before": "#C9CFD6", "after": "#0072B2"}
RANDOM = "Random signs, same votes"
WIDTH = 0.4  # of a bar, in bins


class Lanes(NamedTuple):
    """Spaces stacked over one axis; ``step`` is their distance, in the units of the shares."""

    spaces: list[str]
    step: float

    def base(self, space: str) -> float:
        """The base of a space's bars; the first space is on top."""
        return (len(self.spaces) - 1 - self.spaces.index(space)) * self.step


@chart(
    title="Sign agreement",
    question="Do experts agree in sign, and do they agree more in another space?",
    columns=(
        "space", "title", "state", "density", "low", "high", "share", "random", "mean", "null", "kept", "positions",
    ),
    rows=("space", "state", "low"),
    empty="No position holds a vote.",
)  # fmt: skip
def sign_histogram(table: pd.DataFrame, *, what: str = "", present: bool = False) -> go.Figure:
    """Bars of shares of positions over bins of agreement, a lane for each space, with ticks for random signs.

    space, title (of the space), state ("before" or "after" pruning), density (after pruning), low and high (edges of
    the bin), share (of the positions with a vote), random (the same for random signs with these numbers of votes),
    mean (agreement), null (of random signs), kept (share of all entries that vote), positions. ``what`` is the name of
    the counted tensors.
    """
    table = table[np.isfinite(table[["low", "high", "share", "random"]].to_numpy(np.float64)).all(axis=1)]
    if table.empty:
        return theme.notice("sign_histogram", "Nothing to draw: no share is a number.", present)
    spaces = in_order(table["space"])
    tallest = max(float(table[["share", "random"]].max().max()), 0.05)
    legend, top = legends.above([*(_name(rows, str(state)) for state, rows in table.groupby("state")), RANDOM])
    margin = {"l": 66, "r": 20, "t": top + 12, "b": BOTTOM}
    height = LANE * len(spaces) + margin["t"] + BOTTOM
    lanes = Lanes(spaces, tallest * LANE / (LANE - CAPTION))
    traces: list[Trace] = []
    for state, color in STATES.items():
        rows = table[table["state"] == state]
        if not rows.empty:
            traces.append(_bars(rows, state, color, lanes, table["state"].nunique()))
    traces.append(_random(table, lanes))
    fig = Drawing(traces)
    edges = sorted({*table["low"].tolist(), table["high"].max()})
    fig.update_xaxes(
        title={"text": "Sign agreement at a position" + (f", {safe_text(what, 40)}" if what else "")},
        tickmode="array", tickvals=edges, ticktext=[percent(edge, 0) for edge in edges], showgrid=False,
        range=[edges[0], edges[-1]],
    )  # fmt: skip
    half = round(tallest / 2, 1) or 0.05
    fig.update_yaxes(
        title={"text": "Share of positions"}, tickmode="array", fixedrange=True,
        range=[0, len(spaces) * lanes.step],
        tickvals=[lanes.base(space) + at for space in spaces for at in (0, half)],
        ticktext=[percent(at, 0) for _ in spaces for at in (0, half)],
    )  # fmt: skip
    captions = [_caption(table[table["space"] == space], lanes, present) for space in spaces]
    fig.update_layout(legend=legend, margin=margin, barmode="overlay", annotations=captions)
    return theme.finish(fig, "sign_histogram", _alt(table, spaces, what), height, present, f"{len(spaces)}")


def _places(rows: pd.DataFrame, states: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Centers of the bars, which are side by side in their bin if there are two states."""
    width = rows["high"] - rows["low"]
    side = np.where(rows["state"] == "before", -0.5, 0.5) * WIDTH * (states - 1)
    return (rows["low"] + width * (0.5 + side)).to_numpy(np.float32)


def _name(rows: pd.DataFrame, state: str) -> str:
    """What the legend calls the bars of a state."""
    return "Before pruning" if state == "before" else f"Pruned to {percent(float(rows['density'].iloc[0]), 0)}"


def _bars(rows: pd.DataFrame, state: str, color: str, lanes: Lanes, states: int) -> Trace:
    return bar(
        x=_places(rows, states), y=rows["share"].to_numpy(np.float32), name=_name(rows, state), legendgroup=state,
        base=np.array([lanes.base(space) for space in rows["space"]], np.float32),
        width=(WIDTH * (rows["high"] - rows["low"])).to_numpy(np.float32),
        marker={"color": color, "line": theme.edge(0.8)}, text=[_hover(row) for row in rows.to_dict("records")],
        textposition="none", hovertemplate="%{text}<extra></extra>",
        meta={"columns": {"space": list(map(safe_text, rows["title"]))}},
    )  # fmt: skip


def _random(table: pd.DataFrame, lanes: Lanes) -> Trace:
    heights = table["random"].to_numpy(np.float64) + [lanes.base(space) for space in table["space"]]
    return scatter(
        x=_places(table, table["state"].nunique()), y=heights.astype(np.float32), mode="markers",
        name=RANDOM, legendgroup="random",
        marker={"symbol": "line-ew", "size": 22, "line": {"color": theme.ACCENT, "width": 2.5}},
        text=[_hover(row) for row in table.to_dict("records")], hovertemplate="%{text}<extra></extra>",
        meta={"y": table["random"].tolist(), "columns": {"space": list(map(safe_text, table["title"]))}},
    )  # fmt: skip


def _hover(row: dict[Any, Any]) -> str:
    pruned = "before pruning" if row["state"] == "before" else f"pruned to {percent(row['density'], 0)}"
    return (
        f"<b>{safe_text(row['title'])}</b>, {pruned}<br>agreement {percent(row['low'], 0)} to "
        f"{percent(row['high'], 0)}: {percent(row['share'])} of {count(row['positions'])} positions<br>"
        f"random signs: {percent(row['random'])}"
    )


def _caption(rows: pd.DataFrame, lanes: Lanes, present: bool) -> dict[str, Any]:
    """The numbers over a space's bars, a line for each state; one line where it is presented, in lower lanes."""
    words: list[str] = []
    for row in rows.drop_duplicates("state").sort_values("state").to_dict("records"):  # "after" comes first
        excess = points(row["mean"] - row["null"]).removesuffix(" points")
        mean = f"<b>{percent(row['mean'])}</b>" if not words else f"before pruning {percent(row['mean'])}"
        more = f" (random {percent(row['null'])}, {excess}) at density {percent(row['kept'], 0)}"
        words.append(mean if words and present else mean + more)
    first = rows.iloc[0]
    return {
        "text": f"<b>{safe_text(first['title'], 30)}</b>: {('; ' if present else '<br>').join(words)}",
        "x": 0, "xref": "x domain", "xanchor": "left", "align": "left",
        "y": lanes.base(str(first["space"])) + lanes.step, "yref": "y", "yanchor": "top",
        "yshift": 0 if present else -8,
        "font": {"size": theme.SMALL, "color": theme.INK}, "showarrow": False, "name": "numbers",
    }  # fmt: skip


def _alt(table: pd.DataFrame, spaces: list[str], what: str) -> str:
    last = table.sort_values("state", kind="stable").drop_duplicates("space").set_index("space").loc[spaces[:5]]
    means = [
        f"{clean_text(row['title'], 40)} {percent(row['mean'])}, random signs {percent(row['null'])}"
        for row in last.to_dict("records")
    ]
    of = f" of {clean_text(what, 60)}" if what else ""
    return f"Histograms of sign agreement{of} in {plural(len(spaces), 'space')}. Mean: {'; '.join(means)}."
