"""Tables of guesses, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names


def guess_number(number: int = 2, seed: int = 0) -> pd.DataFrame:
    """A guess and measurements with intervals."""
    value = np.random.default_rng(seed).uniform(20, 80, number)
    return pd.DataFrame(
        {
            "label": names(number),
            "kind": ["guess" if place == 0 else "truth" for place in range(number)],
            "value": value,
            "low": value - 4,
            "high": value + 3,
        }
    )


def guess_choice(number: int = 4) -> pd.DataFrame:
    """That many options, of which the first was chosen and the last was measured."""
    places = range(number)
    return pd.DataFrame(
        {"option": names(number), "guess": [k == 0 for k in places], "truth": [k == number - 1 for k in places]}
    )


def guess_order(number: int = 5, seed: int = 0) -> pd.DataFrame:
    """That many names, guessed in their order."""
    truth = 1 + np.random.default_rng(seed).permutation(number)
    return pd.DataFrame(
        {"option": names(number), "guess": range(1, number + 1), "truth": truth, "value": 90.0 - 3 * truth}
    )


def guess_curve(number: int = 7, seed: int = 0) -> pd.DataFrame:
    """A guess and a measured curve at that many places."""
    x = np.arange(number) / 10
    truth = 80 - 60 * x + np.random.default_rng(seed).normal(0, 2, number)
    return pd.DataFrame({"x": x, "guess": 60 + 10 * x, "truth": truth, "low": truth - 3, "high": truth + 2})


def guess_cells(number: int = 4, seed: int = 0) -> pd.DataFrame:
    """A row of three cells for each name; every second cell is marked."""
    cells = [(row, f"block {column}") for row in names(number) for column in range(3)]
    return pd.DataFrame(
        {
            "row": [row for row, _ in cells],
            "column": [column for _, column in cells],
            "guess": [place % 2 == 0 for place in range(len(cells))],
            "truth": np.random.default_rng(seed).uniform(0, 1, len(cells)),
        }
    )


def class_answers(number: int = 5, seed: int = 0) -> pd.DataFrame:
    """That many answers, of which the second was measured."""
    sessions = np.random.default_rng(seed).integers(0, 40, number)
    return pd.DataFrame({"answer": names(number), "sessions": sessions, "truth": [k == 1 for k in range(number)]})
