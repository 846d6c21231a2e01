"""Texts of figures can be read: a contrast of 4.5 with what is behind them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from figures import KEYS, spec_of
from plotly.colors import hex_to_rgb

from viz import theme

WHITE = "#FFFFFF"


def light(color: str) -> float:
    """The relative luminance of a color, as WCAG 2 defines it."""
    parts = [part / 255 for part in hex_to_rgb(color)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def fonts(value: Any) -> Iterator[str]:
    """The colors of all fonts of a figure that do not stand on a mark's own color."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key.endswith("font") and isinstance(inner, dict) and isinstance(inner.get("color"), str):
                yield inner["color"]
            yield from fonts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from fonts(inner)


@pytest.mark.parametrize("key", KEYS)
def test_every_font_of_a_figure_can_be_read(key: str) -> None:
    colors = {theme.INK, *fonts(json.loads(spec_of(key)))} - {"rgba(0,0,0,0)"}  # hidden, where a mark can be clicked
    assert not {color: round(contrast(color, WHITE), 2) for color in colors if contrast(color, WHITE) < 4.5}


def test_the_colors_of_texts_can_be_read_on_every_ground() -> None:
    assert contrast(WHITE, "#000000") == 21
    for ground in (WHITE, theme.PANEL):
        assert min(contrast(theme.INK, ground), contrast(theme.FADED, ground)) >= 4.5
