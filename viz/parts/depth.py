"""An axis through the network, with tensors in forward order and blocks as ticks, and heat maps over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import ChartError, in_forward_order, in_order
from viz.drawing import Drawing, Picture, heatmap
from viz.hover import hover_texts
from viz.parts import tensor_columns
from viz.parts.cells import click_targets
from viz.text import safe_text

ROW, TOP, BOTTOM, RIGHT = 26, 38, 56, 96  # px: height of a row, and margins of a heat map
BLOCKS_PASSED = "Depth: 0 is before block 0, b after b blocks"  # how all of Image counts
FACTS = ["tensor", "section", "role", "part"]


@dataclass(frozen=True)
class Columns:
    """The tensors of a table, one row each, in the order in which data passes them."""

    tensors: pd.DataFrame

    @classmethod
    def of(cls, table: pd.DataFrame) -> Self:
        """The distinct tensors of a table with tensor, order, section, role and part."""
        return cls(in_forward_order(table.drop_duplicates("tensor")).reset_index(drop=True))

    @property
    def names(self) -> list[str]:
        """Names of the tensors."""
        return [str(name) for name in self.tensors["tensor"]]

    def axis(self) -> dict[str, Any]:
        """Settings of the x axis: one unit a tensor, blocks named in their middles."""
        return {
            "title": {"text": f"Tensors ({len(self.tensors)}) in forward order; numbers are blocks"},
            "range": [-0.5, len(self.tensors) - 0.5], "showgrid": False, "tickmode": "array", "ticks": "",
            "tickangle": 0, **tensor_columns.ticks(self._spans()),
        }  # fmt: skip

    def end_labels(self) -> list[dict[str, Any]]:
        """Labels of the sections before and after the blocks; being narrow, they grow away from the block numbers."""
        return tensor_columns.end_labels(self._spans(), len(self.tensors))

    def separators(self, color: str = "white", width: float = 2) -> list[dict[str, Any]]:
        """Lines between the tensor_columns."""
        return [
            {
                "type": "line", "xref": "x", "yref": "y domain", "x0": first - 0.5, "x1": first - 0.5, "y0": 0, "y1": 1,
                "line": {"color": color, "width": width},
            }
            for _, first, _ in self._spans()[1:]
        ]  # fmt: skip

    def place(self, tensor: str | None) -> int | None:
        """The column of a tensor, None if it has none."""
        return self.names.index(tensor) if tensor in self.names else None

    def _spans(self) -> list[tensor_columns.Span]:
        """Label, first and last column of every section."""
        return tensor_columns.spans_of([str(section) for section in self.tensors["section"]])


class Scale(NamedTuple):
    """How a heat map colors numbers. A ``diverging`` scale is linear, with zero in its middle.

    ``colors`` is a color scale, if it is another one than usual.
    """

    title: str
    log: bool = True
    limits: tuple[float, float] | None = None
    percent: bool = False
    diverging: bool = False
    colors: list[Any] | None = None


def heat_map(
    table: pd.DataFrame,
    rows: str,
    value: str,
    scale: Scale,
    hover: str,
    selected: tuple[str | None, str | None] = (None, None),
    titles: Sequence[str] | None = None,
    *,
    alt: str,
    state: str = "",
    formats: Mapping[str, Callable[[Any], str]] | None = None,
) -> Picture:
    """A heat map of the column ``value`` over tensors, a row for each name in the column ``rows``; cells take clicks.

    ``hover`` is a template of ``viz.hover``, with its ``formats``. ``selected`` outlines a (row, tensor), a row or a
    column.
    """
    columns, names = Columns.of(table), in_order(table[rows])
    cells = _cells(table, rows, names, columns.names)
    values = cells[value].to_numpy(np.float64).reshape(len(names), len(columns.names))
    z, colors = colored(np.where(np.isfinite(values), values, np.nan), scale)
    heat = heatmap(
        z=z, colorscale=scale.colors or (theme.DIVERGING if scale.diverging else theme.SEQUENTIAL), ygap=1,
        name=scale.title.replace("<br>", " "), hoverinfo="skip", **colors,
    )  # fmt: skip
    texts = hover_texts(cells.reset_index(), hover, **(formats or {}))
    fig = Drawing([heat, click_targets(names, columns.names, texts, "Cells")])
    labels = [safe_text(name, 24) for name in (titles or names)]
    fig.update_xaxes(**columns.axis())
    fig.update_yaxes(
        title={"text": rows.capitalize()}, tickmode="array", tickvals=list(range(len(names))), ticktext=labels,
        range=[len(names) - 0.5, -0.5], showgrid=False, fixedrange=True,
    )  # fmt: skip
    left = max(*map(theme.text_width, labels), 70) + 38  # room for "embeddings" under the axis
    fig.update_layout(
        annotations=columns.end_labels(),
        shapes=[*columns.separators(), *_outline(names, columns, *selected)],
        margin={"l": left, "r": RIGHT, "t": TOP, "b": BOTTOM},
        showlegend=False,
        barmode="overlay",
    )
    return Picture(fig, alt, TOP + BOTTOM + max(len(names) * ROW, 110), f"{state}:{len(columns.names)}")


def largest(table: pd.DataFrame, column: str) -> pd.Series | None:
    """The row with the largest finite value of a column; None without one."""
    finite = table[np.isfinite(table[column].to_numpy(np.float64))]
    return None if finite.empty else finite.loc[finite[column].idxmax()]


def height(rows: int) -> float:
    """Height in px of a heat map of this many rows; few rows still leave room for the color bar."""
    return TOP + BOTTOM + max(rows * ROW, 110)


def _cells(table: pd.DataFrame, rows: str, names: list[str], tensors: list[str]) -> pd.DataFrame:
    """The table with one row for each cell, row by row. Raises ChartError for a missing pair."""
    filled = table.assign(**{rows: table[rows].astype(str), "tensor": table["tensor"].astype(str)})
    pairs = pd.MultiIndex.from_product([names, tensors], names=[rows, "tensor"])
    indexed = filled.set_index([rows, "tensor"])
    if absent := set(pairs) - set(indexed.index):
        name, tensor = min(absent)
        raise ChartError(f"there is no row of {rows} {name!r}, tensor {tensor!r}; every pair needs one")
    return indexed.reindex(pairs)


def colored(values: npt.NDArray[np.float64], scale: Scale) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
    """The values that the map colors (their logarithms on a log scale), and its range and color bar."""
    low, high = scale.limits or _range(values, scale)
    low = max(low, high * 1e-6) if scale.log else low
    bar: dict[str, Any] = {"title": {"text": scale.title, "side": "top"}, "thickness": 12, "outlinewidth": 0}
    z, meta = values, dict[str, Any]()
    if scale.log and 0 < low < high:
        # zero has no logarithm: it takes the scale's lowest color, and the hover gives the number
        z, marks = np.log10(np.maximum(values, low)), theme.ticks(low, high, log=True)
        low, high, meta = float(np.log10(low)), float(np.log10(high)), {"meta": {"log": ["z"]}}
    else:
        low, high = (low, high) if low < high else (min(low, 0.0), high or 1.0)
        marks = theme.ticks(low, high)
    if scale.percent:
        exact = [10**at if z is not values else at for at in marks["tickvals"]]
        marks |= {"ticktext": [f"{100 * at:.3g}%" for at in exact]}
    return z.astype(np.float32), {"zmin": low, "zmax": high, "colorbar": bar | marks, **meta}


def _range(values: npt.NDArray[np.float64], scale: Scale) -> tuple[float, float]:
    """From the smallest positive to the largest number on a log scale, else from zero, or around zero."""
    finite = values[np.isfinite(values)]
    if scale.diverging:
        largest = float(np.abs(finite).max(initial=0)) or 1.0
        return -largest, largest
    positive = finite[finite > 0]
    return (float(positive.min(initial=np.inf)) if scale.log else 0.0), float(positive.max(initial=0))


def _outline(names: list[str], columns: Columns, name: str | None, tensor: str | None) -> list[dict[str, Any]]:
    row = names.index(name) if name in names else None
    column = columns.place(tensor)
    if row is None and column is None:
        return []
    x0, x1 = (-0.5, len(columns.names) - 0.5) if column is None else (column - 0.5, column + 0.5)
    y0, y1 = (-0.5, len(names) - 0.5) if row is None else (row - 0.5, row + 0.5)
    line = {"color": theme.ACCENT, "width": 3}
    return [{"type": "rect", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": line, "name": "selected"}]
