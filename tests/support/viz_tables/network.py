"""Example tables of the network map."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.masks import saliency_matrix


def network_map(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Saliency of every expert's tensors, with the sizes of its updates, its masks, and opposed signs."""
    rng = np.random.default_rng(seed)
    table = saliency_matrix(experts, blocks, seed)
    size = table["numel"].astype(float)
    return table.drop(columns=["final"]).rename(columns={"saliency": "value"}).assign(
        square=size * rng.lognormal(-10, 0.3, len(table)), weight_square=size * 1e-2,
        opposed=rng.uniform(0.4, 0.5, len(table)),
    )  # fmt: skip
