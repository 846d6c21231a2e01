"""Experts' updates as streams along the residual line: as wide as they are large, gray where pruned, split by signs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from viz import theme
from viz.drawing import Trace, bar
from viz.figure_text import identifier, safe_text
from viz.parts import axes
from viz.parts.network_layout import PlacedRow

Numbers = npt.NDArray[np.float64]
FAN_SHARE, JOIN_SHARE, TAIL_SHARE = 0.05, 0.03, 0.045  # of the width: where streams come together, join, and end
MERGED_PX = 6  # width of the line of the merged model
LABEL_PX = 14  # height of an expert's name
NAME_CHARACTERS, MAX_LABELS = 18, 12  # of a name, and experts whose names are beside their streams
SPLIT = 0.5  # share of a stream of opposed signs alone that its gap takes
MAX_CURVES = 16  # points of a stream above which it is straight between them
MIN_PX = 0.8  # height of the thinnest stream


HOVER = (
    "%{text}<br>update: %{customdata[2]:.1%} of the weights' norm<br>kept: %{customdata[3]:.1%}<br>"
    "opposed signs: %{customdata[4]:.1%}<extra></extra>"
)
STREAM_COLUMNS = ("update, share of the weights' norm", "share of the update that is kept", "share of opposed signs")


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
    square, kept_square, weights, opposed, numel = (sums[name].to_numpy(np.float64) for name in sums)
    with np.errstate(invalid="ignore", divide="ignore"):
        update, kept = np.sqrt(square / weights), kept_square / square
    return Stream(np.nan_to_num(update), np.nan_to_num(kept, nan=1.0), opposed / numel)


def draw_streams(
    table: pd.DataFrame, names: Sequence[str], styles: Mapping[str, theme.MarkStyle], rows: Sequence[PlacedRow],
    units: tuple[float, float],
) -> Streams:  # fmt: skip
    """The streams of the experts along every row with sections; ``units`` are the coordinates in a unit and in a px."""
    drawn = Streams([], [], [])
    width = max(placed.row.width for placed in rows)
    towers = [placed for placed in rows if placed.row.sections]
    streams = [
        [sum_updates(table, name, [section.name for section in placed.row.sections]) for name in names]
        for placed in towers
    ]
    largest = max((float(stream.update.max(initial=0)) for of_row in streams for stream in of_row), default=0) or 1.0
    for placed, of_row in zip(towers, streams, strict=True):
        lane = 2 * placed.lanes / len(names)
        middles = [(section.x0 + section.x1) / 2 for section in placed.row.sections]
        x = np.array([-FAN_SHARE * width, 0.0, *middles, placed.row.width, placed.row.width + JOIN_SHARE * width])
        for index, (name, stream) in enumerate(zip(names, of_row, strict=True)):
            center = placed.line + placed.lanes - lane * (index + 0.5)
            fan = placed.line + (len(names) / 2 - index - 0.5) * max(LABEL_PX, lane)
            y = np.array([fan, *[center] * (len(middles) + 2), placed.line])
            drawn.shapes.extend(_draw_stream(stream, (x, y), lane / largest, styles[name].color, units))
            if len(names) <= MAX_LABELS and placed is towers[0]:
                drawn.labels.append(_label(name, fan * units[1]))
        drawn.shapes.append(_draw_merged(x[-1], placed.line, width, units))
        drawn.targets.append(_draw_targets(names, of_row, placed, lane, units))
    return drawn


def _draw_merged(x: float, y: float, width: float, units: tuple[float, float]) -> dict[str, Any]:
    """The line of the merged model, after the streams have joined."""
    line = {"color": theme.KINDS["merge"].color, "width": MERGED_PX}
    ends = {"x0": x * units[0], "x1": (x + (TAIL_SHARE - JOIN_SHARE) * width) * units[0]}
    return {"type": "line", **ends, "y0": y * units[1], "y1": y * units[1], "line": line}


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
    x, y = course
    for outer, fill in ((half, theme.BEFORE_COLOR), (inner, color)):
        if fill != color and (kept == 1).all():
            continue  # the color covers it
        path = _ribbon(x, y + gap, y + outer, units) + _ribbon(x, y - gap, y - outer, units)
        yield {"type": "path", "path": path, "fillcolor": fill, "line": {"width": 0}, "layer": "below"}


def _ribbon(x: Numbers, first: Numbers, second: Numbers, units: tuple[float, float]) -> str:
    """The outline between two curves with the same positions."""
    there = _curve(x * units[0], first * units[1], "M")
    return there + _curve((x * units[0])[::-1], (second * units[1])[::-1], "L") + "Z"


def _curve(x: Numbers, y: Numbers, begin: str) -> str:
    """A smooth curve through points, level at each of them; straight between many points, which need less space."""
    first = f"{begin}{x[0]:.0f},{y[0]:.0f}"
    if len(x) > MAX_CURVES:
        return first + "".join(f"L{across:.0f},{up:.0f}" for across, up in zip(x[1:], y[1:], strict=True))
    middles = (x[:-1] + x[1:]) / 2
    ends = zip(middles, x[1:], y[1:], strict=True)
    path = f"{first}C{middles[0]:.0f},{y[0]:.0f} "
    return path + "S".join(f"{middle:.0f},{end:.0f} {after:.0f},{end:.0f}" for middle, after, end in ends)


def label_width(names: Sequence[str], other_label: str) -> float:
    """Width in px at the left of the map for the experts' names and another label."""
    return axes.names_width([*names, other_label] if len(names) <= MAX_LABELS else [other_label], NAME_CHARACTERS) + 12


def _label(name: str, y: float) -> dict[str, Any]:
    """The name of an expert at the height ``y``, left of its stream."""
    return {
        "x": 0, "xref": "paper", "y": y, "text": safe_text(name, NAME_CHARACTERS), "xanchor": "right", "xshift": -4,
        "yanchor": "middle", "font": {"size": theme.SMALL_SIZE}, "name": "expert",
    }  # fmt: skip


def _draw_targets(
    names: Sequence[str], streams: Sequence[Stream], placed: PlacedRow, lane: float, units: tuple[float, float]
) -> Trace:
    """Invisible bars over the streams, one for each expert and section."""
    sections, count = placed.row.sections, len(names)
    left = np.tile([section.x0 for section in sections], count)
    right = np.tile([section.x1 for section in sections], count)
    top = np.repeat(placed.line + placed.lanes - lane * np.arange(count), len(sections))
    facts = [
        ["", identifier(name), *(float(f"{number:.4g}") for number in numbers)]
        for name, stream in zip(names, streams, strict=True)
        for numbers in zip(*stream, strict=True)
    ]
    labels = [safe_text(section.name, 24) for section in sections]
    return bar(
        x=np.round((left + right) / 2 * units[0]).astype(np.int32), width=((right - left) * units[0]).astype(np.int32),
        base=((top - lane) * units[1]).astype(int), y=np.full(len(top), lane * units[1], np.float32), customdata=facts,
        text=[f"<b>{safe_text(name, 24)}</b>, {label}" for name in names for label in labels], textposition="none",
        hovertemplate=HOVER, name="Stream", marker={"opacity": 0, "line": {"width": 0}},
        meta={"after_picks": list(STREAM_COLUMNS), "without_positions": True},
    )  # fmt: skip
