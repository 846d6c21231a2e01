"""Charts of whole data sets: at which depth answers turn, and before which block restored tokens fix them.

Restoring runs a merge with the tokens of a reference model put in before a block. Broken images are those that only the
reference answers right; a broken image is fixed if the merge then answers it right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from viz import theme
from viz.chart import Names, NothingToDraw, chart, check_option, distinct_names
from viz.drawing import Drawing, Picture, Trace
from viz.figure_text import clean_text, plural, safe_text
from viz.hover import describe_extreme, hover_texts
from viz.parts import axes, heat_maps, legends, matrix, series
from viz.parts.heat_maps import BLOCKS_PASSED

HOVER = "<b>{label}</b>, {where}<br>{share:percent}[ ({low:percent} to {high:percent})][<br>of {n:count} images]"
VALUE_TITLES = {  # -> title of the axis, and the same in a sentence
    "turns": ("Images whose answer is<br>final from this depth (%)", "images whose answer is final from that depth"),
    "parts": ("Images that leave the<br>reference's answer (%)", "images that leave the reference's answer there"),
    "accuracy": ("Accuracy of the answer<br>at this depth (%)", "accuracy of the answer at that depth"),
}
TASK_VALUE_TITLES = {  # -> title of the scale, of the axis, and the share in a sentence
    "turns": ("answer final<br>from here", BLOCKS_PASSED, "images whose answer is final from there"),
    "parts": ("leave the<br>reference", BLOCKS_PASSED, "images that leave the reference's answer there"),
    "mended": ("right again", "Before which block tokens are put in", "broken images that are fixed there"),
}
REFERENCE_KIND = "reference"  # the kind of row with a dashed line
TOKEN_KINDS = {"class": "Class token", "patches": "Patches", "all": "All tokens"}  # -> title of the panel
GAP = 0.03  # between panels, in shares of the width
KIND_GAP = 0.055  # of a unit of depth between the marks of two lines, so that their intervals can be told apart


@chart(
    title="Answers by depth over a data set",
    question="At which depth is the answer decided?",
    columns=("run", "label", "kind", "depth", "share"),
    optional=("low", "high", "n"),
    rows=("run", "depth"),
    empty="Answers by depth have not been measured for any run.",
)
def data_set_depths(table: pd.DataFrame, *, value: str = "turns", runs: Names = None, over: str = "") -> Picture:
    """A line for each run over depth, with intervals.

    Columns: kind ("run", or "reference" for a dashed line), share. ``value`` names the share; ``over`` names
    the images in the alt text.
    """
    title, shares = VALUE_TITLES[check_option("value", value, tuple(VALUE_TITLES))]
    table = series.require_finite_rows(table, "share", empty_reason="no depth has a share")
    dashed = set(table.loc[table["kind"] == REFERENCE_KIND, "run"])
    names = sorted(distinct_names(table["run"]), key=lambda name: name in dashed)
    mark_styles = theme.mark_styles(runs or [name for name in names if name not in dashed])
    table = table.assign(where="depth " + table["depth"].astype(int).astype(str))
    fig = Drawing()
    for index, (name, rows, entry) in enumerate(series.rows_by_name(table, "run", names)):
        mark_style = theme.KINDS["pretrained"] if name in dashed else mark_styles[name]
        style = {"dash": "dash" if name in dashed else "solid"}
        fig.add_trace(_draw_line(rows, mark_style, index - (len(names) - 1) / 2, style, **entry))
    fig.update_xaxes(**_make_block_axis(list(map(str, range(int(table["depth"].max()) + 1))), BLOCKS_PASSED))
    fig.update_yaxes(title={"text": title}, tickformat=".0%", rangemode="tozero")
    highest = "{label:plain 40} is highest at depth {depth:count}, {share:percent}"
    parts = [describe_extreme(rows, "share", highest) for _, rows, _ in series.rows_by_name(table, "run", names[:3])]
    alt = f"Share by depth of {plural(len(names), 'model')}: {shares}{_images_words(over)}. {'; '.join(parts)}."
    return legends.add_legend(fig, alt, 340, zoom_key=value, left=84, right=24, gap=14)


@chart(
    title="Restoring over a data set",
    question="Which tokens, put back before which block, fix what the merge breaks?",
    columns=("run", "label", "depth", "tokens", "share"),
    optional=("low", "high", "n"),
    rows=("run", "depth", "tokens"),
    empty="Restoring has not been measured for any run.",
)
def data_set_mended(table: pd.DataFrame, *, runs: Names = None, over: str = "") -> Picture:
    """A panel for each kind of restored tokens, with a line for each run over the block before which they are put in.

    Columns: depth (of the block; the last one is the output), tokens (class, patches, all), share of the broken images
    that are right then, n (broken images). ``over`` names the images in the alt text.
    """
    table = series.finite_rows(table, "share")
    if table.empty:
        raise NothingToDraw("Nothing to fix: no image is right with the reference only.")
    names, kinds = distinct_names(table["run"]), distinct_names(table["tokens"])
    mark_styles, last = theme.mark_styles(runs or names), int(table["depth"].max())
    table = table.assign(where=[_depth_words(depth, last) for depth in table["depth"]])
    fig = Drawing()
    for panel, (kind, domain) in enumerate(zip(kinds, axes.panel_domains(len(kinds), GAP), strict=True)):
        number = str(panel + 1) if panel else ""
        for name, rows, entry in series.rows_by_name(table[table["tokens"] == kind], "run", names):
            shift = names.index(name) - (len(names) - 1) / 2
            mark_style = mark_styles[name]
            fig.add_trace(
                _draw_line(rows, mark_style, shift, {"dash": "solid"}, xaxis=f"x{number}", yaxis="y", **entry)
            )
        shared = {"domain": domain, "anchor": "y"}
        fig.update_layout(
            {f"xaxis{number}": _make_block_axis([*map(str, range(last)), "out"], "Before block") | shared}
        )
        fig.add_annotation(theme.caption(safe_text(TOKEN_KINDS.get(kind, kind), 30), 1, x=domain[0], yshift=4))
    legends.merge_entries(fig)
    fig.update_yaxes(title={"text": "Broken images that<br>are right again (%)"}, tickformat=".0%", range=[0, 1.02])
    alt = (
        "Broken images that are right with the reference's tokens put in, "
        f"{plural(len(names), 'run')}{_images_words(over)}."
    )
    first = table[table["tokens"] == kinds[0]]
    parts = [_shares_in_words(rows.sort_values("depth")) for _, rows, _ in series.rows_by_name(first, "run", names[:3])]
    alt += f" {clean_text(TOKEN_KINDS.get(kinds[0], kinds[0]), 20)}: {'; '.join(filter(None, parts))}."
    return legends.add_legend(fig, alt, 320, left=84, right=24, gap=36)


@chart(
    title="Every data set by depth",
    question="On which data sets, and where in the network, does it happen?",
    columns=("task", "title", "depth", "share"),
    optional=("low", "high", "n", "label"),
    rows=("task", "depth"),
    picks=("task", "depth"),
    empty="No data set has been measured by depth.",
)
def data_set_tasks(table: pd.DataFrame, *, value: str = "turns") -> Picture:
    """A matrix of data sets and depths of one run, whose cells take clicks.

    Columns: share, label (the run's). ``value`` names the share; for restoring, depth is the block before
    which tokens are put in.
    """
    scale_title, axis_title, shares = TASK_VALUE_TITLES[check_option("value", value, tuple(TASK_VALUE_TITLES))]
    largest = float(
        series.require_finite_rows(table, "share", empty_reason="no data set has such images")["share"].max()
    )
    tasks, depths = table.drop_duplicates("task"), sorted(table["depth"].astype(int).unique())
    last, is_before_block = int(depths[-1]), value == "mended"
    positions = [_depth_words(depth, last) if is_before_block else f"depth {depth:.0f}" for depth in table["depth"]]
    cells = table.assign(depth=table["depth"].astype(int).astype(str), label=table["title"], where=positions)
    names = ["out" if is_before_block and depth == last else str(depth) for depth in depths]
    fig = matrix.draw_table_matrix(
        cells, matrix.MatrixSide("Data set", tasks["task"].tolist(), tasks["title"].tolist()),
        matrix.MatrixSide(axis_title, list(map(str, depths)), names), ("task", "depth"), "share", HOVER,
        heat_maps.ColorScale(scale_title, log=False, limits=(0.0, max(0.01, largest)), percent=True),
    )  # fmt: skip
    run = f" of {clean_text(table['label'].iloc[0], 60)}" if "label" in table else ""
    alt = f"Share of {shares}{run}, for {plural(len(tasks), 'data set')}. It is highest for "
    position = "before block {depth}" if is_before_block else "at depth {depth}"
    alt += describe_extreme(table, "share", f"{{title:plain 40}} {position}, {{share:percent}}.")
    return Picture(fig, alt, matrix.matrix_height(fig, len(tasks)), zoom_key=value)


def _draw_line(
    rows: pd.DataFrame, mark_style: theme.MarkStyle, shift: float, line: Mapping[str, Any], **fields: Any
) -> Trace:
    """A run's shares over depth as a line, with the intervals where the table has them."""
    rows = rows.sort_values("depth")
    error = series.interval(rows, "share", mark_style.color, width=3, thickness=1.2)
    return series.marks(
        rows, rows["depth"] + KIND_GAP * shift, "share", mark_style, HOVER, size=8, line={"width": 1.8, **line},
        error_y=error, **fields,
    )  # fmt: skip


def _make_block_axis(labels: list[str], title: str) -> dict[str, Any]:
    """Settings of an axis with one tick for each depth."""
    return axes.name_axis(title, labels, range=[-0.35, len(labels) - 0.65], tickangle=0, fixedrange=None)


def _depth_words(depth: float, last: int) -> str:
    return "before the output" if depth == last else f"before block {depth:.0f}"


def _images_words(images: str) -> str:
    return f", {clean_text(images, 60)}" if images else ""


def _shares_in_words(rows: pd.DataFrame) -> str:
    """A run's shares before the first block, a middle one and the last."""
    low, high = int(rows["depth"].min()), int(rows["depth"].max())
    sampled = rows[rows["depth"].isin([low, (low + high) // 2, high - 1])]
    shares = ", ".join(hover_texts(sampled, "{share:percent} before block {depth:count}"))
    return hover_texts(rows.iloc[:1], "{label:plain 40}[ (n = {n:count})]: ")[0] + shares if shares else ""
