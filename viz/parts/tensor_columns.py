"""The tensors of a model as the columns of a heat map: their order, the names of their groups, lines between these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from viz import theme
from viz.chart import in_forward_order, in_order, one_of
from viz.parts import sections
from viz.parts.sections import Span
from viz.text import safe_text

LARGE = 2500  # cells above which each has a short hover text, so that a figure stays below 1.5 MB
GROUPS = ("order", "block", "part")
NAMES = 0.1  # share of the width that a canvas gives the names of its rows, which can be clicked

NARROW = 320  # px between the margins of a canvas on a narrow page


def ordered(table: pd.DataFrame, group: str) -> pd.DataFrame:
    """One row a tensor in the order of the columns, with the name of its group as "label".

    ``group`` is order (forward order), block (kinds of layer lined up inside each block) or part (same kinds side by
    side). Raises ChartError.
    """
    one_of("group", group, GROUPS)
    tensors = in_forward_order(table.drop_duplicates("tensor")).reset_index(drop=True)
    section = tensors["section"].astype(str)
    by_part = tensors["part"].astype(str).where(section.map(sections.is_block).astype(bool), section)
    tensors["label"] = by_part if group == "part" else section
    if group == "order":
        return tensors
    rank = {label: i for i, label in enumerate(in_order(tensors["label"]))}
    kind = {part: i for i, part in enumerate(in_order(tensors["part"]))}
    keys = tensors.assign(_group=tensors["label"].map(rank), _kind=tensors["part"].map(kind))
    second = "_kind" if group == "block" else "order"
    return tensors.loc[keys.sort_values(["_group", second, "order"], kind="stable").index].reset_index(drop=True)


def spans(tensors: pd.DataFrame) -> list[Span]:
    """Every sequence of columns of one group; ``tensors`` is from ``ordered``."""
    return sections.spans(list(tensors["label"]))


def title(group: str, columns: int) -> str:
    """What the columns are and how they are ordered."""
    by = {
        "order": "in forward order; numbers are blocks",
        "block": "by block, then kind of layer; numbers are blocks",
        "part": "by kind of layer, then forward order",
    }
    return f"Tensors ({columns}), {by[group]}"


def axis(groups: Sequence[Span], columns: int, group: str) -> dict[str, Any]:
    """The x axis, with the names of the groups; those before and after the blocks are ``end_labels``."""
    kinds = {
        "tickvals": [(a + b) / 2 for _, a, b in groups], "ticktext": [safe_text(label, 24) for label, _, _ in groups],
    }  # fmt: skip
    return {
        "title": {"text": title(group, columns)}, "range": [-0.5, columns - 0.5], "showgrid": False,
        "tickmode": "array", "ticks": "", "tickangle": -40 if group == "part" else 0,
        **(kinds if group == "part" else sections.ticks(groups)),
    }  # fmt: skip


def bare_axis(columns: int, group: str) -> dict[str, Any]:
    """The x axis beside a canvas's names of rows, without labels; its title is there for those who read the figure."""
    return {
        "title": {"text": title(group, columns), "font": {"color": "rgba(0,0,0,0)"}}, "range": [-0.5, columns - 0.5],
        "showgrid": False, "showticklabels": False, "ticks": "", "domain": [NAMES, 1],
    }  # fmt: skip


def left_margin(rows: Sequence[str], canvas: bool = False) -> float:
    """Width in px left of the plot for the names of rows and the title; a canvas has most of them in the plot."""
    wide = max(_longest(rows) + 38, 108)  # room for "embeddings" under the axis
    return wide - NAMES * NARROW if canvas else wide


def beside_names(rows: Sequence[str]) -> float:
    """Distance in px of a canvas's title from its plot, beyond the names of rows that reach out of it."""
    return max(_longest(rows) + 8 - NAMES * NARROW, 8)


def _longest(rows: Sequence[str]) -> float:
    return max(theme.text_width(safe_text(row, 24)) for row in rows)


def separators(groups: Sequence[Span], axes: Sequence[str]) -> list[dict[str, Any]]:
    """White lines between groups, inside the panels of these y axes only."""
    return [
        {
            "type": "line", "xref": "x", "yref": f"{axis} domain", "x0": first - 0.5, "x1": first - 0.5,
            "y0": 0, "y1": 1, "line": {"color": "white", "width": 2},
        }
        for _, first, _ in groups[1:]
        for axis in axes
    ]  # fmt: skip
