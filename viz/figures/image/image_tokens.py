"""Matrices of tokens, blocks and heads of one image: what drifts, where attention changes, what restores an answer.

The columns other, reference and donor are keys of the model that a run is compared with, whose title is in against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import chart, distinct_names
from viz.drawing import Drawing, Picture, scatter
from viz.figure_text import plural, safe_text
from viz.hover import describe_extreme
from viz.parts import axes, matrix
from viz.parts.heat_maps import BLOCKS_PASSED, ColorScale

MAX_HEIGHT, MAX_LABELED = 640, 40  # px of all rows; number of tokens above which only some have a label
TOKEN_NAMES = {"class": "class token", "patches": "patches", "all": "all tokens"}
DRIFT_HOVER = (
    "<b>{name}, depth {depth}: {drift:real}</b><br>{title:text 40} against {against:text 40}"
    "[<br>data set: mean {mean:real}, 90% of its images below {high:real}]"
)
RESTORED_HOVER = "{followed:text 40}: {probability:percent} ({change:change})<br>answers {answer:text 40}"
CORRECTED_MARK = {"symbol": "x", "size": 6, "line": {"width": 0.8, "color": theme.GROUND}}
RIGHT_MARK = {"symbol": "circle", "size": 7, "line": {"width": 1, "color": theme.GROUND}}


@chart(
    title="Change of attention",
    question="In which heads does the run look at other tokens than its reference?",
    columns=("model", "title", "against", "block", "head", "distance"),
    optional=("other",),
    rows=("model", "block", "head"),
    empty="There are no two models to compare.",
)
def image_attention_change(table: pd.DataFrame, *, sentence: str = "") -> Picture:
    """Half the L1 distance of the class token's attention rows of two models: 0 if equal, 1 if disjoint."""
    fig, cells, zoom_key = matrix.draw_model_matrices(
        table, ("Block", "block"), ("Head", "head"), "distance",
        "<b>block {block}, head {head}</b><br>{title:text 40} and {against:text 40}<br>{distance:real} of the "
        "attention is on other tokens", ColorScale("Half the L1<br>distance", log=False, limits=(0.0, 1.0)),
    )  # fmt: skip
    most = "most, {distance:real}, in block {block}, head {head} of {title:plain 40}."
    words = f"Change of attention by block and head for {plural(table['model'].nunique(), 'run')}: "
    alt = f"{sentence} {words}{describe_extreme(table, 'distance', most)}".strip()
    return Picture(fig, alt, matrix.matrix_height(fig, len(cells)), zoom_key=zoom_key)


@chart(
    title="Drift by patch",
    question="Which tokens of the image drift, and from which depth?",
    columns=("model", "title", "against", "depth", "token", "row", "column", "drift"),
    optional=("mean", "high", "past", "reference"),
    rows=("model", "depth", "token"),
    empty="No run's drift on the image is known yet.",
)
def image_drift(table: pd.DataFrame, *, sentence: str = "") -> Picture:
    """A row for each token, with the class token set off, and a column for each depth of each run.

    Columns: drift (1 − cosine to the reference's token). mean and high are the data set's mean and 90 % quantile for
    the same depth, past (bool) is True if the drift is above the quantile; a cross marks these cells.
    """
    table = table.assign(name=_name_tokens(table))
    names = distinct_names(table.sort_values("token", kind="stable")["name"])
    limits = (0.0, max(float(table["drift"].max()), 1e-6))
    fig, cells, zoom_key = matrix.draw_model_matrices(
        table, ("Token: class token, patches by row and column", "token"), (BLOCKS_PASSED, "depth"), "drift",
        DRIFT_HOVER, ColorScale("Drift,<br>1 − cosine", log=False, limits=limits), names=names,
    )  # fmt: skip
    past = np.array([[cell.get("past") is True for cell in row] for row in cells])
    _mark_cells(fig, past, "Past 90% of the data set", -0.3, CORRECTED_MARK)
    fig.add_shape(axes.horizontal_line(0.5, theme.edge(2), layer="above"))
    if len(names) > MAX_LABELED:
        fig.update_yaxes(**_sparse_ticks(names))
    words = f"Drift of {plural(len(names), 'token')} by depth for {plural(table['model'].nunique(), 'run')}: most, "
    most = describe_extreme(table, "drift", "{drift:real}, at {name:plain}, depth {depth} of {title:plain 40}")
    alt = f"{sentence} {words}{most}"
    alt += f"; {plural(int(past.sum()), 'cell')} past 90% of the data set." if past.any() else "."
    shorter = min(MAX_HEIGHT - matrix.ROW * len(names), 0)
    return Picture(fig, alt.strip(), matrix.matrix_height(fig, len(names)) + shorter, zoom_key=zoom_key)


@chart(
    title="Restoring tokens",
    question="Which tokens, put in from the reference before which block, bring the answer back?",
    columns=("model", "title", "against", "depth", "tokens", "followed", "probability", "change", "answer", "right"),
    optional=("donor",),
    rows=("model", "depth", "tokens"),
    empty="Nothing has been restored yet.",
)
def image_restore(table: pd.DataFrame, *, sentence: str = "") -> Picture:
    """A row for each block, a column for each kind of tokens that is put in before it; the last row is the output.

    Columns: against (whose tokens are put in), depth (before the block of that number), tokens ("class", "patches",
    "all"), followed (the class whose probability is shown), probability, change (of the probability), answer, and right
    (whether the answer is that class), which a ring marks.
    """
    table = table.assign(kind=[TOKEN_NAMES.get(tokens, tokens) for tokens in table["tokens"]])
    fig, cells, zoom_key = matrix.draw_model_matrices(
        table, ("Before block", "depth"), ("Tokens put in", "kind"), "probability",
        "<b>{title:text 40}</b> with the {kind:text 30} of {against:text 40} before block {depth}<br>" + RESTORED_HOVER,
        ColorScale("Probability of<br>the right class", log=False, limits=(0.0, 1.0), percent=True),
        names=_name_blocks(table), change=_format_points,
    )  # fmt: skip
    _mark_cells(fig, np.array([[bool(cell["right"]) for cell in row] for row in cells]), "Right", -0.26, RIGHT_MARK)
    words = describe_extreme(
        table.assign(runs=plural(table["model"].nunique(), "run"), number=int(table["right"].astype(bool).sum())),
        "probability",
        f"Probability of {{followed:plain 40}} with tokens put in, for {{runs}}: right in {{number}} of {len(table)} "
        "cells, at most {probability:percent 0} ({kind:plain 30} before block {depth}).",
    )  # fmt: skip
    return Picture(fig, f"{sentence} {words}".strip(), matrix.matrix_height(fig, len(cells)), zoom_key=zoom_key)


@chart(
    title="Restoring single tokens",
    question="Which single token brings the answer back?",
    columns=(
        "model", "title", "against", "depth", "token", "row", "column", "followed", "probability", "change", "answer",
        "right",
    ),
    optional=("donor",),
    rows=("model", "depth", "token"),
    empty="No single token has been restored yet.",
)  # fmt: skip
def image_restore_tokens(table: pd.DataFrame, *, model: str = "", sentence: str = "") -> Picture:
    """As ``image_restore``, with a column for each single token, for one ``model`` (by default the first)."""
    shown_model = model if model in set(table["model"]) else table["model"].iloc[0]
    model_rows = table[table["model"] == shown_model]
    model_rows = model_rows.assign(name=_name_tokens(model_rows), points=100 * model_rows["change"])
    names = distinct_names(model_rows.sort_values("token", kind="stable")["name"])
    fig, cells, _ = matrix.draw_model_matrices(
        model_rows, ("Before block", "depth"), (f"Token put in, {safe_text(model_rows['title'].iloc[0], 40)}", "token"),
        "points", f"<b>{{name}}</b> of {{against:text 40}} before block {{depth}}<br>{RESTORED_HOVER}",
        ColorScale("Change of the right<br>class, points", log=False, diverging=True), names=_name_blocks(model_rows),
        across=names, grouped=False, change=_format_points,
    )  # fmt: skip
    _mark_cells(fig, np.array([[bool(cell["right"]) for cell in row] for row in cells]), "Right", -0.26, RIGHT_MARK)
    fig.add_shape(axes.vertical_line(0.5, theme.edge(2), yref="y domain", layer="above"))
    if len(names) > MAX_LABELED:
        fig.update_xaxes(**_sparse_ticks(names))
    words = describe_extreme(
        model_rows, "change",
        "Change of the probability of {followed:plain 40} with single tokens put in: most, {change:change}, with "
        "{name:plain} before block {depth}.", change=_format_points,
    )  # fmt: skip
    return Picture(fig, f"{sentence} {words}".strip(), matrix.matrix_height(fig, len(cells)), zoom_key=shown_model)


def _name_tokens(table: pd.DataFrame) -> list[str]:
    tokens = zip(table["token"], table["row"], table["column"], strict=True)
    return [f"{row}, {column}" if token else "class token" for token, row, column in tokens]


def _name_blocks(table: pd.DataFrame) -> list[str]:
    """Names of the rows: the blocks before which tokens are put in, then the output."""
    *blocks, last = sorted(int(depth) for depth in table["depth"].unique())
    return [*map(str, blocks), f"output ({last})"]


def _format_points(change: float) -> str:
    return f"{100 * change:+.1f} points".replace("-", "−")


def _mark_cells(fig: Drawing, cells: Any, name: str, offset: float, marker: dict[str, Any]) -> None:
    """Small marks in the upper right corners of the cells (rows, columns) that are True."""
    y, x = np.nonzero(cells)
    if len(x):
        positions = {"x": x.astype(np.float32) + np.float32(0.36), "y": y.astype(np.float32) + np.float32(offset)}
        marker = marker | {"color": theme.ACCENT}
        fig.add_trace(scatter(**positions, mode="markers", name=name, hoverinfo="skip", marker=marker))


def _sparse_ticks(names: Sequence[str]) -> dict[str, Any]:
    """Ticks of an axis with room for only some of the names."""
    indices = [0, *range(1, len(names), max(1, len(names) // 16))]
    return {"tickvals": indices, "ticktext": [safe_text(names[index], 20) for index in indices]}
