"""Direct labels that overlap neither each other nor the marks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from viz import theme

# Possible places of a label, nearest first: (horizontal side, vertical side, distance in px); far ones get a thin line.
# Corners come first, because a mark's own intervals leave them free.
CORNERS, SIDES = ((1, 1), (1, -1), (-1, 1), (-1, -1)), ((1, 0), (-1, 0), (0, 1), (0, -1))
PLACES = (
    *((h, v, 6) for h, v in CORNERS),
    *((h, v, gap) for gap in (18, 26, 40, 58) for h, v in (*SIDES, *CORNERS)),
)
LINED = 15  # px: a label farther from its mark than this gets a line to it


class Box(NamedTuple):
    """Rectangle by its center and size, in px, y upward."""

    x: float
    y: float
    width: float
    height: float

    def outside(self, size: tuple[float, float]) -> bool:
        """Whether any part of the box lies outside (0, 0, *size)."""
        half_w, half_h = self.width / 2, self.height / 2
        return not (half_w <= self.x <= size[0] - half_w and half_h <= self.y <= size[1] - half_h)


@dataclass(frozen=True)
class PlotArea:
    """A plot's size and its marks, in px from its lower left corner, and the boxes that labels must leave free."""

    marks: Sequence[tuple[float, float]]
    size: tuple[float, float]
    taken: Sequence[Box] = ()


def place_labels(
    texts: Sequence[str],
    data: Sequence[tuple[float, float]],
    views: Sequence[PlotArea],
    first: Collection[int] = (),
) -> list[dict[str, Any]]:
    """Annotations that label the marks at ``data`` (axis units) without overlap in every view, narrow page or wide.

    The marks ``first`` choose first, then crowded ones. A label with no free place is left out: overlapping labels
    cannot be read, and the hover has the text.
    """
    obstacles = [np.array([*view.taken, *(Box(x, y, 12, 12) for x, y in view.marks)]).reshape(-1, 4) for view in views]
    crowd = [sum(abs(x - a) < 90 and abs(y - b) < 30 for a, b in views[0].marks) for x, y in views[0].marks]
    annotations = []
    for index in sorted(range(len(texts)), key=lambda i: (i not in first, -crowd[i], i)):
        wide, high = theme.text_width(texts[index]), theme.SMALL + 3
        for side, up, gap in PLACES:
            boxes = [_box(view.marks[index], side, up, gap, wide, high) for view in views]
            if all(_is_free(*found) for found in zip(boxes, views, obstacles, strict=True)):
                obstacles = [np.vstack([found, box]) for found, box in zip(obstacles, boxes, strict=True)]
                annotations.append(_annotation(texts[index], data[index], side, up, gap))
                break
    return annotations


def _is_free(box: Box, view: PlotArea, obstacles: NDArray[np.float64]) -> bool:
    """Whether a box lies inside the view, and no row (x, y, width, height) of ``obstacles`` overlaps it."""
    if box.outside(view.size):
        return False
    distances, sizes = np.abs(obstacles[:, :2] - box[:2]), obstacles[:, 2:] + box[2:]
    return not bool((distances < sizes / 2).all(axis=1).any())


def _box(point: tuple[float, float], side: int, up: int, gap: float, wide: float, high: float) -> Box:
    # a diagonal label is moved by the same distance along each axis
    return Box(point[0] + side * (gap + wide / 2), point[1] + up * (gap + high / 2), wide, high)


def _annotation(text: str, data: tuple[float, float], side: int, up: int, gap: float) -> dict[str, Any]:
    common = {
        "text": text, "x": data[0], "y": data[1], "name": "label",
        "xanchor": {1: "left", 0: "center", -1: "right"}[side], "yanchor": {1: "bottom", 0: "middle", -1: "top"}[up],
        "font": {"size": theme.SMALL, "color": theme.INK},
    }  # fmt: skip
    if gap < LINED:
        return common | {"xshift": side * gap, "yshift": up * gap, "showarrow": False}
    return common | {
        "showarrow": True, "arrowhead": 0, "arrowwidth": 1, "arrowcolor": theme.FADED, "standoff": 7,
        "ax": side * gap, "ay": -up * gap, "axref": "pixel", "ayref": "pixel",
    }  # fmt: skip
