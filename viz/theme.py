"""The style of every figure: template, colors, symbols, sizes, and the settings of the chart's tool bar.

``finish_figure`` gives every figure ``TEMPLATE``, because importing streamlit changes plotly's default template.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # noqa: F401 - plotly uses it, even while another thread is still importing it
import plotly.graph_objects as go
from plotly.colors import get_colorscale

from viz.drawing import Drawing
from viz.figure_text import clean_text, power

# Okabe and Ito's eight colors, which every kind of color vision can distinguish. Yellow and black come last: yellow is
# faint on white, so that every filled mark also has a dark edge.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW, BLACK = PALETTE
SYMBOLS = (
    "circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "x",
    "pentagon", "hexagon", "triangle-left", "triangle-right",
)  # fmt: skip
INK, FADED, GRID, PANEL = "#1F2933", "#5F6B7A", "#E3E7EC", "#F6F7F9"
ON_LIGHT, ON_DARK = "#1F2932", "#FEFEFE"  # text on cells, the same on a light and a dark ground
ACCENT = VERMILION  # the outline of what is selected
SEQUENTIAL, DIVERGING = get_colorscale("Cividis"), get_colorscale("PuOr")
RUN_A, RUN_B = "#E08214", "#8073AC"  # runs A and B: the two sides of the diverging scale
PRUNED, KEPT = "#DDE1E6", "#0B3C5D"
GROUND, CLEAR = "white", "rgba(0,0,0,0)"
# Grays: what has no color of its own, reference marks, curves of equal H, bars before pruning, no clear difference.
OTHER_COLOR, REFERENCE, LEVEL_COLOR, BEFORE_COLOR, TIE_COLOR = "#999999", "#8A94A3", "#C7CED6", "#C9CFD6", "#F7F7F7"
BOTH_RIGHT, ONLY_A, ONLY_B, BOTH_WRONG = "#DCE6EF", "#FDD9A8", "#D5CFE6", "#E3E5E8"  # cells of images
GLASS, SHADE, THICK_SHADE = "rgba(255,255,255,0.5)", "rgba(255,255,255,0.62)", "rgba(255,255,255,0.72)"
CONTOUR, INTERVAL, FAILING = "rgba(31,41,51,0.55)", "rgba(95, 107, 122, 0.35)", "rgba(90,99,110,0.2)"
TOOLBAR_PX = 30  # px: the strip above a figure for its tool bar
FONT_SIZE, SMALL_SIZE = 13, 12  # px; nothing is smaller than 12
LINE_HEIGHT = 18  # px
# Heights of a projector's window and of a chart in it, px: with them small type is 24 of the projector's 1080 px high.
PRESENTED_LINES, PRESENTED_HEIGHT = 540, 444
WIDE_CHARACTER = 0.58  # mean width of a character in units of the font size, a generous estimate


class MarkStyle(NamedTuple):
    """Color and marker symbol of one name or one kind of row."""

    color: str
    symbol: str


KINDS: Mapping[str, MarkStyle] = {
    "pretrained": MarkStyle("#4B5563", "diamond-open"),
    "individual": MarkStyle(GREEN, "square-open"),
    "multitask": MarkStyle("#A3467C", "triangle-up-open"),
    "merge": MarkStyle(BLUE, "circle"),
    "per_task": MarkStyle(BLUE, "square"),
    "task_modules": MarkStyle(BLUE, "diamond"),
    "paper": MarkStyle("#C24E00", "x-thin-open"),
}
ROLE_COLORS: Mapping[str, str] = {
    "linear": BLUE,
    "conv": SKY,
    "norm_scale": ORANGE,
    "shift": PINK,
    "embedding": GREEN,
    "projection": VERMILION,
    "buffer": "#767676",
}

# By default a title is larger.
_COLOR_BAR = {"colorbar": {"tickfont": {"size": SMALL_SIZE}, "title": {"font": {"size": SMALL_SIZE}}}}

TEMPLATE = go.layout.Template(
    data={"heatmap": [_COLOR_BAR], "contour": [_COLOR_BAR]},
    layout={
        "font": {"family": '"Source Sans", Arial, Helvetica, sans-serif', "size": FONT_SIZE, "color": INK},
        "paper_bgcolor": GROUND,
        "plot_bgcolor": GROUND,
        "colorway": PALETTE,
        "colorscale": {"sequential": SEQUENTIAL, "diverging": DIVERGING},
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": GROUND,
            "bordercolor": FADED,
            "align": "left",
            "font": {"size": FONT_SIZE, "color": INK},
        },
        "legend": {"font": {"size": SMALL_SIZE}, "title": {"font": {"size": SMALL_SIZE}}, "bgcolor": CLEAR},
        "margin": {"l": 60, "r": 20, "t": 30, "b": 50, "pad": 2},
        "xaxis": {
            "gridcolor": GRID,
            "linecolor": FADED,
            "zeroline": False,
            "ticks": "outside",
            "tickcolor": FADED,
            "ticklen": 4,
            "tickfont": {"size": SMALL_SIZE},
            "title": {"standoff": 8, "font": {"size": FONT_SIZE}},
        },
        "yaxis": {
            "gridcolor": GRID,
            "linecolor": FADED,
            "zeroline": False,
            "ticks": "",
            "tickfont": {"size": SMALL_SIZE},
            "title": {"standoff": 8, "font": {"size": FONT_SIZE}},
        },
        "annotationdefaults": {"font": {"size": SMALL_SIZE, "color": INK}, "showarrow": False},
    },
)


def color_scale(diverging: bool) -> Any:
    """The colors of numbers: from low to high, or from below zero to above."""
    return DIVERGING if diverging else SEQUENTIAL


class MarkStyles(dict[str, MarkStyle]):
    """Styles by name; a name without one has the style of a merge."""

    def __missing__(self, name: str) -> MarkStyle:
        return KINDS["merge"]


def mark_styles(names: Sequence[str]) -> MarkStyles:
    """Color and symbol of every name, fixed by its position in ``names``.

    Up to eight names have a color each. No palette of more colors is readable: colors repeat with other symbols, so
    that neighbors differ in both.
    """
    size = len(PALETTE)
    return MarkStyles(
        (name, MarkStyle(PALETTE[i % size], SYMBOLS[(i % size + i // size) % len(SYMBOLS)]))
        for i, name in enumerate(names)
    )


def config(name: str, clicks: bool = False, camera: bool = True) -> dict[str, Any]:
    """Settings of the chart's tool bar with the name of saved pictures; with ``clicks`` without selection tools."""
    remove = ["autoScale2d", *([] if camera else ["toImage"])]
    if clicks:
        remove += ["select2d", "lasso2d"]  # with either active, plotly drops single clicks
    return {
        "displaylogo": False,
        "showSendToCloud": False,  # no figure leaves this machine
        "responsive": True,
        "modeBarButtonsToRemove": remove,
        "toImageButtonOptions": {"format": "svg", "filename": file_name(name)},
    }


def file_name(name: str) -> str:
    """The name of a figure's file without its ending, of letters, digits, points and dashes."""
    return re.sub(r"[^\w.-]+", "_", name)[:80] or "figure"


def text_width(text: str, size: float = SMALL_SIZE) -> float:
    """Approximate width of a text in px; tags have no width and an entity counts as one character."""
    plain = re.sub(r"&#?\w+;", "x", re.sub(r"<[^>]*>", "", text))
    return len(plain) * size * WIDE_CHARACTER


def finish_figure(
    fig: Drawing, key: str, alt: str, height: float, present: bool = False, zoom_key: str = ""
) -> go.Figure:
    """The figure with template, alt text and height (on a projector the window's); a new ``zoom_key`` resets zoom."""
    figure_height = PRESENTED_HEIGHT if present else round(height)
    meta = {"alt": clean_text(html.unescape(alt), 600), "key": key}
    fig.update_layout(template=TEMPLATE, height=figure_height, meta=meta, uirevision=f"{key}:{zoom_key}")
    return fig.figure()


def draw_notice(key: str, sentence: str, present: bool = False) -> go.Figure:
    """A figure with only a sentence that explains why there is no picture; ``sentence`` is already escaped."""
    fig = Drawing()
    fig.update_xaxes(visible=False, range=[0, 1])
    fig.update_yaxes(visible=False, range=[0, 1])
    fig.add_annotation(x=0.5, y=0.5, xref="paper", yref="paper", text=sentence, font={"size": 15, "color": FADED})
    return finish_figure(fig, key, sentence, 160, present)


def ticks(low: float, high: float, log: bool = False) -> dict[str, Any]:
    """Axis settings with four to eight round ticks, small numbers written as powers of ten.

    On a log axis the positions are logarithms, which a color bar of log values needs; ``low`` must be above zero.
    """
    if log:
        decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        for steps in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
            values = [step * 10.0**decade for decade in decades for step in steps]
            values = [value for value in values if low * 0.999 <= value <= high * 1.001]
            if len(values) >= 3:
                break
        values = _thin_log_ticks(values, np.log10(high / low) / 8)
        return {
            "tickmode": "array",
            "tickvals": [float(np.log10(v)) for v in values],
            "ticktext": list(map(power, values)),
        }
    rough = (high - low) / 6
    unit = 10.0 ** np.floor(np.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    values = [float(i * step) for i in range(int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9)) + 1)]
    return {"tickmode": "array", "tickvals": values, "ticktext": list(map(power, values))}


def _thin_log_ticks(values: list[float], decades: float) -> list[float]:
    """The values that are at least ``decades`` apart on a log axis."""
    thinned: list[float] = []
    for value in values:
        if not thinned or np.log10(value / thinned[-1]) >= decades:
            thinned.append(value)
    return thinned


def caption(text: str, y: float, **fields: Any) -> dict[str, Any]:
    """Annotation over the left edge of a panel whose top is at ``y`` (paper); ``fields`` replace others."""
    position = {"x": 0, "y": y, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 2}
    return {"text": text, **position, **fields}


def tint(color: str, opacity: float) -> str:
    """A color written as #RRGGBB, less than opaque."""
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def stripes(shape: str) -> dict[str, Any]:
    """The pattern of a filled bar in addition to its color, so that a gray print stays readable."""
    return {"shape": shape, "fgcolor": GROUND, "fillmode": "overlay", "size": 6, "solidity": 0.25}


def edge(width: float = 1) -> dict[str, Any]:
    """The dark outline of a filled mark, without which yellow is invisible on white."""
    return {"color": INK, "width": width}


def add_toolbar_strip(fig: go.Figure, grow: bool = True) -> go.Figure:
    """The figure with a strip above it for the chart's tool bar; the strip makes it higher unless ``grow`` is False."""
    layout = fig.layout.to_plotly_json()
    figure_height = layout["height"] - (0 if grow else TOOLBAR_PX)  # px that remain for the figure itself
    layout["height"] = figure_height + TOOLBAR_PX
    margin = layout.get("margin", {})
    layout["margin"] = margin | {"t": margin.get("t", TEMPLATE.layout.margin.t) + TOOLBAR_PX}
    for name, legend in layout.items():
        if name.startswith("legend") and legend.get("yref") == "container":
            layout[name] = legend | {"y": legend.get("y", 1) * figure_height / (figure_height + TOOLBAR_PX)}
    return go.Figure([trace.to_plotly_json() for trace in fig.data], layout, _validate=False)


def remove_ground(fig: go.Figure) -> go.Figure:
    """The same figure without a ground."""
    return go.Figure(fig).update_layout(paper_bgcolor=CLEAR, plot_bgcolor=CLEAR)


_PIXEL_FIELDS = {
    "size", "l", "r", "t", "b", "xshift", "yshift", "standoff", "startstandoff", "ticklen", "thickness", "arrowwidth",
    "itemwidth", "len", "height",
}  # fmt: skip


def enlarge_figure(fig: go.Figure, factor: float) -> go.Figure:
    """The same figure with all lengths in pixels scaled: fonts, marks, lines, margins, height; not the width."""
    data = [_scale_value("data", trace.to_plotly_json(), "", factor) for trace in fig.data]
    layout = _scale_value("layout", fig.layout.to_plotly_json(), "", factor)
    return go.Figure(data, layout | {"height": round(layout["height"])})


def _scale_value(key: str, value: Any, parent: str, factor: float) -> Any:
    if isinstance(value, dict):
        # the tail (ax, ay) of an arrow is in px, or on the axes named by axref and ayref
        arrow_in_data = str(value.get("axref", "pixel")) != "pixel"
        unscaled = {"ax", "ay"} if arrow_in_data else set()
        unscaled |= {"len"} if value.get("lenmode", "fraction") != "pixels" else set()
        return {k: v if k in unscaled else _scale_value(k, v, key, factor) for k, v in value.items()}
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        return [_scale_value(key, item, key, factor) for item in value]
    in_pixels = key in _PIXEL_FIELDS or (key == "width" and parent in ("line", "error_x", "error_y"))
    in_pixels = in_pixels or (key in ("ax", "ay") and parent == "annotations")
    if not in_pixels or value is None or isinstance(value, str | bool):
        return value
    scaled = np.asarray(value, np.float64) * factor
    return float(scaled) if scaled.ndim == 0 else scaled
