"""Pretraining's broad mix: glyphs of many scripts, other flags, emoji and textures. It teaches general features."""

from __future__ import annotations

import numpy as np
import torch

from sample_data.build import fonts, textures
from sample_data.build.compose import Style, compose
from sample_data.build.corpus import FLAG_FOLDER, LabelDraw, _shade, emoji, flag
from sample_data.build.tasks import CYRILLIC, EMOJI, FLAGS, GREEK, KANA, LETTERS

PER_GLYPH, PER_PICTURE, PER_TEXTURE = 80, 36, 100
GLYPH_STYLES = (
    Style(rotate=12, scale=(0.75, 1.0), shear=0.12, light=0.2, noise=0.07),
    Style(rotate=10, scale=(0.7, 1.0), background="paper", ink="dark", light=0.2),
    Style(rotate=12, scale=(0.7, 1.0), shear=0.25, elastic=0.1, stroke=0.1, background="black", ink="white", light=0),
    Style(rotate=10, scale=(0.8, 1.0), background="stripes", noise=0.07),
)
PICTURES = Style(rotate=10, scale=(0.8, 1.0), elastic=0.05, background="noise", light=0.2, noise=0.08, bar=0.1)
KANJI = "一二三十人大小山川田日月木水火土金口目手足力女子犬虫貝車糸竹石空雨上下中左右天正生立王玉町村学校赤青白早先"
SCRIPT_RANGES = {  # in Noto's single-script faces
    "Hebrew": (0x5D0, 0x5EB),
    "Armenian": (0x531, 0x557),
    "Georgian": (0x10D0, 0x10F1),
    "Thai": (0xE01, 0xE2F),
    "Cherokee": (0x13A0, 0x13E0),
    "Ethiopic": (0x1200, 0x1290),
    "Tamil": (0xB85, 0xBBA),
    "Devanagari": (0x905, 0x93A),
    "Bengali": (0x985, 0x9BA),
    "Runic": (0x16A0, 0x16EB),
    "Tifinagh": (0x2D30, 0x2D68),
    "Gujarati": (0xA85, 0xABA),
}
EMOJI_RANGES = ((0x1F330, 0x1F360), (0x1F400, 0x1F440), (0x1F680, 0x1F6A4), (0x1F3A0, 0x1F3C0), (0x1F600, 0x1F618))


def general_characters() -> list[str]:
    """Latin, Cyrillic and Japanese characters that no task uses and that do not repeat a task's shapes."""
    taken = {*LETTERS, *GREEK.values(), *CYRILLIC.values(), *KANA.values()}
    hiragana = [chr(code) for code in range(0x3042, 0x3094)]
    katakana = [chr(code) for code in range(0x30A2, 0x30F4)]
    pool = [
        *"BCDFGIJKNPQRUVWY",
        *"abdefghijkmnqrtuy",
        *"ГЗЙПУЧШЩЫЪ",
        *"ΓΔΘΛΞΠΣΦΨΩ",
        *"(){}[]<>/:;,^~",
        *hiragana,
        *katakana,
        *KANJI,
    ]
    return [character for character in pool if character not in taken]


def _glyph_pools() -> list[list[np.ndarray]]:
    """One list of masks per broad glyph class."""
    files = fonts.general_files("train")
    pools = [[m for path in files if (m := fonts.glyph(path, c)) is not None] for c in general_characters()]
    for script, (first, last) in SCRIPT_RANGES.items():
        own = [path for path in fonts.script_files() if f"Sans{script}-" in path or f"Serif{script}-" in path]
        pools += [[m for path in own if (m := fonts.glyph(path, chr(code))) is not None] for code in range(first, last)]
    return [pool for pool in pools if pool]


def _glyphs(draw: LabelDraw) -> list[np.ndarray]:
    """The images of each glyph class (classes, PER_GLYPH, 32, 32, 3), a quarter in each style."""
    pools = _glyph_pools()
    masks = np.stack([np.stack([pool[draw.choice.integers(len(pool))] for _ in range(PER_GLYPH)]) for pool in pools])
    share = PER_GLYPH // len(GLYPH_STYLES)
    parts = []
    for k, style in enumerate(GLYPH_STYLES):
        part = np.ascontiguousarray(masks[:, k * share : (k + 1) * share])
        images = compose(torch.from_numpy(part.reshape(-1, 48, 48)), style, draw.pixels).numpy()
        parts.append(images.reshape(len(pools), share, 32, 32, 3))
    return list(np.concatenate(parts, axis=1))


def _pictures(draw: LabelDraw) -> list[np.ndarray]:
    codes = sorted(path.stem for path in FLAG_FOLDER.glob("??.png") if path.stem not in FLAGS.values())
    sprites = [flag(code) for code in codes]
    used = {ord(character[0]) for character in EMOJI.values()}
    points = [code for first, last in EMOJI_RANGES for code in range(first, last) if code not in used]
    sprites += [s for code in points if (s := emoji(chr(code)))[3].any()]
    return [
        compose(torch.from_numpy(np.repeat(s[None], PER_PICTURE, 0)), PICTURES, draw.pixels).numpy() for s in sprites
    ]


def _textures(draw: LabelDraw) -> list[np.ndarray]:
    makers = list(textures.OTHER_TEXTURES.values())
    makers += [lambda random, o=o, f=f: textures.grating(random, o, f) for o in range(8) for f in range(4)]
    return [
        _shade(torch.from_numpy(np.stack([maker(draw.choice) for _ in range(PER_TEXTURE)])).float(), draw)
        for maker in makers
    ]


def draw_broad(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Every image of the broad mix (n, 32, 32, 3) uint8 and its class (n,)."""
    draw = LabelDraw("broad", seed)
    classes = [*_glyphs(draw), *_pictures(draw), *_textures(draw)]
    labels = np.concatenate([np.full(len(images), k) for k, images in enumerate(classes)])
    return np.concatenate(classes), labels
