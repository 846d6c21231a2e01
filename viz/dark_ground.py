"""Figures on a dark ground: the same marks in other colors, listed in the table ``TO_DARK``.

A gray has the same contrast with either ground: faint marks stay faint, and marks that would vanish on the dark ground
get lighter. Colors of categories and color scales are not in the table: they stay, because a legend names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz import theme

COLOR_FIELDS = ("color", "colorway", "colorscale")  # ends of the names of fields that hold colors
DARK_INK = "#E8EDF2"  # also the text color of the app's dark pages
# Opacity of bands and dots -> its value for the darkest colors on the dark ground.
DARK_OPACITIES = {0.13: 0.21, 0.15: 0.23, 0.16: 0.25, 0.55: 0.71}
DARKEST_COLORS = (theme.BLUE, theme.KINDS["multitask"].color, theme.KINDS["paper"].color)
_SOLID_COLORS = {
    theme.GROUND: "#12161B",
    theme.BLACK: DARK_INK,
    theme.INK: "#E3E8ED",
    theme.FADED: "#898D90",
    theme.GRID: "#26292C",
    theme.PANEL: "#1A1D21",
    theme.PRUNED: "#2A2D30",
    theme.KEPT: "#49A9E9",
    theme.KINDS["pretrained"].color: "#A4A8AB",
    theme.ROLE_COLORS["buffer"]: "#7C8083",
    theme.OTHER_COLOR: "#646669",
    theme.REFERENCE: "#626568",
    theme.LEVEL_COLOR: "#373A3D",
    theme.BEFORE_COLOR: "#37393C",
    theme.TIE_COLOR: "#191D21",
    theme.BOTH_RIGHT: "#1F2C38",
    theme.ONLY_A: "#3F2B10",
    theme.ONLY_B: "#34373A",
    theme.BOTH_WRONG: "#272A2E",
    theme.GLASS: "rgba(18,22,27,0.5)",
    theme.SHADE: "rgba(18,22,27,0.62)",
    theme.THICK_SHADE: "rgba(18,22,27,0.72)",
    theme.CONTOUR: "rgba(227,232,237,0.55)",
    theme.INTERVAL: "rgba(137,141,144,0.35)",
    theme.FAILING: "rgba(146,150,154,0.2)",
}
_TINTED_COLORS = {
    theme.tint(color, opacity): theme.tint(color, dark_opacity)
    for color in DARKEST_COLORS
    for opacity, dark_opacity in DARK_OPACITIES.items()
} | {theme.tint(theme.BLACK, opacity): theme.tint(DARK_INK, opacity) for opacity in DARK_OPACITIES}
TO_DARK: Mapping[str, str] = MappingProxyType(_SOLID_COLORS | _TINTED_COLORS)
TO_LIGHT: Mapping[str, str] = MappingProxyType({dark: light for light, dark in TO_DARK.items()})  # for saved pictures


def to_dark_ground(figure: go.Figure) -> go.Figure:
    """The figure on a dark ground."""
    data = [_to_dark(trace.to_plotly_json()) for trace in figure.data]
    layout = {name: value for name, value in figure.layout.to_plotly_json().items() if name != "template"}
    return go.Figure(data, _to_dark(layout) | {"template": TEMPLATE}, _validate=False)


def _to_dark(value: Any, is_color: bool = False) -> Any:
    """The value with the colors of the dark ground; ``is_color``: the value consists of colors."""
    if isinstance(value, dict):
        return {
            name: inner if name in ("meta", "customdata") else _to_dark(inner, is_color or name.endswith(COLOR_FIELDS))
            for name, inner in value.items()
        }
    if isinstance(value, str):
        return TO_DARK.get(value, value) if is_color else value
    if isinstance(value, list | tuple) and (is_color or (value and isinstance(value[0], dict))):
        return [_to_dark(inner, is_color) for inner in value]
    if is_color and isinstance(value, np.ndarray) and value.dtype.kind in "OU":
        return [_to_dark(inner, is_color) for inner in value.tolist()]
    return value


TEMPLATE = go.layout.Template(_to_dark(theme.TEMPLATE.to_plotly_json()))
