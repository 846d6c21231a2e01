"""Tables of the charts of masks, with made-up numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viz_tables.base import names, tensors


def saliency_matrix(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Saliency and masks as LwPTV makes them: own masks of the top 30 %, the final mask their union."""
    rng = np.random.default_rng(seed)
    base = tensors(blocks)
    level = rng.lognormal(-9, 0.8, len(base))
    frames = []
    for name in names(experts):
        saliency = level * rng.lognormal(0, 0.35, len(base))
        kept = saliency > np.sort(saliency)[int(0.7 * len(base))]
        frames.append(base.assign(expert=name, saliency=saliency, kept=kept))
    table = pd.concat(frames, ignore_index=True)
    return table.assign(final=table.groupby("tensor")["kept"].transform("any"))


def manual_canvas(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """Factors painted by hand: the final mask with one block doubled, another turned round, a third halved for one."""
    table = saliency_matrix(experts, blocks, seed).drop(columns=["saliency", "kept"])
    factor = table.pop("final").astype(float)
    factor[table["section"] == "block 1"] = 1.5
    factor[table["section"] == "embeddings"] = -1.0
    factor[(table["section"] == "block 0") & (table["expert"] == names(1)[0])] = 0.5
    return table.assign(factor=factor)


def saliency_tensor(experts: int = 8, seed: int = 0) -> pd.DataFrame:
    """One tensor's rows."""
    rng = np.random.default_rng(seed)
    saliency, threshold = rng.lognormal(-9, 0.5, experts), rng.lognormal(-9, 0.1, experts)
    return pd.DataFrame(
        {"expert": names(experts), "saliency": saliency, "threshold": threshold, "kept": saliency > threshold}
    )


def kept_share(experts: int = 8, blocks: int = 6, seed: int = 0) -> pd.DataFrame:
    """The final mask, one row a tensor."""
    table = saliency_matrix(experts, blocks, seed).drop_duplicates("tensor")
    return table[["tensor", "section", "role", "part", "numel", "order"]].assign(kept=table["final"])
