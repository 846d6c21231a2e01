"""Glyph masks from Debian's font packages, split by package so that test fonts are families never trained on."""

from __future__ import annotations

import functools
import re
import subprocess

import numpy as np
from PIL import Image, ImageDraw, ImageFont

CANVAS = 48  # pixels of the square a glyph is drawn in, before it is warped down to 32

TRAIN = (
    "averia-sans-gwf",
    "bebas-neue",
    "cmu",
    "comfortaa",
    "courier-prime",
    "ebgaramond",
    "gfs-artemisia",
    "humor-sans",
    "klaudia-berenika",
    "lato",
    "lobstertwo",
    "play",
    "quicksand",
    "noto-core",
    "mplus",
    "morisawa-bizud-mincho",
    "reggae",
    "stick",
    "dotgothic16",
    "seto",
    "yozvox-yozfont-cute",
    "motoya-l-maruberi",
    "aoyagi-kouzan-t",
)
VALIDATION = ("open-sans", "oldstandard", "yanone-kaffeesatz", "gfs-didot", "rocknroll", "noto-mono")
TEST = (
    "breip",
    "comic-neue",
    "gfs-neohellenic",
    "inconsolata",
    "junction",
    "jura",
    "klee",
    "league-spartan",
    "lobster",
    "roboto-slab",
    "sawarabi-mincho",
    "vollkorn",
    "yusei-magic",
)
HANDWRITTEN = (
    "humor-sans",
    "seto",
    "yozvox-yozfont-cute",
    "stick",
    "lobstertwo",
    "klaudia-berenika",
    "comfortaa",
    "quicksand",
    "aoyagi-kouzan-t",
    "averia-sans-gwf",
    "rocknroll",
    "oldstandard",
    "breip",
    "comic-neue",
    "klee",
    "lobster",
    "yusei-magic",
)
SPLITS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
TOO_THIN = re.compile(r"Hairline|Thin|ExtraLight|UltraLight", re.IGNORECASE)
FILES_PER_PACKAGE = 6
NOTO_GENERAL = ("NotoSans-", "NotoSerif-", "NotoSansDisplay-", "NotoSerifDisplay-")


@functools.cache
def package_files(package: str) -> tuple[str, ...]:
    """Every font file that the Debian package fonts-<package> installed, sorted."""
    listing = subprocess.run(["dpkg", "-L", f"fonts-{package}"], capture_output=True, text=True, check=True).stdout
    return tuple(sorted(line for line in listing.splitlines() if line.lower().endswith((".ttf", ".otf"))))


@functools.cache
def general_files(split: str) -> tuple[str, ...]:
    """Font files for Latin, Greek, Cyrillic and Japanese glyphs: a few of each package of the split.

    A package with fifty weights must not outvote one with a single hand-drawn face.
    """
    chosen: list[str] = []
    for package in SPLITS[split]:
        files = [path for path in package_files(package) if not TOO_THIN.search(path)]
        if package == "noto-core":
            wanted = re.compile(r"/(" + "|".join(NOTO_GENERAL) + r")(Regular|Bold|Italic)\.ttf$")
            files = [path for path in files if wanted.search(path)]
        if package == "play":  # the package holds the same two faces in two formats
            files = [path for path in files if path.endswith(".ttf")]
        step = max(1, -(-len(files) // FILES_PER_PACKAGE))
        chosen += files[::step]
    return tuple(chosen)


def handwritten_files(split: str) -> tuple[str, ...]:
    """The hand-drawn, brush and single-stroke faces among the split's files."""
    packages = [package for package in HANDWRITTEN if package in SPLITS[split]]
    return tuple(path for path in general_files(split) if any(path in package_files(name) for name in packages))


def script_files() -> tuple[str, ...]:
    """Noto faces of single scripts: they feed pretraining's broad mix only."""
    wanted = re.compile(r"/Noto(Sans|Serif)[A-Z][A-Za-z0-9]+-(Regular|Bold)\.ttf$")
    return tuple(path for path in package_files("noto-core") if wanted.search(path))


@functools.cache
def _face(path: str) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, 72)


@functools.cache
def _missing(path: str) -> bytes:
    return bytes(_face(path).getmask("\U0010fffd"))


@functools.cache
def glyph(path: str, character: str) -> np.ndarray | None:
    """The character as a (48, 48) uint8 mask, centered and filling 40 pixels; None where the font lacks it."""
    face = _face(path)
    ink = bytes(face.getmask(character))
    if not any(ink) or ink == _missing(path):
        return None
    left, top, right, bottom = face.getbbox(character)
    width, height = right - left, bottom - top
    image = Image.new("L", (width, height))
    ImageDraw.Draw(image).text((-left, -top), character, fill=255, font=face)
    ratio = 40 / max(width, height)
    small = image.resize((max(1, round(width * ratio)), max(1, round(height * ratio))), Image.Resampling.LANCZOS)
    canvas = Image.new("L", (CANVAS, CANVAS))
    canvas.paste(small, ((CANVAS - small.width) // 2, (CANVAS - small.height) // 2))
    return np.asarray(canvas)


def draw_many(
    characters: list[str], labels: np.ndarray, files: tuple[str, ...], random: np.random.Generator
) -> np.ndarray:
    """One mask per label, each from a random font that has the character (n, 48, 48) uint8."""
    able = {c: [mask for path in files if (mask := glyph(path, c)) is not None] for c in characters}
    lacking = [c for c, masks in able.items() if not masks]
    if lacking:
        raise ValueError(f"no font of this split draws {lacking}")
    return np.stack([able[characters[k]][random.integers(len(able[characters[k]]))] for k in labels])
