"""Axes with a position for each name, and notes under a plot."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.figure_text import safe_text

DEPTH_MARGINS = {"l": 8, "r": 92}  # px beside a low map of the network, and charts by depth under it
LINE_CHARACTERS = 78  # characters in a line under a chart on a narrow page


def name_axis(title: str, names: Sequence[object], limit: int = 24, down: bool = False, **more: Any) -> dict[str, Any]:
    """Settings of an axis with a position for each name, from 0; ``down`` puts the first name on top."""
    ends = [-0.5, len(names) - 0.5]
    return {
        "title": {"text": title}, "tickmode": "array", "tickvals": list(range(len(names))), "showgrid": False,
        "ticktext": [safe_text(name, limit) for name in names], "range": ends[::-1] if down else ends,
        "fixedrange": True, **more,
    }  # fmt: skip


def number_axis(title: str, numbers: Sequence[int], positions: Any = None, **more: Any) -> dict[str, Any]:
    """Settings of an axis with a tick for each whole number, at ``positions`` or at the numbers themselves."""
    ticks = {"tickvals": numbers if positions is None else positions, "ticktext": list(map(str, numbers))}
    return {"title": {"text": title}, "tickmode": "array", **ticks, **more}


def points_axis(title: str, changes: pd.DataFrame) -> dict[str, Any]:
    """Settings of an axis of ``changes`` of accuracy in percentage points, symmetric around the line at zero.

    The title names the intervals if the column "low" has any.
    """
    unit = "percentage points, paired 95% interval" if changes["low"].notna().any() else "points"
    largest = 100 * max(0.01, 1.06 * float(np.nanmax(np.abs(changes.to_numpy(np.float64)))))
    zero = {"zeroline": True, "zerolinecolor": theme.INK, "zerolinewidth": 1.2}
    return {
        "title": {"text": f"{title} in {unit}"},
        "range": [-largest, largest],
        **zero,
    }


def log_axis(low: float, high: float) -> dict[str, Any]:
    """Settings of a logarithmic axis between two numbers, with round ticks."""
    marks = theme.ticks(low, high, log=True)
    positions = [10.0**exponent for exponent in marks["tickvals"]]
    return marks | {"type": "log", "range": [float(np.log10(low)), float(np.log10(high))], "tickvals": positions}


def names_width(names: Iterable[object], limit: int = 24, min_width: float = 0) -> float:
    """Width in px of the longest of these names at an axis, at least ``min_width``."""
    return max([theme.text_width(safe_text(name, limit)) for name in names] + [min_width])


def make_note(words: str, below: float) -> tuple[list[dict[str, Any]], float]:
    """An annotation ``below`` px under the plot, broken into lines, and its height in px."""
    if not words:
        return [], 0
    lines = textwrap.wrap(words, LINE_CHARACTERS)
    text = "<br>".join(safe_text(line, LINE_CHARACTERS + 1) for line in lines)
    return [annotate_below(text, below)], theme.LINE_HEIGHT * len(lines) + 6


def annotate_below(text: str, below: float) -> dict[str, Any]:
    """A faint annotation ``below`` px under the plot; ``text`` is escaped."""
    style = {"align": "left", "font": {"color": theme.FADED}}
    return theme.caption(text, 0, yanchor="top", yshift=-below, **style)


def heading(name: str, y: float) -> dict[str, Any]:
    """A heading at ``y`` of a name axis, over the names that belong together."""
    position = {"xref": "x domain", "xanchor": "right", "xshift": -6, "yref": "y", "yanchor": "middle", "yshift": 0}
    return theme.caption(f"<b>{safe_text(name, 40)}</b>", y, **position)


def selection_frame(position: int | None) -> list[dict[str, Any]]:
    """The frame around the column at ``position``; none if there is no position."""
    if position is None:
        return []
    return [{
        "type": "rect", "xref": "x", "yref": "y domain", "x0": position - 0.5, "x1": position + 0.5, "y0": 0, "y1": 1,
        "line": {"color": theme.ACCENT, "width": 2}, "name": "selected",
    }]  # fmt: skip


def vertical_line(
    x: float, line: dict[str, Any], xref: str = "x", yref: str = "paper", layer: str = "below"
) -> dict[str, Any]:
    """Shape of a vertical line at ``x`` through all panels, behind their marks; ``yref`` limits it to one panel."""
    ends = {"xref": xref, "yref": yref, "x0": x, "x1": x, "y0": 0, "y1": 1}
    return {"type": "line", **ends, "line": line, "layer": layer}


def horizontal_line(y: float, line: dict[str, Any], xref: str = "x domain", layer: str = "below") -> dict[str, Any]:
    """Shape of a horizontal line at ``y`` across the plot, behind its marks."""
    ends = {"xref": xref, "yref": "y", "x0": 0, "x1": 1, "y0": y, "y1": y}
    return {"type": "line", **ends, "line": line, "layer": layer}


def step_edges(positions: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Both edges of the columns at ``positions`` (n,), one after the other, for a line of steps: (2n,) float32."""
    middles = np.asarray(positions, np.float64)
    return np.stack([middles - 0.5, middles + 0.5], axis=1).ravel().astype(np.float32)


def panel_domains(number: int, gap: float) -> list[list[float]]:
    """The domains of ``number`` equal panels, ``gap`` apart (share of the width)."""
    width = (1 - gap * (number - 1)) / number
    return [[index * (width + gap), min(1.0, index * (width + gap) + width)] for index in range(number)]


def stack_panels(
    heights: Sequence[float], gap: float, above: float = 0, below: float = 0
) -> tuple[list[list[float]], float]:
    """The domains of panels of ``heights`` (px), from top to bottom and ``gap`` px apart, and the height of all.

    That height includes ``above`` px over and ``below`` px under the panels.
    """
    inner = above + sum(heights) + gap * (len(heights) - 1) + below
    end, domains = inner - above, []
    for height in heights:
        domains.append([max(0.0, (end - height) / inner), min(1.0, end / inner)])
        end -= height + gap
    return domains, inner
