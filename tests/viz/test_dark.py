"""Every figure on a dark ground: texts and marks can be seen, what is saved has the light ground, numbers stay."""

from __future__ import annotations

import copy
from typing import Any

import pandas as pd
import pytest
from figure_colors import colors
from figures import KEYS, drawn

from viz import dark, theme

COLORLESS = {None, "rgba(0,0,0,0)"}
GROUNDS = {"bgcolor", "paper_bgcolor", "plot_bgcolor"}


def seen(color: str, ground: str) -> float:
    """The contrast of a color, which may be transparent, with the ground that it lies on."""
    red, green, blue, alpha = dark.parts(color) or (0.0, 0.0, 0.0, 0.0)
    return dark.contrast(dark.mixed((red, green, blue), alpha, ground), ground)


def same(one: Any, other: Any) -> bool:
    """Whether two figures' fields are the same, wherever lists, tuples or arrays hold them."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, str) or not hasattr(one, "__len__"):
        return bool(one == other) or bool(pd.isna(one) and pd.isna(other))
    return len(one) == len(other) and all(same(a, b) for a, b in zip(list(one), list(other), strict=True))


@pytest.mark.parametrize("key", KEYS)
def test_every_figure_can_be_read_on_the_dark_ground(key: str) -> None:
    light = drawn(key)
    turned = dark.darkened(light)
    assert turned.layout.template.layout.paper_bgcolor == dark.GROUND == turned.layout.template.layout.plot_bgcolor
    assert turned.layout.template.layout.font.color == dark.dark(theme.INK)
    fields = [*colors(turned.to_plotly_json())]
    texts = {color for name, color in fields if name.endswith("font")} - dark.STAY - COLORLESS
    assert not {color: seen(color, dark.GROUND) for color in texts if seen(color, dark.GROUND) < dark.TEXT}
    for before, after in zip(light.data, turned.data, strict=True):
        # a mark is seen by its fill or by its line; what is faint on white may be faint here
        best = [
            max((seen(c, ground) for _, c in colors(trace.to_plotly_json())), default=0.0)
            for trace, ground in ((before, "#FFFFFF"), (after, dark.GROUND))
        ]
        assert best[1] >= min(dark.MARK, best[0]) - 0.02, (after.name, best)


@pytest.mark.parametrize("key", KEYS)
def test_what_is_saved_is_the_light_figure_and_numbers_stay(key: str) -> None:
    light = drawn(key)
    turned = dark.darkened(light)
    figure = copy.deepcopy(
        {"data": [t.to_plotly_json() for t in turned.data], "layout": turned.layout.to_plotly_json()}
    )
    for path, value in figure["layout"]["meta"].pop("light"):
        place: Any = figure
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
    for before, after in zip(light.data, figure["data"], strict=True):
        assert same(after, before.to_plotly_json())
    assert same(figure["layout"], light.layout.to_plotly_json())


def test_grays_keep_their_contrast_and_colors_stay() -> None:
    assert dark.dark("white") == dark.GROUND and dark.contrast(dark.dark(theme.INK), dark.GROUND) > 14
    faint, gray = dark.dark(theme.GRID), dark.dark(theme.FADED)
    assert dark.contrast(faint, dark.GROUND) == pytest.approx(dark.contrast(theme.GRID, "#FFFFFF"), abs=0.03)
    assert dark.contrast(gray, dark.GROUND) == pytest.approx(dark.contrast(theme.FADED, "#FFFFFF"), abs=0.1)
    assert [dark.dark(color) for color in theme.PALETTE[:7]] == list(theme.PALETTE[:7])
    assert dark.contrast(dark.dark(theme.KEPT), dark.GROUND) >= 7
    assert (
        dark.dark("rgba(255,255,255,0.62)") == "rgba(18,22,27,0.62)" and dark.dark("rgba(0,0,0,0)") == "rgba(0,0,0,0)"
    )
    assert dark.dark("no color") == "no color"


def test_numbers_that_a_scale_colors_and_the_scales_stay() -> None:
    figure = drawn("saliency_matrix")
    turned = dark.darkened(figure)
    scales = {
        trace.name: trace.colorscale == one.colorscale
        for one, trace in zip(figure.data, turned.data, strict=True)
        if trace.type == "heatmap"
    }
    assert scales["Saliency"] and not scales["Own mask"]
