"""The colors of a figure, and contrast as WCAG 2 counts it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

NAMES = {"white": "#FFFFFF", "black": "#000000"}
Parts = tuple[float, float, float, float]


def colors(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(field, color) of every color of a figure outside of its template and color scales."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("template", "colorscale", "meta", "customdata", "images"):
                yield from colors(inner, key if key.endswith(("color", "font")) and name[-4:] != "font" else name)
    elif isinstance(value, list | tuple | np.ndarray) and getattr(value, "dtype", np.dtype(object)).kind in "OU":
        for inner in value:
            yield from colors(inner, name)
    elif isinstance(value, str) and name and parts(value):
        yield name, value


def parts(color: str) -> Parts | None:
    """Red, green, blue and opacity of a color, from 0 to 1; None if it is not written as plotly's figures do."""
    text = NAMES.get(color, color).strip()
    if re.fullmatch(r"#[0-9A-Fa-f]{6}", text):
        red, green, blue = (int(text[place : place + 2], 16) / 255 for place in (1, 3, 5))
        return red, green, blue, 1.0
    if found := re.fullmatch(r"rgba?\(([^)]*)\)", text):
        red, green, blue, alpha = [*map(float, found[1].split(",")), 1.0][:4]
        return red / 255, green / 255, blue / 255, alpha
    return None


def contrast(color: str, ground: str) -> float:
    """The contrast of a color, which may be transparent, with the opaque ground that it lies on, from 1 to 21."""
    *rgb, alpha = parts(color) or (0.0, 0.0, 0.0, 0.0)
    below = (parts(ground) or ())[:3]
    high, low = sorted(
        (_luminance(below), _luminance([alpha * a + (1 - alpha) * b for a, b in zip(rgb, below, strict=True)]))
    )[::-1]
    return (high + 0.05) / (low + 0.05)


def _luminance(rgb: Any) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb]
    return float(np.dot((0.2126, 0.7152, 0.0722), linear))
