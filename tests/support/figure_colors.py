"""The colors of a figure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from viz import dark


def colors(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(field, color) of every color of a figure outside of its template and color scales."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("template", "colorscale", "meta", "customdata", "images"):
                yield from colors(inner, key if key.endswith(("color", "font")) and name[-4:] != "font" else name)
    elif isinstance(value, list | tuple | np.ndarray) and getattr(value, "dtype", np.dtype(object)).kind in "OU":
        for inner in value:
            yield from colors(inner, name)
    elif isinstance(value, str) and name and dark.parts(value):
        yield name, value
