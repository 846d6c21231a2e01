"""A figure on a dark ground: the same marks in the same places, with grays and pale tints turned around.

A gray keeps its contrast with the ground, so that what is faint stays faint. Colors of categories and color scales
stay, because they are read against a legend; a color that would sink into the ground is made lighter.
"""

from __future__ import annotations

import colorsys
import re
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import plotly.graph_objects as go

from viz import theme

GROUND, INK = "#12161B", "#E8EDF2"
MARK, TEXT = 3.0, 4.5  # least contrasts
FAINT = 2.0  # a gray of less contrast with white is faint on purpose
GRAY, TINT = 40, 100  # differences between the largest and the smallest of a color's parts: below, it is one
PALE = 1.6  # contrast with white of the darkest tint
STAY = frozenset({theme.ON_LIGHT, theme.ON_DARK})  # texts on cells whose color stays
SCALES = frozenset({"white", theme.PRUNED, theme.KEPT, theme.PANEL})  # what turns around inside of color scales
NAMES = {"white": "#FFFFFF", "black": "#000000"}
Parts: TypeAlias = tuple[float, float, float, float]
Change: TypeAlias = tuple[list[str | int], Any]


def darkened(figure: go.Figure) -> go.Figure:
    """The figure on a dark ground. ``layout.meta["light"]`` lists places and values that make it light again."""
    changes: list[Change] = []
    data = [_turned(trace.to_plotly_json(), ["data", place], changes) for place, trace in enumerate(figure.data)]
    light = figure.layout.to_plotly_json()
    template = light.pop("template", None)
    layout = _turned(light, ["layout"], changes)
    if template:
        changes.append((["layout", "template"], template))
        layout["template"] = _template() if template == _light_template() else _turned(template, [], [])
    layout["meta"] = (layout.get("meta") or {}) | {"light": changes}
    return go.Figure(data, layout, _validate=False)


@cache
def _light_template() -> dict[str, Any]:
    return dict(go.Figure(layout={"template": theme.TEMPLATE}).layout.template.to_plotly_json())


@cache
def _template() -> dict[str, Any]:
    return dict(_turned(_light_template(), [], []))


def _turned(value: Any, path: list[str | int], changes: list[Change]) -> Any:
    """The value with its colors turned around; ``changes`` gets the places of those and what stood there."""
    if isinstance(value, dict):
        turned = {}
        for name, inner in value.items():
            place = [*path, name]
            if name.endswith("color") or name in ("colorway", "colorscale"):
                turned[name] = _scale(inner) if name == "colorscale" else _colors(inner)
                if not _same(turned[name], inner):
                    changes.append((place, inner.tolist() if isinstance(inner, np.ndarray) else inner))
            else:
                turned[name] = inner if name == "meta" else _turned(inner, place, changes)
        return turned
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        return [_turned(inner, [*path, place], changes) for place, inner in enumerate(value)]
    return value


def _same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, str | list) and one == other)


def _colors(value: Any) -> Any:
    """A color or a list of them; numbers, which a scale colors, stay."""
    if isinstance(value, str):
        return dark(value)
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "biuf" else [_colors(one) for one in value.tolist()]
    if isinstance(value, list | tuple):
        return [_colors(one) for one in value]
    return value


def _scale(value: Any) -> Any:
    """A color scale: only what stands for "nothing" or is a color of masks turns around."""
    if isinstance(value, str | dict) or value is None:
        return value
    return [[place, dark(color) if color in SCALES or _veil(color) else color] for place, color in value]


def _veil(color: str) -> bool:
    return color.replace(" ", "").startswith("rgba(255,255,255")


@cache
def dark(color: str) -> str:
    """What a color of the light ground is on the dark one; what cannot be read as a color stays as it is."""
    if color in STAY or (found := parts(color)) is None or found[3] == 0:
        return color
    *_, alpha = found
    rgb, on_white = found[:3], contrast(color, "#FFFFFF")
    wide = 255 * (max(rgb) - min(rgb))
    if wide < GRAY:
        return _written(_gray(on_white if on_white < FAINT else max(on_white, MARK + 0.1)), alpha)
    if wide < TINT and on_white < PALE:
        return _written(_of_contrast(rgb, on_white, on_white + 0.1), alpha)
    if alpha < 1:
        return _written(rgb, _opacity(rgb, alpha))
    if contrast(color, GROUND) >= MARK:
        return color
    return _written(_of_contrast(rgb, min(on_white, 7.0), 21.0), alpha)


def _gray(wanted: float) -> tuple[float, float, float]:
    """Between ground and ink, of this contrast with the ground, or the ink's."""
    low, high = (np.array([_linear(part) for part in _known(color)[:3]]) for color in (GROUND, INK))
    weights = np.array([0.2126, 0.7152, 0.0722])
    light = wanted * (weights @ low + 0.05) - 0.05
    share = min(max((light - weights @ low) / (weights @ high - weights @ low), 0.0), 1.0)
    red, green, blue = (_gamma(part) for part in low + share * (high - low))
    return red, green, blue


def _opacity(rgb: tuple[float, float, float], alpha: float) -> float:
    """The opacity at which a color on the dark ground has the contrast that it has on white."""
    wanted = contrast(mixed(rgb, alpha, "#FFFFFF"), "#FFFFFF")
    for more in np.arange(alpha, 1.0, 0.01):
        if contrast(mixed(rgb, float(more), GROUND), GROUND) >= wanted:
            return round(float(more), 2)
    return 1.0


def mixed(rgb: tuple[float, float, float], alpha: float, ground: str) -> str:
    """A color of this opacity over a ground, as one opaque color."""
    red, green, blue = (alpha * one + (1 - alpha) * other for one, other in zip(rgb, _known(ground)[:3], strict=True))
    return _written((red, green, blue), 1.0)


def _of_contrast(rgb: tuple[float, float, float], least: float, most: float) -> tuple[float, float, float]:
    """The color of this hue and saturation, as dark as possible, whose contrast with the ground is at least that."""
    hue, _, saturation = colorsys.rgb_to_hls(*rgb)
    found = rgb
    for lightness in np.linspace(0.02, 0.98, 193):
        found = colorsys.hls_to_rgb(hue, float(lightness), min(saturation, 0.6) if most < PALE + 0.2 else saturation)
        if contrast(_written(found, 1.0), GROUND) >= least:
            break
    return found


def parts(color: str) -> Parts | None:
    """Red, green, blue and opacity of a color, from 0 to 1; None if it is not written as plotly's figures do."""
    text = NAMES.get(color, color).strip()
    if re.fullmatch(r"#[0-9A-Fa-f]{6}", text):
        red, green, blue = (int(text[place : place + 2], 16) / 255 for place in (1, 3, 5))
        return red, green, blue, 1.0
    if found := re.fullmatch(r"rgba?\(([^)]*)\)", text):
        numbers = [float(number) for number in found[1].split(",")]
        if len(numbers) in (3, 4):
            return numbers[0] / 255, numbers[1] / 255, numbers[2] / 255, (*numbers, 1.0)[3]
    return None


def _known(color: str) -> Parts:
    found = parts(color)
    if found is None:
        raise ValueError(f"{color!r} is no color; write it as #RRGGBB, rgb(), rgba(), white or black")
    return found


def _written(rgb: tuple[float, float, float], alpha: float) -> str:
    red, green, blue = (round(255 * part) for part in rgb)
    return f"#{red:02X}{green:02X}{blue:02X}" if alpha == 1 else f"rgba({red},{green},{blue},{alpha:g})"


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)


def _gamma(part: float) -> float:
    return 12.92 * part if part <= 0.0031308 else float(1.055 * part ** (1 / 2.4) - 0.055)


def luminance(color: str) -> float:
    """The relative luminance of an opaque color, as WCAG 2 defines it."""
    red, green, blue = (_linear(part) for part in _known(color)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The contrast of two opaque colors, from 1 to 21, as WCAG 2 defines it."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
