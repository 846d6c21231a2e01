"""Experts' updates as streams along the residual line: as wide as they are large, gray where pruned, split by signs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.drawing import Trace, bar
from viz.figure_text import identifier, percent, safe_text

if TYPE_CHECKING:
    from viz.figures.network.network_map import PlacedRow

Numbers = npt.NDArray[np.float64]
FAN_UNITS, TAIL_SHARE = 0.13, 0.1  # shares of the width for the names of experts, and for the merged model
LABEL_PX = 14  # height of an expert's name
MAX_LABELS = 12  # experts whose names are beside their streams
SPLIT = 0.5  # share of a stream of opposed signs alone that its gap takes
MIN_PX = 0.8  # height of the thinnest stream


class Streams(NamedTuple):
    """The streams' shapes, invisible bars with their hover texts, and the names at their beginnings."""

    shapes: list[dict[str, Any]]
    targets: list[Trace]
    labels: list[dict[str, Any]]


class Stream(NamedTuple):
    """One expert's stream at each section (n,): its relative update, and the shares kept and of opposed signs."""

    update: Numbers
    kept: Numbers
    opposed: Numbers


def sum_updates(table: pd.DataFrame, expert: str, sections: Sequence[str]) -> Stream:
    """The stream of an expert; see the columns of ``network_map``. A section without rows has no update."""
    rows = table[table["expert"].astype(str) == expert]
    by_section = rows.assign(
        kept_square=rows["square"] * (rows["kept"].astype(float) if "kept" in rows else 1.0),
        opposed_numel=rows["numel"] * rows.get("opposed", np.nan),
    ).groupby(rows["section"].astype(str))[["square", "kept_square", "weight_square", "opposed_numel", "numel"]]
    sums = by_section.sum(min_count=1).reindex(list(sections))
    with np.errstate(invalid="ignore", divide="ignore"):
        update = np.sqrt(sums["square"] / sums["weight_square"]).to_numpy(np.float64)
        kept = (sums["kept_square"] / sums["square"]).to_numpy(np.float64)
        opposed = (sums["opposed_numel"] / sums["numel"]).to_numpy(np.float64)
    return Stream(np.nan_to_num(update), np.nan_to_num(kept, nan=1.0), opposed)


def draw_streams(
    table: pd.DataFrame, names: Sequence[str], looks: Mapping[str, theme.MarkStyle], rows: Sequence[PlacedRow],
    units: tuple[float, float],
) -> Streams:  # fmt: skip
    """The streams of the experts ``names`` along every row with sections; ``units`` are coordinates in a unit and px."""
    drawn = Streams([], [], [])
    width = max(placed.row.width for placed in rows)
    for placed in rows:
        sections = [section.name for section in placed.row.sections]
        if not sections:
            continue
        streams = [sum_updates(table, name, sections) for name in names]
        largest = max(float(stream.update.max(initial=0)) for stream in streams) or 1.0
        lane = 2 * placed.lanes / len(names)
        middles = [(section.x0 + section.x1) / 2 for section in placed.row.sections]
        x = np.array([-FAN_UNITS * width, 0.0, *middles, placed.row.width, placed.row.width * (1 + TAIL_SHARE / 3)])
        for index, (name, stream) in enumerate(zip(names, streams, strict=True)):
            center = placed.line + placed.lanes - lane * (index + 0.5)
            fan = placed.line + (len(names) / 2 - index - 0.5) * max(LABEL_PX, lane)
            y = np.array([fan, *[center] * (len(sections) + 2), placed.line])
            drawn.shapes.extend(_draw_stream(stream, (x, y), lane / largest, looks[name].color, units))
            if len(names) <= MAX_LABELS:
                drawn.labels.append(_label(name, looks[name].color, x[0], fan, units))
        drawn.targets.append(_draw_targets(names, streams, placed, lane, units))
    return drawn


def _draw_stream(
    stream: Stream, course: tuple[Numbers, Numbers], px_per_update: float, color: str, units: tuple[float, float]
) -> Iterable[dict[str, Any]]:
    """Both strands of a stream: gray in full, and over that the kept share in the expert's color."""
    update = np.array([stream.update[0], stream.update[0], *stream.update, stream.update[-1], stream.update[-1]])
    kept = np.array([1.0, stream.kept[0], *stream.kept, stream.kept[-1], 1.0])
    opposed = np.nan_to_num(np.array([0.0, stream.opposed[0], *stream.opposed, stream.opposed[-1], 0.0]))
    half = np.maximum(update * px_per_update, MIN_PX) / 2
    gap = half * opposed * SPLIT  # of the strands from the middle, so that the streams of opposed signs are split
    inner = gap + (half - gap) * kept
    for outer, fill in ((half, theme.BEFORE_COLOR), (inner, color)):
        x, y = course
        path = _ribbon(x, y + gap, y + outer, units) + _ribbon(x, y - gap, y - outer, units)
        yield {"type": "path", "path": path, "fillcolor": fill, "line": {"width": 0}, "layer": "below"}


def _ribbon(x: Numbers, first: Numbers, second: Numbers, units: tuple[float, float]) -> str:
    """The outline between two curves with the same positions."""
    there = _curve(x * units[0], first * units[1], "M")
    return there + _curve((x * units[0])[::-1], (second * units[1])[::-1], "L") + "Z"


def _curve(x: Numbers, y: Numbers, begin: str) -> str:
    """A smooth curve through points, level at each of them."""
    words = [f"{begin}{x[0]:.0f},{y[0]:.0f}"]
    for (x0, x1), (y0, y1) in zip(pairwise(x), pairwise(y), strict=True):
        middle = (x0 + x1) / 2
        words.append(f"C{middle:.0f},{y0:.0f} {middle:.0f},{y1:.0f} {x1:.0f},{y1:.0f}")
    return "".join(words)


def _label(name: str, color: str, x: float, y: float, units: tuple[float, float]) -> dict[str, Any]:
    return {
        "x": x * units[0], "y": y * units[1], "text": safe_text(name, 18), "xanchor": "left", "yanchor": "bottom",
        "yshift": -4, "font": {"size": theme.SMALL_SIZE}, "name": "expert",
    }  # fmt: skip


def _draw_targets(
    names: Sequence[str], streams: Sequence[Stream], placed: PlacedRow, lane: float, units: tuple[float, float]
) -> Trace:
    """Invisible bars over the streams, one for each expert and section."""
    sections, count = placed.row.sections, len(names)
    left = np.tile([section.x0 for section in sections], count)
    right = np.tile([section.x1 for section in sections], count)
    top = np.repeat(placed.line + placed.lanes - lane * np.arange(count), len(sections))
    texts = [
        f"<b>{safe_text(name, 40)}</b>, {safe_text(section.name, 40)}<br>update: {percent(stream.update[index])} of the "
        f"weights' norm<br>kept: {percent(stream.kept[index])}, opposed signs: {percent(stream.opposed[index])}"
        for name, stream in zip(names, streams, strict=True) for index, section in enumerate(sections)
    ]  # fmt: skip
    columns = {
        "update (% of the weights' norm)": [round(100 * float(number), 4) for s in streams for number in s.update],
        "update kept (%)": [round(100 * float(number), 2) for s in streams for number in s.kept],
    }
    return bar(
        x=((left + right) / 2 * units[0]).astype(np.int16), width=((right - left) * units[0]).astype(np.int16),
        base=((top - lane) * units[1]).astype(int), y=np.full(len(top), lane * units[1], np.float32),
        customdata=[["", identifier(name)] for name in names for _ in sections], text=texts, textposition="none",
        hovertemplate="%{text}<extra></extra>", name="Stream", marker={"opacity": 0, "line": {"width": 0}},
        meta={"columns": columns, "without_positions": True},
    )  # fmt: skip
