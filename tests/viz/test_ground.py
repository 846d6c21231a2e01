"""Every figure on a light and on a dark ground: texts and marks can be seen, each color is known, numbers stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figure_colors import colors, contrast, parts
from figures import KEYS, TABLES, draw_example, run_checks

import viz
from viz import dark_ground, theme
from viz.chart import ChartError
from viz.figures import revert_figures
from viz.figures.masks import manual_canvas, saliency_figures

WHITE, BLACK = "#FFFFFF", dark_ground.TO_DARK[theme.GROUND]
MARK, TEXT = 3.0, 4.5  # least contrasts
STAY = {  # on both grounds
    *theme.PALETTE[:7], *(mark_style.color for mark_style in theme.KINDS.values()), *theme.ROLE_COLORS.values(),
    theme.RUN_A, theme.RUN_B, theme.ON_LIGHT, theme.ON_DARK, theme.CLEAR,
}  # fmt: skip
TINTS = {theme.tint(color, opacity) for color in theme.PALETTE for opacity in dark_ground.DARK_OPACITIES}
ON_MARKS = {theme.ON_LIGHT, theme.ON_DARK, theme.CLEAR}  # of texts that stand on a mark, or are hidden below one
KNOWN = {WHITE: STAY | TINTS | set(dark_ground.TO_DARK), BLACK: STAY | TINTS | set(dark_ground.TO_LIGHT)}


def dark(key: str) -> Any:
    return viz.draw(key, TABLES[key](4), ground="dark")


def scale_colors(value: Any) -> Iterator[str]:
    """Every color of the color scales in a figure."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "colorscale" and isinstance(inner, list | tuple):
                yield from (color for _, color in inner)
            else:
                yield from scale_colors(inner)
    elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        for inner in value:
            yield from scale_colors(inner)


def figure_can_be_read_on_both_grounds(key: str) -> None:
    figures = {WHITE: draw_example(key), BLACK: dark(key)}
    for below, figure in figures.items():
        fields = [*colors(figure.to_plotly_json())]
        assert {color for _, color in fields} <= KNOWN[below]
        texts = {color for name, color in fields if name.endswith("font")} - ON_MARKS
        assert not {color: contrast(color, below) for color in texts if contrast(color, below) < TEXT}
    for before, after in zip(figures[WHITE].data, figures[BLACK].data, strict=True):
        # a mark is seen by its fill or by its line; what is faint on white may be faint here
        best = [
            max((contrast(c, below) for _, c in colors(trace.to_plotly_json())), default=0.0)
            for trace, below in ((before, WHITE), (after, BLACK))
        ]
        assert best[1] >= min(MARK, best[0]) - 0.04, (after.name, best)


def same(one: Any, other: Any) -> bool:
    """Whether two figures' fields are the same, wherever lists, tuples or arrays hold them."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, str) or not hasattr(one, "__len__"):
        return bool(one == other) or bool(pd.isna(one) and pd.isna(other))
    return len(one) == len(other) and all(same(a, b) for a, b in zip(list(one), list(other), strict=True))


def colors_of_a_dark_figure_give_the_light_one_back(key: str) -> None:
    light, turned = draw_example(key), dark(key)
    shown = {color for _, color in colors(light.to_plotly_json())} | {*scale_colors(light.to_plotly_json())}
    assert not shown & set(dark_ground.TO_LIGHT)  # else the browser could not tell which it was
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dark_ground, "TO_DARK", dark_ground.TO_LIGHT)
        patch.setattr(dark_ground, "TEMPLATE", theme.TEMPLATE)
        back = dark_ground.to_dark_ground(turned)
    for one, other in zip(light.data, back.data, strict=True):
        assert same(one.to_plotly_json(), other.to_plotly_json())
    assert same(light.layout.to_plotly_json(), back.layout.to_plotly_json())


GRAY = 40  # colors whose parts differ less are grays, which are no categories
SIDES = {"#E08214", "#8073AC"}  # of the diverging scale: one run and the other
MARK_COLORS = {
    *theme.PALETTE,
    *(mark_style.color for mark_style in theme.KINDS.values()),
    *theme.ROLE_COLORS.values(),
    theme.KEPT,
}
CATEGORIES = {color.upper() for color in MARK_COLORS} | SIDES
IN_WORDS = {"compare_agreement": {"#FDD9A8"}}  # cells that say in words what they are
SCALES = [
    [list(step) for step in scale]
    for scale in (theme.SEQUENTIAL, theme.DIVERGING, revert_figures.FADE_COLORS, revert_figures.MARGIN_SCALE.colors,
        saliency_figures.MASK_SCALE,
                  manual_canvas.FACTOR_COLORS)
]  # fmt: skip


def figure_has_no_colors_besides_palette_grays_and_scales(key: str) -> None:
    figure = draw_example(key)
    others = set()
    for _, color in colors(figure.to_plotly_json()):
        *rgb, alpha = parts(color) or (0.0, 0.0, 0.0, 0.0)
        written = "#" + "".join(f"{round(255 * part):02X}" for part in rgb)
        if alpha and 255 * (max(rgb) - min(rgb)) >= GRAY and written not in CATEGORIES:
            others.add(written)
    assert others <= IN_WORDS.get(key, set())
    for scale in (trace.colorscale for trace in figure.data if trace.type in ("heatmap", "contour")):
        assert [list(step) for step in scale or theme.SEQUENTIAL] in SCALES, scale


@pytest.mark.parametrize("key", KEYS)
def test_every_check_holds(key: str) -> None:
    back = colors_of_a_dark_figure_give_the_light_one_back
    run_checks([figure_can_be_read_on_both_grounds, back, figure_has_no_colors_besides_palette_grays_and_scales], key)


def test_a_role_is_as_faint_on_one_ground_as_on_the_other() -> None:
    for light, dark in dark_ground.TO_DARK.items():
        on_white, on_black = contrast(light, WHITE), contrast(dark, BLACK)
        assert on_black >= min(MARK, on_white) - (0.2 if light.startswith("rgba") else 0.03), light
        assert on_white >= 2 or on_black == pytest.approx(on_white, abs=0.12), light


def test_the_table_and_the_templates() -> None:
    assert len(dark_ground.TO_LIGHT) == len(dark_ground.TO_DARK) and not set(dark_ground.TO_LIGHT) & set(
        dark_ground.TO_DARK
    )
    for template, below in ((theme.TEMPLATE.layout, theme.GROUND), (dark_ground.TEMPLATE.layout, BLACK)):
        assert template.paper_bgcolor == template.plot_bgcolor == template.hoverlabel.bgcolor == below
        for font in (template.font, template.hoverlabel.font, template.annotationdefaults.font):
            assert contrast(font.color, below) > 12
        assert contrast(template.xaxis.linecolor, below) >= TEXT
    assert min(contrast(color, behind) for color in (theme.INK, theme.FADED) for behind in (WHITE, theme.PANEL)) >= TEXT
    assert dark_ground.TEMPLATE.layout.colorscale == theme.TEMPLATE.layout.colorscale
    assert contrast(dark_ground.TO_DARK[theme.KEPT], BLACK) >= 7
    with pytest.raises(ChartError, match="option ground is 'gray'; it takes 'light', 'dark'"):
        viz.draw(KEYS[0], TABLES[KEYS[0]](4), ground="gray")


def test_only_colors_are_turned_and_scales_of_masks() -> None:
    light, turned = draw_example("saliency_matrix"), dark("saliency_matrix")
    scales = {
        trace.name: trace.colorscale == one.colorscale
        for one, trace in zip(light.data, turned.data, strict=True)
        if trace.type == "heatmap"
    }
    assert scales["Saliency"] and not scales["Own mask"]
    named = theme.draw_notice("masks", "white")
    named.layout.meta = {"color": "white"}
    named.add_scatter(x=np.zeros(2), y=[0, 0], text="white", marker={"color": ["white", "black"]})
    after = dark_ground.to_dark_ground(named)
    assert after.layout.annotations[0].text == after.data[0].text == after.layout.meta["color"] == "white"
    assert list(after.data[0].marker.color) == [BLACK, "black"]
