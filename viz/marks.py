"""The numbers in a figure as a table: one row for each mark, in the order and the units of the picture."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

MARK_COLUMN, TEXT_COLUMN = "mark", "in words"
Row = dict[str, Any]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MarkAxis:
    """An axis: its title; the labels of its positions, if every value has a label; and the factor to its units."""

    name: str
    labels: Mapping[float, str]
    factor: float
    logs: bool = False  # the numbers are logarithms

    def displayed_value(self, value: float) -> str | float:
        """A value as the axis shows it."""
        if self.labels:
            return self.labels[min(self.labels, key=lambda position: abs(position - value))]
        return self.to_axis_units(value)

    def to_axis_units(self, value: float) -> float:
        """A number in the units of the axis."""
        return float(f"{self.factor * (10**value if self.logs else value):.7g}")  # figures hold seven digits


def marks(figure: go.Figure, picks: Sequence[str] = ()) -> pd.DataFrame:
    """One row for each mark: the series, the fields that a click on it returns (``picks``), its numbers, its words.

    A number's column is named by its axis or color bar. Shares are percentages where the figure shows percentages;
    positions on an axis of names are these names. Traces that only guide the eye or repeat other marks are left out. A
    trace's ``meta`` adds facts: ``columns`` are further numbers of its marks, ``numbers`` is True if a trace
    without hover texts has its own numbers, ``steps`` if they are steps with two ends, ``upright`` if it is a line at
    one number; ``log`` lists which numbers are logarithms; ``x`` and ``y`` are the true positions of marks that are
    shifted in the picture; ``without_positions`` leaves out positions that have no meaning;
    ``after_picks`` are the names of numbers that follow the picks in the customdata; ``is_control`` leaves a trace out.
    """
    # The lowest map counts.
    maps = {_axis_names(trace): trace for trace in reversed(figure.data) if trace.type == "heatmap"}
    rows: list[Row] = []
    for trace in (trace for trace in figure.data if not (trace.meta or {}).get("is_control")):
        if trace.type == "heatmap":
            covered = any(
                _axis_names(other) == _axis_names(trace) and _has_pointer_texts(other) for other in figure.data
            )
            rows += [] if covered else _list_cells(figure, trace)
        elif trace.type == "scatter" and trace.fill == "toself" and trace.line.width == 0:
            rows += _list_band_ends(figure, trace)
        elif trace.hoverinfo != "skip" or (trace.meta or {}).get("numbers"):
            rows += _list_marks(figure, trace, picks, maps.get(_axis_names(trace)) if trace.type == "bar" else None)
    table = pd.DataFrame(rows)
    return table[[*(name for name in table if name != TEXT_COLUMN), *(name for name in table if name == TEXT_COLUMN)]]


def _has_pointer_texts(trace: Any) -> bool:
    """Whether a trace is over the cells of a map and has their hover texts."""
    return trace.customdata is not None or (trace.type == "bar" and trace.marker.opacity == 0)


def _axis_names(trace: Any) -> tuple[str, str]:
    return trace.xaxis or "x", trace.yaxis or "y"


def _find_axes(figure: go.Figure, trace: Any) -> list[MarkAxis]:
    """The trace's two axes, whose names differ."""
    logs = (trace.meta or {}).get("log", ())
    x, y = (_read_axis(figure, name, name[0] in logs) for name in _axis_names(trace))
    if x.name == y.name:
        x, y = (replace(axis, name=f"{axis.name} ({way})") for axis, way in ((x, "across"), (y, "up")))
    return [x, y]


def _read_axis(figure: go.Figure, name: str, logs: bool) -> MarkAxis:
    layout = figure.layout[f"{name[0]}axis{name[1:]}"]
    explained = [trace for trace in figure.data if trace.hoverinfo != "skip" and name in _axis_names(trace)]
    values = [np.asarray(_second_positions(trace) if name[0] == "y" else trace.x, np.float64) for trace in explained]
    labels = _find_labels(layout, np.concatenate([np.zeros(0), *values]))
    percent = "%" in (layout.tickformat or "") or _are_percents(layout.ticktext)
    return MarkAxis(_axis_title(layout.title.text, percent), labels, 100 if percent else 1, logs)


def _second_positions(trace: Any) -> Values:
    """Positions (n,) of the marks along the second axis; a bar over a cell has the cell's edge as its base."""
    over_cells = trace.type == "bar" and trace.marker.opacity == 0
    return np.asarray(np.asarray(trace.base) + 0.5 if over_cells else trace.y, np.float64)


def _find_labels(axis: Any, values: Values) -> Mapping[float, str]:
    """The labels of an axis by position, if each of ``values`` (n,) has a label; empty for an axis of numbers."""
    if axis.tickvals is None or axis.ticktext is None:
        return {}
    positions = np.asarray(axis.tickvals, np.float64)
    labels = {float(position): _strip_markup(text) for position, text in zip(positions, axis.ticktext, strict=False)}
    distance = float(np.diff(np.sort(positions)).min(initial=1.0))
    if distance < 1 or all(_is_number(text, position) for position, text in labels.items()):
        return {}
    finite = values[np.isfinite(values)]
    is_near = np.abs(finite[:, None] - positions[None]).min(axis=1, initial=np.inf) < 0.5
    return labels if bool(is_near.all()) else {}


def _is_number(text: str, value: float) -> bool:
    try:
        return abs(float(text) - value) < 1e-9
    except ValueError:
        return False


def _are_percents(texts: Sequence[str] | None) -> bool:
    return texts is not None and len(texts) > 0 and all(str(text).endswith("%") for text in texts)


def _axis_title(title: str | None, percent: bool) -> str:
    name = _strip_markup(title or "").strip()
    return f"{name} (%)".strip() if percent and "%" not in name else name or "position"


def _list_marks(figure: go.Figure, trace: Any, picks: Sequence[str], cells: Any) -> list[Row]:
    x, y = _find_axes(figure, trace)
    xs, ys = _step_middles(trace, np.asarray(trace.x, np.float64), _second_positions(trace))
    rows, meta = [], trace.meta or {}
    upright = meta.get("upright", False)
    for index in [0] if upright else np.flatnonzero(np.isfinite(xs) & np.isfinite(ys)).tolist():
        row: Row = {MARK_COLUMN: _strip_markup(trace.name)}
        if trace.customdata is not None:
            names = [*picks, *map(_strip_markup, meta.get("after_picks", ()))]
            row |= dict(zip(names, trace.customdata[index], strict=False))
        if not meta.get("without_positions"):
            row[x.name] = x.displayed_value(meta.get("x", xs)[index])
        if not upright and not meta.get("without_positions"):
            row[y.name] = y.displayed_value(meta.get("y", ys)[index])
        row |= _interval_ends(x, trace.error_x, xs[index], index) | _interval_ends(y, trace.error_y, ys[index], index)
        if cells is not None:
            row |= _read_cell(cells, xs[index], ys[index])
        row |= {name: values[index] for name, values in meta.get("columns", {}).items()}
        if trace.text is not None:
            row[TEXT_COLUMN] = _strip_markup(trace.text[index])
        rows.append(row)
    return rows


def _interval_ends(axis: MarkAxis, bars: Any, value: float, index: int) -> Row:
    if bars is None or bars.array is None:
        return {}
    up = float(bars.array[index])
    down = up if bars.arrayminus is None else float(bars.arrayminus[index])
    return {f"{axis.name}, low": axis.to_axis_units(value - down), f"{axis.name}, high": axis.to_axis_units(value + up)}


def _list_band_ends(figure: go.Figure, trace: Any) -> list[Row]:
    """The lower and upper ends of a band, whose outline follows one of them forward and the other one back."""
    x, y = _find_axes(figure, trace)
    half = len(trace.x) // 2
    xs, low = _step_middles(trace, np.asarray(trace.x[:half], np.float64), np.asarray(trace.y[:half], np.float64))
    _, high = _step_middles(trace, xs, np.asarray(trace.y[::-1][:half], np.float64))
    return [
        {
            MARK_COLUMN: f"{_strip_markup(trace.name)}, band",
            x.name: x.displayed_value(position),
            f"{y.name}, low": y.to_axis_units(lowest),
            f"{y.name}, high": y.to_axis_units(highest),
        }
        for position, lowest, highest in zip(xs, low, high, strict=True)
    ]


def _step_middles(trace: Any, xs: Values, ys: Values) -> tuple[Values, Values]:
    """The middles of the steps of a line, each of which has two ends; other marks unchanged."""
    if not (trace.meta or {}).get("steps"):
        return xs, ys
    return xs.reshape(-1, 2).mean(axis=1) if len(xs) == len(ys) else xs, ys[::2]


def _list_cells(figure: go.Figure, trace: Any) -> list[Row]:
    """The cells of a map that takes no clicks."""
    x, y = _find_axes(figure, trace)
    grid = np.asarray(trace.z, np.float64)
    has_texts = trace.text is not None and trace.hoverinfo != "skip"
    xs: Any = np.arange(grid.shape[1]) if trace.x is None else trace.x
    ys: Any = np.arange(len(grid)) if trace.y is None else trace.y
    return [
        {
            MARK_COLUMN: _strip_markup(trace.name),
            x.name: x.displayed_value(xs[column]),
            y.name: y.displayed_value(ys[row]),
        }
        | _read_cell(trace, column, row)
        | ({TEXT_COLUMN: _strip_markup(trace.text[row][column])} if has_texts else {})
        for row, column in np.ndindex(grid.shape)
    ]


def _read_cell(trace: Any, column: float, row: float) -> Row:
    """The number of a map's cell, in the units of its color bar; empty for a cell without a number."""
    grid = np.asarray(trace.z, np.float64)
    if grid.ndim == 2:
        number = grid[round(row), round(column)]
    else:
        selected = (np.asarray(trace.x) == round(column)) & (np.asarray(trace.y) == round(row))
        number = grid[selected][0] if selected.any() else np.nan
    bar = trace.colorbar
    percent = "%" in (bar.tickformat or "") or _are_percents(bar.ticktext)
    logs = "z" in (trace.meta or {}).get("log", ())
    axis = MarkAxis(_axis_title(bar.title.text or trace.name, percent), {}, 100 if percent else 1, logs)
    return {axis.name: axis.to_axis_units(float(number)) if np.isfinite(number) else np.nan}


def _strip_markup(text: object) -> str:
    """A text of a figure without its tags and codes; line ends become semicolons in hover texts."""
    lines = re.sub(r"<br>\s*", "; " if "<b>" in str(text) else " ", str(text))
    return html.unescape(re.sub(r"<[^>]*>", "", lines)).strip()
