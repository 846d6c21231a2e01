"""Own drawings: traffic signs and plain shapes, as sprites (4 or 1 channels, 48 x 48)."""

from __future__ import annotations

import functools
import math

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sample_data.build.fonts import CANVAS, package_files

FINE = 192  # drawn four times larger, then shrunk: smooth edges
RED, BLUE, YELLOW, WHITE, BLACK, GREY = "#c81e1e", "#1e50b4", "#f0b414", "#ffffff", "#141414", "#8c8c8c"


def _polygon_points(sides: int, radius: float = 90, turn: float = -90, center: float = 96) -> list[tuple[float, float]]:
    angles = [math.radians(turn + 360 * k / sides) for k in range(sides)]
    return [(center + radius * math.cos(a), center + radius * math.sin(a)) for a in angles]


def _disc(draw: ImageDraw.ImageDraw, radius: float, color: str | int) -> None:
    draw.ellipse([96 - radius, 96 - radius, 96 + radius, 96 + radius], fill=color)


def _text(draw: ImageDraw.ImageDraw, words: str, size: int, color: str) -> None:
    bold = next(path for path in package_files("open-sans") if path.endswith("OpenSans-Bold.ttf"))
    draw.text((96, 96), words, fill=color, font=ImageFont.truetype(bold, size), anchor="mm")


def _arrow(draw: ImageDraw.ImageDraw, turn: float, color: str) -> None:
    cos, sin = math.cos(math.radians(turn)), math.sin(math.radians(turn))
    outline = [(0, -60), (46, -8), (18, -8), (18, 58), (-18, 58), (-18, -8), (-46, -8)]
    draw.polygon([(96 + x * cos - y * sin, 96 + x * sin + y * cos) for x, y in outline], fill=color)


def _ring_sign(draw: ImageDraw.ImageDraw) -> None:
    _disc(draw, 90, RED)
    _disc(draw, 66, WHITE)


def _warning(draw: ImageDraw.ImageDraw) -> None:
    draw.polygon(_polygon_points(3, 100, center=96), fill=RED)
    draw.polygon(_polygon_points(3, 66, center=96), fill=WHITE)


def _draw_sign(name: str, draw: ImageDraw.ImageDraw) -> None:
    first, _, rest = name.partition(":")
    if first == "stop":
        draw.polygon(_polygon_points(8, 94, 22.5), fill=RED)
        _text(draw, "STOP", 58, WHITE)
    elif first == "yield":
        draw.polygon(_polygon_points(3, 100, 90), fill=RED)
        draw.polygon(_polygon_points(3, 62, 90), fill=WHITE)
    elif first == "no entry":
        _disc(draw, 90, RED)
        draw.rectangle([32, 78, 160, 114], fill=WHITE)
    elif first == "limit":
        _ring_sign(draw)
        _text(draw, rest, 86, BLACK)
    elif first == "closed":
        _ring_sign(draw)
    elif first == "priority":
        draw.polygon(_polygon_points(4, 94), fill=WHITE)
        draw.polygon(_polygon_points(4, 74), fill=YELLOW)
    elif first == "warning":
        _warning(draw)
        _draw_warning(rest, draw)
    elif first == "arrow":
        _disc(draw, 90, BLUE)
        _arrow(draw, {"up": 0, "right": 90, "left": 270, "down": 180}[rest], WHITE)
    elif first == "parking":
        draw.rectangle([12, 12, 180, 180], fill=BLUE)
        _text(draw, "P", 150, WHITE)
    elif first == "end":
        _disc(draw, 90, WHITE)
        for offset in (-34, 0, 34):
            draw.line([40 + offset, 150 + offset / 2, 150 + offset, 40 + offset / 2], fill=BLACK, width=12)


def _draw_warning(kind: str, draw: ImageDraw.ImageDraw) -> None:
    if kind == "danger":
        draw.rectangle([86, 60, 106, 108], fill=BLACK)
        draw.ellipse([84, 114, 108, 138], fill=BLACK)
    elif kind == "crossroads":
        draw.line([66, 70, 126, 138], fill=BLACK, width=18)
        draw.line([126, 70, 66, 138], fill=BLACK, width=18)
    elif kind == "bump":
        draw.pieslice([56, 92, 136, 172], 180, 360, fill=BLACK)
    elif kind == "lights":
        for top, color in ((54, RED), (84, YELLOW), (114, "#28a03c")):
            draw.ellipse([82, top, 110, top + 28], fill=color)


SIGNS = {
    "stop": "stop",
    "yield": "yield",
    "no entry": "no entry",
    "speed limit 30": "limit:30",
    "speed limit 50": "limit:50",
    "speed limit 70": "limit:70",
    "speed limit 80": "limit:80",
    "speed limit 100": "limit:100",
    "closed to vehicles": "closed",
    "priority road": "priority",
    "danger": "warning:danger",
    "crossroads": "warning:crossroads",
    "bump": "warning:bump",
    "traffic lights": "warning:lights",
    "straight ahead": "arrow:up",
    "turn right": "arrow:right",
    "turn left": "arrow:left",
    "arrow down": "arrow:down",
    "parking": "parking",
    "end of limits": "end",
}


@functools.cache
def sign(name: str) -> np.ndarray:
    """A traffic sign as (4, 48, 48) uint8 color with alpha."""
    image = Image.new("RGBA", (FINE, FINE))
    draw = ImageDraw.Draw(image)
    _draw_sign(SIGNS[name], draw)
    if name == "end of limits":  # keep the strokes inside the disc
        disc = Image.new("L", (FINE, FINE))
        ImageDraw.Draw(disc).ellipse([6, 6, 186, 186], fill=255)
        image.putalpha(disc)
    return sprite(image)


def sprite(image: Image.Image) -> np.ndarray:
    """Shrinks a color picture with alpha into the canvas, keeping its proportions (4, 48, 48) uint8."""
    image = image.convert("RGBA")
    ratio = 42 / max(image.size)
    small = image.resize((round(image.width * ratio), round(image.height * ratio)), Image.Resampling.BOX)
    canvas = Image.new("RGBA", (CANVAS, CANVAS))
    canvas.paste(small, ((CANVAS - small.width) // 2, (CANVAS - small.height) // 2))
    return np.asarray(canvas).transpose(2, 0, 1).copy()


SHAPES = ("circle", "square", "triangle", "star", "pentagon", "cross", "ring", "crescent", "heart", "arrow")


@functools.cache
def shape(name: str) -> np.ndarray:
    """A plain shape as a (48, 48) uint8 mask."""
    image = Image.new("L", (FINE, FINE))
    draw = ImageDraw.Draw(image)
    if name in ("circle", "ring", "crescent"):
        _disc(draw, 80, 255)
        if name == "ring":
            _disc(draw, 48, 0)
        if name == "crescent":
            draw.ellipse([56, 10, 196, 150], fill=0)
    elif name == "star":
        outer, inner = _polygon_points(5, 88), _polygon_points(5, 36, -54)
        draw.polygon([point for pair in zip(outer, inner, strict=True) for point in pair], fill=255)
    elif name == "cross":
        draw.rectangle([72, 16, 120, 176], fill=255)
        draw.rectangle([16, 72, 176, 120], fill=255)
    elif name == "heart":
        draw.ellipse([18, 26, 98, 106], fill=255)
        draw.ellipse([94, 26, 174, 106], fill=255)
        draw.polygon([(24, 86), (168, 86), (96, 176)], fill=255)
    elif name == "arrow":
        draw.polygon([(16, 74), (104, 74), (104, 30), (178, 96), (104, 162), (104, 118), (16, 118)], fill=255)
    else:
        sides, turn = {"square": (4, 45), "triangle": (3, -90), "pentagon": (5, -90)}[name]
        draw.polygon(_polygon_points(sides, 86, turn), fill=255)
    return np.asarray(image.resize((CANVAS, CANVAS), Image.Resampling.BOX))
