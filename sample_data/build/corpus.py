"""Draws every image: for each task its web (pretraining), train, validation and test images, and the broad mix.

"more" are further test images, from the same sources as "test" and none of them twice.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from sample_data.build import drawings, fonts, land, textures
from sample_data.build.compose import Style, compose, draw_contrasting_colors, finish
from sample_data.build.tasks import CYRILLIC, EMOJI, FASHION, FLAGS, GREEK, KANA, LETTERS, SYMBOLS, TASKS, Task

WEB_IN_DOMAIN, WEB_OUT_OF_DOMAIN, VALIDATION, TEST, MORE = 1500, 7000, 400, 500, 240
EASY = Style()
OUTSIDE = Style(rotate=10, shift=0.08, scale=(0.75, 1.0), shear=0.1, light=0.2, noise=0.07)
HAND = Style(
    rotate=12, scale=(0.7, 0.95), shear=0.3, elastic=0.16, stroke=0.16, background="black", ink="white", light=0
)
STYLES = {
    "digits": HAND.harder(noise=0.0),
    "street": EASY.harder(background="gradient", contrast=0.3),
    "letters": EASY.harder(background="stripes"),
    "signs": EASY.harder(background="noise"),
    "flags": EASY.harder(background="noise", elastic=0.06, bar=0.3, light=0.2),
    "uci_digits": OUTSIDE.harder(background="noise", rotate=6, scale=(0.85, 1.0), noise=0.05),
    "kana": OUTSIDE.harder(rotate=8),
    "greek": OUTSIDE.harder(background="paper", ink="dark"),
    "cyrillic": OUTSIDE.harder(background="noise"),
    "symbols": OUTSIDE.harder(background="stripes"),
    "emoji": OUTSIDE.harder(background="noise", noise=0.1),
    "shapes": OUTSIDE.harder(background="noise", scale=(0.55, 0.95), rotate=14, noise=0.08),
}
SURFACE = EASY.harder(light=0.08, noise=0.05, blur=0.2)
CHARACTERS = {
    "street": "0123456789",
    "digits": "0123456789",
    "letters": LETTERS,
    "kana": KANA.values(),
    "greek": GREEK.values(),
    "cyrillic": CYRILLIC.values(),
    "symbols": SYMBOLS.values(),
}
FLAG_FOLDER = Path("/usr/share/iso-flags-png-320x240")
FASHION_FOLDER = Path("/usr/share/datasets/fashion-mnist")


class LabelDraw:
    """The random streams of one set of images: numpy for choices, torch for the warps. Seeded by the set's name."""

    def __init__(self, name: str, seed: int) -> None:
        self.seed = seed
        code = zlib.crc32(f"{seed}/{name}".encode())
        self.choice = np.random.default_rng(code)
        self.pixels = torch.Generator().manual_seed(code)

    def labels(self, count: int, classes: int) -> np.ndarray:
        """Balanced labels: every stretch of `classes` images holds each class once, in random order."""
        rounds = [self.choice.permutation(classes) for _ in range(-(-count // classes))]
        return np.concatenate(rounds)[:count]


def draw_set(task: Task, split: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """At most `count` images (n, 32, 32, 3) uint8 and labels (n,) of one task and split: fewer if its source ends."""
    draw = LabelDraw(f"{task.key}/{split}", seed)
    if task.key == "fashion":
        return _fashion(split, count, draw)
    if task.key == "uci_digits" and split == "more":
        count = min(count, 10 * min(len(pool) for pool in _list_unused_scans(seed)))
    labels = draw.labels(count, len(task.class_names))
    if task.key in ("land", "textures"):
        return _surfaces(task.key, labels, draw), labels
    return compose(_sprites(task, split, labels, draw), STYLES[task.key], draw.pixels).numpy(), labels


def _sprites(task: Task, split: str, labels: np.ndarray, draw: LabelDraw) -> torch.Tensor:
    if task.key == "uci_digits":
        return _scanned_digits(split, labels, draw)
    if task.key in CHARACTERS:
        fonts_split = {"validation": "validation", "test": "test", "more": "test"}.get(split, "train")
        files = fonts.handwritten_files(fonts_split) if task.key == "digits" else fonts.general_files(fonts_split)
        masks = fonts.draw_many(list(CHARACTERS[task.key]), labels, files, draw.choice)
        return torch.from_numpy(_add_neighbors(masks, files, draw) if task.key == "street" else masks)
    picture: Callable[[str], np.ndarray] = {
        "signs": drawings.sign,
        "shapes": drawings.shape,
        "flags": lambda name: flag(FLAGS[name]),
        "emoji": lambda name: emoji(EMOJI[name]),
    }[task.key]
    return torch.from_numpy(np.stack([picture(name) for name in task.class_names])[labels])


def _add_neighbors(masks: np.ndarray, files: tuple[str, ...], draw: LabelDraw) -> np.ndarray:
    """Digits of a house number: parts of a left and a right neighbor look in at the edges."""
    out = masks.copy()
    for step in (-36, 36):
        others = fonts.draw_many(list("0123456789"), draw.choice.integers(0, 10, len(masks)), files, draw.choice)
        others[draw.choice.random(len(masks)) > 0.6] = 0
        moved = np.zeros_like(others)
        if step < 0:
            moved[:, :, :step] = others[:, :, -step:]
        else:
            moved[:, :, step:] = others[:, :, :-step]
        out = np.maximum(out, moved)
    return out


def _surfaces(key: str, labels: np.ndarray, draw: LabelDraw) -> np.ndarray:
    makers = list((land.LAND if key == "land" else textures.TEXTURES).values())
    drawn = torch.from_numpy(np.stack([makers[k](draw.choice) for k in labels])).float()
    return _shade(drawn, draw)


def _shade(drawn: torch.Tensor, draw: LabelDraw) -> np.ndarray:
    """Masks (n, 32, 32) in two colors, or color images (n, 32, 32, 3), through the common last steps."""
    if drawn.ndim == 3:
        front, back = draw_contrasting_colors(len(drawn), 0.3, draw.pixels)
        image = back[:, :, None, None] + (front - back)[:, :, None, None] * drawn.unsqueeze(1)
    else:
        image = drawn.permute(0, 3, 1, 2)
    return finish(image, SURFACE, draw.pixels).numpy()


def flag(code: str) -> np.ndarray:
    """A flag of the Debian package as a sprite."""
    return drawings.sprite(Image.open(FLAG_FOLDER / f"{code}.png"))


def emoji(character: str) -> np.ndarray:
    """An emoji at the font's one bitmap size, as a sprite."""
    face = ImageFont.truetype(fonts.package_files("noto-color-emoji")[0], 109)
    image = Image.new("RGBA", (136, 128))
    ImageDraw.Draw(image).text((0, 0), character, font=face, embedded_color=True)
    return drawings.sprite(image.crop(image.getbbox()) if image.getbbox() else image)


def _scanned_digits(split: str, labels: np.ndarray, draw: LabelDraw) -> torch.Tensor:
    """UCI's 8 x 8 scans as masks: the first 1000 for pretraining, 150 to validate, the rest to test."""
    from sklearn.datasets import load_digits

    pools = _list_unused_scans(draw.seed) if split == "more" else _list_scans(split)
    order = (
        _draw_without_repeats(pools, labels, draw)
        if split in ("test", "more")
        else [draw.choice.choice(pools[k]) for k in labels]
    )
    small = torch.from_numpy(load_digits().images[order] / 16).float().unsqueeze(1)
    masks = torch.nn.functional.interpolate(small, (40, 40), mode="bilinear", align_corners=False)
    padded = torch.nn.functional.pad(masks, (4, 4, 4, 4)).squeeze(1)
    return (padded * 255).round().to(torch.uint8)


def _list_scans(split: str) -> list[np.ndarray]:
    """The numbers of a split's scans, by digit."""
    from sklearn.datasets import load_digits

    start, stop = {"web": (0, 1000), "validation": (1000, 1150)}.get(split, (1150, None))
    truth = load_digits().target[start:stop]
    return [start + np.flatnonzero(truth == k) for k in range(10)]


def _list_unused_scans(seed: int) -> list[np.ndarray]:
    """The numbers of the scans to test that "test" does not have, by digit."""
    first = LabelDraw("uci_digits/test", seed)
    pools = _list_scans("test")
    used = _draw_without_repeats(pools, first.labels(TEST, 10), first)
    return [np.setdiff1d(pool, used) for pool in pools]


def _fashion(split: str, count: int, draw: LabelDraw) -> tuple[np.ndarray, np.ndarray]:
    """Fashion-MNIST without two classes, padded to 32: train's images in three disjoint runs, t10k for the test."""
    stem = "t10k" if split in ("test", "more") else "train"
    images, truth = _idx(f"{stem}-images-idx3-ubyte"), _idx(f"{stem}-labels-idx1-ubyte")
    start, stop = {"train": (0, 36000), "web": (36000, 42000), "validation": (42000, 48000)}.get(split, (0, 10000))
    pools = [start + np.flatnonzero(truth[start:stop] == old) for old in FASHION.values()]
    if split == "more":
        first = LabelDraw("fashion/test", draw.seed)
        used = _draw_without_repeats(pools, first.labels(TEST, len(pools)), first)
        pools = [np.setdiff1d(pool, used) for pool in pools]
    labels = draw.labels(count, len(pools))
    rows = _draw_without_repeats(pools, labels, draw)
    padded = np.pad(images[rows], ((0, 0), (2, 2), (2, 2)))
    return np.repeat(padded[..., None], 3, axis=3), labels


def _draw_without_repeats(pools: list[np.ndarray], labels: np.ndarray, draw: LabelDraw) -> list[int]:
    """For each label a member of that class's pool, none twice."""
    shuffled = [iter(draw.choice.permutation(pool)) for pool in pools]
    return [int(next(shuffled[label])) for label in labels]


def _idx(name: str) -> np.ndarray:
    raw = gzip.decompress((FASHION_FOLDER / f"{name}.gz").read_bytes())
    dimensions = raw[3]
    shape = struct.unpack(f">{dimensions}I", raw[4 : 4 + 4 * dimensions])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def draw_all(folder: Path, seed: int, say: Callable[[str], None]) -> None:
    """Draws every set of every task and the broad mix into `folder`: per set two .npy files."""
    from sample_data.build.broad_mix import draw_broad

    folder.mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        web = WEB_IN_DOMAIN if task.in_domain else WEB_OUT_OF_DOMAIN
        sizes = {"web": web, "validation": VALIDATION, "test": TEST, "more": MORE}
        if task.in_domain:
            sizes["train"] = task.train
        for split, count in sizes.items():
            images, labels = draw_set(task, split, count, seed)
            save(folder, f"{task.key}_{split}", images, labels)
        say(f"{task.key}: {sizes}")
    images, labels = draw_broad(seed)
    save(folder, "broad_web", images, labels)
    say(f"broad: {len(images)} images of {labels.max() + 1} classes")


def save(folder: Path, name: str, images: np.ndarray, labels: np.ndarray) -> None:
    """Two plain arrays, so that training can map them instead of reading them."""
    np.save(folder / f"{name}_images.npy", images)
    np.save(folder / f"{name}_labels.npy", labels.astype(np.int64))


def load(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (mapped, uint8) and labels of a saved set."""
    return np.load(folder / f"{name}_images.npy", mmap_mode="r"), np.load(folder / f"{name}_labels.npy")
