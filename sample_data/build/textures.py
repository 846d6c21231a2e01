"""Own procedural textures, as masks of two colors (32, 32), and the smooth noise and turned grids they are made of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

SIZE = 32
ROWS, COLUMNS = np.meshgrid(np.arange(SIZE) / SIZE - 0.5, np.arange(SIZE) / SIZE - 0.5, indexing="ij")


def smooth(random: Generator, cells: int) -> np.ndarray:
    """Smooth noise in 0..1 with about `cells` bumps across (32, 32)."""
    knots = random.random((cells + 1, cells + 1))
    place = np.linspace(0, cells, SIZE, endpoint=False)
    low = place.astype(int)
    weight = place - low
    weight = weight * weight * (3 - 2 * weight)
    mix = np.zeros((SIZE, cells + 1))
    mix[np.arange(SIZE), low] = 1 - weight
    mix[np.arange(SIZE), low + 1] += weight
    return mix @ knots @ mix.T


def turned_coordinates(random: Generator, degrees: float = 14) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates turned by a small random angle and shifted by a random phase."""
    angle = np.radians(random.uniform(-degrees, degrees))
    across = np.cos(angle) * COLUMNS + np.sin(angle) * ROWS + random.random()
    down = -np.sin(angle) * COLUMNS + np.cos(angle) * ROWS + random.random()
    return across, down


def _edge(value: np.ndarray, softness: float = 0.08) -> np.ndarray:
    return np.clip(value / softness + 0.5, 0, 1)


def _seeds(random: Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances to the nearest and second nearest of random points (32, 32) each."""
    points = random.random((count, 2)) - 0.5
    distance = np.hypot(ROWS[..., None] - points[:, 0], COLUMNS[..., None] - points[:, 1])
    nearest = np.partition(distance, 1, axis=-1)
    return nearest[..., 0], nearest[..., 1]


def _striped(random: Generator) -> np.ndarray:
    across, _ = turned_coordinates(random)
    return _edge(np.sin(across * 2 * np.pi * random.uniform(3.5, 5.5)), 0.6)


def _dotted(random: Generator) -> np.ndarray:
    across, down = turned_coordinates(random)
    cycles = random.uniform(3.5, 5.5)
    radius = np.hypot((across * cycles) % 1 - 0.5, (down * cycles) % 1 - 0.5)
    return _edge(random.uniform(0.24, 0.34) - radius, 0.15)


def _checkered(random: Generator) -> np.ndarray:
    across, down = turned_coordinates(random)
    cycles = random.uniform(1.8, 2.8) * 2 * np.pi
    return _edge(np.sin(across * cycles) * np.sin(down * cycles), 0.25)


def _zigzag(random: Generator) -> np.ndarray:
    across, down = turned_coordinates(random)
    cycles = random.uniform(3.0, 4.5)
    tooth = np.abs((across * cycles) % 1 - 0.5) * 1.4
    return _edge(np.sin(2 * np.pi * (down * cycles + tooth)), 0.6)


def _grid(random: Generator) -> np.ndarray:
    across, down = turned_coordinates(random)
    cycles, width = random.uniform(3.5, 5.0), random.uniform(0.09, 0.13)
    line = np.minimum(np.abs((across * cycles) % 1 - 0.5), np.abs((down * cycles) % 1 - 0.5))
    return _edge(width - line, 0.12)


def _spiral(random: Generator) -> np.ndarray:
    rows, columns = ROWS - random.uniform(-0.15, 0.15), COLUMNS - random.uniform(-0.15, 0.15)
    turn = np.arctan2(rows, columns) * random.choice([-1, 1])
    return _edge(np.sin(2 * np.pi * np.hypot(rows, columns) * random.uniform(4.5, 6.5) + turn), 0.7)


def _cracked(random: Generator) -> np.ndarray:
    nearest, second = _seeds(random, int(random.integers(9, 16)))
    return _edge(random.uniform(0.02, 0.035) - (second - nearest), 0.03)


def _marbled(random: Generator) -> np.ndarray:
    bend = smooth(random, 4) * 2 + smooth(random, 7)
    across, _ = turned_coordinates(random, 180)
    return 0.5 + 0.5 * np.sin(2 * np.pi * (across + bend))


def _bubbly(random: Generator) -> np.ndarray:
    mask = np.zeros((SIZE, SIZE))
    for _ in range(int(random.integers(6, 10))):
        row, column, radius = random.uniform(-0.45, 0.45), random.uniform(-0.45, 0.45), random.uniform(0.07, 0.15)
        ring = 0.03 - np.abs(np.hypot(ROWS - row, COLUMNS - column) - radius)
        mask = np.maximum(mask, _edge(ring, 0.03))
    return mask


def _speckled(random: Generator) -> np.ndarray:
    return _edge(random.random((SIZE, SIZE)) - random.uniform(0.68, 0.8), 0.05)


def _woven(random: Generator) -> np.ndarray:
    across, down = turned_coordinates(random)
    cycles = random.uniform(3, 4.5)
    over = (np.floor(across * cycles) + np.floor(down * cycles)) % 2
    return np.where(over > 0, np.abs((across * cycles) % 1 - 0.5), np.abs((down * cycles) % 1 - 0.5)) * 2


def _honeycomb(random: Generator) -> np.ndarray:
    across, down = turned_coordinates(random)
    cycles = random.uniform(3.5, 5) * 2 * np.pi
    waves = sum(np.cos(cycles * (across * np.cos(a) + down * np.sin(a))) for a in (0, 2 * np.pi / 3, 4 * np.pi / 3))
    return _edge(np.asarray(waves) + 0.6, 0.8)


TEXTURES: dict[str, Callable[[Generator], np.ndarray]] = {
    "striped": _striped,
    "dotted": _dotted,
    "checkered": _checkered,
    "zigzag": _zigzag,
    "grid": _grid,
    "spiral": _spiral,
    "cracked": _cracked,
    "marbled": _marbled,
    "bubbly": _bubbly,
    "speckled": _speckled,
}
OTHER_TEXTURES: dict[str, Callable[[Generator], np.ndarray]] = {"woven": _woven, "honeycomb": _honeycomb}


def grating(random: Generator, orientation: int, frequency: int) -> np.ndarray:
    """A sine grating of one of eight orientations and four frequencies (32, 32): pretraining only."""
    angle = np.pi * (orientation + random.uniform(-0.3, 0.3)) / 8
    cycles = (2, 3.2, 5, 8)[frequency] * random.uniform(0.9, 1.1)
    phase = random.uniform(0, 2 * np.pi)
    return 0.5 + 0.5 * np.sin(2 * np.pi * cycles * (np.cos(angle) * COLUMNS + np.sin(angle) * ROWS) + phase)
