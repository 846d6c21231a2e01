"""Charts of modules and routers: feature shift, storage, and the experts' weights.

A module is learned for one task on top of a merged model, to move its features to those of the expert (the feature
shift is their distance). A router mixes the experts with weights for each image.
"""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import Names, chart, distinct_names
from viz.drawing import Drawing, Picture
from viz.figure_text import clean_text, count, plural, real, safe_text
from viz.hover import describe_extreme, describe_extremes
from viz.parts import axes, heat_maps, matrix, series
from viz.parts.legends import add_legend

MIB = 1 << 20
PATTERN_SHAPES = ("", "/", ".", "\\", "x", "-", "|", "+")
BAR_HEIGHT, GROUP_HEIGHT = 15, 46  # px: height of a bar, and of a task's two with the gap below them
STAGE_STYLES = {"before": ("Merged model", theme.OTHER_COLOR, "/"), "after": ("With the task's module", theme.BLUE, "")}
REMOVED_TEXT = "[<br>the module removes {removed:percent}][<br>{n:count} images]"
PART_HOVER = "<b>{label}</b><br>{part}: {bytes:mib} MiB[, {share:percent} of {whole:mib} MiB]<br>{bytes:count} bytes"
WHOLE_TEXT = "{whole:mib} MiB ({label:plain 30})"
WHOLE_MODEL = "Whole model"
MARK_SPREAD = 0.55  # share of a block's width over which the tasks' marks are spread
RANGE_TEXT = "[<br>{low:real} to {high:real} for nine of ten images][<br>{n:count} images]"
OWN_HOVER = f"<b>{{title}}</b>[, block {{number}}]<br>weight of its own expert {{weight:decimal 3}}{RANGE_TEXT}"
MIXED_HOVER = f"<b>{{expert}}</b>[ in block {{number}}]<br>mean weight {{weight:decimal 3}}{RANGE_TEXT}"
IMAGE_HOVER = "<b>{expert}</b>[ in block {number}]<br>weight {weight:decimal 3}"
CONFUSION_HOVER = (
    "<b>{title}</b>{unseen}<br>{share:percent}[ of {n:count}] images have {expert} as the expert with the most weight"
)
SUREST_SENTENCE = " The surest is {title:plain 40}: {share:percent} of the images go to {expert:plain 40}."


@chart(
    title="Feature shift before and after the modules",
    question="How much of each task's feature shift does its module remove?",
    columns=("task", "title", "before", "after"),
    optional=("cosine_before", "cosine_after", "n"),
    rows=("task",),
    picks=("task",),
    empty="No feature shift was measured for this run.",
)
def feature_shift(table: pd.DataFrame) -> Picture:
    """Two bars for each task, in the table's order: the merged model's shift, and the shift with the task's module.

    Columns: before and after (mean |f − f_expert| per dimension of the raw features, over images), cosine_before and
    cosine_after (mean 1 − cosine).
    """
    plotted = series.require_finite_rows(table, "before", "after", empty_reason="no task has both numbers").reset_index(
        drop=True
    )
    plotted["removed"] = (1 - plotted["after"] / plotted["before"]).where(plotted["before"] > 0)
    fig = Drawing([
        series.bars(
            plotted, stage, plotted.index + (lane - 0.5) * BAR_HEIGHT / GROUP_HEIGHT, color,
            f"<b>{{title}}</b><br>{name.lower()}: {{{stage}:real}}[, 1 − cosine {{cosine_{stage}:real}}]{REMOVED_TEXT}",
            picks=("task",), orientation="h", name=name, legendgroup=name, width=0.9 * BAR_HEIGHT / GROUP_HEIGHT,
            marker={"pattern": theme.stripes(shape)},
        )
        for lane, (stage, (name, color, shape)) in enumerate(STAGE_STYLES.items())
    ])  # fmt: skip
    fig.update_xaxes(title={"text": "Mean |difference| from the expert's features, per dimension"}, rangemode="tozero")
    before, after = plotted["before"].mean(), plotted["after"].mean()
    words = (
        f"Feature shift of {plural(len(plotted), 'task')}: {real(before)} on average before and {real(after)} after."
    )
    words += describe_extreme(plotted, "removed", " The module removes most for {title:plain 40}, {removed:percent}.")
    return _lay_out_rows(fig, words, "Task", [safe_text(title, 24) for title in plotted["title"]], GROUP_HEIGHT)


@chart(
    title="What one model is made of",
    question="What must be stored to use each merge?",
    columns=("run", "label", "part", "bytes"),
    rows=("run", "part"),
    picks=("run",),
    empty="No run has recorded its storage.",
)
def storage_parts(table: pd.DataFrame) -> Picture:
    """A bar for each run, in MiB (2²⁰ bytes), made of its parts."""
    plotted = series.require_finite_rows(table, "bytes", empty_reason="these runs did not record their storage")
    order = {name: index for index, name in enumerate(distinct_names(plotted["part"]))}
    runs = distinct_names(plotted["run"])
    plotted = plotted.sort_values("part", key=lambda names: names.map(order), kind="stable")
    sizes = plotted.groupby("run")["bytes"]
    plotted = plotted.assign(before=sizes.cumsum() - plotted["bytes"], whole=sizes.transform("sum"))
    plotted["share"] = (plotted["bytes"] / plotted["whole"]).where(plotted["whole"] > 0)
    fig = Drawing([
        series.bars(
            rows, rows["bytes"] / MIB, rows["run"].map(runs.index), theme.PALETTE[order[name] % len(theme.PALETTE)],
            PART_HOVER, picks=("run",), formats={"mib": _format_mib}, base=rows["before"] / MIB, orientation="h",
            width=0.62,
            marker={"pattern": theme.stripes(PATTERN_SHAPES[order[name] % len(PATTERN_SHAPES)])}, **entry,
        )
        for name, rows, entry in series.rows_by_name(plotted, "part", list(order), label="part")
    ])  # fmt: skip
    fig.update_xaxes(title={"text": "MiB (2²⁰ bytes)"}, range=[0, 1.05 * max(plotted["whole"].max() / MIB, 1e-6)])
    most, least = describe_extremes(plotted.sort_values("run"), "whole", WHOLE_TEXT, mib=_format_mib)
    labels = dict(zip(plotted["run"], plotted["label"], strict=True))
    words = f"Storage of {plural(len(runs), 'run')}: from {least} to {most}."
    return _lay_out_rows(fig, words, "Run", [_wrap_label(labels[run]) for run in runs], 2 * theme.LINE_HEIGHT)


def _lay_out_rows(fig: Drawing, words: str, title: str, names: list[str], row: float) -> Picture:
    """The bars with the names of their rows, which are ``row`` px high."""
    fig.update_yaxes(**axes.name_axis(title, names, down=True, ticktext=names))
    fig.update_layout(barmode="overlay")
    left = max(theme.text_width(line) for name in names for line in name.split("<br>")) + 40
    return add_legend(fig, words, row * max(len(names), 3) + 72, left=left, right=30, below=58, gap=14)


def _format_mib(size: float) -> str:
    return real(size / MIB) if size < 100 * MIB else count(size / MIB)


def _wrap_label(label: str) -> str:
    """A run's name in at most two lines, for the axis of its bar."""
    lines = textwrap.wrap(clean_text(label), 24, max_lines=2, placeholder=" …")
    return "<br>".join(map(safe_text, lines)) or "\xa0"


@chart(
    title="Weight of the own expert",
    question="How much do images use the expert of their own task?",
    columns=("task", "title", "block", "weight"),
    optional=("low", "high", "n"),
    rows=("task", "block"),
    empty="No routing was recorded for a task of a merged expert.",
)
def routing_own(table: pd.DataFrame, *, tasks: Names = None) -> Picture:
    """A mark for each task and block with the range of its images.

    Columns: block (missing where one router serves the whole model), weight (of the task's own expert, mean over its
    images), low and high (5th and 95th percentile over images).
    """
    plotted = _add_blocks(table)
    names, blocks = distinct_names(plotted["task"]), distinct_names(plotted["block"])
    mark_style, lane = theme.mark_styles(tasks or names), MARK_SPREAD / max(len(names) - 1, 1)
    fig = Drawing([
        series.marks(
            rows, rows["block"].map(blocks.index) + (index - (len(names) - 1) / 2) * lane, "weight", mark_style[name],
            OWN_HOVER, error_y=series.interval(rows, "weight", mark_style[name].color, thickness=1.2), **entry,
        )
        for index, (name, rows, entry) in enumerate(series.rows_by_name(plotted, "task", label="title"))
    ])  # fmt: skip
    fig.update_xaxes(**axes.name_axis(_block_title(blocks), blocks, 16, tickangle=0, fixedrange=False))
    fig.update_yaxes(title={"text": "Weight of the own expert"}, rangemode="tozero")
    means = plotted.groupby("task", as_index=False).agg(title=("title", "last"), weight=("weight", "mean"))
    words = f"Weight of the own expert of {plural(len(means), 'task')}, {_describe_blocks(blocks)}."
    words += describe_extreme(means, "weight", " On average it is highest for {title:plain 40}, {weight:decimal}")
    lowest = describe_extreme(means, "weight", ", and lowest for {title:plain 40}, {weight:decimal}", smallest=True)
    return add_legend(fig, f"{words}{lowest if len(means) > 1 else ''}.", 360, left=66, right=24, gap=14)


@chart(
    title="Routing of one task",
    question="Which experts are mixed for this task's images?",
    columns=("block", "expert", "weight"),
    optional=("low", "high", "n"),
    rows=("block", "expert"),
    picks=("expert", "block"),
    empty="No routing was recorded for this task.",
)
def routing_map(table: pd.DataFrame, *, task: str = "") -> Picture:
    """A heat map of experts by blocks, with weights as in ``routing_own``. ``task`` is the task's title."""
    of_task = f" for {clean_text(task, 40)}" if task else ""
    return _draw_weights(table, MIXED_HOVER, f"Mean routing weights{of_task}", task)


@chart(
    title="Routing of one image",
    question="How is this image mixed?",
    columns=("block", "expert", "weight"),
    rows=("block", "expert"),
    picks=("expert", "block"),
    empty="This image has not been routed.",
)
def routing_image(table: pd.DataFrame, *, image: str = "") -> Picture:
    """A heat map of experts by blocks, as ``routing_map``. ``image`` names the image."""
    return _draw_weights(table, IMAGE_HOVER, f"Routing weights of {clean_text(image, 60) or 'one image'}", image)


def _draw_weights(table: pd.DataFrame, hover: str, words: str, zoom_key: str) -> Picture:
    """A heat map of the experts' weights by block, or once for the whole model."""
    plotted = _add_blocks(table)
    experts, blocks = distinct_names(table["expert"]), distinct_names(plotted["block"])
    limits = min(0.0, plotted["weight"].min()), max(1.0, plotted["weight"].max())
    fig = matrix.draw_table_matrix(
        plotted, matrix.MatrixSide("Expert", experts, experts), matrix.MatrixSide(_block_title(blocks), blocks, blocks),
        ("expert", "block"), "weight", hover, heat_maps.ColorScale("weight", log=False, limits=limits),
    )  # fmt: skip
    means = plotted.groupby("expert", as_index=False)[["weight"]].mean()
    largest = describe_extreme(
        means, "weight", "The largest weight on average is {expert:plain 40}'s, {weight:decimal}."
    )
    words = f"{words}: {plural(len(experts), 'expert')}, {_describe_blocks(blocks)}. {largest}"
    return Picture(fig, words, matrix.matrix_height(fig, len(experts)), zoom_key=zoom_key)


def _add_blocks(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with a weight; block is a name, number the same, but empty where one router serves the whole model."""
    routed = series.require_finite_rows(table, "weight", empty_reason="no weight is a number")
    blocks = routed["block"].map(_block_name)
    return routed.assign(block=blocks, number=blocks.where(blocks != WHOLE_MODEL, ""))


def _block_name(block: object) -> str:
    """A block's number, or "the whole model" where one router serves all blocks."""
    if isinstance(block, str) or block is None:
        return str(block).removeprefix("block ") if block else WHOLE_MODEL
    number = float(block)  # type: ignore[arg-type]
    return f"{number:.0f}" if np.isfinite(number) and number >= 0 else WHOLE_MODEL


def _block_title(blocks: list[str]) -> str:
    return "Block" if blocks != [WHOLE_MODEL] else "Routed once, before the network"


def _describe_blocks(blocks: list[str]) -> str:
    return f"in {plural(len(blocks), 'block')}" if blocks != [WHOLE_MODEL] else "once for the whole model"


@chart(
    title="Confusion of the router",
    question="Whose images does the router take each data set's images for?",
    columns=("task", "title", "in_domain", "expert", "share"),
    optional=("n",),
    rows=("task", "expert"),
    picks=("task", "expert"),
    empty="No image has been routed.",
)
def router_confusion(table: pd.DataFrame) -> Picture:
    """A matrix of data sets by experts; unseen data sets, which have no expert, are below a line.

    Columns: in_domain (one of the experts is the data set's own), share (of its images that give this expert the most
    weight).
    """
    series.require_finite_rows(table, "share", empty_reason="no share is a number")
    table = table.sort_values("in_domain", ascending=False, kind="stable")
    inside = table["in_domain"].astype(bool)
    table = table.assign(unseen=np.where(inside, "", ", which no expert was trained on"))
    tasks, experts = table.drop_duplicates("task"), distinct_names(table["expert"])
    fig = matrix.draw_table_matrix(
        table, matrix.MatrixSide("Images of", tasks["task"].tolist(), tasks["title"].tolist()),
        matrix.MatrixSide("Expert with the most weight", experts, experts), ("task", "expert"), "share",
        CONFUSION_HOVER, heat_maps.ColorScale("images", log=False, limits=(0.0, 1.0), percent=True),
    )  # fmt: skip
    in_domain_count = int(tasks["in_domain"].astype(bool).sum())
    if 0 < in_domain_count < len(tasks):
        line = {"color": theme.INK, "width": 2}
        fig.add_shape(
            type="line", x0=-0.5, x1=len(experts) - 0.5, y0=in_domain_count - 0.5, y1=in_domain_count - 0.5, line=line
        )
    words = f"The expert with the most weight for the images of {plural(len(tasks), 'data set')}."
    words += describe_extreme(table, "share", SUREST_SENTENCE)
    return Picture(fig, words, matrix.matrix_height(fig, len(tasks)), zoom_key=str(len(tasks)))
