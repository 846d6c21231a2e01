"""Traces of rows of a table: marks with hover texts and clicks, lines, bands, intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.chart import NothingToDraw, distinct_names
from viz.drawing import Trace, bar, scatter
from viz.figure_text import identifier, safe_text
from viz.hover import hover_texts
from viz.parts import legends

Values = npt.NDArray[np.float32]
NO_POINTER: dict[str, Any] = {"unselected": {"marker": {"opacity": 1}}}  # a click on another mark leaves it unchanged
Formats = Mapping[str, Callable[[Any], str]]


def marks(
    rows: pd.DataFrame,
    x: str | Any,
    y: str | Any,
    mark_style: theme.MarkStyle,
    hover: str,
    *,
    picks: Sequence[str] = (),
    formats: Formats | None = None,
    size: float = 9,
    line: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Trace:
    """A mark for each row, at its columns (or values) ``x`` and ``y``; ``line``, a style, joins them if it is not None.

    ``hover`` is a template of ``viz.hover``, with its ``formats``; ``picks`` are the columns that a click returns.
    ``fields`` of plotly's trace replace the usual ones; fields of ``marker`` are replaced one by one.
    """
    marker = {"symbol": mark_style.symbol, "color": mark_style.color, "size": size, "line": theme.edge(0.8)}
    line_fields = (
        {"mode": "markers"} if line is None else {"mode": "lines+markers", "line": {"color": mark_style.color, **line}}
    )
    return scatter(
        x=numbers(rows, x), y=numbers(rows, y),
        **line_fields | pointer_fields(rows, hover, picks, formats) | fields
        | {"marker": marker | fields.get("marker", {})},
    )  # fmt: skip


def bars(
    rows: pd.DataFrame,
    x: str | Any,
    y: str | Any,
    color: Any,
    hover: str,
    *,
    picks: Sequence[str] = (),
    formats: Formats | None = None,
    **fields: Any,
) -> Trace:
    """A bar for each row, with a thin dark edge; see ``marks``."""
    marker = {"color": color, "line": theme.edge(0.6)}
    pointer = {"textposition": "none", **pointer_fields(rows, hover, picks, formats)}
    return bar(
        x=numbers(rows, x), y=numbers(rows, y), **pointer | fields | {"marker": marker | fields.get("marker", {})}
    )  # fmt: skip


def histogram(
    rows: pd.DataFrame, color: str, hover: str, mean: str, ends: Sequence[float], names: Sequence[str], **fields: Any
) -> tuple[Trace, Trace]:
    """Bars of bins from low to high, and a dashed line at their mean between two ``ends`` with hover text ``mean``."""
    low, high, line_rows = rows["low"], rows["high"], rows.iloc[[0, 0]]
    width, line = numbers(rows, high - low), theme.edge(2) | {"dash": "dash"}
    return (
        bars(rows, (low + high) / 2, "share", color, hover, width=width, name=names[0],
             marker={"line": theme.edge(0.5)}, **fields),
        scatter(x=numbers(line_rows, "mean"), y=_floats(ends), mode="lines", name=names[1], line=line,
                meta={"upright": True}, **pointer_fields(line_rows, mean), **fields),
    )  # fmt: skip


def pointer_fields(
    rows: pd.DataFrame, hover: str, picks: Sequence[str] = (), formats: Formats | None = None
) -> dict[str, Any]:
    """The fields of a trace that answer the pointer: a hover text for each row, and the names that a click returns."""
    fields: dict[str, Any] = {"text": hover_texts(rows, hover, **(formats or {}))}
    fields["hovertemplate"] = "%{text}<extra></extra>"
    if picks:
        columns = [[identifier(value) for value in rows[name]] for name in picks]
        fields |= {"customdata": list(map(list, zip(*columns, strict=True))), **NO_POINTER}
    return fields


def line(x: Any, y: Any, name: str, style: Mapping[str, Any], **fields: Any) -> Trace:
    """A line that ignores the pointer."""
    return scatter(x=_floats(x), y=_floats(y), mode="lines", name=name, line=dict(style), hoverinfo="skip", **fields)


def text_trace(x: Any, y: Any, texts: Sequence[str], name: str, **fields: Any) -> Trace:
    """Texts in the plot that ignore the pointer and have no entry in the legend."""
    text_fields = {"textfont": {"size": theme.SMALL_SIZE}, **fields}
    return scatter(
        x=_floats(x), y=_floats(y), mode="text", text=texts, name=name, hoverinfo="skip", showlegend=False,
        **text_fields
    )  # fmt: skip


def ring(
    x: Any, y: Any, name: str, size: float = 17, width: float = 3, color: str = theme.ACCENT, **fields: Any
) -> Trace:
    """Rings around marks, as around selected ones; a click on another mark leaves them unchanged."""
    marker = {"symbol": "circle-open", "size": size, "color": color, "line": {"width": width}}
    ring_fields = {"name": name, "hoverinfo": "skip", "showlegend": False, **NO_POINTER, **fields}
    return scatter(x=_floats(x), y=_floats(y), mode="markers", marker=marker, **ring_fields)


def pinned_marks(rows: pd.DataFrame, x: str, y: str, pinned: Sequence[str], **fields: Any) -> list[Trace]:
    """A mark over that of each pinned run in ``rows``, in the color and symbol of its position in ``pinned``.

    The pointer reaches the run's own mark.
    """
    styles, label = theme.mark_styles(pinned), "label" if "label" in rows else "run"
    return [
        scatter(
            x=numbers(run_rows, x), y=numbers(run_rows, y), mode="markers", hoverinfo="skip", **NO_POINTER,
            marker={**styles[run]._asdict(), "size": 13, "line": theme.edge(1.5)}, **entry | fields,
        )
        for run, run_rows, entry in (rows_by_name(rows, "run", [*filter(None, pinned)], label) if "run" in rows else ())
    ]  # fmt: skip


def published_marks(rows: pd.DataFrame, x: str | Any, hover: str, symbol: str = "diamond-open", **entry: Any) -> Trace:
    """Accuracies that authors report, in the color and with the marks of published numbers."""
    color = theme.KINDS["paper"].color
    return marks(
        rows, x, "accuracy", theme.MarkStyle(color, symbol), hover, line={"width": 1.2, "dash": "dot"},
        marker={"line": {"color": color, "width": 1.6}}, **entry,
    )  # fmt: skip


def band(x: Any, low: Any, high: Any, color: str, **fields: Any) -> Trace:
    """The area between two lines, as one closed outline."""
    x, low, high = _floats(x), _floats(low), _floats(high)
    return scatter(
        x=np.concatenate([x, x[::-1]]), y=np.concatenate([low, high[::-1]]), mode="lines", line={"width": 0},
        fill="toself", fillcolor=color, hoverinfo="skip", **fields,
    )  # fmt: skip


def interval(
    rows: pd.DataFrame, middle: str, color: str, low: str = "low", high: str = "high", factor: float = 1, **style: Any
) -> dict[str, Any] | None:
    """Error bars from ``low`` to ``high`` around ``middle``; None if the table has no such columns."""
    if not {low, high} <= set(rows):
        return None
    middles, lows, highs = (factor * rows[name].to_numpy(np.float64) for name in (middle, low, high))
    ends = {"array": highs - middles, "arrayminus": middles - lows}
    return {
        "type": "data", "symmetric": False, "color": color, "thickness": 1.5, "width": 0,
        **{name: np.nan_to_num(values.astype(np.float32)).clip(0) for name, values in ends.items()}, **style,
    }  # fmt: skip


def excludes_zero(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Whether the interval of each row excludes zero, (rows,) bool."""
    return ((rows["low"].astype(float) > 0) | (rows["high"].astype(float) < 0)).to_numpy(bool)


def rows_by_name(
    table: pd.DataFrame, by: str, names: Sequence[str] | None = None, label: str = "label"
) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    """Each name in the column ``by`` that has rows, in the order of ``names``, with its rows and its legend entry.

    The entry has the text in the column ``label``.
    """
    column = table[by].astype(str)
    codes, found = pd.factorize(column)
    positions = {name: position for position, name in enumerate(found)}
    for name in distinct_names(column) if names is None else names:
        if name in positions:
            rows = table[codes == positions[name]]
            group = safe_text(f"{by} {name}")
            yield name, rows, {"name": legends.legend_name(rows[label].iloc[0]), "legendgroup": group}


def finite_rows(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The rows with a number in each of these columns."""
    finite: pd.DataFrame = table[np.isfinite(table[list(columns)].to_numpy(np.float64)).all(axis=1)]
    return finite


def numbers(rows: pd.DataFrame, values: str | Any) -> Values:
    """Numbers of an axis, (rows,): those of the column ``values``, or the ``values`` themselves."""
    return _floats(rows[values] if isinstance(values, str) else values)


def require_finite_rows(table: pd.DataFrame, *columns: str, empty_reason: str) -> pd.DataFrame:
    """``finite_rows``, at least one. Raises NothingToDraw with the reason ``empty_reason``."""
    rows = finite_rows(table, *columns)
    if rows.empty:
        raise NothingToDraw(f"Nothing to draw: {empty_reason}.")
    return rows


def _floats(values: Any) -> Values:
    return np.asarray(values, np.float32)
