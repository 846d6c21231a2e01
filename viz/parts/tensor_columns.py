"""The tensors of a model as the columns of a figure: their order, the names of their groups, lines between these.

Groups are sections of the network ("embeddings", "block 3", "encoder block 3", "output") or kinds of layer. In a
network with several towers (encoder and decoder, say) every section begins with the tower's name; ticks are the blocks'
numbers there, too, with the tower below them. A canvas is the chart ``manual_canvas``, on which factors are painted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import pandas as pd

from viz import theme
from viz.chart import check_option, distinct_names, sort_forward
from viz.drawing import Drawing
from viz.figure_text import safe_text
from viz.parts import axes
from viz.parts.cell_targets import every_cell

BLOCK_PATTERN = re.compile(r"(?:(?P<tower>.+) )?block (?P<number>\d+)")
GROUP_WORDS = {  # order of the columns -> its words in the title of the axis
    "order": "in forward order; numbers are blocks",
    "block": "by block, then kind of layer; numbers are blocks",
    "part": "by kind of layer, then forward order",
}
NAMES_SHARE = 0.1  # share of a canvas's width for the names of its rows, which can be clicked
NARROW_PX = 320  # px between the margins of a canvas on a narrow page
LARGE_CELL_COUNT = 2500  # cells above which hover texts are short, so that a figure stays below 1.5 MB


class Span(NamedTuple):
    """Neighboring columns of one group: its name, its first and its last column."""

    label: str
    first: int
    last: int

    @property
    def middle(self) -> float:
        """The position of its name."""
        return (self.first + self.last) / 2


@dataclass(frozen=True)
class TensorColumns:
    """The tensors of a table, one row each, in the order of the columns."""

    tensors: pd.DataFrame
    group: str = "order"

    @classmethod
    def from_table(cls, table: pd.DataFrame, group: str = "order") -> Self:
        """The distinct tensors of a table with tensor, order, section, role and part. Raises ChartError."""
        return cls(order_tensors(table, group), group)

    @property
    def names(self) -> list[str]:
        """Names of the tensors."""
        return [str(name) for name in self.tensors["tensor"]]

    @property
    def spans(self) -> list[Span]:
        """Every sequence of columns of one group."""
        return find_spans(list(_group_labels(self.tensors, self.group)))

    def column_index(self, tensor: str | None) -> int | None:
        """The column of a tensor, None if it has none."""
        return self.names.index(tensor) if tensor in self.names else None

    def set_positions(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a table in the order of their columns, with the index of their column in "tensor_index"."""
        positions = {name: index for index, name in enumerate(self.names)}
        return table.assign(tensor_index=table["tensor"].astype(str).map(positions)).sort_values(
            "tensor_index", kind="stable"
        )

    def complete_cells(self, table: pd.DataFrame, rows: str, names: Sequence[str]) -> pd.DataFrame:
        """The table with one row for each cell, row by row. Raises ChartError for a missing pair."""
        texts = {name: table[name].astype(str) for name in (rows, "tensor")}
        return every_cell(table.assign(**texts), {rows: names, "tensor": self.names})

    def title(self) -> str:
        """The title of the axis: the number of tensors and their order."""
        return f"Tensors ({len(self.tensors)}) {GROUP_WORDS[self.group]}"

    def axis(self) -> dict[str, Any]:
        """Settings of the x axis: one unit for each tensor, groups named in their middles."""
        by_part = self.group == "part"
        kinds = {
            "tickvals": [span.middle for span in self.spans],
            "ticktext": [safe_text(span.label, 24) for span in self.spans],
        }
        return {
            "title": {"text": self.title()}, "range": [-0.5, len(self.tensors) - 0.5], "showgrid": False,
            "tickmode": "array", "ticks": "", "tickangle": -40 if by_part else 0,
            **(kinds if by_part else block_ticks(self.spans)),
        }  # fmt: skip

    def bare_axis(self) -> dict[str, Any]:
        """Settings of the x axis without labels, at the right of the row names of a canvas."""
        return {
            "title": {"text": self.title()}, "range": [-0.5, len(self.tensors) - 0.5], "showgrid": False,
            "showticklabels": False, "ticks": "", "domain": [NAMES_SHARE, 1],
        }  # fmt: skip

    def end_labels(self) -> list[dict[str, Any]]:
        """Labels of the sections before and after the blocks, wider than their columns, away from the block numbers.

        Between two towers there is no space for a label.
        """
        spans = self.spans
        towers = {match["tower"] for span in spans if (match := BLOCK_PATTERN.fullmatch(span.label))}
        labels = []
        for index, span in enumerate(spans):
            if is_block(span.label) or (len(towers) > 1 and 0 < index < len(spans) - 1):
                continue
            at_left = span.first + span.last < len(self.tensors)
            text = span.label.rpartition(" ")[2] if len(towers) > 1 else span.label
            labels.append({
                "text": safe_text(text, 16), "x": span.last + 0.5 if at_left else span.first - 0.5, "xref": "x",
                "y": 0, "yref": "paper", "yanchor": "top", "yshift": 0, "xanchor": "right" if at_left else "left",
            })  # fmt: skip
        return labels

    def separators(
        self, color: str = theme.GROUND, width: float = 2, panels: Sequence[str] = ("y",)
    ) -> list[dict[str, Any]]:
        """Lines between groups, inside the panels of these y axes only."""
        line = {"color": color, "width": width}
        return [
            axes.vertical_line(span.first - 0.5, line, yref=f"{panel} domain", layer="above")
            for span in self.spans[1:]
            for panel in panels
        ]

    def lay_out(self, fig: Drawing, selected: str | None = None) -> None:
        """Add the x axis of a plot of marks, lines between groups and a frame around the column of ``selected``."""
        fig.update_xaxes(**self.axis())
        fig.update_layout(
            shapes=[*self.separators(theme.GRID, 1), *axes.selection_frame(self.column_index(selected))],
            annotations=[*fig.annotations, *self.end_labels()],
        )


def is_block(section: str) -> bool:
    """Whether a section is a block."""
    return BLOCK_PATTERN.fullmatch(section) is not None


def short_section(section: str) -> str:
    """A block as its number, with its tower if there are several ("encoder 3"); other names unchanged."""
    match = BLOCK_PATTERN.fullmatch(section)
    return " ".join(filter(None, match.groups())) if match else section


def find_spans(labels: Sequence[str]) -> list[Span]:
    """Every sequence of columns with one label."""
    starts = [j for j in range(len(labels)) if j == 0 or labels[j] != labels[j - 1]]
    return [Span(labels[a], a, b - 1) for a, b in zip(starts, [*starts[1:], len(labels)], strict=True)]


def block_ticks(groups: Iterable[Span]) -> dict[str, Any]:
    """Ticks: the number of every block in its middle, and the name of each tower below its middle block."""
    inside = [(span, match) for span in groups if (match := BLOCK_PATTERN.fullmatch(span.label))]
    texts = [match["number"] for _, match in inside]
    towers = [match["tower"] or "" for _, match in inside]
    for tower in filter(None, dict.fromkeys(towers)):
        tower_indices = [index for index, name in enumerate(towers) if name == tower]
        texts[tower_indices[len(tower_indices) // 2]] += f"<br>{safe_text(tower, 24)}"
    return {"tickvals": [span.middle for span, _ in inside], "ticktext": texts}


def order_tensors(table: pd.DataFrame, group: str) -> pd.DataFrame:
    """One row for each tensor, in the order of the columns.

    ``group`` is order (forward order), block (kinds of layer lined up inside each block) or part (same kinds side by
    side). Raises ChartError.
    """
    check_option("group", group, tuple(GROUP_WORDS))
    tensors = sort_forward(table.drop_duplicates("tensor")).reset_index(drop=True)
    if group == "order":
        return tensors
    first, second = (
        column.map({name: index for index, name in enumerate(distinct_names(column))})
        for column in (_group_labels(tensors, group), tensors["part"].astype(str))
    )
    keys = pd.DataFrame({"first": first, "second": second if group == "block" else 0, "order": tensors["order"]})
    return tensors.loc[keys.sort_values(["first", "second", "order"], kind="stable").index].reset_index(drop=True)


def _group_labels(tensors: pd.DataFrame, group: str) -> pd.Series[str]:
    """The name of the group of each tensor."""
    section = tensors["section"].map(str)
    return (
        tensors["part"].astype(str).where(section.map(is_block).astype(bool), section) if group == "part" else section
    )
