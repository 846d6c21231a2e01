"""The weights that routers give experts, block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from viz.chart import in_order
from viz.drawing import Drawing
from viz.parts import depth, matrix
from viz.text import plural

BLOCKS, MODEL = "Block", "Whole model"


def draw(table: pd.DataFrame, hover: Callable[[dict[Any, Any]], str]) -> tuple[Drawing, float]:
    """A heat map of experts by blocks of a table with block, expert and weight, and its height in px."""
    table = table.assign(block=table["block"].map(block_name), expert=table["expert"].astype(str))
    weights = {(row["expert"], row["block"]): row for row in table.to_dict("records")}
    experts, blocks = in_order(table["expert"]), in_order(table["block"])
    values = matrix.grid({pair: float(row["weight"]) for pair, row in weights.items()}, experts, blocks)
    texts = [hover(weights[experts[y], blocks[x]]) for y, x in np.argwhere(np.isfinite(values)).tolist()]
    across = BLOCKS if blocks != [MODEL] else "Routed once, before the network"
    numbers = values[np.isfinite(values)]
    span = (min(0.0, float(numbers.min())), max(1.0, float(numbers.max())))
    fig = matrix.draw(
        matrix.Side("Expert", experts, experts), matrix.Side(across, blocks, blocks), values, texts,
        depth.Scale("weight", log=False, limits=span),
    )  # fmt: skip
    return fig, matrix.height(fig, len(experts))


def places(table: pd.DataFrame) -> str:
    """Where a table's images are routed, in words: 'in 3 blocks', or 'once for the whole model'."""
    names = set(table["block"].map(block_name))
    return "once for the whole model" if names == {MODEL} else f"in {plural(len(names), 'block')}"


def block_name(block: object) -> str:
    """A block's number; the whole model where there is one router for all."""
    if isinstance(block, str) or block is None:
        return str(block).removeprefix("block ") if block else MODEL
    number = float(block)  # type: ignore[arg-type]
    return f"{number:.0f}" if np.isfinite(number) and number >= 0 else MODEL
