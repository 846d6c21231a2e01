"""Own procedural land seen from above, in color (32, 32, 3)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from sample_data.build.textures import COLUMNS, ROWS, SIZE, smooth, turned_coordinates


def _ground(random: Generator, color: tuple[float, float, float], rough: float, cells: int = 8) -> np.ndarray:
    """A patch of one color with soft and fine variation (32, 32, 3)."""
    tone = np.asarray(color) * random.uniform(0.85, 1.15) + random.uniform(-0.03, 0.03, 3)
    shade = (smooth(random, cells) - 0.5) * rough + random.normal(0, rough * 0.15, (SIZE, SIZE))
    return tone + shade[..., None]


def _forest(random: Generator) -> np.ndarray:
    return _ground(random, (0.08, 0.28, 0.10), 0.22, 12)


def _crops(random: Generator) -> np.ndarray:
    image = np.zeros((SIZE, SIZE, 3))
    across, down = turned_coordinates(random)
    split_row, split_column = random.uniform(-0.15, 0.15, 2)
    for lower in (False, True):
        for right in (False, True):
            field = ((split_row < ROWS) == lower) & ((split_column < COLUMNS) == right)
            color = np.array([random.uniform(0.45, 0.85), random.uniform(0.5, 0.75), random.uniform(0.1, 0.3)])
            furrow = 0.07 * np.sin(2 * np.pi * 9 * (across if random.random() < 0.5 else down))
            image[field] = (color + furrow[..., None])[field]
    return image


def _highway(random: Generator) -> np.ndarray:
    image = _ground(random, (0.38, 0.40, 0.22), 0.2)
    across, _ = turned_coordinates(random, 40)
    line = across - across.mean() + random.uniform(-0.15, 0.15) + 0.08 * np.sin(ROWS * 3)
    image[np.abs(line) < 0.09] = random.uniform(0.55, 0.7)
    image[np.abs(line) < 0.015] = 0.92
    return image


def _residential(random: Generator) -> np.ndarray:
    image = _ground(random, (0.34, 0.40, 0.26), 0.12)
    across, down = turned_coordinates(random)
    cycles = random.uniform(4, 5.5)
    cell = np.floor(across * cycles) * 7 + np.floor(down * cycles) * 13
    house = (np.abs((across * cycles) % 1 - 0.5) < 0.28) & (np.abs((down * cycles) % 1 - 0.5) < 0.28)
    roof = np.stack([0.62 + 0.15 * np.sin(cell), 0.42 + 0.1 * np.sin(cell * 3), 0.36 + 0.1 * np.sin(cell * 5)], -1)
    return np.where(house[..., None], roof, image)


def _river(random: Generator) -> np.ndarray:
    image = _ground(random, (0.20, 0.45, 0.20), 0.18)
    across, down = turned_coordinates(random, 40)
    bend = random.uniform(0.08, 0.16) * np.sin(2 * np.pi * (down + random.random()))
    water = np.abs(across - across.mean() + bend) < random.uniform(0.08, 0.14)
    return np.where(water[..., None], _ground(random, (0.12, 0.25, 0.48), 0.05), image)


def _sea(random: Generator) -> np.ndarray:
    _, down = turned_coordinates(random)
    wave = 0.04 * np.sin(2 * np.pi * (down * random.uniform(5, 8) + 0.5 * smooth(random, 4)))
    return _ground(random, (0.12, 0.26, 0.50), 0.1) + wave[..., None]


def _pasture(random: Generator) -> np.ndarray:
    image = _ground(random, (0.42, 0.66, 0.32), 0.08, 4)
    for row, column in random.integers(0, SIZE, (int(random.integers(4, 12)), 2)):
        image[row, column] = 0.12
    return image


def _industrial(random: Generator) -> np.ndarray:
    image = _ground(random, (0.42, 0.42, 0.44), 0.1)
    for _ in range(int(random.integers(3, 6))):
        row, column = random.integers(0, SIZE - 8, 2)
        height, width = random.integers(7, 15, 2)
        image[row : row + height, column : column + width] = random.uniform(0.62, 0.9) + random.uniform(-0.05, 0.05, 3)
        image[row + height - 1 : row + height, column : column + width] = 0.2
    return image


def _orchard(random: Generator) -> np.ndarray:
    image = _ground(random, (0.55, 0.44, 0.30), 0.1)
    across, down = turned_coordinates(random)
    cycles = random.uniform(5, 7)
    tree = np.hypot((across * cycles) % 1 - 0.5, (down * cycles) % 1 - 0.5) < 0.34
    return np.where(tree[..., None], _ground(random, (0.12, 0.36, 0.10), 0.1), image)


def _bare(random: Generator) -> np.ndarray:
    return _ground(random, (0.66, 0.54, 0.38), 0.3, 5)


LAND: dict[str, Callable[[Generator], np.ndarray]] = {
    "forest": _forest,
    "crop fields": _crops,
    "highway": _highway,
    "residential area": _residential,
    "river": _river,
    "sea": _sea,
    "pasture": _pasture,
    "industrial area": _industrial,
    "orchard": _orchard,
    "bare soil": _bare,
}
