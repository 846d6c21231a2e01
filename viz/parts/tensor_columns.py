"""The tensors of a model as the columns of a heat map: their order, the names of their groups, lines between these.

Groups are sections of the network ("embeddings", "block 3", "encoder block 3", "output") or kinds of layer. A network
with several towers has the tower's name before each section; ticks are the blocks' numbers then, too, with the tower
below them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd

from viz import theme
from viz.chart import in_forward_order, in_order, one_of
from viz.text import safe_text

BLOCK = re.compile(r"(?:(?P<tower>.+) )?block (?P<number>\d+)")
LARGE = 2500  # cells above which each has a short hover text, so that a figure stays below 1.5 MB
GROUPS = ("order", "block", "part")
NAMES = 0.1  # share of the width that a canvas gives the names of its rows, which can be clicked

NARROW = 320  # px between the margins of a canvas on a narrow page


class Span(NamedTuple):
    """Neighboring columns of one group: its name, its first and its last column."""

    label: str
    first: int
    last: int


def is_block(section: str) -> bool:
    """Whether a section is a block."""
    return BLOCK.fullmatch(section) is not None


def short(section: str) -> str:
    """A block as its number, with its tower if there are several ("encoder 3"); other names as they are."""
    match = BLOCK.fullmatch(section)
    return " ".join(filter(None, match.groups())) if match else section


def spans_of(labels: Sequence[str]) -> list[Span]:
    """Every sequence of columns of one group."""
    starts = [j for j in range(len(labels)) if j == 0 or labels[j] != labels[j - 1]]
    return [Span(labels[a], a, b - 1) for a, b in zip(starts, [*starts[1:], len(labels)], strict=True)]


def ticks(groups: Iterable[Span]) -> dict[str, Any]:
    """The ticks of an axis: the number of every block in its middle, and below the middle one its tower's name."""
    inside = [(span, match) for span in groups if (match := BLOCK.fullmatch(span.label))]
    texts = [match["number"] for _, match in inside]
    towers = [match["tower"] or "" for _, match in inside]
    for tower in filter(None, dict.fromkeys(towers)):
        own = [at for at, name in enumerate(towers) if name == tower]
        texts[own[len(own) // 2]] += f"<br>{safe_text(tower, 24)}"
    return {"tickvals": [(span.first + span.last) / 2 for span, _ in inside], "ticktext": texts}


def end_labels(groups: Sequence[Span], columns: int) -> list[dict[str, Any]]:
    """Labels of the sections before and after the blocks; being narrow, they grow away from the block numbers.

    Between two towers there is no room for one.
    """
    towers = {match["tower"] for span in groups if (match := BLOCK.fullmatch(span.label))}
    labels = []
    for at, (label, first, last) in enumerate(groups):
        if is_block(label) or (len(towers) > 1 and 0 < at < len(groups) - 1):
            continue
        at_left = first + last < columns
        text = label.rpartition(" ")[2] if len(towers) > 1 else label
        labels.append({
            "text": safe_text(text, 16), "x": last + 0.5 if at_left else first - 0.5, "xref": "x", "y": 0,
            "yref": "paper", "yanchor": "top", "yshift": 0, "xanchor": "right" if at_left else "left",
            "font": {"size": theme.SMALL, "color": theme.INK}, "showarrow": False,
        })  # fmt: skip
    return labels


def ordered(table: pd.DataFrame, group: str) -> pd.DataFrame:
    """One row a tensor in the order of the columns, with the name of its group as "label".

    ``group`` is order (forward order), block (kinds of layer lined up inside each block) or part (same kinds side by
    side). Raises ChartError.
    """
    one_of("group", group, GROUPS)
    tensors = in_forward_order(table.drop_duplicates("tensor")).reset_index(drop=True)
    section = tensors["section"].astype(str)
    by_part = tensors["part"].astype(str).where(section.map(is_block).astype(bool), section)
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
    return spans_of(list(tensors["label"]))


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
        **(kinds if group == "part" else ticks(groups)),
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
