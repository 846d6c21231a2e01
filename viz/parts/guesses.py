"""What the charts of guesses share: colors and symbols of a guess and of the truth, and numbers with their unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from viz import theme
from viz.text import real, safe_text

GUESS, TRUTH = theme.Look("#D55E00", "diamond"), theme.Look("#0072B2", "circle")
GUESSED, MEASURED, WITHHELD = "Your guess", "Measured", "?"
FEW = 24  # characters of a name beside an axis


def marker(look: theme.Look, size: float = 11) -> dict[str, Any]:
    """A mark of a guess or of the truth, with the dark edge that every filled mark has."""
    return {"color": look.color, "symbol": look.symbol, "size": size, "line": theme.edge()}


def numbers(values: Any) -> npt.NDArray[np.float32]:
    """Values for an axis."""
    return np.asarray(values, np.float32)


def amount(value: float, unit: str) -> str:
    """A number with its unit, escaped: '69.4 %'; "—" where there is no number."""
    if not np.isfinite(value):
        return "—"
    written = f"{value:.1f}".removesuffix(".0") if abs(value) >= 1 else real(value)
    return f"{written} {safe_text(unit, 20)}".strip()


def between(row: Mapping[Any, Any], unit: str) -> str:
    """The interval of a row in parentheses; empty if it has none."""
    low, high = (float(row.get(name, np.nan)) for name in ("low", "high"))
    known = np.isfinite(low) and np.isfinite(high)
    return f" ({amount(low, '')} to {amount(high, unit)})" if known else ""


def hidden(text: str = WITHHELD) -> dict[str, Any]:
    """The sign that stands in the picture while the truth is withheld."""
    return {
        "text": text, "x": 0.5, "y": 0.5, "xref": "x domain", "yref": "y domain", "showarrow": False,
        "font": {"size": 34, "color": theme.FADED},
    }  # fmt: skip
