"""The joint space of all experts' matrices of one layer: singular values, each expert's energy, pruned entries.

It is spanned by the directions of a singular value decomposition of all of these matrices together (the method DRM).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import chart, check_option, distinct_names
from viz.drawing import Drawing, Picture, Trace
from viz.figure_text import clean_text, count, percent, plural, power, safe_text
from viz.hover import describe_extreme, hover_texts
from viz.parts import axes, heat_maps, series
from viz.parts.cell_targets import click_targets, every_cell, outline
from viz.parts.legends import add_legend

KEPT_STYLE, CUT_STYLE = theme.MarkStyle(theme.PALETTE[0], "circle"), theme.MarkStyle(theme.PALETTE[5], "x")
VALUE_HOVER = (
    "<b>direction {direction:count}</b><br>singular value {value:real}, {share:percent} of the largest<br>"
    "{energy:percent} of the energy up to here"
)
RENORMALIZATION_STYLES = {  # words, look of the marks, width of the line; the smoother line is over the other
    False: ("without renormalization", theme.MarkStyle(theme.PALETTE[1], "diamond"), 1.2),
    True: ("renormalized", theme.MarkStyle(theme.PALETTE[0], "circle"), 1.6),
}
DROPPED_HOVER = "<b>basis vector {direction:count}</b>, {how}<br>{dropped:percent} of its entries dropped"
MAX_MARKED_POINTS = 200  # points up to which each has a mark
VALUE_SCALES = {
    "norm": heat_maps.ColorScale("row norm", log=False),
    "energy": heat_maps.ColorScale("share of<br>its energy", percent=True),
    "cumulative": heat_maps.ColorScale("energy<br>so far", log=False, limits=(0.0, 1.0), percent=True),
}
ENERGY_HOVER = (
    "<b>{expert}, {where}</b><br>row norm {norm:real}<br>{energy:percent 2} of its energy, {cumulative:percent} up to "
    "here"
)
FIRST_SENTENCE = " The first belongs most to {expert:plain 40} (row norm {norm:real});"
SMALLEST_STEP = " {expert:plain 40} gathers half of its energy soonest."
EXPERT_STEPS = {  # step with a matrix for each expert, side by side -> title over its panel
    "decomposed": "1  Decompose: each expert's part of the shared, orthonormal rows",
    "renormalized": "2  Renormalize: every row of every expert has length 1",
    "pruned": "3  Prune: only the largest entries stay",
}
MERGED_STEPS = {  # step with one matrix -> title over its panel, and the panel's left and right end
    "merged": ("4  Merge: elect, average", (0.0, 0.36)),
    "delta": ("and transform back: the task vector", (0.64, 1.0)),
}
PANEL, GAP, TOP, BOTTOM, LEFT, RIGHT = 128, 64, 48, 58, 66, 90  # px
HEIGHT = (len(EXPERT_STEPS) + 1) * PANEL + len(EXPERT_STEPS) * GAP
MIN_SHARE = 1e-3  # of the largest value, at the bottom of a logarithmic scale


@chart(
    title="Singular values of the joint space",
    question="How many directions do the experts' changes fill together?",
    columns=("direction", "value", "share", "kept", "energy"),
    rows=("direction",),
    empty="No expert changed this layer.",
)
def joint_spectrum(table: pd.DataFrame, *, rank_tol: float = 0.01) -> Picture:
    """The singular values, largest first, on a logarithmic axis.

    Columns: direction (from 1), value, share (of the largest), kept (bool, above the cut), energy (share of all squared
    entries up to that direction). ``rank_tol`` is the cut, a share of the largest value.
    """
    kept, last = table["kept"].astype(bool), len(table)
    fig = Drawing([
        series.marks(
            rows, "direction", "value", mark_style, VALUE_HOVER, name=name, legendgroup=name, size=5,
            marker={"line": {"width": 0}}
        )
        for name, rows, mark_style in (
            ("kept", table[kept], KEPT_STYLE), ("dropped by the rank cut", table[~kept], CUT_STYLE)
        )
        if len(rows)
    ])  # fmt: skip
    low, high = float(table["value"].min()), float(table["value"].max())
    limit = rank_tol * high
    ends = np.log10([max(min(low, limit or low), high * 1e-8), high])
    padding = 0.05 * (ends[1] - ends[0]) + 0.05
    marks = theme.ticks(float(10 ** ends[0]), float(10 ** ends[1]) * 1.0001, log=True)
    marks["tickvals"] = [10**exponent for exponent in marks["tickvals"]]
    fig.update_yaxes(
        title={"text": "Singular value"},
        type="log",
        range=[float(ends[0] - padding), float(ends[1] + padding)],
        **marks,
    )
    fig.update_xaxes(title={"text": "Direction, largest first"}, range=[0.5 - 0.01 * last, last + 0.5 + 0.01 * last])
    if rank_tol > 0:
        fig.add_shape(axes.horizontal_line(limit, {"color": theme.INK, "width": 1.4, "dash": "dash"}))
        words = f"rank cut, {power(rank_tol)} of the largest"
        fig.add_annotation(theme.caption(words, float(np.log10(limit)), yref="y", yshift=0))
    fig.update_layout(showlegend=True)
    energy = float(table["energy"][kept].max()) if kept.any() else 0.0
    alt = (
        f"Singular values of {plural(last, 'direction')}. The rank cut keeps {count(int(kept.sum()))} with "
        f"{percent(energy, 2)} of the energy; half of it is in the first "
        f"{count(int((table['energy'] < 0.5).sum()) + 1)}."
    )
    return add_legend(fig, alt, 300, zoom_key=str(last), left=76, gap=24)


@chart(
    title="Entries dropped per basis vector",
    question="Does pruning drop some entries of every basis vector, or all entries of some vectors?",
    columns=("direction", "expert", "renorm", "dropped"),
    rows=("direction", "expert", "renorm"),
    empty="No expert changed this layer.",
)
def joint_dropped(table: pd.DataFrame, *, expert: str | None = None, ratio: float = 0.5) -> Picture:
    """A line with renormalization and one without, over the directions of one expert (DRM, Fig. 3).

    Columns: direction (from 1, largest singular value first), renorm (bool), dropped (share of the vector's entries).
    ``ratio`` is the share pruned from the whole matrix; the first expert is drawn by default.
    """
    experts = distinct_names(table["expert"])
    expert = expert if expert in experts else experts[0]
    expert_rows = table[table["expert"] == expert]
    fig, ranges = Drawing(), []
    for renorm, (how, mark_style, width) in RENORMALIZATION_STYLES.items():
        rows = expert_rows[expert_rows["renorm"].astype(bool) == renorm].sort_values("direction").assign(how=how)
        if rows.empty:
            continue
        name = f"{how}, mean {percent(float(rows['dropped'].mean()))}"
        mode = "lines+markers" if len(rows) <= MAX_MARKED_POINTS else "lines"
        fig.add_trace(series.marks(
            rows, "direction", "dropped", mark_style, DROPPED_HOVER, name=name, legendgroup=name, size=4,
            line={"width": width}, marker={"line": {"width": 0}},
        ) | {"mode": mode})  # fmt: skip
        ranges.append(f"{percent(rows['dropped'].min())} to {percent(rows['dropped'].max())} {how}")
    last = float(expert_rows["direction"].max())
    fig.add_shape(axes.horizontal_line(ratio, {"color": theme.INK, "width": 1.2, "dash": "dash"}))
    fig.update_xaxes(
        title={"text": f"Basis vector of {safe_text(expert, 24)}, largest singular value first"},
        range=[1 - 0.01 * last, last + 0.01 * last + 0.5],
    )  # fmt: skip
    fig.update_yaxes(title={"text": "Entries dropped"}, tickformat=".0%", range=[-0.02, 1.02])
    fig.update_layout(showlegend=True)
    words = f"Entries dropped per basis vector of {clean_text(expert, 40)} when {percent(ratio, 0)} of all are pruned:"
    return add_legend(fig, f"{words} {'; '.join(ranges)}.", 320, left=76, gap=24)


@chart(
    title="Energy in the joint space",
    question="Which experts' changes lie in which shared directions?",
    columns=("expert", "first", "last", "norm", "energy", "cumulative"),
    rows=("expert", "first"),
    picks=("expert",),
    empty="No expert changed this layer.",
)
def joint_energy(table: pd.DataFrame, *, value: str = "norm", selected: str | None = None) -> Picture:
    """A heat map, experts by directions, largest singular value first.

    Columns: first and last (directions of a column, from 1), norm (mean norm of the expert's part of those orthonormal
    rows, before renormalization), energy (share of the expert's squared entries there) and cumulative (up to there).
    """
    scale = VALUE_SCALES[check_option("value", value, tuple(VALUE_SCALES))]
    experts, starts = distinct_names(table["expert"]), sorted(table["first"].unique())
    cells = every_cell(table, {"expert": experts, "first": starts})
    ends = zip(cells["first"], cells["last"], strict=True)
    column_words = [f"direction {first}" if first == last else f"directions {first} to {last}" for first, last in ends]
    values = np.nan_to_num(cells[value].to_numpy(np.float64), posinf=0, neginf=0).reshape(len(experts), -1)
    bars = click_targets(
        experts, list(map(str, starts)), hover_texts(cells.assign(where=column_words), ENERGY_HOVER), "Cells"
    )
    fig = Drawing([
        heat_maps.heat(values, scale, ygap=1),
        bars | {"customdata": [name[:1] for name in bars["customdata"]]},
    ])  # fmt: skip
    last, width = int(table["last"].max()), int((table["last"] - table["first"]).max() + 1)
    marks = [tick for tick in theme.ticks(1, max(last, 2))["tickvals"] if 1 <= tick <= last and tick == round(tick)]
    join_note = "" if width <= 1 else f" (columns join up to {width})"
    fig.update_xaxes(
        title={"text": f"Direction, largest first{join_note}"}, showgrid=False, tickmode="array",
        tickvals=[float(np.interp(tick, starts, range(len(starts)))) for tick in marks],
        ticktext=[f"{tick:g}" for tick in marks], range=[-0.5, len(starts) - 0.5],
    )  # fmt: skip
    fig.update_yaxes(**axes.name_axis("Expert", experts, down=True))
    left = axes.names_width(experts, min_width=40) + 38
    fig.update_layout(
        shapes=outline(experts, list(map(str, starts)), (selected, None)), showlegend=False, barmode="overlay",
        margin={"l": left, "r": heat_maps.RIGHT, "t": heat_maps.TOP, "b": heat_maps.BOTTOM},
    )  # fmt: skip
    return Picture(fig, _describe_energy(table, len(experts)), heat_maps.map_height(len(experts)), zoom_key=value)


def _describe_energy(table: pd.DataFrame, experts: int) -> str:
    words = f"Energy of {plural(experts, 'expert')} along the shared directions."
    if series.finite_rows(table, "energy").empty:
        return words
    before = table.assign(before=table["cumulative"] < 0.5).groupby("expert", sort=False)["before"].sum().reset_index()
    first = describe_extreme(table[table["first"] == table["first"].min()], "norm", FIRST_SENTENCE)
    return words + first + describe_extreme(before, "before", SMALLEST_STEP, smallest=True)


@chart(
    title="DRM in four steps",
    question="What does DRM do to this layer, step by step?",
    columns=("step", "expert", "row", "column", "value"),
    rows=("step", "expert", "row", "column"),
    empty="No expert changed this layer.",
)
def joint_steps(table: pd.DataFrame, *, vertical: bool = False) -> Picture:
    """Heat maps of matrices that are reduced to block means of absolute entries.

    Columns: step (decomposed, renormalized and pruned for each expert, then merged and delta), row and column (of a
    block's first entry in its matrix), value (mean of absolute entries; for the first three in units of a row's root
    mean square). ``vertical`` is True if directions are of the input space, as in DRM-V.
    """
    by_step = {str(step): rows for step, rows in table.groupby("step", sort=False)}
    experts = distinct_names(by_step["decomposed"]["expert"])
    largest = max(float(by_step[step]["value"].max()) for step in EXPERT_STEPS) or 1.0
    shared = heat_maps.ColorScale("mean |entry|", log=False, limits=(0.0, largest))
    fig = Drawing()
    for number, (step, title) in enumerate(EXPERT_STEPS.items()):
        rows, top = by_step[step], 1 - number * (PANEL + GAP) / HEIGHT
        values = np.concatenate([_to_matrix(rows[rows["expert"] == expert]) for expert in experts], axis=1)
        heat = heat_maps.heat(values, shared, name=step, **({"showscale": False} if number else {}))
        x = _make_expert_axis(
            experts, values.shape[1], "Experts side by side" if number == len(EXPERT_STEPS) - 1 else " "
        )
        _add_panel(fig, title, heat, (0.0, 1.0), top, x, _make_ticks(rows["row"], 3, "Direction"))
        panel, line = str(number + 1) if number else "", {"color": theme.GROUND, "width": 2}
        for left, right in pairwise(x["tickvals"]):  # lines between the experts' blocks
            fig.add_shape(axes.vertical_line((left + right) / 2, line, f"x{panel}", f"y{panel} domain", layer="above"))
    for step, (title, ends) in MERGED_STEPS.items():
        rows, first = by_step[step], step == "merged"
        values = _to_matrix(rows)
        high = float(values.max(initial=0.0)) or 1.0
        # rows are scaled by their singular values again, from large to small
        scale = heat_maps.ColorScale("", log=first, limits=(MIN_SHARE * high if first else 0.0, high))
        x = _make_ticks(rows["column"], 4, "Output" if first and vertical else "Input") | {"tickangle": 0}
        y = _make_ticks(rows["row"], 3, "Direction" if first else "Output")
        _add_panel(fig, title, heat_maps.heat(values, scale, name=step), ends, PANEL / HEIGHT, x, y)
    fig.update_layout(margin={"l": LEFT, "r": RIGHT, "t": TOP, "b": BOTTOM}, showlegend=False)
    return Picture(
        fig, _describe_steps(by_step, experts), HEIGHT + TOP + BOTTOM, zoom_key=f"{len(experts)}:{len(table)}"
    )


def _to_matrix(rows: pd.DataFrame) -> Any:
    return rows.sort_values(["row", "column"])["value"].to_numpy(np.float64).reshape(rows["row"].nunique(), -1)


def _add_panel(
    fig: Drawing, title: str, heat: Trace, ends: tuple[float, float], top: float, x: dict[str, Any], y: dict[str, Any]
) -> None:
    """Add a heat map with axes of its own, its upper edge at ``top`` (paper) and its color bar on its right."""
    suffix = str(len(fig.data) + 1) if fig.data else ""
    heat["colorbar"] |= {
        "x": ends[1] + 0.004, "xanchor": "left", "y": top, "yanchor": "top", "len": PANEL / HEIGHT * 0.98,
    }  # fmt: skip
    heat["colorbar"]["title"]["side"] = "right"
    fig.add_trace(heat | {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"})
    rows, columns = heat["z"].shape
    none = {"showgrid": False, "zeroline": False, "fixedrange": True}
    fig.layout |= {
        f"xaxis{suffix}": {"domain": list(ends), "anchor": f"y{suffix}", "range": [-0.5, columns - 0.5], **none, **x},
        f"yaxis{suffix}": {
            "domain": [max(top - PANEL / HEIGHT, 0.0), top], "anchor": f"x{suffix}", "range": [rows - 0.5, -0.5],
            **none, **y,
        },
    }  # fmt: skip
    fig.add_annotation(theme.caption(title, top, x=ends[0], font={"size": theme.FONT_SIZE}))


def _make_expert_axis(experts: list[str], width: int, title: str) -> dict[str, Any]:
    """Settings of an axis that names the experts' blocks, which together are ``width`` cells wide."""
    block = width / len(experts)
    return {
        "title": {"text": title, "standoff": 4}, "tickmode": "array", "tickangle": 0, "ticks": "",
        "tickvals": [(index + 0.5) * block - 0.5 for index in range(len(experts))], "showticklabels": True,
        "ticktext": [safe_text(expert, max(3, 64 // len(experts))) for expert in experts],
    }  # fmt: skip


def _make_ticks(starts: pd.Series[int], max_ticks: int, title: str) -> dict[str, Any]:
    """Ticks at no more than ``max_ticks`` cells, labeled by the first entry of their block, counted from 1."""
    firsts = np.sort(starts.unique())
    cells = sorted(set(np.linspace(0, len(firsts) - 1, max_ticks).round().astype(int).tolist()))
    texts = [str(int(firsts[i]) + 1) for i in cells]
    return {"title": {"text": title}, "tickmode": "array", "tickvals": cells, "ticktext": texts}


def _describe_steps(by_step: dict[str, pd.DataFrame], experts: list[str]) -> str:
    empty = float((by_step["pruned"]["value"] == 0).mean())
    uneven = by_step["decomposed"].groupby(["expert", "row"])["value"].mean()
    factor = float(uneven.max()) / max(float(uneven.min()), 1e-12)
    return (
        f"Matrices of {plural(len(experts), 'expert')} ({clean_text(', '.join(experts), 120)}) decomposed, "
        f"renormalized, pruned and merged, as block means. Before renormalization rows differ by a factor of "
        f"{factor:.3g}; pruning empties {percent(empty)} of the blocks."
    )
