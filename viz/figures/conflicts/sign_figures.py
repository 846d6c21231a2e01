"""Signs of the experts' task vectors: where they agree, and whose entries survive an election of signs.

A space is a basis in which the vectors are compared: the weights themselves, or a joint space of DRM. Each nonzero
entry of an expert votes for its sign; an election adds the entries at a position, and elects the sign of the sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import TENSOR_COLUMNS, Names, chart, check_option, distinct_names
from viz.drawing import Drawing, Picture, Trace
from viz.figure_text import clean_text, percent, plural, safe_text
from viz.hover import describe_extreme, describe_extremes, hover_texts
from viz.parts import heat_maps, series, tensor_columns
from viz.parts.cell_targets import NO_CELL, CellPosition
from viz.parts.legends import add_legend

VALUE_SCALES = {
    "excess": heat_maps.ColorScale("excess over<br>random signs", log=False, percent=True, diverging=True),
    "mean": heat_maps.ColorScale("mean<br>agreement", log=False, limits=(0.5, 1.0), percent=True),
    "kept": heat_maps.ColorScale("density", log=False, limits=(0.0, 1.0), percent=True),
}
LAYER_HOVER = (
    "<b>{tensor:short}</b><br>{title}: mean agreement {mean:percent}<br>random signs {null:percent}, excess "
    "{excess:points} points<br>density {kept:percent}, {positions:count} positions with a vote"
)
FARTHEST_SENTENCE = (
    " Farthest above random signs: {tensor:plain}, {title:plain}, {mean:percent} instead of {null:percent}."
)
LANE, CAPTION, BOTTOM = 132, 46, 52  # px: height of a space's lane, of the numbers in it, and of the margin below
STATE_COLORS = {"before": theme.BEFORE_COLOR, "after": theme.BLUE}
RANDOM_STYLE = theme.MarkStyle(theme.ACCENT, "line-ew")
BAR_WIDTH = 0.4  # of a bar, in bins
BIN_HOVER = (
    "<b>{title}</b>, {when}<br>agreement {low:percent 0} to {high:percent 0}: {share:percent} of {positions:count} "
    "positions<br>random signs: {random:percent}"
)
EXCESS_TEXT = " (random {null:percent}, {excess:points}) at density {kept:percent 0}"
VALUE_TITLES = {
    "survived": "Share of the expert's kept<br>entries that survive",
    "taken": "Share of all<br>entries that survive",
}
ELECTION_HOVER = (
    "<b>{expert}</b>, {tensor:short}<br>{won:count} of {kept:count} kept entries survive: {survived:percent}<br>"
    "{taken:percent} of all surviving entries"
)


@chart(
    title="Sign agreement by layer",
    question="In which layers do experts agree, beyond what random signs would give?",
    columns=(*TENSOR_COLUMNS, "space", "title", "mean", "null", "excess", "kept", "positions"),
    rows=("space", "tensor"),
    picks=("space", "tensor"),
    empty="No sign agreement was measured for these experts.",
)
def sign_layers(table: pd.DataFrame, *, value: str = "excess", selected: CellPosition = NO_CELL) -> Picture:
    """A heat map, spaces by layers in forward order.

    Columns: space with its title, mean (agreement, 0.5 to 1), null (that of random signs with the same numbers of
    votes), excess (their difference), kept (share of all entries that vote), positions (with a vote).
    """
    scale = VALUE_SCALES[check_option("value", value, tuple(VALUE_SCALES))]
    layers, spaces = plural(table["tensor"].nunique(), "layer"), plural(table["space"].nunique(), "space")
    return heat_maps.heat_map(
        table, "space", value, scale, LAYER_HOVER, selected, zoom_key=value,
        alt=f"Sign agreement in {layers} and {spaces}." + describe_extreme(table, "excess", FARTHEST_SENTENCE),
    )  # fmt: skip


@chart(
    title="Sign agreement",
    question="Do experts agree in sign, and do they agree more in another space?",
    columns=(
        "space", "title", "state", "density", "low", "high", "share", "random", "mean", "null", "kept", "positions",
    ),
    rows=("space", "state", "low"),
    empty="No position has a vote.",
)  # fmt: skip
def sign_histogram(table: pd.DataFrame, *, what: str = "", present: bool = False) -> Picture:
    """Bars of the share of positions in each bin of agreement, a lane for each space, with ticks for random signs.

    Columns: space with its title, state ("before" or "after" pruning), density (after pruning), share (of the positions
    with a vote), random (the same for random signs with these numbers of votes), mean (agreement), null (of random
    signs), kept (share of all entries that vote), positions. ``what`` is the name of the counted tensors.
    """
    table = series.require_finite_rows(table, "low", "high", "share", "random", empty_reason="no share is a number")
    spaces = distinct_names(table["space"])
    tallest = max(float(table[["share", "random"]].max().max()), 0.05)
    step = tallest * LANE / (LANE - CAPTION)  # distance of the lanes, in the units of the shares
    table = _position_bars(table, {space: at * step for at, space in enumerate(reversed(spaces))})
    states = [(table[table["state"] == state], state) for state in STATE_COLORS]
    fig = Drawing(_draw_bars(rows, state) for rows, state in states if len(rows))
    fig.add_trace(series.marks(
        table, "middle", table["random"] + table["base"], RANDOM_STYLE, BIN_HOVER, name="Random signs, same votes",
        legendgroup="random", size=22, marker={"line": {"color": RANDOM_STYLE.color, "width": 2.5}},
        meta={"y": table["random"].tolist(), "columns": {"space": list(map(safe_text, table["title"]))}},
    ))  # fmt: skip
    edges = sorted({*table["low"].tolist(), table["high"].max()})
    fig.update_xaxes(
        title={"text": "Sign agreement at a position" + (f", {safe_text(what, 40)}" if what else "")},
        tickmode="array", tickvals=edges, ticktext=[percent(edge, 0) for edge in edges], showgrid=False,
        range=[edges[0], edges[-1]],
    )  # fmt: skip
    marked = (0, round(tallest / 2, 1) or 0.05)
    fig.update_yaxes(
        title={"text": "Share of positions"}, tickmode="array", fixedrange=True, range=[0, len(spaces) * step],
        tickvals=[base + at for base in table["base"].unique() for at in marked],
        ticktext=[percent(at, 0) for at in marked] * len(spaces),
    )  # fmt: skip
    captions = [_make_caption(rows, step, present) for _, rows in table.groupby("space", sort=False)]
    fig.update_layout(barmode="overlay", annotations=captions)
    inner = LANE * len(spaces) + 12 + BOTTOM
    return add_legend(
        fig, _describe_histogram(table, what), inner, zoom_key=str(len(spaces)), left=66, right=20, below=BOTTOM, gap=12
    )


def _position_bars(table: pd.DataFrame, bases: dict[str, float]) -> pd.DataFrame:
    """The table with the middle, width and base of every bar; bars of two states are side by side in their bin."""
    width = table["high"] - table["low"]
    # two states are half a bar left and right of the middle, a single one in the middle
    side = np.where(table["state"] == "before", -0.5, 0.5) * BAR_WIDTH * (table["state"].nunique() - 1)
    pruned = "pruned to " + table["density"].map(lambda density: percent(density, 0))
    return table.assign(
        middle=table["low"] + width * (0.5 + side),
        width=BAR_WIDTH * width,
        base=table["space"].map(bases),
        when=pruned.where(table["state"] != "before", "before pruning"),
    )


def _draw_bars(rows: pd.DataFrame, state: str) -> Trace:
    name = rows["when"].iloc[0]
    return series.bars(
        rows, "middle", "share", STATE_COLORS[state], BIN_HOVER, name=name.capitalize(), legendgroup=state,
        base=series.numbers(rows, "base"), width=series.numbers(rows, "width"), marker={"line": theme.edge(0.8)},
        meta={"columns": {"space": list(map(safe_text, rows["title"]))}},
    )  # fmt: skip


def _make_caption(rows: pd.DataFrame, step: float, present: bool) -> dict[str, Any]:
    """The numbers over a space's bars, a line for each state; a single line on a projector, whose lanes are lower."""
    states = rows.drop_duplicates("state").sort_values("state")  # "after" comes first
    means = hover_texts(states, "{mean:percent}")
    excess_texts = hover_texts(states.assign(excess=states["mean"] - states["null"]), EXCESS_TEXT)
    words = [f"<b>{means[0]}</b>{excess_texts[0]}", *(f"before pruning {mean}" for mean in means[1:])]
    if not present:
        words[1:] = [f"{word}{excess}" for word, excess in zip(words[1:], excess_texts[1:], strict=True)]
    title, base = rows[["title", "base"]].iloc[0]
    text = f"<b>{safe_text(title, 30)}</b>: {('; ' if present else '<br>').join(words)}"
    top = {"xref": "x domain", "yref": "y", "yanchor": "top", "yshift": 0 if present else -8}
    return theme.caption(text, base + step, **top, align="left", name="numbers")


def _describe_histogram(table: pd.DataFrame, what: str) -> str:
    last = table.sort_values("state", kind="stable").drop_duplicates("space").set_index("space")
    first_five = last.loc[distinct_names(table["space"])[:5]]
    means = hover_texts(first_five, "{title:plain 40} {mean:percent}, random signs {null:percent}")
    of_tensors = f" of {clean_text(what, 60)}" if what else ""
    return f"Histograms of sign agreement{of_tensors} in {plural(len(last), 'space')}. Mean: {'; '.join(means)}."


@chart(
    title="Who wins the election",
    question="Whose entries survive the election of signs, and where?",
    columns=(*TENSOR_COLUMNS, "expert", "kept", "won", "survived", "taken"),
    rows=("tensor", "expert"),
    picks=("tensor", "expert"),
    empty="No election was measured for these experts.",
)
def election_layers(
    table: pd.DataFrame, *, value: str = "survived", selected: str | None = None, experts: Names = None
) -> Picture:
    """A line of dots for each expert over layers in forward order, or stacked bars of the surviving entries.

    Columns: kept (entries after the trim), won (entries of these with the elected sign), survived (won / kept), taken
    (won over the sum of won of all experts in the layer). ``value`` is one of the last two.
    """
    stacked = check_option("value", value, tuple(VALUE_TITLES)) == "taken"
    columns = tensor_columns.TensorColumns.from_table(table)
    mark_styles = theme.mark_styles(experts or distinct_names(table["expert"]))
    fig = Drawing()
    for name, expert_rows, legend in series.rows_by_name(columns.set_positions(table), "expert", label="expert"):
        rows, mark_style = series.finite_rows(expert_rows, value), mark_styles.get(name, theme.KINDS["individual"])
        shared: dict[str, Any] = legend | {"picks": ("tensor", "expert")}
        if stacked:
            white = {"line": {"color": theme.GROUND, "width": 0.5}}
            fig.add_trace(
                series.bars(rows, "tensor_index", value, mark_style.color, ELECTION_HOVER, marker=white, **shared)
            )
        else:
            fig.add_trace(
                series.marks(
                    rows, "tensor_index", value, mark_style, ELECTION_HOVER, size=8, line={"width": 1}, **shared
                )
            )
    low, high = float(table[value].min()), float(table[value].max())
    padding = 0.08 * (high - low) or 0.05
    fig.update_yaxes(
        title={"text": VALUE_TITLES[value]}, tickformat=".3~%", fixedrange=True,
        range=[0, 1] if stacked else [low - padding, high + padding],
    )  # fmt: skip
    columns.lay_out(fig, selected)
    fig.update_layout(barmode="stack", bargap=0.1)
    return add_legend(fig, _describe_election(table), 368, zoom_key=value, left=84, right=24, gap=12)


def _describe_election(table: pd.DataFrame) -> str:
    sums = table.groupby("expert")[["won", "kept"]].sum().reset_index()
    sums = sums.assign(share=sums["won"] / sums["kept"].where(sums["kept"] > 0))
    most, least = describe_extremes(sums, "share", "{expert:plain}, {share:percent}")
    layers = plural(table["tensor"].nunique(), "layer")
    words = f"Elections of signs between {plural(len(sums), 'expert')} in {layers}."
    return f"{words} Most survives of {most}; least of {least}." if most else words
